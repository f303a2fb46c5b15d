//! Supervision: an actor that panics is started again, alone, and given up when it panics too
//! often.
//!
//! actix's own `Supervisor` restarts actors that stop, not actors that panic. Here the context's
//! future is polled under `catch_unwind`. After a panic the context is restarted in place, so the
//! actor's address and its mailbox survive; only the message that was being handled is lost.
//! [`actix::Supervised::restarting`] replaces the half-changed struct with one rebuilt from durable
//! state. An actor that stops by itself stays stopped.
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
use census::CensusGuard;
pub use turns::{count_message, limit_turns};

use drover_model::fact::{Fact, What};
use drover_model::ports::{Ambient, Observer};
use drover_model::time::Moment;

/// How many restarts are allowed within which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartLimit {
    /// The allowed number of restarts; the next one is too many.
    pub restarts: u32,
    /// The time in which they are counted.
    pub within: Duration,
}

impl RestartLimit {
    /// For agents and templates: 3 in 10 s.
    pub const LEAF: Self = Self { restarts: 3, within: Duration::from_secs(10) };
    /// For clouds and their children: 5 in 60 s.
    pub const BRANCH: Self = Self { restarts: 5, within: Duration::from_secs(60) };
}

/// The pause before the first restart; it doubles with each further restart within the time.
const FIRST_RESTART_PAUSE: Duration = Duration::from_millis(100);

/// The prefix of the names of agents' actors.
pub const AGENT_NAME_PREFIX: &str = "agent ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// The actor's name.
    pub name: String,
    /// The number of restarts within the time.
    pub restarts: u32,
    /// The text of the last panic.
    pub panic: String,
}

/// How an actor is supervised.
pub struct SupervisionOptions {
    /// The actor's name, in facts and logs.
    pub name: String,
    pub restart_limit: RestartLimit,
    /// Receives a fact for each restart.
    pub observer: Arc<dyn Observer>,
    /// The clock for the restart limit.
    pub ambient: Arc<dyn Ambient>,
    /// Counts the actor while it lives.
    pub census: Census,
    /// Called once when the actor is given up; the parent decides what that means.
    pub on_give_up: Box<dyn FnOnce(GivenUp)>,
}

/// Starts an actor under supervision and returns its address, which survives restarts.
///
/// The actor's `restarting` must rebuild `self` from durable state; `started` runs again after it.
/// The actor lives until it stops itself or is given up, also when nobody holds its address.
pub fn supervise<A>(options: SupervisionOptions, make: impl FnOnce(&mut Context<A>) -> A) -> Addr<A>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    let mut ctx = Context::new();
    let span = span_of(&options.name);
    let actor = span.in_scope(|| make(&mut ctx));
    let fut = ctx.into_future(actor);
    let address = fut.address();
    let task = Supervision {
        _census_guard: options.census.add(&options.name),
        span,
        fut: Some(fut),
        _address: address.clone(),
        options: Some(options),
        restarts: VecDeque::new(),
        pause: None,
        is_polled: false,
    };
    actix::spawn(task);
    address
}

/// The span of an actor's log lines. An agent's span uses the field that other actors' lines name
/// the agent by, so that such lines need not name it twice. There is no parent span: an actor's
/// name and the fields of a line say everything.
fn span_of(name: &str) -> Span {
    match name.strip_prefix(AGENT_NAME_PREFIX) {
        Some(agent) => tracing::error_span!(parent: None, "actor", %agent),
        None => tracing::error_span!(parent: None, "actor", %name),
    }
}

struct Supervision<A: Actor<Context = Context<A>> + Supervised> {
    fut: Option<ContextFut<A, Context<A>>>,
    /// Keeps the mailbox connected: without it a context cannot be restarted.
    _address: Addr<A>,
    _census_guard: CensusGuard,
    /// Entered for everything the actor does, so that each log line shows its actor.
    span: Span,
    options: Option<SupervisionOptions>,
    restarts: VecDeque<Moment>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether it is being polled at this moment.
    is_polled: bool,
}

// Nothing in it is pinned: the context's future asks for no more than `Unpin` itself.
impl<A: Actor<Context = Context<A>> + Supervised> Unpin for Supervision<A> {}

impl<A: Actor<Context = Context<A>> + Supervised> Supervision<A> {
    /// Counts a panic; returns the pause before the restart, or none when there were too many.
    ///
    /// A port that panics here too would end the whole supervision, so an actor whose panics cannot
    /// be counted is given up.
    fn count(&mut self, panic: &str) -> Option<Duration> {
        let counted = catch_unwind(AssertUnwindSafe(|| self.try_count(panic)));
        counted.unwrap_or_else(|payload| {
            tracing::error!(panic = describe(&*payload), "panic could not be counted");
            None
        })
    }

    fn try_count(&mut self, panic: &str) -> Option<Duration> {
        let options = self.options.as_ref()?;
        let now = options.ambient.now();
        while self.restarts.front().is_some_and(|at| now.mono - *at > options.restart_limit.within)
        {
            self.restarts.pop_front();
        }
        self.restarts.push_back(now.mono);
        let count = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        let gave_up = count > options.restart_limit.restarts;
        tracing::error!(actor = %options.name, panic, count, gave_up, "actor panicked");
        let actor = options.name.clone();
        let what = What::Restarted { actor, count, gave_up };
        options.observer.observe(Fact { at: now.wall, what });
        let exponent = count.saturating_sub(1).min(8);
        (!gave_up).then(|| FIRST_RESTART_PAUSE * 2_u32.pow(exponent))
    }

    fn give_up(&mut self, panic: String) {
        self.drop_actor();
        if let Some(options) = self.options.take() {
            let restarts = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
            (options.on_give_up)(GivenUp { name: options.name, restarts, panic });
        }
    }

    /// Drops the context, which runs `stopping` and `stopped` of an actor that may be half-changed.
    fn drop_actor(&mut self) {
        let fut = self.fut.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(fut))) {
            tracing::error!(panic = describe(&*payload), "actor panicked while being dropped");
        }
    }

    /// Restarts the context in place; a panic in `restarting` counts like any other.
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
        this.is_polled = true;
        let done = this.turn(cx);
        this.is_polled = false;
        done
    }
}

/// When it is dropped during its own poll, the supervision itself panicked. Without this, nothing
/// would start the actor again or report that.
impl<A: Actor<Context = Context<A>> + Supervised> Drop for Supervision<A> {
    fn drop(&mut self) {
        if self.is_polled {
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

/// The text of a panic.
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
