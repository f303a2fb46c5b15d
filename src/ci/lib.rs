//! CI systems: the actors' port to all configured sources of demand.
//!
//! A source's login stays on this side; a guest is given what serves its one runner, by SSH.

mod connection;
mod connector;
mod error;
mod first_seen;
pub mod gitea;
pub mod github;
pub mod gitlab;
mod guest;
mod hooks;
mod http;
pub mod jenkins;
mod keepsake;
mod last_jobs;
mod proof;
mod rows;
#[cfg(test)]
mod tests;
mod windows;
pub mod woodpecker;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use causes::chain;
use drover_model::demand::words::Words;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{RunnerName, SourceId};
use drover_model::os::Os;
use drover_model::ports::{Ask, Demand, HireCall, Known, SourceSight};
use drover_shell::SshShell;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use gitea::Gitea;
use github::GitHub;
use gitlab::GitLab;
use jenkins::Jenkins;
use keepsake::Keepsake;
use woodpecker::Woodpecker;
use words::Secrets;

pub use connection::SourceConnection;
pub use connector::{Connector, Ended, Enlist, Kit, KitFile, Wake};
pub use error::DemandError;
pub use hooks::{Came, Heard, HookProof, HookSecret, Hooks, Unheard};
pub use http::{Http, Route};
pub use proof::{Mark, Proof};

/// What is spoken at a source, with what is configured for that.
#[derive(Debug, Clone)]
pub enum System {
    /// Gitea or Forgejo.
    Gitea(gitea::Settings),
    /// GitHub.
    GitHub(Box<github::Settings>),
    /// GitLab.
    GitLab(gitlab::Settings),
    /// Woodpecker.
    Woodpecker(woodpecker::Settings),
    /// Jenkins.
    Jenkins(jenkins::Settings),
}

impl System {
    /// What its webhooks are believed by.
    pub fn hook_proof(&self) -> HookProof {
        match self {
            Self::Gitea(_) | Self::GitHub(_) | Self::Woodpecker(_) | Self::Jenkins(_) => {
                HookProof::Signature
            }
            Self::GitLab(_) => HookProof::Token,
        }
    }

    /// Whose jobs and runners are meant, without a secret.
    pub fn scope(&self) -> String {
        match self {
            Self::Gitea(settings) => format!("{:?} {:?}", settings.dialect, settings.scope),
            Self::GitHub(settings) => format!("{:?}", settings.scope),
            Self::GitLab(settings) => format!("{:?}", settings.scope),
            Self::Woodpecker(_) | Self::Jenkins(_) => String::new(),
        }
    }

    /// Everything of it, secrets included, for its fingerprint.
    pub fn parts(&self) -> Vec<String> {
        match self {
            Self::Gitea(settings) => settings.parts(),
            Self::GitHub(settings) => settings.parts(),
            Self::GitLab(settings) => settings.parts(),
            Self::Woodpecker(settings) => settings.parts(),
            Self::Jenkins(settings) => settings.parts(),
        }
    }
}

/// The connector of a configured source.
///
/// # Errors
/// [`DemandError::Setup`] where the client can not be made, as of a bundle that holds nothing.
pub fn connector(connection: &SourceConnection) -> Result<Arc<dyn Connector>, DemandError> {
    let http = Http::new(&connection.url, &connection.tls, &connection.route)?;
    let command = connection.command.clone();
    Ok(match &connection.system {
        System::Gitea(settings) => Arc::new(Gitea::new(http, settings, command)),
        System::GitHub(settings) => Arc::new(GitHub::new(http, settings.as_ref().clone(), command)),
        System::GitLab(settings) => Arc::new(GitLab::new(http, settings, command)),
        System::Woodpecker(settings) => Arc::new(Woodpecker::new(http, settings, command)),
        System::Jenkins(settings) => Arc::new(Jenkins::new(http, settings)),
    })
}

/// Hears of sources that have news of their own.
type OnNews = Box<dyn Fn(SourceId) + Send + Sync>;

/// What goes on at a source between looks.
struct Watch {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// How long what goes on between looks may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The port to the CI systems.
pub struct CiSystems {
    connectors: RwLock<BTreeMap<SourceId, Arc<dyn Connector>>>,
    watches: Mutex<BTreeMap<SourceId, Watch>>,
    woken: Arc<OnceLock<OnNews>>,
    shell: Arc<SshShell>,
    secrets: Arc<Secrets>,
    /// The folder where sources keep what they must know again after a cut.
    keeps: Option<PathBuf>,
    /// What tells this machine from others; none where nothing does.
    machine: Option<String>,
    runtime: Handle,
}

impl CiSystems {
    /// A port without sources; calls run on `runtime`.
    pub fn new(shell: Arc<SshShell>, runtime: Handle) -> Self {
        let (connectors, watches, woken) = (RwLock::default(), Mutex::default(), Arc::default());
        let (secrets, keeps, machine) = (Arc::default(), None, None);
        Self { connectors, watches, woken, shell, secrets, keeps, machine, runtime }
    }

    /// The same, with a folder where sources keep what they must know again after a cut, and what tells
    /// this machine from one that the folder was copied to.
    pub fn keeping(self, folder: PathBuf, machine: Option<String>) -> Self {
        Self { keeps: Some(folder), machine, ..self }
    }

    /// Sets or replaces the way to a source; calls under way keep the old one.
    pub fn set(&self, id: SourceId, connector: Arc<dyn Connector>) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let before = watches.remove(&id);
        let (end, ended) = oneshot::channel();
        let (woken, of) = (Arc::clone(&self.woken), id.clone());
        let wake = Arc::new(move || {
            if let Some(woken) = woken.get() {
                woken(of.clone());
            }
        });
        let kept = |folder: &PathBuf| Keepsake::of(folder, &id, self.machine.clone());
        let kept = self.keeps.as_ref().map(kept).unwrap_or_default();
        if let Some(watch) = Arc::clone(&connector).watch(wake, ended, kept) {
            let task = self.runtime.spawn(async move {
                // Two of them at once would be in each other's way.
                if let Some(before) = before {
                    before.end().await;
                }
                watch.await;
            });
            watches.insert(id.clone(), Watch { end, task });
        } else if let Some(before) = before {
            self.runtime.spawn(before.end());
        }
        let mut all = self.connectors.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.insert(id.clone(), connector) {
            self.leave(id, before, &all);
        }
    }

    /// Forgets a source.
    pub fn forget(&self, id: &SourceId) {
        let mut all = self.connectors.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = all.remove(id) {
            self.leave(id.clone(), before, &all);
        }
        drop(all);
        let watch = self.watches.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(watch) = watch {
            self.runtime.spawn(watch.end());
        }
    }

    /// Has a way that is not used any more remove what drover put there for itself, unless another source
    /// is at the same place: that one needs it.
    fn leave(
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
            if let Err(error) = before.part().await {
                let error = chain(&error);
                tracing::warn!(source = %id, error, "what drover put there for itself stays");
            }
        });
    }

    /// Has sources with news of their own told to `told`, the first one that is given.
    pub fn on_news(&self, told: impl Fn(SourceId) + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.woken.set(Box::new(told));
    }

    /// Takes up what a source's webhook speaks of.
    pub fn hint(&self, id: &SourceId, body: &[u8]) {
        let all = self.connectors.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(connector) = all.get(id).cloned() {
            drop(all);
            connector.hint(body);
        }
    }

    /// Ends what goes on between looks, at the end of the service.
    pub async fn stop(&self) {
        let watches = {
            let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *watches)
        };
        join_all(watches.into_values().map(Watch::end)).await;
    }

    /// Runs a call of a source on the port's runtime, so that dropping the answer does not take it
    /// back.
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

    /// The way to a source.
    fn connector(&self, id: &SourceId) -> Result<Arc<dyn Connector>, Fault> {
        let all = self.connectors.read().unwrap_or_else(PoisonError::into_inner);
        all.get(id).cloned().ok_or_else(|| {
            let text =
                format!("source `{id}` is not configured: put it back until its runners are gone");
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
                let text = format!("a call of a source ended early: {error}");
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
            })
        }
        .boxed()
    }
}

/// Makes a runner at its source and starts it in the guest.
async fn take_on(
    connector: &dyn Connector,
    (shell, secrets): (&SshShell, &Secrets),
    call: HireCall,
    limit: Duration,
) -> Result<(), DemandError> {
    let HireCall { runner, target, spec, want, .. } = call;
    let wish = Enlist { runner: &runner, spec: &spec, want: &want, target: &target };
    let kit = connector.enlist(wish).await?;
    secrets.keep(&runner, kit.secrets.clone());
    let files = kit.files.iter();
    let files = files.map(|file| (guest::path(&runner, file.name), file.content.clone()));
    let mut files: Vec<_> = files.collect();
    let start = match target.os {
        Os::Linux => guest::start(&runner, &kit),
        Os::Windows(_) => {
            let more = windows::files(&kit);
            files.extend(more.map(|file| (guest::path(&runner, file.name), file.content)));
            windows::start(&runner, &kit)
        }
    };
    let ran = shell.put_and_run(target, files, start, limit).await;
    let ran = ran.map_err(DemandError::Guest)?;
    let text = match ran.exit {
        Some(0) => return Ok(()),
        Some(127) => {
            let names = kit.programs.join("` or `");
            format!("`{names}` is not in the guest: put it into the image")
        }
        _ => format!("the runner could not be started: {}", ran.tail),
    };
    Err(DemandError::Guest(Fault::new(FaultKind::Broken, Culprit::Template, text)))
}

impl Watch {
    /// Has it end in good order, and cuts it where it does not.
    async fn end(mut self) {
        // It may have ended by itself.
        let _ = self.end.send(());
        if tokio::time::timeout(END_LIMIT, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Demand for CiSystems {
    fn look(&self, source: &SourceId, known: &Known) -> Ask<SourceSight> {
        let known = known.clone();
        self.call(source, |connector| async move { connector.look(&known).await })
    }

    fn hire(&self, call: HireCall, limit: Duration) -> Ask<()> {
        let (shell, connector) = (Arc::clone(&self.shell), self.connector(&call.source));
        let secrets = Arc::clone(&self.secrets);
        self.spawned(async move {
            let begun = match call.target.os {
                Os::Linux => guest::begun(&call.runner),
                Os::Windows(_) => windows::begun(&call.runner),
            };
            // One that runs goes on whether its source is configured any more or not.
            if shell.already_started(call.target.clone(), begun, limit).await? {
                return Ok(());
            }
            let target = shell.with_login_shell(call.target.clone(), limit).await?;
            let (source, call) = (call.source.clone(), HireCall { target, ..call });
            let made = take_on(&*connector?, (&shell, &secrets), call, limit).await;
            made.map_err(|error| error.fault(&source))
        })
    }

    fn dismiss(&self, call: HireCall, limit: Duration) -> Ask<()> {
        self.secrets.forget(&call.runner);
        let end = match call.target.os {
            Os::Linux => guest::end(&call.runner),
            Os::Windows(_) => windows::end(&call.runner),
        };
        self.shell.script(call.target, end, limit, "ending the runner")
    }

    fn words(&self, call: HireCall, limit: Duration) -> Ask<Words> {
        let (secrets, connector) = (Arc::clone(&self.secrets), self.connector(&call.source));
        let runner = call.runner;
        let words = match call.target.os {
            Os::Linux => guest::words(&runner),
            Os::Windows(_) => windows::words(&runner),
        };
        let read = self.shell.read(call.target, words, limit);
        self.spawned(async move {
            let text = read.await?;
            let mut words = secrets.read(&runner, &text).ok_or_else(|| {
                let text = "what it says of its runner can not be read";
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
        self.call(source, |connector| async move { connector.quiet(&runner).await })
    }

    fn strike(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let runner = runner.clone();
        self.secrets.forget(&runner);
        self.call(source, |connector| async move { connector.strike(&runner).await })
    }
}
