use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn want(node: &str, kind: Kind) -> Want {
    let node = (!node.is_empty()).then(|| NodeName::new(node));
    Want { endpoint: "pve1:8006".into(), node, kind, class: "config".into() }
}

fn level(traffic: &Traffic, place: &str, now: Moment) -> Level {
    traffic.levels(now).into_iter().find(|level| level.place == place).unwrap()
}

/// Asks for so many calls of a kind on a node.
fn ask(traffic: &mut Traffic, count: usize, node: &str, kind: Kind) -> Vec<Ticket> {
    (0..count).filter_map(|_| traffic.ask(want(node, kind))).collect()
}

/// A node with so many workers, each read 25 ms: plays this many reads that all wait from the
/// beginning, and gives the limit the node had at the end and how long it took.
fn play(workers: usize, reads: usize) -> (u32, Duration) {
    let mut traffic = Traffic::default();
    ask(&mut traffic, reads, "pve2", Kind::Read);
    let (mut now, mut free) = (0_u64, vec![0_u64; workers]);
    let mut ends: Vec<(u64, Ticket)> = Vec::new();
    let mut last = 0;
    loop {
        for ticket in traffic.admit(Moment(now)) {
            let worker = free.iter_mut().min().unwrap();
            *worker = (*worker).max(now) + 25;
            ends.push((*worker, ticket));
        }
        ends.sort();
        if ends.is_empty() {
            return (last, Duration::from_millis(now));
        }
        let (at, ticket) = ends.remove(0);
        now = at;
        last = level(&traffic, "pve2", Moment(now)).limit;
        traffic.end(ticket, CallEnd::Answered, Moment(now));
    }
}

// Invariant: no more calls run at once than a node handles, whatever is asked for.

#[test]
fn six_hundred_reads_of_three_nodes_begin_three_at_a_time_on_each() {
    let mut traffic = Traffic::default();
    for node in ["pve1", "pve2", "pve3"] {
        ask(&mut traffic, 200, node, Kind::Read);
    }
    assert_eq!(traffic.admit(Moment(0)).len(), 6);
    let running = |node| level(&traffic, node, Moment(0)).running;
    assert_eq!(["pve1", "pve2", "pve3"].map(running), [2, 2, 2]);
    assert_eq!(level(&traffic, "pve1:8006", Moment(0)).waiting, 594);
}

#[test]
fn two_questions_to_guest_agents_run_on_a_node_at_a_time() {
    let mut traffic = Traffic::default();
    ask(&mut traffic, 5, "pve1", Kind::Agent);
    ask(&mut traffic, 5, "pve2", Kind::Agent);
    let first = traffic.admit(Moment(0));
    assert_eq!(first.len(), 4);
    traffic.end(first[0], CallEnd::Answered, Moment(3_000));
    assert_eq!(traffic.admit(Moment(3_000)).len(), 1);
}

// Invariant: no kind starves.

#[test]
fn vital_calls_run_beside_whatever_fills_the_limits() {
    let mut traffic = Traffic::default();
    ask(&mut traffic, 500, "pve1", Kind::Change);
    ask(&mut traffic, 500, "", Kind::Read);
    traffic.admit(Moment(0));
    let vital = ask(&mut traffic, 1, "pve1", Kind::Vital);
    assert_eq!(traffic.admit(Moment(1)), vital);
}

#[test]
fn changes_go_before_reads_and_every_kind_has_its_share() {
    let mut traffic = Traffic::default();
    let agents = ask(&mut traffic, 40, "pve1", Kind::Agent);
    let reads = ask(&mut traffic, 40, "pve1", Kind::Read);
    let changes = ask(&mut traffic, 40, "pve1", Kind::Change);
    let mut order = Vec::new();
    while order.len() < 40 {
        for ticket in traffic.admit(Moment(0)) {
            order.push(ticket);
            traffic.end(ticket, CallEnd::Void, Moment(0));
        }
    }
    assert!(changes.contains(&order[0]) && changes.contains(&order[1]));
    let share = |of: &[Ticket]| order[..40].iter().filter(|ticket| of.contains(ticket)).count();
    assert_eq!((share(&changes), share(&reads), share(&agents)), (25, 10, 5));
}

#[test]
fn a_node_that_is_full_holds_up_no_other() {
    let mut traffic = Traffic::default();
    ask(&mut traffic, 100, "pve1", Kind::Read);
    assert_eq!(traffic.admit(Moment(0)).len(), 3);
    let other = ask(&mut traffic, 1, "pve2", Kind::Read);
    assert_eq!(traffic.admit(Moment(0)), other);
}

// Invariant: limits find what a place bears.

#[test]
fn a_limit_grows_to_what_the_workers_of_a_node_serve_and_no_further() {
    let (three, took) = play(3, 3_000);
    assert!((4..=5).contains(&three), "{three}");
    assert!(took <= Duration::from_secs(26), "{took:?}");
    let (eight, took) = play(8, 3_000);
    assert!((9..=12).contains(&eight), "{eight}");
    assert!(took <= Duration::from_secs(13), "{took:?}");
}

#[test]
fn timeouts_of_a_node_halve_its_limit_once_and_leave_others_alone() {
    let mut traffic = Traffic::default();
    ask(&mut traffic, 3, "pve1", Kind::Change);
    ask(&mut traffic, 1, "pve2", Kind::Change);
    for ticket in traffic.admit(Moment(0)) {
        traffic.end(ticket, CallEnd::NodeBusy, Moment(30_000));
    }
    assert_eq!(level(&traffic, "pve1", Moment(30_000)).limit, 1);
    assert_eq!(level(&traffic, "pve1:8006", Moment(30_000)).limit, 6);
    let silent = ask(&mut traffic, 1, "", Kind::Read);
    traffic.admit(Moment(30_000));
    traffic.end(silent[0], CallEnd::Silent, Moment(90_000));
    assert_eq!(level(&traffic, "pve1:8006", Moment(90_000)).limit, 3);
}

#[test]
fn too_many_that_wait_are_refused_and_vital_calls_are_not() {
    let mut traffic = Traffic::default();
    assert_eq!(ask(&mut traffic, 5_000, "pve1", Kind::Read).len(), WAITING);
    assert_eq!(ask(&mut traffic, 1, "", Kind::Vital).len(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Ask(usize, Kind),
    Admit,
    End(usize, CallEnd),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let kind =
        prop_oneof![Just(Kind::Vital), Just(Kind::Change), Just(Kind::Read), Just(Kind::Agent)];
    let end = prop_oneof![
        4 => Just(CallEnd::Answered),
        1 => Just(CallEnd::NodeBusy),
        1 => Just(CallEnd::Silent),
        1 => Just(CallEnd::Void)
    ];
    prop_oneof![
        4 => (0..4_usize, kind).prop_map(|(node, kind)| Step::Ask(node, kind)),
        3 => Just(Step::Admit),
        3 => (any::<prop::sample::Index>(), end).prop_map(|(at, end)| Step::End(at.index(64), end)),
        1 => (0..20_000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn limits_hold_nothing_is_lost_and_everything_has_its_turn(
        steps in prop::collection::vec(step(), 1..200)
    ) {
        let nodes = ["", "pve1", "pve2", "pve3"];
        let mut traffic = Traffic::default();
        let (mut now, mut waiting, mut running) = (0, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Ask(node, kind) => {
                    let want = want(nodes[node], kind);
                    waiting.push((traffic.ask(want.clone()).unwrap(), want));
                }
                Step::Admit => {
                    for ticket in traffic.admit(Moment(now)) {
                        let at = waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                        running.push(waiting.remove(at));
                    }
                    for node in &nodes[1..] {
                        let here = |kind| {
                            let name = NodeName::new(*node);
                            running
                                .iter()
                                .filter(|(_, want)| want.node.as_ref() == Some(&name))
                                .filter(|(_, want)| kind == want.kind)
                                .count()
                        };
                        prop_assert!(here(Kind::Agent) <= AGENTS as usize);
                        let most = (NODE.most + VITAL) as usize;
                        prop_assert!(here(Kind::Read) + here(Kind::Change) <= most);
                    }
                    let vital = running.iter().filter(|(_, want)| want.kind == Kind::Vital);
                    prop_assert!(vital.count() <= VITAL as usize);
                }
                // Whether it runs or waits.
                Step::End(at, end) => {
                    let list = if at % 4 == 0 || running.is_empty() { &mut waiting } else { &mut running };
                    if !list.is_empty() {
                        let (ticket, _) = list.remove(at % list.len());
                        traffic.end(ticket, end, Moment(now));
                    }
                }
                Step::Wait(ms) => now += ms,
            }
        }
        for _ in 0..1_000 {
            for (ticket, _) in running.drain(..) {
                traffic.end(ticket, CallEnd::Answered, Moment(now));
            }
            for ticket in traffic.admit(Moment(now)) {
                let at = waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                running.push(waiting.remove(at));
            }
        }
        prop_assert!(waiting.is_empty() && running.is_empty());
        for level in traffic.levels(Moment(now)) {
            prop_assert_eq!((level.running, level.waiting), (0, 0), "{}", level.place);
        }
    }
}
