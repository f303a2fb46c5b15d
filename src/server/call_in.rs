//! Guests without a guest agent that say where they are. No token of the API is asked for: the
//! guest's own, which it was given for this, is all it has.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::ServiceRequest;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use drover_actors::message::HerdCommand;
use drover_api::{CallIn, CalledIn, Problem};
use drover_model::id::AgentId;

use super::audited;
use super::body::Fields;
use super::house::House;
use super::intake::Sender;
use super::peer::{origin_of, peer_of};
use super::problem::Rejection;
use super::seat::Seat;
use super::state::State;

/// Addresses a guest may say.
const SAID: usize = 16;

/// Who called too often in vain is refused by its address alone.
pub(super) fn first(house: &House, request: &ServiceRequest) -> Result<Sender, Rejection> {
    house.meter.admits(peer_of(request.request()), Instant::now()).map_err(Rejection::too_many)?;
    Ok(Sender::Anybody)
}

#[utoipa::path(
    post, path = "/v1/call-in", request_body = CallIn, security(()),
    responses(
        (status = 200, body = CalledIn, description = "the guest is reached there"),
        (status = 401, body = Problem, description = "nobody's token"),
        (status = 409, body = Problem, description = "its agent waits for no call, or no address fits"),
        (status = 429, body = Problem, description = "too many calls", headers(
            ("Retry-After" = u64, description = "seconds until the next one is heard")
        )),
    )
)]
pub(super) async fn call(
    state: web::Data<State>,
    request: HttpRequest,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<CalledIn>, Rejection> {
    let origin = origin_of(&request);
    let peer = origin.address();
    let (agent, said) =
        whose(&state, body).inspect_err(|_| state.meter.in_vain(origin.peer(), Instant::now()))?;
    audited::note_asker(&request, &format!("agent:{agent}"), None);
    if let Some(seat) = request.conn_data::<Arc<Seat>>() {
        seat.know();
    }
    let command = |reply| HerdCommand::CallIn { agent, peer, said, reply };
    let answer = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(web::Json(CalledIn { address: answer.to_string() }))
}

/// Whose guest calls, and the addresses it says.
fn whose(
    state: &State,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<(AgentId, Vec<IpAddr>), Rejection> {
    let mut fields = Fields::<CallIn>::parse(body)?;
    let token = fields.text("token", 128);
    let mut said = Vec::new();
    for (at, text) in fields.texts("addresses", SAID).unwrap_or_default().iter().enumerate() {
        match text.parse() {
            Ok(address) => said.push(address),
            Err(_) => fields.fault(&format!("addresses[{at}]"), "must be an IP address"),
        }
    }
    if token.is_none() {
        fields.fault("token", "must be given");
    }
    fields.finish()?;
    let agent = token.and_then(|token| (state.doors.call_in)(&token)).ok_or_else(|| {
        let detail = "the token is no guest's of this service".to_owned();
        Rejection::new(StatusCode::UNAUTHORIZED, "unauthorized", "the caller is not known", detail)
    })?;
    Ok((agent, said))
}
