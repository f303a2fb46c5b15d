//! `service.store` and `service.clusterKey`: the store that several drovers share.
//!
//! Both can come from the environment. A configuration that lies in the store itself cannot say where that
//! is, nor be the first to have the key: there the two agree with the environment, or are left out.

use std::time::Duration;

use causes::chain;
use drover_stores::StoreAddress;
use drover_vault::{ClusterKey, KeyError};

use super::context::{Bases, Context};
use super::environment::Environment;
use super::fault::Fault;
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
/// The variable that names the file of the key where `service.clusterKey` is not given.
pub const KEY_VARIABLE: &str = "DROVER_CLUSTER_KEY_FILE";

/// Makes the store; none where none is given, or it has faults.
pub(super) fn store(raw: &RawService, layer: &Layer, cx: &mut Context<'_>) -> Option<StoreSpec> {
    let key = key(layer, cx);
    let has_key =
        !layer.nested("clusterKey").is_empty() || cx.environment.get(KEY_VARIABLE).is_some();
    let given = cx.environment.get(STORE_VARIABLE).or(raw.store.as_deref());
    let Some(text) = given.filter(|text| !text.is_empty()).map(str::to_owned) else {
        if !layer.nested("clusterKey").is_empty() {
            let fault = layer.fault("clusterKey", "without `store` nothing is encrypted by it");
            cx.warnings
                .push(fault.help("name the store that the members share, or remove the key"));
        }
        return None;
    };
    if !has_key {
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
    if let (Ok(address), Some(written)) = (&address, &raw.store) {
        same_store(address, written, layer, cx);
    }
    let leader_lease = Duration::from_secs(raw.leader_lease_sec);
    Some(StoreSpec { address: address.ok()?, key: key?, leader_lease })
}

/// Refuses a configuration in a store that names another one.
fn same_store(address: &StoreAddress, written: &str, layer: &Layer, cx: &mut Context<'_>) {
    let is_other = |other: StoreAddress| other.name() != address.name();
    if cx.environment.is_for_stored() && written.parse().is_ok_and(is_other) {
        let message = format!("this configuration lies in {address}, and names another store");
        cx.faults.push(
            layer
                .fault("store", message)
                .help("leave `store` out: --store or DROVER_STORE of each member says where it is"),
        );
    }
}

/// The key of the YAML, else that of the environment. A configuration that lies in the store was opened
/// by the latter, so the two are the same there.
fn key(layer: &Layer, cx: &mut Context<'_>) -> Option<ClusterKey> {
    let given = layer.nested("clusterKey");
    let Some(given) = given.first() else {
        let secret = cx.secret_of_variable(KEY_VARIABLE)?;
        let wrong =
            |error: KeyError| cx.faults.push(Fault::nowhere(KEY_VARIABLE, error.to_string()));
        return ClusterKey::new(&secret).map_err(wrong).ok();
    };
    let secret = cx.secret(given)?;
    let name = given.chosen().unwrap_or("secretFile");
    let wrong = |error: KeyError| cx.faults.push(given.fault(name, error.to_string()));
    let key = ClusterKey::new(&secret).map_err(wrong).ok()?;
    if cx.environment.is_for_stored()
        && let Some(other) = cx.secret_of_variable(KEY_VARIABLE)
        && ClusterKey::new(&other).is_ok_and(|other| !key.is_same(&other))
    {
        let fault = given.fault(name, format!("it is another key than that of {KEY_VARIABLE}"));
        cx.faults.push(fault.help("leave `clusterKey` out, or name the same key"));
    }
    Some(key)
}

/// The store and the key that the environment gives, before any file is read.
///
/// # Errors
/// What is missing or wrong, in words.
pub fn store_of_environment(
    environment: &Environment,
) -> Result<(StoreAddress, ClusterKey), String> {
    let store = environment
        .get(STORE_VARIABLE)
        .ok_or("no store is named: give --store, or --storage, --bucket and --shard")?;
    let address = store.parse::<StoreAddress>().map_err(|error| chain(&error))?;
    let mut cx = Context::new(environment, Bases::default());
    let secret = cx.secret_of_variable(KEY_VARIABLE).ok_or_else(|| {
        let fault = cx.faults.first().map(|fault| fault.message.clone());
        fault.unwrap_or_else(|| "no key is named: give --cluster-key-file".to_owned())
    })?;
    let key = ClusterKey::new(&secret).map_err(|error| format!("{KEY_VARIABLE}: {error}"))?;
    Ok((address, key))
}
