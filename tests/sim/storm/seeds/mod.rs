//! Everything at once, by chance: calls and tasks that fail, guests that misbehave, locks, power
//! cuts. Nobody promises when a lease is served then; that all are in the end, and that nothing is
//! left, is promised.

use std::time::Duration;

use drover::sim::guests::Quirk;
use drover::sim::world::{CallFault, Faults, HoldFault, TaskFault};
use drover::view::View;
use drover_actors::fact::AgentPicture;
use drover_actors::id::AgentId;
use libtest_mimic::Trial;

use crate::world::World;
use crate::world::setup::Setup;
use crate::{Seeds, on_paused_clock};

fn weather() -> Faults {
    let call = |status, done| CallFault { chance: 0.02, status, done, ..CallFault::default() };
    let reset = |done| CallFault { chance: 0.01, reset: true, done, ..CallFault::default() };
    let task =
        TaskFault { chance: 0.03, error: Some("got timeout".into()), ..TaskFault::default() };
    let death = TaskFault { chance: 0.01, after: 0.3, ..TaskFault::default() };
    let hold = HoldFault {
        node: "pve1".into(),
        storage: Some("local-lvm".into()),
        at: 20.0,
        seconds: 12.0,
        every: 45.0,
        ..HoldFault::default()
    };
    Faults {
        calls: vec![
            call(Some(595), false),
            call(Some(596), true),
            call(Some(599), false),
            call(Some(500), false),
            reset(false),
            reset(true),
        ],
        tasks: vec![task, death],
        holds: vec![hold],
        ..Faults::default()
    }
}

async fn storm(seed: u64) {
    let keys = "instanceMin: 1, instanceCap: 6, maxTotalUses: 2, idleTerminationMinutes: 5";
    let setup = Setup::linux(keys).seed(seed).rack(
        "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 60, \
         orphanCleanupGracePeriodSeconds: 60",
    );
    let mut world = World::started(setup).await;
    world.faults(weather());
    let mut leases = Vec::new();
    for turn in 0..12 {
        for _ in 0..2 {
            leases.push(world.lease("linux").await);
        }
        let quirks = [Quirk::NeverBoots, Quirk::Hangs, Quirk::IgnoresShutdown, Quirk::NoAddress];
        if turn % 3 == 0 {
            world.guests.quirk_next_boot(quirks[turn / 3]);
        }
        let span = 3_000 + (seed * 7_919 + turn as u64 * 104_729) % 60_000;
        world.pass(Duration::from_millis(span)).await;
        for lease in &leases {
            let ready = world.view().lease(lease).is_some_and(|seen| seen.state == "ready");
            if ready {
                world.release(lease).await;
            }
        }
        if turn % 4 == 3 {
            world.restart(Duration::from_secs(span / 2_000)).await;
        }
    }
    world.faults(Faults::default());
    for lease in &leases {
        let over = world.ledger().ended.contains_key(lease);
        if !over {
            world
                .until("the lease is ready or over", |view| {
                    let seen = view.lease(lease);
                    seen.is_some_and(|seen| seen.state == "ready" || seen.state == "ended")
                })
                .await;
            world.release(lease).await;
        }
    }
    // What was half made or half destroyed when its task died, and volumes that could not be freed
    // under somebody's lock, are an administrator's matter.
    let called =
        |view: &View, agent: &AgentId| view.alarms().iter().any(|alarm| alarm.agent == *agent);
    world
        .until("all is calm", |view| {
            let calm = |seen: &AgentPicture| seen.state == "Ready" || called(view, &seen.agent);
            view.agents().iter().all(calm)
        })
        .await;
    for agent in world.view().agents() {
        if called(world.view(), &agent.agent) {
            world.administer(agent.vmid.unwrap().0);
        }
    }
    world
        .until("nobody needs an administrator", |view| {
            view.agents().iter().all(|agent| agent.state == "Ready")
        })
        .await;
    world.end().await;
}

/// One trial a seed.
pub fn trials(range: &Seeds) -> Vec<Trial> {
    let trial = |seed: u64| {
        Trial::test(format!("seeds::the_storm_of_seed_{seed}_leaves_nothing"), move || {
            on_paused_clock(storm(seed));
            Ok(())
        })
    };
    range.numbers().map(trial).collect()
}
