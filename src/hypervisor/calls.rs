//! The queue of API calls of one cluster. Every call of every client passes through it, so that
//! nothing drover does floods a node; [`drover_limits::call_queue`] decides which call goes next.
//!
//! A [`ClusterCallLimiter`] connects the queue with the Proxmox client: it waits for a place before
//! each call, and reports how the call ended. A call that gets no place in time is not sent
//! ([`NotAdmitted`]). [`Figures`] are given the route, the outcome and the duration of each call, and
//! [`RecentCalls`] keep the last ones about each guest.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use drover_limits::call_queue::{
    CallEnd, CallLoad, CallPurpose, CallQueue, CallRequest, CallTicket,
};
use drover_model::id::{NodeName, VmId};
use drover_model::time::Moment;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use proxmox_client::call_route::{CallOutcome, CallRoute};
use proxmox_client::error::Call;
use proxmox_client::limiter::{CallLimiter, CallPermit, NotAdmitted};
use proxmox_client::transport::{Reply, TransportError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::figures::Figures;
use crate::recent_calls::{End, GuestCall, RecentCalls, guest_of};

/// How long a call waits to be sent before it is given up.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for questions to guest agents: each one ahead may take 3 s.
const AGENT_CALL_TIMEOUT: Duration = Duration::from_secs(120);

tokio::task_local! {
    /// The purpose of the calls in this task, where method and path do not show it.
    static PURPOSE: CallPurpose;
    /// The guest that the calls in this task make, where their paths name another.
    static MADE: u32;
}

/// Runs `work` with this purpose for its calls; questions to guest agents keep their own purpose.
pub(crate) async fn as_purpose<F: Future>(purpose: CallPurpose, work: F) -> F::Output {
    PURPOSE.scope(purpose, work).await
}

/// Runs `work`, whose calls make this guest.
pub(crate) async fn as_making<F: Future>(guest: VmId, work: F) -> F::Output {
    MADE.scope(guest.0, work).await
}

/// The calls of one cluster that run and wait.
pub(crate) struct ClusterCalls {
    started: Instant,
    inner: Mutex<Inner>,
    figures: Arc<Figures>,
    recent: Mutex<RecentCalls>,
}

#[derive(Default)]
struct Inner {
    queue: CallQueue,
    waiting: HashMap<CallTicket, oneshot::Sender<()>>,
}

impl Default for ClusterCalls {
    fn default() -> Self {
        Self::measured(Arc::default())
    }
}

impl ClusterCalls {
    /// Calls whose figures go there.
    pub(crate) fn measured(figures: Arc<Figures>) -> Self {
        Self { started: Instant::now(), inner: Mutex::default(), figures, recent: Mutex::default() }
    }

    /// Waits for a place, and counts a call that gets none.
    async fn admitted(
        self: Arc<Self>,
        request: CallRequest,
        route: CallRoute,
        about: Option<About>,
    ) -> Result<Permit, NotAdmitted> {
        let (calls, asked) = (Arc::clone(&self), self.now());
        let mut admitted = self.wait(request, route).await;
        match &mut admitted {
            Ok(permit) => permit.about = about,
            Err(_) => {
                calls.count(route, CallOutcome::Unsent, asked);
                calls.note(about, End::None(CallOutcome::Unsent), asked);
            }
        }
        admitted
    }

    fn count(&self, route: CallRoute, outcome: CallOutcome, since: Moment) {
        if let Some(measure) = self.figures.calls.get() {
            measure(route, outcome, self.now() - since);
        }
    }

    /// Keeps a call that ended, where it is about a guest.
    fn note(&self, about: Option<About>, end: End, since: Moment) {
        let Some(About { guest, call }) = about else { return };
        let now = self.now();
        self.recent.lock().note(guest, call, end, (now, now - since));
    }

    /// The last calls about a guest that ended within this span, the oldest first.
    pub(crate) fn about(&self, guest: VmId, span: Duration) -> Vec<GuestCall> {
        self.recent.lock().of(guest.0, self.now(), span)
    }

    async fn wait(
        self: Arc<Self>,
        request: CallRequest,
        route: CallRoute,
    ) -> Result<Permit, NotAdmitted> {
        let limit =
            if request.purpose == CallPurpose::Agent { AGENT_CALL_TIMEOUT } else { SEND_TIMEOUT };
        let (ready, mut admitted) = oneshot::channel();
        let mut permit = {
            let mut inner = self.lock();
            let ticket = inner.queue.enqueue(request).ok_or(NotAdmitted::QueueFull)?;
            inner.waiting.insert(ticket, ready);
            let (end, started) = (CallEnd::Inconclusive, self.now());
            Permit { calls: Arc::clone(&self), ticket, end, route, started, about: None }
        };
        self.admit();
        if admitted.try_recv().is_ok() {
            return Ok(permit);
        }
        match tokio::time::timeout(limit, admitted).await {
            Ok(_) => {
                permit.started = self.now();
                Ok(permit)
            }
            Err(_) => {
                let ahead = self.lock().queue.waiting_with(permit.ticket).saturating_sub(1);
                Err(NotAdmitted::TimedOut { waited: limit, ahead })
            }
        }
    }

    /// The load of every endpoint and node.
    pub(crate) fn loads(&self) -> Vec<CallLoad> {
        let now = self.now();
        self.lock().queue.loads(now)
    }

    fn admit(&self) {
        let now = self.now();
        let mut inner = self.lock();
        for ticket in inner.queue.admit(now) {
            if let Some(ready) = inner.waiting.remove(&ticket) {
                // A caller that has given up removes its call itself.
                let _ = ready.send(());
            }
        }
    }

    fn now(&self) -> Moment {
        Moment(0) + self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

/// Makes the clients of all clouds of a cluster share its queue.
#[derive(Default)]
pub(crate) struct ClusterCallLimiter(pub Arc<ClusterCalls>);

impl CallLimiter for ClusterCallLimiter {
    fn admit<'a>(
        &'a self,
        call: &'a Call,
        endpoint: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn CallPermit>, NotAdmitted>> {
        let request = request(call, endpoint.to_owned());
        let guest = MADE.try_with(|guest| *guest).ok().or_else(|| guest_of(call));
        let about = guest.map(|guest| About { guest, call: call.clone() });
        let work = Arc::clone(&self.0).admitted(request, CallRoute::of(call), about);
        Box::pin(async move { Ok(Box::new(work.await?) as Box<dyn CallPermit>) })
    }
}

/// The place of one call, waiting or running; dropping it frees the place.
struct Permit {
    calls: Arc<ClusterCalls>,
    ticket: CallTicket,
    end: CallEnd,
    route: CallRoute,
    /// When it had its turn.
    started: Moment,
    about: Option<About>,
}

/// A call that is about a guest.
struct About {
    guest: u32,
    call: Call,
}

impl CallPermit for Permit {
    fn ended(&mut self, outcome: &Result<Reply, TransportError>) {
        self.calls.count(self.route, CallOutcome::of(outcome), self.started);
        self.calls.note(self.about.take(), End::of(outcome), self.started);
        self.end = match outcome {
            Ok(reply) => match reply.status {
                596..=599 => CallEnd::NodeBusy,
                // From a proxy in front of Proxmox.
                502..=504 => CallEnd::Silent,
                // The node is gone, which says nothing about load.
                595 => CallEnd::Inconclusive,
                _ => CallEnd::Answered,
            },
            Err(TransportError::TimedOut(_)) => CallEnd::Silent,
            Err(
                TransportError::Connect(_)
                | TransportError::BrokeOff(_)
                | TransportError::Certificate(_)
                | TransportError::Closed(_)
                | TransportError::TooLarge(_)
                | TransportError::Broken(_),
            ) => CallEnd::Inconclusive,
        };
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = self.calls.now();
        {
            let mut inner = self.calls.lock();
            inner.waiting.remove(&self.ticket);
            inner.queue.end(self.ticket, self.end, now);
        }
        self.calls.admit();
    }
}

fn request(call: &Call, endpoint: String) -> CallRequest {
    let mut parts = call.path.split('/').filter(|part| !part.is_empty());
    let node = match (parts.next(), parts.next()) {
        (Some("nodes"), Some(node)) if node != "localhost" => Some(NodeName::new(node)),
        _ => None,
    };
    let purpose = if call.path.contains("/agent/") {
        CallPurpose::Agent
    } else {
        let usual = if call.method.writes() { CallPurpose::Change } else { CallPurpose::Read };
        PURPOSE.try_with(|purpose| *purpose).unwrap_or(usual)
    };
    let class = call.path.rsplit('/').next().unwrap_or_default().to_owned();
    CallRequest { endpoint, node, purpose, class }
}
