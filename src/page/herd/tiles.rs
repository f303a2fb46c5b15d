//! Numbers that say how things stand.

use drover_api::{Counts, StatusOut, count};
use drover_model::phase::AgentPhase;

use super::asides::HerdAsides;

/// A number that says how things stand.
pub(super) struct Tile {
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) detail: String,
    pub(super) link: &'static str,
    /// Whether it asks for attention.
    pub(super) is_bad: bool,
}

pub(super) fn tiles(status: &StatusOut, counted: &[Counts], asides: &HerdAsides) -> Vec<Tile> {
    let mut all = Counts::default();
    counted.iter().for_each(|one| all += *one);
    let kept = status.templates.iter().zip(counted).map(|(one, of)| of.kept_idle(one));
    let kept: u32 = kept.sum();
    let of_phase = |wanted: AgentPhase| -> u32 {
        let states = status.templates.iter().flat_map(|one| one.states.iter());
        states.filter(|(phase, _)| **phase == wanted).map(|(_, count)| *count).sum()
    };
    let on_way = if all.coming == 1 { "on its way" } else { "on their way" };
    let agents = parts(&[
        (all.coming, on_way),
        (all.queued, "queued"),
        (all.held_up, "held up"),
        (all.leaving, "leaving"),
    ]);
    let leases = count(asides.leases.granted, "lease");
    let held = parts(&[(of_phase(AgentPhase::Held), "held")]);
    let in_use = if held.is_empty() { leases } else { format!("{leases}, {held}") };
    let waiting = u32::try_from(asides.leases.waiting).unwrap_or(u32::MAX);
    let jobs: usize = status.sources.iter().map(|one| one.waiting).sum();
    let running: usize = status.sources.iter().map(|one| one.running).sum();
    let unoffered: usize = status.sources.iter().map(|one| one.unoffered).sum();
    let unread = status.sources.iter().filter(|one| one.silent_since.is_some()).count();
    let mut of_jobs = match unoffered {
        0 => format!("{running} run"),
        more => format!("{running} run, {more} that no template serves"),
    };
    if unread > 0 {
        of_jobs = format!("{of_jobs}; {} not read", count(unread, "source"));
    }
    let tile =
        |name, number, detail: String, link, is_bad| Tile { name, number, detail, link, is_bad };
    vec![
        tile(
            if all.all() == 1 { "agent" } else { "agents" },
            all.all(),
            agents,
            "/agents",
            all.held_up > 0,
        ),
        tile(
            "ready",
            all.ready,
            format!("{kept} kept idle"),
            "/agents?q=state:ready",
            all.ready < kept,
        ),
        tile("in use", all.busy, in_use, "/agents?q=state:leased", false),
        tile(
            if waiting == 1 { "lease waits" } else { "leases wait" },
            waiting,
            String::new(),
            "/leases?q=state:waiting",
            waiting > 0,
        ),
        tile(
            if jobs == 1 { "job waits" } else { "jobs wait" },
            u32::try_from(jobs).unwrap_or(u32::MAX),
            of_jobs,
            "/jobs",
            jobs > 0 || unread > 0,
        ),
        tile("stranded", all.stranded, String::new(), "/agents?q=state:stranded", all.stranded > 0),
    ]
}

/// Counts in words, without those that are none.
pub(super) fn parts(each: &[(u32, &str)]) -> String {
    let some = each.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}
