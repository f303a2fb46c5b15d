//! The only place where parts are joined: `drover run` from its configuration to its end.
//!
//! Three homes: the ports' multi-thread runtime (this module's own too), the actors' thread with
//! its actix system, and the web's threads. Only messages cross between them.

mod actors;
mod listener;
mod parts;
mod service;
mod stop;

use std::path::PathBuf;

use drover_config::LoadError;
use drover_config::level::LevelError;
use drover_journal::LogError;
use drover_server::StartError;

/// What `drover run` was asked for.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The YAML, a file or a directory.
    pub config: PathBuf,
    /// End with a failure when a cloud cannot be used at the start.
    pub strict: bool,
    /// The journal's directory, before the configuration's.
    pub state_dir: Option<PathBuf>,
    /// The API's socket, before the configuration's.
    pub socket: Option<PathBuf>,
    /// Log in JSON, whatever `LOG_FORMAT` says.
    pub json_log: bool,
}

/// Why the service did not start, or ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// The log level cannot be used.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// The state directory cannot be used.
    #[error(
        "the state directory `{}` cannot be used: name another with --state-dir or \
         service.stateDirectory, or make it writable", .path.display()
    )]
    State {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] LogError),
    /// The journal did not take the first record.
    #[error("the journal could not be begun: {0}")]
    Takeover(String),
    /// The API cannot be served.
    #[error(transparent)]
    Web(#[from] StartError),
    /// The system refused something.
    #[error("{doing}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// With `--strict`: clouds that cannot be used.
    #[error("not every cloud can be used, and --strict was given:\n{0}")]
    Strict(String),
    /// The journal will not be written any more.
    #[error("nothing can be written to the journal any more: {0}")]
    Unjournalled(String),
    /// An actor panicked too often, or the actors' thread ended.
    #[error("the actors cannot go on: {0}")]
    GaveUp(String),
}

impl RunError {
    /// The exit code of `drover run`: 2 where a restart mends nothing; 70 and 74, as in
    /// `sysexits.h`, where the service fell while it ran and the next start takes everything up.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Level(_) => 2,
            Self::State { .. }
            | Self::Journal(_)
            | Self::Takeover(_)
            | Self::Web(_)
            | Self::System { .. }
            | Self::Strict(_) => 1,
            Self::GaveUp(_) => 70,
            Self::Unjournalled(_) => 74,
        }
    }

    /// The text for people, with its causes.
    pub fn render(&self) -> String {
        match self {
            Self::Config(error) => error.render(),
            Self::Level(_)
            | Self::State { .. }
            | Self::Journal(_)
            | Self::Takeover(_)
            | Self::Web(_)
            | Self::System { .. }
            | Self::Strict(_)
            | Self::Unjournalled(_)
            | Self::GaveUp(_) => format!("drover: {}\n", causes::chain(self)),
        }
    }
}

/// Runs the service until it is told to stop.
///
/// # Errors
/// See [`RunError`].
pub fn run(settings: Settings) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("ports")
        .enable_all()
        .build()
        .map_err(|source| RunError::System { doing: "the runtime cannot be started", source })?;
    let outcome = runtime.block_on(service::serve(settings));
    // Calls still under way are not waited for: their outcomes are found again at the next start.
    runtime.shutdown_background();
    outcome
}
