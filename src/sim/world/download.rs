//! Downloads by nodes: which addresses there are is part of the cluster's description.

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::ask::{Ask, failed};
use super::state::State;
use super::storage::Volume;
use crate::call::{Answer, ApiError, Outcome};
use crate::spec::WebFile;

/// What a task's id keeps of a file name as it is.
const IN_ID: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// A download.
#[derive(Debug)]
pub struct Wanted {
    /// From where.
    pub url: String,
    /// To where.
    pub volid: String,
    /// The task's id.
    pub task: String,
    /// The SHA-256 it must have.
    pub checksum: Option<String>,
    /// Whether a file that is there is replaced.
    pub overwrite: bool,
}

impl State {
    fn find_on_web(&self, url: &str) -> Option<WebFile> {
        self.web.iter().find(|file| file.url == url).cloned()
    }
}

/// `GET /nodes/{node}/query-url-metadata`.
pub fn metadata(ask: &Ask) -> Outcome {
    let url = ask.text("url").unwrap_or_default();
    let found = ask.cluster.state().find_on_web(&url);
    let Some(file) = found else {
        return Err(failed("invalid server response: '404 Not Found'".into()));
    };
    let name = url.rsplit('/').next().unwrap_or_default();
    Ok(Answer::new(json!({
        "filename": name, "size": file.size, "mimetype": "application/octet-stream",
    })))
}

/// `POST …/download-url`.
pub fn from_url(ask: &Ask) -> Outcome {
    let text = |name: &str| ask.text(name).unwrap_or_default();
    let (storage, content) = (text("storage"), text("content"));
    let file = file_name(&text("filename"));
    let endings: &[&str] = match content.as_str() {
        "iso" => &[".iso", ".img"],
        "vztmpl" => &[".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"],
        _ => &[".qcow2", ".raw", ".vmdk", ".ova"],
    };
    if !endings.iter().any(|ending| file.ends_with(ending)) {
        return Err(ApiError::parameter("filename", "wrong file extension"));
    }
    {
        let state = ask.cluster.state();
        let found = state.storage(&storage).map_err(failed)?;
        if !found.is_files() {
            let kind = &found.spec.kind;
            return Err(failed(format!(
                "can't upload to storage type '{kind}', not a file based storage!"
            )));
        }
        if !found.takes(&content) {
            let text =
                format!("storage '{storage}' is not configured for content-type '{content}'");
            return Err(failed(text));
        }
    }
    Ok(begin(
        ask,
        Wanted {
            url: text("url"),
            volid: format!("{storage}:{content}/{file}"),
            task: utf8_percent_encode(&file, IN_ID).to_string(),
            checksum: ask.text("checksum"),
            overwrite: false,
        },
    ))
}

/// A file name as the node stores it: no folders, and odd characters become `_`.
fn file_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let keep = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
    last.chars().map(|letter| if keep(letter) { letter } else { '_' }).collect()
}

/// Starts the task of a download.
pub fn begin(ask: &Ask, wanted: Wanted) -> Answer {
    let (cluster, node) = (ask.cluster.clone(), ask.node.clone());
    let task = wanted.task.clone();
    ask.cluster.fork(&ask.call.caller, &ask.node, "download", task, |worker| async move {
        let Wanted { url, volid, checksum, overwrite, .. } = wanted;
        worker.log(format!("downloading {url}"));
        let (path, there, found) = {
            let state = cluster.state();
            let storage = state.storage_of(&volid)?;
            let there = storage.volume(&node, &volid).is_some();
            (storage.path(&volid), there, state.find_on_web(&url))
        };
        let sum = found.as_ref().map(|file| file.sha256.clone()).unwrap_or_default();
        if there && !overwrite {
            // What lies there came from here: it has this sum.
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
            cluster.latency.copy_bytes_per_second.transfer(file.size, &mut state.dice)
        };
        if !worker.sleep(span).await {
            return Err("interrupted by signal".into());
        }
        if let Some(wanted) = checksum {
            worker.log("calculating checksum...");
            if !wanted.eq_ignore_ascii_case(&sum) {
                return Err(format!(
                    "checksum mismatch: got '{sum}' != expect '{wanted}', aborting"
                ));
            }
        }
        let mut state = cluster.state();
        let now = state.clock.unix();
        let name = super::conf::storage_of(&volid).unwrap_or_default().to_owned();
        let content = super::checks::content_of(&volid);
        let format = volid.rsplit_once('.').map_or("raw", |(_, ending)| ending).to_owned();
        state.storage_mut(&name)?.put(
            &node,
            &volid,
            Volume {
                size: file.size,
                vmid: None,
                format,
                content: content.into(),
                ctime: now,
                base: None,
                stuck: None,
                snapshots: BTreeSet::new(),
            },
        );
        drop(state);
        worker.log(format!("download of '{url}' to '{path}' finished"));
        Ok(())
    })
}
