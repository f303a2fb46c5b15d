//! Passes the facts of the actors to the view, and logs those that operators want to read.

use std::sync::Arc;

use drover_model::fact::{AgentDetail, Fact, LeaseStatus, What};
use drover_model::id::TemplateId;
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use drover_model::ports::Observer;
use drover_model::record::Reason;
use drover_shell::user_data::UserDataStore;
use tokio::runtime::Handle;

use super::connections::Connections;
use drover_server::view::View;

/// Observes all facts: it updates the view, writes the log, and removes connections and user data
/// that are not needed any more.
pub struct ServiceObserver {
    view: Arc<View>,
    connections: Arc<Connections>,
    user_data: Arc<UserDataStore>,
    runtime: Handle,
}

impl ServiceObserver {
    /// An observer that removes files on `runtime`.
    pub fn new(
        view: Arc<View>,
        connections: Arc<Connections>,
        user_data: Arc<UserDataStore>,
        runtime: Handle,
    ) -> Self {
        Self { view, connections, user_data, runtime }
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
        log(&self.view, &fact.what);
        if let What::CloudGone { cloud } = &fact.what {
            self.connections.close_cloud(cloud);
        }
        if let What::SourceGone { source } = &fact.what {
            self.connections.close_source(source);
        }
        if let What::Lease(lease) = &fact.what {
            self.forget_user_data(lease);
        }
        self.view.observe(fact);
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
        What::Template { template, breaker, tripped, .. } => {
            let cause = tripped.as_ref().map(|(_, cause)| cause.as_str()).unwrap_or_default();
            log_breaker(view, template, *breaker, cause);
        }
        What::Breaker { scope, breaker, tripped, .. } => {
            let cause = tripped.as_ref().map(|(_, cause)| cause.as_str());
            tracing::warn!(%scope, breaker = breaker.name(), cause, "breaker changed");
        }
        What::Cloud { cloud, health, detail, .. } => {
            // The counts change with each agent; only a change of the health is logged.
            let known = view.clouds().into_iter().find(|known| known.cloud == *cloud);
            let detail = Some(&**detail).filter(|text| !text.is_empty());
            let changed = known.is_none_or(|old| old.health != *health);
            let (is_degraded, health) = (*health == CloudHealth::Degraded, health.name());
            match (changed, is_degraded) {
                (true, true) => tracing::warn!(%cloud, health, detail, "cloud's health changed"),
                (true, false) => tracing::info!(%cloud, health, detail, "cloud's health changed"),
                // The error text can change at each attempt.
                (false, _) => tracing::debug!(%cloud, health, detail, "cloud's health unchanged"),
            }
        }
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
        // The configuration's watch has logged the faults with their places.
        What::ConfigRefused { .. }
        | What::Source(_)
        // A build logs its own moves.
        | What::Image(_)
        | What::JobLost { .. }
        | What::TemplateGone { .. }
        | What::Resets { .. }
        | What::HoldNext { .. } => {}
    }
}

/// Logs what an agent waits for. The agents log their own changes of state, and their steps at
/// their end.
fn log_agent(view: &View, status: &AgentDetail) {
    let (agent, state, reason) = (&status.agent, status.state, &status.detail);
    if reason.is_empty() || state == AgentPhase::Preparing {
        return;
    }
    let known = view.agent(agent);
    if known.is_some_and(|old| old.state == state && old.detail != *reason) {
        let (template, state) = (&status.template, state.name());
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
        ("", LeasePhase::Ready) if status.principal.starts_with("source:") => {
            "its runner was started"
        }
        ("", LeasePhase::Ready) => "its agent is ready",
        ("", LeasePhase::Waiting | LeasePhase::Ended) => "unknown",
        (detail, _) => detail,
    }
}

fn log_breaker(view: &View, template: &TemplateId, breaker: BreakerPhase, cause: &str) {
    let known = view.template(template);
    if known.map_or(BreakerPhase::Closed, |known| known.breaker) == breaker {
        return;
    }
    let (is_open, breaker) = (breaker == BreakerPhase::Open, breaker.name());
    if is_open {
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
