//! `service.configSync`: reads part of the configuration from git.
//!
//! ```text
//! schedule, drover sync ──▶ worker ──▶ fetch, read (drover_git) ──▶ draft in the state directory
//!                                          │ check with this machine's files
//!                                          ▼
//!        view, events ◀── outcome ◀── reload of the service ◀── switch to the new entry
//!
//! drover sync --test, plan ──▶ looks ──▶ a draft of their own, never switched to
//! ```
//!
//! The worker does one thing at a time. What git has comes into force as a whole or not at all: an entry
//! is checked before it counts, and the one before it counts again where the reload refuses it. A
//! repository that is gone, slow, too large or broken changes nothing of what runs. Nor does it keep
//! anybody from returning to a commit, which ends a sync that still reads git, or from planning files.
//!
//! Beside it: `config_sync/worker.rs` (one thing after another), `attempt.rs` (one sync), `looks.rs`,
//! `inspection.rs` and `planned.rs` (what changes nothing), `reader.rs` (git's files, checked), `store.rs`
//! (the entries), `report.rs` (what people see of it).

mod attempt;
mod error;
mod inspection;
mod looks;
mod planned;
mod reader;
mod report;
mod store;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use actix::Recipient;
use drover_actors::message::HerdCommand;
use drover_api::{PlanIn, PlanOut, SyncDoneOut, SyncIn, SyncTestOut, ValueOut};
use drover_audit::Audit;
use drover_config::{
    Checked, ConfigSyncSpec, Environment, ValueChange, ValueInForce, manual_changes, values,
};
use drover_model::ports::{Ambient, Observer};
use drover_model::spec::HerdSpec;
use drover_server::NotSynced;
use drover_server::view::View;
use tokio::sync::{mpsc, oneshot, watch};

use attempt::Asked;
use looks::Look;
use reader::Reader;
use store::Lane;
use worker::{Ask, Returns, Worker};

use super::service::ReloadReply;

/// Requests of one sort that may wait while others are under way.
const WAITING: usize = 16;
/// How long a reload of the service may take.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// What the workers must know of the configuration in force.
#[derive(Debug, Clone)]
pub(super) struct Configured {
    pub(super) spec: Option<ConfigSyncSpec>,
    /// The clouds that git manages.
    pub(super) clouds: Vec<String>,
    /// The configuration as it was read.
    pub(super) checked: Arc<Checked>,
    /// The actors' part of it, for the view.
    pub(super) herd: Arc<HerdSpec>,
    /// What people changed against git.
    pub(super) manual_changes: Vec<ValueChange>,
    /// Its values with their origins, once somebody asked for them.
    shown: Arc<OnceLock<Arc<[ValueOut]>>>,
}

impl Configured {
    /// What a configuration says of it.
    pub(super) fn of(checked: &Checked, environment: &Environment) -> Self {
        let clouds = checked.herd.managed.iter().map(ToString::to_string);
        let spec = checked.service.config_sync.clone();
        Self {
            spec,
            checked: Arc::new(checked.clone()),
            herd: Arc::new(checked.herd.clone()),
            clouds: clouds.collect(),
            manual_changes: manual_changes(checked, environment),
            shown: Arc::default(),
        }
    }

    fn values(&self, environment: &Environment) -> Arc<[ValueOut]> {
        let values = self.shown.get_or_init(|| {
            let all = values(&self.checked, environment).into_iter();
            let shown = all.map(|ValueInForce { path, value, origin, .. }| ValueOut {
                path,
                value,
                origin: origin.to_string(),
            });
            shown.collect()
        });
        Arc::clone(values)
    }
}

/// The ways to the workers.
#[derive(Clone)]
pub(super) struct ConfigSync {
    syncs: mpsc::Sender<Ask>,
    /// They do not wait for a sync that reads git.
    returns: mpsc::Sender<Ask>,
    looks: mpsc::Sender<Look>,
    files: mpsc::Sender<Look>,
    configured: watch::Sender<Configured>,
    environment: Arc<Environment>,
}

/// What the workers work with.
pub(super) struct Tools {
    /// This machine's configuration.
    pub(super) config: PathBuf,
    pub(super) environment: Environment,
    pub(super) state: PathBuf,
    pub(super) audit: Audit,
    pub(super) view: Arc<View>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) ambient: Arc<dyn Ambient>,
    pub(super) reloads: mpsc::UnboundedSender<ReloadReply>,
    pub(super) herd: Recipient<HerdCommand>,
}

impl ConfigSync {
    /// Starts the workers; they end when the last handle is dropped.
    pub(super) fn start(tools: Tools, first: Configured) -> Self {
        let tools = Arc::new(tools);
        let (syncs, to_sync) = mpsc::channel(WAITING);
        let (returns, to_return) = mpsc::channel(WAITING);
        let (configured, changes) = watch::channel(first);
        let environment = Arc::new(tools.environment.clone());
        let looks = looks::start(Reader::of(&tools, Lane::Looks), changes.clone());
        let files = looks::start(Reader::of(&tools, Lane::Files), changes.clone());
        let worker = Worker::of(Reader::of(&tools, Lane::Syncs), to_sync);
        tokio::spawn(worker.run(Returns::of(to_return), changes));
        Self { syncs, returns, looks, files, configured, environment }
    }

    /// Takes in a configuration that came into force.
    pub(super) fn configure(&self, configured: Configured) {
        self.configured.send_replace(configured);
    }

    /// Syncs now, or returns to a commit.
    pub(super) async fn sync(self, SyncIn { to, back }: SyncIn) -> Result<SyncDoneOut, NotSynced> {
        let (to, asked) = match (to, back) {
            (Some(to), _) => (&self.returns, Asked::Commit(to)),
            (None, true) => (&self.returns, Asked::Back),
            (None, false) => (&self.syncs, Asked::Now),
        };
        let (reply, outcome) = oneshot::channel();
        give(to, Ask { asked, reply })?;
        outcome.await.map_err(|_| stopping())?
    }

    /// Tests the connection, and changes nothing.
    pub(super) async fn test(self) -> Result<SyncTestOut, NotSynced> {
        let (reply, outcome) = oneshot::channel();
        give(&self.looks, Look::Test(reply))?;
        outcome.await.map_err(|_| stopping())?
    }

    /// What is in force, and from where.
    pub(super) fn values(&self) -> Arc<[ValueOut]> {
        let configured = self.configured.borrow().clone();
        configured.values(&self.environment)
    }

    /// Says what a configuration would do, and changes nothing.
    pub(super) async fn plan(self, asked: PlanIn) -> Result<PlanOut, NotSynced> {
        let (reply, outcome) = oneshot::channel();
        let to = if asked.files.is_empty() { &self.looks } else { &self.files };
        give(to, Look::Plan(asked, reply))?;
        outcome.await.map_err(|_| stopping())?
    }
}

/// Gives a worker something to do; refuses it where too much waits.
fn give<T>(to: &mpsc::Sender<T>, request: T) -> Result<(), NotSynced> {
    to.try_send(request).map_err(|error| match error {
        mpsc::error::TrySendError::Full(_) => {
            NotSynced::Unavailable("others are waiting; try again later".to_owned())
        }
        mpsc::error::TrySendError::Closed(_) => stopping(),
    })
}

fn stopping() -> NotSynced {
    NotSynced::Unavailable("the service is stopping".to_owned())
}

fn off() -> NotSynced {
    NotSynced::Off("`service.configSync` is not configured, so there is nothing to sync".to_owned())
}
