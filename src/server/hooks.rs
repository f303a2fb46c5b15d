//! Webhooks of CI systems. No token of the API is asked for: each is proven by its signature or its
//! secret, and only makes drover look.

use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::ServiceRequest;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use drover_actors::message::HerdCommand;
use drover_api::Problem;
use drover_ci::{Arrival, HookOutcome, HookRefusal};
use drover_model::id::SourceId;

use super::audited;
use super::house::House;
use super::intake::Sender;
use super::peer::{Peer, peer_of};
use super::problem::Rejection;
use super::seat::Seat;
use super::state::State;

/// The largest hook taken, in bytes: the text about a job is some tens of thousands.
pub(super) const HOOK_LIMIT: usize = 1024 * 1024;

#[utoipa::path(
    post, path = "/v1/hooks/{source}", security(()),
    params(("source" = String, Path, description = "its key in `demand`")),
    request_body(
        content = serde_json::Value, content_type = "application/json",
        description = "the system's own, with its headers; only its signature is read"
    ),
    responses(
        (status = 202, description = "the source is looked at"),
        (status = 200, description = "it was heard before, is older than an hour, or names no jobs"),
        (status = 400, body = Problem, description = "it is signed and is no JSON"),
        (status = 401, body = Problem, description = "the signature or secret is missing or wrong"),
        (status = 404, body = Problem, description = "no such source, or it has no `webhook`"),
        (status = 413, body = Problem, description = "too large"),
        (status = 429, body = Problem, description = "too many", headers(
            ("Retry-After" = u64, description = "seconds until the next one is heard")
        )),
    )
)]
pub(super) async fn hear(
    state: web::Data<State>,
    request: HttpRequest,
    source: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let peer = peer_of(&request);
    let source = SourceId::new(&*source);
    let body = body.map_err(|error| super::body::unreadable(&error, HOOK_LIMIT))?;
    let headers = request.headers();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let heard = state.doors.hooks.receive(&source, header, &body, Arrival::now());
    let heard = heard.map_err(|unheard| vain(&state, peer, unheard))?;
    audited::note_asker(&request, &format!("source:{source}"), None);
    if let Some(seat) = request.conn_data::<Arc<Seat>>() {
        seat.know();
    }
    match heard {
        HookOutcome::News => {}
        HookOutcome::Repeated | HookOutcome::Ignored => return Ok(HttpResponse::Ok().finish()),
    }
    let command = |reply| HerdCommand::Wake { source, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(HttpResponse::Accepted().finish())
}

/// Refuses by the head alone what no source takes, what is not signed at all, and what comes too
/// often. A caller who signs is heard while another floods from the same address, as behind a proxy; then with
/// little room for its bodies.
pub(super) fn first(house: &House, request: &ServiceRequest) -> Result<Sender, Rejection> {
    let (peer, now) = (peer_of(request.request()), Instant::now());
    let Some(state) = request.app_data::<web::Data<State>>() else {
        return Err(refused(HookRefusal::UnknownSource));
    };
    let source = SourceId::new(request.match_info().load::<String>().unwrap_or_default());
    let headers = request.headers();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let promising = state.doors.hooks.precheck(&source, header, now);
    promising.map_err(|unheard| vain(house, peer, unheard))?;
    let suspect = house.meter.admits(peer, now).is_err();
    Ok(if suspect { Sender::Suspect } else { Sender::Anybody })
}

/// Counts a hook that is not heard.
fn vain(house: &House, peer: Peer, unheard: HookRefusal) -> Rejection {
    let now = Instant::now();
    match (unheard, house.meter.admits(peer, now)) {
        (HookRefusal::TooMany(_), _)
        | (HookRefusal::UnknownSource | HookRefusal::NotAuthentic, Ok(())) => {
            house.meter.in_vain(peer, now);
            refused(unheard)
        }
        (HookRefusal::UnknownSource | HookRefusal::NotAuthentic, Err(left)) => {
            Rejection::too_many(left)
        }
        // A caller who signs is no stranger.
        (HookRefusal::NotJson, _) => refused(unheard),
    }
}

fn refused(why: HookRefusal) -> Rejection {
    match why {
        HookRefusal::UnknownSource => {
            Rejection::not_found("no source of that name takes webhooks".to_owned())
        }
        HookRefusal::NotAuthentic => Rejection::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "the caller is not known",
            "the signature or secret is missing or wrong: compare the webhook's with `webhook`"
                .to_owned(),
        ),
        HookRefusal::NotJson => Rejection::invalid(
            "the webhook is signed and its body is no JSON: let the CI system send \
             `application/json`",
        ),
        HookRefusal::TooMany(left) => Rejection::too_many(left),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

    use hmac::{Hmac, KeyInit as _, Mac as _};
    use sha2::Sha256;

    use super::super::testing::{HOOK_SECRET, Served};
    use super::HOOK_LIMIT;

    fn signature(body: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(HOOK_SECRET.as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let bytes = mac.finalize().into_bytes();
        format!("sha256={}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    async fn send(served: &Served, source: &str, body: &str, signed: &str, id: &str) -> u16 {
        let url = format!("{}/v1/hooks/{source}", served.base);
        let request = served.http.post(url).body(body.to_owned());
        let request = request.header("x-hub-signature-256", signed);
        let answer = request.header("x-github-delivery", id).send().await.unwrap();
        answer.status().as_u16()
    }

    // Invariant: a hook needs no token, but its signature over every byte of the body.

    #[tokio::test]
    async fn a_hook_is_taken_by_its_signature_and_nobody_elses() {
        let served = Served::default();
        let (body, other) = ("{\"action\": \"queued\"}", "{\"action\":\"queued\"}");
        let signed = signature(body);
        assert_eq!(send(&served, "git", body, &signed, "a").await, 202);
        assert_eq!(send(&served, "git", body, &signed, "a").await, 200, "once");
        assert_eq!(send(&served, "git", other, &signed, "b").await, 401);
        assert_eq!(send(&served, "hub", body, &signed, "c").await, 404);
        for other in ["", "{", "action=queued"] {
            assert_eq!(send(&served, "git", other, &signature(other), "d").await, 400, "{other}");
        }
        served.stop().await;
    }

    #[tokio::test]
    async fn a_hook_may_be_larger_than_other_bodies_but_not_without_end() {
        let served = Served::default();
        for (length, status) in [(super::super::BODY_LIMIT + 1, 202), (HOOK_LIMIT + 1, 413)] {
            let body = format!("\"{}\"", "x".repeat(length - 2));
            let signed = signature(&body);
            assert_eq!(send(&served, "git", &body, &signed, &length.to_string()).await, status);
        }
        served.stop().await;
    }

    #[tokio::test]
    async fn who_floods_unsigned_is_put_off_and_who_signs_from_there_is_heard() {
        let served = Served::default();
        let mut last = 0;
        for n in 0..100 {
            last = send(&served, "git", "x", "sha256=00", &n.to_string()).await;
        }
        assert_eq!(last, 429);
        let again = served.http.post(format!("{}/v1/hooks/git", served.base)).body("x").send();
        let answer = again.await.unwrap();
        let after = answer.headers().get("retry-after").map(|after| after.to_str().unwrap());
        let after: u64 = after.expect("when to call again").parse().unwrap();
        assert!((1..=10).contains(&after), "{after}");
        let text = answer.text().await.unwrap();
        assert!(text.contains(&format!("wait {after} s before the next call")), "{text}");
        assert_eq!(send(&served, "git", "{}", &signature("{}"), "good").await, 202);
        served.stop().await;
    }
}
