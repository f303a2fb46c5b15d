//! Turns: an actor with endless work gives the thread back from time to time, which an actix
//! context does not do by itself. Endless work comes in two kinds: messages to itself and futures
//! that are ready at once ([`limit_turns`]), and a mailbox that is always full ([`count_message`]).

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use actix::fut::wrap_future;
use actix::{Actor, ActorFuture, AsyncContext, Context, WrapFuture};

/// How many passes over its futures an actor makes in one turn.
const PASSES_PER_TURN: u32 = 1000;
/// How many messages an actor handles in one turn.
const MESSAGES_PER_TURN: u32 = 100;

thread_local! {
    /// The messages that the running actor has handled in its turn.
    static MESSAGES_HANDLED: Cell<u32> = const { Cell::new(0) };
}

/// Keeps an actor's turns short. Call it in `started`, which also runs after a restart.
pub fn limit_turns<A: Actor<Context = Context<A>>>(ctx: &mut Context<A>) {
    ctx.spawn(TurnLimiter { passes: 0 });
}

/// Counts a message, and ends the turn after enough of them. Call it first in every handler.
/// Waiting messages are handled in the next turns, in their order.
pub fn count_message<A: Actor<Context = Context<A>>>(ctx: &mut Context<A>) {
    let handled = MESSAGES_HANDLED.get() + 1;
    MESSAGES_HANDLED.set(handled);
    // A wait that was requested before ends the turn, too.
    if handled == MESSAGES_PER_TURN {
        ctx.wait(wrap_future(tokio::task::yield_now()));
    }
}

/// Starts a turn.
pub(super) fn begin_turn() {
    MESSAGES_HANDLED.set(0);
}

/// A future that never ends and is polled in each pass.
struct TurnLimiter {
    passes: u32,
}

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for TurnLimiter {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        _: &mut TaskContext<'_>,
    ) -> Poll<()> {
        self.passes += 1;
        if self.passes >= PASSES_PER_TURN {
            self.passes = 0;
            ctx.wait(tokio::task::yield_now().into_actor(actor));
        }
        Poll::Pending
    }
}
