//! A cloud that left the configuration while its agents are in the journal: after a start there is
//! no way in by its name, and their guests are still there.

use std::sync::Arc;
use std::time::Duration;

use drover_model::id::LeaseId;
use drover_model::phase::{AgentPhase, CloudHealth, LeasePhase};
use drover_model::record::Body;
use drover_model::status::AgentStatus;

use super::world::World;
use super::world::setup::Setup;
use super::world::tally::Hold;
use super::world::tap::Hit;

const MINUTE: Duration = Duration::from_secs(60);

/// A cloud whose endpoint is nowhere, with a template.
const ELSEWHERE: (&str, &str) = ("elsewhere", "apiUrls: [\"https://elsewhere\"]");
/// Another cloud of the same cluster.
const SPARE: (&str, &str) = ("spare", "startVmId: 20000");

/// The service is down, and the only cloud and its template give way to this one.
fn replace(world: &mut World, (cloud, keys): (&'static str, &str)) {
    world.setup.clouds = vec![(cloud, keys.to_owned())];
    world.setup.templates = vec![("other", format!("cloudIds: [{cloud}], templateVmId: 9001"))];
}

/// The cloud and the template stand in the configuration again, beside what took their place.
fn put_back(world: &mut World) {
    world.setup.clouds.push(("rack", String::new()));
    world.setup.templates.push(("linux", String::new()));
    world.reload();
}

/// Its cloud is gone and nobody else knows the way: that is reported, with what to do.
async fn calls_for_its_cloud(world: &World, agent: &AgentStatus) {
    world
        .until("drover says what to do", |view| {
            view.alarms().iter().any(|alarm| {
                alarm.agent == agent.agent && alarm.command.contains("no cloud leads to cluster")
            })
        })
        .await;
    let vmid = agent.vmid.unwrap().0;
    let all = world.view().alarms();
    // The one in its place may have been started before the service went down.
    let reported = all.iter().find(|alarm| alarm.agent == agent.agent).unwrap();
    assert!(reported.command.contains(&vmid.to_string()), "{reported:?}");
}

async fn idle() -> (World, Arc<AgentStatus>) {
    let world = World::started(Setup::linux("idleMin: 1")).await;
    let agent = world.until_state(AgentPhase::Ready).await;
    (world, agent)
}

/// The guest is gone, and the service went down before that was durable.
async fn end_cut_short() -> (World, Arc<AgentStatus>) {
    let (mut world, agent) = idle().await;
    world.tap.watch(|knock| {
        let end = knock.records.iter().any(|body| matches!(body, Body::Gone { .. }));
        if end { Hit::Hold } else { Hit::Pass }
    });
    world.reap(true).await;
    world.until_sprung().await;
    world.crash();
    (world, agent)
}

async fn leased() -> (World, LeaseId, Arc<AgentStatus>) {
    let world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    (world, lease, agent)
}

// Invariant: an agent whose cloud is not configured any more goes by another way into its cluster.

#[tokio::test(start_paused = true)]
async fn an_agent_without_its_cloud_goes_through_another_cloud_of_its_cluster() {
    let (mut world, _) = idle().await;
    world.crash();
    replace(&mut world, SPARE);
    world.start().await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    assert!(world.view().alarms().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_on_an_agent_without_its_cloud_is_kept_and_its_guest_goes_after_it() {
    let (mut world, lease, agent) = leased().await;
    world.crash();
    replace(&mut world, SPARE);
    world.start().await;
    world.ready(&lease).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.ready(&lease).await.agent, agent.agent);
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_in_doubt_without_its_cloud_is_looked_for_through_another() {
    for hold in [Hold::Call, Hold::Answer] {
        let mut world = World::started(Setup::linux("")).await;
        world.wire.hold("POST", "/clone", hold);
        let lease = world.lease("linux").await;
        world.until_sprung().await;
        world.release(&lease).await;
        world.crash();
        replace(&mut world, SPARE);
        world.start().await;
        world.until("the agent is gone", |view| view.agents().is_empty()).await;
        assert_eq!(world.ours(), Vec::<u32>::new());
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_not_durable_is_found_out_through_another_cloud() {
    let (mut world, _) = end_cut_short().await;
    replace(&mut world, SPARE);
    world.start().await;
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

// Invariant: where there is no way in, drover says what to do, and nothing else is needed.

#[tokio::test(start_paused = true)]
async fn an_agent_nobody_can_reach_calls_for_its_cloud_and_goes_when_that_is_back() {
    let (mut world, agent) = idle().await;
    let vmid = agent.vmid.unwrap().0;
    world.crash();
    replace(&mut world, ELSEWHERE);
    world.start().await;
    calls_for_its_cloud(&world, &agent).await;
    world.pass(60 * MINUTE).await;
    assert!(world.guests.running_vmids().contains(&vmid), "nobody reaches it");
    assert_eq!(world.view().alarms().len(), 1);
    put_back(&mut world);
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    assert!(world.view().alarms().is_empty());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_nobody_can_reach_goes_when_another_cloud_of_its_cluster_comes() {
    let (mut world, agent) = idle().await;
    world.crash();
    replace(&mut world, ELSEWHERE);
    world.start().await;
    calls_for_its_cloud(&world, &agent).await;
    world.setup.clouds.push((SPARE.0, SPARE.1.to_owned()));
    world.reload();
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_only_does_not_answer_calls_for_nobody() {
    let (mut world, agent) = idle().await;
    world.setup.clouds.push((SPARE.0, SPARE.1.to_owned()));
    world.reload();
    world
        .until("both are known", |view| {
            view.clouds().iter().filter(|seen| seen.health == CloudHealth::Well).count() == 2
        })
        .await;
    world.crash();
    replace(&mut world, SPARE);
    let nodes = ["pve1", "pve2", "pve3"];
    nodes.iter().for_each(|node| world.side.set_partitioned(node, true));
    world.start().await;
    world.pass(2 * MINUTE).await;
    assert!(world.view().agent(&agent.agent).is_some());
    assert!(world.view().alarms().is_empty(), "the cloud is down, and reports so itself");
    nodes.iter().for_each(|node| world.side.set_partitioned(node, false));
    world.until("the agent is gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_in_doubt_nobody_can_look_for_calls_for_its_cloud() {
    let mut world = World::started(Setup::linux("")).await;
    world.wire.hold("POST", "/clone", Hold::Answer);
    let lease = world.lease("linux").await;
    world.until_sprung().await;
    let agent = world.view().agents().remove(0);
    world.release(&lease).await;
    world.crash();
    replace(&mut world, ELSEWHERE);
    world.start().await;
    calls_for_its_cloud(&world, &agent).await;
    put_back(&mut world);
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_not_durable_calls_for_its_cloud() {
    let (mut world, agent) = end_cut_short().await;
    replace(&mut world, ELSEWHERE);
    world.start().await;
    calls_for_its_cloud(&world, &agent).await;
    put_back(&mut world);
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_on_an_agent_nobody_can_reach_runs_out_in_time() {
    let (mut world, lease, agent) = leased().await;
    world.crash();
    replace(&mut world, ELSEWHERE);
    world.start().await;
    world.pass(50 * MINUTE).await;
    assert_ne!(world.view().lease(&lease).unwrap().state, LeasePhase::Ended, "its holder is at it");
    world.pass(15 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().detail, "expired");
    calls_for_its_cloud(&world, &agent).await;
    put_back(&mut world);
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}
