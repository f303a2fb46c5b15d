//! Index routes: the names below a path, as Proxmox lists them. They include calls that the
//! simulator does not serve.

use serde_json::{Value, json};

const ROOT: &[&str] = &["version", "cluster", "nodes", "storage", "access", "pools"];
const ACCESS: &[&str] =
    &["users", "groups", "roles", "acl", "domains", "openid", "tfa", "ticket", "password"];
const CLUSTER: &[&str] = &[
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
const NODE: &[&str] = &[
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
const GUEST: &[&str] = &[
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
const STATUS: &[&str] = &["current", "start", "stop", "reset", "shutdown", "suspend", "reboot"];
const CONTAINER: &[&str] = &[
    "config",
    "pending",
    "status",
    "vncproxy",
    "termproxy",
    "vncwebsocket",
    "spiceproxy",
    "migrate",
    "clone",
    "template",
    "resize",
    "move_volume",
    "rrd",
    "rrddata",
    "feature",
    "firewall",
    "snapshot",
    "interfaces",
];
const CONTAINER_STATUS: &[&str] =
    &["current", "start", "stop", "shutdown", "suspend", "resume", "reboot"];
const AGENT: &[&str] = &[
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
const STORAGE: &[&str] = &[
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

const FIREWALL: &[&str] = &["rules", "options"];
const CLUSTER_FIREWALL: &[&str] =
    &["aliases", "groups", "ipset", "macros", "options", "refs", "rules"];
const GUEST_FIREWALL: &[&str] = &["aliases", "ipset", "log", "options", "refs", "rules"];
const REPLICATION: &[&str] = &["schedule_now", "log", "status"];
const SERVICE: &[&str] = &["state", "start", "stop", "restart", "reload"];

/// The answer of an index route; none for other routes.
pub(crate) fn list(route: &str) -> Option<Value> {
    let (key, names) = match route {
        "/" => ("subdir", ROOT),
        "/access" => ("subdir", ACCESS),
        "/cluster" => ("name", CLUSTER),
        "/nodes/{node}" => ("name", NODE),
        "/nodes/{node}/qemu/{vmid}" => ("subdir", GUEST),
        "/nodes/{node}/qemu/{vmid}/status" => ("subdir", STATUS),
        "/nodes/{node}/qemu/{vmid}/agent" => ("name", AGENT),
        "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}" => ("cmd", &["rollback", "config"][..]),
        "/nodes/{node}/lxc/{vmid}" => ("subdir", CONTAINER),
        "/nodes/{node}/lxc/{vmid}/status" => ("subdir", CONTAINER_STATUS),
        "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}" => ("cmd", &["rollback", "config"][..]),
        "/nodes/{node}/storage/{storage}" => ("subdir", STORAGE),
        "/cluster/backup-info" => ("subdir", &["not-backed-up"][..]),
        "/cluster/firewall" => ("name", CLUSTER_FIREWALL),
        "/cluster/mapping" => ("name", &["dir", "pci", "usb"][..]),
        "/cluster/metrics" => ("name", &["server"][..]),
        "/nodes/{node}/firewall" => ("name", FIREWALL),
        "/nodes/{node}/qemu/{vmid}/firewall" | "/nodes/{node}/lxc/{vmid}/firewall" => {
            ("name", GUEST_FIREWALL)
        }
        "/nodes/{node}/services/{service}" => ("subdir", SERVICE),
        "/nodes/{node}/capabilities" => ("name", &["qemu"][..]),
        "/nodes/{node}/capabilities/qemu" => {
            ("name", &["cpu", "cpu-flags", "machines", "migration"][..])
        }
        "/nodes/{node}/replication/{id}" => ("subdir", REPLICATION),
        "/nodes/{node}/tasks/{upid}" => ("name", &["log", "status"][..]),
        _ => return None,
    };
    Some(names.iter().map(|name| json!({key: name})).collect())
}
