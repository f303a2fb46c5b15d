//! `drover audit`: who changed what, as the service answers; and the check of the files of this machine,
//! which needs no service.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use causes::chain;
use drover_api::AuditOut;
use drover_audit::{FOLDER, Seen, VerifyError};
use drover_config::{Environment, state_directory};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::client::{Client, LONG_LIMIT};
use super::config::{DEFAULT_CONFIG, config_path, load};
use super::error::CliError;
use super::global::Global;
use super::lists;
use super::options::AuditOptions;
use super::report::{self, FAILED, USAGE};
use super::sentences::{clean, count};
use super::stdout::{put, put_value};
use super::term::Term;

/// Lists records of the audit log.
pub(super) async fn list(
    client: &Client,
    options: &AuditOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let path = path(options, Timestamp::now());
    let mut out: AuditOut = client.get(&path, LONG_LIMIT).await?;
    let records = std::mem::take(&mut out.records);
    let whole = |records| AuditOut { records, ..out.clone() };
    lists::show(term, json, &options.list, records, whole, lists::trouble)
}

fn path(options: &AuditOptions, now: Timestamp) -> String {
    let since = options.since.map(|span| now.checked_sub(span).unwrap_or(Timestamp::MIN));
    let pairs = [
        ("since", since.map(|at| at.to_string())),
        ("by", options.by.clone()),
        ("about", options.about.clone()),
        ("limit", options.limit.map(|limit| limit.to_string())),
    ];
    let given = pairs.iter().filter_map(|(key, value)| {
        let value = utf8_percent_encode(value.as_deref()?, NON_ALPHANUMERIC);
        Some(format!("{key}={value}"))
    });
    let query = given.collect::<Vec<_>>().join("&");
    if query.is_empty() { "/v1/audit".to_owned() } else { format!("/v1/audit?{query}") }
}

/// Checks the chain in files, and whether it holds the record with a hash.
pub(super) fn verify(global: &Global, path: Option<&Path>, holds: Option<&str>) -> ExitCode {
    let path = match path {
        Some(path) => path.to_owned(),
        None => match folder(global) {
            Ok(path) => path,
            Err(code) => return code,
        },
    };
    let checked = match holds {
        None => drover_audit::verify(&path),
        Some(hash) => drover_audit::verify_with(&path, hash),
    };
    match checked {
        Ok(seen) => {
            // drover writes a record at each start, so somebody removed those of a folder that has none.
            let is_whole = seen.records > 0;
            let done = if is_whole { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
            if global.json {
                let value = json!({ "path": path, "isWhole": is_whole, "seen": seen });
                return put_value(global.output(), &value, done);
            }
            put(false, &summary(&path, &seen), done)
        }
        Err(VerifyError::Broken(broken)) if global.json => {
            let value = json!({ "path": path, "isWhole": false, "broken": broken });
            put_value(global.output(), &value, ExitCode::from(FAILED))
        }
        Err(VerifyError::Lacks { hash, .. }) if global.json => {
            let value = json!({ "path": path, "isWhole": false, "lacks": hash });
            put_value(global.output(), &value, ExitCode::from(FAILED))
        }
        Err(error) => {
            let text = clean(&chain(&error));
            report::fail(global.json, FAILED, &text, &format!("drover: {text}\n"))
        }
    }
}

/// The folder of the configuration; without one, that of the usual state directory.
fn folder(global: &Global) -> Result<PathBuf, ExitCode> {
    let path = config_path(global);
    if global.config.is_some() || path.exists() {
        return Ok(load(&path, global.json)?.service.state_directory.join(FOLDER));
    }
    usual_folder(&state_directory(None, &Environment::of_process()))
        .map_err(|text| report::fail(global.json, USAGE, &text, &format!("drover: {text}\n")))
}

/// The audit log in a state directory, where there is one.
fn usual_folder(state: &Path) -> Result<PathBuf, String> {
    let folder = state.join(FOLDER);
    if folder.is_dir() {
        return Ok(folder);
    }
    Err(format!(
        "there is no audit log in `{}` and no configuration in `{DEFAULT_CONFIG}`: name the configuration with \
         --config or DROVER_CONFIG, or the folder of the audit log: `drover audit verify FOLDER`",
        clean(&folder.display().to_string())
    ))
}

fn summary(path: &Path, seen: &Seen) -> String {
    let shown = clean(&path.display().to_string());
    if seen.records == 0 {
        return format!(
            "`{shown}` has no records. drover writes one at each start: somebody removed them, or drover never \
             served from here\n"
        );
    }
    let Seen { files, records, first_seq, last_seq, last_hash, .. } = seen;
    let (files, records) = (count(*files, "file"), number(*records, "record"));
    let mut text = format!(
        "`{shown}` is whole: {records} in {files}, from {first_seq} to {last_seq}\n\
         The last hash is {last_hash}; the copy in the system's journal must have the same\n"
    );
    let more = [
        (
            seen.torn_lines,
            "torn line",
            "closed: the process died while it wrote, or the disk was full",
        ),
        (seen.lost_records, "record", "could not be written, as later records say"),
        (
            seen.bytes_behind,
            "byte",
            "behind the last record: a record that is written just now or broke off, or somebody added them",
        ),
    ];
    for (how_many, of_what, why) in more.into_iter().filter(|(how_many, ..)| *how_many > 0) {
        let _ = writeln!(text, "{} {why}", number(how_many, of_what));
    }
    text
}

fn number(how_many: u64, of_what: &str) -> String {
    count(usize::try_from(how_many).unwrap_or(usize::MAX), of_what)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::time::Duration;

    use super::*;

    // Invariant: what is asked for is in the query, and nothing else.

    #[test]
    fn options_become_a_query_that_hides_nothing_in_its_values() {
        let now: Timestamp = "2026-11-28T18:00:00Z".parse().unwrap();
        assert_eq!(path(&AuditOptions::default(), now), "/v1/audit");
        let options = AuditOptions {
            since: Some(Duration::from_secs(3600)),
            by: Some("token:a&b".to_owned()),
            about: None,
            limit: Some(5),
            ..AuditOptions::default()
        };
        let path = path(&options, now);
        assert_eq!(path, "/v1/audit?since=2026%2D11%2D28T17%3A00%3A00Z&by=token%3Aa%26b&limit=5");
    }

    #[test]
    fn without_a_configuration_the_usual_folder_is_checked_or_named_with_what_to_give() {
        let dir = tempfile::tempdir().unwrap();
        let text = usual_folder(dir.path()).unwrap_err();
        let folder = dir.path().join("audit");
        assert!(text.contains(&*folder.display().to_string()), "{text}");
        assert!(text.contains("drover audit verify FOLDER"), "{text}");
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(usual_folder(dir.path()), Ok(folder));
    }

    // Invariant: the check says what it saw, and what an operator compares.

    #[test]
    fn a_whole_chain_is_summed_up_with_its_last_hash_and_what_is_missing() {
        let seen = Seen {
            files: 2,
            records: 40,
            first_seq: 1,
            last_seq: 40,
            last_hash: "90ab".to_owned(),
            torn_lines: 1,
            lost_records: 3,
            bytes_behind: 0,
        };
        assert_eq!(
            summary(Path::new("/s/audit"), &seen),
            "`/s/audit` is whole: 40 records in 2 files, from 1 to 40\n\
             The last hash is 90ab; the copy in the system's journal must have the same\n\
             1 torn line closed: the process died while it wrote, or the disk was full\n\
             3 records could not be written, as later records say\n"
        );
    }
}
