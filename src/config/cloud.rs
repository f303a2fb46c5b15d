//! Clouds: `cloudDefaults` and each entry of `cloudConfigurations`, merged into a [`CloudSpec`] and
//! its [`Connection`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{CloudId, VmId};
use drover_model::overridden::CloudOverrides;
use drover_model::spec::CloudSpec;
use proxmox_client::{Connection, Endpoint, Login};

use super::connection::fingerprint;
use super::context::Context;
use super::credential::{Credential, Credentials, resolve};
use super::environment::Defaults;
use super::keys::RawCloud;
use super::layer::Layer;
use super::network;
use super::placement::{self, Region};
use super::trust;

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
    let layer = environment.cloud.overlaid(defaults).overlaid(own);
    let raw: RawCloud = layer.typed(&mut cx.faults)?;
    let login = login(&raw, &layer, environment, credentials, cx);
    let remedy = "give PEM, such as /etc/pve/pve-root-ca.pem of a node";
    let tls = trust::tls(&layer, remedy, cx);
    let endpoints = endpoints(&raw);
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
        if environment.login.is_some() {
            return environment.login.clone();
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

/// The endpoints, each once.
fn endpoints(raw: &RawCloud) -> Vec<Endpoint> {
    let written = raw.api_urls.as_deref().unwrap_or(std::slice::from_ref(&raw.api_url));
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for endpoint in written.iter().filter_map(|url| url.parse().ok()) {
        if !endpoints.contains(&endpoint) {
            endpoints.push(endpoint);
        }
    }
    endpoints
}

fn spec(id: &str, raw: &RawCloud, connection: u64) -> CloudSpec {
    CloudSpec {
        overrides: CloudOverrides::default(),
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
