//! Histories that were planted, good and bad.

use super::*;

const A: By = By { member: "a", term: 1 };
const B: By = By { member: "b", term: 2 };

fn lease(name: &str) -> LeaseId {
    LeaseId::new(name)
}

fn ready(agent: &str) -> Answer {
    Answer::Seen(LeasePhase::Ready, Some(AgentId::new(agent)))
}

fn granted(agent: &str) -> Answer {
    Answer::Seen(LeasePhase::Granted, Some(AgentId::new(agent)))
}

fn ended() -> Answer {
    Answer::Seen(LeasePhase::Ended, None)
}

/// Calls one after the other, a second apart.
#[derive(Default)]
struct Plan(History);

impl Plan {
    fn call(&mut self, ask: Ask, answer: Answer, by: By) -> &mut Self {
        let at = Duration::from_secs(self.0.len() as u64);
        let call = self.0.begin(at, ask);
        self.0.end(call, answer, Some(by));
        self
    }

    fn create(&mut self, key: u32, name: &str, by: By) -> &mut Self {
        self.call(Ask::Create(key), Answer::Created(lease(name)), by)
    }

    fn read(&mut self, name: &str, answer: Answer, by: By) -> &mut Self {
        self.call(Ask::Read(lease(name)), answer, by)
    }

    fn release(&mut self, name: &str, answer: Answer, by: By) -> &mut Self {
        self.call(Ask::Release(lease(name)), answer, by)
    }

    #[track_caller]
    fn is_good(&self) {
        assert_eq!(self.0.faults(), Vec::<String>::new(), "{}", self.0);
    }

    #[track_caller]
    fn is_bad(&self, what: &str) {
        let faults = self.0.faults();
        assert!(faults.iter().any(|fault| fault.contains(what)), "{faults:?}: {}", self.0);
    }
}

// Invariant: a history in which callers were served as by one drover is good, and any other one is bad.

#[test]
fn a_history_over_two_members_in_which_all_was_kept_is_good() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).read("l1", granted("g0"), A).read("l1", ready("g1"), A);
    plan.read("l1", ready("g1"), B).create(2, "l2", B).create(1, "l1", B);
    plan.release("l1", Answer::Nothing, B).read("l1", ready("g1"), B);
    plan.release("l1", Answer::Unknown, B).read("l1", ended(), B).read("l1", Answer::NotFound, B);
    // The guest is free for the next holder.
    plan.read("l2", ready("g1"), B).read("l2", ready("g1"), B).release("l2", Answer::Released, B);
    plan.is_good();
}

#[test]
fn a_guest_with_two_holders_at_one_time_is_found() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(2, "l2", A).read("l1", ready("g1"), A);
    plan.read("l2", ready("g1"), B).is_good();
    plan.read("l1", ready("g1"), A).is_bad("agent g1 has two holders");
}

#[test]
fn two_holders_whose_times_overlap_without_a_read_inside_the_other_are_found() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(2, "l2", A);
    let early = plan.0.begin(Duration::ZERO, Ask::Read(lease("l2")));
    plan.read("l1", ready("g1"), A);
    plan.0.end(early, ready("g1"), Some(A));
    let late = plan.0.begin(Duration::ZERO, Ask::Read(lease("l1")));
    plan.read("l2", ready("g1"), A);
    plan.0.end(late, ready("g1"), Some(A));
    plan.is_bad("agent g1 has two holders");
}

#[test]
fn reads_that_overlap_may_be_in_any_order() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(2, "l2", A).read("l1", ready("g1"), A);
    let read = plan.0.begin(Duration::ZERO, Ask::Read(lease("l1")));
    let release = plan.0.begin(Duration::ZERO, Ask::Release(lease("l1")));
    plan.0.end(release, Answer::Released, Some(A));
    plan.read("l2", ready("g1"), A);
    plan.0.end(read, ready("g1"), Some(A));
    plan.is_good();
}

#[test]
fn a_lease_with_two_guests_is_found_once_it_was_ready() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).read("l1", granted("g1"), A).read("l1", ready("g2"), A).is_good();
    plan.read("l1", granted("g3"), B).is_bad("a lease has two guests");
}

#[test]
fn a_lease_that_was_answered_as_ended_and_is_alive_later_is_found() {
    for over in [Answer::Released, ended(), Answer::NotFound] {
        let mut plan = Plan::default();
        plan.create(1, "l1", A).release("l1", Answer::Unknown, A);
        match over {
            Answer::Released => plan.release("l1", over, B),
            _ => plan.read("l1", over, B),
        };
        plan.is_good();
        plan.read("l1", ready("g1"), A).is_bad("a lease is alive after its end");
    }
}

#[test]
fn a_lease_that_was_answered_and_vanished_is_found() {
    for over in [ended(), Answer::NotFound] {
        let mut plan = Plan::default();
        plan.create(1, "l1", A).read("l1", over.clone(), B).is_bad("a lease vanished");
        let mut released = Plan::default();
        released.create(1, "l1", A).release("l1", Answer::Nothing, A).read("l1", over, B);
        released.is_bad("a lease vanished");
    }
}

#[test]
fn a_lease_whose_time_is_up_has_not_vanished() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A);
    let read = plan.0.begin(LEASE + Duration::from_secs(1), Ask::Read(lease("l1")));
    plan.0.end(read, ended(), Some(B));
    plan.is_good();
}

#[test]
fn a_lease_whose_ask_was_not_answered_may_not_be_there() {
    let mut plan = Plan::default();
    plan.call(Ask::Create(1), Answer::Unknown, A).read("l1", Answer::NotFound, B).is_good();
}

#[test]
fn a_key_with_two_leases_and_a_lease_with_two_keys_are_found() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(1, "l2", B).is_bad("key 1 has two leases");
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(2, "l1", B).is_bad("lease l1 has two keys");
}

#[test]
fn a_term_of_two_members_and_a_former_leader_that_takes_leases_down_are_found() {
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(2, "l2", By { term: 1, ..B }).is_bad("term 1 is of a and of b");
    let mut plan = Plan::default();
    plan.create(1, "l1", B).create(2, "l2", A).is_bad("a former leader took a lease down");
    let mut plan = Plan::default();
    plan.create(1, "l1", A).create(2, "l2", B).create(1, "l1", A).is_good();
}
