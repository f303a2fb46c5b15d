//! Leases: asking, waiting, renewing, releasing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpRequest, HttpResponse, web};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use causes::chain;
use drover_actors::message::{HerdCommand, Refusal};
use drover_actors::scheduler::describe;
use drover_api::{LeaseIn, LeaseOut, LeasesOut, MachineSize, Problem, RenewIn};
use drover_model::id::LeaseId;
use drover_model::labels::LabelExpression;
use drover_model::phase::LeasePhase;
use drover_model::record::{LeaseAsk, Want};
use drover_shell::user_data::{USER_DATA_MAX, UserDataGuard};
use russh::keys::PublicKey;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::auth::Caller;
use super::body::{Fields, hex};
use super::events::one_of;
use super::house::now;
use super::pass::Pass;
use super::problem::Rejection;
use super::problem::printable;
use super::query::{Keys, Query};
use super::shapes::{self, rfc3339};
use super::state::State;

/// How long a lease lasts when nothing is said, in seconds.
pub const DEFAULT_TTL_SECONDS: u64 = 3600;
/// The longest that a lease may be asked to wait for an agent, in seconds.
pub const LONGEST_QUEUE_SECONDS: u64 = 30 * 24 * 60 * 60;
/// Leases in one answer when nothing is said.
const PAGE: usize = 1000;
/// The most leases in one answer.
const LARGEST_PAGE: usize = 10_000;
/// The longest a request may wait, in seconds.
pub const LONGEST_WAIT_SECONDS: u64 = 300;

/// The most bytes of a request for a lease: all user data fits, however it is escaped.
pub(super) const LEASE_LIMIT: usize = 8 * USER_DATA_MAX;

/// Types of public keys that are installed in guests.
const KEY_TYPES: [&str; 7] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
];

/// How long to wait for a lease.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wait {
    #[serde(default)]
    wait_seconds: u64,
    until: Option<String>,
}

impl Keys for Wait {
    const TAKEN: &'static str =
        "`waitSeconds` (a whole number from 0 to 300) and `until` (`ready` or `ended`) are taken";
}

/// Which leases to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    state: Option<String>,
    principal: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

impl Keys for Which {
    const TAKEN: &'static str = "`state` (`waiting`, `granted`, `ready` or `ended`), `principal`, \
                                `after` and `limit` (a whole number) are taken";
}

#[utoipa::path(
    get, path = "/v1/leases",
    params(
        ("state" = Option<String>, Query, description = "`waiting`, `granted`, `ready` or `ended`"),
        ("principal" = Option<String>, Query, description = "whose, such as `token:ci`"),
        ("after" = Option<String>, Query, description = "those behind this id: `next` of the page before"),
        ("limit" = Option<usize>, Query, description = "how many, at most 10000; 1000 when absent"),
    ),
    responses((status = 200, body = LeasesOut), (status = 400, body = Problem))
)]
pub(super) async fn list(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    Query(which): Query<Which>,
) -> Result<web::Json<LeasesOut>, Rejection> {
    let phase = which.state.as_deref().map(str::parse::<LeasePhase>).transpose();
    let phase = phase.map_err(|unknown| {
        Rejection::invalid(format!(
            "`state` must be one of {}, and is `{}`",
            unknown.known.join(", "),
            printable(&unknown.word)
        ))
    })?;
    let limit = which.limit.unwrap_or(PAGE);
    if limit == 0 || limit > LARGEST_PAGE {
        return Err(Rejection::invalid(format!(
            "`limit` must be 1 to {LARGEST_PAGE}, and is {limit}"
        )));
    }
    let (view, by) = (&state.doors.view, caller.by());
    let mut found = view.leases();
    found.retain(|lease| {
        phase.is_none_or(|phase| phase == lease.state)
            && which.principal.as_ref().is_none_or(|principal| *principal == lease.principal)
            && which.after.as_deref().is_none_or(|after| lease.lease.as_str() > after)
    });
    let more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| more).map(|last| last.lease.to_string());
    let leases = found.iter().map(|lease| shapes::lease(view, lease, &by)).collect();
    Ok(web::Json(LeasesOut { leases, next }))
}

#[utoipa::path(
    post, path = "/v1/leases", request_body = LeaseIn,
    responses(
        (status = 201, body = LeaseOut),
        (status = 400, body = Problem, description = "a field is wrong"),
        (status = 403, body = Problem, description = "the machine is beyond a quota"),
        (status = 409, body = Problem, description = "the idempotencyKey came with another body"),
        (status = 429, body = Problem, description = "as many leases as may be wait or are there"),
        (status = 422, body = Problem, description = "no template fits"),
        (status = 503, body = Problem, description = "outcome unknown, or the service stops"),
    )
)]
pub(super) async fn create(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let lease = (state.doors.mint_lease)();
    let fields = Fields::<LeaseIn>::parse_large(body, LEASE_LIMIT)?;
    let (ask, user_data) = read_ask(fields, &caller, &state, lease)?;
    let asked = ask.clone();
    // Written before the lease is: anyone who knows of the lease finds it. Once it was asked for nobody
    // knows whether that was heard, so that only the lease's end takes it away.
    let kept = match user_data {
        Some(content) => Some(keep(&state, &asked.lease, content).await?),
        None => None,
    };
    let command = |reply| {
        kept.into_iter().for_each(UserDataGuard::keep);
        HerdCommand::Lease { ask: Box::new(ask), reply }
    };
    let answer = state.ask(state.limits.reply, command).await?;
    if asked.user_data && answer.as_ref().ok() != Some(&asked.lease) {
        forget(&state, &asked.lease).await;
    }
    let id = answer.map_err(|refusal| match refusal {
        Refusal::Unknown(text) => Rejection::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "no-template",
            "no template fits",
            text,
        ),
        Refusal::Conflict(_)
        | Refusal::Unavailable(_)
        | Refusal::TooMany(_)
        | Refusal::Forbidden(_) => Rejection::refused(refusal),
    })?;
    let view = &state.doors.view;
    let out = match view.lease(&id) {
        Some(lease) => shapes::lease(view, &lease, &caller.by()),
        None => not_folded_yet(&id, &asked),
    };
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/leases/{id}")))
        .json(out))
}

/// Writes down what a lease brings.
async fn keep(
    state: &State,
    lease: &LeaseId,
    content: Vec<u8>,
) -> Result<UserDataGuard, Rejection> {
    let (store, lease) = (Arc::clone(&state.doors.user_data), lease.clone());
    let kept = web::block(move || store.write(&lease, &content)).await;
    let unavailable = |error: &(dyn std::error::Error + 'static)| {
        let text = format!("nothing was done: the user data cannot be kept: {}", chain(error));
        Rejection::refused(Refusal::Unavailable(text))
    };
    match kept {
        Ok(kept) => kept.map_err(|error| unavailable(&error)),
        Err(error) => Err(unavailable(&error)),
    }
}

/// Removes what a lease would have brought that was not started.
async fn forget(state: &State, lease: &LeaseId) {
    let (store, lease) = (Arc::clone(&state.doors.user_data), lease.clone());
    // Where it cannot be removed that is logged, and the next start does it.
    let _ = web::block(move || store.forget(&lease)).await;
}

/// A lease that the view does not know: new and not folded yet, or over long since.
fn not_folded_yet(id: &LeaseId, asked: &LeaseAsk) -> LeaseOut {
    let fresh = *id == asked.lease;
    LeaseOut {
        id: id.to_string(),
        state: if fresh { LeasePhase::Waiting } else { LeasePhase::Ended },
        agent: None,
        owner: asked.owner.clone(),
        principal: asked.principal.clone(),
        group: asked.group.clone(),
        wants: describe(&asked.want),
        asked_at: Some(rfc3339(asked.asked)),
        expires_at: None,
        ended_at: None,
        detail: String::new(),
        ssh: None,
    }
}

fn read_ask(
    mut fields: Fields<LeaseIn>,
    caller: &Caller,
    state: &State,
    lease: LeaseId,
) -> Result<(LeaseAsk, Option<Vec<u8>>), Rejection> {
    let body_hash = fields.hash();
    let longest = state.limits.longest_lease.as_secs();
    let want = read_want(&mut fields);
    fields.count("ttlSeconds", longest);
    fields.count("maxWaitSeconds", LONGEST_QUEUE_SECONDS);
    fields.text("owner", 255);
    check_public_key_in(&mut fields);
    fields.text("idempotencyKey", 255);
    let user_data = read_user_data(&mut fields);
    fields.counts_in::<MachineSize>("overrides");
    let asked = fields.finish()?;
    let ttl = asked.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS.min(longest));
    let ask = LeaseAsk {
        lease,
        want: want.of_size(asked.overrides.unwrap_or_default().into()),
        principal: caller.principal.clone(),
        owner: asked.owner.unwrap_or_else(|| caller.principal.clone()),
        ttl_ms: ttl.saturating_mul(1000),
        public_key: asked.ssh_public_key.map(|key| key.trim().to_owned()),
        key_hash: asked.idempotency_key.map(|key| key_hash(&caller.principal, &key)),
        body_hash,
        asked: now(),
        source: None,
        whole: false,
        user_data: user_data.is_some(),
        group: caller.group.clone(),
        wait_ms: asked.max_wait_seconds.map(|seconds| seconds.saturating_mul(1000)),
    };
    Ok((ask, user_data))
}

/// One of two, or none.
fn read_user_data(fields: &mut Fields<LeaseIn>) -> Option<Vec<u8>> {
    let text = fields.opaque("userData").map(String::into_bytes);
    let encoded = fields.opaque("userDataBase64");
    if text.is_some() && encoded.is_some() {
        fields.fault("userDataBase64", "cannot be given with `userData`; leave one of them out");
        return None;
    }
    let (field, bytes) = match encoded {
        Some(encoded) => match STANDARD.decode(encoded) {
            Ok(bytes) => ("userDataBase64", bytes),
            Err(_) => {
                fields.fault("userDataBase64", "is no base64 of the standard alphabet");
                return None;
            }
        },
        None => ("userData", text?),
    };
    if bytes.is_empty() || bytes.len() > USER_DATA_MAX {
        let text = format!("must have 1 to {USER_DATA_MAX} bytes, and has {}", bytes.len());
        fields.fault(field, text);
        return None;
    }
    Some(bytes)
}

/// One of three; with faults, something harmless.
fn read_want(fields: &mut Fields<LeaseIn>) -> Want {
    let template = fields.text("template", 255).map(Want::Template);
    let labels = fields.texts("labels", 64).map(|labels| Want::Labels(BTreeSet::from_iter(labels)));
    // Each decision compares the wants of all that wait.
    let expression = fields.text("labelExpression", 1024);
    let expression = expression.and_then(|text| match LabelExpression::parse(&text) {
        Ok(expression) => Some(Want::Expression(expression)),
        Err(fault) => {
            fields.fault("labelExpression", format!("cannot be read: {fault}"));
            None
        }
    });
    let given = [("template", template), ("labels", labels), ("labelExpression", expression)];
    let mut given = given.into_iter().filter_map(|(name, want)| Some((name, want?)));
    let first = given.next();
    match (&first, given.next()) {
        (Some((first, _)), Some((second, _))) => {
            fields.fault(second, format!("cannot be given with `{first}`; leave one of them out"));
        }
        (None, None) if !fields.has_faults() => fields.fault(
            "template",
            "is missing, and so is `labels`; give one, such as \"labels\": [\"linux\"]",
        ),
        _ => {}
    }
    first.map_or(Want::Labels(BTreeSet::new()), |(_, want)| want)
}

/// SHA-256 over principal and key, so that two callers never share a key.
pub(super) fn key_hash(principal: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(principal.as_bytes());
    hash.update([0]);
    hash.update(key.as_bytes());
    hex(&hash.finalize())
}

/// Checks the line of a `.pub` file, with or without its end.
pub(super) fn check_public_key_in<T: DeserializeOwned>(fields: &mut Fields<T>) {
    let key = fields.line("sshPublicKey", 16 * 1024);
    if let Some(Err(fault)) = key.map(|key| check_public_key(&key)) {
        fields.fault("sshPublicKey", fault);
    }
}

/// Checks that a text is one public key line of a type that guests take.
///
/// # Errors
/// What it is instead, to be put behind its name.
pub fn check_public_key(line: &str) -> Result<(), String> {
    if line.contains("PRIVATE KEY") {
        return Err("is a private key; give the public one, the line in the .pub file".into());
    }
    let word = line.split_whitespace().next().unwrap_or_default();
    if !KEY_TYPES.contains(&word) {
        let word = printable(word);
        return Err(format!(
            "must begin with its type, one of {}, and begins with `{word}`",
            KEY_TYPES.join(", ")
        ));
    }
    match PublicKey::from_openssh(line.trim()) {
        Ok(_) => Ok(()),
        Err(fault) => Err(format!("is no public key line ({fault}); copy the whole .pub file")),
    }
}

#[utoipa::path(
    get, path = "/v1/leases/{id}",
    params(
        ("id" = String, Path, description = "the lease"),
        ("waitSeconds" = Option<u64>, Query, description = "wait until it is ready or ended, at most 300"),
        ("until" = Option<String>, Query, description = "`ended`: a lease that is ready is waited for too; `ready` when absent"),
    ),
    responses((status = 200, body = LeaseOut), (status = 404, body = Problem))
)]
pub(super) async fn show(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    request: HttpRequest,
    id: web::Path<String>,
    Query(wait): Query<Wait>,
) -> Result<web::Json<LeaseOut>, Rejection> {
    if wait.wait_seconds > LONGEST_WAIT_SECONDS {
        return Err(Rejection::invalid(format!(
            "`waitSeconds` must be at most {LONGEST_WAIT_SECONDS}, and is {}; ask again after it",
            wait.wait_seconds
        )));
    }
    let until = wait.until.as_deref().map_or(Ok(LeasePhase::Ready), str::parse);
    let lasts = match until {
        Ok(LeasePhase::Ready) => false,
        Ok(LeasePhase::Ended) => true,
        Ok(LeasePhase::Waiting | LeasePhase::Granted) | Err(_) => {
            let other = wait.until.as_deref().unwrap_or_default();
            let text = format!("`until` must be ready or ended, and is `{}`", printable(other));
            return Err(Rejection::invalid(text));
        }
    };
    let view = &state.doors.view;
    let id = LeaseId::new(&*id);
    let pass = Pass::of(&state, &caller, request.headers());
    let deadline = Instant::now() + Duration::from_secs(wait.wait_seconds);
    let _place = match wait.wait_seconds {
        0 => None,
        _ => Some(one_of(&state.waits, &caller.principal)?),
    };
    let settled = |state| match state {
        LeasePhase::Waiting | LeasePhase::Granted => false,
        LeasePhase::Ready => !lasts,
        LeasePhase::Ended => true,
    };
    let seen = tokio::select! {
        seen = view.wait_for_lease(&id, |lease| settled(lease.state), deadline) => seen,
        () = state.stopping() => view.lease(&id),
    };
    // It may have waited for minutes.
    if let Some(why) = pass.fault(&state) {
        return Err(Rejection::unauthorized(why));
    }
    knows(&state)?;
    let lease = seen.ok_or_else(|| no_lease(&id))?;
    Ok(web::Json(shapes::lease(view, &lease, &caller.by())))
}

/// Whether what this drover knows of leases is what holds. Another member may have led since a leader
/// reached its store last: it may have taken leases down, and ended others.
fn knows(state: &State) -> Result<(), Rejection> {
    if (state.doors.leads)() {
        return Ok(());
    }
    Err(Rejection::no_leader(
        "this member cannot reach its store, and another one may lead meanwhile: what this one knows of \
         the lease may be old; repeat the request",
    ))
}

/// The refusal of a command about a lease, where this drover can know that.
fn refused(state: &State, refusal: Refusal) -> Rejection {
    match knows(state) {
        Ok(()) => Rejection::refused(refusal),
        Err(unknown) => unknown,
    }
}

fn no_lease(id: &LeaseId) -> Rejection {
    Rejection::not_found(format!(
        "no lease `{}`; `drover leases` lists them",
        printable(id.as_str())
    ))
}

#[utoipa::path(
    post, path = "/v1/leases/{id}/renew", request_body = RenewIn,
    params(("id" = String, Path, description = "the lease")),
    responses(
        (status = 200, body = LeaseOut), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(super) async fn renew(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<LeaseOut>, Rejection> {
    let mut fields = Fields::<RenewIn>::parse(body)?;
    let seconds = fields.count("ttlSeconds", state.limits.longest_lease.as_secs());
    if seconds.is_none() && !fields.has_faults() {
        fields.fault("ttlSeconds", "is missing; give how long the lease lasts from this moment");
    }
    let RenewIn { ttl_seconds } = fields.finish()?;
    let lease = LeaseId::new(&*id);
    let ttl = Duration::from_secs(ttl_seconds);
    let by = caller.by();
    let command = |reply| HerdCommand::Renew { lease: lease.clone(), ttl, by, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let expires = answer.map_err(|refusal| refused(&state, refusal))?;
    let view = &state.doors.view;
    let status = view.lease(&lease).ok_or_else(|| no_lease(&lease))?;
    let mut out = shapes::lease(view, &status, &caller.by());
    out.expires_at = Some(rfc3339(expires));
    Ok(web::Json(out))
}

#[utoipa::path(
    delete, path = "/v1/leases/{id}", params(("id" = String, Path, description = "the lease")),
    responses((status = 204, description = "it is over"), (status = 403, body = Problem), (status = 404, body = Problem))
)]
pub(super) async fn release(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
) -> Result<HttpResponse, Rejection> {
    let lease = LeaseId::new(&*id);
    let by = caller.by();
    let command = |reply| HerdCommand::Release { lease, by, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    answer.map_err(|refusal| refused(&state, refusal))?;
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
mod tests;
