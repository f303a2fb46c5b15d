//! Where agents are put: by what is free, what must stay free, what nodes are for, and what operators
//! say of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::{HerdCommand, NodeOrdered, NodesSeen, Refusal};
use drover_model::id::{LeaseId, NodeName};
use drover_model::phase::{AgentPhase, LeasePhase, NodeOrder, NodeStatus};
use drover_model::placement::report::WhyReport;
use drover_model::record::Reason;
use drover_model::status::AgentStatus;
use pve_sim::spec::{GuestSpec, StorageSpec};
use pve_sim::world::NodeOverrides;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const GIB: u64 = 1 << 30;
/// Each node has a template of its own, and any will do.
const ANYWHERE: &str = "templateName: debian-12, nodes: [\"*\"]";

fn node(agent: &AgentStatus) -> &str {
    agent.node.as_ref().unwrap().as_str()
}

/// Agents that have a place, by node.
pub fn spread(world: &World) -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    for agent in world.view().agents() {
        if let Some(node) = &agent.node {
            *all.entry(node.to_string()).or_default() += 1;
        }
    }
    all
}

async fn provision(world: &World, count: u32) {
    let template = "linux".to_owned();
    world
        .command(|reply| HerdCommand::Provision { template, count, trial: false, reply })
        .await
        .unwrap();
}

async fn order(world: &World, node: &str, order: NodeOrder) -> Result<NodeOrdered, Refusal> {
    let node = NodeName::new(node);
    let by = "token:ops".to_owned();
    world.command(|reply| HerdCommand::OrderNode { node, cloud: None, order, by, reply }).await
}

fn state(seen: &NodesSeen, name: &str) -> NodeStatus {
    let one = seen.nodes.iter().find(|one| one.node.as_str() == name).unwrap();
    one.state.clone()
}

async fn nodes(world: &World) -> NodesSeen {
    world.command(|reply| HerdCommand::Nodes { reply }).await
}

async fn why(world: &World, template: &str) -> WhyReport {
    let template = template.to_owned();
    world.command(|reply| HerdCommand::Why { template, reply }).await.unwrap()
}

pub async fn end(world: World, leases: &[LeaseId]) {
    for lease in leases {
        world.release(lease).await;
    }
    world.end().await;
}

// Invariant: what was promised counts from the decision on, so that a burst is spread.

#[tokio::test(start_paused = true)]
async fn a_burst_of_forty_is_spread_over_all_nodes() {
    let world = World::started(Setup::linux(ANYWHERE)).await;
    provision(&world, 40).await;
    world
        .until("all have a place", |view| {
            view.agents().iter().filter(|agent| agent.node.is_some()).count() == 40
        })
        .await;
    let all = spread(&world);
    assert!(all.len() == 3 && all.values().all(|count| (12..=15).contains(count)), "{all:?}");
    end(world, &[]).await;
}

/// Three nodes with room for seven agents each, and a herd that wants more.
fn small(keys: &str) -> Setup {
    let mut setup = Setup::linux(&format!("{ANYWHERE}, {keys}"));
    for node in &mut setup.cluster.nodes {
        node.memory_bytes = 16 * GIB;
    }
    setup
}

#[tokio::test(start_paused = true)]
async fn no_node_is_ever_promised_more_than_it_has_crash_or_not() {
    let mut world = World::started(small("instanceMin: 30")).await;
    world.until_state(AgentPhase::Cloning).await;
    world.pass(Duration::from_secs(2)).await;
    world.restart(Duration::from_secs(5)).await;
    world.until_state(AgentPhase::Booting).await;
    world.restart(MINUTE).await;
    world
        .until("as many as fit are ready", |view| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 21
        })
        .await;
    for _ in 0..20 {
        let all = spread(&world);
        assert!(all.values().all(|count| *count <= 7), "{all:?}");
        world.pass(Duration::from_secs(20)).await;
    }
    let paused = world.view().templates()[0].paused.clone().unwrap_or_default();
    assert!(paused.contains("MiB of its memory are free, 2048 MiB are needed"), "{paused}");
    let seen = nodes(&world).await;
    let free: Vec<(i64, u64, usize)> =
        seen.nodes.iter().map(|one| (one.free_mb, one.own_mb, one.agents)).collect();
    assert_eq!(free, [(1024, 14_336, 7); 3]);
    let report = why(&world, "linux").await;
    assert!(report.verdict.is_err());
    assert!(report.nodes.iter().all(|(_, why)| why.is_some()), "{report:?}");
    end(world, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn headroom_stays_free_and_minimums_of_a_template_too() {
    let setup = small("instanceMin: 30").rack("headroom: {memoryPercent: 50}");
    let world = World::started(setup).await;
    world.pass(10 * MINUTE).await;
    // Half of 16 GiB less the node's own one leave room for three.
    assert_eq!(spread(&world).into_values().collect::<Vec<_>>(), [3, 3, 3]);
    end(world, &[]).await;
    let world = World::started(small("instanceMin: 30, minFreeMemoryMb: 12288")).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(spread(&world).into_values().collect::<Vec<_>>(), [1, 1, 1]);
    end(world, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn what_others_use_is_left_to_them() {
    let world = World::started(Setup::linux(ANYWHERE)).await;
    let busy = |memory_bytes| NodeOverrides { memory_bytes, cpus: 2.0, maintenance: false };
    world.side.set_overrides("pve1", busy(50 * GIB));
    world.side.set_overrides("pve3", busy(20 * GIB));
    world.pass(MINUTE).await;
    provision(&world, 20).await;
    world.pass(5 * MINUTE).await;
    let all = spread(&world);
    assert!(all["pve2"] > all["pve3"] && !all.contains_key("pve1"), "{all:?}");
    end(world, &[]).await;
}

// Invariant: what is shown of a node adds up at every moment, and what others have does not change
// by agents that come and go.

#[tokio::test(start_paused = true)]
async fn others_are_shown_the_same_while_agents_come_and_go() {
    let setup = Setup::linux(&format!("{ANYWHERE}, memoryMb: 4096")).rack("headroom: {}");
    let world = World::started(setup).await;
    world.pass(MINUTE).await;
    let before = nodes(&world).await.nodes;
    provision(&world, 6).await;
    let mut wrong = Vec::new();
    for second in 0..240 {
        for (one, was) in nodes(&world).await.nodes.iter().zip(&before) {
            let sum = i64::try_from(one.others_mb + one.own_mb).unwrap() + one.free_mb;
            let others =
                (one.guests, one.others_mb, one.cpus, one.free_cpus + 2000 * one.agents as i64);
            let same = (was.guests, was.others_mb, was.cpus, was.free_cpus);
            if sum != i64::try_from(one.memory_mb).unwrap() || others != same {
                wrong.push(format!("{second} s: {one:?}"));
            }
        }
        if second == 120 {
            world.reap(true).await;
        }
        world.pass(Duration::from_secs(1)).await;
    }
    assert!(wrong.is_empty(), "{} before: {before:?}\n{}", wrong.len(), wrong.join("\n"));
    end(world, &[]).await;
}

// Invariant: each strategy puts agents where it says.

#[tokio::test(start_paused = true)]
async fn pack_fills_a_node_before_the_next_and_fixed_goes_in_order() {
    let world = World::started(small("placement: PACK, instanceMin: 9")).await;
    world.pass(5 * MINUTE).await;
    let mut all: Vec<usize> = spread(&world).into_values().collect();
    all.sort_unstable();
    assert_eq!(all, [2, 7]);
    end(world, &[]).await;
    let mut setup = small("placement: FIXED, instanceMin: 9");
    setup.templates[0].1 = setup.templates[0].1.replace("[\"*\"]", "[pve3, pve2, pve1]");
    let world = World::started(setup).await;
    world.pass(5 * MINUTE).await;
    let all: Vec<(String, usize)> = spread(&world).into_iter().collect();
    assert_eq!(all, [("pve2".to_owned(), 2), ("pve3".to_owned(), 7)]);
    end(world, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn agents_go_to_a_preferred_node_while_it_has_room_then_elsewhere() {
    let world = World::started(small("preferredNodes: [pve3], instanceMin: 7")).await;
    world.pass(5 * MINUTE).await;
    let all: Vec<(String, usize)> = spread(&world).into_iter().collect();
    assert_eq!(all, [("pve3".to_owned(), 7)]);
    let report = why(&world, "linux").await;
    let verdict = report.verdict.unwrap();
    assert!(verdict.contains("none of preferredNodes takes it: pve3; passed over: "), "{verdict}");
    provision(&world, 2).await;
    world.pass(5 * MINUTE).await;
    let all = spread(&world);
    assert_eq!((all["pve3"], all.values().sum::<usize>()), (7, 9), "{all:?}");
    end(world, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_preferred_node_that_does_not_reach_the_template_keeps_nobody_waiting() {
    let world = World::started(Setup::linux("preferredNodes: [pve2]")).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(node(&agent), "pve1", "its template is on the node's own storage");
    let nodes = why(&world, "linux").await.nodes;
    assert_eq!(nodes, [(NodeName::new("pve1"), None)]);
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn agents_that_must_be_apart_are_one_on_a_node() {
    let keys =
        format!("{ANYWHERE}, antiAffinity: [{{key: linux, operator: Exists}}], instanceMin: 5");
    let world = World::started(Setup::linux(&keys)).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(spread(&world).into_values().collect::<Vec<_>>(), [1, 1, 1]);
    let report = why(&world, "linux").await;
    let reported: Vec<&str> = report.nodes.iter().filter_map(|(_, why)| why.as_deref()).collect();
    assert!(
        reported.len() == 3 && reported[0].ends_with("a guest on it has linux (`antiAffinity`)")
    );
    end(world, &[]).await;
}

/// A running guest of others with the tag `vm.type.cache`.
fn stranger(setup: &Setup, node: &str) -> GuestSpec {
    let template = &setup.cluster.guests[0];
    let mut config = template.config.clone();
    config.insert("tags".into(), "vm.type.cache".into());
    config.insert("name".into(), "cache".into());
    config.retain(|key, _| key != "scsi0" && key != "ide2");
    let node = node.into();
    GuestSpec { vmid: 300, node, template: false, running: true, config, ..template.clone() }
}

#[tokio::test(start_paused = true)]
async fn only_nodes_with_the_label_and_guests_with_the_tag_are_joined() {
    let keys = "templateName: debian-12, nodeSelector: [gpu]";
    let rack = "nodeLabels: {pve2: [gpu, ssd], pve3: [ssd]}, headroom: {}";
    let mut setup = Setup::linux(keys)
        .rack(rack)
        .template("beside", &format!("{ANYWHERE}, affinity: [{{key: vm.type, values: [cache]}}]"));
    let cache = stranger(&setup, "pve3");
    setup.cluster.guests.push(cache);
    let world = World::started(setup).await;
    let (first, one) = world.leased("linux").await;
    let (second, other) = world.leased("linux").await;
    assert_eq!([node(&one), node(&other)], ["pve2", "pve2"]);
    let (third, beside) = world.leased("beside").await;
    assert_eq!(node(&beside), "pve3");
    end(world, &[first, second, third]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_has_no_more_guests_than_the_template_allows_crash_or_not() {
    let mut setup = Setup::linux(&format!("{ANYWHERE}, maxVmsPerNode: 3, instanceMin: 12"));
    let cache = stranger(&setup, "pve3");
    setup.cluster.guests.push(cache);
    let mut world = World::started(setup).await;
    world.until_state(AgentPhase::Cloning).await;
    world.restart(Duration::from_secs(5)).await;
    world.pass(10 * MINUTE).await;
    let all: Vec<(String, usize)> = spread(&world).into_iter().collect();
    let wanted = [("pve1", 3), ("pve2", 3), ("pve3", 2)];
    assert_eq!(all, wanted.map(|(node, count)| (node.to_owned(), count)));
    let report = why(&world, "linux").await;
    let full = |why: &Option<String>| {
        why.as_deref() == Some("3 guests are on it, and 3 may be (`maxVmsPerNode`)")
    };
    assert!(report.nodes.iter().all(|(_, why)| full(why)), "{report:?}");
    end(world, &[]).await;
}

// Invariant: on a drained node nothing is started, idle agents go, busy ones finish; across restarts.

#[tokio::test(start_paused = true)]
async fn a_drained_node_empties_itself_and_stays_so_until_it_is_used_again() {
    let mut world = World::started(Setup::linux(&format!("{ANYWHERE}, instanceMin: 3"))).await;
    world
        .until("three are ready", |view| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 3
        })
        .await;
    assert_eq!(spread(&world).len(), 3);
    let (lease, busy) = world.leased("linux").await;
    let home = node(&busy).to_owned();
    let other = if home == "pve1" { "pve2" } else { "pve1" };
    assert!(matches!(order(&world, "pve9", NodeOrder::Drain).await, Err(Refusal::Unknown(_))));
    let done = order(&world, &home, NodeOrder::Drain).await.unwrap();
    assert_eq!((done.order, done.agents), (NodeOrder::Drain, 1));
    order(&world, other, NodeOrder::Drain).await.unwrap();
    world.pass(5 * MINUTE).await;
    let left = spread(&world);
    assert_eq!(left.get(other), None, "its idle agent is gone");
    assert_eq!(left[&home], 1, "its busy one is not");
    assert!(world.view().gone_agents().iter().all(|gone| gone.reason == Reason::NodeDrained));
    world.restart(MINUTE).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    world.release(&lease).await;
    world.until("it goes", |view| view.agent(&busy.agent).is_none()).await;
    world.pass(5 * MINUTE).await;
    let third = ["pve1", "pve2", "pve3"].into_iter().find(|one| *one != home && *one != other);
    assert_eq!(spread(&world).into_keys().collect::<Vec<_>>(), [third.unwrap()]);
    let seen = nodes(&world).await;
    let states = (state(&seen, &home), state(&seen, third.unwrap()));
    assert_eq!(states, (NodeStatus::Drained, NodeStatus::Online));
    assert_eq!(order(&world, &home, NodeOrder::Use).await.unwrap().order, NodeOrder::Use);
    provision(&world, 4).await;
    world.pass(2 * MINUTE).await;
    let all = spread(&world);
    assert!(all.contains_key(&home) && !all.contains_key(other), "{all:?}");
    end(world, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn agents_that_wait_for_a_lane_of_a_drained_node_go_to_another_one() {
    let setup = Setup::linux(ANYWHERE).rack("clonesPerStorage: 1, operationsPerNode: 1");
    let world = World::started(setup).await;
    provision(&world, 12).await;
    world.pass(Duration::from_secs(1)).await;
    order(&world, "pve1", NodeOrder::Drain).await.unwrap();
    world.pass(20 * MINUTE).await;
    let all = spread(&world);
    assert!(!all.contains_key("pve1") && all.len() == 2, "{all:?}");
    assert!(world.notes.intended() <= 13, "at most one was under way: {}", world.notes.intended());
    end(world, &[]).await;
}

// Invariant: on a cordoned node nothing is started, and agents there stay and take leases; across
// restarts, and until an operator drains it or lets it be used again.

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_keeps_its_agents_takes_nothing_new_and_can_be_drained_afterwards() {
    let mut world = World::started(Setup::linux(&format!("{ANYWHERE}, instanceMin: 3"))).await;
    let ready = |view: &drover_server::view::View| {
        view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 3
    };
    world.until("three are ready", ready).await;
    assert_eq!(spread(&world).len(), 3);
    for name in ["pve1", "pve2", "pve3"] {
        let done = order(&world, name, NodeOrder::Cordon).await.unwrap();
        assert_eq!((done.order, done.agents), (NodeOrder::Cordon, 1));
    }
    world.pass(5 * MINUTE).await;
    world.restart(MINUTE).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.view().gone_agents().len(), 0, "idle agents stay");
    assert_eq!(state(&nodes(&world).await, "pve1"), NodeStatus::Cordoned);
    let before = world.notes.intended();
    let (lease, busy) = world.leased("linux").await;
    provision(&world, 2).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(world.notes.intended(), before, "nothing starts while all nodes are cordoned");
    let reasons = why(&world, "linux").await.nodes;
    let cordoned = "it is cordoned by an operator: `drover uncordon pve1` lets it be used again";
    let first = reasons.into_iter().find(|(node, _)| node.as_str() == "pve1").unwrap();
    assert_eq!(first.1.as_deref(), Some(cordoned));
    let home = node(&busy).to_owned();
    let idle = ["pve1", "pve2", "pve3"].into_iter().find(|one| *one != home).unwrap();
    order(&world, idle, NodeOrder::Drain).await.unwrap();
    world.pass(5 * MINUTE).await;
    let left = spread(&world);
    assert_eq!((left.get(idle), left.len()), (None, 2), "the drained node is empty: {left:?}");
    assert_eq!(state(&nodes(&world).await, idle), NodeStatus::Drained);
    order(&world, &home, NodeOrder::Use).await.unwrap();
    world.release(&lease).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(state(&nodes(&world).await, &home), NodeStatus::Online);
    let all = spread(&world);
    assert!(all[&home] >= 2 && !all.contains_key(idle), "{all:?}");
    end(world, &[]).await;
}

// Invariant: a pause for a cordon ends with the cordon, and no text names the order that was given.

/// All that drover says of its template and of a lease that waits for it.
async fn said(world: &World, lease: &LeaseId) -> String {
    let report = why(world, "linux").await;
    let lease = world.view().lease(lease).unwrap().detail.clone();
    let paused = world.view().templates()[0].paused.clone();
    format!("{report:?}\n{lease}\n{paused:?}")
}

async fn waits_for_a_node(keys: &str, closed: NodeOrder) {
    let world = World::started(Setup::linux(keys)).await;
    // An order needs the names of the nodes.
    world.pass(MINUTE).await;
    nodes(&world).await;
    for name in ["pve1", "pve2", "pve3"] {
        order(&world, name, closed).await.unwrap();
    }
    let lease = world.lease("linux").await;
    world.pass(5 * MINUTE).await;
    let uncordon = "`drover uncordon pve1` lets it be used again";
    let before = said(&world, &lease).await;
    assert!(before.matches(uncordon).count() >= 3, "each of the three names it: {before}");
    let (agents, short) = world.provision("linux", 1).await;
    let short = short.unwrap_or_default();
    assert!(agents.is_empty() && short.contains(uncordon), "{agents:?} {short}");
    order(&world, "pve1", NodeOrder::Use).await.unwrap();
    world.pass(Duration::from_millis(1500)).await;
    let after = said(&world, &lease).await;
    assert!(!after.contains("uncordon pve1"), "it was given already: {after}");
    let agents = world.view().agents();
    let placed = agents.iter().filter(|agent| agent.node.is_some()).count();
    assert_eq!(placed, 1, "{agents:?}\n{after}");
    world.ready(&lease).await;
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_cordoned_node_is_tried_as_soon_as_it_is_used_again() {
    waits_for_a_node("", NodeOrder::Cordon).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_drained_node_is_tried_as_soon_as_it_is_used_again() {
    waits_for_a_node(ANYWHERE, NodeOrder::Drain).await;
}

// Invariant: what cannot start anywhere is not tried again and again: a look at the cluster says when it can.

#[tokio::test(start_paused = true)]
async fn hours_of_a_cordon_with_a_waiting_lease_begin_one_agent_at_most() {
    let mut world = World::started(Setup::linux(ANYWHERE)).await;
    world.pass(MINUTE).await;
    nodes(&world).await;
    for name in ["pve1", "pve2", "pve3"] {
        order(&world, name, NodeOrder::Cordon).await.unwrap();
    }
    let lease = world.lease("linux").await;
    world.pass(60 * MINUTE).await;
    let gone = |world: &World| -> Vec<String> {
        world.view().gone_agents().iter().map(|one| one.reason.to_string()).collect()
    };
    assert!(gone(&world).len() <= 1, "{:#?}", gone(&world));
    world.restart(MINUTE).await;
    world.pass(60 * MINUTE).await;
    assert!(gone(&world).len() <= 1, "{:#?}", gone(&world));
    let detail = world.view().lease(&lease).unwrap().detail.clone();
    assert!(detail.contains("`drover uncordon pve1` lets it be used again"), "{detail}");
    order(&world, "pve2", NodeOrder::Use).await.unwrap();
    world.pass(Duration::from_millis(1500)).await;
    assert_eq!(world.view().agents().iter().filter(|agent| agent.node.is_some()).count(), 1);
    world.ready(&lease).await;
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn a_template_that_idles_says_nothing_of_a_cordon_that_was_taken_back() {
    let world = World::started(Setup::linux(ANYWHERE)).await;
    world.pass(MINUTE).await;
    nodes(&world).await;
    order(&world, "pve3", NodeOrder::Cordon).await.unwrap();
    let lease = world.lease("linux").await;
    world.ready(&lease).await;
    let source = || world.view().templates()[0].source.clone().unwrap_or_default();
    let before = source();
    assert!(before.contains("uncordon pve3"), "{before}");
    order(&world, "pve3", NodeOrder::Use).await.unwrap();
    world.pass(Duration::from_secs(2)).await;
    let after = source();
    assert!(!after.is_empty() && !after.contains("cordon"), "{after}");
    end(world, &[lease]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_in_maintenance_takes_nothing_new() {
    let world = World::started(Setup::linux(ANYWHERE)).await;
    world
        .side
        .set_overrides("pve2", NodeOverrides { maintenance: true, ..NodeOverrides::default() });
    provision(&world, 9).await;
    world.pass(5 * MINUTE).await;
    let all = spread(&world);
    assert!(!all.contains_key("pve2") && all.len() == 2, "{all:?}");
    let report = why(&world, "rack/linux").await;
    let reported = report.nodes.iter().find(|(name, _)| name.as_str() == "pve2").unwrap();
    assert_eq!(
        reported.1.as_deref(),
        Some(
            "it is in maintenance: once the work there is over, run `ha-manager \
             crm-command node-maintenance disable pve2`"
        )
    );
    end(world, &[]).await;
}

// Invariant: a name means one template on each node, and several are reported with their ids.

#[tokio::test(start_paused = true)]
async fn two_templates_of_one_name_on_a_node_are_refused_there_and_named() {
    let mut setup = Setup::linux(ANYWHERE);
    setup.cluster.guests[1].node = "pve1".into();
    let world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    assert_eq!(node(&agent), "pve3");
    let report = why(&world, "linux").await;
    let reported = report.nodes[0].1.clone().unwrap();
    assert!(
        reported.contains("several templates on node `pve1` are called `debian-12`: 9000, 9001")
    );
    assert!(report.nodes[1].1.as_ref().unwrap().contains("no template is called `debian-12`"));
    end(world, &[lease]).await;
}

// Invariant: a full clone goes to the storage with the most free space.

#[tokio::test(start_paused = true)]
async fn full_clones_go_where_the_most_space_is_free() {
    let keys = "cloneStrategy: FULL, diskSizeGb: 20, storageClass: fast";
    let mut setup = Setup::linux(keys).rack("storageClasses: {fast: [nvme1, nvme2]}");
    for name in ["nvme1", "nvme2"] {
        let like = setup.cluster.storages[2].clone();
        let size_bytes = 100 * GIB;
        setup.cluster.storages.push(StorageSpec { name: name.into(), size_bytes, ..like });
    }
    let mut world = World::new(setup);
    world.side.add_volume("pve1", "nvme1:iso/big.iso", 50 * GIB);
    world.keep_ground();
    world.start().await;
    provision(&world, 2).await;
    world
        .until("both live", |view| {
            view.agents().iter().filter(|a| a.phase == AgentPhase::Ready).count() == 2
        })
        .await;
    let agents = world.journal_state().agents;
    let mut storages: Vec<String> =
        agents.values().filter_map(|entry| entry.spec.target_storage.clone()).collect();
    storages.sort();
    assert_eq!(storages, ["nvme2", "nvme2"]);
    end(world, &[]).await;
}
