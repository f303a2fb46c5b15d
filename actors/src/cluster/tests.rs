//! The cluster actor over a scripted world: places and ids are granted, refused and taken back.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
use std::sync::{Arc, Mutex};

use actix::{Addr, Recipient};
use drover_model::overrides::Overrides;
use drover_model::ports::Ambient as _;
use drover_model::status::AgentStatus;
use drover_model::time::{Moment, WallTime};

use super::*;
use crate::doubts::{Doubts, Spot};
use crate::roster::{Living, Roster};
use crate::shared::Shared;
use crate::testing::{self, CLUSTER, World, cloud, on_paused_system, pass, seconds, template};

/// An agent that only listens.
struct Listener(Arc<Mutex<Vec<String>>>, &'static str);

impl Actor for Listener {
    type Context = Context<Self>;
}

impl Handler<AgentCommand> for Listener {
    type Result = ();

    fn handle(&mut self, command: AgentCommand, _: &mut Self::Context) {
        let text = if let AgentCommand::Granted { vmid, node, .. } = command {
            format!("{} {vmid} on {node}", self.1)
        } else if let AgentCommand::NotGranted(fault) = command {
            format!("{} refused: {fault}", self.1)
        } else {
            format!("{} {command:?}", self.1)
        };
        self.0.lock().unwrap().push(text);
    }
}

/// A herd that only listens.
struct Herd(Arc<Mutex<Vec<String>>>);

impl Actor for Herd {
    type Context = Context<Self>;
}

impl Handler<CloudReport> for Herd {
    type Result = ();

    fn handle(&mut self, report: CloudReport, _: &mut Self::Context) {
        if let CloudReport::Silent(cloud) = report {
            self.0.lock().unwrap().push(format!("cloud {cloud} is silent"));
        }
    }
}

struct Bed {
    world: World,
    /// As a template has it, which enters agents.
    roster: Shared<Roster, role::Template>,
    doubts: Shared<Doubts, role::Herd>,
    cluster: Addr<Cluster>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    fn new(change: impl FnOnce(&mut CloudSpec)) -> Self {
        Self::with_lanes(change, ConcurrencyLimits::default())
    }

    fn with_lanes(change: impl FnOnce(&mut CloudSpec), lanes: ConcurrencyLimits) -> Self {
        let world = World::new(&["c"]);
        let common = world.common();
        let roster = common.roster.playing();
        let mut spec = cloud("c", None);
        change(&mut spec);
        let (id, doubts) = (ClusterId::new(CLUSTER), common.doubts.playing());
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let herd = Herd(heard.clone()).start().recipient();
        let cluster = Cluster::new(common, id, herd, Rc::default(), lanes).start();
        cluster.do_send(ClusterCommand::Use(Arc::new(spec)));
        Self { world, roster, doubts, cluster, heard }
    }

    fn ask(&self, agent: &'static str, change: impl FnOnce(&mut TemplateSpec)) {
        let mut spec = template("c/t", &[]);
        change(&mut spec);
        let spec = Arc::new(spec);
        let reply: Recipient<AgentCommand> =
            Listener(self.heard.clone(), agent).start().recipient();
        let living = Living {
            template: spec.id.clone(),
            spec: spec.clone(),
            status: Arc::new(AgentStatus::started(
                AgentId::new(agent),
                spec.id.clone(),
                WallTime::default(),
            )),
            overrides: Overrides::default(),
            born: WallTime::default(),
            place: None,
        };
        self.roster.enter(AgentId::new(agent), living, reply.clone());
        self.cluster.do_send(LaneAsk { agent: AgentId::new(agent), spec, reply });
    }

    async fn heard(&self) -> Vec<String> {
        pass(Duration::from_millis(100)).await;
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

// Invariant: an id is granted only when a list shows nobody with it, or the cluster says it is free.

#[test]
fn a_taken_id_is_passed_over_and_the_place_is_on_the_roster() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.world.with(|script| script.ids.insert(10_000, IdStatus::Taken));
        bed.ask("a", |_| ());
        assert_eq!(bed.heard().await, ["a 10001 on pve1"]);
        let place = bed.roster.get(&AgentId::new("a")).unwrap().place.unwrap();
        assert_eq!((place.vmid, place.node.as_str()), (VmId(10_001), "pve1"));
    });
}

#[test]
fn an_id_that_no_list_shows_is_granted_unasked_until_a_list_proves_incomplete() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        let list = || ClusterCommand::Surveyed { seen: [VmId(10_000)].into(), through: None };
        bed.world.with(|script| script.ids.insert(10_001, IdStatus::Taken));
        bed.cluster.do_send(list());
        bed.ask("a", |_| ());
        assert_eq!(bed.heard().await, ["a 10001 on pve1"]);
        bed.cluster.do_send(IdBack { vmid: VmId(10_001), burned: true });
        bed.world.with(|script| script.ids.insert(10_002, IdStatus::Taken));
        bed.ask("b", |_| ());
        assert_eq!(bed.heard().await, ["b 10003 on pve1"]);
    });
}

#[test]
fn an_id_nobody_knows_about_is_asked_about_again() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.world.with(|script| script.ids.insert(10_000, IdStatus::Unknown));
        bed.ask("a", |_| ());
        assert_eq!(bed.heard().await, ["cloud c is silent"], "nobody would hear why");
        bed.world.with(|script| script.ids.clear());
        pass(seconds(2)).await;
        assert_eq!(bed.heard().await, ["a 10000 on pve1"]);
    });
}

#[test]
fn many_at_once_get_different_ids() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        for agent in ["a", "b", "d"] {
            bed.ask(agent, |_| ());
        }
        let mut heard = bed.heard().await;
        heard.sort();
        assert_eq!(heard, ["a 10000 on pve1", "b 10001 on pve1", "d 10002 on pve1"]);
    });
}

#[test]
fn an_exhausted_range_is_refused_and_says_so() {
    on_paused_system(|| async {
        let bed = Bed::new(|spec| spec.vmid_ceiling = VmId(10_001));
        bed.ask("a", |_| ());
        bed.ask("b", |_| ());
        let mut heard = bed.heard().await;
        heard.sort();
        assert!(heard[1].starts_with("b refused: no VMID from 10000 to below 10001"), "{heard:?}");
    });
}

#[test]
fn a_burned_id_is_recorded_and_not_granted_again() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.ask("a", |_| ());
        assert_eq!(bed.heard().await, ["a 10000 on pve1"]);
        bed.cluster.do_send(IdBack { vmid: VmId(10_000), burned: true });
        bed.ask("b", |_| ());
        assert_eq!(bed.heard().await, ["b 10001 on pve1"]);
        let burned = bed.world.with(|script| script.journal_state.burned.clone());
        assert!(burned[&ClusterId::new(CLUSTER)].contains_key(&VmId(10_000)));
    });
}

#[test]
fn a_burned_id_is_used_again_only_when_its_volumes_are_listed_empty() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.cluster.do_send(IdBack { vmid: VmId(10_000), burned: true });
        let survey = || {
            let through = Some((CloudId::new("c"), vec![NodeName::new("pve1")]));
            let seen = BTreeSet::new();
            bed.cluster.do_send(ClusterCommand::Surveyed { seen, through });
        };
        bed.world.with(|script| script.leftovers = vec!["local:vm-10000-disk-0".into()]);
        survey();
        bed.heard().await;
        bed.ask("a", |_| ());
        assert_eq!(bed.heard().await, ["a 10001 on pve1"]);
        bed.world.with(|script| script.leftovers.clear());
        survey();
        bed.heard().await;
        bed.ask("b", |_| ());
        assert_eq!(bed.heard().await, ["b 10000 on pve1"]);
        let burned = bed.world.with(|script| script.journal_state.burned.clone());
        assert!(burned[&ClusterId::new(CLUSTER)].is_empty());
    });
}

// Invariant: lanes are kept, and given back by an agent that gives up.

#[test]
fn the_lane_of_one_clone_is_the_next_ones_turn() {
    on_paused_system(|| async {
        let bed = Bed::new(|spec| spec.operations_per_node = 1);
        bed.ask("a", |_| ());
        bed.ask("b", |_| ());
        assert_eq!(bed.heard().await, ["a 10000 on pve1"]);
        bed.cluster.do_send(LaneFree { agent: AgentId::new("a"), end: OperationEnd::Inconclusive });
        assert_eq!(bed.heard().await, ["b 10001 on pve1"]);
    });
}

#[test]
fn an_agent_that_gives_up_while_its_id_is_asked_about_is_granted_nothing() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.ask("a", |_| ());
        bed.cluster.do_send(LaneFree { agent: AgentId::new("a"), end: OperationEnd::Inconclusive });
        assert!(bed.heard().await.is_empty());
        bed.ask("b", |_| ());
        assert_eq!(bed.heard().await, ["b 10000 on pve1"]);
    });
}

#[test]
fn agents_that_ended_without_a_word_lose_their_lanes_at_the_next_list() {
    on_paused_system(|| async {
        let bed = Bed::new(|spec| spec.operations_per_node = 1);
        let spec = Arc::new(template("c/t", &[]));
        let reply = Listener(bed.heard.clone(), "dead").start();
        let recipient = reply.clone().recipient();
        let agent = AgentId::new("dead");
        bed.cluster.do_send(LaneAsk { agent: agent.clone(), spec, reply: recipient });
        assert_eq!(bed.heard().await, ["dead 10000 on pve1"]);
        reply.do_send(testing::End);
        bed.ask("b", |_| ());
        assert!(bed.heard().await.is_empty());
        let seen = BTreeSet::new();
        bed.cluster.do_send(ClusterCommand::Surveyed { seen, through: None });
        assert_eq!(bed.heard().await, ["b 10001 on pve1"]);
    });
}

impl Handler<testing::End> for Listener {
    type Result = ();

    fn handle(&mut self, _: testing::End, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[test]
fn a_clone_of_an_earlier_start_keeps_its_lane_until_it_is_given_back() {
    on_paused_system(|| async {
        let mut lanes = ConcurrencyLimits::default();
        let spec = template("c/t", &[]);
        lanes.adopt(AgentId::new("old"), Footprint::of(&spec, NodeName::new("pve1")), Moment(0));
        let bed = Bed::with_lanes(|spec| spec.operations_per_node = 1, lanes);
        bed.ask("a", |_| ());
        assert!(bed.heard().await.is_empty());
        bed.cluster
            .do_send(LaneFree { agent: AgentId::new("old"), end: OperationEnd::Inconclusive });
        assert_eq!(bed.heard().await, ["a 10000 on pve1"]);
    });
}

#[test]
fn a_clone_in_doubt_leaves_its_place_keeps_others_back_and_gives_nobody_elses_place_back() {
    on_paused_system(|| async {
        let (old, mut lanes) = (AgentId::new("old"), ConcurrencyLimits::default());
        let track = Footprint::of(&template("c/t", &[]), NodeName::new("pve1"));
        lanes.adopt(old.clone(), track, Moment(0));
        let bed = Bed::with_lanes(|spec| spec.operations_per_node = 1, lanes);
        let now = bed.world.now();
        bed.doubts.playing::<role::Agent>().doubt(
            &old,
            Spot::Cluster(ClusterId::new(CLUSTER)),
            "no answer",
            now,
            0,
        );
        bed.cluster.do_send(LaneFree { agent: old.clone(), end: OperationEnd::InDoubt });
        bed.ask("a", |_| ());
        bed.ask("b", |_| ());
        assert!(bed.heard().await.is_empty(), "its doubt stands, though its place is free");
        pass(seconds(10)).await;
        assert_eq!(bed.heard().await, ["a 10000 on pve1"], "one is tried in its place");
        bed.cluster.do_send(LaneFree { agent: old, end: OperationEnd::Inconclusive });
        assert!(bed.heard().await.is_empty(), "the place is `a`'s");
        bed.cluster.do_send(LaneFree { agent: AgentId::new("a"), end: OperationEnd::Done });
        assert_eq!(bed.heard().await, ["b 10001 on pve1"]);
    });
}

// Invariant: who leaves a drained node before it has a guest takes nothing along: its place in the
// lanes and its id are another's.

impl Bed {
    /// From here on templates are found on this node, once what was found before is too old.
    async fn found_on(&self, node: &str) {
        self.world.with(|script| script.locate = Some(Ok(NodeName::new(node))));
        pass(seconds(61)).await;
    }

    fn ask_anywhere(&self, agent: &'static str) {
        self.ask(agent, |spec| spec.node = None);
    }

    fn drain(&self, node: &str) {
        self.cluster.do_send(ClusterCommand::NodeClosed(NodeName::new(node)));
    }
}

#[test]
fn an_agent_that_waits_for_a_lane_of_a_drained_node_waits_for_it_no_more() {
    on_paused_system(|| async {
        let bed = Bed::new(|spec| spec.operations_per_node = 1);
        bed.found_on("pve1").await;
        bed.ask_anywhere("a");
        assert_eq!(bed.heard().await, ["a 10000 on pve1"]);
        bed.ask_anywhere("b");
        assert!(bed.heard().await.is_empty(), "there is one lane");
        bed.found_on("pve2").await;
        bed.drain("pve1");
        assert_eq!(bed.heard().await, ["b 10001 on pve2"]);
    });
}

#[test]
fn an_agent_that_has_a_lane_of_a_drained_node_gives_it_back_with_its_id() {
    on_paused_system(|| async {
        let bed = Bed::new(|spec| spec.operations_per_node = 1);
        bed.found_on("pve1").await;
        bed.world.with(|script| script.ids.insert(10_000, IdStatus::Unknown));
        bed.ask_anywhere("a");
        assert_eq!(bed.heard().await, ["cloud c is silent"], "it has a lane and no id");
        bed.found_on("pve2").await;
        bed.heard().await;
        bed.drain("pve1");
        bed.world.with(|script| script.ids.clear());
        assert_eq!(bed.heard().await, ["a 10000 on pve2"]);
        bed.found_on("pve1").await;
        bed.ask_anywhere("b");
        assert_eq!(bed.heard().await, ["b 10001 on pve1"], "its lane there is free");
    });
}

// Invariant: templates are located once for all who ask.

#[test]
fn a_template_is_located_once_and_a_failure_is_asked_to_all_who_wait() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.world.with(|script| script.locate = Some(Ok(NodeName::new("pve7"))));
        for agent in ["a", "b"] {
            bed.ask(agent, |spec| spec.node = None);
        }
        let mut heard = bed.heard().await;
        heard.sort();
        assert_eq!(heard, ["a 10000 on pve7", "b 10001 on pve7"]);
        assert_eq!(bed.world.calls("locate"), 1);
        let text = "template 9000 is on no node";
        let fault = Fault::new(FaultKind::Broken, Culprit::Template, text);
        bed.world.with(|script| script.locate = Some(Err(fault)));
        pass(seconds(61)).await;
        bed.ask("d", |spec| spec.node = None);
        assert_eq!(bed.heard().await, ["d refused: template 9000 is on no node"]);
        assert_eq!(bed.world.calls("locate"), 2);
    });
}

// Invariant: what must be known after a start is written although the journal fails for a while.

#[test]
fn an_id_burned_while_the_disk_is_full_is_burned_after_a_restart_too() {
    on_paused_system(|| async {
        let bed = Bed::new(|_| ());
        bed.world.with(|script| script.journal_broken = true);
        bed.cluster.do_send(IdBack { vmid: VmId(10_000), burned: true });
        pass(seconds(60)).await;
        // The actor that wanted it written is gone by then.
        bed.cluster.do_send(ClusterCommand::Leave);
        pass(LINGER + seconds(1)).await;
        bed.world.with(|script| script.journal_broken = false);
        pass(seconds(30)).await;
        let (journal_state, now) =
            (bed.world.with(|script| script.journal_state.clone()), bed.world.now());
        let burned = journal_state.burned.values().flat_map(BTreeMap::keys).copied();
        let mut ids = Allocator::restore([], &BTreeMap::new(), burned, now);
        let wanted = Event::Wanted { floor: VmId(10_000), ceiling: VmId(20_000) };
        let proposed = Effect::Propose { vmid: VmId(10_001), listed: false };
        assert_eq!(ids.effects_of(wanted, now, 0), [proposed]);
    });
}
