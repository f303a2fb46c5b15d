//! What changes nothing: tests of the connection, and plans. One at a time in each lane, and none for a
//! caller that is gone.

use std::future::Future;

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
            match look {
                Look::Test(reply) => {
                    let tested = async {
                        match &configured.spec {
                            Some(spec) => Ok(reader.inspect(spec).await),
                            None => Err(off()),
                        }
                    };
                    for_caller(reply, tested).await;
                }
                Look::Plan(asked, reply) => {
                    let planned = async {
                        reader.plan(asked, &configured).await.map_err(SyncError::into_answer)
                    };
                    for_caller(reply, planned).await;
                }
            }
        }
    });
    looks
}

/// Does something for a caller, for as long as that one waits.
async fn for_caller<T>(mut reply: Answer<T>, work: impl Future<Output = Result<T, NotSynced>>) {
    tokio::select! {
        biased;
        () = reply.closed() => {}
        done = work => {
            // The caller may have gone.
            let _ = reply.send(done);
        }
    }
}
