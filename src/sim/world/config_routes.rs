//! Reading and changing the configuration of a VM.
//!
//! A change is synchronous (PUT) or a task (POST). On a running VM some keys change at once; the
//! others become pending changes, which take effect when the VM stops. The checks of the request
//! come first, without any lock; then the lock of the configuration is taken, and the digest and
//! the `lock` key are checked.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Cluster;
use super::boot::boot_order_without;
use super::checks;
use super::conf::{self, Config, Drive, numbered};
use super::context::{CallContext, failed};
use super::create::{DriveRequest, with_mac};
use super::hotplug;
use super::locks::LockGuard;
use super::state::{Guest, PendingChange};
use super::worker::Worker;
use crate::api;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that change at once on a running VM (book: proxmox, section 11).
const IMMEDIATE_KEYS: &[&str] = &[
    "name",
    "description",
    "tags",
    "onboot",
    "protection",
    "startup",
    "hookscript",
    "lock",
    "shares",
    "vmstatestorage",
    "template",
    "cicustom",
    "cipassword",
    "citype",
    "ciupgrade",
    "ciuser",
    "nameserver",
    "searchdomain",
    "sshkeys",
];

/// How long Proxmox waits for a guest to release an unplugged device.
const UNPLUG_TIMEOUT: Duration = Duration::from_secs(6);

/// The changes that a call asks for.
#[derive(Debug, Clone)]
struct ConfigChange {
    set: Config,
    delete: Vec<String>,
    revert: Vec<String>,
    force: bool,
    digest: Option<String>,
    skiplock: bool,
}

/// `GET …/config`.
pub(crate) fn read(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
    if let Some(name) = ctx.text("snapshot") {
        let Some(snapshot) = guest.snapshots.get(&name) else {
            return Err(failed(format!("snapshot '{name}' does not exist")));
        };
        let mut fields = conf::json_fields(&snapshot.config);
        fields.insert("digest".into(), guest.digest().into());
        return Ok(Answer::new(fields.into()));
    }
    let mut config = guest.config.clone();
    if !ctx.flag("current") {
        for (key, change) in &guest.pending {
            match change {
                PendingChange::Set(value) => config.insert(key.clone(), value.clone()),
                PendingChange::Delete { .. } => config.remove(key),
            };
        }
    }
    let mut fields = conf::json_fields(&config);
    fields.insert("digest".into(), guest.digest().into());
    Ok(Answer::new(fields.into()))
}

/// `GET …/pending`.
pub(crate) fn pending(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    let mut config = guest.config.clone();
    config.insert("digest".into(), guest.digest());
    let mut entries: Vec<Value> = Vec::new();
    for (key, value) in &config {
        let mut entry = json!({ "key": key, "value": conf::json_value(key, value) });
        match guest.pending.get(key) {
            Some(PendingChange::Set(value)) => entry["pending"] = conf::json_value(key, value),
            Some(PendingChange::Delete { force }) => {
                entry["delete"] = if *force { 2 } else { 1 }.into()
            }
            None => {}
        }
        entries.push(entry);
    }
    for (key, change) in guest.pending.iter().filter(|(key, _)| !config.contains_key(*key)) {
        if let PendingChange::Set(value) = change {
            entries.push(json!({ "key": key, "pending": conf::json_value(key, value) }));
        }
    }
    Ok(Answer::new(entries.into()))
}

/// `PUT …/config`: the change is complete when the call returns.
pub(crate) async fn put(ctx: &CallContext) -> Outcome {
    let change = requested_change(ctx)?;
    let _file = lock_and_check(ctx, &change).await?;
    ctx.cluster.change(&ctx.node, ctx.vmid, change, None).await?;
    Ok(Answer::null())
}

/// `POST …/config`: a task; with `background_delay` the call waits for its end.
pub(crate) async fn post(ctx: &CallContext) -> Outcome {
    let change = requested_change(ctx)?;
    // The worker inherits the lock of the request.
    let file = lock_and_check(ctx, &change).await?;
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let summary = format!("update VM {vmid}: {}", summarize(&change));
    let caller = &ctx.call.caller;
    let answer = ctx.cluster.fork(caller, &ctx.node, "qmconfig", vmid, |worker| async move {
        let _file = file;
        worker.log(summary);
        let done = cluster.change(&node, vmid, change, Some(&worker)).await;
        done.map_err(|error| one_line(&error))
    });
    let Some(delay) = ctx.number("background_delay") else { return Ok(answer) };
    let upid = answer.data.as_str().unwrap_or_default().to_owned();
    match ctx.cluster.wait_for_task(&upid, Duration::from_secs(delay)).await {
        None => Ok(answer),
        Some(status) if status == "OK" => Ok(Answer::null()),
        Some(status) => Err(ApiError::failed(format!("failed to update VM {vmid}: {status}"))),
    }
}

/// Takes the lock of the configuration, then checks digest and `lock` key.
async fn lock_and_check(ctx: &CallContext, change: &ConfigChange) -> Result<LockGuard, ApiError> {
    let file = ctx.cluster.vm_write_lock(&ctx.node, ctx.vmid, 10, None).await.map_err(failed)?;
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
    guest.check_digest(change.digest.as_deref()).map_err(failed)?;
    if !change.skiplock {
        guest.ensure_unlocked().map_err(failed)?;
    }
    Ok(file)
}

fn summarize(change: &ConfigChange) -> String {
    let mut words: Vec<String> =
        change.set.iter().map(|(key, value)| format!("-{key} {value}")).collect();
    if !change.delete.is_empty() {
        words.push(format!("-delete {}", change.delete.join(",")));
    }
    words.join(" ")
}

fn one_line(error: &ApiError) -> String {
    let details = error.errors.iter().map(|(name, text)| format!(" {name}: {text}"));
    format!("{}{}", error.message, details.collect::<String>())
}

fn split_list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let words = text.split([',', ';', ' ', '\0']).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Reads the parameters and makes the checks that need no lock.
fn requested_change(ctx: &CallContext) -> Result<ConfigChange, ApiError> {
    ctx.check_root_only(&["skiplock"])?;
    let mut change = ConfigChange {
        set: ctx.requested_config(),
        delete: split_list(ctx.text("delete")),
        revert: split_list(ctx.text("revert")),
        force: ctx.flag("force"),
        digest: ctx.text("digest"),
        skiplock: ctx.flag("skiplock"),
    };
    let nothing = change.set.is_empty() && change.delete.is_empty() && change.revert.is_empty();
    if nothing && !ctx.params().0.contains_key("sshkeys") {
        return Err(failed("no options specified".into()));
    }
    checks::check_ssh_keys(&change.set)?;
    if let Some(tags) = change.set.get_mut("tags") {
        *tags = Some(conf::normalise_tags(tags)).filter(|t| !t.is_empty()).unwrap_or(" ".into());
    }
    let route = "/nodes/{node}/qemu/{vmid}/config";
    for key in &change.revert {
        if !api::is_config_key(route, key, ctx.cluster.version) {
            return Err(ApiError::parameter("revert", format!("unknown option '{key}'")));
        }
    }
    for key in &mut change.delete {
        // `cdrom` is an alias of `ide2` (qemu-server, API2/Qemu.pm, update_vm_api).
        if key == "cdrom" {
            *key = "ide2".into();
        }
        if change.set.contains_key(key) {
            let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
            return Err(ApiError::parameter("delete", text));
        }
        if !api::is_config_key(route, key, ctx.cluster.version) {
            return Err(ApiError::parameter("delete", format!("unknown option '{key}'")));
        }
    }
    let old = {
        let state = ctx.cluster.state();
        let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.config.clone()
    };
    check_hookscript(ctx, &change.set)?;
    ctx.check_may_change(None, &change.set, &change.delete, &old)?;
    ctx.check_may_use_storages(&change.set)?;
    ctx.check_may_use_bridges(&change.set)?;
    check_balloon(&change.set, &old)?;
    Ok(change)
}

fn check_hookscript(ctx: &CallContext, set: &Config) -> Result<(), ApiError> {
    let Some(volid) = set.get("hookscript") else { return Ok(()) };
    let state = ctx.cluster.state();
    let found = state.storage_of(volid).ok().and_then(|s| s.volume(&ctx.node, volid));
    match found {
        Some(_) => Ok(()),
        None => {
            let text = format!("script '{volid}' does not exist\n");
            Err(ApiError::parameter("hookscript", text))
        }
    }
}

fn check_balloon(set: &Config, old: &Config) -> Result<(), ApiError> {
    let Some(balloon) = conf::number(set, "balloon") else { return Ok(()) };
    let memory = conf::memory_bytes(if set.contains_key("memory") { set } else { old }) >> 20;
    if balloon > memory {
        let text = "balloon value too large (must be smaller than assigned memory)";
        return Err(ApiError::failed(text));
    }
    Ok(())
}

impl Cluster {
    /// Waits for the end of a task; its status, or none after the timeout.
    pub(crate) async fn wait_for_task(&self, upid: &str, wait: Duration) -> Option<String> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            let end = self.state().tasks.get(upid).and_then(|task| task.end.clone());
            if let Some(end) = end {
                return Some(end.status);
            }
            if tokio::time::Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Applies a change; the caller holds the lock of the configuration.
    async fn change(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        change: ConfigChange,
        worker: Option<&Worker>,
    ) -> Result<(), ApiError> {
        self.simulate_work(node, self.latency.config, None).await;
        let running = {
            let mut state = self.state();
            self.refresh_vm(&mut state, vmid);
            let guest = state.vm_mut(node, vmid).map_err(failed)?;
            for key in &change.revert {
                guest.pending.remove(key);
            }
            guest.process.is_some()
        };
        for key in &change.delete {
            self.delete_key(node, vmid, key, change.force, running, worker).await?;
        }
        let mut refused = None;
        for (key, value) in change.set {
            let set = self.set_key(node, vmid, &key, value.clone(), running, worker);
            set.await.map_err(failed)?;
            if running && let Err(text) = self.plug(node, vmid, &key, value) {
                refused
                    .get_or_insert(ApiError::parameter(&key, format!("hotplug problem - {text}")));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Applies a value that waits where a running VM takes it at once; one that Proxmox fails to apply
    /// goes on waiting.
    fn plug(&self, node: &str, vmid: u32, key: &str, value: String) -> Result<(), String> {
        let mut state = self.state();
        let guest = state.vm_mut(node, vmid)?;
        if guest.pending.contains_key(key) && hotplug::plugs(&guest.config, key, &value)? {
            guest.pending.remove(key);
            guest.config.insert(key.to_owned(), value);
        }
        Ok(())
    }

    pub(crate) async fn delete_key(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        key: &str,
        force: bool,
        running: bool,
        worker: Option<&Worker>,
    ) -> Result<(), ApiError> {
        let value = {
            let mut state = self.state();
            let guest = state.vm_mut(node, vmid).map_err(failed)?;
            guest.pending.remove(key);
            guest.config.get(key).cloned()
        };
        let Some(value) = value else {
            if let Some(worker) = worker {
                worker.log(format!("cannot delete '{key}' - not set in current configuration!"));
            }
            return Ok(());
        };
        let nic = numbered(key, "net").is_some();
        if running && nic && !self.accepts_unplug(node, vmid).await {
            let mut state = self.state();
            let guest = state.vm_mut(node, vmid).map_err(failed)?;
            guest.pending.insert(key.to_owned(), PendingChange::Delete { force });
            let text = format!("hotplug problem - error on hot-unplugging device '{key}'\n");
            return Err(ApiError::parameter(key, text));
        }
        if !conf::is_drive(key) && numbered(key, "unused").is_none() {
            let mut state = self.state();
            let guest = state.vm_mut(node, vmid).map_err(failed)?;
            let waits = !is_immediate(key) && !nic && !hotplug::forgets(&guest.config, key);
            if running && waits {
                guest.pending.insert(key.to_owned(), PendingChange::Delete { force });
            } else {
                guest.config.remove(key);
            }
            return Ok(());
        }
        let removed = self.remove_drive(node, vmid, key, &value, force, running)?;
        match removed {
            Some(volid) => self.free_volume(node, &volid, worker).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Whether a running VM releases an unplugged device. A VM whose enabled agent does not answer
    /// runs no system that could; this takes a while to show.
    async fn accepts_unplug(&self, node: &str, vmid: u32) -> bool {
        let agent = {
            let state = self.state();
            state.vm(node, vmid).is_ok_and(|guest| conf::agent_enabled(&guest.config))
        };
        if !agent || self.agent_answers(vmid).await {
            return true;
        }
        tokio::time::sleep(UNPLUG_TIMEOUT).await;
        false
    }

    /// Removes a drive from a VM; returns the volume to free, if any.
    fn remove_drive(
        &self,
        node: &str,
        vmid: u32,
        key: &str,
        value: &str,
        force: bool,
        running: bool,
    ) -> Result<Option<String>, ApiError> {
        let mut state = self.state();
        let guest = state.vm_mut(node, vmid).map_err(failed)?;
        if conf::flag(&guest.config, "protection") {
            let text = format!("can't remove drive '{key}' - protection mode enabled");
            return Err(failed(text));
        }
        if running && conf::is_drive(key) {
            return unplug(guest, key, force).map(|()| None);
        }
        guest.detach(key);
        let unused = numbered(key, "unused").is_some();
        let drive = Drive::parse(value);
        // Proxmox rebuilds cloud-init images whenever it needs them, and never keeps one.
        if !(force || unused || drive.is_cloudinit()) {
            return Ok(None);
        }
        guest.config.retain(|_, other| *other != drive.file);
        Ok(drive.storage().is_some().then_some(drive.file))
    }

    async fn set_key(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        key: &str,
        value: String,
        running: bool,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        if conf::is_drive(key) {
            return self.set_drive(node, vmid, key, &value, worker).await;
        }
        if key == "template" && value == "1" {
            self.make_bases(node, vmid, worker)?;
        }
        let mut state = self.state();
        let value = if numbered(key, "net").is_some() {
            with_mac(&value, &mut state).unwrap_or(value)
        } else if key == "description" && value.trim().is_empty() {
            // An empty description is not written to the file, so the key is absent afterwards.
            state.vm_mut(node, vmid)?.config.remove(key);
            return Ok(());
        } else if key == "vmgenid" && value == "1" {
            state.random.uuid()
        } else {
            value
        };
        let guest = state.vm_mut(node, vmid)?;
        let hot = is_immediate(key) || numbered(key, "net").is_some();
        if !running || hot {
            guest.pending.remove(key);
            guest.config.insert(key.to_owned(), value);
        } else if guest.config.get(key) == Some(&value) {
            guest.pending.remove(key);
        } else {
            guest.pending.insert(key.to_owned(), PendingChange::Set(value));
        }
        Ok(())
    }

    async fn set_drive(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        key: &str,
        value: &str,
        worker: Option<&Worker>,
    ) -> Result<(), String> {
        let requested = Drive::parse(value);
        let old = self.state().vm(node, vmid)?.config.get(key).map(|old| Drive::parse(old));
        let (drive, _) = self.allocate_drive(node, vmid, key, &requested, worker).await?;
        // A replaced cloud-init image is never kept.
        if let Some(old) = old.as_ref().filter(|old| old.is_cloudinit() && old.file != drive.file) {
            self.free_volume(node, &old.file, worker).await?;
        }
        let mut state = self.state();
        let guest = state.vm_mut(node, vmid)?;
        if let Some(old) = old.filter(|old| old.file != drive.file) {
            guest.add_unused(&old);
        }
        if matches!(DriveRequest::of(&requested), DriveRequest::Existing(_)) {
            let volid = drive.file.clone();
            guest.config.retain(|k, v| numbered(k, "unused").is_none() || *v != volid);
        }
        guest.pending.remove(key);
        guest.config.insert(key.to_owned(), drive.print());
        Ok(())
    }
}

fn is_immediate(key: &str) -> bool {
    IMMEDIATE_KEYS.contains(&key) || numbered(key, "ipconfig").is_some()
}

/// Unplugs a drive of a running VM; the boot disk is removed only when the VM stops.
fn unplug(guest: &mut Guest, key: &str, force: bool) -> Result<(), ApiError> {
    let order = conf::boot_order(&guest.config);
    let disks = order.iter().find(|device| conf::is_drive(device));
    if disks.is_some_and(|first| first == key) {
        guest.pending.insert(key.to_owned(), PendingChange::Delete { force });
        if let Some(boot) = guest.config.get("boot").and_then(|boot| boot_order_without(boot, key))
        {
            guest.pending.insert("boot".into(), PendingChange::Set(boot));
        }
        let text = format!("hotplug problem - can't unplug bootdisk '{key}'\n");
        return Err(ApiError::parameter(key, text));
    }
    if key.starts_with("scsi") || key.starts_with("virtio") {
        guest.detach(key);
    } else {
        guest.pending.insert(key.to_owned(), PendingChange::Delete { force });
    }
    Ok(())
}
