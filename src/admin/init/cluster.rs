//! What a cluster shows to an administrator who logs in for the first time.

use std::collections::{BTreeMap, BTreeSet};

use drover_hypervisor::{Client, has_agent, has_cloud_init, primary_disk};
use proxmox_client::PveError;
use proxmox_client::types::{Resource, VmConfig};

use crate::setup::COMMENT;

/// The most templates that are read: more are no choice for people.
const TEMPLATES_MAX: usize = 50;

/// A node of the cluster, as the list of its resources has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSeen {
    pub name: String,
    pub online: bool,
    /// Whether it is the node that answered.
    pub local: bool,
    /// Its address in the cluster.
    pub ip: Option<String>,
    /// Free memory, in bytes.
    pub free_memory: u64,
    /// Bridges, and the VNets that are active there.
    pub bridges: BTreeSet<String>,
}

/// One storage, as the online nodes see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageSeen {
    pub name: String,
    /// Proxmox's type of it, such as `lvmthin`.
    pub kind: String,
    /// Whether all nodes see the same one.
    pub shared: bool,
    pub content: BTreeSet<String>,
    /// Free bytes on each node that reaches it.
    pub free: BTreeMap<String, u64>,
}

/// One virtual machine that is a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateSeen {
    pub vmid: u32,
    pub name: String,
    pub node: String,
    pub has_cloud_init: bool,
    pub has_agent: bool,
    pub is_windows: bool,
    /// The storage of the disk that it boots from; none without such a disk.
    pub storage: Option<String>,
    pub bridge: Option<String>,
}

/// What one login saw of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSeen {
    /// The cluster's name; that of the node where it stands alone.
    pub name: String,
    /// The version of Proxmox VE.
    pub version: String,
    /// Whether it may be written to; a node alone always may.
    pub quorate: bool,
    pub nodes: Vec<NodeSeen>,
    pub storages: Vec<StorageSeen>,
    /// The VMIDs of all guests.
    pub vmids: BTreeSet<u32>,
    pub templates: Vec<TemplateSeen>,
    /// The pools that a drover's set-up made.
    pub drover_pools: BTreeSet<String>,
}

impl ClusterSeen {
    /// Reads a cluster with an administrator's login.
    ///
    /// # Errors
    /// Why Proxmox refused or did not answer.
    pub async fn read(admin: &Client) -> Result<Self, PveError> {
        let version = admin.version().await?.version;
        let (_, status) = admin.cluster_status().await?;
        let (_, rows) = admin.resources(false).await?;
        let cluster = status.iter().find(|one| one.kind == "cluster");
        let local = status.iter().find(|one| one.kind == "node" && one.local);
        let name = cluster.or(local).map(|one| one.name.clone()).unwrap_or_default();
        let quorate = cluster.is_none_or(|one| one.quorate);
        let mut nodes = Vec::new();
        for one in status.iter().filter(|one| one.kind == "node") {
            let row = rows
                .iter()
                .find(|row| row.kind == "node" && row.node.as_deref() == Some(one.name.as_str()));
            let mut bridges = BTreeSet::new();
            if one.online {
                let found = admin.bridges_of(&one.name).await?;
                bridges.extend(found.into_iter().map(|bridge| bridge.iface));
            }
            nodes.push(NodeSeen {
                name: one.name.clone(),
                online: one.online,
                local: one.local,
                ip: one.ip.clone(),
                free_memory: row.map(free_memory).unwrap_or_default(),
                bridges,
            });
        }
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut templates = Vec::new();
        let is_one = |row: &&Resource| row.kind == "qemu" && row.template;
        for row in rows.iter().filter(is_one).take(TEMPLATES_MAX) {
            let (Some(vmid), Some(node)) = (vmid_of(row), row.node.clone()) else { continue };
            if nodes.iter().any(|one| one.name == node && !one.online) {
                continue;
            }
            let config = admin.config(&node, vmid).await?;
            templates.push(template(vmid, node, &config));
        }
        templates.sort_by_key(|one| one.vmid);
        Ok(Self {
            name,
            version,
            quorate,
            nodes,
            storages: storages(&rows),
            vmids: rows.iter().filter_map(vmid_of).collect(),
            templates,
            drover_pools: admin.pools_commented(COMMENT).await?,
        })
    }

    /// The nodes that are online.
    pub fn online(&self) -> impl Iterator<Item = &NodeSeen> {
        self.nodes.iter().filter(|node| node.online)
    }
}

fn free_memory(row: &Resource) -> u64 {
    let free = row.max_mem.unwrap_or_default() - row.mem.unwrap_or_default();
    // A cast turns negative numbers into zero.
    free as u64
}

fn vmid_of(row: &Resource) -> Option<u32> {
    matches!(row.kind.as_str(), "qemu" | "lxc").then_some(row.vmid?)?.try_into().ok()
}

fn storages(rows: &[Resource]) -> Vec<StorageSeen> {
    let mut all: BTreeMap<String, StorageSeen> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.kind == "storage") {
        let (Some(name), Some(node)) = (row.storage.clone(), row.node.clone()) else { continue };
        let seen = all.entry(name.clone()).or_insert_with(|| StorageSeen {
            name,
            kind: row.plugin_type.clone().unwrap_or_default(),
            shared: row.shared,
            ..StorageSeen::default()
        });
        let content = row.content.as_deref().unwrap_or_default().split(',');
        seen.content.extend(content.map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()));
        if row.status.as_deref() == Some("available") {
            let free = row.max_disk.unwrap_or_default() - row.disk.unwrap_or_default();
            seen.free.insert(node, free as u64);
        }
    }
    all.into_values().collect()
}

fn template(vmid: u32, node: String, config: &VmConfig) -> TemplateSeen {
    let drive = primary_disk(config).and_then(|key| config.get(key));
    let storage = drive.and_then(|drive| Some(drive.split_once(':')?.0.to_owned()));
    let card = config.get("net0").unwrap_or_default();
    let bridge = card.split(',').find_map(|part| part.strip_prefix("bridge="));
    TemplateSeen {
        vmid,
        name: config.get("name").unwrap_or_default().to_owned(),
        node,
        has_cloud_init: has_cloud_init(config),
        has_agent: has_agent(config),
        is_windows: config.get("ostype").is_some_and(|kind| kind.starts_with('w')),
        storage,
        bridge: bridge.map(str::to_owned),
    }
}
