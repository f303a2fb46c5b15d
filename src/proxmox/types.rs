//! Shapes of Proxmox's answers, as much of them as the typed calls read.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::loose;

/// `GET /version`.
#[derive(Debug, Clone, Deserialize)]
pub struct Version {
    /// Such as `8.4.21`.
    pub version: String,
}

/// `POST /access/ticket`.
///
/// Not shown by `Debug`: it is a secret, wrapped as one where it is kept.
#[derive(Deserialize)]
pub struct Ticket {
    /// The ticket itself.
    pub ticket: String,
    /// What writes must carry beside it; absent while a second factor is wanted.
    #[serde(rename = "CSRFPreventionToken", default)]
    pub csrf: String,
    /// Whether a second factor is wanted.
    #[serde(rename = "NeedTFA", default, deserialize_with = "loose::flag")]
    pub need_tfa: bool,
}

/// One item of `GET /cluster/status`.
#[derive(Debug, Clone, Deserialize)]
pub struct StatusItem {
    /// `cluster` or `node`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The cluster's or the node's name.
    pub name: String,
    /// Whether the cluster is quorate.
    #[serde(default, deserialize_with = "loose::flag")]
    pub quorate: bool,
    /// Whether the node is online.
    #[serde(default, deserialize_with = "loose::flag")]
    pub online: bool,
    /// Whether it is the node that answers.
    #[serde(default, deserialize_with = "loose::flag")]
    pub local: bool,
}

/// One item of `GET /cluster/resources`; fields beyond ids and node may be 10 s old.
#[derive(Debug, Clone, Deserialize)]
pub struct Resource {
    /// `qemu`, `lxc`, `node`, `storage`, `pool`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The guest's VMID.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub vmid: Option<u64>,
    /// The node.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub node: Option<String>,
    /// The guest's name.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub name: Option<String>,
    /// The guest's tags, joined.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub tags: Option<String>,
    /// The guest's lock.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub lock: Option<String>,
    /// The guest's or node's status.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub status: Option<String>,
    /// Whether the guest is a template.
    #[serde(default, deserialize_with = "loose::flag")]
    pub template: bool,
    /// The storage's name.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub storage: Option<String>,
    /// Whether all nodes see the same storage.
    #[serde(default, deserialize_with = "loose::flag")]
    pub shared: bool,
    /// The part of its processors that is busy, from 0 to 1.
    #[serde(default, deserialize_with = "loose::figure")]
    pub cpu: Option<f64>,
    /// Processors.
    #[serde(rename = "maxcpu", default, deserialize_with = "loose::figure")]
    pub max_cpu: Option<f64>,
    /// Bytes of memory in use.
    #[serde(default, deserialize_with = "loose::figure")]
    pub mem: Option<f64>,
    /// The same of a guest as its node counts it (since 9).
    #[serde(rename = "memhost", default, deserialize_with = "loose::figure")]
    pub mem_host: Option<f64>,
    /// Bytes of memory.
    #[serde(rename = "maxmem", default, deserialize_with = "loose::figure")]
    pub max_mem: Option<f64>,
    /// Bytes of a storage in use.
    #[serde(default, deserialize_with = "loose::figure")]
    pub disk: Option<f64>,
    /// Bytes of a storage, or of the disk a guest boots from.
    #[serde(rename = "maxdisk", default, deserialize_with = "loose::figure")]
    pub max_disk: Option<f64>,
    /// A storage's type, such as `lvmthin`.
    #[serde(rename = "plugintype", default, deserialize_with = "loose::maybe_text")]
    pub plugin_type: Option<String>,
    /// What a storage takes, joined.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub content: Option<String>,
    /// What high availability says of a node or guest.
    #[serde(rename = "hastate", default, deserialize_with = "loose::maybe_text")]
    pub ha_state: Option<String>,
}

/// One item of `GET /nodes/{node}/certificates/info`.
#[derive(Debug, Clone, Deserialize)]
pub struct Certificate {
    /// Its file, such as `pve-root-ca.pem`.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub filename: Option<String>,
    /// Its SHA-256, upper case with colons.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub fingerprint: Option<String>,
}

/// One item of a task list.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskRow {
    /// The task.
    pub upid: String,
    /// When it ended, Unix seconds.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub endtime: Option<u64>,
    /// `RUNNING`, or the exit status.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub status: Option<String>,
}

/// `GET /nodes/{node}/tasks/{upid}/status`.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskStatus {
    /// `running` or `stopped`.
    pub status: String,
    /// How it ended.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub exitstatus: Option<String>,
}

/// One line of a task's log.
#[derive(Debug, Clone, Deserialize)]
pub struct LogLine {
    /// Its text.
    #[serde(default)]
    pub t: String,
}

/// `GET …/status/current`.
#[derive(Debug, Clone, Deserialize)]
pub struct Current {
    /// `running` or `stopped`.
    pub status: String,
    /// The guest's lock.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub lock: Option<String>,
}

/// One storage of `GET /nodes/{node}/storage`.
#[derive(Debug, Clone, Deserialize)]
pub struct Storage {
    /// Its id.
    pub storage: String,
    /// Whether the node reaches it.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub active: Option<bool>,
    /// What it takes, separated by commas.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub content: Option<String>,
    /// Whether every node sees the same one.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub shared: Option<bool>,
}

/// One volume of a storage's content.
#[derive(Debug, Clone, Deserialize)]
pub struct Volume {
    /// Its id, `storage:path`.
    pub volid: String,
    /// The guest it belongs to.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub vmid: Option<u64>,
    /// Its size in bytes.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub size: Option<u64>,
}

/// What the guest agent says of one interface; from a hostile guest, so every field may lack.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MAC address.
    pub hardware_address: Option<String>,
    /// Its addresses.
    pub ip_addresses: Vec<InterfaceAddress>,
}

/// One address of an interface.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct InterfaceAddress {
    /// The address.
    pub ip_address: String,
}

/// `GET …/agent/file-read`.
#[derive(Debug, Clone, Deserialize)]
pub struct FileRead {
    /// The file's content.
    #[serde(default)]
    pub content: String,
}

/// A guest's configuration: every key as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmConfig(BTreeMap<String, String>);

impl VmConfig {
    /// Takes keys and values as they are.
    pub fn new<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All keys and values, in order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Its lock.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock").filter(|lock| !lock.is_empty())
    }

    /// Whether it is a template.
    pub fn is_template(&self) -> bool {
        self.get("template").is_some_and(|value| value == "1")
    }
}

impl<'de> Deserialize<'de> for VmConfig {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, Value>::deserialize(from)?;
        let pairs = map.into_iter();
        Ok(Self(pairs.filter_map(|(key, value)| Some((key, loose::as_text(&value)?))).collect()))
    }
}
