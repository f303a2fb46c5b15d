//! The global lock of the networks' configuration (9.x): a client with its token changes them
//! alone, until it applies them or rolls them back.

use super::super::ask::{Ask, failed};
use super::Sdn;
use crate::call::{Answer, ApiError, Outcome};

/// Refuses a call that has not the token of the lock (pve-network, Network/SDN.pm:278,
/// lock_sdn_config).
///
/// # Errors
/// `{what}: invalid lock token provided!`
pub fn admit(ask: &Ask, sdn: &Sdn, what: &str) -> Result<(), ApiError> {
    if sdn.lock.is_none() || sdn.lock == ask.text("lock-token") {
        return Ok(());
    }
    let place = "/usr/share/perl5/PVE/Network/SDN.pm line 291.";
    Err(failed(format!("{what}: invalid lock token provided! at {place}")))
}

/// Gives the lock back with a call that has its token and says so. The schema calls that the
/// default, and nothing fills defaults in (pve-network, API2/Network/SDN.pm:240).
pub fn let_go(ask: &Ask, sdn: &mut Sdn) {
    if ask.params().0.contains_key("lock-token") && ask.flag("release-lock") {
        sdn.lock = None;
    }
}

/// `POST /cluster/sdn/lock` (pve-network, API2/Network/SDN.pm:120).
pub fn take(ask: &Ask) -> Outcome {
    let what = "could not acquire lock for SDN config";
    ask.quorate()?;
    let mut state = ask.cluster.state();
    admit(ask, &state.sdn, what)?;
    if !ask.flag("allow-pending") && state.sdn.has_changes() {
        let place = "/usr/share/perl5/PVE/API2/Network/SDN.pm line 149.";
        return Err(failed(format!("{what}: configuration has pending changes at {place}")));
    }
    let token = state.dice.uuid();
    state.sdn.lock = Some(token.clone());
    Ok(Answer::new(token.into()))
}

/// `DELETE /cluster/sdn/lock`.
pub fn release(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    if !ask.flag("force") {
        admit(ask, &state.sdn, "could not release lock")?;
    }
    state.sdn.lock = None;
    Ok(Answer::null())
}

/// `POST /cluster/sdn/rollback`: the configuration is again as it was last applied.
pub fn roll_back(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    admit(ask, &state.sdn, "could not rollback SDN configuration")?;
    let sdn = &mut state.sdn;
    sdn.zones.clone_from(&sdn.applied_zones);
    sdn.vnets.clone_from(&sdn.applied_vnets);
    sdn.subnets.clone_from(&sdn.applied_subnets);
    let_go(ask, sdn);
    Ok(Answer::null())
}
