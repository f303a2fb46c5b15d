//! The record that each call leaves in the audit log whose method may change something.
//!
//! [`follow`] stands before everything else, so no route and no refusal is without it. On its way a call
//! collects who made it and what for ([`Notes`]); the record is on the disk before the answer is sent. A
//! call that ends without an answer leaves a record without a status: its handler panicked, or its caller
//! hung up on a standby.
//!
//! What a standby forwards the leader records, with the name of the standby.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use drover_api::Role;
use drover_audit::{Audit, Call, Entry, OnFailure};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::house::House;
use super::peer::{Origin, origin_of};

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Characters of an id that a caller gives.
const REQUEST_ID_MAX: usize = 64;
/// How long an answer waits for its record at most.
const RECORD_LIMIT: Duration = Duration::from_secs(2);

/// What is known of a call while it is under way.
#[derive(Debug, Clone, Default)]
struct Notes {
    call: Call,
    /// Whether the leader answered it, and recorded it; or it is part of something that has a record of its
    /// own.
    is_recorded: bool,
}

/// The notes of a request, in its extensions.
#[derive(Clone)]
struct Noted(Rc<RefCell<Notes>>);

/// Follows a call from its first to its last step.
pub(super) async fn follow(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let house = request.app_data::<web::Data<House>>().cloned();
    let Some(house) = house.filter(|_| !request.method().is_safe()) else {
        return next.call(request).await;
    };
    let id = request_id(request.headers());
    let notes = Notes {
        call: Call {
            peer: origin_of(request.request()).to_string(),
            method: request.method().to_string(),
            request: id.clone(),
            ..Call::default()
        },
        is_recorded: false,
    };
    let noted = Noted(Rc::new(RefCell::new(notes)));
    request.extensions_mut().insert(noted.clone());
    let under_way = UnderWay { audit: house.audit.clone(), noted: Some(noted) };
    let answered = next.call(request).await;
    let status = match &answered {
        Ok(response) => response.status(),
        Err(error) => error.as_response_error().status_code(),
    };
    under_way.answered(status.as_u16()).await;
    let mut response = answered?;
    if let Ok(id) = HeaderValue::from_str(&id)
        && !response.headers().contains_key(REQUEST_ID)
    {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    Ok(response)
}

/// The id that the caller gave, where it is short and plain; else one of drover's.
fn request_id(headers: &HeaderMap) -> String {
    let is_plain = |id: &&str| {
        let letters = |one: u8| one.is_ascii_alphanumeric() || b"-_.".contains(&one);
        (1..=REQUEST_ID_MAX).contains(&id.len()) && id.bytes().all(letters)
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_plain);
    given.map_or_else(|| format!("{:016x}", rand::random::<u64>()), str::to_owned)
}

/// A call that has no answer yet.
struct UnderWay {
    audit: Audit,
    noted: Option<Noted>,
}

impl UnderWay {
    async fn answered(mut self, status: u16) {
        let Some(Noted(notes)) = self.noted.take() else { return };
        let Notes { call, is_recorded } = notes.take();
        if is_recorded {
            return;
        }
        recorded(&self.audit, Call { status: Some(status), ..call }).await;
    }
}

/// Waits until a call is in the audit log.
async fn recorded(audit: &Audit, call: Call) {
    if audit.hangs() {
        // An alarm says so; the record is written once the disk works again.
        return audit.note(Entry::Call(call));
    }
    let (done, recorded) = oneshot::channel();
    audit.record(Entry::Call(call), move |written| {
        // Who waited may have given up.
        let _ = done.send(written);
    });
    if timeout(RECORD_LIMIT, recorded).await.is_err() {
        tracing::warn!("a call is answered before its record is in the audit log");
    }
}

/// Records the end of a login at the provider: a browser comes back from there by GET, which is otherwise
/// no change.
pub(super) async fn record_login(
    request: &HttpRequest,
    audit: &Audit,
    call: Call,
    answer: &mut HttpResponse,
) {
    let id = request_id(request.headers());
    let peer = origin_of(request).to_string();
    recorded(audit, Call { peer, request: id.clone(), ..call }).await;
    if let Ok(id) = HeaderValue::from_str(&id) {
        answer.headers_mut().insert(REQUEST_ID, id);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(Noted(notes)) = self.noted.take() {
            self.audit.note(Entry::Call(notes.take().call));
        }
    }
}

fn note(request: &impl HttpMessage, change: impl FnOnce(&mut Notes)) {
    let noted = request.extensions().get::<Noted>().cloned();
    if let Some(Noted(notes)) = noted {
        change(&mut notes.borrow_mut());
    }
}

/// Notes which route takes a call, and what its path names.
pub(super) fn note_route(request: &ServiceRequest) {
    note(request, |notes| {
        notes.call.route = request.match_pattern();
        let named: Vec<&str> = request.match_info().iter().map(|(_, value)| value).collect();
        notes.call.object = match notes.call.route {
            Some(_) => (!named.is_empty()).then(|| named.join("/")),
            None => Some(request.path().to_owned()),
        };
    });
}

/// Notes what a call did, where its method and path do not say it.
pub(super) fn note_done(request: &impl HttpMessage, done: String) {
    note(request, |notes| notes.call.done = Some(done));
}

/// Notes who proved to make a call.
pub(super) fn note_asker(request: &impl HttpMessage, principal: &str, role: Option<Role>) {
    note(request, |notes| {
        notes.call.principal = Some(principal.to_owned());
        notes.call.role = role.map(|role| role.to_string());
    });
}

/// Notes which member forwarded a call, and from where.
pub(super) fn note_member(request: &impl HttpMessage, member: &str, origin: Origin) {
    note(request, |notes| {
        notes.call.member = Some(member.to_owned());
        notes.call.peer = origin.to_string();
    });
}

/// Notes that the log has a call elsewhere: the leader answered it, or it is part of something that the log has as a
/// whole, such as keys of a terminal.
pub(super) fn note_recorded(request: &impl HttpMessage) {
    note(request, |notes| notes.is_recorded = true);
}

/// Whether a call may change something although no record of it may be written.
pub(super) async fn may_go_on(audit: &Audit) -> bool {
    if audit.options().on_failure == OnFailure::GoOn {
        return true;
    }
    if audit.hangs() {
        return false;
    }
    let (done, outcome) = oneshot::channel();
    audit.probe(move |can| {
        // Who waited may have given up.
        let _ = done.send(can);
    });
    matches!(timeout(RECORD_LIMIT, outcome).await, Ok(Ok(true)))
}
