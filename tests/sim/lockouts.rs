//! Guests in use that let drover in no more: their leases go on, over restarts too, and their ends need
//! no login.

use std::time::Duration;

use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::record::Reason;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const AWAY: Duration = Duration::from_secs(30);

fn breaker(world: &World) -> BreakerPhase {
    world.view().templates()[0].breaker
}

// Invariant: nobody loses a machine in use because drover cannot log in to it.

#[tokio::test(start_paused = true)]
async fn a_lease_goes_on_while_its_guest_is_shut_over_restarts_and_works_again_after_it() {
    let mut world = World::started(Setup::linux("numExecutors: 2")).await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    world.shell.shut(vmid, 45 * MINUTE);
    for _ in 0..3 {
        world.restart(AWAY).await;
        let refused = |view: &drover_server::view::View| {
            let seen = view.agent(&agent.agent);
            seen.is_some_and(|seen| seen.detail.starts_with("SSH login refused since "))
        };
        world.until("the refusal is reported", refused).await;
        world.pass(10 * MINUTE).await;
        assert_eq!(world.ready(&lease).await.agent, agent.agent);
    }
    let open = |view: &drover_server::view::View| {
        view.agent(&agent.agent).is_some_and(|seen| seen.detail.is_empty())
    };
    world.until("the guest lets drover in", open).await;
    world.release(&lease).await;
    let free = world.until_state(AgentPhase::Ready).await;
    assert_eq!(free.agent, agent.agent);
    assert!(world.shell.admitted(vmid).is_empty());
    assert_eq!(breaker(&world), BreakerPhase::Closed);
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_on_a_shut_guest_takes_it_along_and_costs_no_other_lease_its_machine() {
    let mut world = World::started(Setup::linux("numExecutors: 2, instanceCap: 1")).await;
    let (first, agent) = world.leased("linux").await;
    let (second, _) = world.leased("linux").await;
    world.shell.shut(agent.vmid.unwrap().0, 3 * HOUR);
    world.restart(AWAY).await;
    world.release(&first).await;
    world.pass(20 * MINUTE).await;
    assert_eq!(world.ready(&second).await.agent, agent.agent);
    assert_eq!(world.view().agent(&agent.agent).unwrap().phase, AgentPhase::Draining);
    world.release(&second).await;
    world.until("it is gone", |view| view.agent(&agent.agent).is_none()).await;
    assert_eq!(breaker(&world), BreakerPhase::Closed, "its user shut it");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_on_a_shut_guest_ends_at_its_deadline() {
    let mut world = World::started(Setup::linux("")).await;
    let (lease, agent) = world.leased("linux").await;
    world.shell.shut(agent.vmid.unwrap().0, 24 * HOUR);
    world.restart(AWAY).await;
    world
        .until("it ran out", |view| {
            view.lease(&lease).is_some_and(|l| l.state == LeasePhase::Ended)
        })
        .await;
    world.until("it is gone", |view| view.agent(&agent.agent).is_none()).await;
    assert_eq!(world.view().gone_agents()[0].reason, Reason::LeaseExpired);
    world.end().await;
}
