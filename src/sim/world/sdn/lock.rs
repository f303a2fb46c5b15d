//! The global lock of the SDN configuration (9.x). While it is held, only a client with its token
//! changes the configuration, until that client applies or rolls back.

use super::super::context::{CallContext, failed};
use super::Sdn;
use crate::call::{Answer, ApiError, Outcome};

/// Refuses a call without the token of the lock (pve-network, Network/SDN.pm:278, lock_sdn_config).
///
/// # Errors
/// `{what}: invalid lock token provided!`
pub(crate) fn check_token(ctx: &CallContext, sdn: &Sdn, what: &str) -> Result<(), ApiError> {
    if sdn.lock.is_none() || sdn.lock == ctx.text("lock-token") {
        return Ok(());
    }
    let place = "/usr/share/perl5/PVE/Network/SDN.pm line 291.";
    Err(failed(format!("{what}: invalid lock token provided! at {place}")))
}

/// Releases the lock if the call has the token and sets `release-lock`. The schema calls that the
/// default, but nothing fills in defaults (pve-network, API2/Network/SDN.pm:240).
pub(crate) fn release_if_asked(ctx: &CallContext, sdn: &mut Sdn) {
    if ctx.params().0.contains_key("lock-token") && ctx.flag("release-lock") {
        sdn.lock = None;
    }
}

/// `POST /cluster/sdn/lock` (pve-network, API2/Network/SDN.pm:120).
pub(crate) fn acquire(ctx: &CallContext) -> Outcome {
    let what = "could not acquire lock for SDN config";
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    check_token(ctx, &state.sdn, what)?;
    if !ctx.flag("allow-pending") && state.sdn.has_changes() {
        let place = "/usr/share/perl5/PVE/API2/Network/SDN.pm line 149.";
        return Err(failed(format!("{what}: configuration has pending changes at {place}")));
    }
    let token = state.random.uuid();
    state.sdn.lock = Some(token.clone());
    Ok(Answer::new(token.into()))
}

/// `DELETE /cluster/sdn/lock`.
pub(crate) fn release(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    if !ctx.flag("force") {
        check_token(ctx, &state.sdn, "could not release lock")?;
    }
    state.sdn.lock = None;
    Ok(Answer::null())
}

/// `POST /cluster/sdn/rollback`: restores the configuration that was applied last.
pub(crate) fn roll_back(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    check_token(ctx, &state.sdn, "could not rollback SDN configuration")?;
    let sdn = &mut state.sdn;
    sdn.zones.clone_from(&sdn.applied_zones);
    sdn.vnets.clone_from(&sdn.applied_vnets);
    sdn.subnets.clone_from(&sdn.applied_subnets);
    release_if_asked(ctx, sdn);
    Ok(Answer::null())
}
