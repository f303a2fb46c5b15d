//! Figures that grow with what happens: histograms and counters, folded from facts.
//!
//! Durations come from the times of facts, so that they are right in virtual time, too. What no fact
//! says is reported by its owner: calls to Proxmox by their client, writes by the journal.
//!
//! Everything counts from the start of the service, as Prometheus expects. What an earlier start saw
//! of an agent or lease is in no figure: an agent counts as ready where this start saw it on its way.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use drover_model::fact::What;
use drover_model::id::{AgentId, TemplateId};
use drover_model::phase::{AgentPhase, BreakerPhase, LeasePhase};
use drover_model::scope::Scope;
use drover_model::status::{AgentStatus, LeaseStatus};
use drover_model::time::WallTime;
use prometheus_client::metrics::histogram::Histogram;
use proxmox_client::call_route::{CallOutcome, CallRoute, ROUTES};

use super::View;
use crate::metric_table::{self as table, Metric};

/// The figures of this start of the service; each has its series from the start.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    /// Seconds until agents were ready, by phase and on the whole way.
    pub(crate) ready: BTreeMap<&'static str, Histogram>,
    /// Seconds from a request until it could be used, by who waited.
    pub(crate) waits: BTreeMap<&'static str, Histogram>,
    /// Leases that could be used, by who waited and what served them.
    pub(crate) served: BTreeMap<(&'static str, &'static str), u64>,
    /// Seconds of calls to Proxmox, by route and outcome.
    pub(crate) calls: BTreeMap<(&'static str, &'static str), Histogram>,
    /// Seconds that starts and destroys waited for limits, by task.
    pub(crate) limit_waits: BTreeMap<&'static str, Histogram>,
    /// Seconds of writes to the journal.
    pub(crate) appends: Histogram,
    /// Reconciliations by result.
    pub(crate) reconciled: BTreeMap<&'static str, u64>,
    /// Breakers that opened, by what they protect.
    pub(crate) opened: BTreeMap<&'static str, u64>,
    /// Spans of traces, by what became of them.
    pub(crate) spans: BTreeMap<&'static str, u64>,
    /// Actors that were not started again.
    pub(crate) given_up: u64,
    /// Since when each live agent is ready, or was before it was in use.
    ready_since: HashMap<AgentId, WallTime>,
}

/// What becomes of spans of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanOutcome {
    /// The collector took them.
    Sent,
    /// The collector did not take them.
    Refused,
    /// They were not sent: the collector did not answer for too long, or drover stopped.
    Dropped,
}

impl SpanOutcome {
    fn name(self) -> &'static str {
        let [sent, refused, dropped] = table::SPAN_OUTCOMES;
        match self {
            Self::Sent => sent,
            Self::Refused => refused,
            Self::Dropped => dropped,
        }
    }
}

fn histogram(metric: &Metric) -> Histogram {
    Histogram::new(metric.buckets().iter().copied())
}

impl Default for Numbers {
    fn default() -> Self {
        let phases =
            table::BEFORE_READY.map(AgentPhase::name).into_iter().chain([table::WHOLE_WAY]);
        let ways = |waiter| table::SERVED_BY.map(|by| ((waiter, by), 0));
        let outcomes = |route: CallRoute| {
            CallOutcome::ALL
                .map(|outcome| ((route.name, outcome.name()), histogram(&table::PVE_REQUESTS)))
        };
        Self {
            ready: phases.map(|phase| (phase, histogram(&table::AGENT_READY_SECONDS))).collect(),
            waits: table::WAITERS
                .map(|waiter| (waiter, histogram(&table::LEASE_WAIT_SECONDS)))
                .into(),
            served: table::WAITERS.into_iter().flat_map(ways).collect(),
            calls: ROUTES.into_iter().flat_map(outcomes).collect(),
            limit_waits: table::LIMITED
                .map(|task| (task, histogram(&table::LIMIT_WAIT_SECONDS)))
                .into(),
            appends: histogram(&table::JOURNAL_APPEND_SECONDS),
            reconciled: table::RECONCILED.map(|result| (result, 0)).into(),
            opened: table::PROTECTED.map(|what| (what, 0)).into(),
            spans: table::SPAN_OUTCOMES.map(|outcome| (outcome, 0)).into(),
            given_up: 0,
            ready_since: HashMap::new(),
        }
    }
}

/// Whether a holder of the API or a job waits for a lease.
pub(crate) fn waiter(lease: &LeaseStatus) -> &'static str {
    let [holder, job] = table::WAITERS;
    if lease.source().is_some() { job } else { holder }
}

/// What a breaker of a place protects.
fn protected(scope: &Scope) -> &'static str {
    let [_, node, storage, cloud] = table::PROTECTED;
    match scope {
        Scope::Node(..) => node,
        Scope::Storage(..) => storage,
        Scope::Cloud(_) => cloud,
    }
}

/// The seconds from one time to a later one; 0 where the clock was set back meanwhile.
fn seconds_between(from: WallTime, to: WallTime) -> f64 {
    let ms = u64::try_from(to.0.saturating_sub(from.0)).unwrap_or(0);
    Duration::from_millis(ms).as_secs_f64()
}

impl Numbers {
    /// Counts an agent that became ready; `known` is the phase that it was in before.
    fn agent(&mut self, status: &AgentStatus, known: Option<AgentPhase>) {
        if status.phase != AgentPhase::Ready || known == Some(AgentPhase::Ready) {
            return;
        }
        self.ready_since.insert(status.agent.clone(), status.since);
        if known.is_some_and(|phase| table::BEFORE_READY.contains(&phase)) {
            self.way(&status.phases);
        }
    }

    /// Counts the parts of an agent's way. One that an earlier start saw in part is not counted: how
    /// long it took is not known.
    fn way(&mut self, parts: &[(String, u64)]) {
        let mut spent: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (part, ms) in parts {
            let Some(phase) = AgentPhase::of_part(part) else { return };
            if table::BEFORE_READY.contains(&phase) {
                *spent.entry(phase.name()).or_default() += ms;
            }
        }
        let whole = spent.values().sum();
        for (phase, ms) in spent.into_iter().chain([(table::WHOLE_WAY, whole)]) {
            if let Some(histogram) = self.ready.get(phase) {
                histogram.observe(Duration::from_millis(ms).as_secs_f64());
            }
        }
    }

    /// Counts a lease that can be used from `at` on.
    fn served(&mut self, lease: &LeaseStatus, asked: WallTime, at: WallTime) {
        let who = waiter(lease);
        if let Some(histogram) = self.waits.get(who) {
            histogram.observe(seconds_between(asked, at));
        }
        let [was_ready, awaited] = table::SERVED_BY;
        let since = lease.agent.as_ref().and_then(|agent| self.ready_since.get(agent));
        let by = if since.is_some_and(|since| *since <= asked) { was_ready } else { awaited };
        *self.served.entry((who, by)).or_default() += 1;
    }

    /// Counts a breaker that opened; `known` is how it was before.
    fn opened(&mut self, what: &'static str, now: BreakerPhase, known: Option<BreakerPhase>) {
        if now == BreakerPhase::Open && known != Some(BreakerPhase::Open) {
            *self.opened.entry(what).or_default() += 1;
        }
    }
}

impl View {
    /// The figures as they are now.
    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers.lock().clone()
    }

    /// Counts a call to Proxmox that took that long after it had its turn, or waited that long and was
    /// not sent.
    pub fn count_call(&self, route: CallRoute, outcome: CallOutcome, took: Duration) {
        if let Some(histogram) = self.numbers.lock().calls.get(&(route.name, outcome.name())) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// Counts a start or destroy that waited that long for the limits of its node and storages.
    pub fn count_limit_wait(&self, task: &'static str, took: Duration) {
        if let Some(histogram) = self.numbers.lock().limit_waits.get(task) {
            histogram.observe(took.as_secs_f64());
        }
    }

    /// Counts spans of traces.
    pub fn count_spans(&self, outcome: SpanOutcome, count: u64) {
        *self.numbers.lock().spans.entry(outcome.name()).or_default() += count;
    }

    /// Counts a write to the journal.
    pub fn count_append(&self, took: Duration) {
        self.numbers.lock().appends.observe(took.as_secs_f64());
    }

    /// How a breaker was before it moved. One of a place is first reported when it opens; but what is reported
    /// before the service is ready was so in an earlier start.
    fn before(&self, known: Option<BreakerPhase>) -> Option<BreakerPhase> {
        known.or_else(|| (!self.readiness().ready()).then_some(BreakerPhase::Open))
    }

    /// Counts what a fact adds; before the view itself changes by it.
    pub(super) fn count(&self, what: &What, at: WallTime) {
        match what {
            What::Agent(status) => {
                let known = self.agents.get(&status.agent).map(|known| known.phase);
                self.numbers.lock().agent(status, known);
            }
            What::AgentGone { agent, .. } => {
                self.numbers.lock().ready_since.remove(agent);
            }
            What::Lease(status) => self.count_lease(status, at),
            What::Template(status) => {
                let [template, ..] = table::PROTECTED;
                let known = self.breaker_of(&status.template);
                self.numbers.lock().opened(template, status.breaker, self.before(known));
            }
            What::Breaker(status) => {
                let known = self.places.get(&status.scope).map(|known| known.breaker);
                let what = protected(&status.scope);
                self.numbers.lock().opened(what, status.breaker, self.before(known));
            }
            What::Reconciled { findings, unread, .. } => {
                let [clean, found, failed] = table::RECONCILED;
                let result = match (unread, findings.is_empty()) {
                    (Some(_), _) => failed,
                    (None, true) => clean,
                    (None, false) => found,
                };
                *self.numbers.lock().reconciled.entry(result).or_default() += 1;
            }
            What::Restarted { gave_up, .. } => {
                self.numbers.lock().given_up += u64::from(*gave_up);
            }
            What::ConfigApplied { .. }
            | What::ConfigRefused { .. }
            | What::ConfigSynced { .. }
            | What::ConfigNotSynced { .. }
            | What::Ordered { .. }
            | What::Step { .. }
            | What::Alarm { .. }
            | What::OtherDrover { .. }
            | What::Source(_)
            | What::SourceGone { .. }
            | What::JobLost { .. }
            | What::Resets { .. }
            | What::HoldNext { .. }
            | What::TemplateGone { .. }
            | What::Cloud(_)
            | What::CloudGone { .. }
            | What::AddressPools { .. }
            | What::Image(_)
            | What::Declared(_) => {}
        }
    }

    fn breaker_of(&self, template: &TemplateId) -> Option<BreakerPhase> {
        self.templates.get(template).map(|known| known.breaker)
    }

    fn count_lease(&self, status: &LeaseStatus, at: WallTime) {
        let (LeasePhase::Ready, Some(asked)) = (status.state, status.asked) else { return };
        let known = self.leases.get(&status.lease).map(|known| known.borrow().state);
        let is_first = match known {
            Some(LeasePhase::Waiting | LeasePhase::Granted) => true,
            Some(LeasePhase::Ready | LeasePhase::Ended) => false,
            // One that the journal has was ready before this start, and counted then.
            None => self.began.get().is_none_or(|began| asked >= *began),
        };
        if is_first {
            self.numbers.lock().served(status, asked, at);
        }
    }
}
