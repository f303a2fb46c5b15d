//! The whole herd over a scripted world and agents that do what they are asked.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, Installation, NodeName, VmId};
use drover_model::journal_state::{GrantedLease, JournalState};
use drover_model::marks::Reading;
use drover_model::phase::AgentPhase;
use drover_model::ports::{IdStatus, Listed, VmObservation};
use drover_model::record::{Body, LeaseAsk, Want};
use drover_model::tenant::By;

use super::*;
use crate::birth::GiveUp;
use crate::roster::Roster;
use crate::shared::Shared;
use crate::testing::{
    CLUSTER, World, ask, cloud, entry, herd, labels, marks, observation, on_paused_system, pass,
    seconds, template, unreachable,
};
use drover_runtime::reply::Reply;
use tokio::sync::oneshot;

mod lives;
mod operators;
mod overrides;
mod panics;
mod plans;
mod stops;

pub(super) struct Bed {
    pub(super) world: World,
    pub(super) herd: Addr<Herd>,
    pub(super) tried: oneshot::Receiver<Tried>,
    pub(super) roster: Shared<Roster>,
}

impl Bed {
    pub(super) fn start(world: World, spec: Arc<HerdSpec>, journal_state: JournalState) -> Self {
        Self::with(
            world,
            spec,
            journal_state,
            Arc::new(|what| panic!("{} was given up", what.name)),
        )
    }

    /// A herd that notes who is given up.
    pub(super) fn output(spec: Arc<HerdSpec>, given_up: Arc<Mutex<Vec<String>>>) -> Self {
        let note: GiveUp = Arc::new(move |what| given_up.lock().unwrap().push(what.name));
        Self::with(World::new(&["c"]), spec, JournalState::default(), note)
    }

    fn with(
        world: World,
        spec: Arc<HerdSpec>,
        journal_state: JournalState,
        give_up: GiveUp,
    ) -> Self {
        world.with(|script| script.journal_state = journal_state.clone());
        let started = Herd::start_from(HerdStart {
            ports: world.ports(),
            journal_state,
            spec,
            installation: Installation::new("7k2m9qxw"),
            epoch: 1,
            down: Duration::ZERO,
            machine: None,
            spawner: world.spawner(),
            give_up,
        });
        Self { world, herd: started.herd, tried: started.tried, roster: started.roster }
    }

    pub(super) fn new(spec: Arc<HerdSpec>) -> Self {
        Self::start(World::new(&["c", "d"]), spec, JournalState::default())
    }

    pub(super) async fn lease(&self, ask: LeaseAsk) -> Result<LeaseId, Refusal> {
        let (reply, answer) = Reply::channel();
        self.herd.do_send(HerdCommand::Lease { ask: Box::new(ask), reply });
        answer.await.unwrap()
    }

    pub(super) async fn release(&self, lease: &str) -> Result<(), Refusal> {
        let (reply, answer) = Reply::channel();
        self.herd.do_send(HerdCommand::Release {
            lease: LeaseId::new(lease),
            by: By::admin("test"),
            reply,
        });
        answer.await.unwrap()
    }

    /// Agents that live, by state.
    pub(super) fn states(&self) -> String {
        let all = self.roster.select(|_| true);
        let mut states: Vec<String> = all
            .values()
            .map(|living| format!("{} {}", living.template, living.status.phase))
            .collect();
        states.sort();
        states.join(", ")
    }

    pub(super) fn on(&self, agent: &str) -> Vec<AgentCommand> {
        self.world.with(|script| script.reported.get(&AgentId::new(agent)).cloned().unwrap())
    }

    pub(super) fn born(&self) -> usize {
        self.world.with(|script| script.reported.len())
    }
}

pub(super) fn t() -> Want {
    Want::Template("t".into())
}

// Invariant: a lease begins one agent, gets it, and gives it back.

#[test]
fn a_lease_is_durable_then_served_by_exactly_one_agent_then_over() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &["linux"])]));
        assert_eq!(bed.lease(ask("l1", labels(&["linux"]), 0)).await, Ok(LeaseId::new("l1")));
        let asked = bed.world.with(|s| s.bodies.iter().any(|b| matches!(b, Body::LeaseAsked(_))));
        assert!(asked);
        pass(seconds(1)).await;
        assert_eq!(bed.states(), "c/t Cloning");
        pass(seconds(15)).await;
        assert_eq!((bed.states().as_str(), bed.born()), ("c/t Leased", 1));
        assert_eq!(bed.release("l1").await, Ok(()));
        assert_eq!(bed.states(), "c/t Ready");
        assert_eq!(bed.release("l1").await, Ok(()));
        assert!(matches!(bed.release("l9").await, Err(Refusal::Unknown(_))));
    });
}

// Invariant: caps hold whatever is asked for.

#[test]
fn fifty_leases_under_a_cap_of_five_never_see_a_sixth_agent() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(
            vec![cloud("c", Some(5))],
            vec![template("c/t", &["x"]), template("c/u", &["x"])],
        ));
        for n in 0..50 {
            bed.lease(ask(&format!("l{n}"), labels(&["x"]), n)).await.unwrap();
        }
        let mut done: BTreeSet<LeaseId> = BTreeSet::new();
        for _ in 0..400 {
            pass(seconds(1)).await;
            assert!(bed.roster.len() <= 5, "{}", bed.states());
            for living in bed.roster.select(|_| true).into_values() {
                for lease in &living.status.leases {
                    assert!(done.insert(lease.clone()), "{lease} twice");
                    bed.release(lease.as_str()).await.unwrap();
                }
            }
        }
        assert_eq!((done.len(), bed.born()), (50, 5));
    });
}

#[test]
fn a_journal_that_cannot_be_written_refuses_the_lease_and_begins_nothing() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        pass(seconds(1)).await;
        bed.world.with(|script| script.journal_broken = true);
        let answer = bed.lease(ask("l1", t(), 0)).await;
        let text = "nothing was done: the journal could not be written: disk full";
        assert_eq!(answer, Err(Refusal::Unavailable(text.into())));
        pass(seconds(5)).await;
        assert_eq!(bed.born(), 0);
    });
}

#[test]
fn a_waiting_lease_is_cancelled_durably() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", Some(0))], vec![template("c/t", &[])]));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        assert_eq!(bed.release("l1").await, Ok(()));
        let ended = bed.world.with(|script| script.journal_state.ended.clone());
        assert_eq!(ended[&LeaseId::new("l1")].why, "cancelled");
    });
}

#[test]
fn a_lease_given_up_in_time_takes_its_queued_agent_along() {
    on_paused_system(|| async {
        let mut narrow = cloud("c", None);
        narrow.operations_per_node = 1;
        let bed = Bed::new(herd(vec![narrow], vec![template("c/t", &[])]));
        for lease in ["l1", "l2"] {
            bed.lease(ask(lease, t(), 0)).await.unwrap();
        }
        pass(seconds(1)).await;
        assert_eq!(bed.states(), "c/t Cloning, c/t Queued");
        bed.release("l2").await.unwrap();
        pass(seconds(6)).await;
        assert_eq!((bed.states().as_str(), bed.born()), ("c/t Cloning", 2));
    });
}

#[test]
fn a_renewal_is_durable_before_the_agent_hears_of_it() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(15)).await;
        let (reply, answer) = Reply::channel();
        let (lease, ttl) = (LeaseId::new("l1"), seconds(600));
        bed.herd.do_send(HerdCommand::Renew { lease, ttl, by: By::admin("test"), reply });
        let expires = answer.await.unwrap().unwrap();
        let recorded = bed.world.with(|script| script.bodies.last().cloned()).unwrap();
        let lease = LeaseId::new("l1");
        assert_eq!(recorded, Body::LeaseRenewed { lease: lease.clone(), expires });
        pass(seconds(1)).await;
        let agent = bed.roster.select(|_| true).into_keys().next().unwrap();
        assert!(bed.on(agent.as_str()).contains(&AgentCommand::LeaseRenewed { lease, expires }));
    });
}

// Invariant: failures are paced by the breaker, contention by the pace.

#[test]
fn a_broken_template_is_tried_three_times_then_once_a_cool_down() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        let fault = Fault::new(FaultKind::Broken, Culprit::Template, "no boot disk");
        bed.world.with(|script| script.fail_with = Some(fault));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(100)).await;
        assert_eq!(bed.born(), 3);
        pass(seconds(60)).await;
        assert_eq!(bed.born(), 4);
        bed.world.with(|script| script.fail_with = None);
        pass(seconds(260)).await;
        assert_eq!((bed.born(), bed.states().as_str()), (5, "c/t Leased"));
        assert!(bed.world.with(|script| script.journal_state.breakers.is_empty()));
    });
}

// Invariant: the warm pool is kept, reaped to the minimum, and topped up.

#[test]
fn the_warm_pool_is_there_at_start_refilled_after_use_and_spared_by_a_reap() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &[]);
        spec.idle_minimum = 2;
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
        pass(seconds(15)).await;
        assert_eq!(bed.states(), "c/t Ready, c/t Ready");
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(15)).await;
        assert_eq!(bed.states(), "c/t Leased, c/t Ready, c/t Ready");
        bed.release("l1").await.unwrap();
        let reap = |all| {
            let (reply, answer) = Reply::channel();
            bed.herd.do_send(HerdCommand::Reap { all, reply });
            answer
        };
        assert_eq!(reap(false).await, Ok(1));
        pass(seconds(10)).await;
        assert_eq!(bed.states(), "c/t Ready, c/t Ready");
        assert_eq!(reap(true).await, Ok(2));
        pass(seconds(30)).await;
        assert_eq!((bed.states().as_str(), bed.born()), ("c/t Ready, c/t Ready", 5));
    });
}

#[test]
fn an_idle_agent_goes_after_its_time() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &[]);
        spec.idle = Some(seconds(60));
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(20)).await;
        bed.release("l1").await.unwrap();
        pass(seconds(55)).await;
        assert_eq!(bed.states(), "c/t Ready");
        pass(seconds(15)).await;
        assert_eq!(bed.states(), "");
    });
}

// Invariant: a start reports when every cloud was tried, and runs degraded where one fails.

#[test]
fn the_ready_signal_says_which_cloud_is_degraded_and_why() {
    on_paused_system(|| async {
        let world = World::new(&["c", "d"]);
        world.with(|script| script.identify.insert("d".into(), Err(unreachable("d"))));
        let spec = herd(
            vec![cloud("c", None), cloud("d", None)],
            vec![template("c/t", &["x"]), template("d/t", &["x"])],
        );
        let mut bed = Bed::start(world, spec, JournalState::default());
        let tried = (&mut bed.tried).await.unwrap();
        assert_eq!(tried[&CloudId::new("c")], Ok("8.4.21".into()));
        let why = tried[&CloudId::new("d")].as_ref().unwrap_err();
        assert!(
            why.starts_with("nothing has been started since 20")
                && why.ends_with("Z: no endpoint answers"),
            "{why}"
        );
        for n in 0..2 {
            bed.lease(ask(&format!("l{n}"), labels(&["x"]), n)).await.unwrap();
        }
        pass(seconds(15)).await;
        assert_eq!(bed.states(), "c/t Leased, c/t Leased");
        bed.world.with(|script| script.identify.insert("d".into(), Ok(observation(CLUSTER))));
        bed.lease(ask("l9", Want::Template("d/t".into()), 9)).await.unwrap();
        pass(seconds(80)).await;
        assert_eq!(bed.states(), "c/t Leased, c/t Leased, d/t Leased");
    });
}

#[test]
fn a_cloud_that_leads_elsewhere_after_a_restart_is_left_alone() {
    on_paused_system(|| async {
        let world = World::new(&["c"]);
        let mut journal_state = JournalState::default();
        journal_state.clusters.insert(CloudId::new("c"), ClusterId::new("0000000000000000"));
        let spec = herd(vec![cloud("c", None)], vec![template("c/t", &[])]);
        let mut bed = Bed::start(world, spec, journal_state);
        let why = (&mut bed.tried).await.unwrap()[&CloudId::new("c")].clone().unwrap_err();
        assert!(why.contains("drover does nothing there"), "{why}");
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(30)).await;
        assert_eq!((bed.born(), bed.world.calls("survey")), (0, 0));
    });
}

// Invariant: a restart adopts agents, leases and waiting asks, and begins nothing twice.

#[test]
fn what_the_journal_knows_is_taken_over_before_anything_is_started() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &[]);
        spec.idle_minimum = 1;
        spec.cap = Some(3);
        let mut journal_state = JournalState::default();
        journal_state.clusters.insert(CloudId::new("c"), ClusterId::new(CLUSTER));
        let mut leased = entry("leased", 10_000, spec.clone(), AgentPhase::Leased);
        let lease = ask("l1", t(), 0);
        let (granted, expires) = (None, crate::testing::at(9_000).wall);
        let (span_ms, runner, pending) = (None, None, false);
        let lease = GrantedLease { ask: lease, granted, expires, span_ms, runner, pending };
        leased.leases.insert(LeaseId::new("l1"), lease);
        journal_state.agents.insert(AgentId::new("leased"), leased);
        journal_state
            .agents
            .insert(AgentId::new("idle"), entry("idle", 10_001, spec.clone(), AgentPhase::Ready));
        journal_state.waiting.push(ask("l2", t(), 1));
        let spec = herd(vec![cloud("c", None)], vec![spec]);
        let bed = Bed::start(World::new(&["c"]), spec, journal_state);
        let shown = bed.world.with(|script| {
            let shown = script.facts.iter().filter_map(|fact| {
                let What::Agent(status) = &fact.what else { return None };
                Some(format!("{} {}", status.agent, status.phase))
            });
            shown.collect::<Vec<_>>()
        });
        assert_eq!(shown, ["idle Ready", "leased Leased"], "found from the first request on");
        pass(seconds(1)).await;
        assert_eq!(bed.roster.len(), 3, "{}", bed.states());
        pass(seconds(20)).await;
        assert_eq!(bed.states(), "c/t Leased, c/t Leased, c/t Ready");
        assert_eq!(
            bed.roster.get(&AgentId::new("idle")).unwrap().status.leases,
            [LeaseId::new("l2")]
        );
        bed.release("l1").await.unwrap();
        assert_eq!(
            bed.world.with(|s| s.journal_state.ended[&LeaseId::new("l1")].why.clone()),
            "released"
        );
    });
}

#[test]
fn agents_of_a_template_that_left_drain_and_the_cloud_that_left_is_gone_after_them() {
    on_paused_system(|| async {
        let mut journal_state = JournalState::default();
        journal_state.clusters.insert(CloudId::new("x"), ClusterId::new(CLUSTER));
        let idle = entry("idle", 10_000, template("x/t", &[]), AgentPhase::Ready);
        journal_state.agents.insert(AgentId::new("idle"), idle);
        let bed =
            Bed::start(World::new(&["c"]), herd(vec![cloud("c", None)], vec![]), journal_state);
        pass(seconds(1)).await;
        assert_eq!(bed.on("idle"), [AgentCommand::Retire(Reason::Unconfigured)]);
        pass(seconds(10)).await;
        assert!(bed.roster.is_empty());
        let x = CloudId::new("x");
        let gone = |what: &What| matches!(what, What::CloudGone { cloud } if *cloud == x);
        assert!(bed.world.with(|script| script.facts.iter().any(|fact| gone(&fact.what))));
    });
}

// Invariant: a reload reaches only those it concerns, and never kills a busy agent.

#[test]
fn an_equal_configuration_is_asked_to_nobody_and_a_removed_template_drains_its_busy_agent() {
    on_paused_system(|| async {
        let spec = |generation: u64, names: &[&str]| {
            let templates = names.iter().map(|name| {
                let mut spec = template(name, &["x"]);
                spec.generation.0 = generation;
                spec
            });
            let mut spec = (*herd(vec![cloud("c", None)], templates.collect())).clone();
            spec.generation.0 = generation;
            Arc::new(spec)
        };
        let bed = Bed::new(spec(1, &["c/t", "c/u"]));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(15)).await;
        let asked = bed.world.calls("identify");
        bed.herd.do_send(ApplySpec(spec(2, &["c/t", "c/u"])));
        pass(seconds(1)).await;
        assert_eq!(bed.world.calls("identify"), asked);
        bed.lease(ask("l0", Want::Template("u".into()), 0)).await.unwrap();
        pass(seconds(15)).await;
        let born = bed.roster.select(|living| &*living.template.name == "u");
        assert_eq!(born.values().next().unwrap().spec.generation.0, 1, "nobody heard of it");
        bed.release("l0").await.unwrap();
        let busy = bed.roster.select(|living| !living.status.leases.is_empty());
        let agent = busy.into_keys().next().unwrap();
        bed.herd.do_send(ApplySpec(spec(3, &["c/u"])));
        pass(seconds(60)).await;
        assert_eq!(bed.states(), "c/t Draining, c/u Ready");
        let drain = AgentCommand::Drain(Reason::Unconfigured);
        assert_eq!(bed.on(agent.as_str()).iter().filter(|reported| **reported == drain).count(), 1);
        assert!(matches!(bed.lease(ask("l2", t(), 0)).await, Err(Refusal::Unknown(_))));
        bed.release("l1").await.unwrap();
        pass(seconds(10)).await;
        assert_eq!(bed.states(), "c/u Ready");
    });
}

// Invariant: orphans go through the same door as agents.

pub(super) fn orphan_world(vmid: u32) -> World {
    let world = World::new(&["c"]);
    world.with(|script| {
        let survey = script.survey.as_mut().unwrap();
        survey.guests.push(Listed {
            vmid: VmId(vmid),
            node: NodeName::new("pve1"),
            name: None,
            tags: vec!["drover-7k2m9qxw".into()],
            lock: None,
            status: "running".into(),
            template: false,
            container: false,
        });
        let look = VmObservation {
            id: IdStatus::Taken,
            node: Some(NodeName::new("pve1")),
            marks: Some(Reading::Marked(Box::new(marks("4f8z1c3px9t2vkab", vmid)))),
            lock: None,
            running: Some(true),
        };
        script.looks.insert(vmid, look);
    });
    world
}

#[test]
fn an_orphan_becomes_an_agent_that_is_retired_after_the_grace() {
    on_paused_system(|| async {
        let spec = herd(vec![cloud("c", None)], vec![]);
        let bed = Bed::start(orphan_world(10_000), spec, JournalState::default());
        pass(seconds(250)).await;
        assert_eq!((bed.born(), bed.world.calls("look")), (0, 1));
        pass(seconds(53)).await;
        assert_eq!(bed.states(), "c/t Retiring");
        bed.world.with(|script| script.survey.as_mut().unwrap().guests.clear());
        pass(seconds(10)).await;
        assert!(bed.roster.is_empty());
    });
}

#[test]
fn an_orphan_ahead_of_the_journal_is_written_down_and_left_alone() {
    on_paused_system(|| async {
        let world = orphan_world(10_000);
        let mut ahead = marks("4f8z1c3px9t2vkab", 10_000);
        ahead.seq = 5000;
        let reading = Some(Reading::Marked(Box::new(ahead)));
        world.with(|script| script.looks.get_mut(&10_000).unwrap().marks = reading);
        let bed = Bed::start(world, herd(vec![cloud("c", None)], vec![]), JournalState::default());
        pass(seconds(900)).await;
        assert_eq!(bed.born(), 0);
        let written = bed.world.with(|script| script.journal_state.ahead.clone());
        assert_eq!(written[&ClusterId::new(CLUSTER)], (VmId(10_000), 5000));
    });
}

#[test]
fn a_resync_reconciles_at_once_and_says_what_it_found() {
    on_paused_system(|| async {
        let spec = herd(vec![cloud("c", None)], vec![]);
        let bed = Bed::start(orphan_world(10_000), spec, JournalState::default());
        pass(seconds(5)).await;
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::Resync { reply });
        let findings = answer.await.unwrap();
        let orphan = "10000 is an orphan of agent `4f8z1c3px9t2vkab`: left alone for 295 s more";
        assert_eq!(findings[&ClusterId::new(CLUSTER)], Ok(vec![orphan.to_owned()]));
        assert_eq!(bed.world.calls("survey"), 2);
    });
}

#[test]
fn two_clouds_of_one_cluster_share_one_list() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None), cloud("d", None)], vec![]));
        pass(seconds(65)).await;
        assert_eq!(bed.world.calls("survey"), 2);
    });
}

#[test]
fn a_missing_guest_has_vanished_only_when_its_id_is_free() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        pass(seconds(15)).await;
        let agent = bed.roster.select(|_| true).into_keys().next().unwrap();
        bed.world.with(|script| script.ids.insert(10_000, IdStatus::Taken));
        pass(seconds(60)).await;
        assert!(!bed.on(agent.as_str()).contains(&AgentCommand::Vanished));
        bed.world.with(|script| script.ids.insert(10_000, IdStatus::Free));
        pass(seconds(60)).await;
        assert!(bed.on(agent.as_str()).contains(&AgentCommand::Vanished));
    });
}
