//! Machines of agents: what they show, orders to them, and their snapshots.

use drover_model::phase::{OrderPhase, Power};
use serde::{Deserialize, Serialize};

// Not `OrderStatus`: the hash of the key is shown to nobody, and times are spelled.
/// An order to a machine, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OrderOut {
    /// The id of the order.
    pub id: String,
    /// The agent whose machine it is.
    pub agent: String,
    /// `start`, `stop`, `shutdown`, `reboot`, `reset`, `suspend`, `resume`, `snapshot`, `revert`,
    /// `delete-snapshot` or `resize`.
    pub action: String,
    /// What it asks for, for people.
    pub wants: String,
    pub state: OrderPhase,
    /// Who asked for it.
    pub principal: String,
    /// When (RFC 3339).
    pub asked_at: String,
    /// When it was over (RFC 3339); null while it is carried out.
    pub ended_at: Option<String>,
    /// What came of it, for people.
    pub detail: String,
}

/// An order to switch a machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PowerIn {
    /// `start`, `stop`, `shutdown`, `reboot`, `reset`, `suspend` or `resume`.
    pub action: String,
    /// The same key and order answer the same order again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// An order to take a snapshot.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotIn {
    /// 2 to 40 letters, digits, `_` and `-`, a letter first; not drover's own.
    pub name: String,
    /// Text for people, at most 500 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it holds the memory of a running machine too.
    #[serde(default)]
    pub memory: bool,
    /// The same key and order answer the same order again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// An order that needs nothing but its path.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OrderIn {
    /// The same key and order answer the same order again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// An order to give a machine other sizes; what is absent stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResizeIn {
    /// Processor cores of each socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// The disk it boots from, in GiB; disks cannot shrink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<u32>,
    /// The same key and order answer the same order again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// One key of a machine's hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ConfigOutValue {
    /// As Proxmox calls it.
    pub key: String,
    /// What holds now; null where nothing does.
    pub value: Option<String>,
    /// What holds once the machine restarts; null where nothing changes.
    pub pending: Option<String>,
    /// Whether the restart takes the key away.
    pub deleted: bool,
}

/// The load of a machine, as its node counts it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LoadOut {
    /// The busy part of its processors, from 0 to 1.
    pub cpu: Option<f64>,
    /// The number of processors.
    pub cpus: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// All its memory, in bytes.
    pub memory_bytes: Option<f64>,
}

/// A machine as its cluster showed it at this moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct MachineOut {
    /// The agent whose machine it is.
    pub agent: String,
    /// Its template, `cloud/template`.
    pub template: String,
    /// The cloud that it was looked at through.
    pub cloud: String,
    /// The id of the cluster.
    pub cluster: String,
    pub node: String,
    pub vmid: u32,
    /// Whether it runs.
    pub state: Power,
    /// Proxmox's own word for that.
    pub proxmox_state: String,
    /// Whether it is meant to run, by the orders so far.
    pub ordered_state: Power,
    /// Proxmox's lock of its configuration, such as `backup`; null where there is none.
    pub lock: Option<String>,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    pub load: LoadOut,
    /// IPv4 and IPv6 addresses that its guest agent reports, without loopback and link-local ones.
    pub addresses: Vec<String>,
    /// Why there is none; null where there are some.
    pub no_address: Option<String>,
    /// The page of Proxmox with its console.
    pub console_url: String,
    /// Its hardware, with changes that wait for a restart.
    pub config: Vec<ConfigOutValue>,
    /// The number of its snapshots, drover's own left out.
    pub snapshots: usize,
    /// The last orders, oldest first.
    pub orders: Vec<OrderOut>,
}

/// A snapshot of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOut {
    pub name: String,
    pub description: String,
    /// When it was taken (RFC 3339); null where Proxmox does not say.
    pub taken_at: Option<String>,
    /// Whether it holds the memory too.
    pub memory: bool,
    /// The snapshot that it comes from; null for the first.
    pub parent: Option<String>,
    /// Whether the present state comes from it.
    pub current: bool,
    /// Whether it is drover's own, which no order touches.
    pub own: bool,
    /// `prepare` or `delete` where it was started and not finished; null otherwise.
    pub unfinished: Option<String>,
}

/// The snapshots of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotsOut {
    /// The agent whose machine it is.
    pub agent: String,
    /// By their time, each behind the one that it comes from.
    pub snapshots: Vec<SnapshotOut>,
}
