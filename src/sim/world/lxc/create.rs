//! Making containers from appliance templates.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::Cluster;
use super::super::ask::{Ask, failed};
use super::super::checks::content_of;
use super::super::conf::{self, Config, Drive, numbered, print_size};
use super::super::create::Wish;
use super::super::ha;
use super::super::lock::{LockName, Mode};
use super::super::state::{Guest, State};
use super::super::storage::{Order, Purpose};
use super::super::worker::Worker;
use super::{KEYS, description, mounts, restore};
use crate::call::{ApiError, Outcome};
use crate::spec::PveVersion;

/// Parameters of a create that are no configuration.
const NOT_KEYS: &[&str] = &[
    "node",
    "vmid",
    "ostemplate",
    "password",
    "pool",
    "start",
    "storage",
    "force",
    "restore",
    "unique",
    "bwlimit",
    "ignore-unpack-errors",
    "ha-managed",
    "delete",
    "revert",
    "digest",
    KEYS,
];

/// `POST /nodes/{node}/lxc`.
pub async fn create(ask: &Ask) -> Outcome {
    let (vmid, node) = (ask.vmid, ask.node.clone());
    let pool = ask.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ask.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    let in_pool = pool.as_ref().is_some_and(|p| ask.has(&format!("/pool/{p}"), "VM.Allocate"));
    if !in_pool && !ask.has(&format!("/vms/{vmid}"), "VM.Allocate") {
        return Err(ApiError::denied(""));
    }
    if ask.flag("restore") {
        return restore::restore(ask).await;
    }
    let mut wanted = wanted_config(ask);
    // Behaviour section 18: unprivileged unless it is asked for.
    wanted.entry("unprivileged".into()).or_insert_with(|| "1".into());
    if wanted["unprivileged"] == "0" && ask.cluster.version == PveVersion::V9_2 {
        ask.check("/", &["Sys.Modify"])?;
    }
    let template = ask.text("ostemplate").unwrap_or_default();
    if content_of(&template) != "vztmpl" {
        let text = format!("'{template}' is not a container template");
        return Err(ApiError::parameter("ostemplate", text));
    }
    ask.may_use_volume(&template)?;
    let storage = ask.text("storage").unwrap_or_else(|| "local".into());
    wanted.entry("rootfs".into()).or_insert_with(|| format!("{storage}:4"));
    ask.may_change_container(pool.as_deref(), &wanted, &[])?;
    ask.may_mount(&wanted)?;
    if ask.flag("start") {
        ask.on_guest(pool.as_deref(), &["VM.PowerMgmt"])?;
    }
    ask.quorate()?;
    take_id(ask)?;
    if let Some(keys) = ask.text(KEYS) {
        wanted.insert(KEYS.into(), keys);
    }
    let cluster = ask.cluster.clone();
    let (start, managed) = (ask.flag("start"), ask.flag("ha-managed"));
    Ok(ask.cluster.fork(&ask.call.caller, &node.clone(), "vzcreate", vmid, |worker| async move {
        let fail = |error: String| format!("unable to create CT {vmid} - {error}");
        let name = LockName::container(&node, vmid);
        let wait = Duration::from_secs(10);
        let file = cluster.lock(name, Mode::Exclusive, wait, Some(&worker)).await.map_err(fail)?;
        if let Err(error) = cluster.unpack(&worker, &node, vmid, wanted, &template).await {
            cluster.state().containers.remove(&vmid);
            return Err(fail(error));
        }
        drop(file);
        if let Some(pool) = pool {
            cluster.join_pool(&pool, vmid, &worker).await?;
        }
        if managed {
            ha::manage(&cluster, &format!("ct:{vmid}"), start);
        } else if start {
            cluster.launch_container(&node, vmid, Some(&worker)).await?;
        }
        Ok(())
    }))
}

/// The configuration keys among the parameters.
pub fn wanted_config(ask: &Ask) -> Config {
    let keys = ask.params().0.keys().filter(|key| !NOT_KEYS.contains(&key.as_str()));
    let mut wanted: Config = keys.filter_map(|key| Some((key.clone(), ask.text(key)?))).collect();
    if let Some(text) = wanted.get_mut("description") {
        *text = description(text).unwrap_or_default();
    }
    // Mount points are written anew, those that are no volumes too (pve-container, LXC.pm:2666).
    for (key, value) in &mut wanted {
        if key == "rootfs" || numbered(key, "mp").is_some() {
            *value = Drive::parse(value).print();
        }
    }
    wanted
}

pub(super) fn take_id(ask: &Ask) -> Result<(), ApiError> {
    let mut state = ask.cluster.state();
    let fail = |text| failed(format!("unable to create CT {} - {text}", ask.vmid));
    state.id_is_free(ask.vmid).map_err(fail)?;
    let now = state.clock.now();
    let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
    state.containers.insert(ask.vmid, Guest::container(ask.vmid, &ask.node, locked, now));
    Ok(())
}

impl Ask {
    /// Requires the privileges to set and delete a container's keys, bridges included.
    pub(super) fn may_change_container(
        &self,
        pool: Option<&str>,
        set: &Config,
        delete: &[String],
    ) -> Result<(), ApiError> {
        if self.call.caller.is_root() {
            return Ok(());
        }
        let keys = set.keys().chain(delete);
        for key in keys {
            let one = |privilege: &str| self.on_guest(pool, &[privilege]);
            if numbered(key, "mp").is_some() || numbered(key, "unused").is_some() || key == "rootfs"
            {
                let bind =
                    set.get(key).is_some_and(|value| Drive::parse(value).storage().is_none());
                if bind {
                    let text =
                        format!("mount point type bind is only allowed for root@pam ({key})");
                    return Err(ApiError::denied(&text));
                }
                one("VM.Config.Disk")?;
                continue;
            }
            if numbered(key, "net").is_some() {
                one("VM.Config.Network")?;
                continue;
            }
            match key.as_str() {
                "memory" | "swap" => one("VM.Config.Memory")?,
                "cores" | "cpulimit" | "cpuunits" => one("VM.Config.CPU")?,
                "hostname" | "nameserver" | "searchdomain" => one("VM.Config.Network")?,
                "features" => self.may_have_features(pool, set)?,
                "hookscript" | "lock" => {
                    return Err(failed(format!("only root can set '{key}' config")));
                }
                "startup" => {
                    self.check("/", &["Sys.Modify"])?;
                    one("VM.Config.Options")?;
                }
                _ => one("VM.Config.Options")?,
            }
        }
        self.may_use_container_bridges(set)
    }

    /// Nesting is for whoever may make containers; all else is root's.
    fn may_have_features(&self, pool: Option<&str>, set: &Config) -> Result<(), ApiError> {
        let text = set.get("features").map(String::as_str).unwrap_or_default();
        let nesting = text.split(',').all(|part| part.starts_with("nesting=") || part.is_empty());
        if nesting && set.get("unprivileged").is_none_or(|value| value == "1") {
            return self.on_guest(pool, &["VM.Allocate"]);
        }
        Err(ApiError::denied(
            "changing feature flags (except nesting) is only allowed for root@pam",
        ))
    }

    fn may_use_container_bridges(&self, set: &Config) -> Result<(), ApiError> {
        let nics = set.iter().filter(|(key, _)| numbered(key, "net").is_some());
        for nic in nics.map(|(_, value)| Drive::parse(value)) {
            if let Some(bridge) = nic.options.get("bridge") {
                self.may_use_bridge(bridge, nic.options.get("tag").map(String::as_str))?;
            }
        }
        Ok(())
    }

    /// Requires that the storages of new mount points may be used and take containers.
    pub(super) fn may_mount(&self, set: &Config) -> Result<(), ApiError> {
        for (_, drive) in mounts(set) {
            let Wish::New { storage, .. } = Wish::of(&drive) else { continue };
            self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            let state = self.cluster.state();
            let found = state.storage(&storage).map_err(failed)?;
            if !found.takes("rootdir") {
                let text = format!("storage '{storage}' does not support container directories");
                return Err(failed(text));
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// Makes the volumes of a new container, and puts its configuration in place.
    async fn unpack(
        self: &Arc<Self>,
        worker: &Worker,
        node: &str,
        vmid: u32,
        wanted: Config,
        template: &str,
    ) -> Result<(), String> {
        let size = {
            let state = self.state();
            let storage = state.storage_of(template)?;
            match storage.volume(node, template) {
                Some(volume) => volume.size,
                None => return Err(format!("volume '{template}' does not exist")),
            }
        };
        let mut config = wanted;
        config.retain(|key, value| key != "description" || !value.is_empty());
        let mut made = Vec::new();
        for (key, drive) in mounts(&config.clone()) {
            match self.make_mount(node, vmid, &drive, Some(worker)).await {
                Ok(drive) => {
                    made.push(drive.file.clone());
                    config.insert(key, drive.print());
                }
                Err(error) => {
                    self.free_all(node, &made, Some(worker)).await;
                    return Err(error);
                }
            }
        }
        worker.log(format!("extracting archive '{template}'"));
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(size, &mut state.dice)
        };
        if !worker.sleep(span).await {
            self.free_all(node, &made, Some(worker)).await;
            return Err("interrupted by signal".into());
        }
        worker.log("Detected container architecture: amd64");
        for kind in ["rsa", "ecdsa", "ed25519"] {
            worker.log(format!(
                "Creating SSH host key 'ssh_host_{kind}_key' - this may take some time ..."
            ));
        }
        let mut state = self.state();
        complete(&mut config, &mut state, vmid, template);
        state.container_mut(node, vmid)?.config = config;
        Ok(())
    }

    /// Makes the volume a mount point wishes for.
    pub(super) async fn make_mount(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        drive: &Drive,
        worker: Option<&Worker>,
    ) -> Result<Drive, String> {
        let Wish::New { storage, size } = Wish::of(drive) else { return Ok(drive.clone()) };
        let order = Order { vmid, purpose: Purpose::Root, format: None, size };
        let made = self.in_storage(node, &storage, worker, self.latency.allocate, |state| {
            let now = state.clock.unix();
            state.storage_mut(&storage)?.allocate(node, &order, now)
        });
        let (volid, line) = made.await?;
        if let Some(worker) = worker {
            worker.log(line);
        }
        let mut options = drive.options.clone();
        options.insert("size".into(), print_size(size));
        Ok(Drive { file: volid, options })
    }
}

/// Fills in what Proxmox adds to a new configuration.
fn complete(config: &mut Config, state: &mut State, vmid: u32, template: &str) {
    let name = template.rsplit('/').next().unwrap_or(template);
    let family = name.split('-').next().unwrap_or("unmanaged").to_owned();
    let defaults = [
        ("arch", "amd64".to_owned()),
        ("hostname", format!("CT{vmid}")),
        ("memory", "512".into()),
        ("swap", "512".into()),
        ("ostype", family),
    ];
    for (key, value) in defaults {
        config.entry(key.to_owned()).or_insert(value);
    }
    for (_, value) in config.iter_mut().filter(|(key, _)| numbered(key, "net").is_some()) {
        *value = with_address(value, state);
    }
    if let Some(tags) = config.get_mut("tags") {
        *tags = conf::normalise_tags(tags);
    }
}

/// A container's network device as it is stored, with an address.
pub fn with_address(text: &str, state: &mut State) -> String {
    let mut nic = Drive::parse(text);
    nic.options.entry("hwaddr".into()).or_insert_with(|| state.dice.mac());
    nic.options.entry("type".into()).or_insert_with(|| "veth".into());
    let pairs = nic.options.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// A value as answers carry it: booleans and whole numbers are numbers, other numbers are text
/// (pve-container, LXC/Config.pm:1401).
pub fn typed(key: &str, value: &str) -> Value {
    const NUMERIC: &[&str] = &[
        "console",
        "cores",
        "cpuunits",
        "debug",
        "memory",
        "onboot",
        "protection",
        "snaptime",
        "swap",
        "template",
        "tty",
        "unprivileged",
    ];
    match value.parse::<i64>() {
        Ok(number) if NUMERIC.contains(&key) => number.into(),
        _ => value.into(),
    }
}
