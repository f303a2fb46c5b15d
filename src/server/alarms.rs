//! What needs an administrator, as one list: each alarm with the words that the list of its own kind has,
//! and the command that helps.

use drover_api::{AlarmOut, AttemptOut, SyncOut, faults_in_one_line};
use drover_model::phase::ImagePhase;
use drover_model::status::{ImageStatus, NextBuild};
use drover_model::time::WallTime;
use drover_notify::Kind;

use super::drift;
use super::shapes::rfc3339;
use crate::view::{AlarmStatus, View};

/// Changes against git that an alarm names.
const SHOWN_CHANGES: usize = 3;
/// What the configuration is called in the list.
const CONFIGURATION: &str = "configuration";

/// An alarm, with what notifications need to know it again.
pub(super) struct Alarm {
    pub(super) kind: Kind,
    /// The same for the same alarm at each look; no other of its kind has it.
    pub(super) key: String,
    pub(super) at: Option<WallTime>,
    pub(super) out: AlarmOut,
}

impl Alarm {
    fn new(kind: Kind, key: impl Into<String>, at: Option<WallTime>, out: AlarmOut) -> Self {
        Self { kind, key: key.into(), at, out: AlarmOut { since: at.map(rfc3339), ..out } }
    }
}

/// All alarms that stand: those of agents first, then the service's own, and those of clouds, images and
/// templates.
pub(super) fn alarms(view: &View) -> Vec<AlarmOut> {
    standing(view).into_iter().map(|one| one.out).collect()
}

/// The same, with what notifications need of each.
pub(super) fn standing(view: &View) -> Vec<Alarm> {
    let of_agents = view.alarms();
    let of_agents = of_agents
        .iter()
        .map(|one| Alarm::new(Kind::Agent, one.agent.as_str(), Some(one.at), of_agent(one)));
    let mut all: Vec<Alarm> = of_agents.collect();
    if let Some(trouble) = view.journal_trouble() {
        let text = format!("cannot be written, nothing new is started: {trouble}");
        all.push(Alarm::new(Kind::Journal, "", None, about("journal".to_owned(), text, "")));
    }
    if let Some(trouble) = view.audit_trouble() {
        let text = format!("cannot be written, changes leave no record: {}", trouble.why);
        let out = about("audit log".to_owned(), text, trouble.command);
        all.push(Alarm::new(Kind::AuditLog, "", None, out));
    }
    all.extend(of_configuration(view));
    all.extend(drift::sync(view).iter().flat_map(of_sync));
    let signs = view.other_drover().into_iter();
    all.extend(signs.map(|sign| {
        let out = about("another drover".to_owned(), owns(&sign), "");
        Alarm::new(Kind::OtherDrover, sign, None, out)
    }));
    for restart in view.restarts().into_iter().filter(|restart| restart.gave_up) {
        let text = format!("panicked {} times and was given up", restart.count);
        let out = about(restart.actor.clone(), text, "journalctl -u drover");
        all.push(Alarm::new(Kind::Actor, restart.actor, Some(restart.at), out));
    }
    for (cloud, since) in view.degraded_clouds() {
        let command = format!("drover doctor --cloud {}", cloud.cloud);
        let out = about(format!("cloud {}", cloud.cloud), cloud.detail, &command);
        all.push(Alarm::new(Kind::Cloud, cloud.cloud.as_str(), Some(since), out));
    }
    all.extend(builds(view).iter().filter_map(failed_build));
    for template in view.templates() {
        let id = &template.template;
        let given_up = template.canary.iter().flat_map(|canary| &canary.given_up);
        all.extend(given_up.map(|one| {
            let text = format!(
                "version {} is not used, {} of its agents failed: {}",
                one.version, one.failures, one.cause
            );
            let command = format!("drover breakers reset {id}");
            let out = about(format!("template {id}"), text, &command);
            Alarm::new(Kind::Template, format!("{id}/{}", one.version), None, out)
        }));
    }
    all.extend(view.channel_troubles().into_iter().map(|one| {
        let text = format!("its notifications are not taken: {}", one.text);
        let command = format!("drover notify test {}", one.channel);
        let out = about(format!("channel {}", one.channel), text, &command);
        Alarm::new(Kind::Channel, one.channel, Some(one.since), out)
    }));
    all
}

/// What is wrong with the configuration, wherever it lies.
fn of_configuration(view: &View) -> Vec<Alarm> {
    let mut all = Vec::new();
    let mut push = |key: &str, at, text, command: &str| {
        let out = about(CONFIGURATION.to_owned(), text, command);
        all.push(Alarm::new(Kind::Configuration, key, at, out));
    };
    let config = view.config();
    if let Some((at, refusal)) = config.refused {
        let text =
            format!("refused, the old configuration stays: {}", faults_in_one_line(&refusal));
        push("refused", Some(at), text, view.check_command());
    }
    if let Some((at, trouble)) = config.store_trouble {
        let text = format!("not read from the store, the old one stays: {trouble}");
        push("store", Some(at), text, "drover shard-config show");
    }
    let due = view.restart_due();
    if !due.is_empty() {
        let text = format!("takes effect at the next start only: {}", due.join(", "));
        push("restart", None, text, view.restart_command());
    }
    all
}

/// What is wrong with the sync with git, and what the next one undoes.
fn of_sync(sync: &SyncOut) -> Vec<Alarm> {
    let mut all = Vec::new();
    let mut push = |key: &str, at: Option<&str>, text, command: &str| {
        let at: Option<jiff::Timestamp> = at.and_then(|at| at.parse().ok());
        let at = at.map(|at| WallTime(at.as_millisecond()));
        let out = about(CONFIGURATION.to_owned(), text, command);
        all.push(Alarm::new(Kind::Git, key, at, out));
    };
    if let Some(AttemptOut { at, fault: Some(fault), .. }) = &sync.last_attempt {
        let text = format!("not synced with git, the old one stays: {}", faults_in_one_line(fault));
        push("failed", Some(at), text, "drover sync --test");
    }
    if let (true, Some(of)) = (sync.pinned, &sync.in_force) {
        let text = format!(
            "stays at commit {} of {}, whatever git has, until somebody syncs",
            of.commit.get(..12).unwrap_or(&of.commit),
            of.committed_at
        );
        push("pinned", Some(&of.applied_at), text, "drover sync");
    }
    if !sync.manual_changes.is_empty() {
        let paths: Vec<&str> = sync.manual_changes.iter().map(|one| &*one.path).collect();
        let count = paths.len();
        let shown = paths.iter().take(SHOWN_CHANGES).copied().collect::<Vec<_>>().join(", ");
        let more =
            count.checked_sub(SHOWN_CHANGES + 1).map(|more| format!(" and {} more", more + 1));
        let next = if sync.pinned { "`drover sync`" } else { "the next sync" };
        let more = more.unwrap_or_default();
        let text = format!("differs from git, and {next} undoes that: {shown}{more}");
        push("changes", None, text, "drover sync --status");
    }
    all
}

/// Builds that run, and the last of an image on a node where it failed.
pub(super) fn builds(view: &View) -> Vec<ImageStatus> {
    let all = view.image_builds();
    let is_last = |at: usize, one: &ImageStatus| {
        let later = all.iter().skip(at + 1);
        later.into_iter().all(|other| (&other.image, &other.node) != (&one.image, &one.node))
    };
    let shown = all.iter().enumerate().filter(|(at, one)| {
        !one.phase.is_over() || one.phase == ImagePhase::Failed && is_last(*at, one)
    });
    shown.map(|(_, one)| one.clone()).collect()
}

/// The alarm of one agent.
pub(super) fn of_agent(alarm: &AlarmStatus) -> AlarmOut {
    AlarmOut {
        agent: alarm.agent.to_string(),
        since: Some(rfc3339(alarm.at)),
        ..about(format!("agent {}", alarm.agent), alarm.text.clone(), &alarm.command)
    }
}

/// That something speaks for another drover.
fn owns(sign: &str) -> String {
    format!("may own agents: {sign}")
}

/// An alarm that is about no agent.
fn about(about: String, text: String, command: &str) -> AlarmOut {
    AlarmOut { about, agent: String::new(), text, command: command.to_owned(), since: None }
}

/// A build that failed, unless drover goes on with it by itself.
fn failed_build(build: &ImageStatus) -> Option<Alarm> {
    let (at, why) = build.failure.as_ref()?;
    match &build.next {
        Some(NextBuild::Again | NextBuild::Build(_)) => return None,
        Some(NextBuild::At(_)) | None => {}
    }
    let (image, node) = (&build.image, &build.node);
    let text = format!("build {} failed: {why}", build.build);
    let command = format!("drover image build {image} --node {node}");
    let out = about(format!("image {image} on {node}"), text, &command);
    Some(Alarm::new(Kind::Image, format!("{image} on {node}"), Some(*at), out))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_model::fact::{Fact, What};
    use drover_model::id::{AgentId, CloudId, Generation, NodeName, TemplateId};
    use drover_model::phase::CloudHealth;
    use drover_model::ports::Observer as _;
    use drover_model::status::CloudStatus;
    use drover_model::time::WallTime;

    use super::*;
    use crate::testing::reported;

    fn cloud(health: CloudHealth, agents: u32) -> What {
        let detail = match health {
            CloudHealth::Degraded => "login refused: check the token `drover@pve!ci`",
            CloudHealth::Connecting | CloudHealth::Well => "",
        };
        What::Cloud(Box::new(CloudStatus {
            cloud: CloudId::new("office"),
            cluster: None,
            health,
            version: None,
            detail: detail.into(),
            agents,
            cap: None,
            overrides: drover_model::overridden::CloudOverrides::default(),
        }))
    }

    fn build(phase: ImagePhase, next: Option<NextBuild>) -> What {
        What::Image(Box::new(ImageStatus {
            build: AgentId::new("7f8z1c3px9t2vkab"),
            image: TemplateId::new(CloudId::new("lab"), "debian-13"),
            version: AgentId::new("v1"),
            node: NodeName::new("pve1"),
            vmid: None,
            phase,
            since: WallTime(1000),
            detail: String::new(),
            failure: (phase == ImagePhase::Failed)
                .then(|| (WallTime(2000), "step `setup` ended with exit code 4".to_owned())),
            next,
            phases: Vec::new(),
        }))
    }

    fn lines(view: &View) -> String {
        let line = |one: &AlarmOut| {
            let since = one.since.as_deref().unwrap_or("-");
            format!("{} | {} | {} | {since}\n", one.about, one.text, one.command)
        };
        alarms(view).iter().map(line).collect()
    }

    fn refused(view: &Arc<View>) {
        let text = "  × agentConfigurations.linux.instanceCap: expected a whole number, found text\n    \
                    ╭─[/etc/drover/drover.yaml:32:18]\n 32 │     instanceCap: many\n  × unknown key `clouds`\n";
        reported(view, What::ConfigRefused { text: text.into(), after: Generation(4) });
    }

    // Invariant: what needs an administrator is in one list, whatever it is about, and leaves it with its
    // cause.

    #[test]
    fn a_refusal_a_degraded_cloud_a_failed_build_and_an_agent_are_one_list_of_alarms() {
        let view = View::new(1);
        assert_eq!(lines(&view), "");
        refused(&view);
        reported(&view, What::OtherDrover { why: vec!["another journal writes".into()] });
        reported(&view, cloud(CloudHealth::Degraded, 2));
        reported(&view, build(ImagePhase::Failed, None));
        let command = "qm unlock 10420".to_owned();
        let text = "`lock: clone` stays and no task runs".to_owned();
        reported(&view, What::Alarm { agent: AgentId::new("a3"), text, command });
        view.mark_journal(Some("no space left".into()));
        insta::assert_snapshot!(lines(&view), @r"
        agent a3 | `lock: clone` stays and no task runs | qm unlock 10420 | 2026-11-21T08:11:02Z
        journal | cannot be written, nothing new is started: no space left |  | -
        configuration | refused, the old configuration stays: agentConfigurations.linux.instanceCap: expected a whole number, found text (/etc/drover/drover.yaml:32:18); unknown key `clouds` | drover check | 2026-11-21T08:11:02Z
        another drover | may own agents: another journal writes |  | -
        cloud office | login refused: check the token `drover@pve!ci` | drover doctor --cloud office | 2026-11-21T08:11:02Z
        image lab/debian-13 on pve1 | build 7f8z1c3px9t2vkab failed: step `setup` ended with exit code 4 | drover image build lab/debian-13 --node pve1 | 1970-01-01T00:00:02Z
        ");
        view.mark_journal(None);
        reported(&view, What::ConfigApplied { generation: Generation(5), reconcile_seconds: None });
        reported(&view, What::OtherDrover { why: Vec::new() });
        reported(&view, cloud(CloudHealth::Well, 2));
        reported(&view, build(ImagePhase::Failed, Some(NextBuild::Again)));
        assert_eq!(alarms(&view).len(), 1, "{}", lines(&view));
    }

    // Invariant: what the store has and cannot be used is an alarm of its own, whatever the files have.

    #[test]
    fn a_configuration_that_the_store_lost_is_an_alarm_until_it_is_back() {
        let view = View::new(1);
        let trouble = Arc::new(parking_lot::Mutex::new(None));
        let noted = Arc::clone(&trouble);
        let check = "drover check --config /var/lib/drover/shard-config/latest".to_owned();
        view.mark_stored_config(check, Box::new(move || noted.lock().clone()));
        assert_eq!(lines(&view), "");
        refused(&view);
        *trouble.lock() = Some((WallTime(2000), "it cannot be opened".to_owned()));
        insta::assert_snapshot!(lines(&view), @r"
        configuration | refused, the old configuration stays: agentConfigurations.linux.instanceCap: expected a whole number, found text (/etc/drover/drover.yaml:32:18); unknown key `clouds` | drover check --config /var/lib/drover/shard-config/latest | 2026-11-21T08:11:02Z
        configuration | not read from the store, the old one stays: it cannot be opened | drover shard-config show | 1970-01-01T00:00:02Z
        ");
        // As a reload does whose files are well.
        reported(&view, What::ConfigApplied { generation: Generation(5), reconcile_seconds: None });
        assert!(lines(&view).starts_with("configuration | not read from the store"));
        *trouble.lock() = None;
        assert_eq!(lines(&view), "");
    }

    // Invariant: a value that is not in force yet is an alarm until it is, or is taken back.

    #[test]
    fn keys_that_need_a_restart_are_an_alarm_until_they_are_taken_back() {
        let view = View::new(1);
        view.mark_restarted_by("systemctl restart drover");
        view.mark_restart_due(vec!["service.listen", "service.socket"]);
        assert_eq!(
            lines(&view),
            "configuration | takes effect at the next start only: service.listen, service.socket | systemctl \
             restart drover | -\n"
        );
        view.mark_restart_due(Vec::new());
        assert_eq!(lines(&view), "");
    }

    // Invariant: an alarm of a cloud has the time at which the cloud degraded, whatever is counted since.

    #[test]
    fn a_degraded_cloud_is_so_since_it_was_reported_first() {
        let view = View::new(1);
        let all = [CloudHealth::Well, CloudHealth::Degraded, CloudHealth::Degraded];
        for (second, health) in (1..).zip(all) {
            let what = cloud(health, second);
            view.observe(Fact { at: WallTime(i64::from(second) * 1000), what });
        }
        let since: Vec<_> = alarms(&view).into_iter().map(|one| one.since).collect();
        assert_eq!(since, [Some(rfc3339(WallTime(2000)))]);
    }
}
