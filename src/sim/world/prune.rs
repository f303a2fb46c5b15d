//! Pruning of backups on a storage.

use serde_json::{Value, json};

use super::context::{CallContext, failed};
use super::storage::volume_name;
use crate::call::{Answer, Outcome};

/// How many of the newest backups a policy such as `keep-last=2` keeps; none keeps all [I].
fn keep_count(policy: Option<&str>) -> Option<usize> {
    let parts = policy?.split(',').filter_map(|part| part.split_once('='));
    let counts: Vec<usize> = parts
        .filter(|(key, _)| key.starts_with("keep-") && *key != "keep-all")
        .filter_map(|(_, value)| value.parse().ok())
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// The backups that a call is about, newest first, each with the mark `keep` or `remove`.
fn backups_with_marks(ctx: &CallContext) -> Result<Vec<(String, Value)>, crate::call::ApiError> {
    let name = ctx.text("storage").unwrap_or_default();
    let keep = keep_count(ctx.text("prune-backups").as_deref());
    let (vmid, kind) = (ctx.id("vmid"), ctx.text("type"));
    let state = ctx.cluster.state();
    let storage = state.storage(&name).map_err(failed)?;
    let mut backups: Vec<_> =
        storage.volumes(&ctx.node).filter(|(_, volume)| volume.content == "backup").collect();
    backups.sort_by_key(|(volid, volume)| (std::cmp::Reverse(volume.ctime), (*volid).clone()));
    let mut seen = std::collections::BTreeMap::new();
    let mut lines = Vec::new();
    for (volid, volume) in backups {
        // vzdump-qemu-100-2026_01_01-00_00_00.vma.zst
        let mut parts = volume_name(volid).split('-').skip(1);
        let own_kind = parts.next().unwrap_or_default().to_owned();
        let own_id: Option<u32> = parts.next().and_then(|id| id.parse().ok());
        let requested = vmid.is_none_or(|vmid| own_id == Some(vmid))
            && kind.as_ref().is_none_or(|kind| *kind == own_kind);
        if !requested {
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

/// `GET …/prunebackups`: which backups a prune would remove.
pub(crate) fn show(ctx: &CallContext) -> Outcome {
    let lines: Vec<Value> = backups_with_marks(ctx)?.into_iter().map(|(_, line)| line).collect();
    Ok(Answer::new(lines.into()))
}

/// `DELETE …/prunebackups`: a task.
pub(crate) fn prune(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let path = format!("/storage/{name}");
    match ctx.id("vmid") {
        Some(vmid) => {
            ctx.check(&path, &["Datastore.AllocateSpace"])?;
            ctx.check(&format!("/vms/{vmid}"), &["VM.Backup"])?;
        }
        None => ctx.check(&path, &["Datastore.Allocate"])?,
    }
    let removed: Vec<String> = backups_with_marks(ctx)?
        .into_iter()
        .filter(|(_, line)| line["mark"] == "remove")
        .map(|(volid, _)| volid)
        .collect();
    let (cluster, node) = (ctx.cluster.clone(), ctx.node.clone());
    let id = match ctx.id("vmid") {
        Some(vmid) => format!("{vmid}@{name}"),
        None => name,
    };
    Ok(ctx.cluster.fork(&ctx.call.caller, &ctx.node, "prunebackups", id, |worker| async move {
        for volid in removed {
            worker.log(format!("pruning backup {volid}"));
            cluster.free_volume(&node, &volid, Some(&worker)).await?;
        }
        Ok(())
    }))
}
