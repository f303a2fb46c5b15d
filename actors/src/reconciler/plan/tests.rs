//! The plan of a reconciliation, as text, and its judgements.
use std::sync::Arc;

use drover_model::marks::{Kind, Reading};
use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::ports::IdStatus;
use drover_model::status::Standing;
use drover_model::time::WallTime;

use super::*;
use crate::reconciler::judge::{Judged, judge, young};
use crate::testing::{CLUSTER, agent_status, at, marks, seconds, survey, template};

const CONFIG: Config = Config {
    cleanup_orphans: true,
    orphan_grace: Duration::from_secs(300),
    node_grace: Duration::from_secs(120),
};

/// What is known of these agents.
fn known(agents: &[(&str, u32, AgentPhase)]) -> Known {
    Known {
        installation: Installation::new("7k2m9qxw"),
        cluster: ClusterId::new(CLUSTER),
        agents: agents
            .iter()
            .map(|(agent, vmid, state)| {
                let spec = Arc::new(template("c/t", &[]));
                let status = agent_status(agent, &spec.id, *state, Standing::Busy);
                let living = Living {
                    template: spec.id.clone(),
                    spec,
                    status: Arc::new(status),
                    overrides: Overrides::default(),
                    born: WallTime::default(),
                    place: Some(drover_model::place::Place {
                        cluster: ClusterId::new(CLUSTER),
                        vmid: VmId(*vmid),
                        node: NodeName::new("pve1"),
                        origin: None,
                        source: None,
                    }),
                };
                (AgentId::new(agent), living)
            })
            .collect(),
        builds: BTreeSet::new(),
        last_seq: 100,
        since: testbed_now(),
    }
}

/// A guest of which the list knows no name yet.
fn guest(vmid: u32, node: &str, status: &str) -> Listed {
    Listed {
        vmid: VmId(vmid),
        node: NodeName::new(node),
        name: None,
        tags: Vec::new(),
        lock: None,
        status: status.into(),
        template: false,
        container: false,
    }
}

fn tagged(vmid: u32) -> Listed {
    let tags = vec!["drover".into(), "drover-7k2m9qxw".into()];
    Listed { tags, ..guest(vmid, "pve1", "running") }
}

fn listed(guests: Vec<Listed>) -> Survey {
    Survey { guests, ..survey() }
}

fn seen(reading: Reading) -> Result<VmObservation, String> {
    Ok(VmObservation {
        id: IdStatus::Taken,
        node: Some(NodeName::new("pve1")),
        marks: Some(reading),
        lock: None,
        running: Some(true),
    })
}

const ORPHAN: &str = "4f8z1c3px9t2vkab";

/// A memory that has seen an orphan's tag at second 0, and how a look at it at `now` is judged.
fn judged(known: &Known, observation: &Result<VmObservation, String>, now: u64) -> Judged {
    let mut memory = Memory::default();
    plan(&listed(vec![tagged(10_500)]), known, CONFIG, &mut memory, at(0).mono);
    judge(VmId(10_500), observation, false, known, CONFIG, &mut memory, at(now).mono)
}

// Invariant: the whole plan is one page.

#[test]
fn a_plan_reads_like_this() {
    let known = known(&[
        ("well", 10_000, AgentPhase::Ready),
        ("moved", 10_001, AgentPhase::Leased),
        ("dead", 10_002, AgentPhase::Ready),
        ("missing", 10_003, AgentPhase::Ready),
        ("cloning", 10_004, AgentPhase::Cloning),
        ("booting", 10_005, AgentPhase::Booting),
    ]);
    let mut container = tagged(10_007);
    container.container = true;
    let mut survey = listed(vec![
        guest(10_000, "pve1", "running"),
        guest(10_001, "pve2", "running"),
        guest(10_002, "pve1", "stopped"),
        guest(10_005, "pve1", "stopped"),
        tagged(10_006),
        container,
        guest(100, "pve1", "running"),
    ]);
    survey.nodes.push((NodeName::new("pve3"), false));
    let plan = plan(&survey, &known, CONFIG, &mut Memory::default(), at(0).mono);
    let expected = [
        "look at 10006 on pve1",
        "look at 10007 on pve1",
        "ask whether 10003 of missing is free",
        "send dead: SeenStopped",
        "send moved: Moved(pve2)",
        "found: 10002 of agent `dead` is stopped in state Ready",
        "found: 10001 of agent `moved` moved from `pve1` to `pve2`",
        "found: node `pve3` is seen offline for 0 s",
    ];
    assert_eq!(plan.render(), expected.join("\n"));
}

// Invariant: absence from a list is never evidence, nor is a list without quorum.

#[test]
fn without_quorum_nothing_follows() {
    let known = known(&[("a", 10_000, AgentPhase::Ready)]);
    let survey = Survey { quorate: false, ..listed(vec![tagged(10_500)]) };
    let plan = plan(&survey, &known, CONFIG, &mut Memory::default(), at(0).mono);
    assert_eq!((plan.looks.len(), plan.checks.len(), plan.report.len()), (0, 0, 0));
    assert_eq!(plan.findings.len(), 0);
}

#[test]
fn a_missing_agent_is_only_asked_about_and_a_cloning_one_not_even_that() {
    let known = known(&[("a", 10_000, AgentPhase::Ready), ("b", 10_001, AgentPhase::Cloning)]);
    let plan = plan(&listed(Vec::new()), &known, CONFIG, &mut Memory::default(), at(0).mono);
    assert_eq!(plan.render(), "ask whether 10000 of a is free");
}

#[test]
fn a_locked_guest_that_is_stopped_is_left_to_its_lock() {
    let known = known(&[("a", 10_000, AgentPhase::Ready)]);
    let mut backed_up = guest(10_000, "pve1", "stopped");
    backed_up.lock = Some("backup".into());
    let plan = plan(&listed(vec![backed_up]), &known, CONFIG, &mut Memory::default(), at(0).mono);
    let reported = "found: 10000 of agent `a` is locked (backup) in state Ready: left alone until \
                    that is over";
    assert_eq!(plan.render(), reported);
    assert_eq!(plan.findings[0].does, Does::Leave);
}

#[test]
fn an_agents_guest_of_another_name_is_reported_and_nothing_more() {
    let cases = [
        (AgentPhase::Leased, Some("somebody-else"), 1),
        (AgentPhase::Ready, Some("linux-7k2m9qxw-0000000000000000"), 1),
        (AgentPhase::Leased, Some("linux-7k2m9qxw-4f8z1c3px9t2vkab"), 0),
        (AgentPhase::Leased, None, 0),
        // The list may still know another guest that had the id before.
        (AgentPhase::Booting, Some("somebody-else"), 0),
    ];
    for (state, name, found) in cases {
        let known = known(&[(ORPHAN, 10_000, state)]);
        let named = Listed { name: name.map(Into::into), ..guest(10_000, "pve1", "running") };
        let list = listed(vec![named]);
        let plan = plan(&list, &known, CONFIG, &mut Memory::default(), at(0).mono);
        assert_eq!((plan.findings.len(), plan.report.len()), (found, 0), "{name:?} in {state}");
    }
}

#[test]
fn a_lock_of_an_agents_own_work_is_no_finding() {
    let locks = [
        ("backup", AgentPhase::Leased, 1),
        ("migrate", AgentPhase::Ready, 1),
        ("snapshot", AgentPhase::Ready, 1),
        ("clone", AgentPhase::Cloning, 0),
        ("clone", AgentPhase::Configuring, 0),
        ("snapshot", AgentPhase::Preparing, 0),
        ("rollback", AgentPhase::Resetting, 0),
    ];
    for (lock, state, found) in locks {
        let known = known(&[("a", 10_000, state)]);
        let locked = Listed { lock: Some(lock.into()), ..guest(10_000, "pve1", "running") };
        let list = listed(vec![locked]);
        let plan = plan(&list, &known, CONFIG, &mut Memory::default(), at(0).mono);
        assert_eq!(plan.findings.len(), found, "{lock} in {state}");
    }
}

// Invariant: an orphan goes only by its marks, after the grace, and by a journal that knows it.

#[test]
fn a_true_orphan_is_left_alone_for_the_grace_and_looked_at_again_before_it_goes() {
    let known = known(&[]);
    let mut memory = Memory::default();
    let list = listed(vec![tagged(10_500)]);
    let observation = seen(Reading::Marked(Box::new(marks(ORPHAN, 10_500))));
    let mut reconcile = |now: u64| {
        let plan = plan(&list, &known, CONFIG, &mut memory, at(now).mono);
        let judged = plan.looks.iter().map(|(vmid, _)| {
            judge(*vmid, &observation, false, &known, CONFIG, &mut memory, at(now).mono)
        });
        let judged: Vec<Judged> = judged.collect();
        let finding = judged.iter().find_map(|j| j.finding.clone());
        let finding = finding.or(plan.findings.first().cloned()).map(|found| found.text);
        (plan.looks.len(), finding, judged.iter().any(|j| j.destroy.is_some()))
    };
    let text = |what: &str| Some(format!("10500 is an orphan of agent `{ORPHAN}`: {what}"));
    assert_eq!(reconcile(0), (1, text("left alone for 300 s more"), false));
    assert_eq!(reconcile(60), (0, text("left alone for 240 s more"), false));
    assert_eq!(reconcile(300), (1, text("is retired"), true));
}

#[test]
fn an_orphan_that_is_backed_up_or_migrated_is_left_alone_until_that_is_over() {
    let known = known(&[]);
    for (lock, goes) in [(Some("backup"), false), (Some("migrate"), false), (None, true)] {
        let observation = seen(Reading::Marked(Box::new(marks(ORPHAN, 10_500))));
        let observation = observation
            .map(|observation| VmObservation { lock: lock.map(Into::into), ..observation });
        let judged = judged(&known, &observation, 300);
        assert_eq!(judged.destroy.is_some(), goes, "{lock:?}");
        let does = if goes { Does::Destroy } else { Does::Leave };
        let what = lock.map_or("is retired".to_owned(), |lock| {
            format!("left alone while it is locked ({lock})")
        });
        let text = format!("10500 is an orphan of agent `{ORPHAN}`: {what}");
        assert_eq!(judged.finding, Some(Finding::of(does, VmId(10_500), text)));
    }
}

#[test]
fn an_orphan_is_only_reported_when_cleaning_is_off() {
    let known = known(&[]);
    let config = Config { cleanup_orphans: false, ..CONFIG };
    let mut memory = Memory::default();
    plan(&listed(vec![tagged(10_500)]), &known, config, &mut memory, at(0).mono);
    let observation = seen(Reading::Marked(Box::new(marks(ORPHAN, 10_500))));
    let judged =
        judge(VmId(10_500), &observation, false, &known, config, &mut memory, at(999).mono);
    assert_eq!(judged.destroy, None);
    assert!(judged.finding.is_some_and(|found| found.text.ends_with("cleaning is off")));
}

/// An orphan that is ahead of the journal and another that is not, both past their grace.
fn ahead_and_other() -> [(VmId, Result<VmObservation, String>); 2] {
    let mut ahead = marks("0000000000000000", 10_501);
    ahead.seq = 110;
    [
        (VmId(10_500), seen(Reading::Marked(Box::new(marks(ORPHAN, 10_500))))),
        (VmId(10_501), seen(Reading::Marked(Box::new(ahead)))),
    ]
}

/// Plans and judges both at a moment; gives whether any is destroyed, and all findings.
fn reconciled(memory: &mut Memory, known: &Known, now: u64) -> (bool, String) {
    let list = listed(vec![tagged(10_500), tagged(10_501)]);
    let plan = plan(&list, known, CONFIG, memory, at(now).mono);
    let both = ahead_and_other();
    let looks = || both.iter().filter(|(at, _)| plan.looks.iter().any(|(vmid, _)| vmid == at));
    for (vmid, observation) in looks() {
        memory.learn(*vmid, observation, known);
    }
    let judged: Vec<Judged> = looks()
        .map(|(vmid, observation)| {
            judge(*vmid, observation, false, known, CONFIG, memory, at(now).mono)
        })
        .collect();
    let findings = plan.findings.into_iter().chain(judged.iter().filter_map(|j| j.finding.clone()));
    let findings: Vec<String> = findings.map(|found| found.text).collect();
    (judged.iter().any(|j| j.destroy.is_some()), findings.join("\n"))
}

#[test]
fn marks_ahead_of_the_journal_stop_the_destruction_of_every_orphan_until_an_operator_confirms() {
    let mut known = known(&[]);
    let mut memory = Memory::default();
    let (destroyed, text) = reconciled(&mut memory, &known, 0);
    assert!(!destroyed && text.contains("before an operator confirms"), "{text}");
    let (destroyed, text) = reconciled(&mut memory, &known, 999);
    assert!(!destroyed && text.starts_with("no orphan is destroyed: the marks of 10501"));
    known.last_seq = 500;
    let (destroyed, text) = reconciled(&mut memory, &known, 1000);
    assert!(!destroyed, "a journal that has caught up knows no more: {text}");
    known.last_seq = 100;
    assert!(memory.confirm());
    let (destroyed, text) = reconciled(&mut memory, &known, 1001);
    assert!(destroyed, "{text}");
}

#[test]
fn a_restart_remembers_that_the_journal_is_too_old_though_the_guest_that_reported_is_gone() {
    let known = known(&[]);
    let mut memory = Memory::restored(Some((VmId(10_777), 110)), BTreeSet::new());
    reconciled(&mut memory, &known, 0);
    let (destroyed, text) = reconciled(&mut memory, &known, 999);
    assert!(!destroyed && text.contains("the marks of 10777 (seq 110)"), "{text}");
}

#[test]
fn one_guest_ahead_saves_those_judged_before_it_in_the_same_round() {
    let known = known(&[]);
    let mut memory = Memory::default();
    let list = listed(vec![tagged(10_500), tagged(10_501)]);
    plan(&list, &known, CONFIG, &mut memory, at(0).mono);
    assert!(!reconciled(&mut memory, &known, 999).0);
}

// Invariant: strangers, copies and damaged guests are reported and never touched.

#[test]
fn whatever_is_not_exactly_ours_is_never_destroyed() {
    let known = known(&[("0000000000000000", 10_000, AgentPhase::Ready)]);
    let change = |change: &dyn Fn(&mut Marks)| {
        let mut marks = marks(ORPHAN, 10_500);
        change(&mut marks);
        seen(Reading::Marked(Box::new(marks)))
    };
    let cases = [
        (seen(Reading::Unmarked), "is a stranger, not touched: it carries no marks"),
        (seen(Reading::Damaged("twice".into())), "has damaged marks, not touched: twice"),
        (
            change(&|marks| marks.installation = Installation::new("7k2m9qxx")),
            "is a stranger, not touched: it is of installation `7k2m9qxx`",
        ),
        (
            change(&|marks| marks.vmid = VmId(10_499)),
            "is a stranger, not touched: it is a copy: its marks name 10499",
        ),
        (
            change(&|marks| marks.cluster = ClusterId::new("0011223344556677")),
            "is a stranger, not touched: its marks name cluster `0011223344556677`",
        ),
        (
            change(&|marks| marks.agent = AgentId::new("0000000000000000")),
            "is a stranger, not touched: agent `0000000000000000` lives elsewhere",
        ),
        (Err("no endpoint answers".into()), "could not be read: no endpoint answers"),
    ];
    for (observation, text) in cases {
        let judged = judged(&known, &observation, 999);
        let finding = Finding::of(Does::Report, VmId(10_500), format!("10500 {text}"));
        assert_eq!(judged, Judged { finding: Some(finding), destroy: None });
    }
}

#[test]
fn versions_of_images_and_builds_that_run_are_neither_reported_nor_destroyed_and_lost_builds_are() {
    let of = |kind| seen(Reading::Marked(Box::new(Marks { kind, ..marks(ORPHAN, 10_500) })));
    let nothing = Judged::default();
    assert_eq!(judged(&known(&[]), &of(Kind::Image), 999), nothing);
    let running = Known { builds: [AgentId::new(ORPHAN)].into(), ..known(&[]) };
    assert_eq!(judged(&running, &of(Kind::Builder), 999), nothing);
    let lost = judged(&known(&[]), &of(Kind::Builder), 999);
    assert_eq!(lost.destroy.map(|marks| marks.kind), Some(Kind::Builder));
}

#[test]
fn an_agents_marks_on_a_template_are_damaged() {
    let known = known(&[]);
    let mut memory = Memory::default();
    plan(&listed(vec![tagged(10_500)]), &known, CONFIG, &mut memory, at(0).mono);
    let observation = seen(Reading::Marked(Box::new(marks(ORPHAN, 10_500))));
    let judged = judge(VmId(10_500), &observation, true, &known, CONFIG, &mut memory, at(999).mono);
    assert_eq!(judged.destroy, None);
}

#[test]
fn a_candidate_that_is_gone_meanwhile_is_no_finding() {
    let observation =
        VmObservation { id: IdStatus::Free, node: None, marks: None, lock: None, running: None };
    assert_eq!(judged(&known(&[]), &Ok(observation), 999), Judged::default());
}

#[test]
fn a_stranger_is_read_again_when_an_operator_asks_for_it() {
    let (known, mut memory) = (known(&[]), Memory::default());
    let seen_now = |memory: &mut Memory| {
        plan(&listed(vec![tagged(900)]), &known, CONFIG, memory, at(0).mono).looks.len()
    };
    assert_eq!(seen_now(&mut memory), 1);
    let damaged = seen(Reading::Damaged("twice".into()));
    judge(VmId(900), &damaged, false, &known, CONFIG, &mut memory, at(0).mono);
    assert_eq!(seen_now(&mut memory), 0);
    memory.look_again();
    assert_eq!(seen_now(&mut memory), 1);
}

#[test]
fn guests_of_another_installation_are_counted_in_one_line() {
    let named = |vmid: u32| {
        let name = format!("linux-bbbbbbbb-{vmid:0>16}");
        Listed { name: Some(name), ..guest(vmid, "pve1", "running") }
    };
    let survey = listed(vec![named(900), named(901), guest(902, "pve1", "running")]);
    let plan = plan(&survey, &known(&[]), CONFIG, &mut Memory::default(), at(0).mono);
    let line = "guests of another installation, `bbbbbbbb`: 2 (900, 901): not touched";
    assert_eq!((plan.findings, plan.looks.len()), (vec![Finding::reported(line.to_owned())], 0));
}

#[test]
fn a_known_stranger_is_not_read_again_until_its_name_or_tags_change() {
    let known = known(&[]);
    let mut memory = Memory::default();
    let mut list = listed(vec![tagged(10_500)]);
    let looks = |list: &Survey, memory: &mut Memory, now: u64| {
        plan(list, &known, CONFIG, memory, at(now).mono).looks.len()
    };
    assert_eq!(looks(&list, &mut memory, 0), 1);
    let observation = seen(Reading::Unmarked);
    judge(VmId(10_500), &observation, false, &known, CONFIG, &mut memory, at(0).mono);
    assert_eq!(looks(&list, &mut memory, 999), 0);
    list.guests[0].name = Some("renamed".into());
    assert_eq!(looks(&list, &mut memory, 1000), 1);
}

// Invariant: an offline node parks its agents after the grace, once, and says when it is back.

#[test]
fn a_node_parks_its_agents_after_the_grace_and_gives_them_back() {
    let known = known(&[("a", 10_000, AgentPhase::Ready)]);
    let mut memory = Memory::default();
    let mut list = listed(vec![guest(10_000, "pve1", "unknown")]);
    let reported = |list: &Survey, memory: &mut Memory, now: u64| {
        let plan = plan(list, &known, CONFIG, memory, at(now).mono);
        plan.report.into_iter().map(|(_, command)| command).collect::<Vec<_>>()
    };
    list.nodes = vec![(NodeName::new("pve1"), false)];
    assert_eq!(reported(&list, &mut memory, 0), []);
    assert_eq!(reported(&list, &mut memory, 119), []);
    assert_eq!(reported(&list, &mut memory, 120), [AgentCommand::NodeDown(true)]);
    assert_eq!(reported(&list, &mut memory, 180), []);
    list.nodes = vec![(NodeName::new("pve1"), true)];
    assert_eq!(reported(&list, &mut memory, 240), [AgentCommand::NodeDown(false)]);
    assert_eq!(reported(&list, &mut memory, 300), []);
    assert_eq!(CONFIG.node_grace, seconds(120));
}

#[test]
fn the_grace_of_a_node_goes_on_after_a_start_and_a_panic() {
    let known = known(&[("a", 10_000, AgentPhase::Ready)]);
    let mut list = listed(vec![guest(10_000, "pve1", "unknown")]);
    list.nodes = vec![(NodeName::new("pve1"), false)];
    let offline = [(NodeName::new("pve1"), seconds(100))].into();
    let mut memory = Memory::default().with_offline(offline, at(0).mono);
    memory.restart();
    let first = plan(&list, &known, CONFIG, &mut memory, at(10).mono);
    assert_eq!(first.render(), "found: node `pve1` is seen offline for 110 s");
    let down = [(AgentId::new("a"), AgentCommand::NodeDown(true))];
    assert_eq!(plan(&list, &known, CONFIG, &mut memory, at(20).mono).report, down);
    memory.restart();
    assert_eq!(plan(&list, &known, CONFIG, &mut memory, at(30).mono).report, down, "again");
    list.nodes = vec![(NodeName::new("pve1"), true)];
    plan(&list, &known, CONFIG, &mut memory, at(40).mono);
    assert!(memory.offline.spans(at(50).mono).is_empty());
}

// Invariant: agents hear what a list of a quorate cluster shows of their guests, and when that was.

#[test]
fn each_agent_hears_what_the_list_shows_of_its_guest_and_of_its_node() {
    let known = known(&[
        ("dead", 10_000, AgentPhase::Leased),
        ("far", 10_001, AgentPhase::Ready),
        ("missing", 10_002, AgentPhase::Ready),
        ("still", 10_003, AgentPhase::Leased),
    ]);
    let mut list = listed(vec![
        guest(10_000, "pve1", "stopped"),
        guest(10_001, "pve2", "running"),
        Listed { lock: Some("backup".into()), ..guest(10_003, "pve1", "paused") },
    ]);
    list.nodes.push((NodeName::new("pve2"), false));
    list.age = seconds(4);
    let now = at(60).mono;
    let plan = watch(&list, &known, CONFIG, &mut Memory::default(), now);
    let reported: Vec<String> = plan
        .observed
        .iter()
        .map(|(agent, seen)| {
            assert_eq!(now - seen.at, seconds(4));
            let Observed { node, offline, status, lock, .. } = seen;
            format!("{agent} {node} {offline} {status:?} {lock:?}")
        })
        .collect();
    let expected = [
        "dead pve1 false Stopped None",
        "far pve2 true Running None",
        "still pve1 false Still(\"paused\") Some(\"backup\")",
    ];
    assert_eq!(reported, expected);
    assert_eq!(plan.checks, [(AgentId::new("missing"), VmId(10_002))]);
    let follows = AgentCommand::Moved(NodeName::new("pve2"));
    assert_eq!(plan.report, [(AgentId::new("far"), follows)]);
}

#[test]
fn a_list_without_quorum_says_nobody_anything() {
    let known = known(&[("dead", 10_000, AgentPhase::Leased)]);
    let list = Survey { quorate: false, ..listed(vec![guest(10_000, "pve1", "stopped")]) };
    let plan = watch(&list, &known, CONFIG, &mut Memory::default(), at(0).mono);
    assert_eq!(plan, Plan::default());
}

fn testbed_now() -> WallTime {
    crate::testing::at(100_000_000).wall
}

// Invariant: guests that another drover made since are kept apart from orphans of this one.

#[test]
fn marks_that_are_younger_than_the_journal_are_another_drovers() {
    let known = Known { since: crate::testing::at(0).wall, ..known(&[]) };
    let seen = |born: &str| {
        let marks = Marks { born: born.into(), ..marks("0000000000000000", 10_501) };
        seen(Reading::Marked(Box::new(marks)))
    };
    let (old, new) = (seen("2000-01-01T00:00:00Z"), seen("2100-01-01T00:00:00Z"));
    assert_eq!(young(VmId(10_501), &old, &known), None);
    let marks = young(VmId(10_501), &new, &known).cloned();
    let marks = marks.unwrap_or_else(|| panic!("it is younger"));
    let mut memory = Memory::default();
    assert!(memory.foreign(&marks) && !memory.foreign(&marks));
    assert_eq!(memory.ahead(), Some((VmId(10_501), marks.seq)));
    assert!(memory.confirm() && !memory.foreign(&marks), "an operator knows of it");
}
