//! The template changes under the clones being made of it: its settings, its nature, its being there
//! at all. Anyone who waits is served in the end, by what stands at that id then.

use std::time::Duration;

use drover_model::id::LeaseId;
use drover_model::phase::AgentPhase;
use pve_sim::spec::GuestSpec;

use super::world::World;
use super::world::setup::Setup;

const SOURCE: u32 = 9000;
const MINUTE: Duration = Duration::from_secs(60);

/// Before the call is sent, while it is judged, while the task copies: milliseconds after the intent.
const MOMENTS: [u64; 3] = [0, 50, 500];

/// A lease whose agent was started to be cloned so many milliseconds ago.
async fn cloning(moment: u64) -> (World, LeaseId) {
    let world = World::started(Setup::linux("maxTotalUses: 1, idleTerminationMinutes: 1")).await;
    let lease = world.lease("linux").await;
    world.until_state(AgentPhase::Cloning).await;
    world.pass(Duration::from_millis(moment)).await;
    (world, lease)
}

/// The template as it stands, to be put back.
fn template(world: &World) -> GuestSpec {
    let config = world.side.config(SOURCE).unwrap().into_iter().collect();
    let node = "pve1".to_owned();
    GuestSpec { vmid: SOURCE, node, template: true, running: false, pool: None, config }
}

/// The lease is served, and nothing but the template as it is now stays.
async fn serves(mut world: World, lease: &LeaseId) {
    world.keep_planted(SOURCE);
    world.ready(lease).await;
    world.release(lease).await;
    world.until("the agents are gone", |view| view.agents().is_empty()).await;
    assert_eq!(world.ours(), Vec::<u32>::new());
    world.end().await;
}

// Invariant: a template that changes while it is cloned costs time at most.

#[tokio::test(start_paused = true)]
async fn settings_changed_under_a_clone_leave_it_served() {
    for moment in MOMENTS {
        let (world, lease) = cloning(moment).await;
        world.side.set_config(SOURCE, "memory", Some("4096"));
        world.side.set_config(SOURCE, "description", Some("built again on Friday"));
        serves(world, &lease).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_removed_under_a_clone_is_waited_for() {
    for moment in MOMENTS {
        let (world, lease) = cloning(moment).await;
        let back = template(&world);
        world.side.remove_guest(SOURCE);
        world.pass(5 * MINUTE).await;
        if !world.side.guests().contains(&SOURCE) {
            assert!(world.side.add_guest(&back));
        }
        serves(world, &lease).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_turned_into_a_plain_guest_under_a_clone_is_not_changed() {
    for moment in MOMENTS {
        let (world, lease) = cloning(moment).await;
        world.side.set_config(SOURCE, "template", None);
        let before = world.side.config(SOURCE);
        world.pass(10 * MINUTE).await;
        assert_eq!(world.side.config(SOURCE), before, "it is somebody's guest now");
        world.side.set_config(SOURCE, "template", Some("1"));
        serves(world, &lease).await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_template_at_that_id_serves_the_next_clone() {
    for moment in MOMENTS {
        let (world, lease) = cloning(moment).await;
        let mut other = template(&world);
        other.config.insert("name".into(), "other".into());
        other.config.insert("cores".into(), "8".into());
        world.side.remove_guest(SOURCE);
        assert!(world.side.add_guest(&other));
        serves(world, &lease).await;
    }
}
