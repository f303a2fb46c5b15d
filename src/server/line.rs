//! One connection: what its client owes, until when, and the end of it when that does not come.
//!
//! ```text
//! Head ──a whole head──▶ Body ──the whole body──▶ Work ──the answer is written──▶ Head
//!   │                      └──────answered without it──▶ Rest (of a body nobody reads) ──▶ cut
//!   └─ HEAD_LIMIT passed, or others need the room (`crowd.rs`): cut
//! ```
//!
//! A request without a body goes from Head to Work. A head that is no request, or has more than
//! HEAD_BYTES, is answered (`malformed.rs`) and goes from Head to Rest. `serve.rs` polls the connection and drops it as
//! soon as [`Line::over`] ends; the service's handlers live inside it, and are dropped with it as they
//! are when a client hangs up.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::auth::LocalPeer;
use super::crowd::{Crowd, Full, Peer, Place};
use super::malformed::{HeadFault, Refusal, bare_answer};
use super::problem::Rejection;

/// How long a client may take for the head of a request, also for the first byte of it.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// The most bytes of a head.
pub(super) const HEAD_BYTES: usize = 32 * 1024;
/// The most bytes of a head that are taken at once: all requests in them are taken for queued, each
/// with several KiB of memory, so that a turn of a connection is a few requests whatever was sent.
const HEAD_CHUNK: usize = 256;
/// The most bytes of a body that are taken at once, also of one that nobody reads.
const BODY_CHUNK: usize = 16 * 1024;
/// The most bytes that are taken while a request is answered, which show that the client hangs up.
const AHEAD_BYTES: usize = 64;
/// How long the rest of a body that nobody reads is taken and thrown away, so that the client can
/// read why.
pub(super) const REST_LIMIT: Duration = Duration::from_secs(2);
/// How long a client may read nothing of an answer that waits for it.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    Body,
    Work,
    Rest,
}

/// What is known of a connection; shared by its stream, its requests and the crowd.
pub(super) struct Line {
    state: Mutex<State>,
    changed: Notify,
    /// None before it comes and after it went.
    place: Mutex<Option<Place>>,
}

struct State {
    phase: Phase,
    since: Instant,
    /// Bytes of the head so far, or of what follows the request that is answered.
    head: usize,
    /// Whether a part of a request was just taken, which is looked at before there is another.
    looks: bool,
    /// Wants to know when more may be read.
    reader: Option<Waker>,
    /// Since when an answer cannot be written.
    stuck: Option<Instant>,
    cut: bool,
    stopping: bool,
}

impl Default for Line {
    fn default() -> Self {
        let state = State {
            phase: Phase::Head,
            since: Instant::now(),
            head: 0,
            looks: false,
            reader: None,
            stuck: None,
            cut: false,
            stopping: false,
        };
        Self { state: Mutex::new(state), changed: Notify::new(), place: Mutex::default() }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn place(&self) -> MutexGuard<'_, Option<Place>> {
        self.place.lock()
    }

    /// Takes its place among the others, until the seat is dropped.
    pub(super) fn sit(self: &Arc<Self>, crowd: &Arc<Crowd>, peer: Peer, known: bool) -> Seat {
        let place = crowd.enter(peer, known, self);
        *self.place() = Some(place);
        Seat(Arc::clone(self))
    }

    /// Others need its room.
    pub(super) fn cut(&self) {
        self.state().cut = true;
        self.changed.notify_one();
    }

    #[cfg(test)]
    pub(super) fn is_cut(&self) -> bool {
        self.state().cut
    }

    /// It ends as soon as it has nothing to answer.
    pub(super) fn stop(&self) {
        self.state().stopping = true;
        self.changed.notify_one();
    }

    /// Its caller was let in.
    pub(super) fn know(&self) {
        if let Some(place) = &*self.place() {
            place.know();
        }
    }

    fn go(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        state.since = Instant::now();
        state.head = 0;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        self.changed.notify_one();
    }

    /// A whole body came.
    pub(super) fn has_body(&self) -> Result<(), Rejection> {
        self.go(Phase::Work);
        self.place().as_ref().map_or(Ok(()), Place::work).map_err(|Full| Rejection::crowded())
    }

    /// Ends when the connection must.
    pub(super) async fn over(&self) {
        loop {
            let end = {
                let state = self.state();
                let idle = state.phase == Phase::Head && state.stuck.is_none();
                if state.cut || (state.stopping && idle) {
                    return;
                }
                let limit = match state.phase {
                    Phase::Head => Some(state.since + HEAD_LIMIT),
                    Phase::Rest => Some(state.since + 2 * REST_LIMIT),
                    // Bodies have limits of their own (`intake.rs`), and answers theirs.
                    Phase::Body | Phase::Work => None,
                };
                let stuck = state.stuck.map(|since| since + WRITE_LIMIT);
                limit.into_iter().chain(stuck).min()
            };
            match end {
                Some(end) if end <= Instant::now() => return,
                Some(end) => tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(end) => {}
                },
                None => self.changed.notified().await,
            }
        }
    }

    /// How much more may be read. What came with the head may be a body, so that at first the
    /// request is only given time to be seen. A client that does not read its answers is not read either.
    fn reads(&self, cx: &Context<'_>) -> Reads {
        let mut state = self.state();
        let ahead = state.phase == Phase::Work && state.head >= AHEAD_BYTES;
        if ahead || state.stuck.is_some() {
            state.reader = Some(cx.waker().clone());
            return Reads::OnWake;
        }
        if std::mem::take(&mut state.looks) {
            return Reads::Later;
        }
        match state.phase {
            Phase::Head if state.head >= 2 * HEAD_BYTES => Reads::Never,
            Phase::Head if state.head >= HEAD_BYTES => {
                state.head = 2 * HEAD_BYTES;
                Reads::Later
            }
            Phase::Head => Reads::Now(HEAD_CHUNK),
            Phase::Work => Reads::Now(AHEAD_BYTES - state.head),
            Phase::Body | Phase::Rest => Reads::Now(BODY_CHUNK),
        }
    }

    fn took(&self, count: usize) {
        let mut state = self.state();
        state.head = (state.head + count).min(2 * HEAD_BYTES - 1);
        state.looks = count > 0 && state.phase != Phase::Work;
    }

    fn wrote(&self, stuck: bool) {
        let mut state = self.state();
        if stuck == state.stuck.is_some() {
            return;
        }
        state.stuck = stuck.then(Instant::now);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        self.changed.notify_one();
    }
}

enum Reads {
    /// At most so many bytes.
    Now(usize),
    /// Once what is there was looked at.
    Later,
    /// Once the connection wakes its reader.
    OnWake,
    Never,
}

/// A connection's presence among the others.
pub(super) struct Seat(Arc<Line>);

impl Drop for Seat {
    fn drop(&mut self) {
        // The crowd knows the line, and the line its place: that ends here.
        let place = self.0.place().take();
        drop(place);
    }
}

/// Notes what each request's connection owes; the outermost of all middleware.
pub(super) async fn follow(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let Some(line) = request.conn_data::<Arc<Line>>().cloned() else {
        return next.call(request).await;
    };
    let headers = request.headers();
    let length = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    let turn = Turn { line: Arc::clone(&line) };
    let wants_head = *request.method() == Method::HEAD;
    if length || headers.contains_key(header::TRANSFER_ENCODING) {
        line.go(Phase::Body);
    } else if let Err(problem) = line.has_body() {
        return Ok(request.error_response(problem));
    }
    let response = next.call(request).await?;
    Ok(response.map_body(|_, body| BoxBody::new(Answer { body, wants_head, _turn: turn })))
}

/// A request until its answer is written.
struct Turn {
    line: Arc<Line>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let unread = self.line.state().phase == Phase::Body;
        self.line.go(if unread { Phase::Rest } else { Phase::Head });
        if let Some(place) = &*self.line.place() {
            place.wait();
        }
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

/// Either kind of stream.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The stream of a connection, which reports to its line what goes over it.
pub(super) struct Wire {
    pub stream: Stream,
    pub line: Arc<Line>,
    pub peer: Peer,
    /// Who is at the other end of a Unix socket.
    pub local: Option<LocalPeer>,
    /// The answer to a head that is no request or too large, once there was one.
    pub refusal: Option<Refusal>,
}

macro_rules! on_stream {
    ($wire:expr, $stream:ident => $call:expr) => {
        match &mut $wire.stream {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.refusal.is_some() {
            return self.refuse(cx, HeadFault::TooLarge);
        }
        let most = match self.line.reads(cx) {
            Reads::Now(most) => most,
            Reads::Later => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Reads::OnWake => return Poll::Pending,
            Reads::Never => return self.refuse(cx, HeadFault::TooLarge),
        };
        if most >= buffer.remaining() {
            let before = buffer.filled().len();
            let read = on_stream!(self, stream => Pin::new(stream).poll_read(cx, buffer));
            self.line.took(buffer.filled().len() - before);
            return read;
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        let read = on_stream!(self, stream => Pin::new(stream).poll_read(cx, &mut part));
        let count = part.filled().len();
        buffer.advance(count);
        self.line.took(count);
        read
    }
}

impl Wire {
    /// Writes the answer to such a head, where none was written, and takes what comes until the client
    /// hangs up: a socket that is closed over unread bytes is reset, and the answer is lost with it.
    fn refuse(&mut self, cx: &mut Context<'_>, fault: HeadFault) -> Poll<std::io::Result<()>> {
        let refusal = self.refusal.get_or_insert_with(|| Refusal::of(fault));
        while !refusal.rest().is_empty() {
            let written =
                on_stream!(self, stream => Pin::new(stream).poll_write(cx, refusal.rest()));
            self.line.wrote(written.is_pending());
            match ready!(written)? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                count => refusal.wrote(count),
            }
        }
        if !refusal.is_ended {
            ready!(on_stream!(self, stream => Pin::new(stream).poll_shutdown(cx)))?;
            refusal.is_ended = true;
            self.line.go(Phase::Rest);
        }
        let mut rubbish = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut rubbish);
            ready!(on_stream!(self, stream => Pin::new(stream).poll_read(cx, &mut buffer)))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let wire = self.get_mut();
        let bytes = match bare_answer(bytes) {
            // In place of the framework's own.
            Some((0, fault)) => return wire.refuse(cx, fault).map_ok(|()| bytes.len()),
            Some((at, _)) => &bytes[..at],
            None => bytes,
        };
        let written = on_stream!(wire, stream => Pin::new(stream).poll_write(cx, bytes));
        wire.line.wrote(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// After how long a line is over, where it is within the hour.
    async fn over_after(line: &Line) -> Option<Duration> {
        let start = Instant::now();
        timeout(HOUR, line.over()).await.ok().map(|()| start.elapsed())
    }

    // Invariant: a connection has an end, unless a request of it is answered and its client reads.

    #[tokio::test(start_paused = true)]
    async fn each_head_has_its_time_and_so_has_an_answer_that_nobody_reads() {
        let line = Line::default();
        assert_eq!(over_after(&line).await, Some(HEAD_LIMIT));
        line.go(Phase::Work);
        assert_eq!(over_after(&line).await, None);
        line.wrote(true);
        assert_eq!(over_after(&line).await, Some(WRITE_LIMIT));
        line.wrote(false);
        assert_eq!(over_after(&line).await, None);
        line.go(Phase::Head);
        assert_eq!(over_after(&line).await, Some(HEAD_LIMIT), "of the next request");
        line.go(Phase::Rest);
        assert_eq!(over_after(&line).await, Some(2 * REST_LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_the_answer_and_a_cut_for_nothing() {
        let line = Line::default();
        line.go(Phase::Work);
        line.stop();
        assert_eq!(over_after(&line).await, None);
        line.go(Phase::Head);
        line.wrote(true);
        assert_eq!(over_after(&line).await, Some(HEAD_LIMIT), "it is not written yet");
        line.wrote(false);
        assert_eq!(over_after(&line).await, Some(Duration::ZERO));
        let line = Line::default();
        line.go(Phase::Work);
        line.cut();
        assert_eq!(over_after(&line).await, Some(Duration::ZERO));
    }

    #[test]
    fn a_head_has_a_bound_and_what_may_be_a_body_behind_it_is_looked_at_first() {
        let (line, mut cx) = (Line::default(), Context::from_waker(Waker::noop()));
        let cx = &mut cx;
        line.took(HEAD_BYTES - 1);
        assert!(matches!(line.reads(cx), Reads::Later), "what was taken is looked at");
        assert!(matches!(line.reads(cx), Reads::Now(HEAD_CHUNK)));
        line.took(HEAD_BYTES);
        assert!(matches!(line.reads(cx), Reads::Later));
        assert!(matches!(line.reads(cx), Reads::Later));
        assert!(matches!(line.reads(cx), Reads::Never), "it was no request even then");
        line.go(Phase::Body);
        assert!(matches!(line.reads(cx), Reads::Now(BODY_CHUNK)));
    }

    // Invariant: of a client that sends many requests at once, or does not read, little is taken.

    #[test]
    fn while_a_request_is_answered_or_an_answer_is_not_read_next_to_nothing_is_taken() {
        let (line, mut cx) = (Line::default(), Context::from_waker(Waker::noop()));
        let cx = &mut cx;
        line.go(Phase::Work);
        assert!(matches!(line.reads(cx), Reads::Now(AHEAD_BYTES)));
        line.took(AHEAD_BYTES);
        assert!(matches!(line.reads(cx), Reads::OnWake));
        line.go(Phase::Head);
        assert!(matches!(line.reads(cx), Reads::Now(HEAD_CHUNK)));
        line.wrote(true);
        assert!(matches!(line.reads(cx), Reads::OnWake));
        line.wrote(false);
        assert!(matches!(line.reads(cx), Reads::Now(HEAD_CHUNK)));
    }
}
