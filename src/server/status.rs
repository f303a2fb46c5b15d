//! The whole at a glance, as one answer.

use drover_api::StatusOut;
use drover_model::phase::LeasePhase;
use drover_model::status::LeaseStatus;
use drover_model::tenant::By;

use super::alarms::{alarms, builds};
use super::breakers::breakers;
use super::drift;
use super::shapes::{Shown, agent, clouds, lease, templates};
use crate::view::View;

/// The whole view, as far as this caller may see it.
pub(super) fn status(view: &View, by: &By) -> StatusOut {
    let live = |lease: &LeaseStatus| lease.state != LeasePhase::Ended;
    let leases = view.leases();
    let leases = leases.iter().filter(|lease| live(lease)).map(|one| lease(view, one, by));
    StatusOut {
        agents: view.agents().iter().map(|one| agent(view, one, by)).collect(),
        leases: leases.collect(),
        ..glance(view)
    }
}

/// The same without agents and leases, of which there may be thousands.
pub(super) fn glance(view: &View) -> StatusOut {
    StatusOut {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: view.ready(),
        journal: view.journal_trouble(),
        config: view.config().shown(),
        sync: drift::sync(view),
        members: None,
        clouds: clouds(view),
        templates: templates(view),
        address_pools: view.address_pools().iter().map(Shown::shown).collect(),
        agents: Vec::new(),
        leases: Vec::new(),
        alarms: alarms(view),
        other_drover: view.other_drover(),
        breakers: breakers(view),
        sources: view.sources().iter().map(Shown::shown).collect(),
        lost_jobs: view.lost_jobs().iter().map(Shown::shown).collect(),
        builds: builds(view).iter().map(Shown::shown).collect(),
        machines: view.declared().iter().map(Shown::shown).collect(),
        reconciled: view.reconciled().iter().map(Shown::shown).collect(),
        restarts: view.restarts().iter().map(Shown::shown).collect(),
    }
}
