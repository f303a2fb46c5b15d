//! What tests of the reconciler share.

use actix::{Actor as _, Recipient};

use crate::message::AgentCommand;

struct Deaf;

impl actix::Actor for Deaf {
    type Context = actix::Context<Self>;
}

impl actix::Handler<AgentCommand> for Deaf {
    type Result = ();

    fn handle(&mut self, _: AgentCommand, _: &mut Self::Context) {}
}

/// An address where nobody listens; it needs a running actor system.
pub(super) fn nobody() -> Recipient<AgentCommand> {
    Deaf.start().recipient()
}
