//! Containers (behaviour section 18): routes, lists, their present state and their processes.
//!
//! Their inside is a guest like any other; that they need no boot loader, no agent and no cloud-init
//! is played by handing the guest host what cloud-init would have told it.

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

use super::ask::{Ask, failed};
use super::conf::{self, Config, Drive, numbered};
use super::lock::{Hold, LockName, Mode};
use super::state::{Guest, Kind, Run, State};
use super::worker::Worker;
use super::{Cluster, console};
use crate::call::{Answer, Outcome};
use crate::guest::{AgentCall, GuestBoot};

/// Where a container's keys are kept until it boots: they are files in it, no configuration.
const KEYS: &str = "ssh-public-keys";

/// Serves a call below `/nodes/{node}/lxc`; none for routes that are not served.
pub async fn serve(ask: &Ask, rest: &str) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "") => list(ask),
        ("POST", "") => create::create(ask).await,
        ("DELETE", "/{vmid}") => destroy::destroy(ask).await,
        ("GET", "/{vmid}/config") => config::read(ask),
        ("PUT", "/{vmid}/config") => config::write(ask).await,
        ("GET", "/{vmid}/pending") => config::pending(ask),
        ("GET", "/{vmid}/status/current") => current(ask),
        ("POST", "/{vmid}/status/start") => power::start(ask),
        ("POST", "/{vmid}/status/stop") => power::stop(ask),
        ("POST", "/{vmid}/status/shutdown") => power::shutdown(ask),
        ("POST", "/{vmid}/status/reboot") => power::reboot(ask),
        ("POST", "/{vmid}/status/suspend") => power::suspend(ask),
        ("POST", "/{vmid}/status/resume") => power::resume(ask),
        ("GET", "/{vmid}/migrate") => migrate::preconditions(ask),
        ("POST", "/{vmid}/migrate") => migrate::migrate(ask),
        ("POST", "/{vmid}/move_volume") => volume::relocate(ask),
        ("POST", "/{vmid}/vncproxy") => console::proxy(ask, Kind::Ct),
        ("POST", "/{vmid}/clone") => clone::clone(ask).await,
        ("POST", "/{vmid}/template") => clone::template(ask).await,
        ("PUT", "/{vmid}/resize") => config::resize(ask),
        ("GET", "/{vmid}/interfaces") => interfaces(ask).await,
        ("GET", "/{vmid}/feature") => clone::feature(ask),
        ("GET", "/{vmid}/snapshot") => snapshot::list(ask),
        ("POST", "/{vmid}/snapshot") => snapshot::create(ask),
        ("DELETE", "/{vmid}/snapshot/{snapname}") => snapshot::delete(ask),
        ("GET", "/{vmid}/snapshot/{snapname}/config") => snapshot::read(ask),
        ("POST", "/{vmid}/snapshot/{snapname}/rollback") => snapshot::rollback(ask),
        _ => return None,
    };
    Some(outcome)
}

/// `GET /nodes/{node}/lxc`: containers the caller may look at.
fn list(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    let here: Vec<u32> = state
        .containers
        .values()
        .filter(|guest| guest.node == ask.node)
        .map(|guest| guest.vmid)
        .collect();
    let mut entries = Vec::new();
    for vmid in here {
        if !ask.has(&format!("/vms/{vmid}"), "VM.Audit") {
            continue;
        }
        ask.cluster.look_at_container(&mut state, vmid);
        if let Some(guest) = state.containers.get(&vmid) {
            entries.push(fields(&state, guest));
        }
    }
    Ok(Answer::new(entries.into()))
}

/// `GET …/status/current`.
fn current(ask: &Ask) -> Outcome {
    let mut state = ask.cluster.state();
    ask.cluster.look_at_container(&mut state, ask.vmid);
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    let mut entry = fields(&state, guest);
    entry["ha"] = state.ha.of(&format!("ct:{}", ask.vmid));
    Ok(Answer::new(entry))
}

fn fields(state: &State, guest: &Guest) -> Value {
    let view = guest.view();
    let swap = conf::number(&guest.config, "swap").unwrap_or(512) << 20;
    let mut entry = json!({
        "vmid": guest.vmid, "name": view.name, "type": "lxc", "cpus": view.cpus,
        "maxmem": view.memory, "maxswap": swap, "maxdisk": view.disk, "disk": 0, "cpu": 0,
        "mem": 0, "swap": 0, "uptime": 0, "netin": 0, "netout": 0, "diskread": 0, "diskwrite": 0,
        "status": if guest.run.is_some() { "running" } else { "stopped" },
    });
    if let Some(run) = &guest.run {
        entry["pid"] = run.pid.into();
        entry["uptime"] = state.clock.now().saturating_sub(run.since).as_secs().into();
        entry["mem"] = (view.memory / 8).into();
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

/// `GET …/interfaces`: null while it does not run.
async fn interfaces(ask: &Ask) -> Outcome {
    let nics = {
        let mut state = ask.cluster.state();
        ask.cluster.look_at_container(&mut state, ask.vmid);
        let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
        if guest.run.is_none() {
            return Ok(Answer::null());
        }
        nics_of(&guest.config)
    };
    let asked = ask.cluster.guests.agent(ask.vmid, AgentCall::NetworkInterfaces).await;
    let inside = asked.ok().and_then(|faces| faces.as_array().cloned()).unwrap_or_default();
    let of_guest = inside.iter().filter(|face| face["name"] != "lo");
    let addresses: Vec<Value> = of_guest
        .filter_map(|face| face["ip-addresses"].as_array().cloned())
        .next()
        .unwrap_or_default();
    let mut entries = vec![face("lo", "00:00:00:00:00:00", &[address("127.0.0.1", 8, false)])];
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
        entries.push(face(&option("name"), &option("hwaddr"), &own));
    }
    Ok(Answer::new(entries.into()))
}

fn address(ip: &str, prefix: u64, six: bool) -> Value {
    let kind = if six { "inet6" } else { "inet" };
    json!({ "ip-address": ip, "prefix": prefix, "ip-address-type": kind })
}

fn face(name: &str, mac: &str, addresses: &[Value]) -> Value {
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

/// The network devices of a configuration, in their order.
fn nics_of(config: &Config) -> Vec<Drive> {
    let keys = (0..32).map(|n| format!("net{n}"));
    keys.filter_map(|key| config.get(&key).map(|value| Drive::parse(value))).collect()
}

/// The mount points that are volumes: the root first.
fn mounts(config: &Config) -> Vec<(String, Drive)> {
    let root = config.get_key_value("rootfs").into_iter();
    let more = config.iter().filter(|(key, _)| numbered(key, "mp").is_some());
    let all = root.chain(more).map(|(key, value)| (key.clone(), Drive::parse(value)));
    all.filter(|(_, drive)| drive.storage().is_some()).collect()
}

/// A description as a container's file gives it back: each line ends, the last one too, and empty
/// lines at its end are lost (pve-container, LXC/Config.pm:1180 and :1249).
fn description(text: &str) -> Option<String> {
    let text = text.trim_end_matches('\n');
    (!text.is_empty()).then(|| format!("{text}\n"))
}

impl Cluster {
    /// Waits for the exclusive lock of a container's configuration.
    async fn container_lock(
        &self,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<Hold, String> {
        let wait = Duration::from_secs(10);
        self.lock(LockName::container(node, vmid), Mode::Exclusive, wait, worker).await
    }

    /// Marks a container stopped whose inside has ended by itself.
    pub(crate) fn look_at_container(&self, state: &mut State, vmid: u32) {
        let runs = state.containers.get(&vmid).is_some_and(|guest| guest.run.is_some());
        if !runs || self.guests.running(vmid) {
            return;
        }
        let node = state.containers.get(&vmid).map(|guest| guest.node.clone()).unwrap_or_default();
        if let Ok(guest) = state.container_mut(&node, vmid) {
            guest.halt();
        }
    }

    /// Whether a container runs.
    fn container_runs(&self, node: &str, vmid: u32) -> Result<Option<Run>, String> {
        let mut state = self.state();
        self.look_at_container(&mut state, vmid);
        Ok(state.container(node, vmid)?.run.clone())
    }

    /// Starts a container, whoever holds its lock.
    pub(crate) async fn launch_container(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        self.work(node, self.latency.start, worker).await;
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
            guest.halt();
            guest.boots += 1;
            boot_of(guest)
        };
        self.guests.boot(boot).await.map_err(|error| format!("startup failed: {error}"))?;
        let mut state = self.state();
        let (pid, _) = state.new_process(node);
        let now = state.clock.now();
        let guest = state.container_mut(node, vmid)?;
        guest.run = Some(Run { pid, since: now, paused: false, alive: now });
        Ok(())
    }

    /// Ends a container's processes the hard way.
    pub(crate) async fn halt_container(&self, node: &str, vmid: u32) -> Result<(), String> {
        self.work(node, self.latency.stop, None).await;
        self.guests.stop(vmid).await;
        self.state().container_mut(node, vmid)?.halt();
        Ok(())
    }
}

/// What the guest host is told: as of a virtual machine that cloud-init sets up.
fn boot_of(guest: &Guest) -> GuestBoot {
    let config = &guest.config;
    let hostname = config.get("hostname").cloned().unwrap_or_else(|| format!("CT{}", guest.vmid));
    let nics = nics_of(config);
    let net0 = nics.first();
    let option = |key: &str| net0.and_then(|nic| nic.options.get(key).cloned());
    let addresses = ["ip", "gw", "ip6", "gw6"].into_iter();
    let addresses = addresses.filter_map(|key| Some(format!("{key}={}", option(key)?)));
    let keys = guest.config.get(KEYS).cloned().unwrap_or_default();
    let told = [
        ("ciuser", "root".to_owned()),
        ("sshkeys", utf8_percent_encode(&keys, NON_ALPHANUMERIC).to_string()),
        ("ipconfig0", addresses.collect::<Vec<_>>().join(",")),
        ("agent", "1".to_owned()),
    ];
    GuestBoot {
        vmid: guest.vmid,
        node: guest.node.clone(),
        hostname,
        config: told.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        mac: option("hwaddr"),
        boot: guest.boots,
        resumed: false,
        config_from_disc: true,
    }
}
