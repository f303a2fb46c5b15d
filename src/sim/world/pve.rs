//! Fixed texts of Proxmox VE: its versions and index pages.

use crate::sim::spec::PveVersion;

/// Release, version and repository id.
pub const fn version(version: PveVersion) -> (&'static str, &'static str, &'static str) {
    match version {
        PveVersion::V8_4 => ("8.4", "8.4.21", "2606ac850d46da29"),
        PveVersion::V9_2 => ("9.2", "9.2.11", "71b6f3b0c1f2e8d4"),
    }
}

/// Entries of `/cluster`.
pub const CLUSTER_INDEX: &[&str] = &[
    "acme",
    "backup",
    "backup-info",
    "ceph",
    "config",
    "firewall",
    "ha",
    "jobs",
    "log",
    "mapping",
    "metrics",
    "notifications",
    "nextid",
    "options",
    "replication",
    "resources",
    "status",
    "tasks",
    "sdn",
];

/// Entries of `/nodes/{node}`.
pub const NODE_INDEX: &[&str] = &[
    "aplinfo",
    "apt",
    "capabilities",
    "ceph",
    "certificates",
    "config",
    "disks",
    "dns",
    "firewall",
    "hardware",
    "hosts",
    "journal",
    "lxc",
    "migrateall",
    "netstat",
    "network",
    "qemu",
    "query-url-metadata",
    "replication",
    "report",
    "rrd",
    "rrddata",
    "scan",
    "services",
    "spiceshell",
    "startall",
    "status",
    "stopall",
    "storage",
    "subscription",
    "suspendall",
    "syslog",
    "tasks",
    "termproxy",
    "time",
    "version",
    "vncshell",
    "vzdump",
    "wakeonlan",
    "sdn",
];

/// Entries of `/nodes/{node}/qemu/{vmid}`.
pub const GUEST_INDEX: &[&str] = &[
    "config",
    "cloudinit",
    "pending",
    "status",
    "unlink",
    "vncproxy",
    "termproxy",
    "migrate",
    "resize",
    "move",
    "rrd",
    "rrddata",
    "monitor",
    "agent",
    "snapshot",
    "spiceproxy",
    "sendkey",
    "firewall",
    "mtunnel",
    "remote_migrate",
];

/// Entries of `/nodes/{node}/qemu/{vmid}/status`.
pub const STATUS_INDEX: &[&str] =
    &["current", "start", "stop", "reset", "shutdown", "suspend", "reboot"];

/// Entries of `/nodes/{node}/qemu/{vmid}/agent`.
pub const AGENT_INDEX: &[&str] = &[
    "exec",
    "exec-status",
    "file-read",
    "file-write",
    "fsfreeze-freeze",
    "fsfreeze-status",
    "fsfreeze-thaw",
    "fstrim",
    "get-fsinfo",
    "get-host-name",
    "get-memory-block-info",
    "get-memory-blocks",
    "get-osinfo",
    "get-time",
    "get-timezone",
    "get-users",
    "get-vcpus",
    "info",
    "network-get-interfaces",
    "ping",
    "set-user-password",
    "shutdown",
    "suspend-disk",
    "suspend-hybrid",
    "suspend-ram",
];

/// Entries of `/nodes/{node}/storage/{storage}`.
pub const STORAGE_INDEX: &[&str] = &[
    "content",
    "download-url",
    "file-restore",
    "import-metadata",
    "prunebackups",
    "rrd",
    "rrddata",
    "status",
    "upload",
];
