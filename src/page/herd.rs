//! The herd at a glance.

use std::collections::BTreeMap;

use askama::Template;
use drover_api::{
    AccountOut, AgentOut, AlarmOut, BreakerOut, CloudOut, Counts, DrainIn, FaultOut, GoneOut,
    KindOut, LeaseOut, SourceOut, StatusOut, TemplateOut, UntriedOut, count, standing,
};
use drover_model::phase::{AgentPhase, BreakerPhase};

use crate::frame::Frame;
use crate::{said, show};

/// Agents that are gone, and jobs that were lost, as many of each as are shown.
const LAST: usize = 8;

/// Labels of the ends that are failures on the way to a ready agent.
const FAILURES: [&str; 2] = ["failed", "too-slow"];

/// The herd at a glance.
#[derive(Template)]
#[template(path = "herd.html")]
pub struct HerdPage {
    frame: Frame,
    is_ready: bool,
    trouble: Vec<String>,
    alarms: Vec<Alarm>,
    refused: Option<(String, String)>,
    faults: Vec<FaultOut>,
    tiles: Vec<Tile>,
    waits: Vec<Wait>,
    kept_out: Vec<KeptOut>,
    stuck: Vec<AgentOut>,
    lost_leases: Vec<LeaseOut>,
    down: Vec<NodeDown>,
    /// How many more need a look than are shown.
    more_looks: usize,
    held: Vec<HeldAgent>,
    /// Breakers of nodes and storages that are not closed.
    breakers: Vec<(BreakerOut, &'static str)>,
    clouds: Vec<Cloud>,
    templates: Vec<Pool>,
    sources: Vec<SourceOut>,
    gone: Vec<Went>,
    lost: Vec<drover_api::LostJobOut>,
    findings: Vec<(String, String, Vec<String>)>,
}

/// An agent that is gone, and how many of its template went for the same reason right before.
struct Went {
    out: GoneOut,
    more: usize,
}

/// The last ones, newest first, those that failed alike together.
fn went(gone: Vec<GoneOut>) -> Vec<Went> {
    let mut all: Vec<Went> = Vec::new();
    for out in gone {
        let is_alike =
            |last: &&mut Went| last.out.template == out.template && last.out.detail == out.detail;
        let is_full = all.len() == LAST;
        match all.last_mut().filter(is_alike) {
            Some(last) => last.more += 1,
            None if is_full => break,
            None => all.push(Went { out, more: 0 }),
        }
    }
    all
}

/// An alarm with the page of what it is about.
struct Alarm {
    out: AlarmOut,
    place: Option<String>,
}

/// What of a kind waits, and for whom.
struct Wait {
    source: String,
    kind: KindOut,
    /// The alarm that has the cause, where one has.
    see: Option<(usize, String)>,
    /// Where the nodes are looked at for it.
    why: String,
    /// What lists it.
    list: String,
    when: String,
    /// What the cause is about, where that is one thing.
    about: String,
    /// The agent that went last of those that failed for it, where the cause does not say so.
    failed: Option<GoneOut>,
    /// Nodes that its templates never try, where the cause is about nodes.
    untried: Vec<(String, String)>,
}

/// A node that an operator cordoned or drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutNode {
    pub cluster: String,
    pub node: String,
    /// Whether it is drained, and not cordoned alone.
    pub is_drained: bool,
}

/// A node that is offline, with the agents on it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDown {
    pub cluster: String,
    pub node: String,
    /// Since when (RFC 3339).
    pub since: String,
    pub agents: Vec<AgentOut>,
}

/// An agent that somebody holds.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldAgent {
    pub agent: AgentOut,
    /// Who; none where the caller may not know it.
    pub by: Option<String>,
}

struct KeptOut {
    out: KeptOutNode,
    /// What its button sends: a cloud of its cluster, as several clusters may have such a node.
    use_again: String,
}

/// What the herd's page has beside the status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HerdAsides {
    pub leases: LeaseCounts,
    /// What sources and leases wait for.
    pub waits: Vec<AccountOut>,
    /// Nodes that operators keep out.
    pub kept_out: Vec<KeptOutNode>,
    /// Agents that do not go on.
    pub stuck: Vec<AgentOut>,
    /// Leases that lost their machines lately.
    pub lost_leases: Vec<LeaseOut>,
    /// All that stands as an alarm, by [`standing_alarms`].
    pub alarms: Vec<AlarmOut>,
    /// Nodes that are offline, where agents are on them.
    pub down: Vec<NodeDown>,
    /// How many more need a look than are here.
    pub more_looks: usize,
    /// Agents that somebody holds.
    pub held: Vec<HeldAgent>,
    /// How many agents of a template drain and are in nobody's use.
    pub let_go: BTreeMap<String, u32>,
    /// Nodes that a template never tries.
    pub untried: BTreeMap<String, Vec<UntriedOut>>,
}

/// A number that says how things stand.
struct Tile {
    name: &'static str,
    number: u32,
    detail: String,
    link: &'static str,
    /// Whether it asks for attention.
    is_bad: bool,
}

struct Cloud {
    out: CloudOut,
    /// Its alarm, which has what is wrong.
    see: Option<(usize, String)>,
    health: &'static str,
    agents: String,
    share: u32,
    breakers: Vec<BreakerOut>,
}

/// A template and its agents.
struct Pool {
    out: TemplateOut,
    agents: String,
    slices: Vec<Slice>,
    ready: u32,
    kept_idle: u32,
    busy: u32,
    /// Those on their way, and those that wait until they may go on, in words.
    coming: String,
    leaving: u32,
    breaker: &'static str,
    is_closed: bool,
    /// What keeps it from beginning more; blank where nothing does.
    why: String,
    /// The row of what waits that says it, too.
    see: Option<String>,
}

/// Agents that wait until they may go on, in words.
fn parts_waiting(counts: Counts) -> String {
    parts(&[(counts.queued, "queued"), (counts.held_up, "held up")])
}

/// A part of the bar of a template's agents.
struct Slice {
    class: &'static str,
    x: u32,
    width: u32,
    title: String,
}

/// The width of a bar, in units of the drawing.
const BAR: u32 = 1000;

/// Leases by how they stand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    pub waiting: usize,
    /// Those that have an agent.
    pub granted: usize,
}

impl HerdPage {
    /// Of the status without its agents and leases, which are counted; and of the agents that went last, the
    /// oldest first.
    pub fn new(
        frame: Frame,
        status: StatusOut,
        asides: HerdAsides,
        mut gone: Vec<GoneOut>,
    ) -> Self {
        let counted = counted(&status, &asides.let_go);
        let tiles = tiles(&status, &counted, &asides);
        let HerdAsides { waits, kept_out, stuck, lost_leases, alarms, down, held, .. } = asides;
        let (untried, more_looks) = (asides.untried, asides.more_looks);
        gone.reverse();
        let mut lost = status.lost_jobs.clone();
        lost.reverse();
        lost.truncate(LAST);
        let mut trouble = status.journal.iter().cloned().collect::<Vec<_>>();
        trouble.extend(status.other_drover.iter().cloned());
        let config = &status.config;
        let refused = config.refusal.clone().zip(config.refused_at.clone());
        let is_shown = refused.is_some();
        // A refused configuration is shown above them, with all of its faults.
        let is_refusal = |one: &AlarmOut| {
            is_shown && one.about == "configuration" && one.since == config.refused_at
        };
        let shown = alarms.into_iter().filter(|one| !is_refusal(one));
        let alarms = shown.map(|out| Alarm { place: said::place(&out.about), out });
        let alarms: Vec<Alarm> = alarms.collect();
        let found = status.reconciled.iter().map(|one| {
            let mut lines: Vec<String> = one.findings.clone();
            lines.extend(one.unread.iter().map(|why| format!("it was not read: {why}")));
            (one.cluster.clone(), one.at.clone(), lines)
        });
        let all = waits.into_iter().flat_map(|one| waits_of(one, &alarms, &gone, &untried));
        let shown_waits: Vec<Wait> = all.collect();
        let templates = status.templates.iter().zip(&counted);
        let templates = templates.map(|(one, of)| pool(one, *of, &shown_waits));
        let templates: Vec<Pool> = templates.collect();
        Self {
            is_ready: status.ready,
            trouble,
            refused,
            faults: config.faults.clone(),
            waits: shown_waits,
            kept_out: kept_out.into_iter().map(|one| kept_out_of(one, &status.clouds)).collect(),
            stuck,
            lost_leases,
            down,
            more_looks,
            held,
            breakers: places(&status.breakers),
            tiles,
            clouds: status
                .clouds
                .iter()
                .map(|one| cloud(one, &status, &counted, &alarms))
                .collect(),
            templates,
            findings: found.collect(),
            sources: status.sources,
            alarms,
            gone: went(gone),
            lost,
            frame,
        }
    }
}

/// The agents of each template, in the order of the status.
fn counted(status: &StatusOut, let_go: &BTreeMap<String, u32>) -> Vec<Counts> {
    let of = |one: &TemplateOut| {
        let cloud = one.id.split('/').next();
        let cloud = status.clouds.iter().find(|known| Some(known.id.as_str()) == cloud);
        let let_go = let_go.get(&one.id).copied().unwrap_or(0);
        Counts::of(&one.states, let_go, cloud.map(|cloud| cloud.health))
    };
    status.templates.iter().map(of).collect()
}

/// Counts in words, without those that are none.
fn parts(each: &[(u32, &str)]) -> String {
    let some = each.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

fn tiles(status: &StatusOut, counted: &[Counts], asides: &HerdAsides) -> Vec<Tile> {
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
        tile("agents", all.all(), agents, "/agents", all.held_up > 0),
        tile(
            "ready",
            all.ready,
            format!("{kept} kept idle"),
            "/agents?q=state:ready",
            all.ready < kept,
        ),
        tile("in use", all.busy, in_use, "/agents?q=state:leased", false),
        tile("leases wait", waiting, String::new(), "/leases?q=state:waiting", waiting > 0),
        tile(
            "jobs wait",
            u32::try_from(jobs).unwrap_or(u32::MAX),
            of_jobs,
            "/jobs",
            jobs > 0 || unread > 0,
        ),
        tile("stranded", all.stranded, String::new(), "/agents?q=state:stranded", all.stranded > 0),
    ]
}

/// All alarms that stand, with sources that cannot be read: they are no alarms of agents or clusters, and all the
/// same nothing of them is served.
pub fn standing_alarms(alarms: Vec<AlarmOut>, sources: &[SourceOut]) -> Vec<AlarmOut> {
    alarms.into_iter().chain(sources.iter().filter_map(silent)).collect()
}

/// A source that cannot be read, as an alarm.
fn silent(source: &SourceOut) -> Option<AlarmOut> {
    let since = source.silent_since.clone()?;
    Some(AlarmOut {
        about: format!("source {}", source.id),
        agent: String::new(),
        text: format!(
            "cannot be polled, so no new job of it is seen: {}",
            source.detail.clone().unwrap_or_default()
        ),
        command: "drover doctor".to_owned(),
        since: Some(since),
    })
}

/// What of each kind waits at a source.
fn waits_of(
    account: AccountOut,
    alarms: &[Alarm],
    gone: &[GoneOut],
    untried: &BTreeMap<String, Vec<UntriedOut>>,
) -> impl Iterator<Item = Wait> {
    let source = account.source;
    let list = match source.as_str() {
        "leases" => "/leases?q=state:waiting".to_owned(),
        source => format!("/jobs?q=source:{}", said::encoded(source)),
    };
    let waiting = account.kinds.into_iter().filter(|kind| kind.count > kind.open);
    waiting.map(move |kind| Wait {
        see: cloud_of(&kind).and_then(|cloud| alarm_of(alarms, cloud)),
        why: format!("/why?of={}", said::encoded(&source)),
        list: list.clone(),
        when: show::served(&kind),
        about: match &*kind.serve {
            [one] => format!("template {}", one.template),
            _ => format!("source {source}"),
        },
        failed: failed(&kind, gone).cloned(),
        untried: left_out(&kind, untried),
        source: source.clone(),
        kind,
    })
}

/// The newest failure of an agent that would have served a kind; none where its text is the cause already.
fn failed<'a>(kind: &KindOut, gone: &'a [GoneOut]) -> Option<&'a GoneOut> {
    let serves = |agent: &&GoneOut| kind.serve.iter().any(|one| one.template == agent.template);
    let last =
        gone.iter().filter(serves).find(|agent| FAILURES.contains(&agent.reason.as_str()))?;
    let cause = last.detail.rsplit(": ").next().unwrap_or_default();
    let cause = cause.split(';').next().unwrap_or_default();
    (!kind.why.contains(cause)).then_some(last)
}

/// Nodes that no template tries for a kind which a node keeps from being served.
fn left_out(kind: &KindOut, untried: &BTreeMap<String, Vec<UntriedOut>>) -> Vec<(String, String)> {
    let [one] = kind.serve.as_slice() else { return Vec::new() };
    let is_of_nodes = one.obstacle.as_ref().is_some_and(|text| text.contains("node `"));
    let nodes = untried.get(&one.template).filter(|_| is_of_nodes);
    nodes.map(|nodes| UntriedOut::together(nodes)).unwrap_or_default()
}

/// The cloud that alone keeps a kind from being served.
fn cloud_of(kind: &KindOut) -> Option<&str> {
    let (cloud, _) = kind.why.strip_prefix("cloud ")?.split_once(": ")?;
    let is_there = |template: &str| template.split('/').next() == Some(cloud);
    kind.serve.iter().all(|one| is_there(&one.template)).then_some(cloud)
}

/// The number of the alarm of a cloud in the list, and its cloud.
fn alarm_of(alarms: &[Alarm], cloud: &str) -> Option<(usize, String)> {
    let about = format!("cloud {cloud}");
    let place = alarms.iter().position(|one| one.out.about == about)?;
    Some((place + 1, about))
}

fn kept_out_of(out: KeptOutNode, clouds: &[CloudOut]) -> KeptOut {
    let leads_there = |cloud: &&CloudOut| cloud.cluster.as_ref() == Some(&out.cluster);
    let cloud = clouds.iter().find(leads_there).map(|cloud| cloud.id.clone());
    let use_again = DrainIn { cloud, undrain: true };
    KeptOut { use_again: serde_json::to_string(&use_again).unwrap_or_default(), out }
}

/// Breakers of what is neither a template nor a cloud, which have theirs beside them.
fn places(breakers: &[BreakerOut]) -> Vec<(BreakerOut, &'static str)> {
    let is_place = |one: &&BreakerOut| one.id.contains(':') && !one.id.starts_with("cloud:");
    breakers.iter().filter(is_place).map(|one| (one.clone(), show::breaker(one.state))).collect()
}

fn cloud(out: &CloudOut, status: &StatusOut, counted: &[Counts], alarms: &[Alarm]) -> Cloud {
    let of_it = status.breakers.iter().filter(|one| one.id == format!("cloud:{}", out.id));
    let templates = status.templates.iter().zip(counted);
    let own = templates.filter(|(one, _)| one.id.split('/').next() == Some(out.id.as_str()));
    let all: u32 = own.map(|(_, of)| of.all()).sum();
    let agents = match out.cap {
        // Those that are stranded, or on a node that is offline, count against no cap.
        Some(cap) if all > out.agents => format!("{all}, of which {} of {cap} count", out.agents),
        cap => show::of_most(all.max(out.agents), cap),
    };
    Cloud {
        see: alarm_of(alarms, &out.id),
        health: standing(out),
        agents,
        share: out.cap.filter(|cap| *cap > 0).map_or(0, |cap| (out.agents * BAR / cap).min(BAR)),
        breakers: of_it.cloned().collect(),
        out: out.clone(),
    }
}

fn pool(out: &TemplateOut, counts: Counts, waits: &[Wait]) -> Pool {
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
    let why =
        [&out.cause, &out.lack, &out.paused].into_iter().flatten().cloned().collect::<Vec<_>>();
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
        see: why.first().and_then(|cause| {
            let place = waits.iter().position(|wait| wait.kind.why.contains(cause.as_str()))?;
            Some(format!("wait-{}-{}", waits.get(place)?.source, place + 1))
        }),
        why: why.join("; "),
        out: out.clone(),
    }
}
