//! Passes the facts of the actors to the view, and logs those that operators want to read.

use std::sync::Arc;

use drover_model::fact::{Fact, What};
use drover_model::noted::Noted;
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use drover_model::ports::Observer;
use drover_model::record::Reason;
use drover_model::status::{AgentStatus, BreakerStatus, CloudStatus, LeaseStatus, TemplateStatus};
use drover_model::time::WallTime;
use drover_shell::user_data::UserDataStore;
use tokio::runtime::Handle;

use super::black_box::BlackBoxes;
use super::connections::Connections;
use super::history::History;
use super::service::Records;
use super::spans::Spans;
use drover_server::view::View;

/// Observes all facts: it updates the view, writes the log, and removes connections and user data
/// that are not needed any more.
pub struct ServiceObserver {
    view: Arc<View>,
    connections: Arc<Connections>,
    user_data: Arc<UserDataStore>,
    black_boxes: Arc<BlackBoxes>,
    history: Arc<History>,
    spans: Arc<Spans>,
    runtime: Handle,
}

impl ServiceObserver {
    /// An observer that removes files on `runtime`.
    pub fn new(
        records: &Records,
        connections: Arc<Connections>,
        user_data: Arc<UserDataStore>,
        runtime: Handle,
    ) -> Self {
        Self {
            view: Arc::clone(&records.view),
            connections,
            user_data,
            black_boxes: Arc::clone(&records.black_boxes),
            history: Arc::clone(&records.history),
            spans: Arc::clone(&records.spans),
            runtime,
        }
    }

    /// Removes the user data of a lease that has ended.
    fn forget_user_data(&self, lease: &LeaseStatus) {
        if lease.state == LeasePhase::Ended && self.user_data.holds(&lease.lease) {
            let (store, lease) = (Arc::clone(&self.user_data), lease.lease.clone());
            self.runtime.spawn_blocking(move || store.forget(&lease));
        }
    }
}

impl Observer for ServiceObserver {
    fn observe(&self, fact: Fact) {
        if !self.view.is_history(&fact) {
            log(&self.view, &fact.what);
        }
        if let What::CloudGone { cloud } = &fact.what {
            self.connections.close_cloud(cloud);
        }
        if let What::SourceGone { source } = &fact.what {
            self.connections.close_source(source);
        }
        if let What::Lease(lease) = &fact.what {
            self.forget_user_data(lease);
        }
        self.black_boxes.observe(&fact);
        self.history.observe(&fact);
        self.spans.observe(&fact);
        self.view.observe(fact);
    }

    fn note(&self, at: WallTime, noted: Noted) {
        self.spans.note(&noted);
        self.history.note(at, noted);
    }
}

fn log(view: &View, what: &What) {
    match what {
        What::AgentGone { agent, reason: reason @ Reason::Failed { .. }, .. } => {
            tracing::warn!(%agent, reason = reason.to_string(), "agent gone");
        }
        What::AgentGone { agent, reason, .. } => {
            tracing::info!(%agent, reason = reason.to_string(), "agent gone");
        }
        What::Alarm { agent, text, command } => {
            tracing::error!(%agent, text, command, "agent needs an administrator");
        }
        What::Lease(status) => log_lease(view, status),
        What::Template(status) => log_template(view, status),
        What::Breaker(status) => {
            let BreakerStatus { scope, breaker, tripped, template: _ } = &**status;
            let cause = tripped.as_ref().map(|(_, cause)| cause.as_str());
            tracing::warn!(%scope, breaker = breaker.name(), cause, "breaker changed");
        }
        What::Cloud(status) => log_cloud(view, status),
        What::ConfigApplied { generation, .. } => {
            tracing::info!(generation = generation.0, "configuration in force");
        }
        What::Reconciled { cluster, unread: Some(why), .. } => {
            tracing::info!(%cluster, why, "cluster not reconciled: it could not be read");
        }
        What::Reconciled { cluster, findings, unread: None } => {
            tracing::info!(%cluster, findings = findings.len(), "cluster reconciled");
        }
        What::Restarted { actor, count, gave_up } => {
            tracing::error!(actor, count, gave_up, "actor restarted");
        }
        What::AddressPools { pools } => {
            for pool in pools.iter().filter(|pool| pool.free == 0) {
                tracing::debug!(pool = %pool.pool, used = pool.used, "address pool is used up");
            }
        }
        What::SourceGone { source } => tracing::info!(%source, "source gone"),
        What::CloudGone { cloud } => tracing::info!(%cloud, "cloud gone"),
        What::Step { agent, template, step, ms, exit, log } => {
            tracing::info!(%agent, %template, step, ms, exit, "step ended");
            tracing::debug!(%agent, step, log, "output of the step");
        }
        What::Agent(status) => log_agent(view, status),
        // Who saw them has logged them.
        What::OtherDrover { .. }
        | What::ConfigSynced { .. }
        | What::ConfigNotSynced { .. }
        | What::Ordered { .. }
        // The configuration's watch has logged the faults with their places.
        | What::ConfigRefused { .. }
        | What::Source(_)
        // A build logs its own moves.
        | What::Image(_)
        // So does the keeper of a declared machine.
        | What::Declared(_)
        | What::JobLost { .. }
        | What::TemplateGone { .. }
        | What::Resets { .. }
        | What::HoldNext { .. } => {}
    }
}

/// Logs a change of a cloud's health. The counts change with each agent, which is not logged.
fn log_cloud(view: &View, status: &CloudStatus) {
    let known = view.clouds().into_iter().find(|known| known.cloud == status.cloud);
    let changed = known.is_none_or(|old| old.health != status.health);
    let (cloud, health) = (&status.cloud, status.health.name());
    let detail = Some(&*status.detail).filter(|text| !text.is_empty());
    match (changed, status.health == CloudHealth::Degraded) {
        (true, true) => tracing::warn!(%cloud, health, detail, "cloud's health changed"),
        (true, false) => tracing::info!(%cloud, health, detail, "cloud's health changed"),
        // The error text can change at each attempt.
        (false, _) => tracing::debug!(%cloud, health, detail, "cloud's health unchanged"),
    }
}

/// Logs what an agent waits for. The agents log their own changes of state, and their steps at
/// their end.
fn log_agent(view: &View, status: &AgentStatus) {
    let (agent, phase, reason) = (&status.agent, status.phase, &status.detail);
    if reason.is_empty() || phase == AgentPhase::Preparing {
        return;
    }
    let known = view.agent(agent);
    if known.is_some_and(|old| old.phase == phase && old.detail != *reason) {
        let (template, state) = (&status.template, phase.name());
        tracing::info!(%agent, %template, state, reason, "agent waits");
    }
}

/// Logs a change of a lease. The reason of a waiting lease changes with each agent, which is not
/// logged.
fn log_lease(view: &View, status: &LeaseStatus) {
    let (lease, state) = (&status.lease, status.state.name());
    let reason = reason_of(status);
    let agent = status.agent.as_ref().map(tracing::field::display);
    if view.lease(lease).is_some_and(|old| old.state == status.state && old.agent == status.agent) {
        tracing::debug!(%lease, state, agent, reason, "lease unchanged");
    } else {
        tracing::info!(%lease, state, agent, reason, "lease changed");
    }
}

/// The reason of a lease's state, for each line of the log.
fn reason_of(status: &LeaseStatus) -> &str {
    match (&*status.detail, status.state) {
        ("", LeasePhase::Granted) => "an agent is free",
        ("", LeasePhase::Ready) if status.source().is_some() => "its runner was started",
        ("", LeasePhase::Ready) => "its agent is ready",
        ("", LeasePhase::Waiting | LeasePhase::Ended) => "unknown",
        (detail, _) => detail,
    }
}

/// Logs a change of a template's breaker.
fn log_template(view: &View, status: &TemplateStatus) {
    let template = &status.template;
    let known = view.template(template);
    if known.map_or(BreakerPhase::Closed, |known| known.breaker) == status.breaker {
        return;
    }
    let breaker = status.breaker.name();
    if status.breaker == BreakerPhase::Open {
        let cause = status.tripped.as_ref().map_or("", |(_, cause)| cause);
        tracing::warn!(%template, breaker, cause, "breaker changed");
    } else {
        tracing::info!(%template, breaker, "breaker changed");
    }
}

#[cfg(test)]
mod tests {
    use drover_server::testing;

    use super::*;

    // Invariant: the log line of a lease's change has a reason, whatever the fact says.

    #[test]
    fn every_change_of_a_lease_has_a_reason() {
        for (state, detail, reason) in [
            (LeasePhase::Waiting, "no agent is free", "no agent is free"),
            (LeasePhase::Granted, "", "an agent is free"),
            (LeasePhase::Ready, "", "its agent is ready"),
            (LeasePhase::Ready, "its guest does not answer", "its guest does not answer"),
            (LeasePhase::Ended, "released", "released"),
        ] {
            assert_eq!(reason_of(&testing::lease("l1", state, None, detail)), reason);
        }
        let lease = testing::lease("l2", LeasePhase::Ready, None, "");
        let lease = LeaseStatus { principal: "source:git".into(), ..lease };
        assert_eq!(reason_of(&lease), "its runner was started");
    }
}
