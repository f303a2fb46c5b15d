#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use drover_history::{
    Agent, Demand, DemandKind, FORMAT, Header, How, MadeFor, NodeSize, Part, Peaks, Trace,
};
use drover_model::ambient::Dice;
use drover_model::record::Want;
use drover_model::spec::{HerdSpec, TemplateSpec};
use drover_model::tenant::{Quota, Whose};
use drover_model::testing::{Hours, cloud, herd, template};
use drover_model::time::WallTime;

use crate::figures::Report;
use crate::ground::NodeHardware;
use crate::play::{Options, Played, play};
use crate::suggest::pools;

const FROM: i64 = 1_795_000_000_000;
const MINUTE: i64 = 60_000;

fn options(seed: u64) -> Options {
    let (calendar, clusters) = (Arc::new(Hours), Default::default());
    Options { seed, calendar, clusters, hardware: None }
}

fn agent(number: usize, boot_ms: u64) -> Agent {
    let part = |name: &str, ms| Part { name: name.into(), ms };
    Agent {
        id: format!("a{number}"),
        template: "lab/linux".into(),
        cloud: "lab".into(),
        node: Some("pve1".into()),
        cores: Some(2),
        memory_mib: Some(2048),
        made_for: MadeFor::Demand,
        made: WallTime(FROM),
        machine: Some(WallTime(FROM)),
        ready: Some(WallTime(FROM + 30_000)),
        boot: vec![
            part("Cloning", 4_000),
            part("Configuring", 1_000),
            part("Booting", boot_ms),
            part("Connecting", 300),
            part("Preparing: cloud-init", 2_000),
        ],
        after: vec![part("Leased", 60_000), part("Retiring", 5_000)],
        gone: Some(WallTime(FROM + 100_000)),
        reason: Some("used-up".into()),
        failed_in: None,
        fault: None,
        uses: 1,
        peaks: Peaks { cpu_milli: Some(1500), memory_mib: Some(700), looks: 3 },
    }
}

fn lease(number: usize, arrived: i64, used: i64) -> Demand {
    let at = |ms| Some(WallTime(FROM + arrived + ms));
    Demand {
        id: format!("l{number}"),
        kind: DemandKind::Lease,
        source: None,
        owner: Some("somebody".into()),
        group: None,
        name: None,
        wants: Some(Want::Labels(["linux".to_owned()].into())),
        priority: 0,
        whole: false,
        arrived: WallTime(FROM + arrived),
        served: at(1_000),
        agent: Some(format!("a{number}")),
        template: Some("lab/linux".into()),
        cores: Some(2),
        memory_mib: Some(2048),
        ended: at(1_000 + used),
        how: Some(How::Done),
        granted: at(600),
        used_ms: None,
    }
}

/// Leases in the order of their arrival, in a range of so many minutes.
fn trace(leases: &[(i64, i64)], minutes: i64) -> Trace {
    let (from, to) = (WallTime(FROM), WallTime(FROM + minutes * MINUTE));
    let version = "0.1.0".to_owned();
    let demands = leases.iter().enumerate();
    Trace {
        header: Header {
            format: FORMAT,
            drover: version,
            from,
            to,
            names: true,
            left_out: vec![],
            nodes: vec![],
        },
        demands: demands.map(|(number, (at, used))| lease(number, *at, *used)).collect(),
        agents: (0..20).map(|number| agent(number, 15_000 + 500 * number as u64)).collect(),
        configurations: Vec::new(),
        services: Vec::new(),
        cut: None,
    }
}

fn spec(change: impl FnOnce(&mut TemplateSpec)) -> HerdSpec {
    let mut linux = template("lab/linux", &["linux"]);
    linux.max_uses = Some(1);
    change(&mut linux);
    Arc::unwrap_or_clone(herd(vec![cloud("lab", None)], vec![linux]))
}

fn played(trace: &Trace, spec: &HerdSpec) -> (Played, Report) {
    let played = play(trace, spec, &options(1), &mut |_| {}).unwrap();
    let report = played.report(spec);
    (played, report)
}

/// Leases of some minutes at random moments, so many an hour.
fn steady(hours: i64, an_hour: i64, seed: u64) -> Vec<(i64, i64)> {
    let mut dice = Dice::from_number(seed);
    let mut below = |most: i64| i64::try_from(dice.below(most.unsigned_abs())).unwrap();
    let mut all: Vec<(i64, i64)> = (0..hours * an_hour)
        .map(|_| (below(hours * 60 * MINUTE), MINUTE + below(8 * MINUTE)))
        .collect();
    all.sort_unstable();
    all
}

// Invariant: equal input gives equal output, and another seed may give another.

#[test]
fn the_same_replay_comes_to_the_same() {
    let (trace, spec) = (trace(&steady(4, 30, 7), 240), spec(|one| one.cap = Some(6)));
    let one = played(&trace, &spec);
    assert_eq!(one, played(&trace, &spec));
    assert_eq!(one.1.all.demands, 120);
    assert_eq!(one.1.all.served, 120, "{:?}", one.1);
    let json = |report: &Report| serde_json::to_string(report).unwrap();
    assert_eq!(json(&one.1), json(&played(&trace, &spec).1));
}

// Invariant: a replay ends, whatever the times of its trace are.

#[test]
fn a_use_without_end_and_one_who_waits_without_end_are_over_within_a_year() {
    let mut trace = trace(&[(0, MINUTE), (MINUTE, MINUTE)], 10);
    trace.demands[0].ended = Some(WallTime(i64::MAX));
    (trace.demands[1].served, trace.demands[1].granted) = (None, None);
    trace.demands[1].ended = Some(WallTime(i64::MAX));
    let spec = spec(|_| {});
    let all = crate::play::due(&trace, &spec, &mut Vec::new());
    let year = std::time::Duration::from_secs(366 * 24 * 3600);
    assert_eq!(all[0].used, year);
    assert_eq!(all[1].called_off, Some(trace.header.to + year));
}

// Invariant: who comes while the cap is full waits for it, and that is counted.

#[test]
fn a_cap_that_is_too_low_is_hit() {
    let trace = trace(&steady(4, 40, 3), 240);
    let tight = played(&trace, &spec(|one| one.cap = Some(3))).1.all;
    let wide = played(&trace, &spec(|one| one.cap = Some(40))).1.all;
    assert!(tight.cap_hits.unwrap() > 100, "{tight:?}");
    assert_eq!(wide.cap_hits, Some(0), "{wide:?}");
    assert!(tight.wait.p95_ms > 5 * wide.wait.p95_ms, "{tight:?} {wide:?}");
    // Without a pool each waits for a boot of 22 to 32 s.
    assert!((22_000..33_000).contains(&wide.wait.p50_ms), "{wide:?}");
    assert_eq!(wide.pool_hits, 0);
}

// Invariant: a warm pool serves at once, costs hours, and the smallest that does is suggested.

#[test]
fn the_smallest_pool_that_reaches_an_aim_is_suggested() {
    // Every 10 minutes three come at once.
    let bursts: Vec<(i64, i64)> =
        (1..24).flat_map(|burst| (0..3).map(move |_| (burst * 10 * MINUTE, MINUTE))).collect();
    let (trace, spec) = (trace(&bursts, 250), spec(|one| one.cap = Some(10)));
    let before = played(&trace, &spec).1;
    let mut tried = Vec::new();
    let mut note = |name: &str, idle| tried.push((name.to_owned(), idle));
    let found = pools(&trace, &spec, &options(1), (&before, 5_000), &mut note).unwrap();
    let [pool] = &found.pools[..] else { panic!("{found:?}") };
    assert_eq!((pool.now, pool.suggested), (0, Some(3)), "{found:?}");
    assert!(pool.p95_ms <= 5_000);
    assert_eq!(found.together.all.pool_hits, 69);
    assert!(found.together.all.machine_ms > 2 * before.all.machine_ms);
    let none = pools(&trace, &spec, &options(1), (&before, 100), &mut |_, _| {}).unwrap();
    assert_eq!((none.pools[0].suggested, none.pools[0].tried), (None, 10));
}

// Invariant: failures come as often as they did, and an agent that fails serves nobody.

#[test]
fn agents_fail_as_often_as_in_the_trace() {
    let mut trace = trace(&steady(4, 30, 5), 240);
    for agent in &mut trace.agents[..5] {
        agent.ready = None;
        agent.failed_in = Some("Preparing".into());
        agent.boot.push(Part { name: "Retiring".into(), ms: 2_000 });
    }
    let spec = spec(|one| {
        one.cap = Some(20);
        one.breaker.threshold = 100;
    });
    let (played, report) = played(&trace, &spec);
    let all = report.all;
    assert_eq!(all.served, 120, "{all:?}");
    assert_eq!(all.agents, 120 + all.failed, "{all:?}");
    // A quarter fails.
    assert!((38..=42).contains(&all.failed), "{all:?}");
    assert!(played.trace.agents.iter().all(|agent| !agent.has_failed() || agent.uses == 0));
}

// Invariant: what cannot be replayed and what is assumed is said.

#[test]
fn what_is_left_out_is_said() {
    let mut trace = trace(&steady(1, 10, 5), 60);
    trace.demands[0].wants = None;
    trace.demands[1].source = Some("gone".into());
    trace.demands[1].kind = DemandKind::Job;
    trace.demands[2].wants = Some(Want::Labels(["windows".to_owned()].into()));
    let mut other = template("lab/other", &["other"]);
    other.max_uses = Some(1);
    let linux = template("lab/linux", &["linux"]);
    let spec = Arc::unwrap_or_clone(herd(vec![cloud("lab", None)], vec![linux, other]));
    let (played, report) = played(&trace, &spec);
    assert_eq!((report.all.demands, report.all.refused), (8, 1), "{report:?}");
    let notes = played.notes.join("\n");
    for said in [
        "1 demands are left out: the trace does not say what they want",
        "1 jobs are left out: the configuration has no source `gone`",
        "`lab/other` has the lengths of `lab/linux`: the trace has no agent of it",
        "every node has room for each agent that the configuration allows",
    ] {
        assert!(notes.contains(said), "{notes}");
    }
}

// Invariant: nodes have what they had, as far as the trace says it, and what is assumed is said.

#[test]
fn nodes_have_the_room_that_the_trace_says_unless_somebody_says_another() {
    let leases: Vec<(i64, i64)> = (0..6).map(|number| (number * 1000, 10 * MINUTE)).collect();
    let size =
        |cores| NodeSize { cloud: "lab".into(), node: "pve1".into(), cores, memory_mib: 8192 };
    let spec = spec(|linux| linux.cap = Some(6));
    let most = |trace: &Trace, hardware| {
        let options = Options { hardware, ..options(1) };
        let played = play(trace, &spec, &options, &mut |_| {}).unwrap();
        let served = played
            .trace
            .demands
            .iter()
            .filter_map(|one| one.served)
            .filter(|at| at.0 < FROM + 5 * MINUTE);
        (served.count(), played.notes)
    };
    let without = trace(&leases, 60);
    let (free, notes) = most(&without, None);
    assert!(free == 6 && notes.iter().any(|note| note.contains("every node")), "{free} {notes:?}");
    let mut with = without.clone();
    with.header.nodes = vec![size(64)];
    // Four agents of 2 GiB.
    let (bound, notes) = most(&with, None);
    assert!(bound < 6, "{bound}");
    assert!(notes.iter().any(|note| note.contains("when the trace was written")), "{notes:?}");
    let large = NodeHardware { cpus: 64, memory_mib: 1 << 20 };
    assert_eq!(most(&with, Some(large)).0, 6);
}

#[test]
fn quotas_that_hashed_names_make_useless_are_named() {
    let leases = [(0, MINUTE)];
    let mut spec = spec(|_| {});
    let whose = Whose::Principal("token:ci".into());
    let (waiting, cores, memory_mb, disk_gb) = (None, None, None, None);
    spec.leases.quotas.push(Quota { whose, leases: Some(1), waiting, cores, memory_mb, disk_gb });
    let mut trace = trace(&leases, 60);
    for (names, is_said) in [(true, false), (false, true)] {
        trace.header.names = names;
        let (played, _) = played(&trace, &spec);
        let said = played.notes.iter().any(|note| note.contains("drover trace --names"));
        assert_eq!(said, is_said, "{:?}", played.notes);
    }
}
