use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn request(node: &str, purpose: CallPurpose) -> CallRequest {
    let node = (!node.is_empty()).then(|| NodeName::new(node));
    CallRequest { endpoint: "pve1:8006".into(), node, purpose, class: "config".into() }
}

fn load(queue: &CallQueue, place: &str, now: Moment) -> CallLoad {
    queue.loads(now).into_iter().find(|load| load.place == place).unwrap()
}

/// Enqueues `count` calls for a purpose on a node.
fn enqueue(
    queue: &mut CallQueue,
    count: usize,
    node: &str,
    purpose: CallPurpose,
) -> Vec<CallTicket> {
    (0..count).filter_map(|_| queue.enqueue(request(node, purpose))).collect()
}

/// Plays `reads` reads of 25 ms each, which all wait from the start, on a node with `workers`
/// workers. Returns the node's last limit and the total time.
fn play(workers: usize, reads: usize) -> (u32, Duration) {
    let mut queue = CallQueue::default();
    enqueue(&mut queue, reads, "pve2", CallPurpose::Read);
    let (mut now, mut free) = (0_u64, vec![0_u64; workers]);
    let mut ends: Vec<(u64, CallTicket)> = Vec::new();
    let mut last = 0;
    loop {
        for ticket in queue.admit(Moment(now)) {
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
        last = load(&queue, "pve2", Moment(now)).limit;
        queue.end(ticket, CallEnd::Answered, Moment(now));
    }
}

// Invariant: no more calls run at once than a node handles, however many are asked for.

#[test]
fn six_hundred_reads_of_three_nodes_begin_three_at_a_time_on_each() {
    let mut queue = CallQueue::default();
    for node in ["pve1", "pve2", "pve3"] {
        enqueue(&mut queue, 200, node, CallPurpose::Read);
    }
    assert_eq!(queue.admit(Moment(0)).len(), 6);
    let running = |node| load(&queue, node, Moment(0)).running;
    assert_eq!(["pve1", "pve2", "pve3"].map(running), [2, 2, 2]);
    assert_eq!(load(&queue, "pve1:8006", Moment(0)).waiting, 594);
}

#[test]
fn two_questions_to_guest_agents_run_on_a_node_at_a_time() {
    let mut queue = CallQueue::default();
    enqueue(&mut queue, 5, "pve1", CallPurpose::Agent);
    enqueue(&mut queue, 5, "pve2", CallPurpose::Agent);
    let first = queue.admit(Moment(0));
    assert_eq!(first.len(), 4);
    queue.end(first[0], CallEnd::Answered, Moment(3_000));
    assert_eq!(queue.admit(Moment(3_000)).len(), 1);
}

// Invariant: calls for every purpose get their share.

#[test]
fn vital_calls_run_beside_whatever_fills_the_limits() {
    let mut queue = CallQueue::default();
    enqueue(&mut queue, 500, "pve1", CallPurpose::Change);
    enqueue(&mut queue, 500, "", CallPurpose::Read);
    queue.admit(Moment(0));
    let vital = enqueue(&mut queue, 1, "pve1", CallPurpose::Vital);
    assert_eq!(queue.admit(Moment(1)), vital);
}

#[test]
fn changes_go_before_reads_and_every_kind_has_its_share() {
    let mut queue = CallQueue::default();
    let agents = enqueue(&mut queue, 40, "pve1", CallPurpose::Agent);
    let reads = enqueue(&mut queue, 40, "pve1", CallPurpose::Read);
    let changes = enqueue(&mut queue, 40, "pve1", CallPurpose::Change);
    let mut order = Vec::new();
    while order.len() < 40 {
        for ticket in queue.admit(Moment(0)) {
            order.push(ticket);
            queue.end(ticket, CallEnd::Inconclusive, Moment(0));
        }
    }
    assert!(changes.contains(&order[0]) && changes.contains(&order[1]));
    let share = |of: &[CallTicket]| order[..40].iter().filter(|ticket| of.contains(ticket)).count();
    assert_eq!((share(&changes), share(&reads), share(&agents)), (25, 10, 5));
}

#[test]
fn a_node_that_is_full_holds_up_no_other() {
    let mut queue = CallQueue::default();
    enqueue(&mut queue, 100, "pve1", CallPurpose::Read);
    assert_eq!(queue.admit(Moment(0)).len(), 3);
    let other = enqueue(&mut queue, 1, "pve2", CallPurpose::Read);
    assert_eq!(queue.admit(Moment(0)), other);
}

// Invariant: limits find how many calls a place can handle.

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
    let mut queue = CallQueue::default();
    enqueue(&mut queue, 3, "pve1", CallPurpose::Change);
    enqueue(&mut queue, 1, "pve2", CallPurpose::Change);
    for ticket in queue.admit(Moment(0)) {
        queue.end(ticket, CallEnd::NodeBusy, Moment(30_000));
    }
    assert_eq!(load(&queue, "pve1", Moment(30_000)).limit, 1);
    assert_eq!(load(&queue, "pve1:8006", Moment(30_000)).limit, 6);
    let silent = enqueue(&mut queue, 1, "", CallPurpose::Read);
    queue.admit(Moment(30_000));
    queue.end(silent[0], CallEnd::Silent, Moment(90_000));
    assert_eq!(load(&queue, "pve1:8006", Moment(90_000)).limit, 3);
}

#[test]
fn too_many_that_wait_are_refused_and_vital_calls_are_not() {
    let mut queue = CallQueue::default();
    assert_eq!(enqueue(&mut queue, 5_000, "pve1", CallPurpose::Read).len(), WAITING_CALLS_MAX);
    assert_eq!(enqueue(&mut queue, 1, "", CallPurpose::Vital).len(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Ask(usize, CallPurpose),
    Admit,
    End(usize, CallEnd),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let purpose = prop_oneof![
        Just(CallPurpose::Vital),
        Just(CallPurpose::Change),
        Just(CallPurpose::Read),
        Just(CallPurpose::Agent)
    ];
    let end = prop_oneof![
        4 => Just(CallEnd::Answered),
        1 => Just(CallEnd::NodeBusy),
        1 => Just(CallEnd::Silent),
        1 => Just(CallEnd::Inconclusive)
    ];
    prop_oneof![
        4 => (0..4_usize, purpose).prop_map(|(node, purpose)| Step::Ask(node, purpose)),
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
        let mut queue = CallQueue::default();
        let (mut now, mut waiting, mut running) = (0, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Ask(node, purpose) => {
                    let request = request(nodes[node], purpose);
                    waiting.push((queue.enqueue(request.clone()).unwrap(), request));
                }
                Step::Admit => {
                    for ticket in queue.admit(Moment(now)) {
                        let at = waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                        running.push(waiting.remove(at));
                    }
                    for node in &nodes[1..] {
                        let here = |purpose| {
                            let name = NodeName::new(*node);
                            running
                                .iter()
                                .filter(|(_, request)| request.node.as_ref() == Some(&name))
                                .filter(|(_, request)| purpose == request.purpose)
                                .count()
                        };
                        prop_assert!(here(CallPurpose::Agent) <= AGENT_CALLS_MAX as usize);
                        let most = (NODE_LIMITS.most + VITAL_CALLS_MAX) as usize;
                        prop_assert!(here(CallPurpose::Read) + here(CallPurpose::Change) <= most);
                    }
                    let vital = running.iter().filter(|(_, request)| request.purpose == CallPurpose::Vital);
                    prop_assert!(vital.count() <= VITAL_CALLS_MAX as usize);
                }
                // Whether the call runs or waits.
                Step::End(at, end) => {
                    let list = if at % 4 == 0 || running.is_empty() { &mut waiting } else { &mut running };
                    if !list.is_empty() {
                        let (ticket, _) = list.remove(at % list.len());
                        queue.end(ticket, end, Moment(now));
                    }
                }
                Step::Wait(ms) => now += ms,
            }
        }
        for _ in 0..1_000 {
            for (ticket, _) in running.drain(..) {
                queue.end(ticket, CallEnd::Answered, Moment(now));
            }
            for ticket in queue.admit(Moment(now)) {
                let at = waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                running.push(waiting.remove(at));
            }
        }
        prop_assert!(waiting.is_empty() && running.is_empty());
        for load in queue.loads(Moment(now)) {
            prop_assert_eq!((load.running, load.waiting), (0, 0), "{}", load.place);
        }
    }
}
