//! Nodes: the list, load, version, time, network and certificates.

use serde_json::{Value, json};

use super::ask::Ask;
use super::state::State;
use crate::call::{Answer, ApiError, Outcome};

/// The root file system of every node.
const ROOT: u64 = 252 << 30;
/// What of it is in use.
const ROOT_USED: u64 = 24 << 30;
/// Processors that a running guest keeps busy.
pub(super) const GUEST_LOAD: f64 = 0.2;

/// A node's entry in lists; its load only for those who may see it, and as of the same cycle of its
/// status daemon as that of its guests.
pub fn entry(ask: &Ask, state: &State, name: &str, resource: bool) -> Value {
    let node = state.nodes.get(name);
    let online = state.online(&ask.call.received_by, name);
    let mut entry = json!({
        "id": format!("node/{name}"), "type": "node", "node": name, "level": "",
        "status": if online { "online" } else { "offline" },
    });
    if resource {
        entry["cgroup-mode"] = (if online { 2 } else { 0 }).into();
    } else {
        entry["ssl_fingerprint"] = ask.cluster.certificates().shown().into();
    }
    let Some(node) = node.filter(|_| online) else { return entry };
    if resource && node.others.maintenance {
        entry["hastate"] = "maintenance".into();
    }
    if ask.has(&format!("/nodes/{name}"), "Sys.Audit") {
        let (guests, memory) = told(state, name);
        entry["cpu"] = load(state, name, guests).into();
        entry["maxcpu"] = node.spec.cpus.into();
        entry["mem"] = memory_used(state, name, memory).into();
        entry["maxmem"] = node.spec.memory_bytes.into();
        entry["disk"] = ROOT_USED.into();
        entry["maxdisk"] = ROOT.into();
        entry["uptime"] = node.uptime(state.clock.now()).into();
    }
    entry
}

/// Guests that run on a node as of its status daemon's last cycle, and what they use of its memory.
fn told(state: &State, name: &str) -> (usize, u64) {
    let now = state.clock.now();
    let here = state.everyone().filter(|guest| guest.node == name);
    let views = here.filter_map(|guest| guest.sight.fresh(now));
    let running = views.filter(|(_, view)| view.since.is_some());
    running.fold((0, 0), |(count, sum), (_, view)| (count + 1, sum + view.memory / 4))
}

/// The same at this moment.
fn live(state: &State, name: &str) -> (usize, u64) {
    let running = state.everyone().filter(|guest| guest.node == name && guest.run.is_some());
    running.fold((0, 0), |(count, sum), guest| {
        (count + 1, sum + super::conf::memory(&guest.config) / 4)
    })
}

fn memory_used(state: &State, name: &str, guests: u64) -> u64 {
    let others = state.nodes.get(name).map_or(0, |node| node.others.memory);
    guests + others + (1 << 30)
}

fn load(state: &State, name: &str, guests: usize) -> f64 {
    let cpus = state.nodes.get(name).map_or(1, |node| node.spec.cpus.max(1));
    let others = state.nodes.get(name).map_or(0.0, |node| node.others.cpus);
    (0.03 + (guests as f64 * GUEST_LOAD + others) / f64::from(cpus)).min(1.0)
}

/// `GET /nodes`.
pub fn list(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    super::resources::settle(&ask.cluster, &mut state);
    let entries: Vec<Value> =
        state.nodes.keys().map(|name| entry(ask, &state, name, false)).collect();
    Ok(Answer::new(entries.into()))
}

/// `GET /nodes/{node}/status`.
pub fn status(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let Some(node) = state.nodes.get(&ask.node) else {
        return Err(ApiError::failed(format!("no such node '{}'", ask.node)));
    };
    let (_, version, repo) = ask.cluster.version.version_strings();
    let (guests, memory) = live(&state, &ask.node);
    let (total, used) = (node.spec.memory_bytes, memory_used(&state, &ask.node, memory));
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
        "cpu": load(&state, &ask.node, guests), "loadavg": ["0.57", "0.91", "1.28"],
        "memory": { "total": total, "used": used, "free": total.saturating_sub(used) },
        "swap": { "total": 0, "used": 0, "free": 0 }, "ksm": { "shared": 0 },
        "rootfs": {
            "total": ROOT, "used": ROOT_USED, "free": ROOT - ROOT_USED, "avail": ROOT - ROOT_USED,
        },
        "cpuinfo": {
            "cpus": node.spec.cpus, "cores": node.spec.cpus, "sockets": 1, "model": "AMD EPYC",
            "mhz": "2596.128", "hvm": "1", "user_hz": 100, "flags": "fpu vme de pse tsc msr",
        },
    })))
}

/// `GET /nodes/{node}/version`.
pub fn version(ask: &Ask) -> Outcome {
    let (release, version, repo) = ask.cluster.version.version_strings();
    Ok(Answer::new(json!({ "release": release, "version": version, "repoid": repo })))
}

/// `GET /nodes/{node}/time`.
pub fn time(ask: &Ask) -> Outcome {
    let now = ask.cluster.state().clock.unix();
    Ok(Answer::new(json!({ "time": now, "localtime": now, "timezone": "Etc/UTC" })))
}

/// `GET /nodes/{node}/certificates/info`.
pub fn certificates(ask: &Ask) -> Outcome {
    let own = ask.cluster.certificates();
    let now = ask.cluster.state().clock.unix();
    let line = |file: &str, pem: &str, fingerprint: &str, subject: String| {
        json!({
            "filename": file, "pem": pem, "fingerprint": fingerprint, "subject": subject,
            "issuer": "/CN=Proxmox Virtual Environment/OU=drover simulation/O=PVE Cluster Manager CA",
            "notbefore": now.saturating_sub(86_400), "notafter": now + 365 * 86_400,
            "public-key-type": "id-ecPublicKey", "public-key-bits": 256,
            "san": [ask.node, "localhost", "127.0.0.1"],
        })
    };
    let ca = "/CN=Proxmox Virtual Environment/OU=drover simulation/O=PVE Cluster Manager CA";
    let subject = format!("/CN={}", ask.node);
    let mut all = vec![
        line("pve-root-ca.pem", &own.ca_pem, &own.ca_fingerprint, ca.to_owned()),
        line("pve-ssl.pem", &own.leaf_pem, &own.leaf_fingerprint, subject.clone()),
    ];
    if let Some((pem, fingerprint)) = &own.proxy {
        all.push(line("pveproxy-ssl.pem", pem, fingerprint, subject));
    }
    Ok(Answer::new(all.into()))
}
