//! Whether a store keeps the conditions of writes: one that ignores them would let two drovers go on.

use super::gateway::{CallError, Created, Gateway};
use super::layout::unique;

/// Where probes are; each is there for a moment.
pub(super) const PROBES: &str = "probes";

/// Tries each condition once that must not hold.
///
/// # Errors
/// When the store ignores one, or cannot be written to.
pub(super) fn probe(gateway: &Gateway) -> Result<(), CallError> {
    let name = format!("{PROBES}/{}", unique());
    let tried = try_conditions(gateway, &name);
    let removed = gateway.delete(&[name]);
    tried.and(removed)
}

fn try_conditions(gateway: &Gateway, name: &str) -> Result<(), CallError> {
    let ignores = |condition: &str| {
        let text = format!(
            "the store ignores `{condition}` when it writes, so two drovers could write at once: use a \
             store with conditional writes"
        );
        Err(CallError::Refused(text))
    };
    let bytes = || unique().into();
    gateway.create(name, bytes())?;
    match gateway.create(name, bytes())? {
        Created::Taken => {}
        Created::Done(_) => return ignores("If-None-Match"),
    }
    let Some((_, first)) = gateway.get(name)? else {
        return Err(CallError::Refused("the store lost what was written to it".to_owned()));
    };
    if gateway.update(name, &first, bytes())?.is_none() {
        let text =
            "the store refuses `If-Match` although it holds: use one with conditional writes";
        return Err(CallError::Refused(text.to_owned()));
    }
    match gateway.update(name, &first, bytes())? {
        None => Ok(()),
        Some(_) => ignores("If-Match"),
    }
}
