//! Reading and changing a container's configuration: synchronously, never as a task.

use serde_json::{Map, Value, json};

use super::super::Cluster;
use super::super::ask::{Ask, failed};
use super::super::conf::{self, Config, Drive, numbered, parse_size, print_size};
use super::super::state::{Guest, Pending};
use super::super::worker::Worker;
use super::create::{typed, wanted_config, with_address};
use super::{KEYS, mounts};
use crate::api;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that wait for the next start of a running container [I].
const AT_START: &[&str] = &["arch", "features", "ostype", "console", "tty", "cmode"];

fn shown(config: &Config) -> Map<String, Value> {
    let keys = config.iter().filter(|(key, _)| *key != KEYS);
    keys.map(|(key, value)| (key.clone(), typed(key, value))).collect()
}

/// `GET …/config`.
pub fn read(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    let mut fields = match ask.text("snapshot") {
        Some(name) => match guest.snapshots.get(&name) {
            Some(snapshot) => shown(&snapshot.config),
            None => return Err(failed(format!("snapshot '{name}' does not exist"))),
        },
        None => {
            let mut config = guest.config.clone();
            if !ask.flag("current") {
                config.extend(waiting(guest));
            }
            shown(&config)
        }
    };
    fields.insert("digest".into(), guest.digest().into());
    Ok(Answer::new(fields.into()))
}

fn waiting(guest: &Guest) -> Config {
    let set = guest.pending.iter().filter_map(|(key, change)| match change {
        Pending::Set(value) => Some((key.clone(), value.clone())),
        Pending::Delete { .. } => None,
    });
    set.collect()
}

/// `GET …/pending`.
pub fn pending(ask: &Ask) -> Outcome {
    let state = ask.cluster.state();
    let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
    let mut entries: Vec<Value> = Vec::new();
    for (key, value) in guest.config.iter().filter(|(key, _)| *key != KEYS) {
        let mut entry = json!({ "key": key, "value": typed(key, value) });
        match guest.pending.get(key) {
            Some(Pending::Set(value)) => entry["pending"] = typed(key, value),
            Some(Pending::Delete { .. }) => entry["delete"] = 1.into(),
            None => {}
        }
        entries.push(entry);
    }
    for (key, value) in waiting(guest).iter().filter(|(key, _)| !guest.config.contains_key(*key)) {
        entries.push(json!({ "key": key, "pending": typed(key, value) }));
    }
    Ok(Answer::new(entries.into()))
}

fn list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split([',', ';', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// `PUT …/config`: done when it answers.
pub async fn write(ask: &Ask) -> Outcome {
    let mut set = wanted_config(ask);
    let (delete, revert) = (list(ask.text("delete")), list(ask.text("revert")));
    if set.is_empty() && delete.is_empty() && revert.is_empty() {
        return Err(failed("no options specified".into()));
    }
    if let Some(key) = delete.iter().find(|key| set.contains_key(*key)) {
        let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
        return Err(ApiError::parameter("delete", text));
    }
    ask.may_change_container(None, &set, &delete)?;
    let route = "/nodes/{node}/lxc/{vmid}/config";
    for (name, keys) in [("revert", &revert), ("delete", &delete)] {
        if let Some(key) =
            keys.iter().find(|key| !api::is_config_key(route, key, ask.cluster.version))
        {
            return Err(ApiError::parameter(name, format!("unknown option '{key}'")));
        }
    }
    ask.may_mount(&set)?;
    ask.quorate()?;
    if let Some(tags) = set.get_mut("tags") {
        *tags = conf::normalise_tags(tags);
    }
    let _file = ask.cluster.container_lock(&ask.node, ask.vmid, None).await.map_err(failed)?;
    {
        let state = ask.cluster.state();
        let guest = state.container(&ask.node, ask.vmid).map_err(failed)?;
        guest.digest_is(ask.text("digest").as_deref()).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
    }
    ask.cluster.work(&ask.node, ask.cluster.latency.config, None).await;
    for (key, drive) in mounts(&set) {
        let made = ask.cluster.make_mount(&ask.node, ask.vmid, &drive, None).await;
        set.insert(key, made.map_err(failed)?.print());
    }
    let gone = store(ask, set, delete, revert)?;
    for volid in gone {
        ask.cluster.free(&ask.node, &volid, None).await.map_err(failed)?;
    }
    Ok(Answer::null())
}

/// Writes the changes; volumes that go with them.
fn store(
    ask: &Ask,
    mut set: Config,
    delete: Vec<String>,
    revert: Vec<String>,
) -> Result<Vec<String>, ApiError> {
    let mut state = ask.cluster.state();
    ask.cluster.look_at_container(&mut state, ask.vmid);
    for (key, value) in &mut set {
        if numbered(key, "net").is_some() {
            *value = with_address(value, &mut state);
        }
    }
    let guest = state.container_mut(&ask.node, ask.vmid).map_err(failed)?;
    let running = guest.run.is_some();
    for key in revert {
        guest.pending.remove(&key);
    }
    let mut gone = Vec::new();
    for key in delete {
        guest.pending.remove(&key);
        if let Some(drive) = guest.config.get(&key).map(|value| Drive::parse(value)) {
            if numbered(&key, "mp").is_some() {
                // A volume that is taken off is kept (pve-container, LXC/Config.pm:1340).
                guest.keep_unused(&drive);
            } else if numbered(&key, "unused").is_some() {
                gone.push(drive.file);
            }
        }
        if running && AT_START.contains(&key.as_str()) {
            guest.pending.insert(key, Pending::Delete { force: false });
        } else {
            guest.config.remove(&key);
        }
    }
    for (key, value) in set {
        guest.pending.remove(&key);
        if key == "description" && value.is_empty() {
            guest.config.remove(&key);
            continue;
        }
        if running && AT_START.contains(&key.as_str()) {
            guest.pending.insert(key, Pending::Set(value));
        } else {
            guest.config.insert(key, value);
        }
    }
    Ok(gone)
}

/// `PUT …/resize`: a task, which grows the file system as well.
pub fn resize(ask: &Ask) -> Outcome {
    let (cluster, node, vmid) = (ask.cluster.clone(), ask.node.clone(), ask.vmid);
    let disk = ask.text("disk").unwrap_or_default();
    let size = ask.text("size").unwrap_or_default();
    let digest = ask.text("digest");
    {
        let state = cluster.state();
        let guest = state.container(&node, vmid).map_err(failed)?;
        guest.digest_is(digest.as_deref()).map_err(failed)?;
        guest.unlocked().map_err(failed)?;
    }
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "resize", vmid, |worker| async move {
        let _file = cluster.container_lock(&node, vmid, Some(&worker)).await?;
        cluster.grow_mount(&worker, vmid, &disk, &size).await
    }))
}

impl Cluster {
    async fn grow_mount(
        &self,
        worker: &Worker,
        vmid: u32,
        disk: &str,
        size: &str,
    ) -> Result<(), String> {
        let node = worker.node.clone();
        let (mut drive, present): (Drive, u64) = {
            let state = self.state();
            let guest = state.container(&node, vmid)?;
            guest.unlocked()?;
            let found = mounts(&guest.config).into_iter().find(|(key, _)| key == disk);
            let Some((_, drive)) = found else {
                return Err(format!("disk '{disk}' does not exist"));
            };
            let volume = state.storage_of(&drive.file)?.volume(&node, &drive.file);
            let size = volume.map(|volume| volume.size);
            let gone = || format!("volume '{}' does not exist", drive.file);
            (drive.clone(), size.ok_or_else(gone)?)
        };
        let wanted = match size.strip_prefix('+') {
            Some(more) => present + parse_size(more).unwrap_or(0),
            None => parse_size(size).unwrap_or(0),
        };
        if wanted < present {
            return Err("unable to shrink disk size".into());
        }
        if wanted == present {
            return Ok(());
        }
        self.work(&node, self.latency.resize, None).await;
        let mut state = self.state();
        let name = drive.storage().unwrap_or_default().to_owned();
        if let Some(volume) = state.storage_mut(&name)?.volume_mut(&node, &drive.file) {
            volume.size = wanted;
        }
        drive.options.insert("size".into(), print_size(wanted));
        state.container_mut(&node, vmid)?.config.insert(disk.to_owned(), drive.print());
        Ok(())
    }
}
