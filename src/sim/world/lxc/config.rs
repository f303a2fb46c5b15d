//! Reading and changing a container's configuration: synchronously, never as a task.

use serde_json::{Map, Value, json};

use super::super::Cluster;
use super::super::conf::{self, Config, Drive, numbered, parse_size, print_size};
use super::super::context::{CallContext, failed};
use super::super::state::{Guest, PendingChange};
use super::super::worker::Worker;
use super::create::{json_value, requested_config, with_mac_address};
use super::{SSH_KEYS_PARAMETER, mounts};
use crate::api;
use crate::call::{Answer, ApiError, Outcome};

/// Keys that take effect at the next start of a running container [I].
const NEXT_START_KEYS: &[&str] = &["arch", "features", "ostype", "console", "tty", "cmode"];

fn json_fields(config: &Config) -> Map<String, Value> {
    let keys = config.iter().filter(|(key, _)| *key != SSH_KEYS_PARAMETER);
    keys.map(|(key, value)| (key.clone(), json_value(key, value))).collect()
}

/// `GET …/config`.
pub(crate) fn read(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    let mut fields = match ctx.text("snapshot") {
        Some(name) => match guest.snapshots.get(&name) {
            Some(snapshot) => json_fields(&snapshot.config),
            None => return Err(failed(format!("snapshot '{name}' does not exist"))),
        },
        None => {
            let mut config = guest.config.clone();
            if !ctx.flag("current") {
                config.extend(pending_values(guest));
            }
            json_fields(&config)
        }
    };
    fields.insert("digest".into(), guest.digest().into());
    Ok(Answer::new(fields.into()))
}

fn pending_values(guest: &Guest) -> Config {
    let set = guest.pending.iter().filter_map(|(key, change)| match change {
        PendingChange::Set(value) => Some((key.clone(), value.clone())),
        PendingChange::Delete { .. } => None,
    });
    set.collect()
}

/// `GET …/pending`.
pub(crate) fn pending(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
    let mut entries: Vec<Value> = Vec::new();
    for (key, value) in guest.config.iter().filter(|(key, _)| *key != SSH_KEYS_PARAMETER) {
        let mut entry = json!({ "key": key, "value": json_value(key, value) });
        match guest.pending.get(key) {
            Some(PendingChange::Set(value)) => entry["pending"] = json_value(key, value),
            Some(PendingChange::Delete { .. }) => entry["delete"] = 1.into(),
            None => {}
        }
        entries.push(entry);
    }
    for (key, value) in
        pending_values(guest).iter().filter(|(key, _)| !guest.config.contains_key(*key))
    {
        entries.push(json!({ "key": key, "pending": json_value(key, value) }));
    }
    Ok(Answer::new(entries.into()))
}

fn split_list(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split([',', ';', ' ']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// `PUT …/config`: the change is complete when the call returns.
pub(crate) async fn write(ctx: &CallContext) -> Outcome {
    let mut set = requested_config(ctx);
    let (delete, revert) = (split_list(ctx.text("delete")), split_list(ctx.text("revert")));
    if set.is_empty() && delete.is_empty() && revert.is_empty() {
        return Err(failed("no options specified".into()));
    }
    if let Some(key) = delete.iter().find(|key| set.contains_key(*key)) {
        let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
        return Err(ApiError::parameter("delete", text));
    }
    ctx.check_may_change_container(None, &set, &delete)?;
    let route = "/nodes/{node}/lxc/{vmid}/config";
    for (name, keys) in [("revert", &revert), ("delete", &delete)] {
        if let Some(key) =
            keys.iter().find(|key| !api::is_config_key(route, key, ctx.cluster.version))
        {
            return Err(ApiError::parameter(name, format!("unknown option '{key}'")));
        }
    }
    ctx.check_may_mount(&set)?;
    ctx.require_quorum()?;
    if let Some(tags) = set.get_mut("tags") {
        *tags = conf::normalise_tags(tags);
    }
    let _file = ctx.cluster.container_lock(&ctx.node, ctx.vmid, None).await.map_err(failed)?;
    {
        let state = ctx.cluster.state();
        let guest = state.container(&ctx.node, ctx.vmid).map_err(failed)?;
        guest.check_digest(ctx.text("digest").as_deref()).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
    }
    ctx.cluster.simulate_work(&ctx.node, ctx.cluster.latency.config, None).await;
    for (key, drive) in mounts(&set) {
        let made = ctx.cluster.allocate_mount(&ctx.node, ctx.vmid, &drive, None).await;
        set.insert(key, made.map_err(failed)?.print());
    }
    let freed = apply_changes(ctx, set, delete, revert)?;
    for volid in freed {
        ctx.cluster.free_volume(&ctx.node, &volid, None).await.map_err(failed)?;
    }
    Ok(Answer::null())
}

/// Applies the changes; returns the volumes to free.
fn apply_changes(
    ctx: &CallContext,
    mut set: Config,
    delete: Vec<String>,
    revert: Vec<String>,
) -> Result<Vec<String>, ApiError> {
    let mut state = ctx.cluster.state();
    ctx.cluster.refresh_container(&mut state, ctx.vmid);
    for (key, value) in &mut set {
        if numbered(key, "net").is_some() {
            *value = with_mac_address(value, &mut state);
        }
    }
    let guest = state.container_mut(&ctx.node, ctx.vmid).map_err(failed)?;
    let running = guest.process.is_some();
    for key in revert {
        guest.pending.remove(&key);
    }
    let mut freed = Vec::new();
    for key in delete {
        guest.pending.remove(&key);
        if let Some(drive) = guest.config.get(&key).map(|value| Drive::parse(value)) {
            if numbered(&key, "mp").is_some() {
                // The volume of a removed mount point is kept (pve-container, LXC/Config.pm:1340).
                guest.add_unused(&drive);
            } else if numbered(&key, "unused").is_some() {
                freed.push(drive.file);
            }
        }
        if running && NEXT_START_KEYS.contains(&key.as_str()) {
            guest.pending.insert(key, PendingChange::Delete { force: false });
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
        if running && NEXT_START_KEYS.contains(&key.as_str()) {
            guest.pending.insert(key, PendingChange::Set(value));
        } else {
            guest.config.insert(key, value);
        }
    }
    Ok(freed)
}

/// `PUT …/resize`: a task; it also grows the file system.
pub(crate) fn resize(ctx: &CallContext) -> Outcome {
    let (cluster, node, vmid) = (ctx.cluster.clone(), ctx.node.clone(), ctx.vmid);
    let disk = ctx.text("disk").unwrap_or_default();
    let size = ctx.text("size").unwrap_or_default();
    let digest = ctx.text("digest");
    {
        let state = cluster.state();
        let guest = state.container(&node, vmid).map_err(failed)?;
        guest.check_digest(digest.as_deref()).map_err(failed)?;
        guest.ensure_unlocked().map_err(failed)?;
    }
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "resize", vmid, |worker| async move {
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
        let (mut drive, current): (Drive, u64) = {
            let state = self.state();
            let guest = state.container(&node, vmid)?;
            guest.ensure_unlocked()?;
            let found = mounts(&guest.config).into_iter().find(|(key, _)| key == disk);
            let Some((_, drive)) = found else {
                return Err(format!("disk '{disk}' does not exist"));
            };
            let volume = state.storage_of(&drive.file)?.volume(&node, &drive.file);
            let size = volume.map(|volume| volume.size);
            let freed = || format!("volume '{}' does not exist", drive.file);
            (drive.clone(), size.ok_or_else(freed)?)
        };
        let wanted = match size.strip_prefix('+') {
            Some(more) => current + parse_size(more).unwrap_or(0),
            None => parse_size(size).unwrap_or(0),
        };
        if wanted < current {
            return Err("unable to shrink disk size".into());
        }
        if wanted == current {
            return Ok(());
        }
        self.simulate_work(&node, self.latency.resize, None).await;
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
