//! Clouds: `cloudDefaults` under each entry of `cloudConfigurations`, made into a [`CloudSpec`]
//! and its [`Connection`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{CloudId, VmId};
use drover_model::spec::CloudSpec;
use proxmox_client::{Connection, Endpoint, Login, Tls};
use serde::Deserialize;

use super::connection::fingerprint;
use super::credential::{Credential, Vault};
use super::environment::{Defaults, EnvironmentLogin};
use super::keys::CLOUD;
use super::layer::Layer;
use super::network;
use super::placement::{self, Region};
use super::trust::{self, Trust};

/// The keys that say what makes a certificate trusted; ignoreSslErrors counts when it is true.
const TRUST: [&str; 3] = ["caFile", "caPem", "pinSha256"];

/// A cloud as written, defaults filled in.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCloud {
    name: String,
    api_url: String,
    api_urls: Option<Vec<String>>,
    credentials_id: Option<String>,
    ca_file: Option<String>,
    ca_pem: Option<String>,
    pin_sha256: Option<Vec<String>>,
    ignore_ssl_errors: bool,
    connect_timeout_sec: u64,
    call_timeout_sec: u64,
    instance_cap: u32,
    operation_timeout_sec: u64,
    start_vm_id: u32,
    end_vm_id: u32,
    cleanup_orphaned_agents: bool,
    orphan_cleanup_period_seconds: u64,
    orphan_cleanup_grace_period_seconds: u64,
    node_grace_period_seconds: u64,
    cloud_init_iso_storage: String,
    network_names: BTreeMap<String, String>,
    clones_per_storage: u32,
    operations_per_node: u32,
    adapt_lanes: bool,
    region: String,
    zone: String,
    node_labels: Option<BTreeMap<String, Vec<String>>>,
    storage_classes: Option<BTreeMap<String, Vec<String>>>,
    memory_overcommit_percent: u64,
}

/// A cloud, checked; without a connection when a fault stands in its way.
pub(super) struct CheckedCloud {
    pub spec: CloudSpec,
    pub connection: Option<Connection>,
    /// What one call may take; its templates judge clones in doubt by it.
    pub call_timeout: Duration,
    /// Where disc images for cloud-init are put.
    pub iso_storage: String,
    /// Its networks and their bridges.
    pub networks: BTreeMap<String, String>,
    /// Where it is, and what it says about its nodes and storages.
    pub region: Region,
    pub layer: Layer,
}

/// Makes one cloud of its layers; the faults go to the vault.
pub(super) fn cloud(
    id: &str,
    layers: (&Defaults, &Layer, &Layer),
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> Option<CheckedCloud> {
    let (environment, defaults, own) = layers;
    let layer = laid(&laid(&environment.cloud, defaults, vault), own, vault);
    let raw: RawCloud = layer.typed(CLOUD, vault.faults)?;
    if raw.name.trim().is_empty() && layer.has("name") && !layer.is_faulty("name") {
        vault.faults.push(layer.fault("name", "the name is blank"));
    }
    if raw.end_vm_id < raw.start_vm_id {
        let message = format!("`{}` is below startVmId, {}", raw.end_vm_id, raw.start_vm_id);
        let key = if layer.has("endVmId") { "endVmId" } else { "startVmId" };
        vault.faults.push(layer.fault(key, message).help("give a range with room for the agents"));
    }
    let login = login(&raw, &layer, environment, credentials, vault);
    let tls = tls(&raw, &layer, vault);
    let endpoints = endpoints(&raw, &layer, vault);
    let call_timeout = Duration::from_secs(raw.call_timeout_sec);
    let connection = login.zip(tls).map(|(login, tls)| Connection {
        endpoints,
        login,
        tls,
        connect_timeout: Duration::from_secs(raw.connect_timeout_sec),
        call_timeout,
        user_agent: concat!("drover/", env!("CARGO_PKG_VERSION")).to_owned(),
    });
    let fingerprint = connection.as_ref().map_or(0, fingerprint);
    let spec = spec(id, &raw, fingerprint);
    let networks = network::names(&raw.network_names);
    let iso_storage = raw.cloud_init_iso_storage.trim().to_owned();
    let headroom = placement::headroom(&layer, raw.memory_overcommit_percent, vault.faults);
    let classes = raw.storage_classes.unwrap_or_default();
    placement::classes(&classes, &layer, vault.faults);
    let region = Region {
        region: raw.region,
        zone: raw.zone,
        node_labels: raw.node_labels.unwrap_or_default(),
        classes,
        headroom,
    };
    Some(CheckedCloud { spec, connection, call_timeout, iso_storage, networks, region, layer })
}

/// Lays a layer over another; what a layer says about endpoints or trust replaces, as a whole,
/// what those below say about them, and two ways of saying it in one layer contradict.
fn laid(lower: &Layer, upper: &Layer, vault: &mut Vault<'_>) -> Layer {
    let mut lower = lower.clone();
    if upper.has("apiUrl") && upper.has("apiUrls") {
        let fault = upper.fault("apiUrls", "apiUrl and apiUrls contradict");
        vault.faults.push(fault.help("keep one of them"));
    }
    if upper.has("apiUrl") || upper.has("apiUrls") {
        lower.forget("apiUrl");
        lower.forget("apiUrls");
    }
    let mut trust: Vec<_> = TRUST.into_iter().filter(|key| upper.has(key)).collect();
    if upper.get("ignoreSslErrors").and_then(serde_yaml::Value::as_bool) == Some(true) {
        trust.push("ignoreSslErrors");
    }
    if let [_, second, ..] = trust.as_slice() {
        let fault = upper.fault(second, format!("{} contradict", trust.join(" and ")));
        vault.faults.push(fault.help("keep one of them"));
    }
    if !trust.is_empty() {
        TRUST.into_iter().for_each(|key| lower.forget(key));
        lower.forget("ignoreSslErrors");
    }
    lower.under(upper)
}

fn login(
    raw: &RawCloud,
    layer: &Layer,
    environment: &Defaults,
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> Option<Login> {
    let key = "credentialsId";
    let Some(id) = raw.credentials_id.as_deref().filter(|id| !id.is_empty()) else {
        if let Some(login) = &environment.login {
            return Some(match login.clone() {
                EnvironmentLogin::Token { id, secret } => Login::Token { id, secret },
                EnvironmentLogin::Password { username, secret } => {
                    Login::Password { username, secret }
                }
            });
        }
        if !layer.is_faulty(key) {
            let fault = layer.fault(key, "`credentialsId` is missing");
            vault.faults.push(fault.help(
                "name an entry of `credentials`, or set PROXMOX_TOKEN_ID and PROXMOX_TOKEN_SECRET",
            ));
        }
        return None;
    };
    match credentials.get(id) {
        Some(Credential::Proxmox(login)) => Some(login.clone()),
        Some(Credential::Faulty) => None,
        Some(
            Credential::SshKey(_)
            | Credential::Token(_)
            | Credential::Login(..)
            | Credential::App(_),
        ) => {
            let fault = layer.fault(key, format!("`{id}` is no login to Proxmox"));
            vault.faults.push(fault.help("name a proxmoxToken or a proxmoxPassword"));
            None
        }
        None => {
            vault.faults.push(unresolved(layer, id, credentials, "kind: proxmoxToken"));
            None
        }
    }
}

/// An id that names no credential.
pub(super) fn unresolved(
    layer: &Layer,
    id: &str,
    credentials: &BTreeMap<String, Credential>,
    kind: &str,
) -> super::fault::Fault {
    let near = drover_api::nearest(id, credentials.keys().map(String::as_str));
    let fault = layer.fault("credentialsId", format!("no credential is called `{id}`"));
    match near {
        Some(near) => fault.help(format!("did you mean `{near}`?")),
        None => fault.help(format!("add `{id}:` with `{kind}` to `credentials`")),
    }
}

fn endpoints(raw: &RawCloud, layer: &Layer, vault: &mut Vault<'_>) -> Vec<Endpoint> {
    let written = raw.api_urls.clone().unwrap_or_else(|| vec![raw.api_url.clone()]);
    if written.is_empty() {
        let fault = layer.fault("apiUrls", "no endpoint is listed");
        vault.faults.push(fault.help("list at least one, such as `https://pve1:8006`"));
    }
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for endpoint in written.iter().filter_map(|url| url.parse().ok()) {
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

fn tls(raw: &RawCloud, layer: &Layer, vault: &mut Vault<'_>) -> Option<Tls> {
    if TRUST.into_iter().chain(["ignoreSslErrors"]).any(|key| layer.is_faulty(key)) {
        return None;
    }
    let trust = Trust {
        ca_file: raw.ca_file.as_deref(),
        ca_pem: raw.ca_pem.as_deref(),
        pins: raw.pin_sha256.as_deref(),
        ignore: raw.ignore_ssl_errors,
        remedy: "give PEM, such as /etc/pve/pve-root-ca.pem of a node",
    };
    trust::tls(&trust, layer, vault)
}

fn spec(id: &str, raw: &RawCloud, connection: u64) -> CloudSpec {
    CloudSpec {
        id: CloudId::new(id),
        name: raw.name.clone(),
        cap: (raw.instance_cap > 0).then_some(raw.instance_cap),
        vmid_floor: VmId(raw.start_vm_id),
        vmid_ceiling: VmId(raw.end_vm_id.saturating_add(1)),
        operation_timeout: Duration::from_secs(raw.operation_timeout_sec),
        cleanup_orphans: raw.cleanup_orphaned_agents,
        reconcile_period: Duration::from_secs(raw.orphan_cleanup_period_seconds),
        orphan_grace: Duration::from_secs(raw.orphan_cleanup_grace_period_seconds),
        node_grace: Duration::from_secs(raw.node_grace_period_seconds),
        clones_per_storage: raw.clones_per_storage,
        operations_per_node: raw.operations_per_node,
        image_storages: BTreeSet::new(),
        adapt_lanes: raw.adapt_lanes,
        connection,
    }
}
