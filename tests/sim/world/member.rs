//! A service as one of several members of a store: its calls pass a gate, and go on when it is paused.

use drover_hypervisor::GatedDialer;
use drover_journal::LogError;
use drover_model::gate::Gate;
use futures_util::future::BoxFuture;
use proxmox_client::transport::{self, Request, Transport, TransportError};
use proxmox_client::{Connection, Endpoint, PveError};

use super::*;

/// Which member's term each write to a cluster was of, in the order of their arrival.
pub type Writes = Arc<Mutex<Vec<u64>>>;

impl World {
    /// Another member of the same store: it shares the journal, and the insides of guests.
    pub fn member_beside(&self, setup: Setup) -> Self {
        let mut other = self.beside(setup);
        other.log = self.log.clone();
        other.shell = self.shell.of_another_machine();
        other.ci = self.ci.clone();
        other
    }

    /// Another service without a start yet on the same cluster, with a journal of its own.
    pub fn beside(&self, setup: Setup) -> Self {
        let mut other = Self::on(self.simulations.clone(), Arc::clone(&self.guests), setup);
        other.started = self.started;
        other.ground.clone_from(&self.ground);
        other.notes.allow_neighbours();
        self.notes.allow_neighbours();
        other
    }
}

impl World {
    /// Cuts a member off from its clusters and their guests, or repairs that. The store stays in reach.
    pub fn cut_from_clusters(&self, cut: bool) {
        self.ways.cut(0, cut);
        self.shell.cut(cut);
    }

    /// Why this member's drover cannot read the journal; none where it can. The journal stays as it is.
    pub fn unreadable(&self) -> Option<LogError> {
        let contents = || (self.log.snapshot().unwrap(), self.log.read_from(0).unwrap());
        let before = contents();
        let ambient = Arc::new(VirtualAmbient::new(WallTime(0), 0));
        let options = WriterOptions { threaded: false, ..WriterOptions::default() };
        let opened = Writer::open_any(self.store.log(&self.log), ambient, options);
        assert!(before == contents(), "a look changed the journal");
        opened.err()
    }

    /// The versions of the format in which the journal's records are, in their order.
    pub fn record_versions(&self) -> Vec<u64> {
        let records = self.log.read_from(0).unwrap().into_iter();
        let read = |(_, record): (u64, Vec<u8>)| {
            let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
            record["version"].as_u64().unwrap()
        };
        records.map(read).collect()
    }

    /// Asks for a lease of an hour under a key, which a caller gives again when it repeats the ask.
    pub fn ask_with_key(&self, label: &str, key: &str) -> Answer {
        let (reply, answer) = Reply::channel();
        let mut ask = self.an_ask(label, Duration::from_secs(3600));
        ask.key_hash = Some(key.to_owned());
        self.life().herd.do_send(HerdCommand::Lease { ask, reply });
        answer
    }
}

/// The answer to an ask for a lease.
pub type Answer = oneshot::Receiver<Result<LeaseId, Refusal>>;

/// A member that leads in a term.
#[derive(Clone)]
pub struct Member {
    pub term: u64,
    pub gate: Gate,
    pub writes: Writes,
}

impl Member {
    /// Its way to the cluster.
    pub fn over<D: Dialer>(&self, dialer: D) -> GatedDialer<Sent<D>> {
        let sent = Sent { dialer, term: self.term, writes: Arc::clone(&self.writes) };
        GatedDialer::new(sent, self.gate.clone())
    }
}

/// A way on which a call goes on that was sent, whatever becomes of who sent it.
pub struct Sent<D> {
    dialer: D,
    term: u64,
    writes: Writes,
}

impl<D: Dialer> Dialer for Sent<D> {
    fn dial(
        &self,
        endpoint: &Endpoint,
        connection: &Connection,
    ) -> Result<Arc<dyn Transport>, PveError> {
        let transport = self.dialer.dial(endpoint, connection)?;
        Ok(Arc::new(SentTransport { transport, term: self.term, writes: Arc::clone(&self.writes) }))
    }
}

struct SentTransport {
    transport: Arc<dyn Transport>,
    term: u64,
    writes: Writes,
}

impl Transport for SentTransport {
    fn send(
        &self,
        request: Request,
    ) -> BoxFuture<'static, Result<transport::Reply, TransportError>> {
        if request.method.writes() {
            self.writes.lock().unwrap().push(self.term);
        }
        let sent = tokio::spawn(self.transport.send(request));
        async move { sent.await.unwrap() }.boxed()
    }
}
