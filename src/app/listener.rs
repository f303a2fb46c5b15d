//! Facts on their way to the view, and the lines of the log that operators want to read of them.

use std::sync::Arc;

use drover_model::fact::{AgentPicture, Fact, LeasePicture, What};
use drover_model::id::TemplateId;
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use drover_model::ports::Observer;
use drover_model::record::Reason;
use drover_shell::user_data::UserDataStore;
use tokio::runtime::Handle;

use super::parts::Ways;
use drover_server::view::View;

/// Takes facts for the view, logs those an operator wants to read, and forgets clouds and user data
/// whose time is over.
pub struct Listener {
    view: Arc<View>,
    ways: Arc<Ways>,
    user_data: Arc<UserDataStore>,
    runtime: Handle,
}

impl Listener {
    /// Listens for all of them; files are removed on `runtime`.
    pub fn new(
        view: Arc<View>,
        ways: Arc<Ways>,
        user_data: Arc<UserDataStore>,
        runtime: Handle,
    ) -> Self {
        Self { view, ways, user_data, runtime }
    }

    /// What a lease brought goes when it ends.
    fn look_after(&self, lease: &LeasePicture) {
        if lease.state == LeasePhase::Ended && self.user_data.holds(&lease.lease) {
            let (store, lease) = (Arc::clone(&self.user_data), lease.lease.clone());
            self.runtime.spawn_blocking(move || store.forget(&lease));
        }
    }
}

impl Observer for Listener {
    fn observe(&self, fact: Fact) {
        log(&self.view, &fact.what);
        if let What::CloudGone { cloud } = &fact.what {
            self.ways.forget(cloud);
        }
        if let What::SourceGone { source } = &fact.what {
            self.ways.forget_source(source);
        }
        if let What::Lease(lease) = &fact.what {
            self.look_after(lease);
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
        What::Lease(picture) => lease(view, picture),
        What::Template { template, breaker, tripped, .. } => {
            let cause = tripped.as_ref().map(|(_, cause)| cause.as_str()).unwrap_or_default();
            breaker_moved(view, template, *breaker, cause);
        }
        What::Breaker { scope, breaker, tripped, .. } => {
            let cause = tripped.as_ref().map(|(_, cause)| cause.as_str());
            tracing::warn!(%scope, breaker = breaker.name(), cause, "breaker stands");
        }
        What::Cloud { cloud, health, detail, .. } => {
            // Counts change with every agent; only its health is worth a line.
            let known = view.clouds().into_iter().find(|known| known.cloud == *cloud);
            let detail = Some(&**detail).filter(|text| !text.is_empty());
            let moved = known.is_none_or(|old| old.health != *health);
            let (is_degraded, health) = (*health == CloudHealth::Degraded, health.name());
            match (moved, is_degraded) {
                (true, true) => tracing::warn!(%cloud, health, detail, "cloud's health changed"),
                (true, false) => tracing::info!(%cloud, health, detail, "cloud's health changed"),
                // How it cannot be reached changes from try to try.
                (false, _) => tracing::debug!(%cloud, health, detail, "cloud's health told again"),
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
        // The agents log their own moves.
        What::Step { agent, template, step, ms, exit, log } => {
            tracing::info!(%agent, %template, step, ms, exit, "step ended");
            tracing::debug!(%agent, step, log, "step said");
        }
        What::Agent(picture) => agent(view, picture),
        // The watch has logged the faults, each with its place.
        What::ConfigRefused { .. }
        | What::Source(_)
        | What::JobLost { .. }
        | What::TemplateGone { .. }
        | What::Resets { .. }
        | What::HoldNext { .. } => {}
    }
}

/// What an agent waits for; its moves are logged where they are made, and its steps when they end.
fn agent(view: &View, picture: &AgentPicture) {
    let (agent, state, reason) = (&picture.agent, picture.state, &picture.detail);
    if reason.is_empty() || state == AgentPhase::Preparing {
        return;
    }
    let known = view.agent(agent);
    if known.is_some_and(|old| old.state == state && old.detail != *reason) {
        let (template, state) = (&picture.template, state.name());
        tracing::info!(%agent, %template, state, reason, "agent waits");
    }
}

/// Why a lease waits changes with every agent, for each lease that waits: no move, and no line.
fn lease(view: &View, picture: &LeasePicture) {
    let (lease, state) = (&picture.lease, picture.state.name());
    let reason = reason_of(picture);
    let agent = picture.agent.as_ref().map(tracing::field::display);
    if view.lease(lease).is_some_and(|old| old.state == picture.state && old.agent == picture.agent)
    {
        tracing::debug!(%lease, state, agent, reason, "lease told anew");
    } else {
        tracing::info!(%lease, state, agent, reason, "lease moved");
    }
}

/// Why a lease is where it is; every line of it says that.
fn reason_of(picture: &LeasePicture) -> &str {
    match (&*picture.detail, picture.state) {
        ("", LeasePhase::Granted) => "an agent is free",
        ("", LeasePhase::Ready) if picture.principal.starts_with("source:") => {
            "its runner is begun"
        }
        ("", LeasePhase::Ready) => "its agent can be used",
        ("", LeasePhase::Waiting | LeasePhase::Ended) => "not told",
        (detail, _) => detail,
    }
}

fn breaker_moved(view: &View, template: &TemplateId, breaker: BreakerPhase, cause: &str) {
    let known = view.template(template);
    if known.map_or(BreakerPhase::Closed, |known| known.breaker) == breaker {
        return;
    }
    let (is_open, breaker) = (breaker == BreakerPhase::Open, breaker.name());
    if is_open {
        tracing::warn!(%template, breaker, cause, "breaker moved");
    } else {
        tracing::info!(%template, breaker, "breaker moved");
    }
}

#[cfg(test)]
mod tests {
    use drover_server::testing;

    use super::*;

    // Invariant: the line of a lease's move says why it moved, whatever is told with it.

    #[test]
    fn every_move_of_a_lease_has_a_reason() {
        for (state, detail, reason) in [
            (LeasePhase::Waiting, "no agent is free", "no agent is free"),
            (LeasePhase::Granted, "", "an agent is free"),
            (LeasePhase::Ready, "", "its agent can be used"),
            (LeasePhase::Ready, "its guest does not answer", "its guest does not answer"),
            (LeasePhase::Ended, "released", "released"),
        ] {
            assert_eq!(reason_of(&testing::lease("l1", state, None, detail)), reason);
        }
        let lease = testing::lease("l2", LeasePhase::Ready, None, "");
        let lease = LeasePicture { principal: "source:git".into(), ..lease };
        assert_eq!(reason_of(&lease), "its runner is begun");
    }
}
