//! Holds for debugging: an agent is kept from everybody else, with a login for anyone who asked.

use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::{HttpResponse, web};
use drover_actors::message::HerdCommand;
use drover_api::{HoldIn, HoldNextOut, HoldOut, Nothing, Problem};
use drover_model::id::AgentId;
use drover_model::record::Hold;
use drover_ssh::PrivateKey;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::ExposeSecret;
use serde::Serialize;

use super::auth::Caller;
use super::body::Fields;
use super::leases::check_public_key_in;
use super::problem::Rejection;
use super::state::State;
use super::templates::named;

/// How long a hold lasts when nothing is said.
const DEFAULT_SECONDS: u64 = 2 * 60 * 60;
/// The longest hold.
const LONGEST_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Holds an agent for debugging: at once when it is free, else after its last lease, or instead of
/// its retirement. It is destroyed afterwards.
#[utoipa::path(
    post, path = "/v1/agents/{id}/hold", params(("id" = String, Path, description = "the agent")),
    request_body = HoldIn,
    responses(
        (status = 202, body = HoldOut, description = "the hold is written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "a lease or hold of somebody else is on it"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the agent goes already"),
    )
)]
pub(super) async fn hold(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let terms = Terms::read(body, &id)?;
    let agent = AgentId::new(&*id);
    let hold = Some(terms.hold());
    let by = caller.by();
    let command = |reply| HerdCommand::Hold { agent, hold, by, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let Terms { seconds, public_key, private_key } = terms;
    let agent = id.into_inner();
    Ok(reported_once(HoldOut { agent, seconds, ssh_public_key: public_key, private_key }))
}

/// Ends a hold: the agent is destroyed, or no longer held once it is free. Safe to repeat.
#[utoipa::path(
    delete, path = "/v1/agents/{id}/hold", params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 202, description = "it is held no longer"),
        (status = 403, body = Problem, description = "a lease or hold of somebody else is on it"),
        (status = 404, body = Problem),
    )
)]
pub(super) async fn release(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    Fields::<Nothing>::parse(body)?.finish()?;
    let agent = AgentId::new(&*id);
    let by = caller.by();
    let command = |reply| HerdCommand::Hold { agent, hold: None, by, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(HttpResponse::Accepted().finish())
}

/// Holds the next agent of a template that fails on its way, once it has a machine; one alone. Said
/// again it takes the place of what was said before.
#[utoipa::path(
    post, path = "/v1/templates/{id}/hold-next", request_body = HoldIn,
    params(("id" = String, Path, description = "the template, its bare name or `cloud%2Ftemplate`")),
    responses(
        (status = 202, body = HoldNextOut, description = "the hold is written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "somebody else holds its next failure"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the bare name is on several clouds"),
    )
)]
pub(super) async fn hold_next(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let terms = Terms::read(body, &id)?;
    let template = request_next(&state, &caller, id.into_inner(), Some(terms.hold())).await?;
    let Terms { seconds, public_key, private_key } = terms;
    Ok(reported_once(HoldNextOut { template, seconds, ssh_public_key: public_key, private_key }))
}

/// Holds no failure of a template; safe to repeat.
#[utoipa::path(
    delete, path = "/v1/templates/{id}/hold-next",
    params(("id" = String, Path, description = "the template, its bare name or `cloud%2Ftemplate`")),
    responses(
        (status = 202, description = "no failure is held"),
        (status = 403, body = Problem, description = "somebody else holds its next failure"),
        (status = 404, body = Problem),
    )
)]
pub(super) async fn hold_none(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    Fields::<Nothing>::parse(body)?.finish()?;
    request_next(&state, &caller, id.into_inner(), None).await?;
    Ok(HttpResponse::Accepted().finish())
}

async fn request_next(
    state: &State,
    caller: &Caller,
    name: String,
    hold: Option<Box<Hold>>,
) -> Result<String, Rejection> {
    let (template, by) = (name.clone(), caller.by());
    let command = |reply| HerdCommand::HoldNext { template, hold, by, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let done = answer.map_err(|refusal| named(state, &name, refusal))?;
    Ok(done.to_string())
}

/// How long a hold lasts, and whom it lets in.
pub(super) struct Terms {
    pub(super) seconds: u64,
    pub(super) public_key: String,
    pub(super) private_key: Option<String>,
}

impl Terms {
    /// Reads them; where the caller gives no key, one is made under this name.
    pub(super) fn read(
        body: Result<web::Bytes, actix_web::Error>,
        name: &str,
    ) -> Result<Self, Rejection> {
        let mut fields = Fields::<HoldIn>::parse(body)?;
        fields.count("seconds", LONGEST_SECONDS);
        check_public_key_in(&mut fields);
        let HoldIn { seconds, ssh_public_key } = fields.finish()?;
        let seconds = seconds.unwrap_or(DEFAULT_SECONDS);
        let (public_key, private_key) = match ssh_public_key {
            Some(key) => (key, None),
            None => made(name)?,
        };
        Ok(Self { seconds, public_key, private_key })
    }

    pub(super) fn hold(&self) -> Box<Hold> {
        let public_key = self.public_key.clone();
        // Whose it is, is written where it is decided.
        Box::new(Hold { span_ms: self.seconds * 1000, public_key, owner: None })
    }
}

/// An answer with a secret that nobody may keep on its way.
pub(super) fn reported_once(out: impl Serialize) -> HttpResponse {
    let mut response = HttpResponse::Accepted().json(out);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A new key pair; the private half goes into the answer and is forgotten here.
pub(super) fn made(name: &str) -> Result<(String, Option<String>), Rejection> {
    let unavailable = |fault: &dyn std::fmt::Display| {
        let text = format!("nothing was done, no key could be made: {fault}");
        Rejection::refused(drover_actors::message::Refusal::Unavailable(text))
    };
    let mut seed = [0; 32];
    SysRng.try_fill_bytes(&mut seed).map_err(|fault| unavailable(&fault))?;
    let comment: String = name.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    let comment = format!("drover-hold-{comment}");
    let key = PrivateKey::from_seed(&seed, &comment);
    let text = key.to_openssh().map_err(|fault| unavailable(&fault))?;
    Ok((key.public_line(&comment), Some(text.expose_secret().to_owned())))
}
