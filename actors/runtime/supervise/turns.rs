//! Turns: an actor with endless work gives the thread back now and then, which a context does not
//! by itself. There are two kinds of it: notes to itself and futures that are ready at once, pass
//! after pass ([`take_turns`]), and a mailbox that is full ([`heard`]).

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use actix::fut::wrap_future;
use actix::{Actor, ActorFuture, AsyncContext, Context, WrapFuture};

/// How many passes over its futures an actor may make in one turn.
const PASSES: u32 = 1000;
/// How many messages an actor may handle in one turn.
const MESSAGES: u32 = 100;

thread_local! {
    /// Messages that the actor at work has handled in its turn.
    static HANDLED: Cell<u32> = const { Cell::new(0) };
}

/// Keeps an actor's turns short; to be called in its `started`, which runs after a restart too.
pub fn take_turns<A: Actor<Context = Context<A>>>(ctx: &mut Context<A>) {
    ctx.spawn(Turns { passes: 0 });
}

/// Counts a message, and ends the turn when there were enough of them; to be called first in every
/// handler. What waits is handled in the next turns, in its order.
pub fn heard<A: Actor<Context = Context<A>>>(ctx: &mut Context<A>) {
    let handled = HANDLED.get() + 1;
    HANDLED.set(handled);
    // A wait that was asked for already ends the turn as well.
    if handled == MESSAGES {
        ctx.wait(wrap_future(tokio::task::yield_now()));
    }
}

/// A turn begins.
pub(super) fn begin_turn() {
    HANDLED.set(0);
}

/// A future that never ends and is polled at each pass.
struct Turns {
    passes: u32,
}

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Turns {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        _: &mut TaskContext<'_>,
    ) -> Poll<()> {
        self.passes += 1;
        if self.passes >= PASSES {
            self.passes = 0;
            ctx.wait(tokio::task::yield_now().into_actor(actor));
        }
        Poll::Pending
    }
}
