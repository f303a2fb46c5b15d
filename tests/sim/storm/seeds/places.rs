//! What a storm's eye has seen of the breakers of nodes, storages and clouds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{AgentId, NodeName};
use drover_model::journal_state::JournalState;
use drover_model::marks::Marks;
use drover_model::place::Place;
use drover_model::scope::Scope;
use drover_model::spec::TemplateSpec;
use drover_model::time::WallTime;

/// A breaker that does not flow.
#[derive(Debug)]
struct Trip {
    /// When it was seen to be so.
    since: Duration,
    until: WallTime,
    trials: BTreeSet<AgentId>,
}

/// All of them, and when agents were started: one from before a trip may be cloned after it.
#[derive(Debug, Default)]
pub(super) struct Places {
    trips: BTreeMap<Scope, Trip>,
    born: BTreeMap<AgentId, Duration>,
}

impl Places {
    /// What a start reads in the journal.
    pub(super) fn restored(&mut self, journal_state: &JournalState, now: Duration) {
        self.trips.clear();
        for (scope, (_, entry)) in &journal_state.places {
            self.moved(scope, entry.until, now);
        }
    }

    /// When each breaker lets agents try again.
    pub(super) fn times(&mut self) -> impl Iterator<Item = &mut WallTime> {
        self.trips.values_mut().map(|trip| &mut trip.until)
    }

    /// A record of a breaker.
    pub(super) fn moved(&mut self, scope: &Scope, until: Option<WallTime>, now: Duration) {
        match until {
            Some(until) => {
                let trip = Trip { since: now, until, trials: BTreeSet::new() };
                self.trips.insert(scope.clone(), trip);
            }
            None => drop(self.trips.remove(scope)),
        }
    }

    /// An agent is started, its place not chosen yet.
    pub(super) fn born(&mut self, agent: &AgentId, now: Duration) {
        self.born.insert(agent.clone(), now);
    }

    /// An agent reports where it is, or nothing any more.
    pub(super) fn reported(&mut self, agent: &AgentId) {
        for trip in self.trips.values_mut() {
            trip.trials.remove(agent);
        }
    }

    /// A clone is intended; says what is wrong with that.
    pub(super) fn cloned(
        &mut self,
        marks: &Marks,
        node: &NodeName,
        spec: &TemplateSpec,
        wall: WallTime,
    ) -> Option<String> {
        let place = Place {
            cluster: marks.cluster.clone(),
            vmid: marks.vmid,
            node: node.clone(),
            origin: spec.origin.clone(),
            source: None,
        };
        let born = self.born.get(&marks.agent)?;
        let mut wrong = None;
        for scope in Scope::used(&place, &spec.id.cloud) {
            let Some(trip) = self.trips.get_mut(&scope).filter(|trip| *born > trip.since) else {
                continue;
            };
            trip.trials.insert(marks.agent.clone());
            let (early, trials) = (wall < trip.until, trip.trials.len());
            if early || trials > 1 {
                wrong = Some(format!("{scope}: early {early}, trials under way {trials}"));
            }
        }
        wrong
    }
}
