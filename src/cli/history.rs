//! `drover trace` and `drover usage`: what drover has seen, as a file for `drover simulate` and other
//! programs, and what was used.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use drover_api::UsageOut;
use drover_history::unread_note;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::client::{Client, LONG_LIMIT};
use super::error::{CallError, CliError};
use super::lists;
use super::options::{RangeOptions, TraceOptions, UsageOptions};
use super::sentences::{clean, count};
use super::term::Term;

/// The end of a trace has fewer bytes than this.
const END_MAX: usize = 4096;

fn query(range: &RangeOptions, more: &[(&str, &str)]) -> String {
    let spelled = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let moments = [("from", spelled(range.from)), ("to", spelled(range.to))];
    let moments = moments.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let pairs = moments
        .chain(more)
        .map(|(key, value)| format!("{key}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Shows what was used in a range of time.
pub(super) async fn usage(
    client: &Client,
    options: &UsageOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    if options.csv && json {
        let text = "`--csv` is a form of its own: leave out `--csv`, or the other one";
        return Err(CliError::Usage(text.to_owned()));
    }
    let query = query(&options.range, &[("by", options.by.name())]);
    let mut out: UsageOut = client.get(&format!("/v1/usage?{query}"), LONG_LIMIT).await?;
    if options.csv {
        term.out.write_all(out.csv().as_bytes())?;
        return Ok(());
    }
    let rows = std::mem::take(&mut out.rows);
    let whole = |rows| UsageOut { rows, ..out.clone() };
    lists::show(term, json, &options.list, rows, whole, lists::used)
}

/// Writes a trace to a file or to standard output.
pub(super) async fn trace(
    client: &Client,
    options: &TraceOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let names: &[(&str, &str)] = if options.names { &[("names", "true")] } else { &[] };
    let path = format!("/v1/trace?{}", query(&options.range, names));
    let Some(file) = &options.file else {
        let mut end = End::default();
        copy(client, &path, term.out, &mut end).await?;
        term.out.flush()?;
        return note(end.checked()?.unread, term);
    };
    let Whole { lines, unread } = match std::fs::metadata(file) {
        // A device or a pipe takes it as it comes.
        Ok(there) if !there.is_file() => write(client, &path, file).await?,
        Ok(_) | Err(_) => write_whole(client, &path, file).await?,
    };
    note(unread, term)?;
    let shown = file.display().to_string();
    if json {
        return term.structured(&json!({ "file": shown, "records": lines, "unread": unread }));
    }
    let records = count(usize::try_from(lines).unwrap_or(usize::MAX), "record");
    Ok(writeln!(term.out, "{records} written to `{}`", clean(&shown))?)
}

/// How much a trace that came to its end has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Whole {
    lines: u64,
    /// Lines of the history that are not in it. A drover that is killed while it writes leaves one.
    unread: u64,
}

/// Says what is not in a trace: it is as whole as the history.
fn note(unread: u64, term: &mut Term<'_>) -> Result<(), CliError> {
    if let Some(note) = unread_note(unread) {
        writeln!(term.err, "note: {note}")?;
    }
    Ok(())
}

/// Writes a trace that stands in the place of a file once it is whole.
async fn write_whole(client: &Client, path: &str, file: &Path) -> Result<Whole, CliError> {
    let part = file.with_added_extension("part");
    let written = write(client, path, &part).await;
    if written.is_err() {
        // The fault is what is said; a part that stays is overwritten by the next try.
        let _ = std::fs::remove_file(&part);
    }
    let whole = written?;
    std::fs::rename(&part, file).map_err(|error| unwritten(file, &error))?;
    Ok(whole)
}

async fn write(client: &Client, path: &str, part: &Path) -> Result<Whole, CliError> {
    let mut end = End::default();
    let file = File::create(part).map_err(|error| unwritten(part, &error))?;
    let mut to = BufWriter::new(file);
    if let Err(error) = copy(client, path, &mut to, &mut end).await {
        return Err(if let CliError::Output(error) = error {
            unwritten(part, &error)
        } else {
            error
        });
    }
    let file = to.into_inner().map_err(|error| unwritten(part, error.error()))?;
    match file.sync_all() {
        // A device or a pipe has nothing to sync.
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(unwritten(part, &error)),
        Ok(()) | Err(_) => end.checked(),
    }
}

fn unwritten(path: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("cannot write `{}`: {error}", clean(&path.display().to_string())))
}

async fn copy(
    client: &Client,
    path: &str,
    to: &mut (impl Write + ?Sized),
    end: &mut End,
) -> Result<(), CliError> {
    let mut response = client.open(path).await?;
    loop {
        let piece = response.chunk().await;
        let piece = piece.map_err(|cause| {
            CliError::Call(CallError::Broken { place: client.place().to_owned(), cause })
        })?;
        let Some(piece) = piece else { return Ok(()) };
        to.write_all(&piece)?;
        end.take(&piece);
    }
}

/// The last bytes of a trace.
#[derive(Default)]
struct End(Vec<u8>);

impl End {
    fn take(&mut self, piece: &[u8]) {
        self.0.extend_from_slice(&piece[piece.len().saturating_sub(END_MAX)..]);
        self.0.drain(..self.0.len().saturating_sub(END_MAX));
    }

    /// What the trace has, by its last line.
    fn checked(&self) -> Result<Whole, CliError> {
        let last = self.0.strip_suffix(b"\n").unwrap_or(&self.0);
        let last = last.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        let end: Option<Value> = serde_json::from_slice(last).ok();
        let end = end.as_ref().and_then(|line| line.get("end"));
        let lines = end.and_then(|end| end.get("lines")?.as_u64()).ok_or_else(|| {
            CliError::Failed(
                "the trace was cut off before its end: the service stopped, or could not read its \
                 history; try again"
                    .to_owned(),
            )
        })?;
        let unread = end.and_then(|end| end.get("unread")?.as_u64()).unwrap_or(0);
        match end.and_then(|end| end.get("cut")?.as_str()) {
            Some(cut) => Err(CliError::Failed(format!("the trace is not whole: {}", clean(cut)))),
            None => Ok(Whole { lines, unread }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: a trace counts as whole only where its last line says so.

    #[test]
    fn the_last_line_says_whether_a_trace_is_whole() {
        let end = |pieces: &[&str]| {
            let mut end = End::default();
            pieces.iter().for_each(|piece| end.take(piece.as_bytes()));
            end.checked().map_err(|error| error.to_string())
        };
        let long = "x".repeat(3 * END_MAX);
        let whole = |unread| Ok(Whole { lines: 7, unread });
        assert_eq!(end(&["{\"trace\":{}}\n{\"end\":{\"li", "nes\":7}}\n"]), whole(0));
        assert_eq!(end(&[&long, "\n{\"end\":{\"lines\":7}}\n"]), whole(0));
        // A drover that was killed leaves such a line, and the rest is worth having.
        assert_eq!(end(&["{\"end\":{\"lines\":7,\"unread\":2}}\n"]), whole(2));
        assert!(end(&["{\"agent\":{}}\n"]).unwrap_err().contains("cut off"));
        assert!(end(&[]).unwrap_err().contains("cut off"));
        let cut = end(&["{\"end\":{\"lines\":7,\"cut\":\"the range has more\"}}\n"]);
        assert!(cut.unwrap_err().contains("not whole: the range has more"));
    }

    #[test]
    fn a_range_is_in_the_query_and_nothing_else() {
        assert_eq!(query(&RangeOptions::default(), &[]), "");
        let from = Some("2026-11-28T17:00:00Z".parse().unwrap());
        let range = RangeOptions { from, to: None };
        let query = query(&range, &[("by", "owner")]);
        assert_eq!(query, "from=2026%2D11%2D28T17%3A00%3A00Z&by=owner");
    }
}
