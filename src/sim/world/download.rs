//! Downloads by nodes. The description of the cluster lists the URLs that exist. Others may be
//! fetched by the host of the guests, which then keeps what disks are made of.

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::context::{CallContext, failed};
use super::state::State;
use super::storage::Volume;
use crate::call::{Answer, ApiError, Outcome};
use crate::guest::KeptFile;
use crate::spec::WebFile;

/// The characters that the id of a task keeps unencoded.
const TASK_ID_ENCODE_SET: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~');

#[derive(Debug)]
pub(crate) struct Download {
    pub(crate) url: String,
    /// The target volume.
    pub(crate) volid: String,
    pub(crate) task_id: String,
    /// The expected checksum.
    pub(crate) checksum: Option<String>,
    /// What kind of checksum that is; SHA-256 where nothing is said.
    pub(crate) algorithm: Option<String>,
    /// Whether an existing file is replaced.
    pub(crate) overwrite: bool,
}

impl State {
    fn find_web_file(&self, url: &str) -> Option<WebFile> {
        self.web_files.iter().find(|file| file.url == url).cloned()
    }
}

/// `GET /nodes/{node}/query-url-metadata`.
pub(crate) fn metadata(ctx: &CallContext) -> Outcome {
    let url = ctx.text("url").unwrap_or_default();
    let found = ctx.cluster.state().find_web_file(&url);
    let Some(file) = found else {
        return Err(failed("invalid server response: '404 Not Found'".into()));
    };
    let name = url.rsplit('/').next().unwrap_or_default();
    Ok(Answer::new(json!({
        "filename": name, "size": file.size, "mimetype": "application/octet-stream",
    })))
}

/// `POST …/download-url`.
pub(crate) fn from_url(ctx: &CallContext) -> Outcome {
    let text = |name: &str| ctx.text(name).unwrap_or_default();
    let (storage, content) = (text("storage"), text("content"));
    let file = file_name(&text("filename"));
    let extensions: &[&str] = match content.as_str() {
        "iso" => &[".iso", ".img"],
        "vztmpl" => &[".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"],
        _ => &[".qcow2", ".raw", ".vmdk", ".ova"],
    };
    if !extensions.iter().any(|ending| file.ends_with(ending)) {
        return Err(ApiError::parameter("filename", "wrong file extension"));
    }
    {
        let state = ctx.cluster.state();
        let found = state.storage(&storage).map_err(failed)?;
        if !found.is_file_based() {
            let kind = &found.spec.kind;
            return Err(failed(format!(
                "can't upload to storage type '{kind}', not a file based storage!"
            )));
        }
        if !found.accepts(&content) {
            let text =
                format!("storage '{storage}' is not configured for content-type '{content}'");
            return Err(failed(text));
        }
    }
    Ok(start_download(
        ctx,
        Download {
            url: text("url"),
            volid: format!("{storage}:{content}/{file}"),
            task_id: utf8_percent_encode(&file, TASK_ID_ENCODE_SET).to_string(),
            checksum: ctx.text("checksum"),
            algorithm: ctx.text("checksum-algorithm"),
            overwrite: false,
        },
    ))
}

/// A file name as the node stores it: without folders, with `_` for special characters.
fn file_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let keep = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
    last.chars().map(|letter| if keep(letter) { letter } else { '_' }).collect()
}

pub(crate) fn start_download(ctx: &CallContext, wanted: Download) -> Answer {
    let (cluster, node) = (ctx.cluster.clone(), ctx.node.clone());
    let task = wanted.task_id.clone();
    ctx.cluster.fork(&ctx.call.caller, &ctx.node, "download", task, |worker| async move {
        let Download { url, volid, checksum, algorithm, overwrite, .. } = wanted;
        worker.log(format!("downloading {url}"));
        let kept = cluster.kept_name(&node, &volid);
        let (path, exists, mut found) = {
            let state = cluster.state();
            let storage = state.storage_of(&volid)?;
            let exists = storage.volume(&node, &volid).is_some();
            (storage.path(&volid), exists, state.find_web_file(&url))
        };
        if found.is_none() {
            let file = match cluster.guest_host.kept_file(&kept).filter(|_| exists) {
                None => cluster.guest_host.download(&url, &kept).await.unwrap_or_else(|error| {
                    worker.log(error);
                    None
                }),
                there => there,
            };
            found = file.map(|KeptFile { bytes, sha256, sha512 }| WebFile {
                url: url.clone(),
                size: bytes,
                sha256,
                sha512,
            });
        }
        let sum = match (&found, algorithm.as_deref()) {
            (Some(file), None | Some("sha256")) => file.sha256.clone(),
            (Some(file), Some("sha512")) => file.sha512.clone(),
            (Some(_), Some(other)) => {
                let text = "drover sim does not support the checksum algorithm";
                return Err(format!("{text} '{other}'"));
            }
            (None, _) => String::new(),
        };
        if exists && !overwrite {
            // The existing file came from the same URL, so it has this checksum.
            return match &checksum {
                None => Err(format!("refusing to override existing file '{path}'")),
                Some(wanted) if wanted.eq_ignore_ascii_case(&sum) => Ok(()),
                Some(wanted) => {
                    Err(format!("checksum mismatch: got '{sum}' != expect '{wanted}', aborting"))
                }
            };
        }
        let Some(file) = found else {
            return Err(format!(
                "download failed: command '/usr/bin/wget --progress=dot:giga -O {path}.tmp {url}' \
                 failed: exit code 4"
            ));
        };
        let span = {
            let mut state = cluster.state();
            cluster.latency.copy_bytes_per_second.transfer(file.size, &mut state.random)
        };
        if !worker.sleep(span).await {
            cluster.guest_host.drop_file(&kept);
            return Err("interrupted by signal".into());
        }
        if let Some(wanted) = checksum {
            worker.log("calculating checksum...");
            if !wanted.eq_ignore_ascii_case(&sum) {
                cluster.guest_host.drop_file(&kept);
                return Err(format!(
                    "checksum mismatch: got '{sum}' != expect '{wanted}', aborting"
                ));
            }
        }
        let mut state = cluster.state();
        let now = state.clock.unix();
        let name = super::conf::storage_name(&volid).unwrap_or_default().to_owned();
        let content = super::checks::content_of(&volid);
        let format = volid.rsplit_once('.').map_or("raw", |(_, ending)| ending).to_owned();
        state.storage_mut(&name)?.insert_volume(
            &node,
            &volid,
            Volume {
                size: file.size,
                vmid: None,
                format,
                content: content.into(),
                ctime: now,
                base: None,
                free_error: None,
                snapshots: BTreeSet::new(),
            },
        );
        drop(state);
        worker.log(format!("download of '{url}' to '{path}' finished"));
        Ok(())
    })
}
