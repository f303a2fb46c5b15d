//! `service.configSync`: reads part of the configuration from git.
//!
//! ```text
//! schedule, drover sync ──▶ worker ──▶ fetch, read (drover_git) ──▶ draft in the state directory
//!                                          │ check with this machine's files
//!                                          ▼
//!        view, events ◀── outcome ◀── reload of the service ◀── switch to the new entry
//! ```
//!
//! The worker is one task, which does one thing at a time. What git has comes into force as a whole or not
//! at all: an entry is checked before it counts, and the one before it counts again where the reload
//! refuses it. A repository that is gone, slow, too large or broken changes nothing of what runs.
//!
//! Beside it: `config_sync/store.rs` (the entries), `attempt.rs` (one sync), `inspection.rs` (a test of the
//! connection), `report.rs` (what people see of it).

mod attempt;
mod inspection;
mod planned;
mod report;
mod store;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use drover_actors::message::HerdCommand;
use drover_api::{AttemptOut, PlanIn, PlanOut, SyncDoneOut, SyncIn, SyncResult, SyncTestOut};
use drover_config::{Checked, ConfigSyncSpec, Environment, ValueChange, calendar, manual_changes};
use drover_git::{Git, Limits};
use drover_model::fact::{Fact, What};
use drover_model::id::CloudId;
use drover_model::ports::{Ambient, Observer};
use drover_model::spec::HerdSpec;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use drover_server::NotSynced;
use drover_server::view::View;
use tokio::sync::{mpsc, oneshot, watch};

use attempt::{Asked, Done, SyncError};
use store::Store;

use super::service::ReloadReply;

/// Requests that may wait while a sync is under way.
const WAITING: usize = 16;
/// The wait for the time that a schedule says, at most: clocks are set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// How long a reload of the service may take.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// What the worker must know of the configuration in force.
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
        }
    }
}

/// A request of people.
enum Request {
    Sync(SyncIn, oneshot::Sender<Result<SyncDoneOut, NotSynced>>),
    Test(oneshot::Sender<Result<SyncTestOut, NotSynced>>),
}

/// A request for a plan. Many callers may make them, so they come after all others.
struct PlanRequest(PlanIn, oneshot::Sender<Result<PlanOut, NotSynced>>);

/// The way to the worker.
#[derive(Clone)]
pub(super) struct ConfigSync {
    requests: mpsc::Sender<Request>,
    plans: mpsc::Sender<PlanRequest>,
    configured: watch::Sender<Configured>,
}

/// What the worker works with.
pub(super) struct Tools {
    /// This machine's configuration.
    pub(super) config: PathBuf,
    pub(super) environment: Environment,
    pub(super) state: PathBuf,
    pub(super) view: Arc<View>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) ambient: Arc<dyn Ambient>,
    pub(super) reloads: mpsc::UnboundedSender<ReloadReply>,
    pub(super) herd: Recipient<HerdCommand>,
}

struct Worker {
    tools: Tools,
    store: Store,
    last: Option<AttemptOut>,
    running: bool,
    next: Option<WallTime>,
}

impl ConfigSync {
    /// Starts the worker; it ends when the last handle is dropped.
    pub(super) fn start(tools: Tools, first: Configured) -> Self {
        let (requests, asked) = mpsc::channel(WAITING);
        let (plans, planned) = mpsc::channel(WAITING);
        let (configured, changes) = watch::channel(first);
        let store = Store::at(&tools.state);
        let worker = Worker { tools, store, last: None, running: false, next: None };
        tokio::spawn(worker.run((asked, planned), changes));
        Self { requests, plans, configured }
    }

    /// Takes in a configuration that came into force.
    pub(super) fn configure(&self, configured: Configured) {
        self.configured.send_replace(configured);
    }

    /// Syncs now, or returns to a commit.
    pub(super) async fn sync(self, asked: SyncIn) -> Result<SyncDoneOut, NotSynced> {
        let (reply, outcome) = oneshot::channel();
        give(&self.requests, Request::Sync(asked, reply))?;
        outcome.await.map_err(|_| stopping())?
    }

    /// Tests the connection, and changes nothing.
    pub(super) async fn test(self) -> Result<SyncTestOut, NotSynced> {
        let (reply, outcome) = oneshot::channel();
        give(&self.requests, Request::Test(reply))?;
        outcome.await.map_err(|_| stopping())?
    }

    /// Says what a configuration would do, and changes nothing.
    pub(super) async fn plan(self, asked: PlanIn) -> Result<PlanOut, NotSynced> {
        let (reply, outcome) = oneshot::channel();
        give(&self.plans, PlanRequest(asked, reply))?;
        outcome.await.map_err(|_| stopping())?
    }
}

/// Gives the worker something to do; refuses it where too much waits.
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

impl Worker {
    async fn run(
        mut self,
        (mut asked, mut planned): (mpsc::Receiver<Request>, mpsc::Receiver<PlanRequest>),
        mut changes: watch::Receiver<Configured>,
    ) {
        let mut known: Option<ConfigSyncSpec> = None;
        loop {
            let configured = changes.borrow_and_update().clone();
            self.set_next(known.as_ref(), &configured);
            known.clone_from(&configured.spec);
            self.report(&configured);
            let wait = self.next.map(|at| self.until(at));
            tokio::select! {
                biased;
                changed = changes.changed() => if changed.is_err() { return },
                request = asked.recv() => match request {
                    Some(request) => self.answer(request, &configured).await,
                    None => return,
                },
                () = sleep(wait) => if self.next.is_some_and(|at| at <= self.now()) {
                    self.next = None;
                    self.by_schedule(&configured).await;
                },
                Some(PlanRequest(asked, reply)) = planned.recv() => {
                    let outcome = self.plan(asked, &configured).await;
                    // The caller may have gone.
                    let _ = reply.send(outcome.map_err(SyncError::into_answer));
                }
            }
        }
    }

    /// Decides when the next sync is due: at once for a repository that is new to this start, else as the
    /// schedule says.
    fn set_next(&mut self, known: Option<&ConfigSyncSpec>, configured: &Configured) {
        let Some(spec) = &configured.spec else {
            (self.next, self.last) = (None, None);
            return;
        };
        let Some(schedule) = &spec.schedule else {
            self.next = None;
            return;
        };
        let is_new = known.is_none_or(|known| {
            known.remote.url != spec.remote.url
                || known.remote.branch != spec.remote.branch
                || known.path != spec.path
        });
        let same = known.is_some_and(|known| {
            known.schedule.as_ref() == Some(schedule) && known.time_zone == spec.time_zone
        });
        if is_new {
            self.next = Some(self.now());
        } else if self.next.is_none() || !same {
            self.next = calendar::next(schedule, &spec.time_zone, self.now());
        }
    }

    async fn by_schedule(&mut self, configured: &Configured) {
        let Some(spec) = &configured.spec else { return };
        // What came of it is in the view, the events and the log.
        let _ = self.sync(spec, configured, Asked::Schedule).await;
    }

    async fn answer(&mut self, request: Request, configured: &Configured) {
        let off = || {
            NotSynced::Off(
                "`service.configSync` is not configured, so there is nothing to sync".to_owned(),
            )
        };
        match request {
            Request::Test(reply) => {
                let tested = match &configured.spec {
                    Some(spec) => Ok(self.inspect(spec).await),
                    None => Err(off()),
                };
                // The caller may have gone.
                let _ = reply.send(tested);
            }
            Request::Sync(SyncIn { to, back }, reply) => {
                let asked = match (to, back) {
                    (Some(to), _) => Asked::Commit(to),
                    (None, true) => Asked::Back,
                    (None, false) => Asked::Now,
                };
                let outcome = match &configured.spec {
                    Some(spec) => self.sync(spec, configured, asked).await,
                    None => Err(off()),
                };
                let _ = reply.send(outcome);
            }
        }
    }

    /// One sync, with what people hear of it.
    async fn sync(
        &mut self,
        spec: &ConfigSyncSpec,
        configured: &Configured,
        asked: Asked,
    ) -> Result<SyncDoneOut, NotSynced> {
        self.running = true;
        self.report(configured);
        let by_schedule = matches!(asked, Asked::Schedule);
        let ended = self.attempt(spec, configured, asked).await;
        self.running = false;
        let (result, commit, fault) = match &ended {
            Ok(Done { result, head, .. }) => (*result, head.clone(), None),
            Err(error) => (error.result(), None, Some(error.text())),
        };
        // A wrong commit in a request says nothing of the repository.
        if ended.as_ref().err().is_none_or(|error| !error.is_of_caller()) {
            let news = self.last.as_ref().is_none_or(|last| last.fault != fault);
            if let Some(text) = fault.clone().filter(|_| news) {
                tracing::error!(
                    fault = text,
                    "configuration not synced; the old one stays in force"
                );
                self.observe(What::ConfigNotSynced { text });
            }
            let at = self.now().rfc3339();
            self.last = Some(AttemptOut { at, result, commit, fault });
        }
        let done = ended.map_err(|error| error.into_answer())?;
        if done.result == SyncResult::Applied {
            let (commit, subject) = (done.in_force.commit.clone(), done.in_force.subject.clone());
            tracing::info!(commit, subject, by_schedule, "configuration of git applied");
            self.observe(What::ConfigSynced { commit, subject });
        }
        Ok(SyncDoneOut {
            result: done.result,
            in_force: report::applied(&done.in_force),
            generation: done.generation,
            undone: done.undone,
        })
    }

    fn git(&self, spec: &ConfigSyncSpec) -> Git {
        Git::at(self.store.git(), Limits { time: spec.timeout, ..Limits::default() })
    }

    /// Lets the service read its configuration again.
    async fn reload(&self) -> Result<u64, String> {
        let (reply, outcome) = Reply::channel();
        let stopping = || "the service is stopping".to_owned();
        self.tools.reloads.send(reply).map_err(|_| stopping())?;
        match tokio::time::timeout(RELOAD_TIMEOUT, outcome).await {
            Ok(outcome) => outcome.map_err(|_| stopping())?,
            Err(_) => Err(format!("the reload did not end within {} s", RELOAD_TIMEOUT.as_secs())),
        }
    }

    /// Takes back what operators say of the clouds that git manages.
    async fn undo_overrides(&self, configured: &Configured) -> usize {
        let (reply, outcome) = Reply::channel();
        let clouds = configured.clouds.iter().map(CloudId::new).collect();
        self.tools.herd.do_send(HerdCommand::UndoOverrides { clouds, reply });
        match tokio::time::timeout(RELOAD_TIMEOUT, outcome).await {
            Ok(Ok(Ok(count))) => count,
            // The journal says why, and the next sync tries again.
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => 0,
        }
    }

    fn observe(&self, what: What) {
        self.tools.observer.observe(Fact { at: self.now(), what });
    }

    fn now(&self) -> WallTime {
        self.tools.ambient.now().wall
    }

    fn until(&self, at: WallTime) -> Duration {
        let ms = u64::try_from(at.0 - self.now().0).unwrap_or_default();
        Duration::from_millis(ms).min(LONGEST_SLEEP)
    }
}

/// Sleeps so long, or for ever.
async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
