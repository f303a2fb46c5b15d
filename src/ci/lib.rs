//! Connectors to CI systems: Gitea, Forgejo, GitHub, GitLab, Woodpecker and Jenkins.
//!
//! This package implements [`Demand`], the port through which the actors see every configured
//! *source* (a CI system that wants agents). It owns the logins to the sources, the HTTP calls, and
//! the scripts that start and stop a runner in a guest. A login never leaves this machine: a guest
//! receives, by SSH, only what serves its own runner.
//!
//! In: the settings of each source ([`SourceConnection`], made by the configuration), calls from
//! the source and agent actors, and webhooks that [`Hooks`] has verified. Out: which jobs wait and
//! what each runner does ([`SourceObservation`]), runners that are registered and started, and a wake-up
//! when a source has news of its own ([`CiSystems::on_news`]).
//!
//! ```text
//! agent actor  -- start runner -->  CiSystems --> Connector::register --> row at the source
//!                                        |
//!                                        +------> guest or windows script --> runner in the guest
//! source actor -- look ---------->  CiSystems --> Connector::poll     --> jobs and rows
//! webhook      -- Hooks::receive -> Connector::hint, then a poll
//! ```
//!
//! A *row* is what a CI system stores for one runner. Every connector follows one rule: a row
//! counts as gone only when the source answers that this very row does not exist, never because a
//! list lacks it.
//!
//! Failures are [`DemandError`]s. [`DemandError::fault`] turns each into a fault of its source,
//! with a text that says what to do. A call whose answer is lost is an unknown outcome: the caller
//! asks again, and registering a runner first removes any row of the same name.
//!
//! Beside this file: `connector` (the trait that each system implements), `connection` (settings
//! common to all), `http`, `error`, `finding` (what `drover doctor` reports), `rows` (lists that
//! change while they are read), `last_jobs` and `first_seen` (what is remembered of jobs), `origin` (what
//! a job is a part of),
//! `state_file` (what survives a restart), `secrets` (what is masked in runner logs), `guest` and
//! `windows` (scripts), `hooks`, and one module for each system.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![warn(unreachable_pub)]

mod connection;
mod connector;
mod error;
mod finding;
mod first_seen;
pub mod gitea;
pub mod github;
pub mod gitlab;
mod guest;
mod hooks;
mod http;
pub mod jenkins;
mod last_jobs;
mod origin;
mod rows;
mod secrets;
mod state_file;
#[cfg(test)]
mod tests;
mod windows;
pub mod woodpecker;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causes::chain;
use drover_model::demand::words::Words;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::gate::Gate;
use drover_model::id::{RunnerName, SourceId};
use drover_model::os::Os;
use drover_model::ports::{Ask, Demand, Known, SourceObservation, StartRunnerCall};
use drover_shell::SshShell;
use drover_vault::Vault;
use futures_util::FutureExt;
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use gitea::Gitea;
use github::GitHub;
use gitlab::GitLab;
use jenkins::Jenkins;
use secrets::Secrets;
pub use state_file::STATE_FOLDER;
use state_file::StateFile;
use woodpecker::Woodpecker;

pub use connection::SourceConnection;
pub use connector::{Connector, RegisterRequest, RunnerBundle, RunnerFile, StopSignal, Wake};
pub use error::DemandError;
pub use finding::{Finding, Remedy, Severity};
pub use hooks::{Arrival, HookAuth, HookOutcome, HookRefusal, HookSecret, Hooks};
pub use http::{Http, Route};

/// The kind of a source, with the settings of that kind.
#[derive(Debug, Clone)]
pub enum System {
    Gitea(gitea::Settings),
    GitHub(Box<github::Settings>),
    GitLab(gitlab::Settings),
    Woodpecker(woodpecker::Settings),
    Jenkins(jenkins::Settings),
}

impl System {
    /// How webhooks of this system prove who sent them.
    pub fn hook_auth(&self) -> HookAuth {
        match self {
            Self::Gitea(_) | Self::GitHub(_) | Self::Woodpecker(_) | Self::Jenkins(_) => {
                HookAuth::Signature
            }
            Self::GitLab(_) => HookAuth::Token,
        }
    }

    /// The part of the system that drover serves, as text without a secret.
    pub(crate) fn scope(&self) -> String {
        match self {
            Self::Gitea(settings) => format!("{:?} {:?}", settings.dialect, settings.scope),
            Self::GitHub(settings) => format!("{:?}", settings.scope),
            Self::GitLab(settings) => format!("{:?}", settings.scope),
            Self::Woodpecker(_) | Self::Jenkins(_) => String::new(),
        }
    }

    /// All settings, secrets included, for the fingerprint of the source.
    pub(crate) fn parts(&self) -> Vec<String> {
        match self {
            Self::Gitea(settings) => settings.parts(),
            Self::GitHub(settings) => settings.parts(),
            Self::GitLab(settings) => settings.parts(),
            Self::Woodpecker(settings) => settings.parts(),
            Self::Jenkins(settings) => settings.parts(),
        }
    }
}

/// Makes the connector of a configured source; it calls nothing yet, and later what changes something
/// through the gate alone.
///
/// # Errors
/// [`DemandError::Setup`] where the client cannot be made, for example from an empty CA bundle.
pub fn connector(
    connection: &SourceConnection,
    gate: Gate,
) -> Result<Arc<dyn Connector>, DemandError> {
    let http = Http::new(&connection.url, &connection.tls, &connection.route, gate)?;
    let command = connection.command.clone();
    Ok(match &connection.system {
        System::Gitea(settings) => Arc::new(Gitea::new(http, settings, command)),
        System::GitHub(settings) => Arc::new(GitHub::new(http, settings.as_ref().clone(), command)),
        System::GitLab(settings) => Arc::new(GitLab::new(http, settings, command)),
        System::Woodpecker(settings) => Arc::new(Woodpecker::new(http, settings, command)),
        System::Jenkins(settings) => Arc::new(Jenkins::new(http, settings)),
    })
}

/// Called with the id of a source that has news between two polls.
type NewsCallback = Box<dyn Fn(SourceId) + Send + Sync>;

/// The background task of one source, such as the message session of a GitHub scale set.
struct BackgroundTask {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// How long a background task may take to end before it is aborted.
const TASK_END_TIMEOUT: Duration = Duration::from_secs(5);

/// All configured sources: implements the port [`Demand`].
pub struct CiSystems {
    connectors: RwLock<BTreeMap<SourceId, Arc<dyn Connector>>>,
    tasks: Mutex<BTreeMap<SourceId, BackgroundTask>>,
    on_news_callback: Arc<OnceLock<NewsCallback>>,
    shell: Arc<SshShell>,
    secrets: Arc<Secrets>,
    /// Where the sources' state files are; none where nothing is stored.
    vault: Option<Arc<dyn Vault>>,
    /// An id that distinguishes this machine from others; none where no such id exists.
    machine: Option<String>,
    runtime: Handle,
}

impl CiSystems {
    /// Starts without sources; calls run on `runtime`.
    pub fn new(shell: Arc<SshShell>, runtime: Handle) -> Self {
        let (connectors, tasks, on_news_callback) =
            (RwLock::default(), Mutex::default(), Arc::default());
        let (secrets, vault, machine) = (Arc::default(), None, None);
        Self { connectors, tasks, on_news_callback, shell, secrets, vault, machine, runtime }
    }

    /// Stores the state of sources in a vault. `machine` identifies whose vault it is, so that a
    /// copied one is recognised.
    pub fn with_vault(self, vault: Arc<dyn Vault>, machine: Option<String>) -> Self {
        Self { vault: Some(vault), machine, ..self }
    }

    /// Sets or replaces the connector of a source; calls in flight keep the old one.
    pub fn set(&self, id: SourceId, connector: Arc<dyn Connector>) {
        let mut tasks = self.tasks.lock();
        let before = tasks.remove(&id);
        let (end, ended) = oneshot::channel();
        let (on_news_callback, of) = (Arc::clone(&self.on_news_callback), id.clone());
        let wake = Arc::new(move || {
            if let Some(on_news_callback) = on_news_callback.get() {
                on_news_callback(of.clone());
            }
        });
        let kept = |vault| StateFile::of(Arc::clone(vault), &id, self.machine.clone());
        let kept = self.vault.as_ref().map(kept).unwrap_or_default();
        if let Some(watch) = Arc::clone(&connector).watch(wake, ended, kept) {
            let task = self.runtime.spawn(async move {
                // Two tasks of one source would disturb each other, so the old one ends first.
                if let Some(before) = before {
                    before.end().await;
                }
                watch.await;
            });
            tasks.insert(id.clone(), BackgroundTask { end, task });
        } else if let Some(before) = before {
            self.runtime.spawn(before.end());
        }
        let mut all = self.connectors.write();
        if let Some(before) = all.insert(id.clone(), connector) {
            self.clean_up_former(id, before, &all);
        }
    }

    pub fn forget(&self, id: &SourceId) {
        let mut all = self.connectors.write();
        if let Some(before) = all.remove(id) {
            self.clean_up_former(id.clone(), before, &all);
        }
        drop(all);
        let watch = self.tasks.lock().remove(id);
        if let Some(watch) = watch {
            self.runtime.spawn(watch.end());
        }
    }

    /// Lets a connector that is no longer used remove what drover stored at the source for itself,
    /// unless another source uses the same place.
    fn clean_up_former(
        &self,
        id: SourceId,
        before: Arc<dyn Connector>,
        others: &BTreeMap<SourceId, Arc<dyn Connector>>,
    ) {
        let place = before.place();
        if place.is_none() || others.values().any(|other| other.place() == place) {
            return;
        }
        self.runtime.spawn(async move {
            if let Err(error) = before.clean_up().await {
                let error = chain(&error);
                tracing::warn!(source = %id, error, "cannot remove what drover stored at a source \
                                                     that is no longer used");
            }
        });
    }

    /// Calls `callback` with each source that has news between two polls. Only the first call of
    /// this function has an effect.
    pub fn on_news(&self, callback: impl Fn(SourceId) + Send + Sync + 'static) {
        // Fails where a callback is set already, which is documented above.
        let _ = self.on_news_callback.set(Box::new(callback));
    }

    /// Says a source's connector what a verified webhook is about.
    pub fn hint(&self, id: &SourceId, body: &[u8]) {
        let all = self.connectors.read();
        if let Some(connector) = all.get(id).cloned() {
            drop(all);
            connector.hint(body);
        }
    }

    /// Ends all background tasks, when the service stops.
    pub async fn stop(&self) {
        let tasks = {
            let mut tasks = self.tasks.lock();
            std::mem::take(&mut *tasks)
        };
        join_all(tasks.into_values().map(BackgroundTask::end)).await;
    }

    /// Runs a call to a source on the port's runtime: dropping the answer does not cancel the call.
    fn call<T, F>(
        &self,
        id: &SourceId,
        call: impl FnOnce(Arc<dyn Connector>) -> F + Send + 'static,
    ) -> Ask<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, DemandError>> + Send,
    {
        let (connector, id) = (self.connector(id), id.clone());
        self.spawned(async move { call(connector?).await.map_err(|error| error.fault(&id)) })
    }

    /// The connector of a source, or a fault that says that the source is not configured.
    fn connector(&self, id: &SourceId) -> Result<Arc<dyn Connector>, Fault> {
        let all = self.connectors.read();
        all.get(id).cloned().ok_or_else(|| {
            let text =
                format!("source `{id}` is not configured; restore it until its runners are gone");
            Fault::new(FaultKind::Unreachable, Culprit::Source(id.clone()), text)
        })
    }

    /// Runs a call on the port's runtime.
    fn spawned<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Ask<T> {
        let task = self.runtime.spawn(call);
        async move {
            task.await.unwrap_or_else(|error| {
                let text = format!("a call to a source ended without an answer: {error}");
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
            })
        }
        .boxed()
    }
}

/// Registers a runner at its source and starts it in the guest.
async fn start_runner(
    connector: &dyn Connector,
    (shell, secrets): (&SshShell, &Secrets),
    call: StartRunnerCall,
    limit: Duration,
) -> Result<(), DemandError> {
    let StartRunnerCall { runner, target, spec, want, .. } = call;
    let request = RegisterRequest { runner: &runner, spec: &spec, want: &want, target: &target };
    let bundle = connector.register(request).await?;
    secrets.keep(&runner, bundle.secrets.clone());
    let files = bundle.files.iter();
    let files = files.map(|file| (guest::path(&runner, file.name), file.content.clone()));
    let mut files: Vec<_> = files.collect();
    let start = match target.os {
        Os::Linux => guest::start(&runner, &bundle),
        Os::Windows(_) => {
            let more = windows::files(&bundle);
            files.extend(more.map(|file| (guest::path(&runner, file.name), file.content)));
            windows::start(&runner, &bundle)
        }
    };
    let ran = shell.put_and_run(target, files, start, limit).await;
    let ran = ran.map_err(DemandError::Guest)?;
    let text = match ran.exit {
        Some(0) => return Ok(()),
        Some(127) => {
            let names = bundle.programs.join("` or `");
            format!("`{names}` is not installed in the guest; install it in the template image")
        }
        _ => format!("cannot start the runner: {}", ran.said()),
    };
    Err(DemandError::Guest(Fault::new(FaultKind::Broken, Culprit::Template, text)))
}

impl BackgroundTask {
    /// Asks the task to end, and aborts it after [`TASK_END_TIMEOUT`].
    async fn end(mut self) {
        // Fails only where the task has ended by itself.
        let _ = self.end.send(());
        if tokio::time::timeout(TASK_END_TIMEOUT, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Demand for CiSystems {
    fn look_at_jobs(&self, source: &SourceId, known: &Known) -> Ask<SourceObservation> {
        let known = known.clone();
        self.call(source, |connector| async move { connector.poll(&known).await })
    }

    fn start_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        let (shell, connector) = (Arc::clone(&self.shell), self.connector(&call.source));
        let secrets = Arc::clone(&self.secrets);
        self.spawned(async move {
            let started = match call.target.os {
                Os::Linux => guest::prepare(&call.runner),
                Os::Windows(_) => windows::prepare(&call.runner),
            };
            // A runner that is already started continues even where its source is not configured.
            if shell.already_started(call.target.clone(), started, limit).await? {
                return Ok(());
            }
            let target = shell.with_login_shell(call.target.clone(), limit).await?;
            let (source, call) = (call.source.clone(), StartRunnerCall { target, ..call });
            let made = start_runner(&*connector?, (&shell, &secrets), call, limit).await;
            made.map_err(|error| error.fault(&source))
        })
    }

    fn stop_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        self.secrets.forget(&call.runner);
        let end = match call.target.os {
            Os::Linux => guest::stop(&call.runner),
            Os::Windows(_) => windows::stop(&call.runner),
        };
        self.shell.script(call.target, end, limit, "stopping the runner")
    }

    fn words(&self, call: StartRunnerCall, limit: Duration) -> Ask<Words> {
        let (secrets, connector) = (Arc::clone(&self.secrets), self.connector(&call.source));
        let runner = call.runner;
        let words = match call.target.os {
            Os::Linux => guest::status(&runner),
            Os::Windows(_) => windows::status(&runner),
        };
        let read = self.shell.read(call.target, words, limit);
        self.spawned(async move {
            let text = read.await?;
            let mut words = secrets.read(&runner, &text).ok_or_else(|| {
                let text = "cannot read the status of the runner in the guest";
                Fault::new(FaultKind::Broken, Culprit::Guest, text)
            })?;
            if let Ok(connector) = connector {
                let too_old = connector.too_old(&words).await;
                words.too_old = too_old;
            }
            Ok(words)
        })
    }

    fn obstacle(&self, source: &SourceId) -> Ask<Option<String>> {
        self.call(source, |connector| async move { connector.obstacle().await })
    }

    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let runner = runner.clone();
        self.call(source, |connector| async move { connector.cordon(&runner).await })
    }

    fn deregister(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let runner = runner.clone();
        self.secrets.forget(&runner);
        self.call(source, |connector| async move { connector.deregister(&runner).await })
    }
}
