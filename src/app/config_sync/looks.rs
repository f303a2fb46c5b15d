//! What changes nothing: tests of the connection, and plans. One at a time in each lane.

use drover_api::{PlanIn, PlanOut, SyncTestOut};
use drover_server::NotSynced;
use tokio::sync::{mpsc, oneshot, watch};

use super::error::SyncError;
use super::reader::Reader;
use super::{Configured, WAITING, off};

type Answer<T> = oneshot::Sender<Result<T, NotSynced>>;

/// A request of people.
pub(super) enum Look {
    Test(Answer<SyncTestOut>),
    Plan(PlanIn, Answer<PlanOut>),
}

/// Starts a lane; it ends when its last sender is dropped.
pub(super) fn start(reader: Reader, configured: watch::Receiver<Configured>) -> mpsc::Sender<Look> {
    let (looks, mut asked) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        while let Some(look) = asked.recv().await {
            let configured = configured.borrow().clone();
            // The callers may have gone.
            match look {
                Look::Test(reply) => {
                    let tested = match &configured.spec {
                        Some(spec) => Ok(reader.inspect(spec).await),
                        None => Err(off()),
                    };
                    let _ = reply.send(tested);
                }
                Look::Plan(asked, reply) => {
                    let planned = reader.plan(asked, &configured).await;
                    let _ = reply.send(planned.map_err(SyncError::into_answer));
                }
            }
        }
    });
    looks
}
