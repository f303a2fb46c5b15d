//! `drover run`: joins all parts of the service, from the configuration to the end of the process.
//!
//! In: [`Settings`] of the command line, the YAML files, signals. Out: the running service, its
//! log, notifications to the service manager, and a [`RunError`] with an exit code.
//!
//! ```text
//!  ports' runtime (2 threads)          actors' thread             server's threads
//!  service: signals, reloads, stop     herd, clouds, agents       API, metrics
//!  Proxmox, SSH, CI, journal           (one actix system)
//!        |   commands, configurations ->   |   <- commands (API)      |
//!        |   <- results of port calls      |   facts -> view -------->|
//! ```
//!
//! Only messages cross between the threads. The view is the exception: the observer writes it, and
//! the API reads it.
//!
//! Failure paths: a configuration that cannot be used at the start ends with exit code 2. A refused
//! reload keeps the old configuration. A journal that cannot be written ends the service with 74,
//! an actor that panics too often with 70; the next start resumes from the journal. A stop waits
//! for work that must not be interrupted, up to `service.stopTimeoutSec`.
//!
//! Files beside this one: `app/service` (start, loop, stop), `signals`, `actors_thread`, `observer`
//! (facts to view and log), `connections` (clouds and sources), `wiring` (keys, webhooks, callers),
//! `config_sync` (what git manages), `state_dir`, `layout` (its version), `past_events` (what people may
//! ask about after a restart), `twin` (one service of an installation on a machine), `stop` (time limit of
//! a stop), `auditing` (who changed what), `black_box` (what stays of agents that failed), `doors` (from the API into the service), `ground` (journal and vault of one or of several).
//!
//! Of several drovers on one store: `process` (what outlives a term), `membership` (this process among
//! the members), `standby`, `lead` (news while it leads), `agreement` (which configuration is in force),
//! `held` (the configurations that a standby can lead with),
//! `members` (what people learn), `vaults`, `shard_config` (where the configuration lies in the store).

mod actors_thread;
mod agreement;
mod auditing;
mod black_box;
mod config_sync;
mod connections;
mod doors;
mod ground;
mod held;
mod history;
mod layout;
mod lead;
mod members;
mod membership;
mod notices;
mod observer;
mod past_events;
mod process;
mod service;
mod shard_config;
mod signals;
mod spans;
mod standby;
mod start_settings;
mod state_dir;
mod stop;
mod twin;
mod vaults;
mod wiring;

pub(crate) use state_dir::JOURNAL;

use std::path::PathBuf;

use drover_config::level::LevelError;
use drover_config::{Environment, KEY_VARIABLE, LoadError, STORE_VARIABLE};
use drover_journal::LogError;
use drover_model::ports::JournalFault;
use drover_server::StartError;
use drover_vault::StoreError;

/// The options of `drover run`.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The configuration: a YAML file or a directory.
    pub config: PathBuf,
    /// Whether somebody named that path: it is not the usual one.
    pub config_is_named: bool,
    /// Read the configuration from the store.
    pub config_from_store: bool,
    /// Fail when a cloud cannot be used at the start.
    pub strict: bool,
    /// The state directory, in place of the one in the configuration.
    pub state_dir: Option<PathBuf>,
    /// The API's Unix socket, in place of the one in the configuration.
    pub socket: Option<PathBuf>,
    /// Log in JSON, whatever `LOG_FORMAT` says.
    pub json_log: bool,
    /// The address of the store that several drovers share, in place of the one in the configuration.
    pub store: Option<String>,
    /// The file of the key that all members have, where the configuration names none.
    pub cluster_key_file: Option<PathBuf>,
    /// What this member of a store is called, in place of the machine's name.
    pub member: Option<String>,
    /// The URL where other members reach it, in place of the address that it listens on.
    pub advertise: Option<String>,
}

impl Settings {
    /// What the configuration is read in: the variables of the process, and over them the options.
    fn environment(&self) -> Environment {
        let paths = [("DROVER_STATE_DIR", &self.state_dir), (KEY_VARIABLE, &self.cluster_key_file)];
        let paths =
            paths.map(|(name, path)| (name, path.as_ref().map(|p| p.display().to_string())));
        let store = (STORE_VARIABLE, self.store.clone());
        let mut environment = Environment::of_process();
        for (name, value) in paths.into_iter().chain([store]) {
            if let Some(value) = value {
                environment = environment.with(name, &value);
            }
        }
        if self.config_from_store { environment.for_stored() } else { environment }
    }
}

/// Why the service did not start, or failed while it ran.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// The same of files, where the configuration could be in the store.
    #[error(transparent)]
    FilesBesideStore(LoadError),
    /// The log level cannot be used.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// The state directory cannot be used.
    #[error(
        "cannot use the state directory `{}`: name another with --state-dir or \
         service.stateDirectory, or make it writable", .path.display()
    )]
    State {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// What lies beside the journal cannot be read or written.
    #[error(
        "cannot use `{place}`, where keys and user data lie: let drover reach it, and look whether \
         `service.clusterKey` is that of the other members where it is a store"
    )]
    Beside {
        place: String,
        #[source]
        source: StoreError,
    },
    /// Others could change what is in the state directory.
    #[error("{0}")]
    Unsafe(String),
    /// A newer drover has changed the layout of the state directory.
    #[error("{0}")]
    Newer(String),
    /// A member of a store needs another name or URL.
    #[error("{0}")]
    Member(String),
    /// It is not clear, or not said, how the configuration is read from the store.
    #[error("{0}")]
    Stored(String),
    /// There is no configuration in the store, and none is kept from an earlier time.
    #[error("no configuration is read from `{place}`: {why}")]
    NotFetched { place: String, why: String },
    /// Another service on this machine has the installation.
    #[error("{0}")]
    Twin(String),
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] LogError),
    /// The journal holds what only another drover can read, and that one used it last.
    #[error("drover {last} used this state directory last: install that version again")]
    Downgrade {
        last: String,
        #[source]
        source: LogError,
    },
    /// The journal refused the first record.
    #[error("cannot write the first record of the journal: {0}")]
    Takeover(JournalFault),
    /// The API cannot be served.
    #[error(transparent)]
    Web(#[from] StartError),
    /// The operating system refused a request.
    #[error("{doing}")]
    System {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
    /// With `--strict`: some clouds cannot be used.
    #[error("drover does not start, because of --strict and clouds that cannot be used:\n{0}")]
    Strict(String),
    /// The journal's writer failed.
    #[error("the journal cannot be written any more: {0}")]
    Unjournalled(String),
    /// An actor panicked too often, or the actors' thread ended.
    #[error("the actors failed: {0}")]
    GaveUp(String),
}

impl RunError {
    /// The exit code of `drover run`. 2: a restart does not help. 70 and 74, as in `sysexits.h`:
    /// the service failed while it ran, and the next start resumes everything.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::FilesBesideStore(_)
            | Self::Level(_)
            | Self::Unsafe(_)
            | Self::Newer(_)
            | Self::Member(_)
            | Self::Stored(_)
            | Self::Downgrade { .. }
            | Self::Journal(LogError::Newer { .. } | LogError::Unknown { .. }) => 2,
            Self::State { .. }
            | Self::Beside { .. }
            | Self::NotFetched { .. }
            | Self::Twin(_)
            | Self::Journal(_)
            | Self::Takeover(_)
            | Self::Web(_)
            | Self::System { .. }
            | Self::Strict(_) => 1,
            Self::GaveUp(_) => 70,
            Self::Unjournalled(_) => 74,
        }
    }

    /// The error text with its causes.
    pub fn render(&self) -> String {
        match self {
            Self::Config(error) => error.render(),
            Self::FilesBesideStore(error) => format!(
                "{}  help: a store and its key are given: to read the configuration from that store, give \
                 --config-from-store and leave no YAML file at this path\n",
                error.render()
            ),
            Self::Level(_)
            | Self::State { .. }
            | Self::Beside { .. }
            | Self::Unsafe(_)
            | Self::Newer(_)
            | Self::Member(_)
            | Self::Stored(_)
            | Self::NotFetched { .. }
            | Self::Downgrade { .. }
            | Self::Twin(_)
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

/// Runs the service until a signal stops it.
///
/// A member of a store that leads no more begins again, with nothing left of its term but its place among
/// the members and its sockets.
///
/// # Errors
/// See [`RunError`].
pub fn run(settings: &Settings) -> Result<(), RunError> {
    let mut settings = settings.clone();
    let (follower, could_be_stored) = shard_config::begin(&mut settings)?;
    let mut process = process::Process::following(follower);
    loop {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("ports")
            .enable_all()
            .build()
            .map_err(|source| RunError::System { doing: "cannot start the runtime", source })?;
        let outcome = runtime.block_on(process.serve(&settings));
        // Running calls are not awaited: the next start finds out their outcomes.
        runtime.shutdown_background();
        match outcome {
            Ok(service::Ended::Stopped) => return Ok(()),
            Ok(service::Ended::LeadsNoMore(_)) => {}
            Err(RunError::Config(error)) if could_be_stored => {
                return Err(RunError::FilesBesideStore(error));
            }
            Err(error) => return Err(error),
        }
    }
}
