//! CI systems: the actors' port to all configured sources of demand.
//!
//! A source's login stays on this side; a guest is given what serves its one runner, by SSH.

mod connector;
mod error;
pub mod gitea;
mod guest;
mod hooks;
mod http;
pub mod jenkins;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use drover_actors::fault::{Culprit, Fault, FaultKind};
use drover_actors::id::{RunnerName, SourceId};
use drover_actors::ports::{Ask, Demand, HireCall, SourceSight};
use futures_util::FutureExt;
use tokio::runtime::Handle;

use crate::config::SourceConnection;
use crate::shell::SshShell;
use connector::Enlist;
use gitea::Gitea;
use jenkins::Jenkins;

pub use connector::Connector;
pub use error::DemandError;
pub use hooks::{Heard, Hooks, Unheard};
pub use http::Http;

/// What is spoken at a source, with what is configured for that.
#[derive(Debug, Clone)]
pub enum System {
    /// Gitea or Forgejo.
    Gitea(gitea::Settings),
    /// Jenkins.
    Jenkins(jenkins::Settings),
}

impl System {
    /// Everything of it, secrets included, for its fingerprint.
    pub fn parts(&self) -> Vec<String> {
        match self {
            Self::Gitea(settings) => settings.parts(),
            Self::Jenkins(settings) => settings.parts(),
        }
    }
}

/// The connector of a configured source.
///
/// # Errors
/// [`DemandError::Setup`] where the client can not be made, as of a bundle that holds nothing.
pub fn connector(connection: &SourceConnection) -> Result<Arc<dyn Connector>, DemandError> {
    let http = Http::new(&connection.url, &connection.tls)?;
    let command = connection.command.clone();
    Ok(match &connection.system {
        System::Gitea(settings) => Arc::new(Gitea::new(http, settings, command)),
        System::Jenkins(settings) => Arc::new(Jenkins::new(http, settings)),
    })
}

/// The port to the CI systems.
pub struct CiSystems {
    connectors: RwLock<BTreeMap<SourceId, Arc<dyn Connector>>>,
    shell: Arc<SshShell>,
    runtime: Handle,
}

impl CiSystems {
    /// A port without sources; calls run on `runtime`.
    pub fn new(shell: Arc<SshShell>, runtime: Handle) -> Self {
        Self { connectors: RwLock::default(), shell, runtime }
    }

    /// Sets or replaces the way to a source; calls under way keep the old one.
    pub fn set(&self, id: SourceId, connector: Arc<dyn Connector>) {
        let mut all = self.connectors.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(id, connector);
    }

    /// Forgets a source.
    pub fn forget(&self, id: &SourceId) {
        self.connectors.write().unwrap_or_else(PoisonError::into_inner).remove(id);
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
        let all = self.connectors.read().unwrap_or_else(PoisonError::into_inner);
        let (connector, id) = (all.get(id).cloned(), id.clone());
        let task = self.runtime.spawn(async move {
            let Some(connector) = connector else {
                let text = format!(
                    "source `{id}` is not configured: put it back until its runners are gone"
                );
                return Err(Fault::new(FaultKind::Unreachable, Culprit::Source(id), text));
            };
            call(connector).await.map_err(|error| error.fault(&id))
        });
        async move {
            task.await.unwrap_or_else(|error| {
                let text = format!("a call of a source ended early: {error}");
                Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
            })
        }
        .boxed()
    }
}

impl Demand for CiSystems {
    fn look(&self, source: &SourceId) -> Ask<SourceSight> {
        self.call(source, |connector| async move { connector.look().await })
    }

    fn hire(&self, call: HireCall, limit: Duration) -> Ask<()> {
        let shell = Arc::clone(&self.shell);
        let source = call.source.clone();
        self.call(&source, move |connector| async move {
            let HireCall { runner, target, spec, want, .. } = call;
            let at = target.clone();
            if shell.begun(at, guest::begun(&runner), limit).await.map_err(DemandError::Guest)? {
                return Ok(());
            }
            let wish = Enlist { runner: &runner, spec: &spec, want: &want, target: &target };
            let kit = connector.enlist(wish).await?;
            let files = kit
                .files
                .iter()
                .map(|file| (guest::path(&runner, file.name), file.content.clone()));
            let start = guest::start(&runner, &kit);
            let ran = shell.hand_over(target, files.collect(), start, limit).await;
            let ran = ran.map_err(DemandError::Guest)?;
            let text = match ran.exit {
                Some(0) => return Ok(()),
                Some(127) => {
                    format!("`{}` is not in the guest: put it into the image", kit.program)
                }
                _ => format!("the runner could not be started: {}", ran.tail),
            };
            Err(DemandError::Guest(Fault::new(FaultKind::Broken, Culprit::Template, text)))
        })
    }

    fn dismiss(&self, call: HireCall, limit: Duration) -> Ask<()> {
        self.shell.script(call.target, guest::end(&call.runner), limit, "ending the runner")
    }

    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let runner = runner.clone();
        self.call(source, |connector| async move { connector.quiet(&runner).await })
    }

    fn strike(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        let runner = runner.clone();
        self.call(source, |connector| async move { connector.strike(&runner).await })
    }
}
