//! Nodes: list, load, version, time and certificates.

use serde_json::{Value, json};

use super::context::CallContext;
use super::state::State;
use super::world_control::WorldControl;
use crate::call::{Answer, ApiError, Outcome};

/// The size of the root file system.
const ROOT_FS_BYTES: u64 = 252 << 30;
/// The used part of it.
const ROOT_FS_USED_BYTES: u64 = 24 << 30;
/// The processors that a running guest keeps busy.
pub(super) const GUEST_CPU_LOAD: f64 = 0.2;

/// The entry of a node in lists. The load needs a privilege, and is as of the same daemon cycle as
/// that of the guests.
pub(crate) fn entry(ctx: &CallContext, state: &State, name: &str, resource: bool) -> Value {
    let node = state.nodes.get(name);
    let online = state.online(&ctx.call.received_by, name);
    let mut entry = json!({
        "id": format!("node/{name}"), "type": "node", "node": name, "level": "",
        "status": if online { "online" } else { "offline" },
    });
    if resource {
        entry["cgroup-mode"] = (if online { 2 } else { 0 }).into();
    } else {
        entry["ssl_fingerprint"] = ctx.cluster.certificates().served_fingerprint().into();
    }
    let Some(node) = node.filter(|_| online) else { return entry };
    if resource && node.overrides.maintenance {
        entry["hastate"] = "maintenance".into();
    }
    if ctx.has(&format!("/nodes/{name}"), "Sys.Audit") {
        let (guests, memory) = broadcast_load(state, name);
        entry["cpu"] = cpu_load(state, name, guests).into();
        entry["maxcpu"] = node.spec.cpus.into();
        entry["mem"] = memory_used(state, name, memory).into();
        entry["maxmem"] = node.spec.memory_bytes.into();
        entry["disk"] = ROOT_FS_USED_BYTES.into();
        entry["maxdisk"] = ROOT_FS_BYTES.into();
        entry["uptime"] = node.uptime(state.clock.now()).into();
    }
    entry
}

/// The number of guests that run on a node and the memory they use, as of the last cycle of the
/// daemon.
fn broadcast_load(state: &State, name: &str) -> (usize, u64) {
    let now = state.clock.now();
    let here = state.all_guests().filter(|guest| guest.node == name);
    let statuses = here.filter_map(|guest| guest.broadcast.unexpired(now));
    let running = statuses.filter(|(_, status)| status.started_at.is_some());
    running.fold((0, 0), |(count, sum), (_, status)| (count + 1, sum + status.memory_bytes / 4))
}

/// The same at this moment.
fn current_load(state: &State, name: &str) -> (usize, u64) {
    let running = state.all_guests().filter(|guest| guest.node == name && guest.process.is_some());
    running.fold((0, 0), |(count, sum), guest| {
        (count + 1, sum + super::conf::memory_bytes(&guest.config) / 4)
    })
}

/// What runs on a node at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pub name: String,
    /// Guests that run.
    pub running: usize,
    /// Guests that do not run, without templates.
    pub stopped: usize,
    pub memory_used_bytes: u64,
    pub memory_bytes: u64,
}

impl WorldControl {
    /// What runs on each node at this moment, by name.
    pub fn node_loads(&self) -> Vec<NodeLoad> {
        let state = self.cluster.state();
        let load = |(name, node): (&String, &super::state::Node)| {
            let (running, memory) = current_load(&state, name);
            let own = state.all_guests().filter(|guest| guest.node == *name);
            let stopped = own.filter(|guest| guest.process.is_none() && !guest.is_template());
            NodeLoad {
                name: name.clone(),
                running,
                stopped: stopped.count(),
                memory_used_bytes: memory_used(&state, name, memory),
                memory_bytes: node.spec.memory_bytes,
            }
        };
        state.nodes.iter().map(load).collect()
    }
}

fn memory_used(state: &State, name: &str, guests: u64) -> u64 {
    let non_guest = state.nodes.get(name).map_or(0, |node| node.overrides.memory_bytes);
    guests + non_guest + (1 << 30)
}

fn cpu_load(state: &State, name: &str, guests: usize) -> f64 {
    let cpus = state.nodes.get(name).map_or(1, |node| node.spec.cpus.max(1));
    let non_guest = state.nodes.get(name).map_or(0.0, |node| node.overrides.cpus);
    (0.03 + (guests as f64 * GUEST_CPU_LOAD + non_guest) / f64::from(cpus)).min(1.0)
}

/// `GET /nodes`.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    super::resources::broadcast_all(&ctx.cluster, &mut state);
    let entries: Vec<Value> =
        state.nodes.keys().map(|name| entry(ctx, &state, name, false)).collect();
    Ok(Answer::new(entries.into()))
}

/// `GET /nodes/{node}/status`.
pub(crate) fn status(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let Some(node) = state.nodes.get(&ctx.node) else {
        return Err(ApiError::failed(format!("no such node '{}'", ctx.node)));
    };
    let (_, version, repo) = ctx.cluster.version.version_strings();
    let (guests, memory) = current_load(&state, &ctx.node);
    let (total, used) = (node.spec.memory_bytes, memory_used(&state, &ctx.node, memory));
    let kernel = "6.8.12-15-pve";
    Ok(Answer::new(json!({
        "pveversion": format!("pve-manager/{version}/{repo}"),
        "kversion": format!("Linux {kernel} #1 SMP PREEMPT_DYNAMIC PMX 6.8.12-15"),
        "current-kernel": {
            "sysname": "Linux", "release": kernel, "machine": "x86_64",
            "version": "#1 SMP PREEMPT_DYNAMIC PMX 6.8.12-15",
        },
        "boot-info": { "mode": "efi" },
        "uptime": node.uptime(state.clock.now()), "idle": 0, "wait": 0,
        "cpu": cpu_load(&state, &ctx.node, guests), "loadavg": ["0.57", "0.91", "1.28"],
        "memory": { "total": total, "used": used, "free": total.saturating_sub(used) },
        "swap": { "total": 0, "used": 0, "free": 0 }, "ksm": { "shared": 0 },
        "rootfs": {
            "total": ROOT_FS_BYTES, "used": ROOT_FS_USED_BYTES, "free": ROOT_FS_BYTES - ROOT_FS_USED_BYTES, "avail": ROOT_FS_BYTES - ROOT_FS_USED_BYTES,
        },
        "cpuinfo": {
            "cpus": node.spec.cpus, "cores": node.spec.cpus, "sockets": 1, "model": "AMD EPYC",
            "mhz": "2596.128", "hvm": "1", "user_hz": 100, "flags": "fpu vme de pse tsc msr",
        },
    })))
}

/// `GET /nodes/{node}/version`.
pub(crate) fn version(ctx: &CallContext) -> Outcome {
    let (release, version, repo) = ctx.cluster.version.version_strings();
    Ok(Answer::new(json!({ "release": release, "version": version, "repoid": repo })))
}

/// `GET /nodes/{node}/time`.
pub(crate) fn time(ctx: &CallContext) -> Outcome {
    let now = ctx.cluster.state().clock.unix();
    Ok(Answer::new(json!({ "time": now, "localtime": now, "timezone": "Etc/UTC" })))
}

/// `GET /nodes/{node}/certificates/info`.
pub(crate) fn certificates(ctx: &CallContext) -> Outcome {
    let own = ctx.cluster.certificates();
    let now = ctx.cluster.state().clock.unix();
    let line = |file: &str, pem: &str, fingerprint: &str, subject: String| {
        json!({
            "filename": file, "pem": pem, "fingerprint": fingerprint, "subject": subject,
            "issuer": "/CN=Proxmox Virtual Environment/OU=drover simulation/O=PVE Cluster Manager CA",
            "notbefore": now.saturating_sub(86_400), "notafter": now + 365 * 86_400,
            "public-key-type": "id-ecPublicKey", "public-key-bits": 256,
            "san": [ctx.node, "localhost", "127.0.0.1"],
        })
    };
    let ca = "/CN=Proxmox Virtual Environment/OU=drover simulation/O=PVE Cluster Manager CA";
    let subject = format!("/CN={}", ctx.node);
    let mut all = vec![
        line("pve-root-ca.pem", &own.ca_pem, &own.ca_fingerprint, ca.to_owned()),
        line("pve-ssl.pem", &own.leaf_pem, &own.leaf_fingerprint, subject.clone()),
    ];
    if let Some((pem, fingerprint)) = &own.proxy {
        all.push(line("pveproxy-ssl.pem", pem, fingerprint, subject));
    }
    Ok(Answer::new(all.into()))
}
