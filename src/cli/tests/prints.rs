//! What is printed for people and for scripts.

use std::io::{self, Write};
use std::sync::Arc;

use drover_model::fact::What;
use drover_model::id::{AddressPoolId, AgentId, CloudId, ClusterId, Generation, TemplateId};
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use drover_model::record::Reason;
use drover_model::status::{AddressPoolStatus, CloudStatus, ResetStatus, TemplateStatus};
use serde_json::json;
use tokio::sync::oneshot;

use super::super::*;
use super::{a_canary, global};
use drover_server::testing::{self, Served, THEN, reported};
use drover_server::view::View;

/// Runs a command; gives its result, and what it printed.
pub(super) async fn cli(
    served: &Served,
    json: bool,
    command: Command,
) -> (Result<u8, String>, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut term = Term::new(&mut out, &mut err);
    let global = Global { json, ..global(&served.socket) };
    let result = remote::run(&global, command, &mut term).await.map_err(|fault| chain(&fault));
    (result, String::from_utf8(out).unwrap())
}

fn agents(gone: bool) -> Command {
    Command::Agents { gone, list: ListOptions::default(), action: None }
}

fn templates() -> Command {
    Command::Templates { list: ListOptions::default(), action: None }
}

/// Output that records when the first line came.
struct Watched {
    text: Vec<u8>,
    started: Option<oneshot::Sender<()>>,
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        if let Some(started) = self.started.take_if(|_| bytes.ends_with(b"\n")) {
            started.send(()).unwrap();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Invariant: what is printed for people is plain and aligned, and cannot move the cursor.

pub(super) fn furnish(view: &View) {
    reported(view, What::ConfigApplied { generation: Generation(4), reconcile_seconds: Some(60) });
    reported(
        view,
        What::ConfigRefused {
            text: "drover.yaml:3:1\n  unknown key `clouds`".into(),
            after: Generation(4),
        },
    );
    for (cloud, health, version, detail) in [
        ("lab", CloudHealth::Well, Some("8.4.21"), ""),
        ("office", CloudHealth::Degraded, None, "login refused: check the token `drover@pve!ci`"),
    ] {
        let cloud = CloudStatus {
            cloud: CloudId::new(cloud),
            cluster: version.map(|_| ClusterId::new("9f31c0aa52e7d410")),
            health,
            version: version.map(Into::into),
            detail: detail.into(),
            agents: 2,
            cap: version.map(|_| 10),
            overrides: drover_model::overridden::CloudOverrides::default(),
        };
        reported(view, What::Cloud(Box::new(cloud)));
    }
    for (name, breaker, tripped) in [
        ("linux", BreakerPhase::Closed, None),
        ("windows", BreakerPhase::Open, Some((THEN, "no space on `local-lvm`".to_owned()))),
    ] {
        let template = TemplateStatus {
            template: TemplateId::new(CloudId::new("lab"), name),
            states: [(AgentPhase::Ready, 1), (AgentPhase::Booting, 1), (AgentPhase::Held, 0)]
                .into(),
            cap: tripped.is_none().then_some(5),
            minimum: 2,
            idle_minimum: 1,
            lack: tripped.is_none().then(|| "address pool `lab` is used up".to_owned()),
            labels: vec!["big".into(), name.into()],
            max_uses: tripped.is_some().then_some(1),
            executors: 1,
            breaker,
            source: tripped.is_none().then(|| "VMID 9000 `debian-13` on node pve1".into()),
            paused: None,
            canary: tripped.is_some().then(a_canary),
            outdated: 0,
            overrides: drover_model::overridden::TemplateOverrides::default(),
            tripped,
        };
        reported(view, What::Template(Box::new(template)));
    }
    let pools = [("lab", 5, Some(THEN)), ("office", 0, None)].map(|(name, resting, next_free)| {
        AddressPoolStatus {
            pool: AddressPoolId::new(name),
            ranges: vec!["10.20.0.50-10.20.0.59".into(), "10.20.0.70".into()],
            size: 11,
            used: 6,
            resting,
            free: 5 - resting,
            next_free,
        }
    });
    reported(view, What::AddressPools { pools: pools.into() });
    let mut booting = testing::agent("a2", AgentPhase::Booting);
    booting.detail = "\u{1b}[2Jno address yet".into();
    (booting.address, booting.ssh) = (None, None);
    reported(view, What::Agent(Arc::new(booting)));
    let mut leased = testing::agent("a1", AgentPhase::Leased);
    leased.leases = vec![drover_model::id::LeaseId::new("x")];
    reported(view, What::Agent(Arc::new(leased)));
    reported(view, What::Lease(Box::new(testing::lease("x", LeasePhase::Ready, Some("a1"), ""))));
    reported(
        view,
        What::Lease(Box::new(testing::lease("y", LeasePhase::Waiting, None, "no agent is free"))),
    );
    reported(view, What::Lease(Box::new(testing::lease("z", LeasePhase::Ended, None, "released"))));
    let alarm = What::Alarm {
        agent: AgentId::new("a3"),
        text: "`lock: clone` stays and no task runs".into(),
        command: "qm unlock 10420".into(),
    };
    reported(view, alarm);
    let findings = vec!["orphan 10417 on pve1: destroy".to_owned()];
    let cluster = ClusterId::new("9f31c0aa52e7d410");
    reported(view, What::Reconciled { cluster, findings, unread: None });
}

#[tokio::test]
async fn status_shows_everything_at_a_glance() {
    let served = Served::default();
    furnish(&served.view);
    let (result, text) = cli(&served, false, Command::Status(ViewOptions::default())).await;
    assert_eq!(result, Ok(0));
    insta::assert_snapshot!(text, @r"
    drover 0.1.0, starting
    configuration: generation 4, in force since 2026-11-21T08:11:02Z
    every cloud is reconciled each 60 s: service.orphanCleanupPeriodSeconds
    REFUSED at 2026-11-21T08:11:02Z, the old configuration stays:
      drover.yaml:3:1
        unknown key `clouds`
    ALARM since 2026-11-21T08:11:02Z: agent a3: `lock: clone` stays and no task runs
      run: qm unlock 10420

    CLOUDS
    NAME    HEALTH    VERSION  AGENTS  CLUSTER           DETAIL
    lab     healthy   8.4.21     2/10  9f31c0aa52e7d410
    office  degraded  -           2/-  -                 login refused: check the token `drover@pve!ci`

    TEMPLATES
    NAME         AGENTS  WARM       STATES              LABELS       BREAKER  CLONED FROM                         DETAIL
    lab/linux       2/5  2, 1 idle  1 Booting, 1 Ready  big,linux    closed   VMID 9000 `debian-13` on node pve1  address pool `lab` is used up
    lab/windows     2/-  2, 1 idle  1 Booting, 1 Ready  big,windows  open     -                                   next try at 2026-11-21T08:11:02Z: no space on `local-lvm`
    lab/windows: ALARM: version 5f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b is not used, 3 of its agents failed: no address after 60 s
      run, once that is repaired: drover breakers reset lab/windows
    lab/windows: agent a2 tries version 6f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b

    ADDRESS POOLS
    POOL    SIZE  USED  RESTING  FREE  NEXT FREE             ADDRESSES
    lab       11     6        5     0  2026-11-21T08:11:02Z  10.20.0.50-10.20.0.59, 10.20.0.70
    office    11     6        0     5  -                     10.20.0.50-10.20.0.59, 10.20.0.70

    AGENTS
    ID  TEMPLATE   STATE    CHANGED                VMID  NODE  LOGIN               LEASES  DETAIL
    a1  lab/linux  Leased   2026-11-21T08:11:02Z  10417  pve1  ci@127.77.0.9:2222  x
    a2  lab/linux  Booting  2026-11-21T08:11:02Z  10417  pve1  -                   -       ?[2Jno address yet

    LEASES
    ID  STATE    WANTS           AGENT  PRINCIPAL       OWNER   ASKED  EXPIRES               DETAIL
    x   ready    labels `linux`  a1     token:operator  tester  -      2026-11-21T09:11:02Z
    y   waiting  labels `linux`  -      token:operator  tester  -      -                     no agent is free

    RECONCILED
    9f31c0aa52e7d410 at 2026-11-21T08:11:02Z: 1 finding
      orphan 10417 on pve1: destroy
    ");
    served.stop().await;
}

#[tokio::test]
async fn an_empty_herd_says_none() {
    let served = Served::default();
    let (_, text) = cli(&served, false, Command::Status(ViewOptions::default())).await;
    insta::assert_snapshot!(text, @r"
    drover 0.1.0, starting
    configuration: none in force

    CLOUDS
    none

    TEMPLATES
    none

    AGENTS
    none

    LEASES
    none
    ");
    served.stop().await;
}

#[tokio::test]
async fn agents_that_went_are_listed_when_asked_for() {
    let served = Served::default();
    let gone = What::AgentGone {
        agent: AgentId::new("a1"),
        template: TemplateId::new(CloudId::new("lab"), "linux"),
        reason: Reason::Failed {
            state: AgentPhase::Connecting,
            kind: "key-rejected".into(),
            text: "the guest refused the key of `ci`".into(),
        },
        phases: [(AgentPhase::Cloning, 1200), (AgentPhase::Booting, 4050)]
            .map(|(phase, ms)| (phase.to_string(), ms))
            .into(),
    };
    reported(&served.view, gone);
    let (_, text) = cli(&served, false, agents(true)).await;
    insta::assert_snapshot!(text, @r"
    none

    GONE
    ID  TEMPLATE   GONE                  LIVED  WHY
    a1  lab/linux  2026-11-21T08:11:02Z  5.2 s  Connecting failed (key-rejected): the guest refused the key of `ci`
    ");
    served.stop().await;
}

// Invariant: why an agent went is said in words of an operator, and with the keys that decide it.

#[test]
fn every_reason_to_go_is_reported_in_words() {
    let slow = |state| Reason::TooSlow { state, text: String::new() };
    let slow = [
        AgentPhase::Queued,
        AgentPhase::Cloning,
        AgentPhase::InDoubt,
        AgentPhase::Booting,
        AgentPhase::Preparing,
        AgentPhase::Resetting,
    ]
    .map(slow);
    let others = [
        Reason::Idle,
        Reason::UsedUp,
        Reason::Old,
        Reason::Asked,
        Reason::AskedBy { by: "token:ci".to_owned() },
        Reason::HoldOver,
        Reason::Reaped,
        Reason::Unconfigured,
        Reason::Stopping,
        Reason::LeaseExpired,
        Reason::PoweredOff,
        Reason::Vanished,
        Reason::Orphaned,
        Reason::ReturnedFromPark,
        Reason::NodeDrained,
        Reason::MadeRoom,
        Reason::WindowClosed,
        Reason::Cancelled,
    ];
    let reported: Vec<String> = others.iter().chain(&slow).map(ToString::to_string).collect();
    insta::assert_snapshot!(reported.join("\n"), @r"
    it was idle for as long as it may be
    it served as often as it may (maxTotalUses, singleUse)
    it was as old as it may be (maxLifetimeMinutes)
    an operator retired it
    an operator retired it (token:ci)
    its hold for debugging is over
    it was idle at a reap
    its template or cloud left the configuration
    the service stopped (service.onStop)
    its lease ran out
    its guest was switched off
    its guest was gone from the cluster
    its guest was on the cluster, and no agent had it
    its node was offline for long, and came back
    its node is drained (drover drain)
    others needed its place: it was one owner's alone, or of another size
    the window that it was kept for closed (schedule)
    nobody wanted it any more before it was ready
    Queued took too long (queueTimeoutSec)
    Cloning took too long (operationTimeoutSec, cloneTimeoutSec)
    InDoubt took too long
    Booting took too long (startupWaitSeconds)
    Preparing took too long (prepareTimeoutSec)
    Resetting took too long (resetTimeoutSec)
    ");
}

// Invariant: scripts get JSON, and people a line, from every command.

const RESYNC: Command =
    Command::Resync { confirm_older_journal: false, confirm_machine: false, dry_run: false };

#[tokio::test]
async fn a_dry_run_prints_what_a_reconciliation_would_do_and_why() {
    let served = Served::default();
    let command =
        || Command::Resync { confirm_older_journal: false, confirm_machine: false, dry_run: true };
    let (result, text) = cli(&served, false, command()).await;
    assert_eq!(result, Ok(0));
    insta::assert_snapshot!(text, @r"
    9f31c0aa52e7d410: 1 to destroy, 1 to follow, 1 to report
      destroy  10417 is an orphan of agent `a7`: is retired
      follow   10418 of agent `a1` moved from `pve1` to `pve2`
      report   node `pve3` is seen offline for 4 s
    nothing was changed
    ");
    let (_, text) = cli(&served, true, command()).await;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = [
        ("destroy", json!(10_417), "10417 is an orphan of agent `a7`: is retired"),
        ("follow", json!(10_418), "10418 of agent `a1` moved from `pve1` to `pve2`"),
        ("report", json!(null), "node `pve3` is seen offline for 4 s"),
    ];
    let found = found.map(|(does, vmid, why)| json!({"does": does, "vmid": vmid, "why": why}));
    assert_eq!(json, json!({"clusters": {"9f31c0aa52e7d410": found}}));
    served.stop().await;
}

#[tokio::test]
async fn a_resync_mentions_a_refused_configuration_after_its_findings() {
    let served = Served::default();
    let (result, text) = cli(&served, false, RESYNC).await;
    insta::assert_snapshot!(text, @r"
    9f31c0aa52e7d410: 1 finding
      destroy orphan 10417 on pve1
    ");
    insta::assert_snapshot!(result.unwrap_err(), @r"
    reconciled, but not reloaded, the old configuration stays in force:
    drover.yaml: unknown key
    ");
    let (result, text) = cli(&served, true, RESYNC).await;
    assert!(result.is_err());
    assert!(text.contains(r#""refused": "drover.yaml: unknown key""#), "{text}");
    served.stop().await;
}

#[tokio::test]
async fn short_commands_answer_in_a_line_or_in_json() {
    let served = Served::default();
    furnish(&served.view);
    let mut lines = Vec::new();
    let commands: [fn() -> Command; 4] = [
        || Command::Release { leases: vec!["x".into()] },
        || Command::Retire { agent: "a1".into() },
        || Command::Reap { all: true },
        templates,
    ];
    for command in commands {
        for json in [false, true] {
            let (result, text) = cli(&served, json, command()).await;
            assert_eq!(result, Ok(0));
            match serde_json::from_str::<serde_json::Value>(&text) {
                Ok(value) if json && value["templates"].is_null() => lines.push(value.to_string()),
                Ok(value) => assert!(json, "{value}"),
                Err(_) => lines.push(text.trim_end().to_owned()),
            }
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    lease x is over
    {"released":"x"}
    agent a1 goes, after its last lease if it has one
    {"retiring":"a1"}
    3 agents asked to go
    {"retired":3}
    NAME         AGENTS  WARM       STATES              LABELS       BREAKER  CLONED FROM                         DETAIL
    lab/linux       2/5  2, 1 idle  1 Booting, 1 Ready  big,linux    closed   VMID 9000 `debian-13` on node pve1  address pool `lab` is used up
    lab/windows     2/-  2, 1 idle  1 Booting, 1 Ready  big,windows  open     -                                   next try at 2026-11-21T08:11:02Z: no space on `local-lvm`
    lab/windows: ALARM: version 5f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b is not used, 3 of its agents failed: no address after 60 s
      run, once that is repaired: drover breakers reset lab/windows
    lab/windows: agent a2 tries version 6f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b
    "#);
    let (missing, _) = cli(&served, false, Command::Release { leases: vec!["a/b".into()] }).await;
    assert_eq!(missing, Err("there is no such thing: no lease `a/b`".into()));
    served.stop().await;
}

#[tokio::test]
async fn what_was_started_is_listed_with_what_stands_in_the_way_of_more() {
    let served = Served::default();
    furnish(&served.view);
    let provision = |template: &str, count| Command::Provision { template: template.into(), count };
    let (result, whole) = cli(&served, false, provision("linux", 1)).await;
    assert_eq!(result, Ok(0));
    let (result, part) = cli(&served, false, provision("lab/linux", 3)).await;
    assert_eq!(result, Ok(1));
    let (result, json) = cli(&served, true, provision("linux", 3)).await;
    assert_eq!(result, Ok(1));
    let (unknown, _) = cli(&served, false, provision("lab/linus", 1)).await;
    let (far, _) = cli(&served, false, provision("x", 1)).await;
    let text = [whole, part, json, unknown.unwrap_err(), far.unwrap_err()].join("\n");
    insta::assert_snapshot!(text, @r#"
    1 agent of lab/linux started
      a1

    2 agents of lab/linux started
      a1
      a2
    1 not started: lab/linux is full: 2 of 2

    {
      "template": "lab/linux",
      "wanted": 3,
      "agents": [
        "a1",
        "a2"
      ],
      "short": "lab/linux is full: 2 of 2",
      "paused": null
    }

    there is no such thing: no template is called `lab/linus`; did you mean `lab/linux`?
    there is no such thing: no template is called `x`; known are lab/linux, lab/windows
    "#);
    served.stop().await;
}

#[tokio::test]
async fn limits_of_one_agent_are_set_and_listed_with_it() {
    let served = Served::default();
    furnish(&served.view);
    let set = |agent: &str, idle, max_uses| {
        let action = Some(AgentAction::Set { agent: agent.into(), idle, max_uses });
        Command::Agents { gone: false, list: ListOptions::default(), action }
    };
    let mut said = Vec::new();
    for (idle, uses) in [
        (Some(Limit::Own(0)), Some(Limit::Own(5))),
        (None, Some(Limit::Template)),
        (Some(Limit::Template), None),
        (Some(Limit::Own(10)), None),
    ] {
        let (result, text) = cli(&served, false, set("a2", idle, uses)).await;
        assert_eq!(result, Ok(0));
        said.push(text);
    }
    let (_, json) = cli(&served, true, set("a1", None, Some(Limit::Own(1)))).await;
    let (unknown, _) = cli(&served, false, set("a9", None, Some(Limit::Own(1)))).await;
    let (_, table) = cli(&served, false, agents(false)).await;
    said.extend([json, unknown.unwrap_err(), "\n".into(), table]);
    insta::assert_snapshot!(said.concat(), @r#"
    agent a2: never goes for idling, goes after 5 uses
    agent a2: never goes for idling
    agent a2: as its template says
    agent a2: goes when idle for 10 min
    {
      "idleTerminationMinutes": null,
      "maxTotalUses": 1
    }
    there is no such thing: no agent `a9` lives
    ID  TEMPLATE   STATE    CHANGED                VMID  NODE  LOGIN               LEASES  DETAIL
    a1  lab/linux  Leased   2026-11-21T08:11:02Z  10417  pve1  ci@127.77.0.9:2222  x       goes after 1 use
    a2  lab/linux  Booting  2026-11-21T08:11:02Z  10417  pve1  -                   -       goes when idle for 10 min; ?[2Jno address yet
    "#);
    served.stop().await;
}

#[tokio::test]
async fn a_hold_says_its_time_and_a_made_key_once() {
    let served = Served::default();
    furnish(&served.view);
    let file = served.directory.path().join("key.pub");
    let line = drover_ssh::PrivateKey::from_seed(&[1; 32], "me").public_line("me");
    std::fs::write(&file, format!("{line}\n")).unwrap();
    let hold = |agent: &str, public_key| {
        let span = std::time::Duration::from_secs(1800);
        Command::Hold(HoldOptions { agent: agent.into(), span, public_key })
    };
    let (result, own) = cli(&served, false, hold("a1", Some(file))).await;
    assert_eq!(result, Ok(0));
    let (_, made) = cli(&served, false, hold("a1", None)).await;
    let (reported, key) = made.split_once("-----BEGIN").unwrap();
    assert!(key.trim_end().ends_with("-----END OPENSSH PRIVATE KEY-----"));
    let (_, released) = cli(&served, false, Command::ReleaseHold { agent: "a1".into() }).await;
    let (unknown, _) = cli(&served, false, hold("a9", None)).await;
    let missing = hold("a1", Some("/nowhere/key.pub".into()));
    let (missing, _) = cli(&served, false, missing).await;
    let said =
        [&own, reported, "\n", &released, &unknown.unwrap_err(), "\n", &missing.unwrap_err()];
    insta::assert_snapshot!(said.concat(), @r"
    agent a1 is held for 1800 s from the moment it is free, then destroyed
    `drover agents` shows its state and its login
    agent a1 is held for 1800 s from the moment it is free, then destroyed
    `drover agents` shows its state and its login
    the key to log in with, shown once; keep it in a file of mode 600:

    agent a1 is held no longer
    there is no such thing: no agent `a9` lives
    cannot read the key file `/nowhere/key.pub`: No such file or directory (os error 2)
    ");
    served.stop().await;
}

#[tokio::test]
async fn events_are_followed_until_the_service_stops() {
    let served = Served::default();
    for state in [AgentPhase::Cloning, AgentPhase::Booting] {
        reported(&served.view, What::Agent(Arc::new(testing::agent("a1", state))));
    }
    let socket = served.socket.clone();
    let (started, printed) = oneshot::channel();
    let follow = tokio::spawn(async move {
        let (mut out, mut err) = (Watched { text: Vec::new(), started: Some(started) }, Vec::new());
        let mut term = Term::new(&mut out, &mut err);
        let options = EventsOptions { after: Some("3-1".into()), ..EventsOptions::default() };
        let result = remote::run(&global(&socket), Command::Events(options), &mut term).await;
        (result.map_err(|fault| chain(&fault)), String::from_utf8(out.text).unwrap())
    });
    printed.await.unwrap();
    served.stop().await;
    let (result, text) = follow.await.unwrap();
    let ended =
        "the event stream ended: drover stops; once it runs, `drover events --after 3-2` goes on";
    assert_eq!(result, Err(ended.into()));
    insta::assert_snapshot!(text, @"3-2  2026-11-21T08:11:02.000Z  agent a1 of lab/linux is Booting");
}

#[tokio::test]
async fn resets_and_a_hold_of_the_next_failure_are_reported_below_the_templates() {
    let served = Served::default();
    furnish(&served.view);
    let linux = TemplateId::new(CloudId::new("lab"), "linux");
    let resets = ResetStatus {
        count: 12,
        reset_ms: Some(8123),
        clone_ms: Some(21_040),
        detail: String::new(),
    };
    reported(&served.view, What::Resets { template: linux.clone(), resets: resets.clone() });
    let options = |off| HoldNextOptions {
        template: "lab/linux".into(),
        span: std::time::Duration::from_secs(1800),
        public_key: None,
        off,
    };
    let (result, made) = cli(&served, false, Command::HoldNext(options(false))).await;
    assert_eq!(result, Ok(0));
    let (said, _) = made.split_once("-----BEGIN").unwrap();
    let (_, shown) = cli(&served, false, templates()).await;
    let (_, off) = cli(&served, false, Command::HoldNext(options(true))).await;
    let slow = ResetStatus { detail: "used agents are destroyed: why".into(), ..resets };
    reported(&served.view, What::Resets { template: linux, resets: slow });
    let (_, later) = cli(&served, false, templates()).await;
    let below = |table: &str| table.lines().skip(3).collect::<Vec<_>>().join("\n");
    let all = format!("{said}\n{}\n{off}{}", below(&shown), below(&later));
    insta::assert_snapshot!(all, @r"
    the next agent of lab/linux that fails once it has a machine is held for 1800 s, then destroyed
    `drover agents` shows why it failed and how to log in
    the key to log in with, shown once; keep it in a file of mode 600:

    lab/linux: 12 resets of 8.1 s each, a new agent takes 21.0 s
    lab/linux: the next failure is held for 1800 s
    lab/windows: ALARM: version 5f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b is not used, 3 of its agents failed: no address after 60 s
      run, once that is repaired: drover breakers reset lab/windows
    lab/windows: agent a2 tries version 6f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b
    no failure of template lab/linux is held
    lab/linux: 12 resets of 8.1 s each, a new agent takes 21.0 s; used agents are destroyed: why
    lab/windows: ALARM: version 5f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b is not used, 3 of its agents failed: no address after 60 s
      run, once that is repaired: drover breakers reset lab/windows
    lab/windows: agent a2 tries version 6f8z1c3px9t2vkab/1a2b3c4d5e6f7a8b
    ");
    served.stop().await;
}
