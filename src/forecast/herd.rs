//! One run of a herd on the current thread: actors in a set of local tasks that ends with the run.

use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use drover_actors::birth::GiveUp;
use drover_actors::herd::{Herd, HerdStart, Started};
use drover_actors::roster::Roster;
use drover_actors::shared::Shared;
use drover_model::id::Installation;
use drover_model::journal_state::JournalState;
use drover_model::machine::Machine;
use drover_model::ports::Ports;
use drover_model::spec::HerdSpec;
use drover_runtime::supervise::{Census, GivenUp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::LocalSet;

/// What a herd starts from.
pub struct Start {
    pub ports: Ports,
    /// The journal, folded.
    pub journal_state: JournalState,
    pub spec: Arc<HerdSpec>,
    pub installation: Installation,
    /// How long the service was down.
    pub down: Duration,
    /// The machine it runs on, where that is known.
    pub machine: Option<Machine>,
}

/// A herd that runs. Dropping it ends its actors as the end of a process would.
pub struct Running {
    /// Where the actors live: they move only while something runs in it.
    pub local: LocalSet,
    pub herd: Addr<Herd>,
    pub roster: Shared<Roster>,
    pub census: Census,
    /// Actors that panicked too often.
    pub given_up: Arc<Mutex<Vec<GivenUp>>>,
}

/// An actor was given up before every cloud was tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an actor was given up at the start")]
pub struct GivenUpAtStart;

impl Running {
    /// Starts a herd, and waits until every cloud was tried once.
    ///
    /// # Errors
    /// When an actor was given up meanwhile.
    pub async fn start(start: Start) -> Result<Self, GivenUpAtStart> {
        let given_up = Arc::new(Mutex::new(Vec::new()));
        let (reported, fell) = (Arc::clone(&given_up), Arc::new(Notify::new()));
        let falls = Arc::clone(&fell);
        let escalate: GiveUp = Arc::new(move |what| {
            reported.lock().push(what);
            falls.notify_one();
        });
        let start = HerdStart {
            ports: start.ports,
            epoch: start.journal_state.epoch + 1,
            journal_state: start.journal_state,
            spec: start.spec,
            installation: start.installation,
            down: start.down,
            machine: start.machine,
            give_up: Arc::clone(&escalate),
            spawner: drover_actors::agent::spawner(escalate),
        };
        let local = LocalSet::new();
        let started = local.run_until(async move {
            let Started { herd, tried, roster, census } = Herd::start_from(start);
            tokio::select! {
                biased;
                () = fell.notified() => Err(GivenUpAtStart),
                tried = tried => tried.map(|_| (herd, roster, census)).map_err(|_| GivenUpAtStart),
            }
        });
        let (herd, roster, census) = started.await?;
        Ok(Self { local, herd, roster, census, given_up })
    }
}
