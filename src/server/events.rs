//! The event stream: facts as server-sent events, resumable by `Last-Event-ID`.

use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use drover_api::EventKind;
use drover_model::tenant::By;
use futures_util::stream;
use serde_json::json;

use super::auth::Caller;
use super::pass::Pass;
use super::problem::Rejection;
use super::reported::event_out;
use super::share::{Share, Shared};
use super::state::State;
use crate::view::{EventId, Reader, Reported, View};

#[utoipa::path(
    get, path = "/v1/events",
    params(("Last-Event-ID" = Option<String>, Header, description = "go on after this event; 0: from the oldest that is kept")),
    responses((
        status = 200, content_type = "text/event-stream", body = String,
        description = "events by kind; `lagged` when some were missed, with `after` and `before` where another member of the store led then"
    ))
)]
pub(super) async fn stream(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    request: HttpRequest,
) -> Result<HttpResponse, Rejection> {
    let after = match request.headers().get("Last-Event-ID") {
        None => None,
        Some(value) => Some(read_id(value.to_str().unwrap_or_default())?),
    };
    let place = one_of(&state.streams, &caller.principal)?;
    let reader = state.doors.view.events(after);
    // The first bytes show the reader that from here on nothing is missed unsaid.
    // A reader that is cut off before the first event goes on from this id.
    let place_of_new =
        after.is_none().then(|| format!("id: {}\n\n", state.doors.view.last_event()));
    let opening = format!(": open\n\n{}", place_of_new.unwrap_or_default());
    let opening = stream::once(async { Ok::<_, actix_web::Error>(Bytes::from(opening)) });
    let pass = Pass::of(&state, &caller, request.headers());
    let held = (state, reader, place, pass, false);
    let events =
        stream::unfold(held, |(state, mut reader, place, mut pass, is_up_to_date)| async move {
            // All that happened before is sent.
            let is_new = !is_up_to_date && !reader.has_past();
            let bytes = match is_new {
                true => Bytes::from_static(b": up to date\n\n"),
                false => next(&state, &mut reader, &mut pass).await?,
            };
            Some((Ok(bytes), (state, reader, place, pass, is_up_to_date || is_new)))
        });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("Cache-Control", "no-store"))
        .streaming(futures_util::StreamExt::chain(opening, events)))
}

/// A place among what stays open for long; it is free again when it is dropped.
pub(super) fn one_of(
    shared: &Arc<Shared<String>>,
    principal: &str,
) -> Result<Share<String>, Rejection> {
    let mut place = shared.share(principal.to_owned());
    place.take(1, usize::MAX).map_err(|_| Rejection::too_many(Duration::from_secs(5)))?;
    Ok(place)
}

fn read_id(text: &str) -> Result<EventId, Rejection> {
    text.parse().map_err(|_| {
        Rejection::invalid(
            "`Last-Event-ID` must be the id of an event of this stream, such as 3-17, or 0 for all that \
             are kept",
        )
    })
}

/// The next piece; none at the end of the service, and once the caller may see less than at the beginning: who comes
/// again gets what they may see now.
async fn next(state: &State, reader: &mut Reader, pass: &mut Pass) -> Option<Bytes> {
    let reported = tokio::select! {
        () = state.stopping() => return None,
        reported = tokio::time::timeout(state.limits.heartbeat, reader.next()) => reported,
    };
    if !pass.counts(state) {
        return None;
    }
    Some(match reported {
        Ok(reported) => Bytes::from(spell(&state.doors.view, &reported?, &pass.caller().by())),
        Err(_) => Bytes::from_static(b": still here\n\n"),
    })
}

fn spell(view: &View, reported: &Reported, by: &By) -> String {
    match reported {
        Reported::Event(event) => {
            let (kind, data) = event_out(view, &event.fact, by);
            format!("id: {}\nevent: {}\ndata: {data}\n\n", event.id, kind.name())
        }
        Reported::Lagged { missed } => {
            let kind = EventKind::Lagged.name();
            format!("event: {kind}\ndata: {}\n\n", json!({ "missed": missed }))
        }
        Reported::Elsewhere { after, before } => {
            let kind = EventKind::Lagged.name();
            let (after, before) = (after.to_string(), before.to_string());
            let data = json!({ "missed": null, "after": after, "before": before });
            format!("event: {kind}\ndata: {data}\n\n")
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::time::Duration;

    use super::super::auth::Auth;
    use super::super::house::STREAMS;
    use super::super::testing::Served;

    // Invariant: nobody has so many streams open that others have none.

    #[tokio::test]
    async fn a_principal_has_so_many_streams_and_others_have_their_own() {
        let served = Served::default();
        let open = async |role: &str| {
            let request = served.http.get(format!("{}/v1/events", served.base));
            request.bearer_auth(format!("{role}-token")).send().await.unwrap()
        };
        let mut streams = Vec::new();
        for _ in 0..STREAMS.1 {
            streams.push(open("viewer").await);
        }
        assert!(streams.iter().all(|stream| stream.status() == 200));
        let refused = open("viewer").await;
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()["retry-after"], "5");
        assert_eq!(open("operator").await.status(), 200);
        drop(streams);
        served.stop().await;
    }

    // Invariant: a stream shows nobody what they may not see any more.

    #[tokio::test]
    async fn a_stream_ends_once_its_caller_may_do_less() {
        let served = Served::default();
        let request = served.http.get(format!("{}/v1/events", served.base));
        let mut stream = request.bearer_auth("admin-token").send().await.unwrap();
        served.running.replace_auth(Auth::default());
        let end = async { while stream.chunk().await.unwrap().is_some() {} };
        tokio::time::timeout(Duration::from_secs(20), end).await.unwrap();
        served.stop().await;
    }
}
