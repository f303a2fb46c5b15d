//! `drover sim`: a simulated cluster on a loopback socket, until it is told to end.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::clock;
use crate::control::{Asked, Control, Order};
use crate::door::certificates::{Authority, CLUSTER};
use crate::door::wire::{Wire, WireError};
use crate::guest::GuestHost;
use crate::guests::{
    GreeterGuests, GuestKind, GuestKindError, Isolation, IsolationError, KnownCommands, NoneGuests,
    NoneOptions, ProcessGuests, ProcessOptions,
};
use crate::record::Record;
use crate::simulation::{Simulation, SimulationOptions};
use crate::spec::{ClusterSpec, PveVersion, WorkersSpec};
use crate::world::{Certificates as Shown, Faults, Latency, WorldControl};

/// Where guests that greet listen, as process guests do.
const GREETER_PORT: u16 = 2222;

/// What `drover sim` was asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The cluster's description; none for three nodes with a template each.
    pub cluster: Option<PathBuf>,
    /// What guests are.
    pub guests: GuestKind,
    /// Which Proxmox VE.
    pub version: PveVersion,
    /// Workers of both daemons of each node; none for as many as the description says.
    pub workers: Option<usize>,
    /// Fixes all chance.
    pub seed: u64,
    /// A file of delays, or `none`.
    pub latency: String,
    /// A file of planned faults.
    pub faults: Option<PathBuf>,
    /// Run commands in process guests without bubblewrap.
    pub unisolated: bool,
    /// Folders of this machine that process guests can read.
    pub shared: Vec<PathBuf>,
    /// Commands of the program that works in process guests.
    pub known: KnownCommands,
    /// Serve every node on a port of its own.
    pub all_nodes: bool,
    /// Where to take orders while it runs.
    pub control: Option<PathBuf>,
    /// Where requests, tasks and boots are written down.
    pub record: Option<PathBuf>,
}

/// Why no simulated cluster runs.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// An input file cannot be read.
    #[error("`{}` cannot be read", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The record cannot be written.
    #[error("`{}` cannot be written", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// An input file does not say what it should.
    #[error("`{}` is no description of {what}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should describe.
        what: &'static str,
        /// Where it goes wrong.
        #[source]
        source: serde_yaml::Error,
    },
    /// A description without what a cluster needs.
    #[error("{0}")]
    Unusable(String),
    /// These guests cannot be had.
    #[error(transparent)]
    Guests(#[from] GuestKindError),
    /// Guests cannot be kept apart as asked.
    #[error(transparent)]
    Isolation(#[from] IsolationError),
    /// No certificates can be made for these node names.
    #[error("no certificates can be made")]
    Certificates(#[from] rcgen::Error),
    /// The socket cannot be had.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The system refused something.
    #[error("{doing}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

impl SimError {
    /// Whether what was asked for is at fault, rather than this machine.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unreadable { .. }
            | Self::Unwritable { .. }
            | Self::Malformed { .. }
            | Self::Unusable(_)
            | Self::Guests(_)
            | Self::Certificates(_)
            | Self::Wire(WireError::NotLoopback(_)) => true,
            Self::Isolation(_) | Self::Wire(_) | Self::System { .. } => false,
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path, what: &'static str) -> Result<T, SimError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| SimError::Unreadable { path: path.to_owned(), source })?;
    serde_yaml::from_str(&text).map_err(|source| SimError::Malformed {
        path: path.to_owned(),
        what,
        source,
    })
}

/// Serves a simulated cluster until SIGTERM or SIGINT; its first line on standard output is one
/// JSON object for scripts.
///
/// # Errors
/// See [`SimError`]; nothing was printed to standard output then.
pub async fn run(options: Options) -> Result<(), SimError> {
    let system = |doing| move |source| SimError::System { doing, source };
    let mut term =
        signal(SignalKind::terminate()).map_err(system("signals cannot be listened to"))?;
    let mut int =
        signal(SignalKind::interrupt()).map_err(system("signals cannot be listened to"))?;
    let folder = tempfile::Builder::new()
        .prefix("drover-sim-")
        .tempdir()
        .map_err(system("no temporary folder can be made"))?;

    let password = uuid::Uuid::new_v4().to_string();
    let secret = uuid::Uuid::new_v4().to_string();
    let spec = match &options.cluster {
        Some(path) => read(path, "a simulated cluster")?,
        None => ClusterSpec::three_nodes(&password, &secret),
    };
    let mut spec = with_credentials(spec, &password, &secret)?;
    spec.workers = options.workers.map_or(spec.workers, WorkersSpec::of);
    let guests = guests(&options, folder.path())?;
    let names: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
    let simulation_options = SimulationOptions {
        version: options.version,
        seed: options.seed,
        epoch: clock::unix_now(),
        latency: match options.latency.as_str() {
            "none" => Latency::none(),
            file => read(Path::new(file), "delays")?,
        },
        faults: match &options.faults {
            Some(path) => read(path, "planned faults")?,
            None => Faults::default(),
        },
        record: options.record.as_deref().map(record).transpose()?,
    };
    let authority = Authority::new(CLUSTER)?;
    let certificates = authority.issue(&names)?;
    let simulation = Simulation::new(&spec, simulation_options, certificates, guests);
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, &simulation.certificates.ca_pem)
        .map_err(system("the authority's certificate cannot be written"))?;
    let wires = listen(&simulation, &names, &options).await?;
    let Some((_, wire)) = wires.first() else {
        return Err(SimError::Unusable("no node is served".into()));
    };
    let (orders, mut asked) = mpsc::channel(16);
    let control = match &options.control {
        Some(path) => Some(
            Control::listen(path, orders).map_err(system("the control socket cannot be had"))?,
        ),
        None => None,
    };
    let token = spec.root_tokens.first();
    let template = spec.guests.iter().find(|guest| guest.template);
    let facts = json!({
        "url": format!("https://{}", wire.addr),
        "fingerprint": wire.fingerprint,
        "caFile": ca_file,
        "tokenId": token.map(|token| format!("root@pam!{}", token.name)),
        "tokenSecret": token.map(|token| token.secret.clone()),
        "adminUser": "root@pam",
        "adminPassword": spec.root_password,
        "node": template.map_or(simulation.first_node(), |guest| &guest.node),
        "nodes": names,
        "urls": urls(&wires),
        "templateVmId": template.map(|guest| guest.vmid),
        "release": options.version.facts().0,
        "pid": std::process::id(),
    });
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{facts}")
        .and_then(|()| stdout.flush())
        .map_err(system("standard output cannot be written"))?;
    drop(stdout);
    let mut running = Running { simulation, wires, authority, names, folder: folder.path() };
    loop {
        tokio::select! {
            _ = term.recv() => break,
            _ = int.recv() => break,
            Some(Asked { order, reply }) = asked.recv() => {
                // Who asked may have gone; it is done all the same.
                let _ = reply.send(running.carry_out(order).await);
            }
        }
    }
    drop(control);
    for (_, wire) in running.wires {
        wire.stop().await;
    }
    Ok(())
}

/// The first node on the address that was asked for, the others on free ports beside it.
async fn listen(
    simulation: &Simulation,
    names: &[String],
    options: &Options,
) -> Result<Vec<(String, Wire)>, SimError> {
    let count = if options.all_nodes { names.len() } else { 1 };
    let mut wires = Vec::new();
    for name in names.iter().take(count) {
        let port = if wires.is_empty() { options.listen.port() } else { 0 };
        let addr = SocketAddr::new(options.listen.ip(), port);
        wires.push((name.clone(), simulation.listen_as(name, addr).await?));
    }
    Ok(wires)
}

fn urls(wires: &[(String, Wire)]) -> Value {
    wires.iter().map(|(name, wire)| (name.clone(), format!("https://{}", wire.addr))).collect()
}

/// A cluster that runs and takes orders.
struct Running<'a> {
    simulation: Simulation,
    wires: Vec<(String, Wire)>,
    authority: Authority,
    names: Vec<String>,
    folder: &'a Path,
}

/// Whether a guest is there.
fn there(side: &WorldControl, vmid: u32) -> Result<(), String> {
    let found = side.config(vmid).map(|_| ());
    found.ok_or_else(|| format!("there is no guest {vmid}"))
}

impl Running<'_> {
    async fn carry_out(&mut self, order: Order) -> Result<Value, String> {
        let side = self.simulation.world.control();
        match order {
            Order::RenewCertificate => self.renew().map_err(|error| chain(&error)),
            Order::ReplaceCertificate => self.replace().map_err(|error| chain(&error)),
            Order::RenewAuthority => self.renew_authority().map_err(|error| chain(&error)),
            Order::ExpireTickets => {
                self.simulation.access.expire_tickets();
                Ok(Value::Null)
            }
            Order::Faults(None) => {
                side.set_faults(Faults::default());
                Ok(Value::Null)
            }
            Order::Faults(Some(path)) => {
                let faults = read(&path, "planned faults").map_err(|error| chain(&error))?;
                side.set_faults(faults);
                Ok(Value::Null)
            }
            Order::NodeDown(node) => {
                side.node_down(self.known(&node)?).await;
                Ok(Value::Null)
            }
            Order::NodeUp(node) => {
                side.node_up(self.known(&node)?);
                Ok(Value::Null)
            }
            Order::Isolate(node) => {
                side.set_partitioned(self.known(&node)?, true);
                Ok(Value::Null)
            }
            Order::Rejoin(node) => {
                side.set_partitioned(self.known(&node)?, false);
                Ok(Value::Null)
            }
            Order::Maintain(node, on) => {
                side.set_maintenance(self.known(&node)?, on);
                Ok(Value::Null)
            }
            Order::Lock(vmid, lock) => {
                there(&side, vmid)?;
                side.set_config(vmid, "lock", lock.as_deref());
                Ok(Value::Null)
            }
            Order::Move(vmid, node) => {
                there(&side, vmid)?;
                side.move_guest(vmid, self.known(&node)?);
                Ok(Value::Null)
            }
        }
    }

    fn known<'n>(&self, node: &'n str) -> Result<&'n str, String> {
        match self.names.iter().any(|name| name == node) {
            true => Ok(node),
            false => Err(format!("there is no node `{node}`, only {}", self.names.join(", "))),
        }
    }

    /// A new certificate of the cluster's own authority; an administrator's own one goes.
    fn renew(&self) -> Result<Value, SimError> {
        let made = self.authority.issue(&self.names)?;
        for (_, wire) in &self.wires {
            wire.swap(&made)?;
        }
        self.simulation.world.control().set_certificates((&made).into());
        Ok(json!({ "fingerprint": made.leaf_fingerprint }))
    }

    /// Another root of the cluster, as after its `/etc/pve/priv` was lost.
    fn renew_authority(&mut self) -> Result<Value, SimError> {
        self.authority = Authority::new(CLUSTER)?;
        let mut shown = self.renew()?;
        let ca_pem = self.simulation.world.control().certificates().ca_pem;
        shown["caFile"] = json!(self.write_ca("renewed-ca.pem", &ca_pem)?);
        Ok(shown)
    }

    fn write_ca(&self, name: &str, pem: &str) -> Result<PathBuf, SimError> {
        let file = self.folder.join(name);
        std::fs::write(&file, pem).map_err(|source| SimError::System {
            doing: "an authority's certificate cannot be written",
            source,
        })?;
        Ok(file)
    }

    /// A certificate of an authority that is none of the cluster's, whose own stays what it was.
    fn replace(&self) -> Result<Value, SimError> {
        let other = Authority::new("Somebody's own authority")?;
        let made = other.issue(&self.names)?;
        let ca_file = self.write_ca("other-ca.pem", &made.ca_pem)?;
        for (_, wire) in &self.wires {
            wire.swap(&made)?;
        }
        let side = self.simulation.world.control();
        let shown = Some((made.leaf_pem.clone(), made.leaf_fingerprint.clone()));
        side.set_certificates(Shown { proxy: shown, ..side.certificates() });
        Ok(json!({ "fingerprint": made.leaf_fingerprint, "caFile": ca_file }))
    }
}

/// A description without a password or a token of root gets fresh ones, for the first line.
fn with_credentials(
    mut spec: ClusterSpec,
    password: &str,
    secret: &str,
) -> Result<ClusterSpec, SimError> {
    if spec.nodes.is_empty() {
        return Err(SimError::Unusable("the cluster has no `nodes`: name at least one".into()));
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

fn record(path: &Path) -> Result<Arc<Record>, SimError> {
    let record = Record::create(path);
    record.map(Arc::new).map_err(|source| SimError::Unwritable { path: path.to_owned(), source })
}

fn guests(options: &Options, folder: &Path) -> Result<Arc<dyn GuestHost>, SimError> {
    let at_once = options.latency == "none";
    let quick = Duration::from_millis(50)..Duration::from_millis(150);
    match options.guests {
        GuestKind::None | GuestKind::Greeter => {
            let mut none = NoneOptions { seed: options.seed, ..NoneOptions::default() };
            if at_once {
                (none.boot, none.addressless, none.shutdown) =
                    (quick.clone(), quick.clone(), quick);
            }
            if options.guests == GuestKind::None {
                return Ok(Arc::new(NoneGuests::new(none)));
            }
            Ok(Arc::new(GreeterGuests::new(NoneOptions { ssh_port: GREETER_PORT, ..none })))
        }
        GuestKind::Process => {
            let mut process = ProcessOptions::new(folder.join("guests"));
            process.seed = options.seed;
            process.shared.clone_from(&options.shared);
            process.known = options.known.clone();
            if options.unisolated {
                process.isolation = Isolation::Unisolated;
            }
            if at_once {
                process.boot = quick;
            }
            Ok(Arc::new(ProcessGuests::new(process)?))
        }
        GuestKind::Qemu => Err(GuestKindError::Unavailable.into()),
    }
}
