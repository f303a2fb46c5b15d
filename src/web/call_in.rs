//! Guests without a guest agent that say where they are. No token of the API is asked for: the
//! guest's own, which it was given for this, is all it has.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, web};
use drover_actors::id::AgentId;
use drover_actors::message::HerdCommand;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Fields;
use super::{Problem, State};

/// Calls of one address that may be in vain within [`WINDOW`]; then it is not heard for a while.
const CALLS: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// Callers that are counted; with more of them everybody is counted anew.
const CALLERS: usize = 10_000;
/// Addresses a guest may say.
const SAID: usize = 16;

/// A guest's call.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CallIn {
    /// What the guest was given as its serial number (`/sys/class/dmi/id/product_serial`).
    pub token: String,
    /// Its addresses; needed only where it does not call from one that lies in `guestNetworks`.
    pub addresses: Option<Vec<String>>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalledIn {
    /// The address that counts.
    pub address: String,
}

/// Counts calls in vain, so that nobody can try tokens at full speed. Many guests may call by one
/// proxy: calls that are somebody's do not count.
#[derive(Default)]
pub(super) struct Meter(Mutex<BTreeMap<IpAddr, (Instant, u32)>>);

impl Meter {
    /// Whether this caller is heard; the error is how long it is not.
    pub(super) fn admits(&self, caller: IpAddr, now: Instant) -> Result<(), Duration> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((since, count)) = calls.get(&caller) else { return Ok(()) };
        let left = WINDOW.saturating_sub(now.saturating_duration_since(*since));
        if *count < CALLS || left.is_zero() { Ok(()) } else { Err(left) }
    }

    /// A call was nobody's.
    pub(super) fn in_vain(&self, caller: IpAddr, now: Instant) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= CALLERS && !calls.contains_key(&caller) {
            calls.clear();
        }
        let (since, count) = calls.entry(caller).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }
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
) -> Result<web::Json<CalledIn>, Problem> {
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    if let Some(peer) = peer {
        state.meter.admits(peer, Instant::now()).map_err(Problem::too_many)?;
    }
    let (agent, said) = whose(&state, body).inspect_err(|_| {
        if let Some(peer) = peer {
            state.meter.in_vain(peer, Instant::now());
        }
    })?;
    let wish = |reply| HerdCommand::CallIn { agent, peer, said, reply };
    let answer = state.ask(state.limits.reply, wish).await?.map_err(Problem::refused)?;
    Ok(web::Json(CalledIn { address: answer.to_string() }))
}

/// Whose guest calls, and the addresses it says.
fn whose(
    state: &State,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<(AgentId, Vec<IpAddr>), Problem> {
    let mut fields = Fields::parse(body)?;
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
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", "the caller is not known", detail)
    })?;
    Ok((agent, said))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: whoever calls too often is not heard for a while; others are.

    #[test]
    fn a_caller_has_so_many_calls_in_vain_and_all_callers_together_have_an_end() {
        let (meter, start) = (Meter::default(), Instant::now());
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..CALLS {
            assert_eq!(meter.admits(one, start), Ok(()));
            meter.in_vain(one, start);
        }
        let later = Duration::from_millis(3_400);
        assert_eq!(meter.admits(one, start + later), Err(WINDOW - later));
        assert_eq!(meter.admits(other, start), Ok(()));
        assert_eq!(meter.admits(one, start + WINDOW), Ok(()));
        for n in 0..u32::try_from(CALLERS + 5).unwrap_or(0) {
            meter.in_vain(IpAddr::from(n.to_be_bytes()), start);
        }
        assert!(meter.0.lock().unwrap_or_else(PoisonError::into_inner).len() <= CALLERS);
    }
}
