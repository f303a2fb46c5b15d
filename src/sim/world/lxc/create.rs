//! Creating containers from templates.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::Cluster;
use super::super::checks::content_of;
use super::super::conf::{self, Config, Drive, numbered, print_size};
use super::super::context::{CallContext, failed};
use super::super::create::DriveRequest;
use super::super::ha;
use super::super::locks::{LockMode, LockName};
use super::super::state::{Guest, State};
use super::super::storage::{VolumePurpose, VolumeRequest};
use super::super::worker::Worker;
use super::{SSH_KEYS_PARAMETER, mounts, restore, stored_description};
use crate::call::{ApiError, Outcome};
use crate::spec::PveVersion;

/// Parameters of a create that are not configuration keys.
const NON_CONFIG_PARAMETERS: &[&str] = &[
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
    SSH_KEYS_PARAMETER,
];

/// `POST /nodes/{node}/lxc`.
pub(crate) async fn create(ctx: &CallContext) -> Outcome {
    let (vmid, node) = (ctx.vmid, ctx.node.clone());
    let pool = ctx.text("pool");
    if let Some(pool) = pool.as_deref().filter(|pool| !ctx.cluster.rights.pool_exists(pool)) {
        return Err(ApiError::denied(&format!("pool '{pool}' does not exist")));
    }
    let in_pool = pool.as_ref().is_some_and(|p| ctx.has(&format!("/pool/{p}"), "VM.Allocate"));
    if !in_pool && !ctx.has(&format!("/vms/{vmid}"), "VM.Allocate") {
        return Err(ApiError::denied(""));
    }
    if ctx.flag("restore") {
        return restore::restore(ctx).await;
    }
    let mut wanted = requested_config(ctx);
    // Containers are unprivileged by default (book: proxmox, section 18).
    wanted.entry("unprivileged".into()).or_insert_with(|| "1".into());
    if wanted["unprivileged"] == "0" && ctx.cluster.version == PveVersion::V9_2 {
        ctx.check("/", &["Sys.Modify"])?;
    }
    let template = ctx.text("ostemplate").unwrap_or_default();
    if content_of(&template) != "vztmpl" {
        let text = format!("'{template}' is not a container template");
        return Err(ApiError::parameter("ostemplate", text));
    }
    ctx.check_may_use_volume(&template)?;
    let storage = ctx.text("storage").unwrap_or_else(|| "local".into());
    wanted.entry("rootfs".into()).or_insert_with(|| format!("{storage}:4"));
    ctx.check_may_change_container(pool.as_deref(), &wanted, &[])?;
    ctx.check_may_mount(&wanted)?;
    if ctx.flag("start") {
        ctx.check_on_guest(pool.as_deref(), &["VM.PowerMgmt"])?;
    }
    ctx.require_quorum()?;
    reserve_container_id(ctx)?;
    if let Some(keys) = ctx.text(SSH_KEYS_PARAMETER) {
        wanted.insert(SSH_KEYS_PARAMETER.into(), keys);
    }
    let cluster = ctx.cluster.clone();
    let (start, managed) = (ctx.flag("start"), ctx.flag("ha-managed"));
    Ok(ctx.cluster.fork(&ctx.call.caller, &node.clone(), "vzcreate", vmid, |worker| async move {
        let fail = |error: String| format!("unable to create CT {vmid} - {error}");
        let name = LockName::container(&node, vmid);
        let wait = Duration::from_secs(10);
        let file =
            cluster.lock(name, LockMode::Exclusive, wait, Some(&worker)).await.map_err(fail)?;
        if let Err(error) =
            cluster.create_from_template(&worker, &node, vmid, wanted, &template).await
        {
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
            cluster.start_container(&node, vmid, Some(&worker)).await?;
        }
        Ok(())
    }))
}

pub(crate) fn requested_config(ctx: &CallContext) -> Config {
    let keys = ctx.params().0.keys().filter(|key| !NON_CONFIG_PARAMETERS.contains(&key.as_str()));
    let mut wanted: Config = keys.filter_map(|key| Some((key.clone(), ctx.text(key)?))).collect();
    if let Some(text) = wanted.get_mut("description") {
        *text = stored_description(text).unwrap_or_default();
    }
    // Proxmox rewrites all mount points, also those without a volume (pve-container, LXC.pm:2666).
    for (key, value) in &mut wanted {
        if key == "rootfs" || numbered(key, "mp").is_some() {
            *value = Drive::parse(value).print();
        }
    }
    wanted
}

pub(super) fn reserve_container_id(ctx: &CallContext) -> Result<(), ApiError> {
    let mut state = ctx.cluster.state();
    let fail = |text| failed(format!("unable to create CT {} - {text}", ctx.vmid));
    state.ensure_id_free(ctx.vmid).map_err(fail)?;
    let now = state.clock.now();
    let locked = Config::from([("lock".to_owned(), "create".to_owned())]);
    state.containers.insert(ctx.vmid, Guest::container(ctx.vmid, &ctx.node, locked, now));
    Ok(())
}

impl CallContext {
    /// Checks the privileges to set and delete keys of a container, including those on bridges.
    pub(super) fn check_may_change_container(
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
            let one = |privilege: &str| self.check_on_guest(pool, &[privilege]);
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
                "features" => self.check_may_have_features(pool, set)?,
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
        self.check_may_use_container_bridges(set)
    }

    /// A caller who may create containers may enable nesting; only root may set other features.
    fn check_may_have_features(&self, pool: Option<&str>, set: &Config) -> Result<(), ApiError> {
        let text = set.get("features").map(String::as_str).unwrap_or_default();
        let nesting = text.split(',').all(|part| part.starts_with("nesting=") || part.is_empty());
        if nesting && set.get("unprivileged").is_none_or(|value| value == "1") {
            return self.check_on_guest(pool, &["VM.Allocate"]);
        }
        Err(ApiError::denied(
            "changing feature flags (except nesting) is only allowed for root@pam",
        ))
    }

    fn check_may_use_container_bridges(&self, set: &Config) -> Result<(), ApiError> {
        let nics = set.iter().filter(|(key, _)| numbered(key, "net").is_some());
        for nic in nics.map(|(_, value)| Drive::parse(value)) {
            if let Some(bridge) = nic.options.get("bridge") {
                self.check_may_use_bridge(bridge, nic.options.get("tag").map(String::as_str))?;
            }
        }
        Ok(())
    }

    /// Checks that the caller may use the storages of new mount points and that they accept
    /// containers.
    pub(super) fn check_may_mount(&self, set: &Config) -> Result<(), ApiError> {
        for (_, drive) in mounts(set) {
            let DriveRequest::NewDisk { storage, .. } = DriveRequest::of(&drive) else { continue };
            self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            let state = self.cluster.state();
            let found = state.storage(&storage).map_err(failed)?;
            if !found.accepts("rootdir") {
                let text = format!("storage '{storage}' does not support container directories");
                return Err(failed(text));
            }
        }
        Ok(())
    }
}

impl Cluster {
    /// Allocates the volumes of a new container, then writes its configuration.
    async fn create_from_template(
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
        let mut created = Vec::new();
        for (key, drive) in mounts(&config.clone()) {
            match self.allocate_mount(node, vmid, &drive, Some(worker)).await {
                Ok(drive) => {
                    created.push(drive.file.clone());
                    config.insert(key, drive.print());
                }
                Err(error) => {
                    self.free_volumes(node, &created, Some(worker)).await;
                    return Err(error);
                }
            }
        }
        worker.log(format!("extracting archive '{template}'"));
        let span = {
            let mut state = self.state();
            self.latency.copy_bytes_per_second.transfer(size, &mut state.random)
        };
        if !worker.sleep(span).await {
            self.free_volumes(node, &created, Some(worker)).await;
            return Err("interrupted by signal".into());
        }
        worker.log("Detected container architecture: amd64");
        for kind in ["rsa", "ecdsa", "ed25519"] {
            worker.log(format!(
                "Creating SSH host key 'ssh_host_{kind}_key' - this may take some time ..."
            ));
        }
        let mut state = self.state();
        fill_defaults(&mut config, &mut state, vmid, template);
        state.container_mut(node, vmid)?.config = config;
        Ok(())
    }

    /// Allocates the volume that a mount point requests.
    pub(super) async fn allocate_mount(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        drive: &Drive,
        worker: Option<&Worker>,
    ) -> Result<Drive, String> {
        let DriveRequest::NewDisk { storage, size } = DriveRequest::of(drive) else {
            return Ok(drive.clone());
        };
        let request = VolumeRequest { vmid, purpose: VolumePurpose::Root, format: None, size };
        let created =
            self.with_storage_lock(node, &storage, worker, self.latency.allocate, |state| {
                let now = state.clock.unix();
                state.storage_mut(&storage)?.allocate(node, &request, now)
            });
        let (volid, line) = created.await?;
        if let Some(worker) = worker {
            worker.log(line);
        }
        let mut options = drive.options.clone();
        options.insert("size".into(), print_size(size));
        Ok(Drive { file: volid, options })
    }
}

/// Adds the keys that Proxmox adds to a new configuration.
pub(super) fn fill_defaults(config: &mut Config, state: &mut State, vmid: u32, template: &str) {
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
        *value = with_mac_address(value, state);
    }
    if let Some(tags) = config.get_mut("tags") {
        *tags = conf::normalise_tags(tags);
    }
}

/// A network device of a container as it is stored; it gets a MAC address if it has none.
pub(crate) fn with_mac_address(text: &str, state: &mut State) -> String {
    let mut nic = Drive::parse(text);
    nic.options.entry("hwaddr".into()).or_insert_with(|| state.random.mac());
    nic.options.entry("type".into()).or_insert_with(|| "veth".into());
    let pairs = nic.options.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

/// A value in the JSON type of answers: booleans and integers are numbers, other numbers are text
/// (pve-container, LXC/Config.pm:1401).
pub(crate) fn json_value(key: &str, value: &str) -> Value {
    const NUMERIC_KEYS: &[&str] = &[
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
        Ok(number) if NUMERIC_KEYS.contains(&key) => number.into(),
        _ => value.into(),
    }
}
