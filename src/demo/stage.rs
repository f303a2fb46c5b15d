//! The demo's stage: a simulated cluster in this process, the service as a child of it, and the
//! files both need, all of which are gone when the stage is struck.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use drover_ssh::PrivateKey;
use pve_sim::door::certificates::Certificates;
use pve_sim::door::wire::{Wire, WireError};
use pve_sim::guests::{IsolationError, KnownCommands, ProcessGuests, ProcessOptions};
use pve_sim::simulation::{Simulation, SimulationOptions};
use pve_sim::spec::ClusterSpec;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixDatagram;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

use super::jobs::{self, Fate, Job};
use super::leftovers;
use super::show::Show;
use super::{Outcome, PATIENCE};
use crate::known;
use drover_model::phase::LeasePhase;

/// How long the last events may be on their way.
const LAST_EVENTS: Duration = Duration::from_secs(5);
/// How often the stage is looked after.
pub const TICK: Duration = Duration::from_millis(250);

/// Why the demo cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Guests cannot be run.
    #[error(transparent)]
    Guests(#[from] IsolationError),
    /// No certificates can be made.
    #[error("no certificates can be made")]
    Certificates(#[from] rcgen::Error),
    /// The simulated cluster cannot listen.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The service did not come up or did not end.
    #[error("{what}; its log says:\n{log}")]
    Service {
        /// What it did not do.
        what: &'static str,
        /// The end of its log.
        log: String,
    },
    /// The system refused something.
    #[error("the system refused something")]
    System(#[source] io::Error),
}

impl DemoError {
    /// Wraps what the system said.
    pub fn system(source: io::Error) -> Self {
        Self::System(source)
    }
}

/// The stage.
pub struct Stage {
    simulation: Simulation,
    wire: Wire,
    guests: Arc<ProcessGuests>,
    folder: tempfile::TempDir,
    program: PathBuf,
    /// What the service said of itself, each message once; the newest are lost where nobody hears them.
    notify: mpsc::Receiver<String>,
    service: Option<Child>,
    events: Option<(Child, Lines<BufReader<ChildStdout>>)>,
    doomed: BTreeSet<String>,
    keep: bool,
    initial_volumes: Vec<String>,
}

/// Messages of the service that wait until somebody hears them.
const MOST_HEARD: usize = 16;

/// Takes the service's messages off its socket at all times: a full one would hold it up.
fn heard_by(socket: UnixDatagram) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(MOST_HEARD);
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(length) = socket.recv(&mut buffer).await {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if matches!(sender.try_send(text), Err(mpsc::error::TrySendError::Closed(_))) {
                return;
            }
        }
    });
    receiver
}

impl Stage {
    /// Makes the cluster and the files; the service is started apart.
    ///
    /// # Errors
    /// [`DemoError`].
    pub async fn set(seed: u64, keep: bool) -> Result<Self, DemoError> {
        leftovers::sweep(&std::env::temp_dir(), Path::new("/proc"));
        let folder = tempfile::Builder::new().prefix(leftovers::PREFIX).tempdir();
        let folder = folder.map_err(DemoError::system)?;
        leftovers::own(folder.path()).map_err(DemoError::system)?;
        let secret = uuid::Uuid::new_v4().to_string();
        let spec = ClusterSpec::three_nodes(&uuid::Uuid::new_v4().to_string(), &secret);
        let mut options = ProcessOptions::new(folder.path().join("guests"));
        options.seed = seed;
        options.boot = Duration::from_millis(500)..Duration::from_millis(1500);
        let known = known::commands();
        let may_run = Arc::clone(&known.may_run);
        let may_run = Arc::new(move |line: &str| may_run(line) || jobs::is_ours(line));
        options.known = KnownCommands { may_run, ..known };
        let guests = Arc::new(ProcessGuests::new(options)?);
        let names: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
        let certificates = Certificates::generate(&names)?;
        let simulation = Simulation::new(
            &spec,
            SimulationOptions {
                seed,
                epoch: pve_sim::clock::unix_now(),
                ..SimulationOptions::default()
            },
            certificates,
            Arc::clone(&guests) as _,
        );
        let wire = simulation.listen(([127, 0, 0, 1], 0).into()).await?;
        let notify = UnixDatagram::bind(folder.path().join("notify")).map_err(DemoError::system)?;
        let notify = heard_by(notify);
        let program = std::env::current_exe().map_err(DemoError::system)?;
        let stage = Self {
            initial_volumes: Vec::new(),
            simulation,
            wire,
            guests,
            folder,
            program,
            notify,
            service: None,
            events: None,
            doomed: BTreeSet::new(),
            keep,
        };
        stage.write_files(&secret).map_err(DemoError::system)?;
        Ok(Self { initial_volumes: stage.volumes(), ..stage })
    }

    /// Whether guests run in namespaces of their own.
    pub fn isolated(&self) -> bool {
        self.guests.is_isolated()
    }

    fn write_files(&self, secret: &str) -> io::Result<()> {
        let dir = self.folder.path();
        let key = PrivateKey::from_seed(&rand::random(), "drover-demo");
        let text = key.to_openssh().map_err(io::Error::other)?;
        write_private(&dir.join("agent-key"), text.expose_secret())?;
        write_private(&dir.join("proxmox-token"), secret)?;
        std::fs::write(dir.join("ca.pem"), &self.wire.ca_pem)?;
        std::fs::write(dir.join("drover.yaml"), self.yaml())
    }

    fn yaml(&self) -> String {
        include_str!("demo.yaml")
            .replace("DIR", &self.folder.path().display().to_string())
            .replace("URL", &format!("https://{}", self.wire.addr))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("drover.sock")
    }

    fn drover(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["DROVER_", "PROXMOX_", "PVE_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env_remove("STATE_DIRECTORY").env_remove("WATCHDOG_USEC");
        command.arg("--socket").arg(self.socket());
        // A group of its own: Ctrl-C is for the demo, which then ends everything in order.
        command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        command
    }

    /// Starts the service and waits until it says that it is ready.
    ///
    /// # Errors
    /// [`DemoError::Service`] when it does not come up.
    pub async fn start_service(&mut self) -> Result<(), DemoError> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .map_err(DemoError::system)?;
        let mut command = self.drover();
        command.arg("--config").arg(self.folder.path().join("drover.yaml")).arg("run");
        // Its cluster is in this process: without it there is nothing to end in order.
        command.arg("--die-with").arg(std::process::id().to_string());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.stdout(Stdio::null()).stderr(log);
        // What an earlier one said is of no use.
        while self.notify.try_recv().is_ok() {}
        self.service = Some(command.spawn().map_err(DemoError::system)?);
        self.hear("READY=1", "the service did not become ready").await?;
        let mut follow = self.drover();
        follow.args(["--json", "events"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = follow.spawn().map_err(DemoError::system)?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| DemoError::system(io::Error::other("the event stream has no output")))?;
        self.events = Some((child, BufReader::new(stdout).lines()));
        Ok(())
    }

    async fn hear(&mut self, wanted: &str, what: &'static str) -> Result<(), DemoError> {
        let notify = &mut self.notify;
        let heard = async {
            while let Some(text) = notify.recv().await {
                if text.lines().any(|line| line == wanted) {
                    return Ok(());
                }
            }
            Err(io::Error::other("nothing is heard of the service any more"))
        };
        let service = self.service.as_mut();
        let ended = async {
            match service {
                Some(service) => service.wait().await.map(|_| ()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            heard = tokio::time::timeout(PATIENCE, heard) => match heard {
                Ok(heard) => heard.map_err(DemoError::system),
                Err(_) => Err(DemoError::Service { what, log: self.log() }),
            },
            _ = ended => Err(DemoError::Service { what, log: self.log() }),
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("drover.log")
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// The command that leases a machine for a job.
    pub fn lease(&self, job: &Job) -> Command {
        let mut command = self.drover();
        command.args(["lease", "--labels", "linux", "--ttl", "5m", "--owner", job.name, "--"]);
        command.arg(job.command).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The next event; waits for ever while the service is down.
    pub async fn next_event(&mut self) -> Value {
        match self.event().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// The next event; none once the service is down.
    async fn event(&mut self) -> Option<Value> {
        loop {
            let (_, lines) = self.events.as_mut()?;
            match lines.next_line().await {
                Ok(Some(line)) => {
                    let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
                    self.note(&event);
                    return Some(event);
                }
                Ok(None) | Err(_) => self.events = None,
            }
        }
    }

    /// Remembers where doomed jobs run.
    fn note(&mut self, event: &Value) {
        let lease = &event["lease"];
        let doomed = jobs::BATCH.iter().filter(|job| job.fate == Fate::LosesItsMachine);
        let owned = doomed.into_iter().any(|job| lease["owner"] == job.name);
        if owned
            && lease["state"] == LeasePhase::Ready.name()
            && let Some(agent) = lease["agent"].as_str()
        {
            self.doomed.insert(agent.to_owned());
        }
    }

    /// Kills machines under doomed jobs, and starts a service that died, as systemd would.
    ///
    /// # Errors
    /// When the service does not come up again.
    pub async fn look_after(&mut self, show: &mut Show) -> Result<(), DemoError> {
        show.refresh();
        for agent in std::mem::take(&mut self.doomed) {
            if let Some(vmid) = show.vmid(&agent) {
                show.say(&format!("pulling the plug of vm {vmid} under its job"));
                self.simulation.world.control().kill_guest(vmid).await;
            }
        }
        let ended = match &mut self.service {
            Some(service) => service.try_wait().map_err(DemoError::system)?,
            None => None,
        };
        if let Some(status) = ended {
            show.say(&format!("the service ended ({status}); starting it again, as systemd would"));
            self.start_service().await?;
        }
        Ok(())
    }

    /// Ends the service, which retires every agent, and looks whether anything is left.
    ///
    /// # Errors
    /// When the service does not end.
    pub async fn strike(mut self, show: &mut Show) -> Result<bool, DemoError> {
        let dead = match &mut self.service {
            Some(service) => service.try_wait().map_err(DemoError::system)?.is_some(),
            None => true,
        };
        if dead {
            self.start_service().await?;
        }
        self.terminate()?;
        let Some(mut service) = self.service.take() else { return Ok(false) };
        let ended = async {
            loop {
                tokio::select! {
                    status = service.wait() => return status.map(|_| ()),
                    event = self.next_event() => show.event(&event),
                }
            }
        };
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        if !matches!(ended, Ok(Ok(()))) {
            return Err(DemoError::Service { what: "the service did not end", log: self.log() });
        }
        // The last events are still on their way, such as that an agent is gone.
        let rest = async {
            while let Some(event) = self.event().await {
                show.event(&event);
            }
        };
        // Without them only lines of agents are out of date.
        let _ = tokio::time::timeout(LAST_EVENTS, rest).await;
        let side = self.simulation.world.control();
        let templates = [9000, 9001, 9002];
        let guests: Vec<u32> =
            side.guests().into_iter().filter(|vmid| !templates.contains(vmid)).collect();
        let volumes = self.volumes();
        let clean = guests.is_empty() && volumes == self.initial_volumes;
        if !clean {
            show.say(&format!("LEFT BEHIND: guests {guests:?}, volumes {volumes:?}"));
            show.say(&self.log());
        }
        self.wire.stop().await;
        drop(self.simulation);
        drop(self.guests);
        if self.keep {
            leftovers::keep(self.folder.path());
            show.say(&format!("kept: {}", self.folder.keep().display()));
        } else {
            self.folder.close().map_err(DemoError::system)?;
        }
        Ok(clean)
    }

    fn terminate(&self) -> Result<(), DemoError> {
        let pid = self.service.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return Ok(()) };
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| DemoError::system(error.into()))
    }

    fn volumes(&self) -> Vec<String> {
        let side = self.simulation.world.control();
        let mut all: Vec<String> = ["pve1", "pve2", "pve3"]
            .iter()
            .flat_map(|node| {
                ["local-lvm", "shared"].map(|storage| side.volumes(node, storage)).concat()
            })
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// What to try while the demo goes on.
    pub fn how_to_go_on(&self) -> String {
        let pid = self.service.as_ref().and_then(Child::id).unwrap_or_default();
        format!(
            "the demo goes on; in another terminal:\n\
             \n  export DROVER_SOCKET={socket}\n  {drover} status\n  \
             {drover} lease --labels linux -- uname -a\n  \
             $EDITOR {yaml}    # watched: a good edit comes into force, a bad one is shown\n  \
             kill -USR1 {pid}    # reap      kill -USR2 {pid}    # resync      kill -HUP {pid}    # reload\n  \
             kill -9 {pid}     # the service is started again and adopts its agents\n\
             \nCtrl-C ends it and leaves nothing behind.\n",
            socket = self.socket().display(),
            drover = self.program.display(),
            yaml = self.folder.path().join("drover.yaml").display(),
        )
    }
}

/// Runs a job to its end.
///
/// # Errors
/// When its command cannot be started.
pub async fn finish(job: Job, mut command: Command) -> Result<Outcome, DemoError> {
    let out = command.output().await.map_err(DemoError::system)?;
    let mut text = String::from_utf8_lossy(&out.stdout).trim_end().to_owned();
    if text.is_empty() || !out.status.success() {
        let erred = String::from_utf8_lossy(&out.stderr);
        text = format!("{text}\n{}", erred.trim_end());
    }
    Ok(Outcome::new(job, out.status.code(), text.trim().to_owned()))
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
