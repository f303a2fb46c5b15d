//! The shapes of Proxmox's answers, with the fields that callers need so far.
//!
//! Perl types loosely: numbers may come as text and flags as `0`, `"1"` or not at all. So fields
//! are read by [`crate::loose`], and a field that a node may omit is an `Option`. A guest's
//! configuration is a map of texts ([`VmConfig`]), because its keys are open-ended.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::loose;

/// `GET /version`.
#[derive(Debug, Clone, Deserialize)]
pub struct Version {
    /// The version, such as `8.4.21`.
    pub version: String,
}

/// `POST /access/ticket`.
///
/// No `Debug`: it holds a secret, which is wrapped where it is kept.
#[derive(Deserialize)]
pub(crate) struct Ticket {
    /// The ticket, sent as a cookie.
    pub ticket: String,
    /// The CSRF token that writes must carry; absent while a second factor is needed.
    #[serde(rename = "CSRFPreventionToken", default)]
    pub csrf: String,
    /// Whether a second factor is needed.
    #[serde(rename = "NeedTFA", default, deserialize_with = "loose::flag")]
    pub need_tfa: bool,
}

/// One item of `GET /cluster/status`.
#[derive(Debug, Clone, Deserialize)]
pub struct StatusItem {
    /// `cluster` or `node`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The name of the cluster or node.
    pub name: String,
    /// Whether the cluster has quorum.
    #[serde(default, deserialize_with = "loose::flag")]
    pub quorate: bool,
    /// Whether the node is online.
    #[serde(default, deserialize_with = "loose::flag")]
    pub online: bool,
    /// Whether this is the node that answers.
    #[serde(default, deserialize_with = "loose::flag")]
    pub local: bool,
    /// The address of a node in the cluster.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub ip: Option<String>,
}

/// One row of `GET /cluster/resources`; all fields but ids and node may be 10 s old.
#[derive(Debug, Clone, Deserialize)]
pub struct Resource {
    /// `qemu`, `lxc`, `node`, `storage`, `pool`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The VMID of a guest.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub vmid: Option<u64>,
    /// The node that a guest or storage is on, or the node itself.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub node: Option<String>,
    /// The name of a guest.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub name: Option<String>,
    /// The tags of a guest, in one text.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub tags: Option<String>,
    /// The lock of a guest, such as `backup`.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub lock: Option<String>,
    /// The status of a guest, node or storage.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub status: Option<String>,
    /// Whether the guest is a template.
    #[serde(default, deserialize_with = "loose::flag")]
    pub template: bool,
    /// The name of a storage.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub storage: Option<String>,
    /// Whether all nodes see the same storage.
    #[serde(default, deserialize_with = "loose::flag")]
    pub shared: bool,
    /// The busy part of the processors, from 0 to 1.
    #[serde(default, deserialize_with = "loose::figure")]
    pub cpu: Option<f64>,
    /// The number of processors.
    #[serde(rename = "maxcpu", default, deserialize_with = "loose::figure")]
    pub max_cpu: Option<f64>,
    /// Memory in use, in bytes.
    #[serde(default, deserialize_with = "loose::figure")]
    pub mem: Option<f64>,
    /// The memory in use of a guest as its node counts it, in bytes (since 9).
    #[serde(rename = "memhost", default, deserialize_with = "loose::figure")]
    pub mem_host: Option<f64>,
    /// Total memory in bytes.
    #[serde(rename = "maxmem", default, deserialize_with = "loose::figure")]
    pub max_mem: Option<f64>,
    /// Used space of a storage in bytes.
    #[serde(default, deserialize_with = "loose::figure")]
    pub disk: Option<f64>,
    /// Total space of a storage, or of the disk that a guest boots from, in bytes.
    #[serde(rename = "maxdisk", default, deserialize_with = "loose::figure")]
    pub max_disk: Option<f64>,
    /// The type of a storage, such as `lvmthin`.
    #[serde(rename = "plugintype", default, deserialize_with = "loose::maybe_text")]
    pub plugin_type: Option<String>,
    /// The content types that a storage accepts, in one text.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub content: Option<String>,
    /// The high-availability state of a node or guest.
    #[serde(rename = "hastate", default, deserialize_with = "loose::maybe_text")]
    pub ha_state: Option<String>,
}

/// One item of `GET /nodes/{node}/certificates/info`.
#[derive(Debug, Clone, Deserialize)]
pub struct Certificate {
    /// The certificate's file, such as `pve-root-ca.pem`.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub filename: Option<String>,
    /// The SHA-256 fingerprint, upper case with colons.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub fingerprint: Option<String>,
    /// The certificate itself, PEM.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub pem: Option<String>,
}

/// One item of a task list.
#[derive(Debug, Clone, Deserialize)]
pub struct TaskRow {
    /// The task's UPID.
    pub upid: String,
    /// When the task ended, in Unix seconds.
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
    /// The exit status of a task that has ended.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub exitstatus: Option<String>,
}

/// One line of a task's log.
#[derive(Debug, Clone, Deserialize)]
pub struct LogLine {
    /// The text of the line.
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
    /// The state of QEMU's process, such as `running`, `paused` or `io-error`.
    #[serde(rename = "qmpstatus", default, deserialize_with = "loose::maybe_text")]
    pub qmp_status: Option<String>,
    /// Seconds since the process started.
    #[serde(default, deserialize_with = "loose::figure")]
    pub uptime: Option<f64>,
    /// The process; none where there is none.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub pid: Option<u64>,
    /// The busy part of the processors, from 0 to 1.
    #[serde(default, deserialize_with = "loose::figure")]
    pub cpu: Option<f64>,
    /// The number of processors.
    #[serde(default, deserialize_with = "loose::figure")]
    pub cpus: Option<f64>,
    /// Memory in use, in bytes.
    #[serde(default, deserialize_with = "loose::figure")]
    pub mem: Option<f64>,
    /// All memory, in bytes.
    #[serde(rename = "maxmem", default, deserialize_with = "loose::figure")]
    pub max_mem: Option<f64>,
}

/// One row of `GET …/pending`.
#[derive(Debug, Clone, Deserialize)]
pub struct PendingRow {
    /// The key of the configuration.
    pub key: String,
    /// What holds now.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub value: Option<String>,
    /// What holds from the next start on.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub pending: Option<String>,
    /// Whether the next start takes the key away: 1, or 2 where that was forced.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub delete: Option<u64>,
}

/// One row of `GET …/snapshot`. The row `current` is the present state and no snapshot.
#[derive(Debug, Clone, Deserialize)]
pub struct SnapshotRow {
    /// The snapshot's name.
    pub name: String,
    /// What its maker wrote.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub description: Option<String>,
    /// When it was taken, in Unix seconds.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub snaptime: Option<u64>,
    /// Whether it holds the memory too.
    #[serde(default, deserialize_with = "loose::flag")]
    pub vmstate: bool,
    /// The snapshot that it comes from.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub parent: Option<String>,
    /// `prepare` or `delete` of one that was started and not finished.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub snapstate: Option<String>,
}

/// One storage of `GET /nodes/{node}/storage`.
#[derive(Debug, Clone, Deserialize)]
pub struct Storage {
    /// The storage's name in the cluster's configuration.
    pub storage: String,
    /// Whether the node can reach the storage.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub active: Option<bool>,
    /// The content types that the storage accepts, separated by commas.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub content: Option<String>,
    /// Whether all nodes see the same storage.
    #[serde(default, deserialize_with = "loose::maybe_flag")]
    pub shared: Option<bool>,
}

/// One volume of a storage's content.
#[derive(Debug, Clone, Deserialize)]
pub struct Volume {
    /// The volume's id, `storage:path`.
    pub volid: String,
    /// The VMID of the guest that owns the volume.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub vmid: Option<u64>,
    /// The volume's size in bytes.
    #[serde(default, deserialize_with = "loose::maybe_number")]
    pub size: Option<u64>,
    /// The volume that it shares data with, where the storage says so.
    #[serde(default, deserialize_with = "loose::maybe_text")]
    pub parent: Option<String>,
}

/// One network interface as the guest agent reports it. Guests may be hostile, so every field may
/// be missing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GuestInterface {
    /// The interface's name in the guest.
    pub name: String,
    /// The MAC address.
    pub hardware_address: Option<String>,
    /// The IP addresses of the interface.
    pub ip_addresses: Vec<GuestAddress>,
}

/// One IP address of a guest's interface.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GuestAddress {
    /// The address as text, not validated.
    pub ip_address: String,
}

/// One network interface of a container. Nodes before pve-container 5.3 have `inet` and `inet6`
/// alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ContainerInterface {
    /// The interface's name in the container.
    pub name: String,
    /// The MAC address.
    pub hwaddr: Option<String>,
    /// The first IPv4 address with its prefix length.
    pub inet: Option<String>,
    /// The first IPv6 address with its prefix length.
    pub inet6: Option<String>,
    /// All IP addresses.
    pub ip_addresses: Vec<GuestAddress>,
}

impl From<ContainerInterface> for GuestInterface {
    fn from(seen: ContainerInterface) -> Self {
        let ContainerInterface { name, hwaddr, inet, inet6, mut ip_addresses } = seen;
        if ip_addresses.is_empty() {
            let bare = |text: String| text.split('/').next().unwrap_or_default().to_owned();
            let old = [inet, inet6].into_iter().flatten().map(bare);
            ip_addresses = old.map(|ip_address| GuestAddress { ip_address }).collect();
        }
        Self { name, hardware_address: hwaddr, ip_addresses }
    }
}

/// `GET …/agent/file-read`.
#[derive(Debug, Clone, Deserialize)]
pub struct FileRead {
    /// The file's content.
    #[serde(default)]
    pub content: String,
}

/// A guest's configuration: every value as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VmConfig(BTreeMap<String, String>);

impl VmConfig {
    /// A configuration with these keys and values.
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

    /// The guest's lock, if it has one.
    pub fn lock(&self) -> Option<&str> {
        self.get("lock").filter(|lock| !lock.is_empty())
    }

    /// Whether the guest is a template.
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

/// One row of `GET /cluster/mapping/pci` or `usb`.
#[derive(Debug, Clone, Deserialize)]
pub struct ResourceMapping {
    /// Its id, such as `gpu`.
    pub id: String,
    /// One item for each device, such as `id=1af4:1042,node=pve1,path=0000:00:01.0`.
    #[serde(default)]
    pub map: Vec<String>,
    /// Whether several guests share a device.
    #[serde(default, deserialize_with = "loose::flag")]
    pub mdev: bool,
}
