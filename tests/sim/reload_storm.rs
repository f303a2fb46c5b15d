//! Very many reloads, and reloads at bad moments: who hears of them, and what they may never cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use drover_model::fact::What;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::Reason;
use drover_model::stop::StopPolicy;

use super::world::World;
use super::world::setup::Setup;
use super::world::tap::Hit;

const MINUTE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(1);
const CLOUDS: [&str; 3] = ["east", "rack", "west"];

/// Three clouds with this many templates each; template `rack0` is one of them.
fn wide(each: usize) -> Setup {
    let mut setup = Setup::linux("");
    setup.templates.clear();
    setup.clouds = CLOUDS.iter().map(|cloud| (*cloud, String::new())).collect();
    for cloud in CLOUDS {
        for n in 0..each {
            let name: &'static str = Box::leak(format!("{cloud}{n}").into_boxed_str());
            setup.templates.push((name, format!("cloudIds: [{cloud}], instanceCap: 3")));
        }
    }
    setup
}

/// Changes one key of one template, and counts the actors' steps that follow at this moment: each
/// looks at the clock.
async fn steps_after_a_change(each: usize, change: impl Fn(&mut Setup)) -> (u32, Vec<String>) {
    let mut world = World::started(wide(each)).await;
    world.pass(MINUTE).await;
    let steps = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&steps);
    let before = world.notes.log().len();
    world.tap.watch(move |knock| {
        if knock.call == "now" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Hit::Pass
    });
    change(&mut world.setup);
    world.reload();
    world.pass(MOMENT).await;
    world.tap.release();
    let heard = world.notes.log().split_off(before);
    world.end().await;
    (steps.load(Ordering::Relaxed), heard)
}

// Invariant: only those hear of a reload whom it concerns, however many there are.

#[tokio::test(start_paused = true)]
async fn a_changed_template_is_the_only_one_to_hear() {
    let change = |setup: &mut Setup| {
        let found = setup.templates.iter_mut().find(|(name, _)| *name == "rack0");
        found.unwrap().1 = "cloudIds: [rack], instanceCap: 2".to_owned();
    };
    let (few, _) = steps_after_a_change(1, change).await;
    let (many, heard) = steps_after_a_change(20, change).await;
    assert_eq!(few, many, "steps with 3 templates and with 60");
    assert!(many > 0);
    let [applied, template] = heard.as_slice() else { panic!("{heard:#?}") };
    assert!(applied.contains("ConfigApplied"), "{applied}");
    assert!(template.contains("rack0") && template.contains("cap: Some(2)"), "{template}");
}

#[tokio::test(start_paused = true)]
async fn a_reload_without_a_change_is_heard_by_the_herd_alone() {
    let (few, _) = steps_after_a_change(1, |_| {}).await;
    let (many, heard) = steps_after_a_change(20, |_| {}).await;
    assert_eq!(few, many);
    assert!(matches!(heard.as_slice(), [one] if one.contains("ConfigApplied")), "{heard:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_cloud_is_heard_by_no_template() {
    let change = |setup: &mut Setup| setup.clouds[1].1 = "instanceCap: 9".to_owned();
    let (few, _) = steps_after_a_change(1, change).await;
    let (many, heard) = steps_after_a_change(20, change).await;
    assert_eq!(few, many);
    assert!(!heard.iter().any(|fact| fact.contains("Template")), "{heard:#?}");
}

#[tokio::test(start_paused = true)]
async fn another_way_in_is_tried_for_its_cloud_alone_with_calls_under_way() {
    let mut world = World::started(wide(2)).await;
    let asks = ["east0", "rack0", "west0"].map(|label| world.ask(label));
    world.until_state(AgentPhase::Cloning).await;
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    world.tap.watch(move |knock| {
        if knock.call == "identify" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Hit::Pass
    });
    world.setup.clouds[1].1 = "apiUrls: [\"https://pve2\"]".to_owned();
    world.reload();
    world.pass(MOMENT).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    world.tap.release();
    for ask in asks {
        let lease = world.answer(ask).await.unwrap();
        world.ready(&lease).await;
        world.release(&lease).await;
    }
    let failed = |what: &What| match what {
        What::AgentGone { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    assert_eq!(world.notes.facts(failed), Vec::<Reason>::new());
    world.end().await;
}

// Invariant: no number of reloads costs a lease, and the last one is in force.

#[tokio::test(start_paused = true)]
async fn a_thousand_reloads_cost_no_lease_and_the_last_is_in_force() {
    let setup = Setup::linux("instanceCap: 6, instanceMin: 1").template("other", "cores: 2");
    let mut world = World::started(setup).await;
    let (one, first) = world.leased("linux").await;
    let (two, second) = world.leased("other").await;
    world.notes.allow_slack();
    let (linux, other) = (world.setup.templates[0].clone(), world.setup.templates[1].clone());
    for turn in 0..1000_u32 {
        let cap = 1 + turn % 6;
        let mut templates = vec![(linux.0, format!("instanceCap: {cap}, instanceMin: 1"))];
        if !turn.is_multiple_of(3) {
            templates.push((other.0, format!("cores: {}", 1 + turn % 4)));
        }
        if turn.is_multiple_of(7) {
            templates.remove(0);
        }
        world.setup.templates = templates;
        world.reload();
        world.pass(Duration::from_millis(u64::from(turn % 5) * 20)).await;
        for (lease, agent) in [(&one, &first), (&two, &second)] {
            let status = world.view().lease(lease).unwrap();
            assert_eq!(
                (status.state, status.agent),
                (LeasePhase::Ready, Some(agent.agent.clone()))
            );
        }
    }
    world.setup.templates = vec![(linux.0, "instanceCap: 2, instanceMin: 2".to_owned()), other];
    world.reload();
    world.release(&one).await;
    world.release(&two).await;
    world
        .until("the last one is in force", |view| {
            let mut all = view.templates().into_iter();
            let linux = all.find(|template| &*template.template.name == "linux").unwrap();
            linux.cap == Some(2) && linux.states.get(&AgentPhase::Ready) == Some(&2)
        })
        .await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cap_that_shrinks_and_grows_again_at_once_costs_nobody() {
    let mut world = World::started(Setup::linux("instanceCap: 6")).await;
    let mut leases = Vec::new();
    for _ in 0..6 {
        leases.push(world.leased("linux").await);
    }
    world.notes.allow_slack();
    for cap in [2, 6, 2, 6, 1, 6] {
        world.setup.templates[0].1 = format!("instanceCap: {cap}");
        world.reload();
        world.pass(MOMENT).await;
    }
    world.pass(MINUTE).await;
    for (lease, agent) in &leases {
        let status = world.view().lease(lease).unwrap();
        assert_eq!((status.state, status.agent), (LeasePhase::Ready, Some(agent.agent.clone())));
        world.release(lease).await;
    }
    assert_eq!(world.notes.most("linux"), 6);
    world.end().await;
}

// Invariant: what left the configuration and came back finds its own again.

#[tokio::test(start_paused = true)]
async fn a_template_that_comes_back_counts_its_leased_agent_and_has_no_twin() {
    let setup = Setup::linux("instanceCap: 1, maxTotalUses: 1").template("other", "");
    let mut world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    let linux = world.setup.templates.remove(0);
    world.reload();
    world.pass(MINUTE).await;
    world.setup.templates.push(linux);
    world.reload();
    let waiting = world.lease("linux").await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    assert_eq!(world.notes.most("linux"), 1, "the cap counts it");
    world.release(&lease).await;
    let next = world.ready(&waiting).await;
    assert_ne!(next.agent, agent.agent);
    world.release(&waiting).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cloud_under_another_key_drains_the_old_and_starts_again() {
    let mut world = World::started(Setup::linux("instanceMin: 1")).await;
    let (lease, _) = world.leased("linux").await;
    world.setup.clouds = vec![("tower", "startVmId: 30000".to_owned())];
    world.setup.templates[0].1 = "cloudIds: [tower], instanceMin: 1".to_owned();
    world.reload();
    world
        .until("the new one is warm", |view| {
            let agents = view.agents();
            agents.iter().any(|agent| {
                agent.phase == AgentPhase::Ready && agent.vmid.is_some_and(|vmid| vmid.0 >= 30000)
            })
        })
        .await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    world.release(&lease).await;
    world.until("the old cloud is gone", |view| view.clouds().len() == 1).await;
    world.end().await;
}

// Invariant: a reload at a bad moment is a reload like any other.

#[tokio::test(start_paused = true)]
async fn a_reload_while_it_drains_begins_nothing() {
    let mut world = World::started(Setup::linux("instanceMin: 2")).await;
    world.until_state(AgentPhase::Ready).await;
    let drained = world.begin_drain(StopPolicy::RetireAll);
    world.setup.templates[0].1 = "instanceMin: 5, cores: 4".to_owned();
    world.setup.templates.push(("other", "instanceMin: 3".to_owned()));
    world.reload();
    world.answer(drained).await;
    let before = world.notes.intended();
    world.pass(30 * MINUTE).await;
    assert_eq!(world.notes.intended(), before);
    assert!(world.view().agents().is_empty(), "{:?}", world.view().agents());
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_template_removed_while_it_was_down_keeps_its_lease_to_the_end() {
    let setup = Setup::linux("instanceMin: 2").template("other", "");
    let mut world = World::started(setup).await;
    let (lease, agent) = world.leased("linux").await;
    world.crash();
    world.setup.templates.remove(0);
    world.pass(MINUTE).await;
    world.start().await;
    world.until("only the leased one is left", |view| view.agents().len() == 1).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.view().lease(&lease).unwrap().state, LeasePhase::Ready);
    world.release(&lease).await;
    world.until("it is gone", |view| view.agent(&agent.agent).is_none()).await;
    world.end().await;
}
