//! Containers (book: proxmox, section 18): routes, lists, status and processes.
//!
//! Input: the calls below `/nodes/{node}/lxc`, which `serve` dispatches. Output: answers, tasks
//! (`vzcreate`, `vzclone`, `vzstart` …), and boots and stops for the guest host.
//!
//! A container is a `Guest` like a VM, and uses the same volumes, snapshots, pools and high
//! availability. It differs in these points:
//!
//! - Its system needs no boot loader, no agent and no cloud-init. The guest host therefore gets the
//!   configuration that a VM would get from cloud-init; SSH keys wait in the configuration until
//!   the first boot.
//! - The request refuses a start of a running container or a stop of a stopped one; for a VM the
//!   task does.
//! - A clone locks its source during the whole copy, so clones of one template run one after
//!   another.
//! - A change of the configuration is always synchronous. A few keys wait for the next start.
//! - Not every storage supports snapshots or linked clones of containers.
//!
//! Failure paths: errors are Proxmox's texts for containers (`CT`, not `VM`); a failed create or
//! clone frees its volumes and its VMID; a killed one leaves them behind.
//!
//! Files beside it: `create`, `clone`, `restore` (new containers), `config`, `volume`, `snapshot`,
//! `power`, `migrate`, `destroy`.

mod clone;
mod config;
mod create;
mod destroy;
mod migrate;
mod power;
pub(super) mod restore;
mod snapshot;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::conf::{self, Config, Drive, numbered};
use super::context::{CallContext, failed};
use super::locks::{LockGuard, LockMode, LockName};
use super::state::{Guest, GuestProcess, GuestType, State};
use super::worker::Worker;
use super::world_control::new_volume;
use super::{Cluster, console};
use crate::call::{Answer, Outcome};
use crate::guest::{AgentCall, GuestBoot};
use crate::spec::GuestSpec;

/// The key under which SSH keys wait for the first boot; they are files in the container, not
/// configuration.
const SSH_KEYS_PARAMETER: &str = "ssh-public-keys";

/// Serves a call below `/nodes/{node}/lxc`; none for unknown routes.
pub(crate) async fn serve(ctx: &CallContext, rest: &str) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "") => list(ctx),
        ("POST", "") => create::create(ctx).await,
        ("DELETE", "/{vmid}") => destroy::destroy(ctx).await,
        ("GET", "/{vmid}/config") => config::read(ctx),
        ("PUT", "/{vmid}/config") => config::write(ctx).await,
        ("GET", "/{vmid}/pending") => config::pending(ctx),
        ("GET", "/{vmid}/status/current") => current(ctx),
        ("POST", "/{vmid}/status/start") => power::start(ctx),
        ("POST", "/{vmid}/status/stop") => power::stop(ctx),
        ("POST", "/{vmid}/status/shutdown") => power::shutdown(ctx),
        ("POST", "/{vmid}/status/reboot") => power::reboot(ctx),
        ("POST", "/{vmid}/status/suspend") => power::suspend(ctx),
        ("POST", "/{vmid}/status/resume") => power::resume(ctx),
        ("GET", "/{vmid}/migrate") => migrate::preconditions(ctx),
        ("POST", "/{vmid}/migrate") => migrate::migrate(ctx),
        ("POST", "/{vmid}/move_volume") => volume::move_volume(ctx),
        ("POST", "/{vmid}/vncproxy") => console::vnc_proxy(ctx, GuestType::Ct),
        ("POST", "/{vmid}/clone") => clone::clone(ctx).await,
        ("POST", "/{vmid}/template") => clone::template(ctx).await,
        ("PUT", "/{vmid}/resize") => config::resize(ctx),
        ("GET", "/{vmid}/interfaces") => interfaces(ctx).await,
        ("GET", "/{vmid}/feature") => clone::feature(ctx),
        ("GET", "/{vmid}/snapshot") => snapshot::list(ctx),
        ("POST", "/{vmid}/snapshot") => snapshot::create(ctx),
        ("DELETE", "/{vmid}/snapshot/{snapname}") => snapshot::delete(ctx),
        ("GET", "/{vmid}/snapshot/{snapname}/config") => snapshot::read(ctx),
        ("POST", "/{vmid}/snapshot/{snapname}/rollback") => snapshot::rollback(ctx),
        _ => return None,
    };
    Some(outcome)
}

/// `GET /nodes/{node}/lxc`: the containers that the caller may see.
fn list(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    let here: Vec<u32> = state
        .containers
        .values()
        .filter(|guest| guest.node == ctx.node)
        .map(|guest| guest.vmid)
        .collect();
    let mut entries = Vec::new();
    for vmid in here {
        if !ctx.has(&format!("/vms/{vmid}"), "VM.Audit") {
            continue;
        }
        ctx.cluster.refresh_container(&mut state, vmid);
        if let Some(guest) = state.containers.get(&vmid) {
            entries.push(status_fields(&state, guest));
        }
    }
    Ok(Answer::new(entries.into()))
}

/// `GET …/status/current`.
fn current(ctx: &CallContext) -> Outcome {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_container(&mut state, ctx.vmid);
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    let mut entry = status_fields(&state, guest);
    entry["ha"] = state.ha.status_fields(&format!("ct:{}", ctx.vmid));
    Ok(Answer::new(entry))
}

fn status_fields(state: &State, guest: &Guest) -> Value {
    let status = guest.status();
    let swap = conf::number(&guest.config, "swap").unwrap_or(512) << 20;
    let mut entry = json!({
        "vmid": guest.vmid, "name": status.name, "type": "lxc", "cpus": status.cpus,
        "maxmem": status.memory_bytes, "maxswap": swap, "maxdisk": status.disk_bytes, "disk": 0, "cpu": 0,
        "mem": 0, "swap": 0, "uptime": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0,
        "status": if guest.process.is_some() { "running" } else { "stopped" },
    });
    if let Some(process) = &guest.process {
        entry["pid"] = process.pid.into();
        entry["uptime"] = state.clock.now().saturating_sub(process.started_at).as_secs().into();
        entry["mem"] = (status.memory_bytes / 8).into();
    }
    for key in ["tags", "lock"] {
        if let Some(value) = guest.config.get(key) {
            entry[key] = value.clone().into();
        }
    }
    if guest.is_template() {
        entry["template"] = 1.into();
    }
    entry
}

/// `GET …/interfaces`: null unless the container runs.
async fn interfaces(ctx: &CallContext) -> Outcome {
    let nics = {
        let mut state = ctx.cluster.state();
        ctx.cluster.refresh_container(&mut state, ctx.vmid);
        let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
        if guest.process.is_none() {
            return Ok(Answer::null());
        }
        nics_of(&guest.config)
    };
    let answer = ctx.cluster.guest_host.agent(ctx.vmid, AgentCall::NetworkInterfaces).await;
    let inside =
        answer.ok().and_then(|interfaces| interfaces.as_array().cloned()).unwrap_or_default();
    let of_guest = inside.iter().filter(|interface| interface["name"] != "lo");
    let addresses: Vec<Value> = of_guest
        .filter_map(|interface| interface["ip-addresses"].as_array().cloned())
        .next()
        .unwrap_or_default();
    let mut entries =
        vec![interface_entry("lo", "00:00:00:00:00:00", &[address("127.0.0.1", 8, false)])];
    for (index, nic) in nics.iter().enumerate() {
        let option = |key: &str| nic.options.get(key).cloned().unwrap_or_default();
        let mut own = Vec::new();
        for (key, six) in [("ip", false), ("ip6", true)] {
            if let Some((ip, bits)) = option(key).split_once('/') {
                own.push(address(ip, bits.parse().unwrap_or(0), six));
            }
        }
        if own.is_empty() && index == 0 {
            own.extend(addresses.iter().map(|item| {
                let ip = item["ip-address"].as_str().unwrap_or_default();
                address(ip, item["prefix"].as_u64().unwrap_or(0), ip.contains(':'))
            }));
        }
        entries.push(interface_entry(&option("name"), &option("hwaddr"), &own));
    }
    Ok(Answer::new(entries.into()))
}

fn address(ip: &str, prefix: u64, six: bool) -> Value {
    let kind = if six { "inet6" } else { "inet" };
    json!({ "ip-address": ip, "prefix": prefix, "ip-address-type": kind })
}

fn interface_entry(name: &str, mac: &str, addresses: &[Value]) -> Value {
    let mac = mac.to_lowercase();
    let mut entry = json!({
        "name": name, "hwaddr": mac, "hardware-address": mac, "ip-addresses": addresses,
    });
    for item in addresses {
        let kind = item["ip-address-type"].as_str().unwrap_or_default();
        let ip = item["ip-address"].as_str().unwrap_or_default();
        if entry.get(kind).is_none() {
            entry[kind] = format!("{ip}/{}", item["prefix"]).into();
        }
    }
    entry
}

fn nics_of(config: &Config) -> Vec<Drive> {
    let keys = (0..32).map(|n| format!("net{n}"));
    keys.filter_map(|key| config.get(&key).map(|value| Drive::parse(value))).collect()
}

/// The mount points with a volume; the root volume comes first.
pub(super) fn mounts(config: &Config) -> Vec<(String, Drive)> {
    let root = config.get_key_value("rootfs").into_iter();
    let more = config.iter().filter(|(key, _)| numbered(key, "mp").is_some());
    let all = root.chain(more).map(|(key, value)| (key.clone(), Drive::parse(value)));
    all.filter(|(_, drive)| drive.storage().is_some()).collect()
}

/// A description as the file of a container returns it: each line ends with a newline, and trailing
/// empty lines are lost (pve-container, LXC/Config.pm:1180 and :1249).
fn stored_description(text: &str) -> Option<String> {
    let text = text.trim_end_matches('\n');
    (!text.is_empty()).then(|| format!("{text}\n"))
}

impl Cluster {
    /// Adds a container of a cluster description, with its volumes.
    pub(super) fn place_container(&self, spec: &GuestSpec) {
        let mut state = self.state();
        let (now, unix) = (state.clock.now(), state.clock.unix());
        for (key, drive) in mounts(&spec.config) {
            let volume = new_volume(&drive.file, drive.size_bytes(), "rootdir", unix);
            match state.storage_mut(drive.storage().unwrap_or_default()) {
                Ok(storage) => storage.insert_volume(&spec.node, &drive.file, volume),
                Err(error) => {
                    let vmid = spec.vmid;
                    tracing::warn!(vmid, key, error, "skipping a volume without its storage");
                }
            }
        }
        let mut config: Config = spec.config.clone();
        create::fill_defaults(&mut config, &mut state, spec.vmid, "unmanaged");
        if spec.template {
            config.insert("template".into(), "1".into());
        }
        let mut guest = Guest::container(spec.vmid, &spec.node, config, now);
        guest.broadcast.last = Some((now, guest.status()));
        state.containers.insert(spec.vmid, guest);
        drop(state);
        if let Some(pool) = &spec.pool {
            self.rights.join_pool(pool, spec.vmid);
        }
    }

    /// Waits for the exclusive lock of a container's configuration.
    async fn container_lock(
        &self,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<LockGuard, String> {
        let wait = Duration::from_secs(10);
        self.lock(LockName::container(node, vmid), LockMode::Exclusive, wait, worker).await
    }

    /// Marks a container as stopped if its processes have ended by themselves.
    pub(crate) fn refresh_container(&self, state: &mut State, vmid: u32) {
        let runs = state.containers.get(&vmid).is_some_and(|guest| guest.process.is_some());
        if !runs || self.guest_host.running(vmid) {
            return;
        }
        let node = state.containers.get(&vmid).map(|guest| guest.node.clone()).unwrap_or_default();
        if let Ok(guest) = state.container_mut(&node, vmid) {
            guest.process_ended();
        }
    }

    /// The process of a container if it runs now.
    fn container_process(&self, node: &str, vmid: u32) -> Result<Option<GuestProcess>, String> {
        let mut state = self.state();
        self.refresh_container(&mut state, vmid);
        Ok(state.container(node, vmid)?.process.clone())
    }

    /// Starts a container without taking any lock.
    pub(crate) async fn start_container(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        self.simulate_work(node, self.latency.start, worker).await;
        let boot = {
            let mut state = self.state();
            let guest = state.container(node, vmid)?;
            if guest.is_template() {
                return Err("you can't start a CT if it's a template".into());
            }
            let config = guest.config.clone();
            for (_, drive) in mounts(&config) {
                if state.storage_of(&drive.file)?.volume(node, &drive.file).is_none() {
                    return Err(format!("volume '{}' does not exist", drive.file));
                }
            }
            for nic in nics_of(&config) {
                let bridge = nic.options.get("bridge").cloned().unwrap_or_default();
                if !state.has_bridge(node, &bridge) {
                    return Err(format!("bridge '{bridge}' does not exist"));
                }
            }
            let guest = state.container_mut(node, vmid)?;
            guest.process_ended();
            guest.boots += 1;
            boot_parameters(guest)
        };
        self.guest_host.boot(boot).await.map_err(|error| format!("startup failed: {error}"))?;
        let mut state = self.state();
        let (pid, _) = state.new_process(node);
        let now = state.clock.now();
        let guest = state.container_mut(node, vmid)?;
        guest.process = Some(GuestProcess {
            pid,
            started_at: now,
            paused: false,
            last_seen_alive: now,
            devices: Vec::new(),
            installer: None,
        });
        Ok(())
    }

    /// Kills the processes of a container.
    pub(crate) async fn stop_container(&self, node: &str, vmid: u32) -> Result<(), String> {
        self.simulate_work(node, self.latency.stop, None).await;
        self.guest_host.stop(vmid).await;
        self.state().container_mut(node, vmid)?.process_ended();
        Ok(())
    }
}

/// What the guest host needs to boot a container; the same as for a VM with cloud-init.
fn boot_parameters(guest: &Guest) -> GuestBoot {
    let config = &guest.config;
    let hostname = config.get("hostname").cloned().unwrap_or_else(|| format!("CT{}", guest.vmid));
    let nics = nics_of(config);
    let net0 = nics.first();
    let option = |key: &str| net0.and_then(|nic| nic.options.get(key).cloned());
    let addresses = ["ip", "gw", "ip6", "gw6"].into_iter();
    let addresses = addresses.filter_map(|key| Some(format!("{key}={}", option(key)?)));
    let keys = guest.config.get(SSH_KEYS_PARAMETER).cloned().unwrap_or_default();
    let config_for_host = [
        ("ciuser", "root".to_owned()),
        ("sshkeys", utf8_percent_encode(&keys, NON_ALPHANUMERIC).to_string()),
        ("ipconfig0", addresses.collect::<Vec<_>>().join(",")),
        ("agent", "1".to_owned()),
    ];
    GuestBoot {
        vmid: guest.vmid,
        node: guest.node.clone(),
        hostname,
        config: config_for_host.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        mac: option("hwaddr"),
        boot: guest.boots,
        resumed: false,
        config_from_disc: true,
        discs: Vec::new(),
    }
}
