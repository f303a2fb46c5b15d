//! Supervision: an actor that panics is started again, alone, and given up when that happens too
//! often.
//!
//! actix's own `Supervisor` restarts actors that stop, not actors that panic. Here the context's
//! future is polled under `catch_unwind`: after a panic the context is restarted in place, so the
//! actor's address and its mailbox survive (only the message being handled is lost), and
//! [`actix::Supervised::restarting`] puts a struct rebuilt from durable knowledge in the place of
//! the half changed one. An actor that stops by itself is left stopped.
//!
//! Supervised actors must not use `AsyncContext::cancel_future`: a cancellation that is pending
//! when the panic comes would hit a future of the next incarnation. Use an abort handle.

mod census;
mod turns;

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::dev::ContextFut;
use actix::{Actor, Addr, Context, Supervised};
use tokio::time::Sleep;
use tracing::Span;

pub use census::Census;
use census::Present;
pub use turns::{heard, take_turns};

use drover_model::fact::{Fact, What};
use drover_model::ports::{Ambient, Observer};
use drover_model::time::Moment;

/// How many restarts within how long are borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// This many restarts are borne; the next one is too many.
    pub restarts: u32,
    /// Within this span.
    pub within: Duration,
}

impl Intensity {
    /// For agents and templates: 3 in 10 s.
    pub const LEAF: Self = Self { restarts: 3, within: Duration::from_secs(10) };
    /// For clouds and what they hold: 5 in 60 s.
    pub const BRANCH: Self = Self { restarts: 5, within: Duration::from_secs(60) };
}

/// The pause before the first restart; it doubles with each further one within the span.
const BACK_OFF: Duration = Duration::from_millis(100);

/// What the names of agents' actors start with.
pub const AGENT: &str = "agent ";

/// Why an actor was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// Its name.
    pub name: String,
    /// Restarts within the span.
    pub restarts: u32,
    /// What the last panic said.
    pub panic: String,
}

/// How an actor is watched over.
pub struct Watch {
    /// Its name, for facts and logs.
    pub name: String,
    /// How many restarts are borne.
    pub intensity: Intensity,
    /// Where restarts are told.
    pub observer: Arc<dyn Observer>,
    /// The clock of the span.
    pub ambient: Arc<dyn Ambient>,
    /// Where it is counted while it lives.
    pub census: Census,
    /// Told once when it is given up; the parent decides what that means.
    pub on_give_up: Box<dyn FnOnce(GivenUp)>,
}

/// Starts an actor under supervision and gives its address, which survives restarts.
///
/// Its `restarting` must rebuild `self` from what is durable; `started` runs again after it.
/// The actor lives until it stops itself or is given up, also when nobody holds its address.
pub fn supervise<A>(watch: Watch, make: impl FnOnce(&mut Context<A>) -> A) -> Addr<A>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    let mut ctx = Context::new();
    let span = span_of(&watch.name);
    let actor = span.in_scope(|| make(&mut ctx));
    let fut = ctx.into_future(actor);
    let address = fut.address();
    let task = Supervision {
        _present: watch.census.enter(&watch.name),
        span,
        fut: Some(fut),
        _address: address.clone(),
        watch: Some(watch),
        restarts: VecDeque::new(),
        pause: None,
        at_work: false,
    };
    actix::spawn(task);
    address
}

/// What each line says of the actor whose it is. An agent is named by the field that lines of others
/// name it by, so that lines which do so already need not name it once more. Parents say nothing that is
/// not said by the name and the fields of a line.
fn span_of(name: &str) -> Span {
    match name.strip_prefix(AGENT) {
        Some(agent) => tracing::error_span!(parent: None, "actor", %agent),
        None => tracing::error_span!(parent: None, "actor", %name),
    }
}

struct Supervision<A: Actor<Context = Context<A>> + Supervised> {
    fut: Option<ContextFut<A, Context<A>>>,
    /// Keeps the mailbox connected, without which a context can not be restarted.
    _address: Addr<A>,
    _present: Present,
    /// Around everything it does, so that a log line tells whose it is.
    span: Span,
    watch: Option<Watch>,
    restarts: VecDeque<Moment>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether it is being polled at this moment.
    at_work: bool,
}

// Nothing in it is pinned in place: the context's future asks for no more itself.
impl<A: Actor<Context = Context<A>> + Supervised> Unpin for Supervision<A> {}

impl<A: Actor<Context = Context<A>> + Supervised> Supervision<A> {
    /// Counts a panic; gives the pause before the restart, or none when it was one too many.
    ///
    /// A port that panics here too would take the whole supervision with it: an actor whose panics
    /// can not be counted is given up.
    fn count(&mut self, panic: &str) -> Option<Duration> {
        let counted = catch_unwind(AssertUnwindSafe(|| self.try_count(panic)));
        counted.unwrap_or_else(|payload| {
            tracing::error!(panic = describe(&*payload), "panic could not be counted");
            None
        })
    }

    fn try_count(&mut self, panic: &str) -> Option<Duration> {
        let watch = self.watch.as_ref()?;
        let now = watch.ambient.now();
        while self.restarts.front().is_some_and(|at| now.mono - *at > watch.intensity.within) {
            self.restarts.pop_front();
        }
        self.restarts.push_back(now.mono);
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        let gave_up = count > watch.intensity.restarts;
        tracing::error!(actor = %watch.name, panic, count, gave_up, "actor panicked");
        let actor = watch.name.clone();
        let what = What::Restarted { actor, count, gave_up };
        watch.observer.observe(Fact { at: now.wall, what });
        let exponent = count.saturating_sub(1).min(8);
        (!gave_up).then(|| BACK_OFF * 2_u32.pow(exponent))
    }

    fn give_up(&mut self, panic: String) {
        self.drop_actor();
        if let Some(watch) = self.watch.take() {
            let restarts = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
            (watch.on_give_up)(GivenUp { name: watch.name, restarts, panic });
        }
    }

    /// Dropping a context runs `stopping` and `stopped` of an actor that may be half changed.
    fn drop_actor(&mut self) {
        let fut = self.fut.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(fut))) {
            tracing::error!(panic = describe(&*payload), "actor panicked while being dropped");
        }
    }

    /// Restarts the context in place; a panic while rebuilding counts like any other.
    fn restart(&mut self) -> Result<bool, String> {
        let Some(fut) = &mut self.fut else { return Ok(false) };
        catch_unwind(AssertUnwindSafe(|| fut.restart())).map_err(|payload| describe(&*payload))
    }
}

impl<A: Actor<Context = Context<A>> + Supervised> Future for Supervision<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = self.get_mut();
        turns::begin_turn();
        this.at_work = true;
        let done = this.turn(cx);
        this.at_work = false;
        done
    }
}

/// Dropped in the middle of its own turn it has panicked itself, beside every guard: nobody would
/// start the actor again, and nobody would hear of that.
impl<A: Actor<Context = Context<A>> + Supervised> Drop for Supervision<A> {
    fn drop(&mut self) {
        if self.at_work {
            self.give_up("its supervision panicked".to_owned());
        }
    }
}

impl<A: Actor<Context = Context<A>> + Supervised> Supervision<A> {
    /// Lets the actor work until it waits for something.
    fn turn(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let this = self;
        let span = this.span.clone();
        let _entered = span.enter();
        loop {
            let outcome = if let Some(pause) = &mut this.pause {
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                this.pause = None;
                match this.restart() {
                    Ok(true) => continue,
                    Ok(false) => Ok(Poll::Ready(())),
                    Err(panic) => Err(panic),
                }
            } else {
                let Some(fut) = &mut this.fut else { return Poll::Ready(()) };
                catch_unwind(AssertUnwindSafe(|| Pin::new(fut).poll(cx)))
                    .map_err(|payload| describe(&*payload))
            };
            match outcome {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => {
                    this.drop_actor();
                    return Poll::Ready(());
                }
                Err(panic) => match this.count(&panic) {
                    Some(pause) => this.pause = Some(Box::pin(tokio::time::sleep(pause))),
                    None => {
                        this.give_up(panic);
                        return Poll::Ready(());
                    }
                },
            }
        }
    }
}

/// What a panic said.
fn describe(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a text".to_owned()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]
mod tests;
