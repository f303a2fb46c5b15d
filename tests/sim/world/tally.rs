//! The wire under watch: every call is counted at the dialer, and one can be held for ever, so
//! that a crash hits before it or before its answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use proxmox_client::transport::{Dialer, Reply, Request, Transport, TransportError};
use proxmox_client::{Connection, Endpoint, PveError};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::clusters::whose;
use super::eye::Socket;

/// Questions to guest agents that may run at once on a node.
const QUESTIONS: u32 = 2;

/// When a held call is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It never leaves.
    Call,
    /// It is carried out, and its answer never comes.
    Answer,
}

#[derive(Default)]
struct Seen {
    calls: Vec<String>,
    /// Clone calls by the name of the new guest.
    clones: BTreeMap<String, u32>,
    /// When a list of the whole cluster was asked for.
    lists: Vec<Instant>,
    trap: Option<(&'static str, &'static str, Hold)>,
    sprung: bool,
    /// Calls under way by the node they are about, and the most there were.
    under_way: BTreeMap<String, (u32, u32)>,
    /// Questions to guest agents under way by the cluster and the node that does their work.
    questions: BTreeMap<(usize, String), u32>,
    /// Where there were more at once than may be.
    crowded: Option<(usize, String)>,
}

/// What went over the wire.
#[derive(Clone)]
pub struct Tally {
    seen: Arc<Mutex<Seen>>,
    pulse: Arc<Notify>,
    /// An eye that sees every request.
    pub socket: Socket,
}

impl Tally {
    /// Nothing yet; `pulse` is sent when the trap springs.
    pub fn new(pulse: Arc<Notify>) -> Self {
        Self { seen: Arc::default(), pulse, socket: Socket::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Holds the next call of this method whose path ends like this.
    pub fn hold(&self, method: &'static str, end: &'static str, hold: Hold) {
        self.seen().trap = Some((method, end, hold));
    }

    /// Whether the trap sprang since it was set.
    pub fn sprung(&self) -> bool {
        self.seen().sprung
    }

    /// Springs by other means.
    pub fn spring(&self) {
        self.seen().sprung = true;
        self.pulse.notify_one();
    }

    /// Takes the trap away.
    pub fn disarm(&self) {
        let mut seen = self.seen();
        seen.trap = None;
        seen.sprung = false;
    }

    /// Calls since the last time, in order, without the lists all agents share; VMIDs as `N`.
    pub fn take(&self) -> Vec<String> {
        let shared = ["/cluster/tasks", "/cluster/resources", "/cluster/status"];
        let calls = std::mem::take(&mut self.seen().calls);
        calls.into_iter().filter(|call| !shared.iter().any(|list| call.contains(list))).collect()
    }

    /// When lists of the whole cluster were asked for since the last time.
    pub fn take_lists(&self) -> Vec<Instant> {
        std::mem::take(&mut self.seen().lists)
    }

    /// How many calls since the last time have this in method and path; VMIDs are `N`.
    pub fn count(&self, part: &str) -> usize {
        self.seen().calls.iter().filter(|call| call.contains(part)).count()
    }

    /// The most calls that were under way at once on each node since the last time; those that are
    /// about none under an empty name.
    pub fn take_peaks(&self) -> BTreeMap<String, u32> {
        let mut seen = self.seen();
        let peaks = seen.under_way.iter().map(|(node, (_, peak))| (node.clone(), *peak)).collect();
        seen.under_way.values_mut().for_each(|(now, peak)| *peak = *now);
        peaks
    }

    /// Where more questions to guest agents were under way at once than may be: each holds one of the
    /// few workers of its node for seconds.
    pub fn crowded(&self) -> Option<(usize, String)> {
        self.seen().crowded.clone()
    }

    /// A call is under way until what is given is dropped.
    fn begin(&self, cluster: usize, path: &str) -> UnderWay {
        let node = path.strip_prefix("/nodes/").and_then(|rest| rest.split('/').next());
        let node = node.unwrap_or_default().to_owned();
        let mut seen = self.seen();
        let question = path.contains("/agent/").then(|| (cluster, node.clone()));
        if let Some(place) = &question {
            let now = seen.questions.entry(place.clone()).or_default();
            *now += 1;
            if *now > QUESTIONS {
                seen.crowded.get_or_insert_with(|| place.clone());
            }
        }
        let (now, peak) = seen.under_way.entry(node.clone()).or_default();
        *now += 1;
        *peak = (*peak).max(*now);
        drop(seen);
        UnderWay { tally: self.clone(), node, question }
    }

    /// Guests for which more than one clone was asked for.
    pub fn cloned_twice(&self) -> Vec<String> {
        let seen = self.seen();
        seen.clones.iter().filter(|(_, count)| **count > 1).map(|(name, _)| name.clone()).collect()
    }

    /// Forgets who was cloned: a test repeats a clone call itself.
    pub fn forget_clones(&self) {
        self.seen().clones.clear();
    }

    /// A call that made a guest found no way: nobody was asked.
    fn not_asked(&self, guest: &str) {
        self.seen().clones.entry(guest.to_owned()).and_modify(|count| *count -= 1);
    }

    /// How many clones were asked for.
    pub fn clones(&self) -> u32 {
        self.seen().clones.values().sum()
    }

    /// Notes a call; whether and how it is held.
    fn note(&self, request: &Request) -> Option<Hold> {
        let mut seen = self.seen();
        let words: Vec<&str> = request.path.split('/').collect();
        let plain = words.iter().map(|word| match word.parse::<u32>() {
            Ok(_) => "N",
            Err(_) => word,
        });
        let plain = plain.collect::<Vec<_>>().join("/");
        seen.calls.push(format!("{} {plain}", request.method.as_str()));
        if plain == "/cluster/resources" {
            seen.lists.push(Instant::now());
        }
        if let Some(name) = new_guest(request) {
            *seen.clones.entry(name).or_default() += 1;
        }
        let (method, end, hold) = seen.trap?;
        if request.method.as_str() != method || !request.path.ends_with(end) {
            return None;
        }
        seen.trap = None;
        Some(hold)
    }
}

/// The name of the guest that a call makes; none for other calls.
fn new_guest(request: &Request) -> Option<String> {
    let creates = request.method.as_str() == "POST" && request.path.ends_with("/lxc");
    if !creates && !request.path.ends_with("/clone") {
        return None;
    }
    let named = |key: &String| key == "name" || key == "hostname";
    let name = request.params.iter().find(|(key, _)| named(key));
    Some(name.map(|(_, value)| value.clone()).unwrap_or_default())
}

struct UnderWay {
    tally: Tally,
    node: String,
    question: Option<(usize, String)>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut seen = self.tally.seen();
        if let Some((now, _)) = seen.under_way.get_mut(&self.node) {
            *now -= 1;
        }
        let question = self.question.as_ref().and_then(|place| seen.questions.get_mut(place));
        question.into_iter().for_each(|now| *now -= 1);
    }
}

/// A dialer whose calls are tallied.
pub struct Tallied<D> {
    /// The real one.
    pub dialer: D,
    /// Where they are noted.
    pub tally: Tally,
}

impl<D: Dialer> Dialer for Tallied<D> {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        let inner = self.dialer.dial(endpoint, connection)?;
        let cluster = whose(endpoint.host()).1;
        Ok(Arc::new(Way { inner, cluster, tally: self.tally.clone() }))
    }
}

struct Way {
    inner: Arc<dyn Transport>,
    cluster: usize,
    tally: Tally,
}

impl Transport for Way {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        if let Some(eye) = self.tally.socket.eye() {
            eye.request(&request);
        }
        let (hold, guest) = (self.tally.note(&request), new_guest(&request));
        let under_way = self.tally.begin(self.cluster, &request.path);
        let (answer, tally) = (self.inner.send(request), self.tally.clone());
        async move {
            if hold == Some(Hold::Call) {
                tally.spring();
                pending::<()>().await;
            }
            let reply = answer.await;
            drop(under_way);
            if let (Some(guest), Err(TransportError::Connect(_))) = (guest, &reply) {
                tally.not_asked(&guest);
            }
            if hold == Some(Hold::Answer) {
                tally.spring();
                pending::<()>().await;
            }
            reply
        }
        .boxed()
    }
}
