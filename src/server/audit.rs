//! The records of the audit log, for admins.

use actix_web::web;
use drover_api::{AuditOut, AuditRecordOut};
use drover_audit::{Call, Cause, Entry, Record, Sync, Terminal, Wanted, find};
use jiff::Timestamp;
use serde::Deserialize;

use super::problem::Rejection;
use super::query::{Keys, Query};
use super::state::State;

/// Records that are answered where the caller names no number.
const LIMIT: usize = 200;
/// Records that are answered at most.
const LIMIT_MAX: usize = 10_000;

/// Which records are wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Of {
    since: Option<String>,
    by: Option<String>,
    about: Option<String>,
    after: Option<u64>,
    limit: Option<usize>,
}

impl Keys for Of {
    const TAKEN: &'static str = "`since` (a time such as 2026-11-28T17:00:00Z), `by` (a principal), `about` \
                                 (a name in a path), `after` (the number of a record) and `limit` (1 to \
                                 10000) are taken";
}

#[utoipa::path(
    get, path = "/v1/audit",
    params(
        ("since" = Option<String>, Query, description = "only records of this time (RFC 3339) or later"),
        ("by" = Option<String>, Query, description = "only records of this principal"),
        ("about" = Option<String>, Query, description = "only calls whose path has this name"),
        ("after" = Option<u64>, Query, description = "only records behind the one with this number"),
        ("limit" = Option<usize>, Query, description = "how many at most, the newest of all; unset: 200"),
    ),
    responses((status = 200, body = AuditOut))
)]
pub(super) async fn list(
    state: web::Data<State>,
    Query(of): Query<Of>,
) -> Result<web::Json<AuditOut>, Rejection> {
    found(&state, of).await.map(web::Json)
}

/// The newest records, so many at most.
pub(super) async fn newest(state: &State, limit: usize) -> Result<AuditOut, Rejection> {
    found(state, Of { since: None, by: None, about: None, after: None, limit: Some(limit) }).await
}

async fn found(state: &State, of: Of) -> Result<AuditOut, Rejection> {
    let Of { since, by, about, after, limit } = of;
    let limit = limit.unwrap_or(LIMIT);
    let since: Option<Timestamp> = since
        .map(|text| text.parse())
        .transpose()
        .map_err(|_| Rejection::invalid("`since` must be a time such as 2026-11-28T17:00:00Z"))?;
    if !(1..=LIMIT_MAX).contains(&limit) {
        let text = format!("`limit` must be from 1 to {LIMIT_MAX}, and is {limit}");
        return Err(Rejection::invalid(text));
    }
    let folder = state.audit.folder().to_owned();
    let wanted = Wanted { since, by, about, after, limit };
    let unread = |why: String| {
        let text = format!("the audit log cannot be read: {why}");
        Rejection::refused(drover_actors::message::Refusal::Unavailable(text))
    };
    // A thread that reads from a disk that hangs would hang too.
    if let Some(trouble) = state.doors.view.audit_trouble().filter(|_| state.audit.hangs()) {
        return Err(unread(trouble.why));
    }
    let found = web::block(move || find(&folder, &wanted)).await;
    let found = found.map_err(|error| unread(error.to_string()))?;
    let found = found.map_err(|error| unread(error.to_string()))?;
    let trouble = state.doors.view.audit_trouble().map(|trouble| trouble.why);
    Ok(AuditOut { records: found.into_iter().map(shown).collect(), trouble })
}

fn shown(Record { seq, at, prev, entry, hash }: Record) -> AuditRecordOut {
    let (kind, detail) = (kind(&entry).to_owned(), detail(&entry));
    let principal = entry.principal().map(str::to_owned);
    let call = match entry {
        Entry::Call(call) => call,
        Entry::TerminalOpened(terminal) | Entry::TerminalEnded { terminal, .. } => {
            let Terminal { agent, role, peer, .. } = terminal;
            Call { role: Some(role), peer, object: Some(agent), ..Call::default() }
        }
        Entry::ConfigurationApplied { .. }
        | Entry::ConfigurationRefused { .. }
        | Entry::Signal { .. }
        | Entry::Sync(_)
        | Entry::Started { .. }
        | Entry::Stopped
        | Entry::TornLine { .. }
        | Entry::Removed { .. }
        | Entry::Lost { .. }
        | Entry::LeftOut { .. } => Call::default(),
    };
    let Call { role, peer, member, method, route, object, status, request, .. } = call;
    let given = |text: String| (!text.is_empty()).then_some(text);
    AuditRecordOut {
        seq,
        at: at.to_string(),
        kind,
        principal,
        role,
        peer: given(peer),
        member,
        method: given(method),
        route,
        object,
        status,
        request: given(request),
        detail,
        prev,
        hash,
    }
}

fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::Call(_) => "call",
        Entry::TerminalOpened(_) => "terminalOpened",
        Entry::TerminalEnded { .. } => "terminalEnded",
        Entry::ConfigurationApplied { .. } => "configurationApplied",
        Entry::ConfigurationRefused { .. } => "configurationRefused",
        Entry::Signal { .. } => "signal",
        Entry::Sync(_) => "sync",
        Entry::Started { .. } => "started",
        Entry::Stopped => "stopped",
        Entry::TornLine { .. } => "tornLine",
        Entry::Removed { .. } => "removed",
        Entry::Lost { .. } => "lost",
        Entry::LeftOut { .. } => "leftOut",
    }
}

/// What a record says that is no call, in words.
fn detail(entry: &Entry) -> Option<String> {
    let text = match entry {
        Entry::Call(call) => return call.done.clone(),
        Entry::TerminalOpened(Terminal { id, agent, .. }) => {
            format!("opened terminal {id} in agent {agent}")
        }
        Entry::TerminalEnded { terminal, seconds, typed_bytes, shown_bytes, why } => {
            let Terminal { id, agent, .. } = terminal;
            format!(
                "terminal {id} in agent {agent} ended after {seconds} s: {why}; {typed_bytes} bytes were \
                 typed, {shown_bytes} bytes were shown"
            )
        }
        Entry::ConfigurationApplied { cause, digest, generation } => {
            let cause = because(*cause);
            format!("configuration {generation} came into force {cause}; SHA-256 {digest}")
        }
        Entry::ConfigurationRefused { cause, generation } => {
            let cause = because(*cause);
            format!("a configuration was refused {cause}, and {generation} stays in force")
        }
        Entry::Signal { name } => format!("the process got {name}"),
        Entry::Sync(Sync { commit, failed }) => {
            let commit =
                commit.as_deref().map_or("no commit".to_owned(), |it| format!("commit {it}"));
            match failed {
                true => format!("a sync with git failed at {commit}"),
                false => format!("a sync with git brought {commit} into force"),
            }
        }
        Entry::Started { version, member } => match member {
            Some(member) => format!("member {member} with drover {version} began to serve"),
            None => format!("drover {version} began to serve"),
        },
        Entry::Stopped => "the service stopped".to_owned(),
        Entry::TornLine { bytes, .. } => {
            format!(
                "the write of a record broke off: {bytes} bytes before this one are a piece of it"
            )
        }
        Entry::Removed { file, last_seq, .. } => {
            format!(
                "drover removed {file}, which ended with record {last_seq}: the files were full"
            )
        }
        Entry::Lost { records, why } => format!("{records} records could not be written: {why}"),
        Entry::LeftOut { calls, .. } => {
            format!(
                "{calls} calls of this caller that changed nothing are not recorded: there were too many"
            )
        }
    };
    Some(text)
}

fn because(cause: Cause) -> &'static str {
    match cause {
        Cause::Start => "at the start",
        Cause::Files => "because its files changed",
        Cause::Request => "on request",
        Cause::Signal => "after a signal",
        Cause::Members => "once every member had it",
    }
}
