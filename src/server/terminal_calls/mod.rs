//! Terminals in agents, for people in a browser.
//!
//! drover logs in with its own key and keeps the screen (`terminals`). A reader gets it as server-sent events, with what
//! changed since the last one; keys come by POST. So a terminal needs no upgrade of its connection: it passes standbys
//! and proxies, and a browser that lost its connection reads on.
//!
//! ```text
//! browser ── POST keys, size ──> Terminal ──> SSH ──> the shell of the guest
//!         <── events: screen ── Screen <── pump <──┘
//! ```
//!
//! `pump.rs` carries output, and looks each second whether the owner may still be there.
//!
//! The audit log has who opened a terminal in which agent, from where, for how long, and how many bytes went each
//! way. It never has what was typed or shown, and neither has the log.
//!
//! A terminal is of the member that leads, and ends with its lead.

mod pump;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use drover_actors::message::{HerdCommand, Refusal};
use drover_api::{
    OpenTerminalOut, Problem, TerminalIn, TerminalKeysIn, TerminalOut, TerminalSizeIn, TerminalsOut,
};
use drover_audit::Entry;
use drover_model::id::AgentId;
use drover_model::ports::ShellTarget;
use drover_model::record::Hold;
use drover_model::status::AgentStatus;
use drover_page::TerminalEntry;
use drover_ssh::TerminalSize;
use futures_util::stream;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use crate::auth::Caller;
use crate::body::Fields;
use crate::events::one_of;
use crate::holds;
use crate::pass::Pass;
use crate::peer::origin_of;
use crate::problem::{Rejection, printable};
use crate::share::Share;
use crate::state::State;
use crate::terminals::{IDLE_LIMIT, LIFE_LIMIT, Next, NotTyped, Reader, Right, Terminal};

/// The longest hold.
const LONGEST_HOLD_SECONDS: u64 = 7 * 24 * 60 * 60;
/// How long an agent may take until it is held.
const HOLD_LIMIT: Duration = Duration::from_secs(15);
/// Columns of a screen.
const COLUMNS: std::ops::RangeInclusive<u16> = 20..=300;
/// Rows of a screen.
const ROWS: std::ops::RangeInclusive<u16> = 5..=120;
/// The most bytes that are typed at once.
const KEYS_BYTES: usize = 16 << 10;
/// The most bytes of a body with keys: JSON spells one byte with six.
pub(super) const KEYS_LIMIT: usize = 6 * KEYS_BYTES + 64;
/// The time between two screens that are sent.
const PACE: Duration = Duration::from_millis(40);
/// The same where many lines left the screen.
const SLOW_PACE: Duration = Duration::from_millis(200);
/// Lines that are many.
const MANY_LINES: usize = 50;

/// Opens a terminal in an agent: a shell over SSH. It ends with its shell, after 30 minutes without a key, after 8
/// hours, 60 s after its last reader went, and once its caller has no right to it any more.
#[utoipa::path(
    post, path = "/v1/agents/{id}/terminals", params(("id" = String, Path, description = "the agent")),
    request_body = TerminalIn,
    responses(
        (status = 201, body = TerminalOut),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "a lease or hold of somebody else is on it"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it is free and `holdSeconds` is not given, or it has no login now"),
        (status = 429, body = Problem, description = "too many terminals are open"),
        (status = 502, body = Problem, description = "the agent lets nobody in"),
    )
)]
pub(super) async fn open(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    request: HttpRequest,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<TerminalIn>::parse(body)?;
    sides_in(&mut fields);
    fields.count("holdSeconds", LONGEST_HOLD_SECONDS);
    let TerminalIn { columns, rows, hold_seconds } = fields.finish()?;
    let (state, caller) = (state.into_inner(), caller.into_inner());
    let agent = AgentId::new(&*id);
    // Nothing is held for a terminal that has no place.
    let place = state.terminals.place(&caller.principal)?;
    // What let them in is read before the login, so that a change meanwhile is one.
    let pass = Pass::of(&state, &caller, request.headers());
    let status = enterable(&state, &caller, &agent, hold_seconds).await?;
    let is_held = hold_seconds.is_some() && status.hold_owner.is_some();
    let size = TerminalSize { columns, rows };
    let opened = (state.doors.terminal)(target(&status)?, size).await.map_err(|fault| {
        let (status, title) = (StatusCode::BAD_GATEWAY, "no terminal was opened");
        let shown = printable(agent.as_str());
        let mut text = format!("agent `{shown}` gave no terminal: {fault}");
        if is_held {
            text += &format!("; it stays held: `drover release-hold {shown}` ends that");
        }
        Rejection::new(status, "no-terminal", title, text)
    })?;
    let peer = origin_of(&request).to_string();
    let name = format!("{:032x}", rand::random::<u128>());
    let who = (caller.clone(), pass, peer);
    let terminal = Arc::new(Terminal::new(name, agent.clone(), who, size, opened.input.clone()));
    state.terminals.add(&terminal);
    state.audit.note(Entry::TerminalOpened(terminal.named()));
    state.report_order(&caller, format!("opened a terminal in agent {agent}"));
    actix_web::rt::spawn(pump::pump(Arc::clone(&state), Arc::clone(&terminal), opened, place));
    Ok(HttpResponse::Created().json(TerminalOut {
        id: terminal.id.clone(),
        agent: agent.to_string(),
        idle_seconds: IDLE_LIMIT.as_secs(),
        longest_seconds: LIFE_LIMIT.as_secs(),
    }))
}

/// Lists the terminals that are open: the caller's own, and to an admin all.
#[utoipa::path(get, path = "/v1/terminals", responses((status = 200, body = TerminalsOut)))]
pub(super) async fn list(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
) -> web::Json<TerminalsOut> {
    web::Json(TerminalsOut { terminals: seen(&state, &caller) })
}

/// The open terminals that a caller may know of.
pub(super) fn seen(state: &State, caller: &Caller) -> Vec<OpenTerminalOut> {
    let now = std::time::Instant::now();
    let all = state.terminals.all().into_iter();
    let visible = all.filter(|one| caller.by().all || one.caller.principal == caller.principal);
    visible
        .map(|one| {
            let ages = one.ages(now);
            OpenTerminalOut {
                id: one.id.clone(),
                agent: one.agent.to_string(),
                principal: one.caller.principal.clone(),
                peer: one.peer.clone(),
                open_seconds: ages.opened.as_secs(),
                last_key_seconds: ages.last_key.as_secs(),
            }
        })
        .collect()
}

/// Shows a terminal: its whole screen, then what changes. A new reader takes the place of the one before.
#[utoipa::path(
    get, path = "/v1/terminals/{id}", params(("id" = String, Path, description = "the terminal")),
    responses(
        (
            status = 200, content_type = "text/event-stream", body = drover_api::TerminalScreenOut,
            description = "events `screen`; at the end one event `end` with its `reason`"
        ),
        (status = 404, body = Problem, description = "it has ended, or is somebody else's"),
    )
)]
pub(super) async fn show(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
) -> Result<HttpResponse, Rejection> {
    let terminal = state.terminals.of(&id, &caller.principal)?;
    let place = one_of(&state.streams, &caller.principal)?;
    let watch = Watch {
        state: state.into_inner(),
        reader: Reader::of(terminal),
        soonest: Instant::now(),
        is_over: false,
        _place: place,
    };
    let screens = stream::unfold(watch, |mut watch| async move {
        let bytes = watch.next().await?;
        Some((Ok::<_, actix_web::Error>(bytes), watch))
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("Cache-Control", "no-store"))
        .streaming(screens))
}

/// A reader over HTTP.
struct Watch {
    state: Arc<State>,
    reader: Reader,
    /// When the next screen may be sent.
    soonest: Instant,
    is_over: bool,
    _place: Share<String>,
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        tokio::select! {
            () = self.state.stopping() => return None,
            changed = timeout(self.state.limits.heartbeat, self.reader.changed()) => {
                if changed.is_err() {
                    return Some(Bytes::from_static(b": still here\n\n"));
                }
            }
        }
        // What changes meanwhile is in the same screen.
        sleep_until(self.soonest).await;
        let (next, ended) = self.reader.next();
        let mut text = String::new();
        let ended = match next {
            Next::Screen(screen) => {
                let pace = if screen.above.len() > MANY_LINES { SLOW_PACE } else { PACE };
                self.soonest = Instant::now() + pace;
                let screen = serde_json::to_string(&screen).unwrap_or_default();
                text += &format!("event: screen\ndata: {screen}\n\n");
                ended
            }
            Next::Ended(reason) => Some(reason),
        };
        if let Some(reason) = ended {
            text += &format!("event: end\ndata: {}\n\n", json!({ "reason": reason }));
            self.is_over = true;
        }
        Some(Bytes::from(text))
    }
}

/// Types into a terminal.
#[utoipa::path(
    post, path = "/v1/terminals/{id}/keys", params(("id" = String, Path, description = "the terminal")),
    request_body = TerminalKeysIn,
    responses(
        (status = 204, description = "the agent has them"),
        (status = 400, body = Problem),
        (status = 404, body = Problem, description = "it has ended, or is somebody else's"),
        (status = 429, body = Problem, description = "the agent does not read what was typed before"),
    )
)]
pub(super) async fn keys(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<TerminalKeysIn>::parse_large(body, KEYS_LIMIT)?;
    let text = fields.opaque("text").unwrap_or_default();
    if text.is_empty() || text.len() > KEYS_BYTES {
        fields.fault("text", format!("must be 1 to {KEYS_BYTES} bytes"));
    }
    let TerminalKeysIn { text } = fields.finish()?;
    let terminal = state.terminals.of(&id, &caller.principal)?;
    terminal.type_in(text).await.map_err(not_typed)?;
    Ok(HttpResponse::NoContent().finish())
}

/// Gives a terminal another size.
#[utoipa::path(
    post, path = "/v1/terminals/{id}/size", params(("id" = String, Path, description = "the terminal")),
    request_body = TerminalSizeIn,
    responses(
        (status = 204, description = "it has that size"),
        (status = 400, body = Problem),
        (status = 404, body = Problem, description = "it has ended, or is somebody else's"),
    )
)]
pub(super) async fn size(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<TerminalSizeIn>::parse(body)?;
    sides_in(&mut fields);
    let TerminalSizeIn { columns, rows } = fields.finish()?;
    let terminal = state.terminals.of(&id, &caller.principal)?;
    terminal.resize(TerminalSize { columns, rows }).await.map_err(not_typed)?;
    Ok(HttpResponse::NoContent().finish())
}

/// Closes a terminal: an admin anybody's.
#[utoipa::path(
    delete, path = "/v1/terminals/{id}", params(("id" = String, Path, description = "the terminal")),
    responses((status = 204, description = "it ends"), (status = 404, body = Problem))
)]
pub(super) async fn close(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    Fields::<drover_api::Nothing>::parse(body)?.finish()?;
    let others = state.terminals.of_anybody(&id).filter(|_| caller.by().all);
    let own = state.terminals.of(&id, &caller.principal);
    match (own, others) {
        (Ok(own), _) => own.close("it was closed"),
        (Err(_), Some(other)) => other.close("an admin closed it"),
        (Err(problem), None) => return Err(problem),
    }
    Ok(HttpResponse::NoContent().finish())
}

fn not_typed(why: NotTyped) -> Rejection {
    match why {
        NotTyped::Ended => Rejection::not_found("the terminal has ended"),
        NotTyped::Full => Rejection::too_many(Duration::from_secs(1)),
    }
}

fn sides_in<T: serde::de::DeserializeOwned>(fields: &mut Fields<T>) {
    for (side, range, usual) in [("columns", COLUMNS, 80), ("rows", ROWS, 24)] {
        fields.count_from(side, range, usual);
    }
}

/// The agent, once this caller may enter it; where it is free and they want it, it is held for them first.
async fn enterable(
    state: &State,
    caller: &Caller,
    agent: &AgentId,
    hold_seconds: Option<u64>,
) -> Result<Arc<AgentStatus>, Rejection> {
    let shown = printable(agent.as_str());
    let known = || {
        let unknown =
            || Rejection::not_found(format!("no agent `{shown}`; `drover agents` lists them"));
        state.doors.view.agent(agent).ok_or_else(unknown)
    };
    let refused = |why: Refusal| Rejection::refused(why);
    let status = known()?;
    let seconds = match (pump::of_agent(state, caller, &status), hold_seconds) {
        (Right::Enter, _) => return Ok(status),
        (Right::Hold, Some(seconds)) => seconds,
        (Right::Hold, None) => {
            return Err(refused(Refusal::Conflict(format!(
                "agent `{shown}` is free, and drover may hand it out at any time: give `holdSeconds` to hold it \
                 first; drover destroys it at the end of the hold"
            ))));
        }
        (Right::Forbidden(why), _) => {
            return Err(Rejection::forbidden(format!("of agent `{shown}`: {why}")));
        }
        (Right::Closed(why), _) => {
            let text = format!("agent `{shown}` has no terminal now: {why}");
            return Err(refused(Refusal::Conflict(text)));
        }
    };
    let mut events = state.doors.view.events(None);
    // Nobody has the private half: drover logs in with its own key.
    let (public_key, _) = holds::made(agent.as_str())?;
    let hold = Hold { span_ms: seconds * 1000, public_key, owner: None };
    let (held, by) = (agent.clone(), caller.by());
    let hold = Some(Box::new(hold));
    let command = |reply| HerdCommand::Hold { agent: held, hold, by, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let until_held = async {
        loop {
            let status = known()?;
            if pump::of_agent(state, caller, &status) == Right::Enter {
                return Ok(status);
            }
            if events.next().await.is_none() {
                return Err(Rejection::unknown_outcome());
            }
        }
    };
    timeout(HOLD_LIMIT, until_held).await.unwrap_or_else(|_| {
        let text = format!("agent `{shown}` will be held, and is not yet; open the terminal again");
        Err(refused(Refusal::Conflict(text)))
    })
}

/// What a caller may do at the terminal of an agent, as the page says it.
pub(super) fn entry(state: &State, caller: &Caller, agent: &AgentStatus) -> TerminalEntry {
    match pump::of_agent(state, caller, agent) {
        Right::Enter => TerminalEntry::Open,
        Right::Hold => TerminalEntry::Hold,
        Right::Forbidden(why) | Right::Closed(why) => TerminalEntry::Refused(why.to_owned()),
    }
}

/// Where and how drover logs in to an agent.
fn target(status: &AgentStatus) -> Result<ShellTarget, Rejection> {
    let address = status.address.as_deref().and_then(|address| address.parse().ok());
    match (address, status.way_in.clone()) {
        (Some(address), Some(way)) => Ok(ShellTarget {
            address,
            ssh: way.ssh,
            os: way.os,
            host_keys: status.host_keys.clone(),
        }),
        (_, _) => {
            let text = "no address of the agent is known yet";
            Err(Rejection::refused(Refusal::Conflict(text.to_owned())))
        }
    }
}
