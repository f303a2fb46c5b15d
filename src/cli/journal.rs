//! `drover journal`: looks into the journal of a service that does not run, and copies of it. What is
//! looked into does not change.
//!
//! A file locks out others by itself. A store does not: a copy from or into one waits until its leader
//! lease stood still for as long as it holds.

mod beside;
mod leaders;
mod place;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use drover_config::key_of_environment;
use drover_journal::{Inspection, RecordHead};
use drover_vault::ClusterKey;
use serde::Serialize;
use serde_json::json;

use super::config::{config_path, load};
use super::global::Global;
use super::options::{JournalAction, StoreOptions, StorePlace};
use super::report::{self, FAILED, USAGE};
use super::sentences::{clean, count};
use super::stdout::{put, put_value};
use crate::app::JOURNAL;
use crate::clock::SystemAmbient;
use beside::{Beside, Carried};
use leaders::Quiet;
use place::Place;

/// The most ids that are named where one is not clear.
const IDS_NAMED_MAX: usize = 5;

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
        JournalAction::Verify { journal, store } => {
            place(global, journal.as_deref(), store).and_then(|place| verify(global, &place))
        }
        JournalAction::Inspect { journal, after, about, store } => {
            place(global, journal.as_deref(), store)
                .and_then(|place| list(global, &place, *after, about.as_deref()))
        }
        JournalAction::Copy { from, to, cluster_key_file, journal_only } => {
            copy(global, (from, to), cluster_key_file.as_deref(), *journal_only)
        }
    };
    done.unwrap_or_else(|code| code)
}

fn verify(global: &Global, place: &Place) -> Result<ExitCode, ExitCode> {
    let found = place.inspect().map_err(|text| refused(global, &text))?;
    let out = verified(place, &found);
    if global.json {
        return Ok(put_value(global.output(), &out, ExitCode::SUCCESS));
    }
    Ok(put(false, &summary(&out), ExitCode::SUCCESS))
}

fn list(
    global: &Global,
    place: &Place,
    after: Option<u64>,
    about: Option<&str>,
) -> Result<ExitCode, ExitCode> {
    let found = place.inspect().map_err(|text| refused(global, &text))?;
    let about = about.map(|about| whole_id(&found.records, about)).transpose();
    let about = about.map_err(|text| refused(global, &text))?;
    let wanted = |head: &&RecordHead| {
        let named = |id: &String| head.about.iter().any(|(_, one)| one == id);
        head.seq > after.unwrap_or(0) && about.as_ref().is_none_or(named)
    };
    let heads: Vec<&RecordHead> = found.records.iter().filter(wanted).collect();
    if global.json {
        let heads: Vec<_> = heads.into_iter().map(as_json).collect();
        let value = json!({ "snapshotAt": found.snapshot_at, "records": heads });
        return Ok(put_value(global.output(), &value, ExitCode::SUCCESS));
    }
    let text = listed(&heads, found.snapshot_at, about.as_deref());
    Ok(put(false, &text, ExitCode::SUCCESS))
}

/// The id that records are about, from the start of it; what no record has stays as it is.
fn whole_id(records: &[RecordHead], start: &str) -> Result<String, String> {
    let ids = records.iter().flat_map(|head| head.about.iter().map(|(_, id)| id.as_str()));
    let found: BTreeSet<&str> = ids.filter(|id| id.starts_with(start)).collect();
    if found.contains(start) {
        return Ok(start.to_owned());
    }
    let mut few = found.iter().take(IDS_NAMED_MAX).map(|id| format!("`{}`", clean(id)));
    match (found.len(), few.next()) {
        (0, _) | (_, None) => Ok(start.to_owned()),
        (1, _) => Ok(found.into_iter().collect()),
        (all, Some(first)) => Err(format!(
            "{all} ids in the journal begin with `{}`: {}; give more of it",
            clean(start),
            few.fold(first, |named, id| named + ", " + &id)
        )),
    }
}

fn copy(
    global: &Global,
    (from, to): (&str, &str),
    key_file: Option<&Path>,
    journal_only: bool,
) -> Result<ExitCode, ExitCode> {
    let refused = |text: String| refused(global, &text);
    let key = key_in(key_file).map_err(refused)?;
    let named = |name: &str| Place::named(name).map_err(|text| misused(global, &text));
    let (from, to) = (named(from)?, named(to)?);
    to.is_clear().map_err(refused)?;
    let ambient = SystemAmbient::new()
        .map_err(|error| refused(format!("the system gives no clock: {error}")))?;
    let source = Quiet::watch(global, &from, &ambient).map_err(refused)?;
    let target = Quiet::watch(global, &to, &ambient).map_err(refused)?;
    let contents = from.contents().map_err(refused)?;
    let mut carried = Carried::default();
    // Beside a journal that is there, nothing changes. Filling says why it is refused.
    if to.is_free().map_err(refused)? {
        let beside = Beside::look((&from, &to), key.as_ref(), journal_only).map_err(refused)?;
        source.check(&from).and_then(|()| target.check(&to)).map_err(refused)?;
        // Before the journal: a copy that is cut short can be done again, and nobody starts with half of it.
        carried = beside.carry().map_err(refused)?;
    }
    source.check(&from).and_then(|()| target.check(&to)).map_err(refused)?;
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
    let cluster_key_file = file.map(Path::to_owned);
    key_of_environment(&StoreOptions { cluster_key_file, ..StoreOptions::default() }.environment())
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

/// The journal that is named, or that of the store that is, or that of the configuration.
fn place(global: &Global, journal: Option<&str>, store: &StorePlace) -> Result<Place, ExitCode> {
    if let Some(name) = journal.map(str::to_owned).or_else(|| store.address()) {
        return Place::named(&name).map_err(|text| misused(global, &text));
    }
    let service = load(&config_path(global), global.json)?.service;
    Ok(match service.store {
        Some(spec) => Place::Store(spec.address),
        None => Place::File(service.state_directory.join(JOURNAL)),
    })
}

/// What was asked cannot be meant.
fn misused(global: &Global, text: &str) -> ExitCode {
    report::fail(global.json, USAGE, text, &format!("drover: {text}\n"))
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

fn listed(heads: &[&RecordHead], snapshot_at: u64, about: Option<&str>) -> String {
    let mut text = String::new();
    let _ = match snapshot_at {
        0 => writeln!(text, "no record is in a snapshot"),
        at => writeln!(text, "records up to {at} are in the snapshot"),
    };
    match about {
        Some(id) if heads.is_empty() => {
            let _ = writeln!(text, "no record after that is about `{}`", clean(id));
        }
        None if heads.is_empty() => text += "no record after that\n",
        Some(_) | None => {}
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

#[cfg(test)]
mod tests;
