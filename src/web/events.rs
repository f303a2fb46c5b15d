//! The event stream: facts as server-sent events, resumable by `Last-Event-ID`.

use std::time::Duration;

use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;

use super::told::event_out;
use super::{Problem, State};
use crate::view::{EventId, Reader, Told, View};

#[utoipa::path(
    get, path = "/v1/events",
    params(("Last-Event-ID" = Option<String>, Header, description = "go on after this event")),
    responses((
        status = 200, content_type = "text/event-stream", body = String,
        description = "events by kind; `lagged` when some were missed"
    ))
)]
pub(super) async fn stream(
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, Problem> {
    let after = match request.headers().get("Last-Event-ID") {
        None => None,
        Some(value) => Some(read_id(value.to_str().unwrap_or_default())?),
    };
    let reader = state.doors.view.events(after);
    // The first bytes tell the reader that from here on nothing is missed unsaid.
    let opening = stream::once(async { Ok::<_, actix_web::Error>(Bytes::from(": open\n\n")) });
    let events = stream::unfold((state, reader), |(state, mut reader)| async move {
        let bytes = next(&state, &mut reader, state.limits.heartbeat).await?;
        Some((Ok(bytes), (state, reader)))
    });
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("Cache-Control", "no-store"))
        .streaming(futures_util::StreamExt::chain(opening, events)))
}

fn read_id(text: &str) -> Result<EventId, Problem> {
    text.parse().map_err(|_| {
        Problem::invalid("`Last-Event-ID` must be the id of an event of this stream, such as 3-17")
    })
}

async fn next(state: &State, reader: &mut Reader, heartbeat: Duration) -> Option<Bytes> {
    tokio::select! {
        () = state.stopping() => None,
        told = tokio::time::timeout(heartbeat, reader.next()) => match told {
            Ok(told) => Some(Bytes::from(spell(&state.doors.view, &told?))),
            Err(_) => Some(Bytes::from_static(b": still here\n\n")),
        },
    }
}

fn spell(view: &View, told: &Told) -> String {
    match told {
        Told::Event(event) => {
            let (kind, data) = event_out(view, &event.fact);
            format!("id: {}\nevent: {kind}\ndata: {data}\n\n", event.id)
        }
        Told::Lagged { missed } => {
            format!("event: lagged\ndata: {}\n\n", json!({ "missed": missed }))
        }
    }
}
