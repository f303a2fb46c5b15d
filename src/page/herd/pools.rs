//! Templates and their agents.

use drover_api::{Counts, TemplateOut};
use drover_model::phase::BreakerPhase;

use super::breakers::{Tripped, row_with};
use super::tiles::parts;
use super::waits::Wait;
use crate::show;

/// The width of a bar, in units of the drawing.
pub(super) const BAR: u32 = 1000;

/// A template and its agents.
pub(super) struct Pool {
    pub(super) out: TemplateOut,
    pub(super) agents: String,
    pub(super) slices: Vec<Slice>,
    pub(super) ready: u32,
    pub(super) kept_idle: u32,
    pub(super) busy: u32,
    /// Those on their way, and those that wait until they may go on, in words.
    pub(super) coming: String,
    pub(super) leaving: u32,
    pub(super) breaker: &'static str,
    pub(super) is_closed: bool,
    /// What keeps it from beginning more, as far as no other row says it; blank where nothing does.
    pub(super) why: String,
    /// The row of what waits, or of what needs a look, that has the first reason.
    pub(super) see: Option<(String, &'static str)>,
}

/// A part of the bar of a template's agents.
pub(super) struct Slice {
    pub(super) class: &'static str,
    pub(super) x: u32,
    pub(super) width: u32,
    pub(super) title: String,
}

pub(super) fn pool(out: &TemplateOut, counts: Counts, waits: &[Wait], tripped: &[Tripped]) -> Pool {
    let on_way = counts.coming;
    let not_yet = counts.queued + counts.held_up;
    let parts: [(&'static str, &'static str, u32); 6] = [
        ("in use", "busy", counts.busy),
        ("ready", "ready", counts.ready),
        ("on the way", "coming", on_way),
        ("not on the way", "queued", not_yet),
        ("leaving", "leaving", counts.leaving),
        ("stranded", "stranded", counts.stranded),
    ];
    let all: u32 = parts.iter().map(|(_, _, count)| count).sum();
    let most = out.cap.unwrap_or(0).max(all).max(1);
    let mut x = 0;
    let slices = parts.iter().filter(|(_, _, count)| *count > 0).map(|(word, class, count)| {
        let width = count * BAR / most;
        x += width;
        Slice { class, x: x - width, width, title: format!("{count} {word}") }
    });
    let slices = slices.collect();
    let mut why =
        [&out.cause, &out.lack, &out.paused].into_iter().flatten().cloned().collect::<Vec<_>>();
    let is_listed = || tripped.iter().any(|one| one.out.id == out.id && one.out.cause.is_some());
    let see = match why.first().and_then(|reason| row_with(reason, waits)) {
        Some(row) => Some((row, "What waits")),
        None if out.cause.is_some() && is_listed() => {
            Some((format!("tripped-{}", out.id), "What needs a look"))
        }
        None => None,
    };
    if see.is_some() {
        why.remove(0);
    }
    Pool {
        agents: show::of_most(all, out.cap),
        slices,
        ready: counts.ready,
        kept_idle: counts.kept_idle(out),
        busy: counts.busy,
        coming: match parts_waiting(counts) {
            more if more.is_empty() => on_way.to_string(),
            more => format!("{on_way}, {more}"),
        },
        leaving: counts.leaving + counts.stranded,
        breaker: show::breaker(out.breaker),
        is_closed: out.breaker == BreakerPhase::Closed,
        see,
        why: why.join("; "),
        out: out.clone(),
    }
}

/// Agents that wait until they may go on, in words.
fn parts_waiting(counts: Counts) -> String {
    parts(&[(counts.queued, "queued"), (counts.held_up, "held up")])
}
