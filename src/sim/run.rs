//! `drover sim`: serves a simulated cluster on a loopback socket until SIGTERM or SIGINT.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::api::certificates::{Authority, CLUSTER_AUTHORITY};
use crate::api::https::{HttpsError, HttpsServer};
use crate::clock;
use crate::control::{Command, Control, PendingCommand};
use crate::folder::Folder;
use crate::guest::GuestHost;
use crate::guests::{
    AcceleratorChoice, GreeterGuests, GuestKind, Image, Isolation, IsolationError, KnownCommands,
    ProcessGuests, ProcessOptions, QemuError, QemuGuests, QemuOptions, StubGuests, StubOptions,
    read_images,
};
use crate::recorder::Recorder;
use crate::simulation::{Simulation, SimulationOptions};
use crate::spec::{ClusterSpec, GuestSpec, PveVersion, WorkersSpec};
use crate::world::{Certificates as ShownCertificates, Faults, Latency, WorldControl};

/// The SSH port of greeter guests, the same as that of process guests.
const GREETER_PORT: u16 = 2222;

/// The options of `drover sim`.
#[derive(Debug, Clone)]
pub struct Options {
    pub listen: SocketAddr,
    /// The description of the cluster; none for three nodes with a template each.
    pub cluster: Option<PathBuf>,
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

fn read_yaml<T: serde::de::DeserializeOwned>(
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

    let password = uuid::Uuid::new_v4().to_string();
    let secret = uuid::Uuid::new_v4().to_string();
    let images = match (options.guests, &options.images) {
        (GuestKind::Qemu, Some(folder)) => read_images(folder)?,
        (GuestKind::Qemu, None) => return Err(QemuError::NoFolder.into()),
        (GuestKind::None | GuestKind::Greeter | GuestKind::Process, _) => Vec::new(),
    };
    let spec = match &options.cluster {
        Some(path) => read_yaml(path, "a simulated cluster")?,
        None if images.is_empty() => ClusterSpec::three_nodes(&password, &secret),
        None => {
            let named: Vec<_> =
                images.iter().map(|image| (image.name.clone(), image.bytes)).collect();
            ClusterSpec::three_nodes(&password, &secret).with_templates_of(&named)
        }
    };
    let mut spec = with_credentials(spec, &password, &secret)?;
    spec.workers = options.workers.map_or(spec.workers, WorkersSpec::of);
    let latency = match options.latency.as_str() {
        "none" => Latency::none(),
        file => read_yaml(Path::new(file), "delays")?,
    };
    let guests = guests(&options, &latency, folder.path(), &images, &spec.guests).await?;
    let names: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
    let simulation_options = SimulationOptions {
        version: options.version,
        seed: options.seed,
        epoch: clock::unix_now(),
        latency,
        faults: match &options.faults {
            Some(path) => read_yaml(path, "planned faults")?,
            None => Faults::default(),
        },
        record: options.record.as_deref().map(open_recorder).transpose()?,
    };
    let authority = Authority::new(CLUSTER_AUTHORITY)?;
    let certificates = authority.issue(&names)?;
    let simulation = Simulation::new(&spec, simulation_options, certificates, guests);
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, &simulation.certificates.ca_pem)
        .map_err(system("cannot write the authority's certificate"))?;
    let servers = listen(&simulation, &names, &options).await?;
    let Some((_, server)) = servers.first() else {
        return Err(SimError::Unusable("no node is served".into()));
    };
    let (commands, mut pending) = mpsc::channel(16);
    let control = match &options.control {
        Some(path) => Some(
            Control::listen(path, commands)
                .map_err(system("cannot listen on the control socket"))?,
        ),
        None => None,
    };
    let token = spec.root_tokens.first();
    let template = spec.guests.iter().find(|guest| guest.template);
    let facts = json!({
        "url": format!("https://{}", server.addr),
        "fingerprint": server.fingerprint,
        "caFile": ca_file,
        "tokenId": token.map(|token| format!("root@pam!{}", token.name)),
        "tokenSecret": token.map(|token| token.secret.clone()),
        "adminUser": "root@pam",
        "adminPassword": spec.root_password,
        "node": template.map_or(simulation.first_node(), |guest| &guest.node),
        "nodes": names,
        "urls": urls(&servers),
        "templateVmId": template.map(|guest| guest.vmid),
        "release": options.version.version_strings().0,
        "pid": std::process::id(),
    });
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{facts}")
        .and_then(|()| stdout.flush())
        .map_err(system("cannot write to standard output"))?;
    drop(stdout);
    let mut running =
        RunningCluster { simulation, servers, authority, names, folder: folder.path() };
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
    for (_, server) in running.servers {
        server.stop().await;
    }
    Ok(())
}

/// Serves the first node on the address of the options, and with `all_nodes` the others on free
/// ports.
async fn listen(
    simulation: &Simulation,
    names: &[String],
    options: &Options,
) -> Result<Vec<(String, HttpsServer)>, SimError> {
    let count = if options.all_nodes { names.len() } else { 1 };
    let mut servers = Vec::new();
    for name in names.iter().take(count) {
        let port = if servers.is_empty() { options.listen.port() } else { 0 };
        let addr = SocketAddr::new(options.listen.ip(), port);
        servers.push((name.clone(), simulation.listen_as(name, addr).await?));
    }
    Ok(servers)
}

fn urls(servers: &[(String, HttpsServer)]) -> Value {
    servers
        .iter()
        .map(|(name, server)| (name.clone(), format!("https://{}", server.addr)))
        .collect()
}

/// A cluster that serves requests and executes commands.
struct RunningCluster<'a> {
    simulation: Simulation,
    servers: Vec<(String, HttpsServer)>,
    authority: Authority,
    names: Vec<String>,
    /// Holds the certificates of authorities.
    folder: &'a Path,
}

fn require_guest(world: &WorldControl, vmid: u32) -> Result<(), String> {
    let found = world.config(vmid).map(|_| ());
    found.ok_or_else(|| format!("unknown guest {vmid}; GET /cluster/resources lists the guests"))
}

impl RunningCluster<'_> {
    async fn execute(&mut self, command: Command) -> Result<Value, String> {
        let world = self.simulation.world.control();
        match command {
            Command::RenewCertificate => {
                return self.renew_certificate().map_err(|error| chain(&error));
            }
            Command::ReplaceCertificate => {
                return self.replace_certificate().map_err(|error| chain(&error));
            }
            Command::RenewAuthority => {
                return self.renew_authority().map_err(|error| chain(&error));
            }
            Command::ExpireTickets => self.simulation.access.expire_tickets(),
            Command::Faults(None) => world.set_faults(Faults::default()),
            Command::Faults(Some(path)) => {
                let faults = read_yaml(&path, "planned faults").map_err(|error| chain(&error))?;
                world.set_faults(faults);
            }
            Command::NodeDown(node) => world.node_down(self.known_node(&node)?).await,
            Command::NodeUp(node) => world.node_up(self.known_node(&node)?),
            Command::Isolate(node) => world.set_partitioned(self.known_node(&node)?, true),
            Command::Rejoin(node) => world.set_partitioned(self.known_node(&node)?, false),
            Command::Maintain(node, on) => world.set_maintenance(self.known_node(&node)?, on),
            Command::Lock(vmid, lock) => {
                require_guest(&world, vmid)?;
                world.set_config(vmid, "lock", lock.as_deref());
            }
            Command::Move(vmid, node) => {
                require_guest(&world, vmid)?;
                world.move_guest(vmid, self.known_node(&node)?);
            }
        }
        Ok(Value::Null)
    }

    fn known_node<'n>(&self, node: &'n str) -> Result<&'n str, String> {
        match self.names.iter().any(|name| name == node) {
            true => Ok(node),
            false => {
                Err(format!("unknown node `{node}`; the nodes are: {}", self.names.join(", ")))
            }
        }
    }

    /// Shows a new certificate of the cluster's own authority; it replaces an administrator's own
    /// certificate.
    fn renew_certificate(&self) -> Result<Value, SimError> {
        let made = self.authority.issue(&self.names)?;
        for (_, server) in &self.servers {
            server.replace_certificates(&made)?;
        }
        self.simulation.world.control().set_certificates((&made).into());
        Ok(json!({ "fingerprint": made.leaf_fingerprint }))
    }

    /// Creates another authority for the cluster, as after the loss of `/etc/pve/priv`.
    fn renew_authority(&mut self) -> Result<Value, SimError> {
        self.authority = Authority::new(CLUSTER_AUTHORITY)?;
        let mut shown = self.renew_certificate()?;
        let ca_pem = self.simulation.world.control().certificates().ca_pem;
        shown["caFile"] = json!(self.write_ca("renewed-ca.pem", &ca_pem)?);
        Ok(shown)
    }

    fn write_ca(&self, name: &str, pem: &str) -> Result<PathBuf, SimError> {
        let file = self.folder.join(name);
        std::fs::write(&file, pem).map_err(|source| SimError::System {
            doing: "cannot write the authority's certificate",
            source,
        })?;
        Ok(file)
    }

    /// Shows a certificate of an authority outside the cluster; the cluster's own authority stays.
    fn replace_certificate(&self) -> Result<Value, SimError> {
        let other = Authority::new("Somebody's own authority")?;
        let made = other.issue(&self.names)?;
        let ca_file = self.write_ca("other-ca.pem", &made.ca_pem)?;
        for (_, server) in &self.servers {
            server.replace_certificates(&made)?;
        }
        let world = self.simulation.world.control();
        let shown = Some((made.leaf_pem.clone(), made.leaf_fingerprint.clone()));
        world.set_certificates(ShownCertificates { proxy: shown, ..world.certificates() });
        Ok(json!({ "fingerprint": made.leaf_fingerprint, "caFile": ca_file }))
    }
}

/// Adds a password and a token of root to a description without them. The first line of output
/// prints them.
fn with_credentials(
    mut spec: ClusterSpec,
    password: &str,
    secret: &str,
) -> Result<ClusterSpec, SimError> {
    if spec.nodes.is_empty() {
        return Err(SimError::Unusable("the cluster has no `nodes`; name at least one".into()));
    }
    let fresh = ClusterSpec::three_nodes(password, secret);
    if spec.root_password.is_empty() {
        spec.root_password = fresh.root_password;
    }
    if spec.root_tokens.is_empty() {
        spec.root_tokens = fresh.root_tokens;
    }
    Ok(spec)
}

fn open_recorder(path: &Path) -> Result<Arc<Recorder>, SimError> {
    let recorder = Recorder::create(path);
    recorder.map(Arc::new).map_err(|source| SimError::Unwritable { path: path.to_owned(), source })
}

async fn guests(
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
            let mut process = ProcessOptions::new(folder.join("guests"));
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
                folder: folder.join("guests"),
                images,
                guests: described,
                accelerator: options.accelerator,
            };
            Ok(Arc::new(QemuGuests::start(qemu).await?))
        }
    }
}
