//! Turns: an actor whose notes to itself and ready futures never end gives the thread back now and
//! then, which a context does not by itself.

use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use actix::{Actor, ActorFuture, AsyncContext, Context, WrapFuture};

/// How many passes over its futures an actor may make in one turn.
const PASSES: u32 = 1000;

/// Keeps an actor's turns short; to be called in its `started`, which runs after a restart too.
///
/// A burst of messages that are in the mailbox already is handled in one turn all the same.
pub fn take_turns<A: Actor<Context = Context<A>>>(ctx: &mut Context<A>) {
    ctx.spawn(Turns { passes: 0 });
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
