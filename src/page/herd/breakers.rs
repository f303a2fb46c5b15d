//! Breakers that are not closed.

use drover_api::BreakerOut;
use drover_model::phase::BreakerPhase;

use super::waits::Wait;
use crate::show;

/// The most that are listed as what needs a look.
const SHOWN: usize = 8;

/// A breaker of a template or a cloud that is not closed.
pub(super) struct Tripped {
    pub(super) out: BreakerOut,
    pub(super) word: &'static str,
    /// What it keeps from starting, such as `template lab/linux`.
    pub(super) about: String,
    /// Where that is shown.
    pub(super) place: String,
    /// Whether the next agent decides whether others follow.
    pub(super) is_half_open: bool,
    /// The row of what waits that has the cause.
    pub(super) see: Option<String>,
}

impl Tripped {
    fn of(one: &BreakerOut, waits: &[Wait]) -> Self {
        let (about, place) = match one.id.strip_prefix("cloud:").filter(|_| !is_template(one)) {
            Some(cloud) => (format!("cloud {cloud}"), format!("#cloud-{cloud}")),
            None => (format!("template {}", one.id), format!("/templates/{}", one.id)),
        };
        Self {
            word: show::breaker(one.state),
            about,
            place,
            is_half_open: one.state == BreakerPhase::HalfOpen,
            see: one.cause.as_ref().and_then(|cause| row_with(cause, waits)),
            out: one.clone(),
        }
    }
}

/// Those of clouds and templates, which keep all of their agents from starting: the first of them, and how many more
/// there are. Those of clouds come first.
pub(super) fn tripped(breakers: &[BreakerOut], waits: &[Wait]) -> (Vec<Tripped>, usize) {
    let mut all: Vec<&BreakerOut> = breakers.iter().filter(|one| !is_place(one)).collect();
    all.sort_by_key(|one| is_template(one));
    let shown = all.iter().take(SHOWN).map(|one| Tripped::of(one, waits));
    (shown.collect(), all.len().saturating_sub(SHOWN))
}

/// Those of nodes and storages.
pub(super) fn places(breakers: &[BreakerOut]) -> Vec<(BreakerOut, &'static str)> {
    let of_places = breakers.iter().filter(|one| is_place(one));
    of_places.map(|one| (one.clone(), show::breaker(one.state))).collect()
}

/// Any other is of a cloud, a node or a storage.
fn is_template(one: &BreakerOut) -> bool {
    one.id == one.template
}

fn is_place(one: &BreakerOut) -> bool {
    !is_template(one) && !one.id.starts_with("cloud:")
}

/// The row of what waits that says this.
pub(super) fn row_with(cause: &str, waits: &[Wait]) -> Option<String> {
    let place = waits.iter().position(|wait| wait.kind.why.contains(cause))?;
    Some(format!("wait-{}-{}", waits.get(place)?.source, place + 1))
}
