//! One connection among the others: its line, its place in the crowd, and the requests that it brings.
//!
//! A request is noted in both before anything else sees it ([`follow`]), and until its answer is
//! written. The place is free again with the last of the connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::Next;
use actix_web::web::Bytes;

use super::crowd::{Crowd, Full, Place};
use super::line::{Line, Phase};
use super::peer::Peer;
use super::problem::Rejection;

/// What is known of a connection; shared by its stream and its requests.
pub(super) struct Seat {
    pub line: Arc<Line>,
    place: Place,
}

impl Seat {
    /// Takes a place in the crowd for a new connection.
    pub(super) fn take(crowd: &Arc<Crowd>, peer: Peer, known: bool) -> Arc<Self> {
        let line = Arc::new(Line::default());
        let place = crowd.enter(peer, known, &line);
        Arc::new(Self { line, place })
    }

    /// Its caller was let in.
    pub(super) fn know(&self) {
        self.place.know();
    }

    /// A whole body came.
    pub(super) fn has_body(&self) -> Result<(), Rejection> {
        self.line.go(Phase::Work);
        self.place.work().map_err(|Full| Rejection::crowded())
    }
}

/// Notes what each request's connection owes, before all but the audit log (`audited.rs`).
pub(super) async fn follow(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let Some(seat) = request.conn_data::<Arc<Seat>>().cloned() else {
        return next.call(request).await;
    };
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    let turn = Turn { seat: Arc::clone(&seat) };
    let wants_head = *request.method() == Method::HEAD;
    if length || headers.contains_key(header::TRANSFER_ENCODING) {
        seat.line.go(Phase::Body);
    } else if let Err(problem) = seat.has_body() {
        return Ok(request.error_response(problem));
    }
    let response = next.call(request).await?;
    Ok(response.map_body(|_, body| BoxBody::new(Answer { body, wants_head, _turn: turn })))
}

/// A request until its answer is written.
struct Turn {
    seat: Arc<Seat>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.seat.line.answered();
        self.seat.place.wait();
    }
}

/// The body of an answer; when it is written, or nobody reads it any more, its turn ends.
struct Answer {
    body: BoxBody,
    /// HEAD has the size of the body alone; a body without an end would keep the connection.
    wants_head: bool,
    _turn: Turn,
}

impl MessageBody for Answer {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if self.wants_head {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_next(cx)
    }
}
