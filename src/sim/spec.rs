//! The description of a simulated cluster: the format of `drover sim --cluster FILE`, and the
//! fixtures of tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of Proxmox VE that is simulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PveVersion {
    /// 7.4: older than the oldest version that drover supports. It reports 7.4 and behaves as 8.4.
    #[serde(rename = "7.4")]
    V7_4,
    /// 8.4: has `VM.Monitor`; `file-read` takes no parameters.
    #[default]
    #[serde(rename = "8.4")]
    V8_4,
    /// 9.2: has `VM.GuestAgent.*` and bulk actions.
    #[serde(rename = "9.2")]
    V9_2,
}

impl PveVersion {
    /// The answer of `GET /version`: the release, the version, the repository id.
    pub(crate) fn version_strings(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::V7_4 => ("7.4", "7.4-19", "f98bf8d4"),
            Self::V8_4 => ("8.4", "8.4.21", "2606ac850d46da29"),
            Self::V9_2 => ("9.2", "9.2.11", "52b3e1f9a4c07d68"),
        }
    }
}

/// A whole cluster as data. Every key has a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct ClusterSpec {
    /// The cluster's name; empty for a node outside a cluster.
    pub name: String,
    pub nodes: Vec<NodeSpec>,
    pub storages: Vec<StorageSpec>,
    /// Guests and templates that exist at the start.
    pub guests: Vec<GuestSpec>,
    /// The same for containers. Beside Proxmox's keys, `ssh-public-keys` in `config` are the keys
    /// that their root accepts.
    pub containers: Vec<GuestSpec>,
    /// Users beside `root@pam`.
    pub users: Vec<UserSpec>,
    /// Roles beside the built-in ones, with their privileges.
    pub roles: BTreeMap<String, Vec<String>>,
    pub acl: Vec<AclSpec>,
    pub pools: Vec<PoolSpec>,
    /// `root@pam`'s password.
    pub root_password: String,
    /// API tokens of `root@pam`.
    pub root_tokens: Vec<TokenSpec>,
    /// The files that `download-url` can download.
    pub web: Vec<WebFile>,
    /// Leaves `message` out of error bodies, as nodes from before January 2025 do.
    pub old_errors: bool,
    /// Varies the types of scalars in answers at random, as Perl does.
    pub loose_types: bool,
    pub workers: WorkersSpec,
}

/// The number of processes on a node that handle calls, one call at a time each
/// (book: proxmox, section 1); 0 for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct WorkersSpec {
    /// Workers of pveproxy: they accept connections and handle reads that need no root.
    pub proxy: usize,
    /// Workers of pvedaemon: they handle protected calls.
    pub daemon: usize,
}

impl WorkersSpec {
    /// The same number for both daemons.
    pub const fn of(count: usize) -> Self {
        Self { proxy: count, daemon: count }
    }
}

impl Default for WorkersSpec {
    fn default() -> Self {
        Self::of(3)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeSpec {
    pub name: String,
    #[serde(default = "default_cpus")]
    pub cpus: u32,
    #[serde(default = "default_memory")]
    pub memory_bytes: u64,
    #[serde(default = "default_bridges")]
    pub bridges: Vec<String>,
    /// The bridges that are VLAN-aware.
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StorageSpec {
    pub name: String,
    /// Proxmox's plug-in type: `dir`, `nfs`, `lvm`, `lvmthin`, `zfspool`, `rbd`, `btrfs`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Content types: `images`, `iso`, `snippets`, `vztmpl`, `backup`, `import`, `rootdir`.
    pub content: Vec<String>,
    /// Whether all nodes share one set of volumes.
    #[serde(default)]
    pub shared: bool,
    /// The nodes with this storage; empty for all.
    #[serde(default)]
    pub nodes: Vec<String>,
    #[serde(default = "default_storage_size")]
    pub size_bytes: u64,
    /// Whether it is switched off.
    #[serde(default)]
    pub disabled: bool,
}

fn default_storage_size() -> u64 {
    1 << 40
}

/// A file that nodes can download.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebFile {
    pub url: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 in lower-case hexadecimal.
    #[serde(default)]
    pub sha256: String,
    /// SHA-512 in lower-case hexadecimal.
    #[serde(default)]
    pub sha512: String,
}

/// A guest that exists at the start. The disks named in `config` are allocated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GuestSpec {
    pub vmid: u32,
    pub node: String,
    #[serde(default)]
    pub template: bool,
    #[serde(default)]
    pub running: bool,
    #[serde(default)]
    pub pool: Option<String>,
    /// Keys and values as in Proxmox's config files.
    pub config: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct UserSpec {
    /// `user@realm`.
    pub userid: String,
    /// None for a user who cannot log in with a password.
    #[serde(default)]
    pub password: Option<String>,
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Whether a login with the password needs a second step, which is not served.
    #[serde(default)]
    pub second_factor: bool,
    #[serde(default)]
    pub tokens: Vec<TokenSpec>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenSpec {
    pub name: String,
    pub secret: String,
    #[serde(default = "default_true")]
    pub privsep: bool,
    /// Unix seconds after which the token is refused; 0 for never.
    #[serde(default)]
    pub expire: u64,
}

fn default_true() -> bool {
    true
}

/// An access control entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct AclSpec {
    /// A path such as `/pool/ci`.
    pub path: String,
    /// `user@realm`, `user@realm!token`, or `@group`.
    pub who: String,
    pub role: String,
    /// Whether the entry applies below the path too.
    #[serde(default = "default_true")]
    pub propagate: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PoolSpec {
    /// The name, with up to three levels.
    pub name: String,
    #[serde(default)]
    pub comment: Option<String>,
    #[serde(default)]
    pub storages: Vec<String>,
}
