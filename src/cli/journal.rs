//! `drover journal`: looks into the journal of a service that does not run, and copies of it. What is
//! looked into does not change.

mod beside;
mod place;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use drover_config::{Environment, KEY_VARIABLE, key_of_environment};
use drover_journal::{Inspection, RecordHead};
use drover_vault::ClusterKey;
use serde::Serialize;
use serde_json::json;

use super::config::{config_path, load};
use super::global::Global;
use super::options::JournalAction;
use super::report::{self, FAILED};
use super::sentences::{clean, count};
use super::stdout::{put, put_value};
use crate::app::JOURNAL;
use beside::{Beside, Carried};
use place::Place;

/// What `journal verify` prints as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct VerifyOut {
    file: String,
    /// Left out where a store does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
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

/// What `journal copy` prints as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CopyOut {
    from: String,
    to: String,
    snapshot_at: u64,
    records: usize,
    last: u64,
    /// What lies beside it and was copied too.
    beside: Vec<String>,
    /// What lies beside it and was not copied.
    left: Vec<String>,
}

/// Verifies a journal, lists what is in it, or copies it.
pub(super) fn journal(global: &Global, action: &JournalAction) -> ExitCode {
    let done = match action {
        JournalAction::Verify { journal } => verify(global, journal.as_deref()),
        JournalAction::Inspect { journal, after, about } => {
            list(global, journal.as_deref(), *after, about.as_ref())
        }
        JournalAction::Copy { from, to, cluster_key_file, journal_only } => {
            copy(global, (from, to), cluster_key_file.as_deref(), *journal_only)
        }
    };
    done.unwrap_or_else(|code| code)
}

fn verify(global: &Global, journal: Option<&str>) -> Result<ExitCode, ExitCode> {
    let place = place(global, journal)?;
    let found = place.inspect().map_err(|text| refused(global, &text))?;
    let out = verified(&place, &found);
    if global.json {
        return Ok(put_value(global.output(), &out, ExitCode::SUCCESS));
    }
    Ok(put(false, &summary(&out), ExitCode::SUCCESS))
}

fn list(
    global: &Global,
    journal: Option<&str>,
    after: Option<u64>,
    about: Option<&String>,
) -> Result<ExitCode, ExitCode> {
    let found = place(global, journal)?.inspect().map_err(|text| refused(global, &text))?;
    let wanted = |head: &&RecordHead| {
        let named = |id: &String| head.about.iter().any(|(_, one)| one == id);
        head.seq > after.unwrap_or(0) && about.is_none_or(named)
    };
    let heads: Vec<&RecordHead> = found.records.iter().filter(wanted).collect();
    if global.json {
        let heads: Vec<_> = heads.into_iter().map(as_json).collect();
        let value = json!({ "snapshotAt": found.snapshot_at, "records": heads });
        return Ok(put_value(global.output(), &value, ExitCode::SUCCESS));
    }
    Ok(put(false, &listed(&heads, found.snapshot_at), ExitCode::SUCCESS))
}

fn copy(
    global: &Global,
    (from, to): (&str, &str),
    key_file: Option<&Path>,
    journal_only: bool,
) -> Result<ExitCode, ExitCode> {
    let refused = |text: String| refused(global, &text);
    let key = key_in(key_file).map_err(refused)?;
    let from = place(global, Some(from))?;
    let to = place(global, Some(to))?;
    let contents = from.contents().map_err(refused)?;
    let mut carried = Carried::default();
    // Beside a journal that is there, nothing changes. Filling says why it is refused.
    if to.is_free().map_err(refused)? {
        let beside = Beside::look((&from, &to), key.as_ref(), journal_only);
        // Before the journal: a copy that is cut short can be done again, and nobody starts with half of it.
        carried = beside.and_then(Beside::carry).map_err(refused)?;
    }
    to.fill(&contents).map_err(refused)?;
    let out = CopyOut {
        from: from.text(),
        to: to.text(),
        snapshot_at: contents.snapshot_at(),
        records: contents.records(),
        last: contents.last(),
        beside: carried.copied,
        left: carried.left,
    };
    if global.json {
        return Ok(put_value(global.output(), &out, ExitCode::SUCCESS));
    }
    Ok(put(false, &copied(&out, carried.why), ExitCode::SUCCESS))
}

/// The key of the members in a file.
fn key_in(file: Option<&Path>) -> Result<Option<ClusterKey>, String> {
    let Some(file) = file else { return Ok(None) };
    let environment = Environment::of_process();
    key_of_environment(&environment.with(KEY_VARIABLE, &file.display().to_string()))
}

fn copied(out: &CopyOut, why: &str) -> String {
    let snapshot = match out.snapshot_at {
        0 => String::new(),
        at => format!("the snapshot of record {at} and "),
    };
    let records = count(out.records, "record");
    let (from, to) = (clean(&out.from), clean(&out.to));
    let mut text =
        format!("copied {snapshot}{records} from {from} to {to}; the last is {}\n", out.last);
    if !out.beside.is_empty() {
        let _ = writeln!(text, "{} beside it: copied too", clean(&beside::listed(&out.beside)));
    }
    if !out.left.is_empty() {
        let _ =
            writeln!(text, "{} beside it: not copied, {why}", clean(&beside::listed(&out.left)));
    }
    text + "Run drover with one of the two alone: both name the same machines.\n"
}

/// The journal that is named, or that of the configuration's state directory.
fn place(global: &Global, journal: Option<&str>) -> Result<Place, ExitCode> {
    match journal {
        Some(name) => Place::named(name).map_err(|text| refused(global, &text)),
        None => {
            let checked = load(&config_path(global), global.json)?;
            Ok(Place::File(checked.service.state_directory.join(JOURNAL)))
        }
    }
}

fn refused(global: &Global, text: &str) -> ExitCode {
    report::fail(global.json, FAILED, text, &format!("drover: {text}\n"))
}

fn verified(place: &Place, found: &Inspection) -> VerifyOut {
    let state = &found.state;
    let mut agents: BTreeMap<String, usize> = BTreeMap::new();
    for entry in state.agents.values() {
        *agents.entry(entry.phase().to_string()).or_default() += 1;
    }
    VerifyOut {
        file: place.text(),
        size_bytes: (found.size > 0).then_some(found.size),
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
        ("size", out.size_bytes.map_or_else(|| "not known".to_owned(), kilobytes)),
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
