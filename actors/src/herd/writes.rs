//! What the herd itself writes down: what follows of each record happens in the order of the journal,
//! so that of two commands about one thing the later one holds, before and after a start.

use std::collections::VecDeque;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use drover_model::ports::JournalFault;
use drover_model::record::Body;

use super::Herd;

/// What was written, or why not.
type Done = Result<u64, JournalFault>;
type Then = Box<dyn FnOnce(&mut Herd, Done, &mut Context<Herd>)>;

/// Appends whose consequences are not drawn yet, the oldest first.
#[derive(Default)]
pub(super) struct Writes {
    next: u64,
    waiting: VecDeque<Write>,
}

struct Write {
    number: u64,
    done: Option<Done>,
    then: Then,
}

impl Writes {
    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn begin(&mut self, then: Then) -> u64 {
        self.next += 1;
        self.waiting.push_back(Write { number: self.next, done: None, then });
        self.next
    }

    fn end(&mut self, number: u64, done: Done) {
        if let Some(write) = self.waiting.iter_mut().find(|write| write.number == number) {
            write.done = Some(done);
        }
    }

    /// The oldest, when its outcome is known.
    fn due(&mut self) -> Option<(Done, Then)> {
        let done = self.waiting.front_mut()?.done.take()?;
        self.waiting.pop_front().map(|write| (done, write.then))
    }
}

impl Herd {
    /// Appends one record and does the rest when its outcome, and that of all before it, is known.
    pub(super) fn append(
        &mut self,
        body: Body,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Done, &mut Context<Self>) + 'static,
    ) {
        self.append_all(vec![body], ctx, then);
    }

    /// The same for several records, which become durable together.
    pub(super) fn append_all(
        &mut self,
        bodies: Vec<Body>,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Done, &mut Context<Self>) + 'static,
    ) {
        let number = self.writes.begin(Box::new(then));
        let write = self.common.ports.journal.append(bodies);
        // Futures of one actor that are ready at one moment are not polled in the order they came.
        ctx.spawn(write.into_actor(self).map(move |done, actor, ctx| {
            if let Err(fault) = &done {
                tracing::error!(error = %fault, "record was not written");
            }
            actor.writes.end(number, done);
            while let Some((done, then)) = actor.writes.due() {
                then(actor, done, ctx);
            }
            actor.settle_soon(ctx);
        }));
    }
}
