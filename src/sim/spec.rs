//! The description of a simulated cluster: what `drover sim --cluster FILE` reads, and what
//! fixtures of tests are written in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which Proxmox VE the simulator plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PveVersion {
    /// 7.4: behind the oldest that drover supports; as 8.4 in all but what it says of itself.
    #[serde(rename = "7.4")]
    V7_4,
    /// 8.4: `VM.Monitor`, no `file-read` parameters.
    #[default]
    #[serde(rename = "8.4")]
    V8_4,
    /// 9.2: `VM.GuestAgent.*`, bulk actions.
    #[serde(rename = "9.2")]
    V9_2,
}

impl PveVersion {
    /// What `GET /version` says: the release, the version, the repository id.
    pub fn facts(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::V7_4 => ("7.4", "7.4-19", "f98bf8d4"),
            Self::V8_4 => ("8.4", "8.4.21", "2606ac850d46da29"),
            Self::V9_2 => ("9.2", "9.2.11", "52b3e1f9a4c07d68"),
        }
    }
}

/// A whole cluster as data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The cluster's name; empty for a lone node.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// Its storages.
    pub storages: Vec<StorageSpec>,
    /// Guests and templates that exist at the start.
    pub guests: Vec<GuestSpec>,
    /// Users beside `root@pam`.
    pub users: Vec<UserSpec>,
    /// Roles beside the built-in ones: name to privileges.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Access control entries.
    pub acl: Vec<AclSpec>,
    /// Resource pools.
    pub pools: Vec<PoolSpec>,
    /// `root@pam`'s password.
    pub root_password: String,
    /// API tokens of `root@pam`.
    pub root_tokens: Vec<TokenSpec>,
    /// What `download-url` finds on the web.
    pub web: Vec<WebFile>,
    /// Whether error bodies carry `message` (false plays nodes before January 2025).
    pub old_errors: bool,
    /// Whether scalar types of answers are varied at random, as Perl's are.
    pub loose_types: bool,
    /// Processes of each node that handle calls.
    pub workers: WorkersSpec,
}

/// Processes of a node that handle calls, each one call at a time (behaviour section 1); 0 for no
/// bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct WorkersSpec {
    /// Workers of pveproxy: they take connections and handle reads that need no root.
    pub proxy: usize,
    /// Workers of pvedaemon: they handle protected calls.
    pub daemon: usize,
}

impl WorkersSpec {
    /// As many of both daemons.
    pub const fn of(count: usize) -> Self {
        Self { proxy: count, daemon: count }
    }
}

impl Default for WorkersSpec {
    /// As Proxmox has when nobody changes it.
    fn default() -> Self {
        Self::of(3)
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Processor threads.
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    /// Memory in bytes.
    #[serde(default = "default_memory")]
    pub memory_bytes: u64,
    /// Bridges on it.
    #[serde(default = "default_bridges")]
    pub bridges: Vec<String>,
    /// Those of them that take VLAN tags.
    #[serde(default)]
    pub vlan_aware: Vec<String>,
}

impl NodeSpec {
    /// A node of the usual size.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cpus: default_cpus(),
            memory_bytes: default_memory(),
            bridges: default_bridges(),
            vlan_aware: Vec::new(),
        }
    }
}

fn default_cpus() -> u32 {
    16
}

fn default_memory() -> u64 {
    64 << 30
}

fn default_bridges() -> Vec<String> {
    vec!["vmbr0".into()]
}

/// A storage definition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StorageSpec {
    /// Its name.
    pub name: String,
    /// Proxmox's plug-in type: `dir`, `nfs`, `lvm`, `lvmthin`, `zfspool`, `rbd`, `btrfs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Content types it takes: `images`, `iso`, `snippets`, `vztmpl`, `backup`, `import`, `rootdir`.
    pub content: Vec<String>,
    /// One volume set for the whole cluster.
    #[serde(default)]
    pub shared: bool,
    /// Nodes that have it; empty for all.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Size in bytes.
    #[serde(default = "default_storage_size")]
    pub size_bytes: u64,
    /// Whether it is switched off.
    #[serde(default)]
    pub disabled: bool,
}

fn default_storage_size() -> u64 {
    1 << 40
}

/// A file that the nodes can download.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebFile {
    /// Its address.
    pub url: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, lower-case hexadecimal.
    #[serde(default)]
    pub sha256: String,
}

/// A guest that exists at the start; disks named in `config` are allocated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GuestSpec {
    /// Its VMID.
    pub vmid: u32,
    /// The node it is on.
    pub node: String,
    /// Whether it is a template.
    #[serde(default)]
    pub template: bool,
    /// Whether it runs.
    #[serde(default)]
    pub running: bool,
    /// Its pool.
    #[serde(default)]
    pub pool: Option<String>,
    /// Its configuration, keys as in Proxmox's config files.
    pub config: BTreeMap<String, String>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UserSpec {
    /// `user@realm`.
    pub userid: String,
    /// Its password, if it can log in.
    #[serde(default)]
    pub password: Option<String>,
    /// False for a disabled user.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Its API tokens.
    #[serde(default)]
    pub tokens: Vec<TokenSpec>,
}

/// An API token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenSpec {
    /// Its short name.
    pub name: String,
    /// Its secret.
    pub secret: String,
    /// Privilege separation.
    #[serde(default = "yes")]
    pub privsep: bool,
    /// Unix seconds after which it is refused; 0 for never.
    #[serde(default)]
    pub expire: u64,
}

fn yes() -> bool {
    true
}

/// An access control entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AclSpec {
    /// The path, such as `/pool/ci`.
    pub path: String,
    /// `user@realm`, `user@realm!token`, or `@group`.
    pub who: String,
    /// The role.
    pub role: String,
    /// Whether it counts below the path.
    #[serde(default = "yes")]
    pub propagate: bool,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PoolSpec {
    /// Its name, up to three levels.
    pub name: String,
    /// A comment.
    #[serde(default)]
    pub comment: Option<String>,
    /// Storages in it.
    #[serde(default)]
    pub storages: Vec<String>,
}
