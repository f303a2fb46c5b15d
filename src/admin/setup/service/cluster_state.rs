//! Reads what exists: nodes, storages, bridges, templates, VMIDs, and drover's own guest.

use std::collections::{BTreeMap, BTreeSet};

use drover_hypervisor::Client;
use drover_hypervisor::identify;
use drover_model::id::NodeName;
use proxmox_client::Params;
use proxmox_client::PveError;
use proxmox_client::admin::NodeStorage;
use proxmox_client::transport::encode;
use proxmox_client::types::{Resource, VmConfig};
use serde::Deserialize;
use serde_json::Value;

use super::{GuestSpec, InstallMethod, Marks, TAG};

/// The guest that drover runs in already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnGuest {
    pub vmid: u32,
    /// The node it is on.
    pub node: String,
    pub container: bool,
    pub running: bool,
    /// Whether Proxmox's high availability manages it.
    pub managed: bool,
}

/// The template that a virtual machine is cloned from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineTemplate {
    pub vmid: u32,
    /// The node it is on.
    pub node: String,
    pub config: VmConfig,
}

/// What exists on the cluster.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    pub cluster: Option<drover_model::id::ClusterId>,
    /// drover's own guest.
    pub own: Option<OwnGuest>,
    pub taken: BTreeSet<u32>,
    /// The node for the guest.
    pub node: String,
    /// The storages of that node.
    pub storages: Vec<NodeStorage>,
    /// The bridges of that node, and the VNets that are applied on it.
    pub bridges: BTreeSet<String>,
    /// The zone of each VNet.
    pub vnets: BTreeMap<String, String>,
    /// The appliance templates on that node's storages, as volume ids.
    pub templates: BTreeSet<String>,
    /// The appliance templates that Proxmox offers for download.
    pub offered: BTreeSet<String>,
    /// The template that a virtual machine is cloned from.
    pub original: Option<MachineTemplate>,
}

/// Reads the cluster.
///
/// # Errors
/// What Proxmox refused, or what does not fit, for people.
pub async fn read_cluster(client: &Client, wanted: &GuestSpec) -> Result<ClusterState, String> {
    let reported = |error: PveError| client.fault(&error).text;
    let observation = identify(client).await.map_err(|error| client.fault(&error).text)?;
    if !observation.quorate {
        return Err("the cluster has no quorum, so no guest can be made".to_owned());
    }
    let (_, rows) = client.resources(false).await.map_err(reported)?;
    let vmid = |row: &Resource| row.vmid.and_then(|id| u32::try_from(id).ok());
    let mut now =
        ClusterState { taken: rows.iter().filter_map(vmid).collect(), ..ClusterState::default() };
    for row in rows.iter().filter(|row| is_tagged(row)) {
        let Some(own) = own(client, wanted, &observation.cluster, row).await.map_err(reported)?
        else {
            continue;
        };
        if let Some(other) = now.own.replace(own) {
            let name = &wanted.hostname;
            let text = format!(
                "two guests are marked as drover's own `{name}`: {} and another; remove one of them",
                other.vmid
            );
            return Err(text);
        }
    }
    now.cluster = Some(observation.cluster);
    let online: Vec<String> = observation
        .nodes
        .iter()
        .filter(|(_, online)| *online)
        .map(|(name, _)| name.to_string())
        .collect();
    if let Some(own) = &mut now.own {
        if wanted.ha && own.managed {
            return Ok(now);
        }
        now.node.clone_from(&own.node);
    } else {
        if let InstallMethod::Machine(name) = &wanted.source {
            now.original = Some(original(client, &rows, name).await?);
        }
        now.node = node(wanted, &online, &rows, now.original.as_ref())?;
    }
    let node = NodeName::new(&now.node);
    now.storages = client.storages_of(node.as_str()).await.map_err(reported)?;
    now.vnets = client.vnet_zones().await.map_err(reported)?;
    let bridges = client.bridges_of(node.as_str()).await.map_err(reported)?;
    now.bridges = bridges.into_iter().map(|one| one.iface).collect();
    if now.own.is_none() && wanted.is_container() {
        for storage in storages_for(&now.storages, "vztmpl") {
            now.templates.extend(templates(client, &now.node, &storage).await.map_err(reported)?);
        }
        now.offered = offered(client, &now.node).await.map_err(reported)?;
    }
    Ok(now)
}

/// The active storages that take a kind of content.
pub(super) fn storages_for(storages: &[NodeStorage], content: &str) -> Vec<String> {
    let takes = |one: &&NodeStorage| {
        one.active != Some(false)
            && one.enabled != Some(false)
            && one.content.split(',').any(|kind| kind == content)
    };
    storages.iter().filter(takes).map(|one| one.storage.clone()).collect()
}

fn is_tagged(row: &Resource) -> bool {
    let tags = row.tags.as_deref().unwrap_or_default();
    row.node.is_some() && tags.split([';', ',', ' ']).any(|tag| tag == TAG)
}

/// The guest of a row, where its marks say that it is the wanted one.
async fn own(
    client: &Client,
    wanted: &GuestSpec,
    cluster: &drover_model::id::ClusterId,
    row: &Resource,
) -> Result<Option<OwnGuest>, PveError> {
    let (Some(vmid), Some(node)) = (row.vmid.and_then(|id| u32::try_from(id).ok()), &row.node)
    else {
        return Ok(None);
    };
    let container = row.kind == "lxc";
    let kind = if container { "lxc" } else { "qemu" };
    let place = format!("/nodes/{}/{kind}/{vmid}", encode(node));
    let config: VmConfig = client.get(&format!("{place}/config"), Params::new()).await?;
    let marks = Marks { name: wanted.hostname.clone(), vmid, cluster: cluster.clone() };
    if !marks.are_in(config.get("description").unwrap_or_default()) {
        return Ok(None);
    }
    let status: Value = client.get(&format!("{place}/status/current"), Params::new()).await?;
    let managed = proxmox_client::loose::as_flag(&status["ha"]["managed"]).unwrap_or(false);
    let running = status["status"] == "running";
    Ok(Some(OwnGuest { vmid, node: node.clone(), container, running, managed }))
}

async fn original(
    client: &Client,
    rows: &[Resource],
    name: &str,
) -> Result<MachineTemplate, String> {
    let check_place = |row: &&Resource| {
        row.kind == "qemu"
            && row.template
            && (row.name.as_deref() == Some(name)
                || row.vmid.is_some_and(|id| id.to_string() == name))
    };
    // Of several templates with one name, the newest has the highest VMID.
    let row = rows.iter().filter(check_place).max_by_key(|row| row.vmid);
    let found = row.and_then(|row| Some((u32::try_from(row.vmid?).ok()?, row.node.clone()?)));
    let Some((vmid, node)) = found else {
        return Err(format!("the cluster has no virtual machine template called `{name}`"));
    };
    let config = client.config(&node, vmid).await;
    let config = config.map_err(|error| client.fault(&error).text)?;
    if !config.iter().any(|(_, value)| value.contains("cloudinit")) {
        let text = format!(
            "template {vmid} has no cloud-init drive, so its clones get no SSH key; add one: \
             qm set {vmid} --{} STORAGE:cloudinit",
            drover_hypervisor::cloud_init_place(&config)
        );
        return Err(text);
    }
    Ok(MachineTemplate { vmid, node, config })
}

/// The node that was named, the template's node, or the first node that has the storage.
fn node(
    wanted: &GuestSpec,
    online: &[String],
    rows: &[Resource],
    original: Option<&MachineTemplate>,
) -> Result<String, String> {
    if let Some(name) = &wanted.node {
        let known = online.join(", ");
        let fault = || format!("node `{name}` is not online; online are {known}");
        return online.contains(name).then(|| name.clone()).ok_or_else(fault);
    }
    if let Some(original) = original {
        return Ok(original.node.clone());
    }
    let has = |node: &&String| {
        rows.iter().any(|row| {
            row.storage.as_deref() == Some(&wanted.storage)
                && row.node.as_ref() == Some(*node)
                && row.status.as_deref() == Some("available")
        })
    };
    let found = online.iter().find(has).or(online.first()).cloned();
    found.ok_or_else(|| "no node is online".to_owned())
}

async fn templates(client: &Client, node: &str, storage: &str) -> Result<Vec<String>, PveError> {
    #[derive(Deserialize)]
    struct Row {
        volid: String,
    }
    let path = format!("/nodes/{}/storage/{}/content", encode(node), encode(storage));
    let filter = vec![("content".to_owned(), "vztmpl".to_owned())];
    let rows: Vec<Row> = client.get(&path, filter).await?;
    Ok(rows.into_iter().map(|row| row.volid).collect())
}

async fn offered(client: &Client, node: &str) -> Result<BTreeSet<String>, PveError> {
    #[derive(Deserialize)]
    struct Row {
        template: Option<String>,
    }
    let rows: Vec<Row> =
        client.get(&format!("/nodes/{}/aplinfo", encode(node)), Params::new()).await?;
    Ok(rows.into_iter().filter_map(|row| row.template).collect())
}
