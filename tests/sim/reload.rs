//! Configurations that change under a running herd.

use std::time::Duration;

use drover_actors::message::Refusal;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::Reason;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

// Invariant: a lease outlives its template and its cloud, and then its agent goes.

#[tokio::test(start_paused = true)]
async fn a_template_removed_under_a_lease_goes_after_it() {
    let setup = Setup::linux("idleMin: 1").template("other", "templateVmId: 9001");
    let mut world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    world.until_state(AgentPhase::Ready).await;
    world.setup.templates.remove(0);
    world.reload();
    world.until("only the leased one is left", |view| view.agents().len() == 1).await;
    world.pass(30 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    let refused = world.try_lease("linux", MINUTE).await;
    assert!(matches!(refused, Err(Refusal::Unknown(_) | Refusal::Conflict(_))), "{refused:?}");
    world.release(&lease).await;
    world.until("the agent is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.until("the template is gone", |view| view.templates().len() == 1).await;
    let gone = world.view().gone_agents();
    assert!(gone.iter().all(|gone| gone.reason == Reason::Unconfigured), "{gone:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_removed_drains_and_the_other_goes_on() {
    let mut setup = Setup::linux("").template("edge", "cloudIds: [spare], templateVmId: 9001");
    setup.clouds.push(("spare", "startVmId: 20000".to_owned()));
    let mut world = World::started(setup).await;
    let (stays, _) = world.leased("linux").await;
    let (lease, agent) = world.leased("edge").await;
    assert!(agent.vmid.unwrap().0 >= 20000);
    world.setup.templates.pop();
    world.setup.clouds.pop();
    world.reload();
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    assert_eq!(world.view().clouds().len(), 2, "it has an agent yet");
    world.release(&lease).await;
    world.until("the cloud is gone", |view| view.clouds().len() == 1).await;
    assert_eq!(world.view().lease(&stays).unwrap().state, LeasePhase::Ready);
    world.release(&stays).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_after_a_removal_still_retires_what_was_removed() {
    let setup = Setup::linux("instanceMin: 2").template("other", "templateVmId: 9001");
    let mut world = World::started(setup).await;
    world
        .until("two are ready", |view| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 2
        })
        .await;
    world.crash();
    world.setup.templates.remove(0);
    world.start().await;
    world.until("they are gone", |view| view.agents().is_empty()).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_put_back_after_a_crash_keeps_its_minimum_again() {
    let setup = Setup::linux("").template("other", "templateVmId: 9001, instanceMin: 1");
    let mut world = World::started(setup).await;
    let (lease, agent) = world.leased("other").await;
    world.crash();
    let removed = world.setup.templates.pop().unwrap();
    world.start().await;
    world.setup.templates.push(removed);
    world.reload();
    world.release(&lease).await;
    world.until("the old one is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.until_state(AgentPhase::Ready).await;
    world.end().await;
}

// Invariant: what lives keeps what it was born with.

#[tokio::test(start_paused = true)]
async fn a_changed_spec_reaches_new_agents_only() {
    let mut world = World::started(Setup::linux("cores: 2")).await;
    let (old, first) = world.leased("linux").await;
    world.setup.templates[0].1 = "cores: 4".to_owned();
    world.reload();
    let (new, second) = world.leased("linux").await;
    let cores = |agent: &drover_model::status::AgentStatus| {
        world.side.config(agent.vmid.unwrap().0).unwrap()["cores"].clone()
    };
    assert_eq!((cores(&first), cores(&second)), ("2".into(), "4".into()));
    assert_eq!(world.view().lease(&old).unwrap().state, LeasePhase::Ready);
    for lease in [&old, &new] {
        world.release(lease).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_reload_without_a_change_moves_nobody() {
    let mut world = World::started(Setup::linux("instanceMin: 2")).await;
    world
        .until("two are ready", |view| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 2
        })
        .await;
    let before = world.view().agents();
    world.wire.take();
    world.reload();
    world.pass(20 * MINUTE).await;
    assert_eq!(world.view().agents(), before);
    let calls = world.wire.take();
    assert!(!calls.iter().any(|call| call.contains("/qemu/")), "{calls:?}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cap_that_shrinks_cuts_nobody_off_and_holds_from_then_on() {
    let mut world = World::started(Setup::linux("instanceCap: 4, maxTotalUses: 1")).await;
    let mut leases = Vec::new();
    for _ in 0..8 {
        leases.push(world.lease("linux").await);
    }
    for lease in &leases[..4] {
        world.ready(lease).await;
    }
    world.notes.allow_slack();
    world.setup.templates[0].1 = "instanceCap: 2, maxTotalUses: 1".to_owned();
    world.reload();
    world.pass(MINUTE).await;
    for lease in &leases[..4] {
        assert_eq!(world.view().lease(lease).unwrap().state, LeasePhase::Ready);
        world.release(lease).await;
    }
    for lease in &leases[4..] {
        world.ready(lease).await;
        assert!(world.view().agents().len() <= 2);
        world.release(lease).await;
    }
    world.end().await;
}
