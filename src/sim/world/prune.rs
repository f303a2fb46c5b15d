//! Pruning of backups: the simulator makes none, but they may lie on a storage.

use serde_json::{Value, json};

use super::ask::{Ask, failed};
use super::storage::name_of;
use crate::call::{Answer, Outcome};

/// How many of the newest a policy such as `keep-last=2` keeps; none keeps all [I].
fn kept(policy: Option<&str>) -> Option<usize> {
    let parts = policy?.split(',').filter_map(|part| part.split_once('='));
    let counts: Vec<usize> = parts
        .filter(|(key, _)| key.starts_with("keep-") && *key != "keep-all")
        .filter_map(|(_, value)| value.parse().ok())
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// The backups a call is about, the newest first, with what becomes of each.
fn marked(ask: &Ask) -> Result<Vec<(String, Value)>, crate::call::ApiError> {
    let name = ask.text("storage").unwrap_or_default();
    let keep = kept(ask.text("prune-backups").as_deref());
    let (vmid, kind) = (ask.id("vmid"), ask.text("type"));
    let state = ask.cluster.state();
    let storage = state.storage(&name).map_err(failed)?;
    let mut backups: Vec<_> =
        storage.volumes(&ask.node).filter(|(_, volume)| volume.content == "backup").collect();
    backups.sort_by_key(|(volid, volume)| (std::cmp::Reverse(volume.ctime), (*volid).clone()));
    let mut seen = std::collections::BTreeMap::new();
    let mut lines = Vec::new();
    for (volid, volume) in backups {
        // vzdump-qemu-100-2026_01_01-00_00_00.vma.zst
        let mut parts = name_of(volid).split('-').skip(1);
        let own_kind = parts.next().unwrap_or_default().to_owned();
        let own_id: Option<u32> = parts.next().and_then(|id| id.parse().ok());
        let asked = vmid.is_none_or(|vmid| own_id == Some(vmid))
            && kind.as_ref().is_none_or(|kind| *kind == own_kind);
        if !asked {
            continue;
        }
        let count: &mut usize = seen.entry((own_kind.clone(), own_id)).or_default();
        *count += 1;
        let mark = if keep.is_none_or(|keep| *count <= keep) { "keep" } else { "remove" };
        let mut line =
            json!({ "volid": volid, "ctime": volume.ctime, "type": own_kind, "mark": mark });
        if let Some(id) = own_id {
            line["vmid"] = id.into();
        }
        lines.push((volid.clone(), line));
    }
    Ok(lines)
}

/// `GET …/prunebackups`: what a prune would do.
pub fn show(ask: &Ask) -> Outcome {
    let lines: Vec<Value> = marked(ask)?.into_iter().map(|(_, line)| line).collect();
    Ok(Answer::new(lines.into()))
}

/// `DELETE …/prunebackups`: a task.
pub fn prune(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let path = format!("/storage/{name}");
    match ask.id("vmid") {
        Some(vmid) => {
            ask.check(&path, &["Datastore.AllocateSpace"])?;
            ask.check(&format!("/vms/{vmid}"), &["VM.Backup"])?;
        }
        None => ask.check(&path, &["Datastore.Allocate"])?,
    }
    let gone: Vec<String> = marked(ask)?
        .into_iter()
        .filter(|(_, line)| line["mark"] == "remove")
        .map(|(volid, _)| volid)
        .collect();
    let (cluster, node) = (ask.cluster.clone(), ask.node.clone());
    let id = match ask.id("vmid") {
        Some(vmid) => format!("{vmid}@{name}"),
        None => name,
    };
    Ok(ask.cluster.fork(&ask.call.caller, &ask.node, "prunebackups", id, |worker| async move {
        for volid in gone {
            worker.log(format!("pruning backup {volid}"));
            cluster.free(&node, &volid, Some(&worker)).await?;
        }
        Ok(())
    }))
}
