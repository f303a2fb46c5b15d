//! Clouds: `cloudDefaults` and each entry of `cloudConfigurations`, merged into a [`CloudSpec`] and
//! its [`Connection`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{CloudId, VmId};
use drover_model::spec::CloudSpec;
use proxmox_client::{Connection, Endpoint, Login, Tls};
use serde_yaml::Value as Yaml;

use super::connection::fingerprint;
use super::context::Context;
use super::credential::{Credential, Credentials, resolve};
use super::environment::{Defaults, EnvironmentLogin};
use super::keys::RawCloud;
use super::layer::Layer;
use super::network;
use super::placement::{self, Region};
use super::trust::{self, Trust};

/// The keys of the endpoints.
const ENDPOINTS: [&str; 2] = ["apiUrl", "apiUrls"];
/// The keys that say which certificates are accepted; the last one only where it is true.
const TRUST: [&str; 4] = ["caFile", "caPem", "pinSha256", "ignoreSslErrors"];

/// A cloud, checked; without a connection where login or TLS have a fault.
pub(super) struct CheckedCloud {
    pub spec: CloudSpec,
    pub connection: Option<Connection>,
    /// The limit of one API call; templates judge clones of uncertain outcome by it.
    pub call_timeout: Duration,
    /// The storage for cloud-init ISO images.
    pub iso_storage: String,
    /// Bridges by network name.
    pub networks: BTreeMap<String, String>,
    pub region: Region,
    pub layer: Layer,
}

/// Makes one cloud of its layers.
pub(super) fn cloud(
    id: &str,
    (environment, defaults, own): (&Defaults, &Layer, &Layer),
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<CheckedCloud> {
    let layer = merged(&merged(&environment.cloud, defaults, cx), own, cx);
    let raw: RawCloud = layer.typed(&mut cx.faults)?;
    if raw.name.trim().is_empty() && layer.is_sound("name") {
        cx.faults.push(layer.fault("name", "the name is blank"));
    }
    if raw.end_vm_id < raw.start_vm_id {
        let message = format!("`{}` is below startVmId, {}", raw.end_vm_id, raw.start_vm_id);
        let key = if layer.has("endVmId") { "endVmId" } else { "startVmId" };
        cx.faults.push(layer.fault(key, message).help("give a range with room for the agents"));
    }
    let login = login(&raw, &layer, environment, credentials, cx);
    let tls = tls(&raw, &layer, cx);
    let endpoints = endpoints(&raw, &layer, cx);
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
    let headroom = placement::headroom(&layer, raw.memory_overcommit_percent, cx);
    let classes = raw.storage_classes.unwrap_or_default();
    placement::classes(&classes, &layer, cx);
    let region = Region {
        region: raw.region,
        zone: raw.zone,
        node_labels: raw.node_labels.unwrap_or_default(),
        classes,
        headroom,
    };
    Some(CheckedCloud { spec, connection, call_timeout, iso_storage, networks, region, layer })
}

/// Merges two layers. What the upper one says about endpoints or trust replaces all that the lower
/// one says about them; two ways in one layer contradict.
fn merged(lower: &Layer, upper: &Layer, cx: &mut Context<'_>) -> Layer {
    let mut lower = lower.clone();
    let ignores = upper.get("ignoreSslErrors").and_then(Yaml::as_bool) == Some(true);
    let trust = if ignores { &TRUST[..] } else { &TRUST[..3] };
    for (given, replaced) in [(&ENDPOINTS[..], &ENDPOINTS[..]), (trust, &TRUST[..])] {
        let found = upper.one_of(given);
        if !matches!(found, Ok(None)) {
            replaced.iter().for_each(|key| lower.forget(key));
        }
        cx.faults.extend(found.err());
    }
    lower.overlaid(upper)
}

fn login(
    raw: &RawCloud,
    layer: &Layer,
    environment: &Defaults,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<Login> {
    const KINDS: &str = "proxmoxToken or proxmoxPassword";
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
            cx.faults.push(fault.help(
                "name an entry of `credentials`, or set PROXMOX_TOKEN_ID and PROXMOX_TOKEN_SECRET",
            ));
        }
        return None;
    };
    resolve(layer, id, credentials, KINDS, Credential::as_proxmox, cx).cloned()
}

fn endpoints(raw: &RawCloud, layer: &Layer, cx: &mut Context<'_>) -> Vec<Endpoint> {
    let written = raw.api_urls.clone().unwrap_or_else(|| vec![raw.api_url.clone()]);
    if written.is_empty() {
        let fault = layer.fault("apiUrls", "no URL is listed");
        cx.faults.push(fault.help("list at least one, such as `https://pve1:8006`"));
    }
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for endpoint in written.iter().filter_map(|url| url.parse().ok()) {
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

fn tls(raw: &RawCloud, layer: &Layer, cx: &mut Context<'_>) -> Option<Tls> {
    if TRUST.into_iter().any(|key| layer.is_faulty(key)) {
        return None;
    }
    let trust = Trust {
        ca_file: raw.ca_file.as_deref(),
        ca_pem: raw.ca_pem.as_deref(),
        pins: raw.pin_sha256.as_deref(),
        ignore: raw.ignore_ssl_errors,
        remedy: "give PEM, such as /etc/pve/pve-root-ca.pem of a node",
    };
    trust::tls(&trust, layer, cx)
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
