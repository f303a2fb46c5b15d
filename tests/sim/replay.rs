//! Replays beside what they replay: a herd runs on the simulated cluster, its history is replayed with
//! other dice on the same configuration, and both must come to the same.
//!
//! A replay has no Proxmox: it knows the cluster by the lengths in the history alone. What agrees here is
//! measured by two different ways.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_config::calendar::Almanac;
use drover_forecast::figures::{Counted, Figures};
use drover_forecast::play::{Options, play};
use drover_history::{Header, Limits, Trace, Writer};
use drover_model::ambient::Dice;
use drover_model::id::LeaseId;
use drover_model::phase::LeasePhase;
use drover_model::time::WallTime;

use super::world::World;
use super::world::setup::{CI_LOGINS, Setup};

const MINUTE: Duration = Duration::from_secs(60);

/// How far two figures may be apart, in hundredths.
const NEAR: u64 = 10;
/// Waits that are closer than this are alike: a fleeting call more or less.
const FLEETING_MS: u64 = 250;

/// When those who want something come, and how long each uses it.
type Load = Vec<(Duration, Duration)>;

/// At random moments of some hours.
fn steady(dice: &mut Dice, hours: u64, count: u64) -> Load {
    let mut load: Load = (0..count)
        .map(|_| {
            let at = Duration::from_millis(dice.below(hours * 3_600_000));
            (at, MINUTE + Duration::from_secs(dice.below(360)))
        })
        .collect();
    load.sort();
    load
}

/// Many at once, again and again.
fn bursts(dice: &mut Dice, hours: u64, each: u64) -> Load {
    let bursts = (0..hours * 2).flat_map(|burst| {
        let begin = MINUTE * 5 + MINUTE * 30 * u32::try_from(burst).unwrap();
        (0..each).map(move |_| begin).collect::<Vec<_>>()
    });
    let mut load: Load = bursts
        .map(|begin| {
            let at = begin + Duration::from_millis(dice.below(20_000));
            (at, MINUTE + Duration::from_secs(dice.below(240)))
        })
        .collect();
    load.sort();
    load
}

/// Runs a herd under a load of leases; gives its history.
async fn under_leases(setup: Setup, load: &Load, whole: Duration) -> (Trace, World) {
    let mut world = World::new(setup);
    let from = world.wall();
    world.notes.keep_history(from);
    world.start().await;
    let mut leases: BTreeMap<LeaseId, (Duration, Option<Duration>)> = BTreeMap::new();
    let mut next = load.iter().peekable();
    while world.elapsed() < whole {
        while let Some((_, used)) = next.next_if(|(at, _)| *at <= world.elapsed()) {
            let ttl = Duration::from_secs(24 * 3600);
            leases.insert(world.try_lease("linux", ttl).await.unwrap(), (*used, None));
        }
        let now = world.elapsed();
        let mut over = Vec::new();
        for (lease, (used, until)) in &mut leases {
            let state = world.view().lease(lease).map(|lease| lease.state);
            if until.is_none() && state == Some(LeasePhase::Ready) {
                *until = Some(now + *used);
            }
            if until.is_some_and(|until| until <= now) {
                over.push(lease.clone());
            }
        }
        for lease in over {
            world.release(&lease).await;
            leases.remove(&lease);
        }
        let coming = next.peek().map_or(whole, |(at, _)| *at);
        world.step((now + Duration::from_secs(1)).min(coming.max(now)), |_| false).await;
    }
    for lease in leases.into_keys() {
        world.release(&lease).await;
    }
    (history(&world, from), world)
}

/// Runs a herd under a load of jobs.
async fn under_jobs(setup: Setup, load: &Load, whole: Duration) -> (Trace, World) {
    let mut world = World::new(setup);
    let from = world.wall();
    world.notes.keep_history(from);
    world.start().await;
    for (at, used) in load {
        world.step(*at, |_| false).await;
        world.ci.push("git", 1, &["linux"], *used);
    }
    world.step(whole, |_| false).await;
    (history(&world, from), world)
}

/// The history as a trace that was written and read again.
fn history(world: &World, from: WallTime) -> Trace {
    let to = world.wall();
    let drover = "test".to_owned();
    let format = drover_history::FORMAT;
    let header =
        Header { format, drover, from, to, names: true, left_out: Vec::new(), nodes: Vec::new() };
    let mut writer = Writer::begin(Vec::new(), header).unwrap();
    for line in world.notes.history(to) {
        writer.put(&line).unwrap();
    }
    let text = writer.finish(None, 0).unwrap();
    Trace::read(&text[..], Limits::default()).unwrap()
}

/// The figures of the herd, and of its replay.
fn both(trace: &Trace, world: &World, seed: u64) -> (Figures, Figures) {
    let options =
        Options { seed, calendar: Arc::new(Almanac), clusters: BTreeMap::new(), hardware: None };
    let (spec, trace) = (world.spec().clone(), trace.clone());
    let replayed = std::thread::spawn(move || {
        let was = Counted::of(&trace, &[]).report(Some(&spec)).all;
        let played = play(&trace, &spec, &options, &mut |_| {}).unwrap();
        (was, played.report(&spec).all)
    });
    replayed.join().unwrap()
}

fn near(one: u64, other: u64, least: u64) -> bool {
    one.abs_diff(other) <= (one.max(other) * NEAR / 100).max(least)
}

/// Fails where waits or hours are further apart than a tenth.
fn alike(case: &str, (was, played): &(Figures, Figures)) {
    let waits = [(was.wait.p50_ms, played.wait.p50_ms), (was.wait.p95_ms, played.wait.p95_ms)];
    let waits_are = waits.iter().all(|(was, played)| near(*was, *played, FLEETING_MS));
    let hours_are = near(was.machine_ms, played.machine_ms, 0);
    assert!(waits_are && hours_are, "{case}:\n{was:?}\n{played:?}");
    assert_eq!((was.demands, was.waiting), (played.demands, played.waiting), "{case}");
}

// Invariant: what is foreseen of a load is within a tenth of what the same load comes to.

#[tokio::test(start_paused = true)]
async fn a_steady_load_of_leases_is_foreseen() {
    for (seed, keys) in [
        (1, "instanceCap: 20, maxTotalUses: 1"),
        (2, "instanceCap: 20, maxTotalUses: 1, idleMin: 2"),
        (3, "instanceCap: 6, maxTotalUses: 1"),
    ] {
        let load = steady(&mut Dice::from_number(seed), 6, 200);
        let setup = Setup::linux(keys).seed(seed);
        let (trace, world) = under_leases(setup, &load, 7 * 60 * MINUTE).await;
        alike(&format!("seed {seed}, {keys}"), &both(&trace, &world, seed + 100));
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn bursts_of_leases_are_foreseen() {
    for (seed, keys) in [
        (1, "instanceCap: 20, maxTotalUses: 1, idleMin: 4"),
        (2, "instanceCap: 4, maxTotalUses: 1"),
        (3, "instanceCap: 5, idleTerminationMinutes: 10"),
    ] {
        let load = bursts(&mut Dice::from_number(seed), 6, 12);
        let setup = Setup::linux(keys).seed(seed);
        let (trace, world) = under_leases(setup, &load, 7 * 60 * MINUTE).await;
        let figures = both(&trace, &world, seed + 100);
        alike(&format!("seed {seed}, {keys}"), &figures);
        // Twelve come at once, and so few may be.
        assert_eq!(figures.1.cap_hits.unwrap() > 70, seed != 1, "{figures:?}");
        world.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_are_foreseen_by_what_looks_at_their_source_show() {
    for (seed, keys) in
        [(1, "instanceCap: 20"), (2, "instanceCap: 4"), (3, "instanceCap: 20, idleMin: 3")]
    {
        let load = match seed {
            2 => bursts(&mut Dice::from_number(seed), 6, 10),
            _ => steady(&mut Dice::from_number(seed), 6, 150),
        };
        let mut setup = Setup::linux(keys).seed(seed);
        setup.credentials = CI_LOGINS.to_owned();
        setup.sections =
            "demand: {git: {kind: gitea, url: \"https://ci\", credentialsId: ci}}\n".to_owned();
        let (trace, world) = under_jobs(setup, &load, 7 * 60 * MINUTE).await;
        alike(&format!("seed {seed}, {keys}"), &both(&trace, &world, seed + 100));
        world.end().await;
    }
}
