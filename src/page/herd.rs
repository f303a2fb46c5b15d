//! The herd at a glance.

use askama::Template;
use drover_api::{
    AccountOut, AgentOut, AlarmOut, BreakerOut, CloudOut, DrainIn, FaultOut, GoneOut, KindOut,
    LeaseOut, Part, SourceOut, StatusOut, TemplateOut, count, part, standing,
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
    /// Breakers of nodes and storages that are not closed.
    breakers: Vec<(BreakerOut, &'static str)>,
    clouds: Vec<Cloud>,
    templates: Vec<Pool>,
    sources: Vec<SourceOut>,
    gone: Vec<GoneOut>,
    lost: Vec<drover_api::LostJobOut>,
    findings: Vec<(String, String, Vec<String>)>,
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
}

/// A node that an operator cordoned or drained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutNode {
    pub cluster: String,
    pub node: String,
    /// Whether it is drained, and not cordoned alone.
    pub is_drained: bool,
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
    busy: u32,
    coming: u32,
    leaving: u32,
    breaker: &'static str,
    is_closed: bool,
    /// What keeps it from beginning more; blank where nothing does.
    why: String,
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
        let HerdAsides { leases, waits, kept_out, stuck, lost_leases } = asides;
        gone.reverse();
        gone.truncate(LAST);
        let mut lost = status.lost_jobs.clone();
        lost.reverse();
        lost.truncate(LAST);
        let mut trouble = status.journal.iter().cloned().collect::<Vec<_>>();
        trouble.extend(status.other_drover.iter().cloned());
        let config = &status.config;
        let refused = config.refusal.clone().zip(config.refused_at.clone());
        let is_shown = refused.is_some();
        // They are no alarms of agents or clusters, and all the same nothing of them is served.
        let silent: Vec<AlarmOut> = status.sources.iter().filter_map(silent).collect();
        let shown = status.alarms.iter().cloned().chain(silent);
        // A refused configuration is shown above them, with all of its faults.
        let shown = shown.filter(|one| !is_shown || one.about != "configuration");
        let alarms = shown.map(|out| Alarm { place: said::place(&out.about), out });
        let alarms: Vec<Alarm> = alarms.collect();
        let found = status.reconciled.iter().map(|one| {
            let mut lines: Vec<String> = one.findings.clone();
            lines.extend(one.unread.iter().map(|why| format!("it was not read: {why}")));
            (one.cluster.clone(), one.at.clone(), lines)
        });
        Self {
            is_ready: status.ready,
            trouble,
            refused,
            faults: config.faults.clone(),
            waits: waits.into_iter().flat_map(|one| waits_of(one, &alarms, &gone)).collect(),
            kept_out: kept_out.into_iter().map(|one| kept_out_of(one, &status.clouds)).collect(),
            stuck,
            lost_leases,
            breakers: places(&status.breakers),
            tiles: tiles(&status, leases),
            clouds: status.clouds.iter().map(|one| cloud(one, &status, &alarms)).collect(),
            templates: status.templates.iter().map(pool).collect(),
            findings: found.collect(),
            sources: status.sources,
            alarms,
            gone,
            lost,
            frame,
        }
    }
}

fn tiles(status: &StatusOut, leases: LeaseCounts) -> Vec<Tile> {
    let states = || status.templates.iter().flat_map(|one| one.states.iter());
    let agents = |wanted: Option<Part>| -> u32 {
        let counted = states().filter(|(phase, _)| {
            **phase != AgentPhase::Gone && wanted.is_none_or(|wanted| part(**phase) == wanted)
        });
        counted.map(|(_, count)| *count).sum()
    };
    let (all, ready) = (agents(None), agents(Some(Part::Ready)));
    let leased = states().filter(|(phase, _)| **phase == AgentPhase::Leased);
    let leased = leased.map(|(_, count)| *count).sum();
    let leaving = match agents(Some(Part::Leaving)) {
        0 => String::new(),
        more => format!(", {more} leaving"),
    };
    let (coming, stranded) = (agents(Some(Part::Coming)), agents(Some(Part::Stranded)));
    let waiting = u32::try_from(leases.waiting).unwrap_or(u32::MAX);
    let jobs: usize = status.sources.iter().map(|one| one.waiting).sum();
    let running: usize = status.sources.iter().map(|one| one.running).sum();
    let unoffered: usize = status.sources.iter().map(|one| one.unoffered).sum();
    let wanted: u32 = status.templates.iter().map(|one| one.idle_minimum).sum();
    let tile =
        |name, number, detail: String, link, is_bad| Tile { name, number, detail, link, is_bad };
    vec![
        tile("agents", all, format!("{coming} on their way{leaving}"), "/agents", false),
        tile(
            "ready",
            ready,
            format!("{wanted} wanted idle"),
            "/agents?q=state:ready",
            ready < wanted,
        ),
        tile("leased", leased, count(leases.granted, "lease"), "/agents?q=state:leased", false),
        tile("leases wait", waiting, String::new(), "/leases?q=state:waiting", waiting > 0),
        tile(
            "jobs wait",
            u32::try_from(jobs).unwrap_or(u32::MAX),
            match unoffered {
                0 => format!("{running} run"),
                more => format!("{running} run, {more} that no template serves"),
            },
            "/jobs",
            jobs > 0,
        ),
        tile("stranded", stranded, String::new(), "/agents?q=state:stranded", stranded > 0),
    ]
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
fn waits_of(account: AccountOut, alarms: &[Alarm], gone: &[GoneOut]) -> impl Iterator<Item = Wait> {
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

fn cloud(out: &CloudOut, status: &StatusOut, alarms: &[Alarm]) -> Cloud {
    let of_it = status.breakers.iter().filter(|one| one.id == format!("cloud:{}", out.id));
    Cloud {
        see: alarm_of(alarms, &out.id),
        health: standing(out),
        agents: show::of_most(out.agents, out.cap),
        share: out.cap.filter(|cap| *cap > 0).map_or(0, |cap| (out.agents * BAR / cap).min(BAR)),
        breakers: of_it.cloned().collect(),
        out: out.clone(),
    }
}

fn pool(out: &TemplateOut) -> Pool {
    let of = |wanted: Part| {
        out.states
            .iter()
            .filter(|(phase, _)| part(**phase) == wanted)
            .map(|(_, count)| *count)
            .sum()
    };
    let parts: [(Part, &'static str, u32); 5] = [
        (Part::Busy, "busy", of(Part::Busy)),
        (Part::Ready, "ready", of(Part::Ready)),
        (Part::Coming, "coming", of(Part::Coming)),
        (Part::Leaving, "leaving", of(Part::Leaving)),
        (Part::Stranded, "stranded", of(Part::Stranded)),
    ];
    let all: u32 = parts.iter().map(|(_, _, count)| count).sum();
    let most = out.cap.unwrap_or(0).max(all).max(1);
    let mut x = 0;
    let slices = parts.iter().filter(|(_, _, count)| *count > 0).map(|(_, class, count)| {
        let width = count * BAR / most;
        x += width;
        Slice { class, x: x - width, width, title: format!("{count} {class}") }
    });
    let slices = slices.collect();
    let why =
        [&out.cause, &out.lack, &out.paused].into_iter().flatten().cloned().collect::<Vec<_>>();
    Pool {
        agents: show::of_most(all, out.cap),
        slices,
        ready: of(Part::Ready),
        busy: of(Part::Busy),
        coming: of(Part::Coming),
        leaving: of(Part::Leaving) + of(Part::Stranded),
        breaker: show::breaker(out.breaker),
        is_closed: out.breaker == BreakerPhase::Closed,
        why: why.join("; "),
        out: out.clone(),
    }
}
