//! Constant lists: the services of a node and the capabilities of QEMU.

use serde_json::{Value, json};

use super::context::CallContext;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::PveVersion;

/// The services that Proxmox lists: name, systemd's description, and whether they run (pve-manager,
/// API2/Services.pm:19).
const SERVICES: &[(&str, &str, bool)] = &[
    ("chrony", "chrony, an NTP client/server", true),
    ("corosync", "Corosync Cluster Engine", true),
    ("cron", "Regular background program processing daemon", true),
    ("ksmtuned", "Kernel Samepage Merging (KSM) Tuning Daemon", true),
    ("lxcfs", "FUSE filesystem for LXC", true),
    ("postfix", "Postfix Mail Transport Agent", true),
    ("proxmox-firewall", "Proxmox nftables firewall", true),
    ("pve-cluster", "The Proxmox VE cluster filesystem", true),
    ("pve-firewall", "Proxmox VE firewall", true),
    ("pve-ha-crm", "PVE Cluster HA Resource Manager Daemon", true),
    ("pve-ha-lrm", "PVE Local HA Resource Manager Daemon", true),
    ("pve-lxc-syscalld", "Proxmox VE LXC Syscall Daemon", true),
    ("pvedaemon", "PVE API Daemon", true),
    ("pvefw-logger", "Proxmox VE firewall logger", true),
    ("pveproxy", "PVE API Proxy Server", true),
    ("pvescheduler", "Proxmox VE scheduler", true),
    ("pvestatd", "PVE Status Daemon", true),
    ("qmeventd", "PVE Qemu Event Daemon", true),
    ("spiceproxy", "PVE SPICE Proxy Server", true),
    ("sshd", "OpenBSD Secure Shell server", true),
    ("syslog", "syslog.service", false),
    ("systemd-journald", "Journal Service", true),
    ("systemd-timesyncd", "systemd-timesyncd.service", false),
];

fn line((name, description, runs): &(&str, &str, bool), clustered: bool) -> Value {
    let runs = *runs && (*name != "corosync" || clustered);
    let (state, active) = if runs { ("running", "active") } else { ("dead", "inactive") };
    let unit = match (*name, runs) {
        ("syslog" | "systemd-timesyncd", _) => "not-found",
        ("systemd-journald", _) => "static",
        _ => "enabled",
    };
    json!({
        "service": name, "name": name, "desc": description, "state": state,
        "active-state": active, "unit-state": unit,
    })
}

/// `GET /nodes/{node}/services`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let clustered = !ctx.cluster.name.is_empty();
    let lines: Vec<Value> = SERVICES.iter().map(|service| line(service, clustered)).collect();
    Ok(Answer::new(lines.into()))
}

/// `GET /nodes/{node}/services/{service}/state`.
pub(crate) fn state(ctx: &CallContext) -> Outcome {
    let wanted = ctx.text("service").unwrap_or_default();
    let found = SERVICES.iter().find(|(name, ..)| *name == wanted);
    match found {
        Some(service) => Ok(Answer::new(line(service, !ctx.cluster.name.is_empty()))),
        None => Err(ApiError::failed(format!("no such service '{wanted}'"))),
    }
}

/// Intel processor models that QEMU knows (qemu-server, QemuServer/CPUConfig.pm:135).
const INTEL_CPUS: &[&str] = &[
    "486",
    "pentium",
    "pentium2",
    "pentium3",
    "coreduo",
    "core2duo",
    "Conroe",
    "Penryn",
    "Nehalem",
    "Nehalem-IBRS",
    "Westmere",
    "Westmere-IBRS",
    "SandyBridge",
    "SandyBridge-IBRS",
    "IvyBridge",
    "IvyBridge-IBRS",
    "Haswell",
    "Haswell-IBRS",
    "Haswell-noTSX",
    "Haswell-noTSX-IBRS",
    "Broadwell",
    "Broadwell-IBRS",
    "Broadwell-noTSX",
    "Broadwell-noTSX-IBRS",
    "Skylake-Client",
    "Skylake-Client-IBRS",
    "Skylake-Client-noTSX-IBRS",
    "Skylake-Server",
    "Skylake-Server-IBRS",
    "Skylake-Server-noTSX-IBRS",
    "Cascadelake-Server",
    "Cascadelake-Server-noTSX",
    "Cooperlake",
    "KnightsMill",
    "Icelake-Server",
    "Icelake-Server-noTSX",
    "SapphireRapids",
    "GraniteRapids",
];
/// AMD processor models.
const AMD_CPUS: &[&str] = &[
    "athlon",
    "phenom",
    "Opteron_G1",
    "Opteron_G2",
    "Opteron_G3",
    "Opteron_G4",
    "Opteron_G5",
    "EPYC",
    "EPYC-IBPB",
    "EPYC-Rome",
    "EPYC-Milan",
    "EPYC-Genoa",
];
/// Processor models with the vendor of the host.
const GENERIC_CPUS: &[&str] = &[
    "host",
    "kvm32",
    "kvm64",
    "max",
    "qemu32",
    "qemu64",
    "x86-64-v2",
    "x86-64-v2-AES",
    "x86-64-v3",
    "x86-64-v4",
];

/// `GET /nodes/{node}/capabilities/qemu/cpu`: the models for x86; there are no custom models.
pub(crate) fn processors() -> Outcome {
    let vendors =
        [(INTEL_CPUS, "GenuineIntel"), (AMD_CPUS, "AuthenticAMD"), (GENERIC_CPUS, "default")];
    let models = vendors.iter().flat_map(|(names, vendor)| {
        names.iter().map(move |name| json!({ "name": name, "custom": 0, "vendor": vendor }))
    });
    Ok(Answer::new(models.collect::<Vec<Value>>().into()))
}

/// `GET /nodes/{node}/capabilities/qemu/machines`: newest versions first [I].
pub(crate) fn machines(ctx: &CallContext) -> Outcome {
    let versions: &[&str] = match ctx.cluster.version {
        PveVersion::V7_4 => &["7.2", "7.1", "7.0", "6.2", "6.1", "6.0"],
        PveVersion::V8_4 => &["9.2", "9.1", "9.0", "8.2", "8.1", "8.0", "7.2", "7.1", "7.0"],
        PveVersion::V9_2 => &["11.0", "10.2", "10.1", "10.0", "9.2", "9.1", "9.0", "8.2", "8.1"],
    };
    let kinds = [("pc-i440fx", "i440fx"), ("pc-q35", "q35")];
    let machines = versions.iter().flat_map(|version| {
        kinds.iter().map(move |(stem, kind)| {
            json!({ "id": format!("{stem}-{version}"), "type": kind, "version": version })
        })
    });
    Ok(Answer::new(machines.collect::<Vec<Value>>().into()))
}

/// `GET …/replication/{id}`: the simulator defines no replication jobs.
pub(crate) fn replication(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    Err(ApiError::failed(format!("no such replication job '{id}'")))
}
