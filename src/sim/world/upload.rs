//! Uploads: `POST …/upload`.

use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

use super::context::CallContext;
use crate::call::{ApiError, Outcome};

/// `POST /nodes/{node}/storage/{storage}/upload`: the node that received the call has the file; a
/// task on that node copies it to its target.
pub(crate) fn upload(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let content = ctx.text("content").unwrap_or_default();
    let file = ctx.call.file.clone().unwrap_or_default();
    let (volid, target) = {
        let state = ctx.cluster.state();
        let storage = state.storage(&name).map_err(ApiError::failed)?;
        if !storage.available_on(&ctx.node) {
            let text = format!("storage '{name}' is not available on node '{}'", ctx.node);
            return Err(ApiError::failed(text));
        }
        if !storage.is_file_based() {
            let text = format!("can't upload to storage type '{}'", storage.spec.kind);
            return Err(ApiError::failed(text));
        }
        let filename = sanitized_name(&ctx.text("filename").unwrap_or_default());
        if !has_extension_for(&content, &filename) {
            return Err(ApiError::parameter("filename", "wrong file extension"));
        }
        if !storage.accepts(&content) {
            let text = format!("storage '{name}' does not support '{content}' content");
            return Err(ApiError::failed(text));
        }
        let volid = format!("{name}:{content}/{filename}");
        let target = storage.path(&volid);
        (volid, target)
    };
    let sum = ctx.text("checksum-algorithm").zip(ctx.text("checksum"));
    let (cluster, node) = (ctx.cluster.clone(), ctx.node.clone());
    let serial = cluster.state().random.uuid().replace('-', "");
    let spooled = format!("/var/tmp/pveupload-{serial}");
    let at = ctx.call.received_by.clone();
    let is_local = node == at;
    Ok(ctx.cluster.fork(&ctx.call.caller, &at, "imgcopy", "", |worker| async move {
        worker.log(format!("starting file import from: {spooled}"));
        if let Some((algorithm, wanted)) = sum {
            let got = digest(&algorithm, &file)?;
            if got != wanted.to_lowercase() {
                worker.log("calculating checksum...");
                return Err(format!("checksum mismatch: got '{got}' != expect '{wanted}'"));
            }
            worker.log("calculating checksum...OK, checksum verified");
        }
        if volid.ends_with(".qcow2") && !file.starts_with(b"QFI\xfb") {
            worker.log(format!(
                "command '/usr/bin/qemu-img info '--output=json' {spooled} -f qcow2' failed: exit \
                 code 1"
            ));
            let text = "Image is not in qcow2 format";
            return Err(format!("qemu-img: Could not open '{spooled}': {text}"));
        }
        worker.log(format!("target node: {node}"));
        worker.log(format!("target file: {target}"));
        worker.log(format!("file size is: {}", file.len()));
        let command = if is_local { "cp --" } else { "/usr/bin/scp -o BatchMode=yes -p --" };
        worker.log(format!("command: {command} {spooled} {target}"));
        if !cluster.simulate_work(&node, cluster.latency.allocate, Some(&worker)).await {
            return Err("import failed: received interrupt".into());
        }
        let mut state = cluster.state();
        let now = state.clock.unix();
        state.storage_mut(&name)?.write_file(&node, &volid, &content, file, now)?;
        drop(state);
        worker.log("finished file import successfully");
        Ok(())
    }))
}

/// The name of a file without its path; special characters become `_`.
fn sanitized_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    last.chars().map(|c| if good(c) { c } else { '_' }).collect()
}

/// Whether the extension of a file fits its content type.
fn has_extension_for(content: &str, name: &str) -> bool {
    let extensions: &[&str] = match content {
        "iso" => &[".iso", ".img"],
        "vztmpl" => &[".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"],
        _ => &[".qcow2", ".raw", ".vmdk", ".ova"],
    };
    let lower = name.to_ascii_lowercase();
    extensions.iter().any(|ending| lower.len() > ending.len() && lower.ends_with(ending))
}

/// The checksum in hexadecimal digits.
fn digest(algorithm: &str, file: &[u8]) -> Result<String, String> {
    let bytes = match algorithm {
        "sha224" => Sha224::digest(file).to_vec(),
        "sha256" => Sha256::digest(file).to_vec(),
        "sha384" => Sha384::digest(file).to_vec(),
        "sha512" => Sha512::digest(file).to_vec(),
        other => {
            return Err(format!("drover sim does not support the checksum algorithm '{other}'"));
        }
    };
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
