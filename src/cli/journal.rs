//! `drover journal`: looks into the journal of a service that does not run; the file does not change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causes::chain;
use drover_journal::{Inspection, LogError, RecordHead, inspect};
use serde::Serialize;
use serde_json::json;

use super::config::{config_path, load};
use super::global::Global;
use super::options::JournalAction;
use super::report::{self, FAILED};
use super::sentences::{clean, count};
use super::stdout::{put, put_value};
use crate::app::JOURNAL;

/// What `journal verify` prints as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifyOut {
    file: String,
    size_bytes: u64,
    snapshot_at: u64,
    snapshot_bytes: u64,
    record_bytes: u64,
    records: usize,
    last: u64,
    epoch: u64,
    installation: Option<String>,
    agents: BTreeMap<String, usize>,
    waiting_leases: usize,
    ended_leases: usize,
    builds: usize,
    runners: usize,
}

/// Verifies the journal, or lists what is in it.
pub(super) fn journal(global: &Global, action: &JournalAction) -> ExitCode {
    let (JournalAction::Verify { file } | JournalAction::Inspect { file, .. }) = action;
    let path = match place(global, file.as_deref()) {
        Ok(path) => path,
        Err(code) => return code,
    };
    let found = match inspect(&path) {
        Ok(found) => found,
        Err(error) => return refused(global, &error),
    };
    match action {
        JournalAction::Verify { .. } => {
            let out = verified(&path, &found);
            if global.json {
                return put_value(global.output(), &out, ExitCode::SUCCESS);
            }
            put(false, &summary(&out), ExitCode::SUCCESS)
        }
        JournalAction::Inspect { after, about, .. } => {
            let wanted = |head: &&RecordHead| {
                let named = |id: &String| head.about.iter().any(|(_, one)| one == id);
                head.seq > after.unwrap_or(0) && about.as_ref().is_none_or(named)
            };
            let heads: Vec<&RecordHead> = found.records.iter().filter(wanted).collect();
            if global.json {
                let heads: Vec<_> = heads.into_iter().map(as_json).collect();
                let value = json!({ "snapshotAt": found.snapshot_at, "records": heads });
                return put_value(global.output(), &value, ExitCode::SUCCESS);
            }
            put(false, &listed(&heads, found.snapshot_at), ExitCode::SUCCESS)
        }
    }
}

/// The file that is named, or the journal of the configuration's state directory.
fn place(global: &Global, file: Option<&Path>) -> Result<PathBuf, ExitCode> {
    match file {
        Some(file) if file.is_dir() => Ok(file.join(JOURNAL)),
        Some(file) => Ok(file.to_owned()),
        None => {
            let checked = load(&config_path(global), global.json)?;
            Ok(checked.service.state_directory.join(JOURNAL))
        }
    }
}

fn refused(global: &Global, error: &LogError) -> ExitCode {
    let text = chain(error);
    report::fail(global.json, FAILED, &text, &format!("drover: {text}\n"))
}

fn verified(path: &Path, found: &Inspection) -> VerifyOut {
    let state = &found.state;
    let mut agents: BTreeMap<String, usize> = BTreeMap::new();
    for entry in state.agents.values() {
        *agents.entry(entry.phase().to_string()).or_default() += 1;
    }
    VerifyOut {
        file: path.display().to_string(),
        size_bytes: found.size,
        snapshot_at: found.snapshot_at,
        snapshot_bytes: found.snapshot_bytes,
        record_bytes: found.record_bytes,
        records: found.records.len(),
        last: state.seq,
        epoch: state.epoch,
        installation: state.installation.as_ref().map(ToString::to_string),
        agents,
        waiting_leases: state.waiting.len(),
        ended_leases: state.ended.len(),
        builds: state.builds.len(),
        runners: state.runners.values().map(BTreeMap::len).sum(),
    }
}

fn summary(out: &VerifyOut) -> String {
    let kilobytes = |bytes: u64| format!("{} kB", bytes.div_ceil(1000));
    let mut text = format!("{} is sound\n", clean(&out.file));
    let snapshot = match out.snapshot_at {
        0 => "none".to_owned(),
        at => format!("includes record {at}, {}", kilobytes(out.snapshot_bytes)),
    };
    let installation = out.installation.as_deref().unwrap_or("none yet");
    let states: Vec<String> =
        out.agents.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let agents = if states.is_empty() { "none".to_owned() } else { states.join(", ") };
    let rows = [
        ("size", kilobytes(out.size_bytes)),
        ("snapshot", snapshot),
        (
            "records",
            format!(
                "{} after it, {}; the last is {}",
                out.records,
                kilobytes(out.record_bytes),
                out.last
            ),
        ),
        ("installation", format!("{installation}, {}", starts(out.epoch))),
        ("agents", agents),
        ("leases", format!("{} waiting, {} ended and kept", out.waiting_leases, out.ended_leases)),
        ("builds", out.builds.to_string()),
        ("runners", out.runners.to_string()),
    ];
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<12}  {value}");
    }
    text
}

fn starts(epoch: u64) -> String {
    count(usize::try_from(epoch).unwrap_or(usize::MAX), "start")
}

fn listed(heads: &[&RecordHead], snapshot_at: u64) -> String {
    let mut text = String::new();
    let _ = match snapshot_at {
        0 => writeln!(text, "no record is in a snapshot"),
        at => writeln!(text, "records up to {at} are in the snapshot"),
    };
    if heads.is_empty() {
        text += "no record after that\n";
    }
    for head in heads {
        let about: Vec<String> =
            head.about.iter().map(|(name, id)| format!("{name} {}", clean(id))).collect();
        let (at, about) = (head.at.rfc3339(), about.join(", "));
        let line = format!("{:>8}  {at:<24}  {:<24}  {about}", head.seq, clean(&head.kind));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn as_json(head: &RecordHead) -> serde_json::Value {
    let about: BTreeMap<&str, &str> =
        head.about.iter().map(|(name, id)| (*name, id.as_str())).collect();
    json!({
        "seq": head.seq,
        "epoch": head.epoch,
        "at": head.at.rfc3339(),
        "kind": head.kind,
        "about": about,
    })
}
