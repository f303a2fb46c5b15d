//! Calls of one cluster wait here for their turn (see [`drover_limits::traffic`], which
//! decides whose it is). Every call of every client passes here, so that nothing that drover does
//! floods a node.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use drover_limits::traffic::{CallEnd, Kind, Level, Ticket, Traffic, Want};
use drover_model::id::NodeName;
use drover_model::time::Moment;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use proxmox_client::error::Call;
use proxmox_client::transport::{Reply, TransportError};
use proxmox_client::turn::{self, NoTurn, Turns};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long a call waits for its turn before it is given up; it was not sent then.
const SEND_WITHIN: Duration = Duration::from_secs(30);
/// The same for a question to a guest agent: each before it may take 3 s.
const ASK_WITHIN: Duration = Duration::from_secs(120);

tokio::task_local! {
    /// What the calls of this task are for, where path and method do not say it.
    static KIND: Kind;
}

/// Makes the calls of some work calls of a kind; questions to guest agents stay what they are.
pub async fn as_kind<F: Future>(kind: Kind, work: F) -> F::Output {
    KIND.scope(kind, work).await
}

/// The calls of one cluster that run and wait.
pub struct Calls {
    began: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    traffic: Traffic,
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { began: Instant::now(), inner: Mutex::default() }
    }
}

impl Calls {
    async fn wait(self: Arc<Self>, want: Want) -> Result<Turn, NoTurn> {
        let limit = if want.kind == Kind::Agent { ASK_WITHIN } else { SEND_WITHIN };
        let (ready, mut turned) = oneshot::channel();
        let turn = {
            let mut inner = self.lock();
            let ticket = inner.traffic.ask(want).ok_or(NoTurn::Full)?;
            inner.waiting.insert(ticket, ready);
            Turn { calls: Arc::clone(&self), ticket, end: CallEnd::Void }
        };
        self.admit();
        if turned.try_recv().is_ok() {
            return Ok(turn);
        }
        match tokio::time::timeout(limit, turned).await {
            Ok(_) => Ok(turn),
            Err(_) => {
                let ahead = self.lock().traffic.waiting_with(turn.ticket).saturating_sub(1);
                Err(NoTurn::Late { waited: limit, ahead })
            }
        }
    }

    /// How its endpoints and nodes stand.
    pub fn levels(&self) -> Vec<Level> {
        let now = self.now();
        self.lock().traffic.levels(now)
    }

    fn admit(&self) {
        let now = self.now();
        let mut inner = self.lock();
        for ticket in inner.traffic.admit(now) {
            if let Some(ready) = inner.waiting.remove(&ticket) {
                // Who has given up leaves by itself.
                let _ = ready.send(());
            }
        }
    }

    fn now(&self) -> Moment {
        Moment(0) + self.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// The calls of one cluster as the clients of its clouds take their turns in them.
#[derive(Default)]
pub struct Queue(pub Arc<Calls>);

impl Turns for Queue {
    fn turn<'a>(
        &'a self,
        call: &'a Call,
        endpoint: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn turn::Turn>, NoTurn>> {
        let work = Arc::clone(&self.0).wait(want(call, endpoint.to_owned()));
        Box::pin(async move { Ok(Box::new(work.await?) as Box<dyn turn::Turn>) })
    }
}

/// A call's place, waiting or running.
struct Turn {
    calls: Arc<Calls>,
    ticket: Ticket,
    end: CallEnd,
}

impl turn::Turn for Turn {
    fn ended(&mut self, outcome: &Result<Reply, TransportError>) {
        self.end = match outcome {
            Ok(reply) => match reply.status {
                596..=599 => CallEnd::NodeBusy,
                // Of a proxy before Proxmox.
                502..=504 => CallEnd::Silent,
                // The node is gone, which is no work.
                595 => CallEnd::Void,
                _ => CallEnd::Answered,
            },
            Err(TransportError::TimedOut(_)) => CallEnd::Silent,
            Err(
                TransportError::Connect(_)
                | TransportError::Certificate(_)
                | TransportError::Closed(_)
                | TransportError::TooLarge(_)
                | TransportError::Broken(_),
            ) => CallEnd::Void,
        };
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.calls.now();
        {
            let mut inner = self.calls.lock();
            inner.waiting.remove(&self.ticket);
            inner.traffic.end(self.ticket, self.end, now);
        }
        self.calls.admit();
    }
}

fn want(call: &Call, endpoint: String) -> Want {
    let mut parts = call.path.split('/').filter(|part| !part.is_empty());
    let node = match (parts.next(), parts.next()) {
        (Some("nodes"), Some(node)) if node != "localhost" => Some(NodeName::new(node)),
        _ => None,
    };
    let kind = if call.path.contains("/agent/") {
        Kind::Agent
    } else {
        let usual = if call.method.writes() { Kind::Change } else { Kind::Read };
        KIND.try_with(|kind| *kind).unwrap_or(usual)
    };
    let class = call.path.rsplit('/').next().unwrap_or_default().to_owned();
    Want { endpoint, node, kind, class }
}
