//! Breakers that are not closed.

use drover_api::BreakerOut;
use drover_model::phase::BreakerPhase;

use super::waits::Wait;
use crate::show;

/// A breaker of a template or a cloud that is not closed.
pub(super) struct Tripped {
    pub(super) out: BreakerOut,
    pub(super) word: &'static str,
    /// What it keeps from starting, in words.
    pub(super) about: String,
    /// Where that is shown.
    pub(super) place: String,
    /// Whether one agent is on trial.
    pub(super) is_trial: bool,
    /// The row of what waits that has the cause.
    pub(super) see: Option<String>,
}

/// Those of templates and clouds, which keep all of their agents from starting.
pub(super) fn tripped(breakers: &[BreakerOut], waits: &[Wait]) -> Vec<Tripped> {
    let of_herd = breakers.iter().filter(|one| !is_place(one));
    let each = of_herd.map(|one| {
        let (about, place) = match one.id.strip_prefix("cloud:") {
            Some(cloud) => (format!("cloud {cloud}"), format!("#cloud-{cloud}")),
            None => (one.id.clone(), format!("/templates/{}", one.id)),
        };
        Tripped {
            word: show::breaker(one.state),
            about,
            place,
            is_trial: one.state == BreakerPhase::HalfOpen,
            see: one.cause.as_ref().and_then(|cause| row_with(cause, waits)),
            out: one.clone(),
        }
    });
    each.collect()
}

/// Those of nodes and storages.
pub(super) fn places(breakers: &[BreakerOut]) -> Vec<(BreakerOut, &'static str)> {
    let of_places = breakers.iter().filter(|one| is_place(one));
    of_places.map(|one| (one.clone(), show::breaker(one.state))).collect()
}

fn is_place(one: &BreakerOut) -> bool {
    one.id.contains(':') && !one.id.starts_with("cloud:")
}

/// The row of what waits that says this.
pub(super) fn row_with(cause: &str, waits: &[Wait]) -> Option<String> {
    let place = waits.iter().position(|wait| wait.kind.why.contains(cause))?;
    Some(format!("wait-{}-{}", waits.get(place)?.source, place + 1))
}
