//! One connection: what its client owes, until when, and the end of it when that does not come.
//!
//! ```text
//! Head ──a whole head──▶ Body ──the whole body──▶ Work ──the answer is written──▶ Head
//!   │                      └──────answered without it──▶ Rest (of a body nobody reads) ──▶ cut
//!   └─ HEAD_LIMIT passed, or others need the room (`crowd.rs`): cut
//! ```
//!
//! A request without a body goes from Head to Work. A head that is no request, or has more than
//! HEAD_BYTES, is answered (`malformed.rs`) and goes from Head to Rest. `wire.rs` and `seat.rs` report what
//! is read, written and answered. `serve.rs` polls the connection and drops it as soon as [`Line::over`]
//! ends; the service's handlers live inside it, and are dropped with it as they are when a client hangs up.

use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

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

/// What a connection owes, or is owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Head,
    Body,
    Work,
    Rest,
}

/// What a connection owes, and whether it must end; shared by its seat and the crowd.
pub(super) struct Line {
    state: Mutex<State>,
    changed: Notify,
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
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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

    /// It owes something else from now on.
    pub(super) fn go(&self, phase: Phase) {
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

    /// An answer is written, or nobody reads it any more.
    pub(super) fn answered(&self) {
        let unread = self.state().phase == Phase::Body;
        self.go(if unread { Phase::Rest } else { Phase::Head });
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
    pub(super) fn reads(&self, cx: &Context<'_>) -> Reads {
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

    /// So many bytes were read.
    pub(super) fn took(&self, count: usize) {
        let mut state = self.state();
        state.head = (state.head + count).min(2 * HEAD_BYTES - 1);
        state.looks = count > 0 && state.phase != Phase::Work;
    }

    /// Something was written, or is `stuck` since the client does not read.
    pub(super) fn wrote(&self, stuck: bool) {
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

/// How much may be read.
pub(super) enum Reads {
    /// At most so many bytes.
    Now(usize),
    /// Once what is there was looked at.
    Later,
    /// Once the connection wakes its reader.
    OnWake,
    Never,
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
