//! The history that drover has seen: as a trace, record by record, and as a report of usage.
//!
//! Its files may have a gigabyte: they are read record by record, by few callers at once, on threads of
//! their own. A trace is sent as it is read.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, X_CONTENT_TYPE_OPTIONS};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use drover_actors::message::Refusal;
use drover_api::{NodeOut, UsageOut, UsageRowOut};
use drover_history::{
    By, FORMAT, Header, Limits, NodeSize, Range, Row, Salt, Tally, Writer, unread_note,
};
use drover_model::status::CloudStatus;
use drover_model::time::WallTime;
use futures_util::stream;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::auth::Caller;
use super::house::now;
use super::nodes;
use super::problem::Rejection;
use super::query::{Keys, Query};
use super::state::{HistoryDoor, HistorySeen, State};

/// How long a trace waits for what nodes have.
const NODES_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of one piece of a trace, and pieces that may wait for a slow caller.
const PIECE_BYTES: usize = 32 << 10;
const PIECES: usize = 8;
/// How long a trace waits for a caller that takes no piece: it holds one of few places.
const PIECE_LIMIT: Duration = Duration::from_secs(60);
/// The range of a report where the caller names none.
const USAGE_DAYS: i64 = 30;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Which range of a trace is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceOf {
    from: Option<String>,
    to: Option<String>,
    #[serde(default)]
    names: bool,
}

impl Keys for TraceOf {
    const TAKEN: &'static str = "`from` and `to` (times such as 2026-11-28T17:00:00Z or dates such as \
                                 2026-11-28) and `names` (true or false) are taken";
}

/// Which report is wanted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageOf {
    pub(super) from: Option<String>,
    pub(super) to: Option<String>,
    pub(super) by: Option<String>,
    format: Option<String>,
}

impl Keys for UsageOf {
    const TAKEN: &'static str = "`from` and `to` (times such as 2026-11-28T17:00:00Z or dates such as \
                                 2026-11-28), `by` (template, source, owner or cloud) and `format` (json \
                                 or csv) are taken";
}

/// A moment as a caller spells it. A date is its first moment in UTC.
fn moment(key: &str, text: &str) -> Result<WallTime, Rejection> {
    let date = text.parse::<Date>().ok().filter(|_| text.len() == 10);
    let date = date.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
    let at = match date {
        Some(date) => Ok(date.timestamp()),
        None => text.parse::<Timestamp>(),
    };
    at.map(|at| WallTime(at.as_millisecond())).map_err(|_| {
        Rejection::invalid(format!(
            "`{key}` must be a time such as 2026-11-28T17:00:00Z, or a date such as 2026-11-28"
        ))
    })
}

/// The range between two moments, each of which may be left out.
fn range(
    from: Option<&str>,
    to: Option<&str>,
    first: impl FnOnce(WallTime) -> WallTime,
) -> Result<Range, Rejection> {
    // What is later has not been seen.
    let end = now();
    let to = to.map(|text| moment("to", text)).transpose()?.map_or(end, |to| to.min(end));
    let from = from.map(|text| moment("from", text)).transpose()?.unwrap_or_else(|| first(to));
    if from >= to {
        return Err(Rejection::invalid("`from` must be before `to`, and in the past"));
    }
    Ok(Range { from, to })
}

fn reader(state: &State) -> Result<OwnedSemaphorePermit, Rejection> {
    Arc::clone(&state.history_readers).try_acquire_owned().map_err(|_| Rejection::busy())
}

fn unread(why: &dyn std::fmt::Display) -> Rejection {
    Rejection::refused(Refusal::Unavailable(format!("the history cannot be read: {why}")))
}

#[utoipa::path(
    get, path = "/v1/usage",
    params(
        ("from" = Option<String>, Query, description = "the first moment (RFC 3339), or a date in UTC; unset: 30 days before `to`"),
        ("to" = Option<String>, Query, description = "the first moment after the range; unset: now"),
        ("by" = Option<String>, Query, description = "`template`, `source`, `owner` or `cloud`; unset: `template`"),
        ("format" = Option<String>, Query, description = "`json` or `csv`; unset: `csv` where `Accept` asks for `text/csv`, else `json`"),
    ),
    responses((
        status = 200, content((UsageOut = "application/json"), (String = "text/csv")),
        description = "what was used in the range"
    ))
)]
pub(super) async fn usage(
    state: web::Data<State>,
    request: HttpRequest,
    caller: web::ReqData<Caller>,
    Query(of): Query<UsageOf>,
) -> Result<HttpResponse, Rejection> {
    let accepts = request.headers().get(ACCEPT).and_then(|kinds| kinds.to_str().ok());
    let is_csv = of.is_csv(accepts)?;
    let out = usage_of(&state, &of, &caller).await?;
    Ok(match is_csv {
        true => csv(&out),
        false => HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(out),
    })
}

impl UsageOf {
    /// Whether CSV is wanted: by the query, else by the kinds that the caller accepts.
    pub(super) fn is_csv(&self, accepts: Option<&str>) -> Result<bool, Rejection> {
        match self.format.as_deref() {
            Some("csv") => Ok(true),
            Some("json") => Ok(false),
            Some(_) => Err(Rejection::invalid("`format` must be json or csv")),
            None => Ok(accepts.is_some_and(|kinds| kinds.contains("text/csv"))),
        }
    }
}

/// A report as a file for spreadsheets (RFC 4180).
pub(super) fn csv(out: &UsageOut) -> HttpResponse {
    let name = format!("attachment; filename=\"usage-by-{}.csv\"", out.by);
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((CONTENT_DISPOSITION, name))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .content_type("text/csv; charset=utf-8; header=present")
        .body(out.csv())
}

/// A report of usage.
pub(super) async fn usage_of(
    state: &State,
    of: &UsageOf,
    caller: &Caller,
) -> Result<UsageOut, Rejection> {
    let by = of.by.as_deref().map_or(Some(By::default()), By::of).ok_or_else(|| {
        let known = By::ALL.map(By::name).join(", ");
        Rejection::invalid(format!("`by` must be one of {known}"))
    })?;
    let before = |to: WallTime| WallTime(to.0.saturating_sub(USAGE_DAYS * DAY_MS));
    let range = range(of.from.as_deref(), of.to.as_deref(), before)?;
    let (place, door, who) = (reader(state)?, state.doors.history.clone(), caller.by());
    let read = web::block(move || {
        let _place = place;
        let prices = (door.prices)();
        let list = prices.as_ref().map(|(list, _)| list.clone());
        let mut tally = Tally::new(range, by, list).seen_by(who);
        let seen = (door.read)(range, &mut |line| {
            tally.take(&line);
            ControlFlow::Continue(())
        })?;
        Ok::<_, io::Error>((seen, tally.finish(), prices))
    });
    let read = read.await.map_err(|error| unread(&error))?;
    let (seen, (rows, total), prices) = read.map_err(|error| unread(&error))?;
    Ok(UsageOut {
        from: spelled(range.from),
        to: spelled(range.to),
        by: by.name().to_owned(),
        currency: prices.map(|(_, currency)| currency).filter(|name| !name.is_empty()),
        rows: rows.into_iter().map(shown).collect(),
        notes: notes(range, seen, &total),
        total: shown(total),
    })
}

/// A moment to the millisecond, in UTC.
fn spelled(at: WallTime) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.rfc3339(), |at| at.to_string())
}

/// What a reader must know of what is missing.
fn notes(range: Range, seen: HistorySeen, total: &Row) -> Vec<String> {
    let mut notes = gaps(range, seen);
    if total.unsized_hours > 0.0 {
        notes.push(format!(
            "the size of some machines is not known: core-hours and GiB-hours lack {:.1} hours of them",
            total.unsized_hours
        ));
    }
    notes
}

fn gaps(range: Range, seen: HistorySeen) -> Vec<String> {
    let mut notes = Vec::new();
    match seen.since {
        None => {
            notes.push("drover has no history: `service.history` is off, or it just began".into())
        }
        Some(since) if since > range.from => {
            notes.push(format!("the history begins at {}", since.rfc3339()));
        }
        Some(_) => {}
    }
    notes.extend(unread_note(seen.unread));
    if seen.left_out > 0 {
        notes.push(format!(
            "facts that came faster than the history takes them since the service started: {}",
            seen.left_out
        ));
    }
    notes
}

fn shown(row: Row) -> UsageRowOut {
    // A millionth of an hour is 4 ms.
    let rounded = |figure: f64| (figure * 1e6).round() / 1e6;
    #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^52 ms")]
    let seconds = |ms: u64| ms as f64 / 1000.0;
    UsageRowOut {
        name: row.name,
        agents: row.agents,
        vm_hours: rounded(row.vm_hours),
        core_hours: rounded(row.core_hours),
        gib_hours: rounded(row.gib_hours),
        leases: row.leases,
        jobs: row.jobs,
        wait_p50_seconds: row.wait_p50_ms.map(seconds),
        wait_p95_seconds: row.wait_p95_ms.map(seconds),
        failures: row.failures,
        unsized_hours: rounded(row.unsized_hours),
        price: row.price.map(rounded),
    }
}

#[utoipa::path(
    get, path = "/v1/trace",
    params(
        ("from" = Option<String>, Query, description = "the first moment (RFC 3339), or a date in UTC; unset: all that is kept"),
        ("to" = Option<String>, Query, description = "the first moment after the range; unset: now"),
        ("names" = Option<bool>, Query, description = "names of owners and jobs as they are; unset: hashed"),
    ),
    responses((
        status = 200, content_type = "text/plain", body = String,
        description = "a header, a line for each record, and an end: a trace without that line was cut off"
    ))
)]
pub(super) async fn trace(
    state: web::Data<State>,
    Query(of): Query<TraceOf>,
) -> Result<HttpResponse, Rejection> {
    let place = reader(&state)?;
    let door = state.doors.history.clone();
    let all = range(of.from.as_deref(), of.to.as_deref(), |_| WallTime(0))?;
    let names = of.names;
    let salt = Salt::new(rand::random());
    let nodes = nodes_of(&state).await;
    let (pieces, received) = mpsc::channel(PIECES);
    // It ends with the trace, or once nobody takes the pieces.
    drop(actix_web::rt::task::spawn_blocking(move || {
        let _place = place;
        if let Err(error) = send(&door, (all, nodes), (!names).then_some(&salt), pieces) {
            tracing::debug!(%error, "a trace was cut off");
        }
    }));
    let body = stream::unfold(received, |mut received| async move {
        let piece: Bytes = received.recv().await?;
        Some((Ok::<_, actix_web::Error>(piece), received))
    });
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .insert_header((CACHE_CONTROL, "no-store"))
        .streaming(body))
}

/// What the nodes of all clusters have for agents, or why that is not known.
async fn nodes_of(state: &web::Data<State>) -> Result<Vec<NodeSize>, String> {
    let ask = async { Ok(nodes::list(state.clone()).await?.into_inner()) };
    let out = match timeout(NODES_LIMIT, state.looks.nodes.look("", ask)).await {
        Ok(Ok(out)) => out,
        Ok(Err(refused)) => return Err(refused.document.detail),
        Err(_) => {
            return Err(format!("the clusters did not answer within {} s", NODES_LIMIT.as_secs()));
        }
    };
    let clouds = state.doors.view.clouds();
    let sizes = out.nodes.into_iter().filter_map(|NodeOut { cluster, node, room, .. }| {
        let is_of = |cloud: &&CloudStatus| {
            cloud.cluster.as_ref().is_some_and(|own| own.as_str() == cluster)
        };
        let (cloud, room) = (clouds.iter().find(is_of)?.cloud.to_string(), room?);
        let memory_mib = room.memory_mb.saturating_sub(room.others_mb);
        Some(NodeSize { cloud, node, cores: whole(room.cpus), memory_mib })
    });
    let sizes: Vec<NodeSize> = sizes.filter(|one| one.cores > 0 && one.memory_mib > 0).collect();
    if sizes.is_empty() { Err("no cluster shows them".to_owned()) } else { Ok(sizes) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a node has some hundred threads"
)]
fn whole(threads: f64) -> u32 {
    threads.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// Writes a trace in pieces. It begins with the history at the earliest: what replays it begins there too.
fn send(
    door: &HistoryDoor,
    (range, nodes): (Range, Result<Vec<NodeSize>, String>),
    salt: Option<&Salt>,
    pieces: mpsc::Sender<Bytes>,
) -> io::Result<()> {
    // A look at the first record alone says since when there are any.
    let seen = (door.read)(range, &mut |_| ControlFlow::Break(()))?;
    let from = range.from.max(seen.since.unwrap_or(range.to)).min(range.to);
    // Who named no beginning misses nothing before it.
    let asked = if range.from == WallTime(0) { from } else { range.from };
    let mut left_out = gaps(Range { from: asked, ..range }, seen);
    let range = Range { from, ..range };
    if salt.is_some() {
        left_out.push("names of owners, groups and jobs: they are hashed".to_owned());
    }
    let nodes = nodes.unwrap_or_else(|why| {
        left_out.push(format!("what nodes have: {why}"));
        Vec::new()
    });
    let header = Header {
        format: FORMAT,
        drover: env!("CARGO_PKG_VERSION").to_owned(),
        from: range.from,
        to: range.to,
        names: salt.is_none(),
        left_out,
        nodes,
    };
    let to = Pieces::new(pieces, PIECE_LIMIT);
    let mut writer = Writer::begin(to, header)?;
    let (mut count, most) = (0, Limits::default().lines);
    let (mut failed, mut cut) = (None, None);
    let seen = (door.read)(range, &mut |line| {
        if count >= most {
            cut = Some(format!("the range has more than {most} records; export a shorter one"));
            return ControlFlow::Break(());
        }
        count += 1;
        let line = match salt {
            Some(salt) => salt.without_names(line),
            None => line,
        };
        match writer.put(&line) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed.map_or(Ok(()), Err)?;
    // The look at the first record did not come to the lines that cannot be read.
    writer.finish(cut, seen.unread).map(drop)
}

/// Collects what is written, and gives it away piece by piece; waits for a slow caller, within a limit for each.
struct Pieces {
    buffer: Vec<u8>,
    to: mpsc::Sender<Bytes>,
    limit: Duration,
}

impl Pieces {
    fn new(to: mpsc::Sender<Bytes>, limit: Duration) -> Self {
        Self { buffer: Vec::with_capacity(PIECE_BYTES), to, limit }
    }
}

impl io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.buffer);
        let sent = async { timeout(self.limit, self.to.send(piece.into())).await };
        match Handle::current().block_on(sent) {
            Ok(sent) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests;
