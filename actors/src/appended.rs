//! A record that its actor waits for: a build or a declared machine goes on only once it is durable.

use std::sync::Arc;

use actix::{Message, Recipient};
use drover_model::ports::{JournalFault, Ports};
use drover_model::record::{Body, RECORD_VERSION, Record};

use crate::records::try_append;

/// To the actor that appended it: a record is durable, or not.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Appended {
    /// The incarnation of the actor that appended it.
    pub incarnation: u32,
    pub done: Result<Box<Record>, JournalFault>,
    pub body: Body,
}

/// Appends a record, as a task that a panic of the actor does not end.
pub(crate) fn append(
    ports: &Ports,
    (epoch, incarnation): (u64, u32),
    body: Body,
    to: Recipient<Appended>,
) {
    let (journal, ambient) = (Arc::clone(&ports.journal), Arc::clone(&ports.ambient));
    actix::spawn(async move {
        let done = try_append(&journal, vec![body.clone()]).await.map(|seq| {
            let (version, wall_time) = (RECORD_VERSION, ambient.now().wall);
            Box::new(Record { version, seq, epoch, wall_time, body: body.clone() })
        });
        to.do_send(Appended { incarnation, done, body });
    });
}
