//! Reading and changing a guest's configuration: synchronously (PUT) or as a task (POST), at once
//! or when the guest next stops.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::Cluster;
use super::ask::{Ask, failed};
use super::boot::without;
use super::checks;
use super::conf::{self, Config, Drive, numbered};
use super::create::{Wish, with_mac};
use super::lock::Hold;
use super::state::{Guest, Pending};
use super::worker::Worker;
use crate::api;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that change at once on a running guest (behaviour section 11).
const AT_ONCE: &[&str] = &[
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

/// How long an unplugged device is waited for.
const UNPLUG: Duration = Duration::from_secs(6);

/// A change as it was asked for.
#[derive(Debug, Clone)]
struct Change {
    set: Config,
    delete: Vec<String>,
    revert: Vec<String>,
    force: bool,
    digest: Option<String>,
    skiplock: bool,
}

/// `GET …/config`.
pub fn read(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
    if let Some(name) = ask.text("snapshot") {
        let Some(snapshot) = guest.snapshots.get(&name) else {
            return Err(failed(format!("snapshot '{name}' does not exist")));
        };
        let mut fields = conf::typed_all(&snapshot.config);
        fields.insert("digest".into(), guest.digest().into());
        return Ok(Answer::new(fields.into()));
    }
    let mut config = guest.config.clone();
    if !ask.flag("current") {
        for (key, change) in &guest.pending {
            match change {
                Pending::Set(value) => config.insert(key.clone(), value.clone()),
                Pending::Delete { .. } => config.remove(key),
            };
        }
    }
    let mut fields = conf::typed_all(&config);
    fields.insert("digest".into(), guest.digest().into());
    Ok(Answer::new(fields.into()))
}

/// `GET …/pending`.
pub fn pending(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let guest = state.guest(&ask.node, ask.vmid).map_err(ApiError::failed)?;
    let mut config = guest.config.clone();
    config.insert("digest".into(), guest.digest());
    let mut entries: Vec<Value> = Vec::new();
    for (key, value) in &config {
        let mut entry = json!({ "key": key, "value": conf::typed(key, value) });
        match guest.pending.get(key) {
            Some(Pending::Set(value)) => entry["pending"] = conf::typed(key, value),
            Some(Pending::Delete { force }) => entry["delete"] = if *force { 2 } else { 1 }.into(),
            None => {}
        }
        entries.push(entry);
    }
    for (key, change) in guest.pending.iter().filter(|(key, _)| !config.contains_key(*key)) {
        if let Pending::Set(value) = change {
            entries.push(json!({ "key": key, "pending": conf::typed(key, value) }));
        }
    }
    Ok(Answer::new(entries.into()))
}

/// `PUT …/config`: done when it answers.
pub async fn put(ask: &Ask) -> Outcome {
    let change = gather(ask)?;
    let _file = admit(ask, &change).await?;
    ask.cluster.change(&ask.node, ask.vmid, change, None).await?;
    Ok(Answer::null())
}

/// `POST …/config`: a task, waited for when the caller says how long.
pub async fn post(ask: &Ask) -> Outcome {
    let change = gather(ask)?;
    // The worker inherits the lock of the request.
    let file = admit(ask, &change).await?;
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let told = format!("update VM {vmid}: {}", words(&change));
    let caller = &ask.call.caller;
    let answer = ask.cluster.fork(caller, &ask.node, "qmconfig", vmid, |worker| async move {
        let _file = file;
        worker.log(told);
        let done = cluster.change(&node, vmid, change, Some(&worker)).await;
        done.map_err(|error| flat(&error))
    });
    let Some(delay) = ask.number("background_delay") else { return Ok(answer) };
    let upid = answer.data.as_str().unwrap_or_default().to_owned();
    match ask.cluster.await_end(&upid, Duration::from_secs(delay)).await {
        None => Ok(answer),
        Some(status) if status == "OK" => Ok(Answer::null()),
        Some(status) => Err(ApiError::failed(format!("failed to update VM {vmid}: {status}"))),
    }
}

/// Takes the lock of the configuration, and makes the checks that are made under it.
async fn admit(ask: &Ask, change: &Change) -> Result<Hold, ApiError> {
    let file = ask.cluster.guest_lock(&ask.node, ask.vmid, 10, None).await.map_err(failed)?;
    let state = ask.cluster.state();
    let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
    guest.digest_is(change.digest.as_deref()).map_err(failed)?;
    if !change.skiplock {
        guest.unlocked().map_err(failed)?;
    }
    Ok(file)
}

fn words(change: &Change) -> String {
    let mut words: Vec<String> =
        change.set.iter().map(|(key, value)| format!("-{key} {value}")).collect();
    if !change.delete.is_empty() {
        words.push(format!("-delete {}", change.delete.join(",")));
    }
    words.join(" ")
}

fn flat(error: &ApiError) -> String {
    let details = error.errors.iter().map(|(name, text)| format!(" {name}: {text}"));
    format!("{}{}", error.message, details.collect::<String>())
}

fn list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    let words = text.split([',', ';', ' ', '\0']).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// The checks that come before any lock.
fn gather(ask: &Ask) -> Result<Change, ApiError> {
    ask.root_only(&["skiplock"])?;
    let mut change = Change {
        set: ask.wanted_config(),
        delete: list(ask.text("delete")),
        revert: list(ask.text("revert")),
        force: ask.flag("force"),
        digest: ask.text("digest"),
        skiplock: ask.flag("skiplock"),
    };
    let nothing = change.set.is_empty() && change.delete.is_empty() && change.revert.is_empty();
    if nothing && !ask.params().0.contains_key("sshkeys") {
        return Err(failed("no options specified".into()));
    }
    checks::ssh_keys(&change.set)?;
    if let Some(tags) = change.set.get_mut("tags") {
        *tags = Some(conf::normalise_tags(tags)).filter(|t| !t.is_empty()).unwrap_or(" ".into());
    }
    let route = "/nodes/{node}/qemu/{vmid}/config";
    for key in &change.revert {
        if !api::is_config_key(route, key, ask.cluster.version) {
            return Err(ApiError::parameter("revert", format!("unknown option '{key}'")));
        }
    }
    for key in &mut change.delete {
        // Another name of the usual CD-ROM drive (qemu-server, API2/Qemu.pm, update_vm_api).
        if key == "cdrom" {
            *key = "ide2".into();
        }
        if change.set.contains_key(key) {
            let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
            return Err(ApiError::parameter("delete", text));
        }
        if !api::is_config_key(route, key, ask.cluster.version) {
            return Err(ApiError::parameter("delete", format!("unknown option '{key}'")));
        }
    }
    let old = {
        let state = ask.cluster.state();
        let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
        guest.config.clone()
    };
    hookscript_exists(ask, &change.set)?;
    ask.may_change(None, &change.set, &change.delete, &old)?;
    ask.may_use_storages(&change.set)?;
    ask.may_use_bridges(&change.set)?;
    balloon_fits(&change.set, &old)?;
    Ok(change)
}

fn hookscript_exists(ask: &Ask, set: &Config) -> Result<(), ApiError> {
    let Some(volid) = set.get("hookscript") else { return Ok(()) };
    let state = ask.cluster.state();
    let found = state.storage_of(volid).ok().and_then(|s| s.volume(&ask.node, volid));
    match found {
        Some(_) => Ok(()),
        None => {
            let text = format!("script '{volid}' does not exist\n");
            Err(ApiError::parameter("hookscript", text))
        }
    }
}

fn balloon_fits(set: &Config, old: &Config) -> Result<(), ApiError> {
    let Some(balloon) = conf::number(set, "balloon") else { return Ok(()) };
    let memory = conf::memory(if set.contains_key("memory") { set } else { old }) >> 20;
    if balloon > memory {
        let text = "balloon value too large (must be smaller than assigned memory)";
        return Err(ApiError::failed(text));
    }
    Ok(())
}

impl Cluster {
    /// Waits for a task's end; its status, or none when the time was over first.
    pub(crate) async fn await_end(&self, upid: &str, wait: Duration) -> Option<String> {
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

    /// Changes a configuration, under the lock that the caller holds.
    async fn change(
        self: &Arc<Self>,
        node: &str,
        vmid: u32,
        change: Change,
        worker: Option<&Worker>,
    ) -> Result<(), ApiError> {
        self.work(node, self.latency.config, None).await;
        let running = {
            let mut state = self.state();
            self.refresh(&mut state, vmid);
            let guest = state.guest_mut(node, vmid).map_err(failed)?;
            for key in &change.revert {
                guest.pending.remove(key);
            }
            guest.run.is_some()
        };
        for key in &change.delete {
            self.delete_key(node, vmid, key, change.force, running, worker).await?;
        }
        for (key, value) in change.set {
            self.set_key(node, vmid, &key, value, running, worker).await.map_err(failed)?;
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
            let guest = state.guest_mut(node, vmid).map_err(failed)?;
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
        if running && nic && !self.lets_go(node, vmid).await {
            let mut state = self.state();
            let guest = state.guest_mut(node, vmid).map_err(failed)?;
            guest.pending.insert(key.to_owned(), Pending::Delete { force });
            let text = format!("hotplug problem - error on hot-unplugging device '{key}'\n");
            return Err(ApiError::parameter(key, text));
        }
        if !conf::is_drive(key) && numbered(key, "unused").is_none() {
            let mut state = self.state();
            let guest = state.guest_mut(node, vmid).map_err(failed)?;
            if running && !at_once(key) && !nic {
                guest.pending.insert(key.to_owned(), Pending::Delete { force });
            } else {
                guest.config.remove(key);
            }
            return Ok(());
        }
        let gone = self.remove_drive(node, vmid, key, &value, force, running)?;
        match gone {
            Some(volid) => self.free(node, &volid, worker).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Whether a running guest gives up a device that is unplugged: one whose agent should answer
    /// and does not has no system that would, which takes its time to come out.
    async fn lets_go(&self, node: &str, vmid: u32) -> bool {
        let agent = {
            let state = self.state();
            state.guest(node, vmid).is_ok_and(|guest| conf::agent_enabled(&guest.config))
        };
        if !agent || self.agent_answers(vmid).await {
            return true;
        }
        tokio::time::sleep(UNPLUG).await;
        false
    }

    /// Takes a drive off a guest; the volume that goes with it, if one does.
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
        let guest = state.guest_mut(node, vmid).map_err(failed)?;
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
        // A cloud-init image is made anew whenever it is needed, and never kept.
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
            // An empty one is not written to the file, and so is gone when it is read.
            state.guest_mut(node, vmid)?.config.remove(key);
            return Ok(());
        } else if key == "vmgenid" && value == "1" {
            state.dice.uuid()
        } else {
            value
        };
        let guest = state.guest_mut(node, vmid)?;
        let hot = at_once(key) || numbered(key, "net").is_some();
        if !running || hot {
            guest.pending.remove(key);
            guest.config.insert(key.to_owned(), value);
        } else if guest.config.get(key) == Some(&value) {
            guest.pending.remove(key);
        } else {
            guest.pending.insert(key.to_owned(), Pending::Set(value));
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
        let wished = Drive::parse(value);
        let old = self.state().guest(node, vmid)?.config.get(key).map(|old| Drive::parse(old));
        let (drive, _) = self.make_drive(node, vmid, key, &wished, worker).await?;
        // A cloud-init image that makes room for something else is never kept.
        if let Some(old) = old.as_ref().filter(|old| old.is_cloudinit() && old.file != drive.file) {
            self.free(node, &old.file, worker).await?;
        }
        let mut state = self.state();
        let guest = state.guest_mut(node, vmid)?;
        if let Some(old) = old.filter(|old| old.file != drive.file) {
            guest.keep_unused(&old);
        }
        if matches!(Wish::of(&wished), Wish::Existing(_)) {
            let volid = drive.file.clone();
            guest.config.retain(|k, v| numbered(k, "unused").is_none() || *v != volid);
        }
        guest.pending.remove(key);
        guest.config.insert(key.to_owned(), drive.print());
        Ok(())
    }
}

fn at_once(key: &str) -> bool {
    AT_ONCE.contains(&key) || numbered(key, "ipconfig").is_some()
}

/// Unplugs a drive of a running guest; the one it boots from only goes when it stops.
fn unplug(guest: &mut Guest, key: &str, force: bool) -> Result<(), ApiError> {
    let order = conf::boot_order(&guest.config);
    let disks = order.iter().find(|device| conf::is_drive(device));
    if disks.is_some_and(|first| first == key) {
        guest.pending.insert(key.to_owned(), Pending::Delete { force });
        if let Some(boot) = guest.config.get("boot").and_then(|boot| without(boot, key)) {
            guest.pending.insert("boot".into(), Pending::Set(boot));
        }
        let text = format!("hotplug problem - can't unplug bootdisk '{key}'\n");
        return Err(ApiError::parameter(key, text));
    }
    if key.starts_with("scsi") || key.starts_with("virtio") {
        guest.detach(key);
    } else {
        guest.pending.insert(key.to_owned(), Pending::Delete { force });
    }
    Ok(())
}
