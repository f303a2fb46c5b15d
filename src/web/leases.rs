//! Leases: asking, waiting, renewing, releasing.

use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, web};
use drover_actors::id::LeaseId;
use drover_actors::labels::LabelExpression;
use drover_actors::message::{HerdCommand, Refusal};
use drover_actors::record::{LeaseAsk, Want};
use drover_actors::time::WallTime;
use russh::keys::PublicKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use utoipa::ToSchema;

use super::body::{Fields, hex};
use super::problem::printable;
use super::shapes::{LeaseOut, LeasesOut, rfc3339};
use super::{Caller, Problem, State};

/// How long a lease lasts when nothing is said, in seconds.
pub const DEFAULT_TTL_SECONDS: u64 = 3600;
/// The longest a request may wait, in seconds.
pub const LONGEST_WAIT_SECONDS: u64 = 300;

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

/// What a lease is asked for with; one of `template`, `labels` and `labelExpression`.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseIn {
    /// A template, `cloud/template` or its bare name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Labels that the template must carry, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// An expression that must hold for the template's labels, as in Jenkins, such as
    /// `linux && (x64 || !slow)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_expression: Option<String>,
    /// How long it lasts from the grant; 3600 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// For whom; the caller when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// A public key that may log in while the lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<String>,
    /// The same caller, key and body answer the same lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// How a lease is made longer.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewIn {
    /// How long it lasts from this moment.
    pub ttl_seconds: u64,
}

/// How long to wait for a lease.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wait {
    #[serde(default)]
    wait_seconds: u64,
}

#[utoipa::path(get, path = "/v1/leases", responses((status = 200, body = LeasesOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<LeasesOut> {
    let view = &state.doors.view;
    let leases = view.leases().iter().map(|lease| LeaseOut::of(view, lease)).collect();
    web::Json(LeasesOut { leases })
}

#[utoipa::path(
    post, path = "/v1/leases", request_body = LeaseIn,
    responses(
        (status = 201, body = LeaseOut),
        (status = 400, body = Problem, description = "a field is wrong"),
        (status = 409, body = Problem, description = "the idempotencyKey came with another body"),
        (status = 422, body = Problem, description = "no template fits"),
        (status = 503, body = Problem, description = "outcome unknown, or the service stops"),
    )
)]
pub(super) async fn create(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Problem> {
    let lease = (state.doors.mint_lease)();
    let ask = Box::new(read_ask(Fields::parse(body)?, &caller, &state, lease)?);
    let asked = (*ask).clone();
    let answer = state.ask(state.limits.reply, |reply| HerdCommand::Lease { ask, reply }).await?;
    let id = answer.map_err(|refusal| match refusal {
        Refusal::Unknown(text) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "no-template", "no template fits", text)
        }
        Refusal::Conflict(_) | Refusal::Unavailable(_) => Problem::refused(refusal),
    })?;
    let view = &state.doors.view;
    let out = match view.lease(&id) {
        Some(lease) => LeaseOut::of(view, &lease),
        None => not_folded_yet(&id, &asked),
    };
    Ok(HttpResponse::Created()
        .insert_header((header::LOCATION, format!("/v1/leases/{id}")))
        .json(out))
}

/// A lease that the view does not know: new and not folded yet, or over long since.
fn not_folded_yet(id: &LeaseId, asked: &LeaseAsk) -> LeaseOut {
    let fresh = *id == asked.lease;
    LeaseOut {
        id: id.to_string(),
        state: if fresh { "waiting" } else { "ended" }.to_owned(),
        agent: None,
        owner: asked.owner.clone(),
        principal: asked.principal.clone(),
        expires_at: None,
        detail: String::new(),
        ssh: None,
    }
}

fn read_ask(
    mut fields: Fields,
    caller: &Caller,
    state: &State,
    lease: LeaseId,
) -> Result<LeaseAsk, Problem> {
    let body_hash = fields.hash();
    let longest = state.limits.longest_lease.as_secs();
    let want = read_want(&mut fields);
    let ttl = fields.count("ttlSeconds", longest).unwrap_or(DEFAULT_TTL_SECONDS.min(longest));
    let owner = fields.text("owner", 255);
    let public_key = fields.text("sshPublicKey", 16 * 1024);
    if let Some(fault) = public_key.as_deref().and_then(|key| check_public_key(key).err()) {
        fields.fault("sshPublicKey", fault);
    }
    let key = fields.text("idempotencyKey", 255);
    for later in ["userData", "overrides"] {
        if fields.take(later).is_some() {
            fields.fault(later, "is not supported yet; put it into the template and leave it out");
        }
    }
    fields.finish()?;
    Ok(LeaseAsk {
        lease,
        want,
        principal: caller.principal.clone(),
        owner: owner.unwrap_or_else(|| caller.principal.clone()),
        ttl_ms: ttl.saturating_mul(1000),
        public_key: public_key.map(|key| key.trim().to_owned()),
        key_hash: key.map(|key| key_hash(&caller.principal, &key)),
        body_hash,
        asked: WallTime(jiff::Timestamp::now().as_millisecond()),
        source: None,
        whole: false,
    })
}

/// One of three; with faults, something harmless.
fn read_want(fields: &mut Fields) -> Want {
    let template = fields.text("template", 255).map(Want::Template);
    let labels = fields.texts("labels", 64).map(|labels| Want::Labels(BTreeSet::from_iter(labels)));
    let expression = fields.text("labelExpression", 4096);
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
fn key_hash(principal: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(principal.as_bytes());
    hash.update([0]);
    hash.update(key.as_bytes());
    hex(&hash.finalize())
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
    ),
    responses((status = 200, body = LeaseOut), (status = 404, body = Problem))
)]
pub(super) async fn show(
    state: web::Data<State>,
    id: web::Path<String>,
    wait: Result<web::Query<Wait>, actix_web::Error>,
) -> Result<web::Json<LeaseOut>, Problem> {
    let wait = wait.map_err(|fault| {
        Problem::invalid(format!("only `waitSeconds` is taken in the query: {fault}"))
    })?;
    if wait.wait_seconds > LONGEST_WAIT_SECONDS {
        return Err(Problem::invalid(format!(
            "`waitSeconds` must be at most {LONGEST_WAIT_SECONDS}, and is {}; ask again after it",
            wait.wait_seconds
        )));
    }
    let view = &state.doors.view;
    let id = LeaseId::new(&*id);
    let deadline = Instant::now() + Duration::from_secs(wait.wait_seconds);
    let settled = |state: &str| state == "ready" || state == "ended";
    let seen = tokio::select! {
        seen = view.wait_for_lease(&id, |lease| settled(&lease.state), deadline) => seen,
        () = state.stopping() => view.lease(&id),
    };
    let lease = seen.ok_or_else(|| no_lease(&id))?;
    Ok(web::Json(LeaseOut::of(view, &lease)))
}

fn no_lease(id: &LeaseId) -> Problem {
    Problem::not_found(format!("no lease `{}`; `drover status` lists them", printable(id.as_str())))
}

#[utoipa::path(
    post, path = "/v1/leases/{id}/renew", request_body = RenewIn,
    params(("id" = String, Path, description = "the lease")),
    responses((status = 200, body = LeaseOut), (status = 404, body = Problem), (status = 409, body = Problem))
)]
pub(super) async fn renew(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<LeaseOut>, Problem> {
    let mut fields = Fields::parse(body)?;
    let seconds = fields.count("ttlSeconds", state.limits.longest_lease.as_secs());
    if seconds.is_none() && !fields.has_faults() {
        fields.fault("ttlSeconds", "is missing; give how long the lease lasts from this moment");
    }
    fields.finish()?;
    let lease = LeaseId::new(&*id);
    let ttl = Duration::from_secs(seconds.unwrap_or(DEFAULT_TTL_SECONDS));
    let wish = |reply| HerdCommand::Renew { lease: lease.clone(), ttl, reply };
    let expires = state.ask(state.limits.reply, wish).await?.map_err(Problem::refused)?;
    let view = &state.doors.view;
    let picture = view.lease(&lease).ok_or_else(|| no_lease(&lease))?;
    let mut out = LeaseOut::of(view, &picture);
    out.expires_at = Some(rfc3339(expires));
    Ok(web::Json(out))
}

#[utoipa::path(
    delete, path = "/v1/leases/{id}", params(("id" = String, Path, description = "the lease")),
    responses((status = 204, description = "it is over"), (status = 404, body = Problem))
)]
pub(super) async fn release(
    state: web::Data<State>,
    id: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    let lease = LeaseId::new(&*id);
    let wish = |reply| HerdCommand::Release { lease, reply };
    state.ask(state.limits.reply, wish).await?.map_err(Problem::refused)?;
    Ok(HttpResponse::NoContent().finish())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ me@here";

    // Invariant: nothing but a public key of a known type reaches a guest.

    #[test]
    fn a_public_key_is_one_line_of_a_known_type() {
        check_public_key(KEY).unwrap();
        for (key, part) in [
            ("-----BEGIN OPENSSH PRIVATE KEY-----", "is a private key"),
            ("ssh-dss AAAAB3NzaC1kc3M=", "begins with `ssh-dss`"),
            ("command=\"id\" ssh-ed25519 AAAA", "begins with `command="),
            ("ssh-ed25519 AAAA", "is no public key line"),
            ("ssh-ed25519", "is no public key line"),
        ] {
            let fault = check_public_key(key).unwrap_err();
            assert!(fault.contains(part), "{key}: {fault}");
        }
    }

    // Invariant: an idempotency key belongs to its principal.

    #[test]
    fn the_same_key_of_two_principals_hashes_differently() {
        assert_eq!(key_hash("uid:1", "k"), key_hash("uid:1", "k"));
        assert_ne!(key_hash("uid:1", "k"), key_hash("uid:2", "k"));
        assert_ne!(key_hash("uid:1", "2k"), key_hash("uid:12", "k"));
    }
}
