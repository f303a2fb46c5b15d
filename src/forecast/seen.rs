//! What a replay shows: a trace of its own, by the same fold that writes the service's history.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_history::{Fold, Header, Kept, Line, Trace};
use drover_model::fact::{Fact, What};
use drover_model::id::{LeaseId, TemplateId};
use drover_model::noted::Noted;
use drover_model::phase::{BreakerPhase, LeasePhase};
use drover_model::ports::Observer;
use drover_model::time::WallTime;
use parking_lot::Mutex;
use tokio::sync::Notify;

struct State {
    fold: Fold,
    /// Records that are over.
    over: Vec<Line>,
    /// When each lease was ready.
    ready: BTreeMap<LeaseId, WallTime>,
    /// Leases that were ready since the last look.
    news: Vec<LeaseId>,
    breakers: BTreeMap<TemplateId, BreakerPhase>,
    trips: u64,
}

impl State {
    fn take(&mut self) {
        for kept in self.fold.take() {
            if let Kept::Closed(line) = kept {
                self.over.push(line);
            }
        }
    }
}

/// The observer of a replay.
#[derive(Clone)]
pub(crate) struct Seen {
    state: Arc<Mutex<State>>,
    news: Arc<Notify>,
}

impl Seen {
    /// Nothing yet; the herd starts at `wall`.
    pub(crate) fn new(wall: WallTime) -> Self {
        let state = State {
            fold: Fold::restored("replay", wall, [], wall),
            over: Vec::new(),
            ready: BTreeMap::new(),
            news: Vec::new(),
            breakers: BTreeMap::new(),
            trips: 0,
        };
        Self { state: Arc::new(Mutex::new(state)), news: Arc::default() }
    }

    /// When a lease was ready.
    pub(crate) fn ready(&self, lease: &LeaseId) -> Option<WallTime> {
        self.state.lock().ready.get(lease).copied()
    }

    /// Leases that were ready since the last call.
    pub(crate) fn take_news(&self) -> Vec<LeaseId> {
        std::mem::take(&mut self.state.lock().news)
    }

    /// Waits until there are some.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// How often breakers of templates opened.
    pub(crate) fn trips(&self) -> u64 {
        self.state.lock().trips
    }

    /// Everything so far as a trace with this header.
    pub(crate) fn trace(&self, header: Header, now: WallTime) -> Trace {
        let mut state = self.state.lock();
        state.take();
        let open = state.fold.open(now);
        let open = open.into_iter().filter_map(Kept::line);
        let lines = std::mem::take(&mut state.over).into_iter().chain(open);
        let mut trace = Trace {
            header,
            demands: Vec::new(),
            agents: Vec::new(),
            configurations: Vec::new(),
            services: Vec::new(),
            cut: None,
        };
        for line in lines {
            match line {
                Line::Demand(demand) => trace.demands.push(*demand),
                Line::Agent(agent) => trace.agents.push(*agent),
                Line::Configuration(one) => trace.configurations.push(one),
                Line::Service(one) => trace.services.push(one),
                Line::Trace(_) | Line::End(_) => {}
            }
        }
        trace.demands.sort_by(|a, b| (a.arrived, &a.id).cmp(&(b.arrived, &b.id)));
        trace.agents.sort_by(|a, b| (a.made, &a.id).cmp(&(b.made, &b.id)));
        trace
    }
}

impl Observer for Seen {
    fn observe(&self, fact: Fact) {
        let mut state = self.state.lock();
        state.fold.observe(&fact);
        state.take();
        if let What::Lease(status) = fact.what {
            if status.state == LeasePhase::Ready && !state.ready.contains_key(&status.lease) {
                state.ready.insert(status.lease.clone(), fact.at);
                state.news.push(status.lease);
                self.news.notify_one();
            }
        } else if let What::Template(status) = fact.what {
            let before = state.breakers.insert(status.template.clone(), status.breaker);
            let opened = status.breaker == BreakerPhase::Open;
            state.trips += u64::from(opened && before != Some(BreakerPhase::Open));
        }
    }

    fn note(&self, at: WallTime, noted: Noted) {
        let mut state = self.state.lock();
        state.fold.note(at, &noted);
        state.take();
    }
}
