//! A herd that has been through much is as it was before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_actors::message::AgentCommand;

use super::world::World;
use super::world::setup::{CI_LOGINS, Setup};
use drover_model::phase::AgentPhase;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Agents at one time, and how often there are that many.
const BREADTH: usize = 40;
const ROUNDS: usize = if cfg!(debug_assertions) { 5 } else { 25 };

/// So many leases at once on an agent each, and all of them given back; their ids.
async fn round(world: &World) -> BTreeSet<u32> {
    let mut leases = Vec::new();
    for _ in 0..BREADTH {
        leases.push(world.lease("linux").await);
    }
    let mut vmids = BTreeSet::new();
    for lease in &leases {
        vmids.insert(world.ready(lease).await.vmid.unwrap().0);
    }
    for lease in &leases {
        world.release(lease).await;
    }
    world.until("all are gone", |view| view.agents().is_empty()).await;
    vmids
}

/// What a herd holds, each with its name. Histories that are kept on purpose are not in it.
fn held(world: &World) -> Vec<(&'static str, usize)> {
    let (view, journal_state) = (world.view(), world.journal_state());
    let runtime = tokio::runtime::Handle::current().metrics();
    vec![
        ("actors", world.census().len()),
        ("agents shown", view.agents().len()),
        ("templates shown", view.templates().len()),
        ("clouds shown", view.clouds().len()),
        ("alarms", view.alarms().len()),
        ("agents in the journal", journal_state.agents.len()),
        ("waiting leases in the journal", journal_state.waiting.len()),
        ("breakers in the journal", journal_state.breakers.len()),
        ("burned ids in the journal", journal_state.burned.values().map(|ids| ids.len()).sum()),
        ("guests", world.ours().len()),
        ("tasks of the cluster and the client", runtime.num_alive_tasks()),
    ]
}

// Invariant: whatever an agent needed is given back at its end.

#[tokio::test(start_paused = true)]
async fn a_thousand_agents_live_and_die_and_nothing_of_them_is_left() {
    let setup = Setup::linux("maxTotalUses: 1, instanceCap: 40");
    let world = World::started(setup.rack("clonesPerStorage: 20, operationsPerNode: 20")).await;
    let first = round(&world).await;
    world.pass(2 * HOUR).await;
    let before = held(&world);
    let mut lives = 0;
    for _ in 0..ROUNDS {
        lives += round(&world).await.len();
    }
    assert_eq!(lives, BREADTH * ROUNDS);
    world.pass(2 * HOUR).await;
    assert_eq!(held(&world), before);
    // Ids have rested, and no lane is taken: it goes as it went the first time.
    assert_eq!(round(&world).await, first);
    world.pass(DAY + HOUR).await;
    let (lease, _) = world.leased("linux").await;
    world.release(&lease).await;
    world.until("it is gone", |view| view.agents().is_empty()).await;
    let journal_state = world.journal_state();
    assert!(
        journal_state.ended.len() <= 1,
        "{} leases are remembered after a day",
        journal_state.ended.len()
    );
    let resting: usize = journal_state.resting.values().map(|ids| ids.len()).sum();
    assert_eq!(resting, 1, "ids that have rested are remembered");
    world.end().await;
}

/// How many entries each part of the journal's fold has, all that is in it counted.
fn entries(world: &World) -> BTreeMap<String, usize> {
    fn count(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(all) => all.iter().map(|one| 1 + count(one)).sum(),
            serde_json::Value::Object(all) => all.values().map(|one| 1 + count(one)).sum(),
            _ => 0,
        }
    }
    let folded = serde_json::to_value(world.journal_state()).unwrap();
    folded.as_object().unwrap().iter().map(|(key, value)| (key.clone(), count(value))).collect()
}

// Invariant: a month of jobs alone, and nobody who asks for a lease, leaves nothing behind.

#[tokio::test(start_paused = true)]
async fn thirty_days_of_jobs_of_a_ci_system_alone_leave_everything_as_it_was() {
    let mut setup = Setup::linux("maxTotalUses: 1, instanceCap: 4");
    setup.credentials = CI_LOGINS.to_owned();
    let keys = "kind: gitea, url: \"https://ci\", credentialsId: ci, pollSeconds: 600";
    setup.sections =
        format!("demand: {{git: {{{keys}}}}}\nservice: {{orphanCleanupPeriodSeconds: 3600}}\n");
    let world = World::started(setup).await;
    let mut seen = Vec::new();
    for day in 1..=30 {
        world.ci.push("git", 4, &["linux"], Duration::from_secs(60));
        world.pass(DAY).await;
        assert_eq!(world.ci.over("git"), 4 * day, "jobs of day {day}");
        seen.push((held(&world), entries(&world), world.view().leases().len()));
    }
    assert_eq!(seen[29].0, seen[1].0);
    assert_eq!(seen[29].1, seen[1].1, "the journal's entries");
    assert!(world.journal_state().ended.is_empty());
    world.end().await;
}

// Invariant: a cluster's actors live for as long as somebody leads there, and what must not be
// forgotten of its ids is not.

#[tokio::test(start_paused = true)]
async fn the_actors_of_a_cluster_end_with_its_last_cloud_and_its_ids_rest_on() {
    let mut world = World::started(Setup::linux("maxTotalUses: 1")).await;
    let (lease, agent) = world.leased("linux").await;
    let clouds = world.setup.clouds.clone();
    let templates = std::mem::take(&mut world.setup.templates);
    world.setup.clouds = vec![("other", "apiUrls: [\"https://nowhere\"]".to_owned())];
    world.reload();
    world.pass(HOUR / 2).await;
    let cluster = format!("cluster {}", world.journal_state().clusters.values().next().unwrap());
    assert!(world.census().contains(&cluster), "its agent is still on it");
    world.release(&lease).await;
    world.until("the cloud is gone", |view| view.clouds().len() == 1).await;
    world.pass(Duration::from_secs(120)).await;
    assert_eq!(world.census(), ["cloud other", "herd"]);
    // The cloud comes back within the hour.
    world.setup.clouds = clouds;
    world.setup.templates = templates;
    world.reload();
    let (lease, next) = world.leased("linux").await;
    assert_ne!(next.vmid, agent.vmid, "the id does not rest any more");
    world.release(&lease).await;
    world.end().await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "nobody called `end`")]
async fn a_world_that_is_left_without_a_look_fails_its_test() {
    let world = World::started(Setup::linux("")).await;
    drop(world);
}

#[tokio::test(start_paused = true)]
async fn floods_from_outside_keep_nobody_from_a_lease() {
    let world = World::started(Setup::linux("instanceMin: 1")).await;
    let ready = world.until_state(AgentPhase::Ready).await;
    let address = world.address(&ready.agent);
    for _ in 0..100_000 {
        address.do_send(AgentCommand::NodeDown(false));
    }
    let asked: Vec<_> = (0..20).map(|_| world.ask("linux")).collect();
    for answer in asked {
        let lease = world.answer(answer).await.unwrap();
        world.release(&lease).await;
    }
    world.end().await;
}
