//! The whole at a glance, as one answer.

use drover_api::{ImageBuildOut, StatusOut};
use drover_model::phase::{ImagePhase, LeasePhase};
use drover_model::status::{ImageStatus, LeaseStatus};
use drover_model::tenant::By;

use super::breakers::breakers;
use super::shapes::{Shown, agent, clouds, lease, templates};
use crate::view::View;

/// Builds that run, and the last of an image on a node where it failed.
fn builds(view: &View) -> Vec<ImageBuildOut> {
    let all = view.image_builds();
    let is_last = |at: usize, one: &ImageStatus| {
        let later = all.iter().skip(at + 1);
        later.into_iter().all(|other| (&other.image, &other.node) != (&one.image, &one.node))
    };
    let shown = all.iter().enumerate().filter(|(at, one)| {
        !one.phase.is_over() || one.phase == ImagePhase::Failed && is_last(*at, one)
    });
    shown.map(|(_, one)| one.shown()).collect()
}

/// The whole view, as far as this caller may see it.
pub(super) fn status(view: &View, by: &By) -> StatusOut {
    let live = |lease: &LeaseStatus| lease.state != LeasePhase::Ended;
    StatusOut {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ready: view.ready(),
        journal: view.journal_trouble(),
        config: view.config().shown(),
        clouds: clouds(view),
        templates: templates(view),
        address_pools: view.address_pools().iter().map(Shown::shown).collect(),
        agents: view.agents().iter().map(|one| agent(view, one, by)).collect(),
        leases: view
            .leases()
            .iter()
            .filter(|lease| live(lease))
            .map(|one| lease(view, one, by))
            .collect(),
        alarms: view.alarms().iter().map(Shown::shown).collect(),
        other_drover: view.other_drover(),
        breakers: breakers(view),
        sources: view.sources().iter().map(Shown::shown).collect(),
        lost_jobs: view.lost_jobs().iter().map(Shown::shown).collect(),
        builds: builds(view),
        machines: view.declared().iter().map(Shown::shown).collect(),
        reconciled: view.reconciled().iter().map(Shown::shown).collect(),
        restarts: view.restarts().iter().map(Shown::shown).collect(),
    }
}
