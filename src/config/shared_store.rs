//! `service.store` and `service.clusterKey`: the store that several drovers share.

use std::time::Duration;

use causes::chain;
use drover_stores::StoreAddress;
use drover_vault::ClusterKey;

use super::context::Context;
use super::keys::RawService;
use super::layer::Layer;

/// The store that several drovers share, of which one leads.
#[derive(Debug, Clone)]
pub struct StoreSpec {
    pub address: StoreAddress,
    /// What encrypts what lies beside the journal.
    pub key: ClusterKey,
    /// After how long another member leads when the leader is silent.
    pub leader_lease: Duration,
}

/// The variable that wins over `service.store`.
pub const STORE_VARIABLE: &str = "DROVER_STORE";

/// Makes the store; none where none is given, or it has faults.
pub(super) fn store(raw: &RawService, layer: &Layer, cx: &mut Context<'_>) -> Option<StoreSpec> {
    let key = key(layer, cx);
    let given = cx.environment.get(STORE_VARIABLE).or(raw.store.as_deref());
    let Some(text) = given.filter(|text| !text.is_empty()).map(str::to_owned) else {
        if !layer.nested("clusterKey").is_empty() {
            let fault = layer.fault("clusterKey", "without `store` nothing is encrypted by it");
            cx.warnings
                .push(fault.help("name the store that the members share, or remove the key"));
        }
        return None;
    };
    if layer.nested("clusterKey").is_empty() {
        let fault = layer.fault("store", "a store needs `clusterKey`, which all members have");
        cx.faults.push(fault.help(
            "make a key with `openssl rand -hex 32`, copy it to each member, and name it by \
             `clusterKey: {secretFile: …}`",
        ));
    }
    if raw.listen.is_none() {
        let fault = layer.fault("store", "the members of a store reach each other by `listen`");
        cx.faults.push(fault.help("give `listen` an address that the other members can reach"));
    }
    if !layer.nested("configSync").is_empty() {
        let fault = layer.fault("store", "a store and `configSync` do not go together yet");
        cx.faults.push(fault.help("give every member the same files, or use one drover"));
    }
    let address = text.parse::<StoreAddress>();
    let address = address.map_err(|error| cx.faults.push(layer.fault("store", chain(&error))));
    let leader_lease = Duration::from_secs(raw.leader_lease_sec);
    Some(StoreSpec { address: address.ok()?, key: key?, leader_lease })
}

fn key(layer: &Layer, cx: &mut Context<'_>) -> Option<ClusterKey> {
    let given = layer.nested("clusterKey");
    let given = given.first()?;
    let secret = cx.secret(given)?;
    let wrong = |error| {
        let key = given.chosen().unwrap_or("secretFile");
        cx.faults.push(given.fault(key, format!("{error}")));
    };
    ClusterKey::new(&secret).map_err(wrong).ok()
}
