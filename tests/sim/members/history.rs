//! What callers of the members saw, and what must hold of it, whichever member answered.
//!
//! A [`History`] is a list of calls, each with when it began and what came back. Two calls are in order where one
//! came back before the other began; calls that overlap are in any order. [`History::faults`] is pure: it
//! knows nothing of members, journals or clusters, and looks at answers alone.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use drover_model::id::{AgentId, LeaseId};
use drover_model::phase::LeasePhase;

/// How long each lease lasts.
pub const LEASE: Duration = Duration::from_secs(3600);

/// A place in the order of all that callers did and saw.
type Place = usize;

/// What a caller asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A lease, under an idempotency key.
    Create(u32),
    Read(LeaseId),
    Release(LeaseId),
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The lease is taken down under this id.
    Created(LeaseId),
    /// The state of the lease, and its guest's agent.
    Seen(LeasePhase, Option<AgentId>),
    /// No such lease.
    NotFound,
    Released,
    /// Nothing was done.
    Nothing,
    /// No answer, or one that leaves open what was done.
    Unknown,
}

/// The member that answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    pub member: &'static str,
    pub term: u64,
}

/// A call that came back.
#[derive(Debug, Clone)]
struct Returned {
    place: Place,
    answer: Answer,
    by: Option<By>,
}

/// A call, which may never have come back.
#[derive(Debug, Clone)]
struct Call {
    began: Place,
    /// When it was made, in virtual time.
    at: Duration,
    ask: Ask,
    returned: Option<Returned>,
}

/// All calls of a storm, in the order in which they began.
#[derive(Debug, Default)]
pub struct History {
    calls: Vec<Call>,
    places: Place,
}

/// A lease with a guest, as one call showed it.
struct Holding<'a> {
    call: &'a Call,
    returned: Place,
    lease: &'a LeaseId,
    agent: &'a AgentId,
    ready: bool,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { began, at, ask, returned } = self;
        write!(f, "#{began} at {at:?} {ask:?}")?;
        let Some(Returned { place, answer, by }) = returned else { return write!(f, " open") };
        write!(f, " -> #{place} {answer:?}")?;
        by.map_or(Ok(()), |by| write!(f, " by {by:?}"))
    }
}

impl Call {
    fn answer(&self) -> Option<&Answer> {
        self.returned.as_ref().map(|returned| &returned.answer)
    }

    /// Whether this call came back before another one began.
    fn precedes(&self, other: &Self) -> bool {
        self.returned.as_ref().is_some_and(|returned| returned.place < other.began)
    }

    /// The lease that a call is about, as far as its caller knows.
    fn lease(&self) -> Option<&LeaseId> {
        match (&self.ask, self.answer()) {
            (Ask::Read(lease) | Ask::Release(lease), _) => Some(lease),
            (Ask::Create(_), Some(Answer::Created(lease))) => Some(lease),
            (Ask::Create(_), _) => None,
        }
    }

    /// Whether the answer says that the lease is over.
    fn says_over(&self) -> bool {
        matches!(
            self.answer(),
            Some(Answer::Released | Answer::NotFound | Answer::Seen(LeasePhase::Ended, _))
        )
    }

    /// Whether the answer says that the lease is not over.
    fn says_alive(&self) -> bool {
        matches!(self.answer(), Some(Answer::Seen(phase, _)) if *phase != LeasePhase::Ended)
    }

    fn holding(&self) -> Option<Holding<'_>> {
        let (Ask::Read(lease), Some(returned)) = (&self.ask, &self.returned) else { return None };
        let Answer::Seen(phase, Some(agent)) = &returned.answer else { return None };
        let ready = *phase == LeasePhase::Ready;
        let holds = ready || *phase == LeasePhase::Granted;
        let place = returned.place;
        holds.then_some(Holding { call: self, returned: place, lease, agent, ready })
    }
}

impl History {
    /// A call begins; gives its number.
    pub fn begin(&mut self, at: Duration, ask: Ask) -> usize {
        self.places += 1;
        self.calls.push(Call { began: self.places, at, ask, returned: None });
        self.calls.len() - 1
    }

    /// A call came back.
    pub fn end(&mut self, call: usize, answer: Answer, by: Option<By>) {
        self.places += 1;
        let returned = Returned { place: self.places, answer, by };
        assert!(self.calls[call].returned.replace(returned).is_none(), "one answer for one call");
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// How many calls came back with an answer like this.
    pub fn count(&self, like: impl Fn(&Answer) -> bool) -> usize {
        self.calls.iter().filter_map(Call::answer).filter(|answer| like(answer)).count()
    }

    /// Everything that must not be; empty where all is well.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        self.check_keys(&mut faults);
        self.check_guests(&mut faults);
        self.check_leases(&mut faults);
        self.check_terms(&mut faults);
        faults
    }

    /// A key has one lease, and a lease one key.
    fn check_keys(&self, faults: &mut Vec<String>) {
        let (mut leases, mut keys) = (BTreeMap::new(), BTreeMap::new());
        for call in &self.calls {
            let (Ask::Create(key), Some(Answer::Created(lease))) = (&call.ask, call.answer())
            else {
                continue;
            };
            let (first, owner) =
                (leases.entry(key).or_insert(lease), keys.entry(lease).or_insert(key));
            if *first != lease {
                faults.push(format!("key {key} has two leases, {first} and {lease}: {call}"));
            }
            if *owner != key {
                faults.push(format!("lease {lease} has two keys, {owner} and {key}: {call}"));
            }
        }
    }

    /// A guest has one holder at a time, and a lease that was ready keeps its guest.
    fn check_guests(&self, faults: &mut Vec<String>) {
        let all: Vec<Holding<'_>> = self.calls.iter().filter_map(Call::holding).collect();
        for one in all.iter().filter(|one| one.ready) {
            let other = |other: &&Holding<'_>| {
                let after = other.ready || one.call.precedes(other.call);
                other.lease == one.lease && other.agent != one.agent && after
            };
            if let Some(other) = all.iter().find(other) {
                faults.push(format!("a lease has two guests: {}; {}", one.call, other.call));
            }
        }
        // From when until when a lease held a guest for sure: between a read that came back and a later one that
        // began.
        let mut spans: BTreeMap<(&AgentId, &LeaseId), (Place, Place)> = BTreeMap::new();
        for one in &all {
            let span =
                spans.entry((one.agent, one.lease)).or_insert((one.returned, one.call.began));
            *span = (span.0.min(one.returned), span.1.max(one.call.began));
        }
        for ((agent, lease), (from, until)) in spans.iter().filter(|(_, span)| span.0 < span.1) {
            let others = spans.iter().filter(|((of, other), _)| of == agent && other > lease);
            for ((_, other), (began, ended)) in others {
                if began < ended && from < ended && began < until {
                    faults.push(format!(
                        "agent {agent} has two holders: {lease} from #{from} until #{until}, {other} from \
                         #{began} until #{ended}"
                    ));
                }
            }
            let within = |one: &&Holding<'_>| {
                let inside = one.call.began > *from && one.returned < *until;
                one.agent == *agent && one.lease != *lease && inside
            };
            if let Some(one) = all.iter().find(within) {
                faults.push(format!(
                    "agent {agent} has two holders: {lease} from #{from} until #{until}, and {}",
                    one.call
                ));
            }
        }
    }

    /// A lease that is over stays so, and one that was answered is over only where somebody released it or
    /// its time is up.
    fn check_leases(&self, faults: &mut Vec<String>) {
        let known: BTreeSet<&LeaseId> = self.calls.iter().filter_map(Call::lease).collect();
        for lease in known {
            let calls: Vec<&Call> =
                self.calls.iter().filter(|call| call.lease() == Some(lease)).collect();
            let created = |call: &&&Call| matches!(call.answer(), Some(Answer::Created(_)));
            let first = calls
                .iter()
                .filter(created)
                .min_by_key(|call| call.returned.as_ref().map(|returned| returned.place));
            let Some(first) = first else { continue };
            let over = calls.iter().filter(|call| call.says_over() && first.precedes(call));
            for over in over {
                let alive = calls.iter().find(|call| call.says_alive() && over.precedes(call));
                if let Some(alive) = alive {
                    faults.push(format!("a lease is alive after its end: {over}; {alive}"));
                }
                if !self.may_be_over(first, over, &calls) {
                    faults.push(format!("a lease vanished: {first}; {over}"));
                }
            }
        }
    }

    /// Whether a lease could be over when a call said so.
    fn may_be_over(&self, created: &Call, over: &Call, calls: &[&Call]) -> bool {
        let until = over.returned.as_ref().map_or(self.places, |returned| returned.place);
        let released = calls.iter().any(|call| {
            let done = call.answer() != Some(&Answer::Nothing);
            matches!(call.ask, Ask::Release(_)) && call.began < until && done
        });
        released || over.at >= created.at + LEASE
    }

    /// A term is of one member, and a leader takes down no lease after one of a later term did.
    fn check_terms(&self, faults: &mut Vec<String>) {
        let mut members = BTreeMap::new();
        let mut taken: Vec<(&Call, u64)> = Vec::new();
        for (number, call) in self.calls.iter().enumerate() {
            let Some(Returned { by: Some(by), answer, .. }) = &call.returned else { continue };
            let first = *members.entry(by.term).or_insert(by.member);
            if first != by.member {
                let (term, member) = (by.term, by.member);
                faults.push(format!("term {term} is of {first} and of {member}: {call}"));
            }
            // A lease that was asked for before is known, and its answer needs no record.
            let repeated = self.calls[..number].iter().any(|before| before.ask == call.ask);
            if matches!(answer, Answer::Created(_)) && !repeated {
                taken.push((call, by.term));
            }
        }
        for (call, term) in &taken {
            let later = |(before, other): &&(&Call, u64)| other > term && before.precedes(call);
            if let Some((before, _)) = taken.iter().find(later) {
                faults.push(format!("a former leader took a lease down: {before}; {call}"));
            }
        }
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls.iter().try_for_each(|call| writeln!(f, "{call}"))
    }
}
