//! `drover sim`: serves a simulated cluster on a loopback socket until SIGTERM or SIGINT.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::api::https::HttpsError;
use crate::control::{Control, PendingCommand};
use crate::folder::Folder;
use crate::guest::GuestHost;
use crate::guests::{
    AcceleratorChoice, GreeterGuests, GuestKind, Image, Isolation, IsolationError, KnownCommands,
    ProcessGuests, ProcessOptions, QemuError, QemuGuests, QemuOptions, StubGuests, StubOptions,
};
use crate::recorder::Recorder;
use crate::running::RunningCluster;
use crate::spec::{ClusterSpec, GuestSpec, PveVersion, TokenSpec};
use crate::world::Latency;
use crate::worlds::WorldError;

/// The SSH port of greeter guests, the same as that of process guests.
const GREETER_PORT: u16 = 2222;

/// The options of `drover sim`.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// The description of the cluster; none for a named world.
    pub cluster: Option<PathBuf>,
    /// The named world, without `cluster`; none for three nodes with a template each.
    pub world: Option<String>,
    pub guests: GuestKind,
    /// The folder of the disk images of QEMU guests.
    pub images: Option<PathBuf>,
    /// How QEMU runs its guests.
    pub accelerator: AcceleratorChoice,
    pub version: PveVersion,
    /// Workers of pveproxy and of pvedaemon on each node; none for the number in the description.
    pub workers: Option<usize>,
    pub seed: u64,
    /// A file with delays, or `none`.
    pub latency: String,
    /// A file with planned faults.
    pub faults: Option<PathBuf>,
    /// Run commands in process guests without bubblewrap.
    pub unisolated: bool,
    /// Folders of this computer that process guests can read.
    pub shared_folders: Vec<PathBuf>,
    /// The commands of the program that works in process guests.
    pub known_commands: KnownCommands,
    /// Serve every node on a port of its own.
    pub all_nodes: bool,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// The file for requests, tasks and boots.
    pub record: Option<PathBuf>,
}

/// Why `drover sim` did not start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// An input file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The record cannot be written.
    #[error("cannot write `{}`", .path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The content of an input file is wrong.
    #[error("`{}` does not describe {what}", .path.display())]
    Malformed {
        path: PathBuf,
        /// What the file should describe.
        what: &'static str,
        #[source]
        source: serde_yaml::Error,
    },
    /// The description lacks something that a cluster needs.
    #[error("{0}")]
    Unusable(String),
    /// There is no such named world.
    #[error(transparent)]
    World(#[from] WorldError),
    /// There are no QEMU guests.
    #[error(transparent)]
    Qemu(#[from] QemuError),
    /// Guests cannot be isolated as required.
    #[error(transparent)]
    Isolation(#[from] IsolationError),
    /// A node's name cannot stand in a certificate.
    #[error("cannot create certificates for the nodes' names")]
    Certificates(#[from] rcgen::Error),
    /// The HTTPS server did not start.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// The operating system refused something.
    #[error("{doing}")]
    System {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl SimError {
    /// Whether the options or input files are at fault, and not this computer.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unreadable { .. }
            | Self::Unwritable { .. }
            | Self::Malformed { .. }
            | Self::Unusable(_)
            | Self::World(_)
            | Self::Certificates(_)
            | Self::Qemu(
                QemuError::NoFolder
                | QemuError::Images { .. }
                | QemuError::NoImage { .. }
                | QemuError::UnknownImage { .. },
            )
            | Self::Https(HttpsError::NotLoopback(_)) => true,
            Self::Isolation(_) | Self::Qemu(_) | Self::Https(_) | Self::System { .. } => false,
        }
    }
}

/// Reads a YAML file of the options.
pub(crate) fn read_yaml<T: serde::de::DeserializeOwned>(
    path: &Path,
    what: &'static str,
) -> Result<T, SimError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SimError::Unreadable { path: path.to_owned(), source })?;
    serde_yaml::from_str(&text).map_err(|source| SimError::Malformed {
        path: path.to_owned(),
        what,
        source,
    })
}

/// Serves a simulated cluster until SIGTERM or SIGINT. The first line on standard output is a JSON
/// object for scripts: addresses, credentials, the authority's certificate.
///
/// # Errors
/// See [`SimError`]; standard output is empty then.
pub async fn run(options: Options) -> Result<(), SimError> {
    let system = |doing| move |source| SimError::System { doing, source };
    let mut terminate = signal(SignalKind::terminate()).map_err(system("cannot handle SIGTERM"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system("cannot handle SIGINT"))?;
    let folder = Folder::new().map_err(system("cannot create a temporary folder"))?;

    let running = RunningCluster::start(options, folder.path()).await?;
    let (commands, mut pending) = mpsc::channel(16);
    let control = match &running.options().control {
        Some(path) => Some(
            Control::listen(path, commands)
                .map_err(system("cannot listen on the control socket"))?,
        ),
        None => None,
    };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", running.facts_with_secrets())
        .and_then(|()| stdout.flush())
        .map_err(system("cannot write to standard output"))?;
    drop(stdout);
    let mut running = running;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            Some(PendingCommand { command, reply }) = pending.recv() => {
                // The command is executed even when the client has disconnected.
                let _ = reply.send(running.execute(command).await);
            }
        }
    }
    drop(control);
    running.stop().await;
    Ok(())
}

/// Adds a password and a token of root to a description without them. The first line of output
/// prints them.
pub(crate) fn with_credentials(
    mut spec: ClusterSpec,
    password: &str,
    tokens: &[TokenSpec],
) -> Result<ClusterSpec, SimError> {
    if spec.nodes.is_empty() {
        return Err(SimError::Unusable("the cluster has no `nodes`; name at least one".into()));
    }
    if spec.root_password.is_empty() {
        password.clone_into(&mut spec.root_password);
    }
    if spec.root_tokens.is_empty() {
        spec.root_tokens = tokens.to_vec();
    }
    Ok(spec)
}

pub(crate) fn open_recorder(path: &Path) -> Result<Arc<Recorder>, SimError> {
    let recorder = Recorder::create(path);
    recorder.map(Arc::new).map_err(|source| SimError::Unwritable { path: path.to_owned(), source })
}

/// The host of guests that the options ask for, with its files in a folder.
pub(crate) async fn guests(
    options: &Options,
    latency: &Latency,
    folder: &Path,
    images: &[Image],
    described: &[GuestSpec],
) -> Result<Arc<dyn GuestHost>, SimError> {
    let at_once = options.latency == "none";
    let quick = Duration::from_millis(50)..Duration::from_millis(150);
    match options.guests {
        GuestKind::None | GuestKind::Greeter => {
            let mut stub = StubOptions { seed: options.seed, ..StubOptions::default() };
            if at_once {
                (stub.boot, stub.address_delay, stub.shutdown) =
                    (quick.clone(), quick.clone(), quick);
            }
            if let Some(boot) = latency.guest_boot {
                // All of it: the address is there with the agent.
                (stub.boot, stub.address_delay) = (boot.range(), Duration::ZERO..Duration::ZERO);
            }
            if let Some(shutdown) = latency.guest_shutdown {
                stub.shutdown = shutdown.range();
            }
            if options.guests == GuestKind::None {
                return Ok(Arc::new(StubGuests::new(stub)));
            }
            Ok(Arc::new(GreeterGuests::new(StubOptions { ssh_port: GREETER_PORT, ..stub })))
        }
        GuestKind::Process => {
            let mut process = ProcessOptions::new(folder.to_owned());
            process.seed = options.seed;
            process.shared_folders.clone_from(&options.shared_folders);
            process.known_commands = options.known_commands.clone();
            if options.unisolated {
                process.isolation = Isolation::Unisolated;
            }
            if at_once {
                process.boot = quick;
            }
            if let Some(boot) = latency.guest_boot {
                process.boot = boot.range();
            }
            Ok(Arc::new(ProcessGuests::new(process)?))
        }
        GuestKind::Qemu => {
            let qemu = QemuOptions {
                folder: folder.to_owned(),
                images,
                guests: described,
                accelerator: options.accelerator,
            };
            Ok(Arc::new(QemuGuests::start(qemu).await?))
        }
    }
}
