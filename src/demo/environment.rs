//! The environment of the demo: a simulated cluster in this process, the service as its child
//! process, and the files of both. Its end removes everything.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use drover_ssh::PrivateKey;
use pve_sim::api::certificates::Certificates;
use pve_sim::api::https::{HttpsError, HttpsServer};
use pve_sim::guests::{IsolationError, KnownCommands, ProcessGuests, ProcessOptions};
use pve_sim::simulation::{Simulation, SimulationOptions};
use pve_sim::spec::ClusterSpec;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixDatagram;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;

use super::jobs::{self, ExpectedOutcome, Job};
use super::leftovers;
use super::screen::Screen;
use super::{Outcome, STEP_TIMEOUT};
use crate::known;
use drover_model::phase::LeasePhase;

/// How long to wait for the last events after the end of the service.
const FINAL_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the demo checks the service and the jobs.
pub const SUPERVISION_INTERVAL: Duration = Duration::from_millis(250);

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The process guests cannot run.
    #[error(transparent)]
    Guests(#[from] IsolationError),
    #[error("cannot create certificates")]
    Certificates(#[from] rcgen::Error),
    /// The simulated cluster's HTTPS server did not start.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// The service did not become ready, or did not stop.
    #[error("{what}; the end of its log:\n{log}")]
    Service {
        /// What did not happen.
        what: &'static str,
        /// The last lines of the service's log.
        log: String,
    },
    /// The operating system refused a file, process or socket.
    #[error("the operating system refused a request of the demo")]
    System(#[source] io::Error),
    /// The terminal, pipe or file took nothing.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
}

impl DemoError {
    pub fn system(source: io::Error) -> Self {
        Self::System(source)
    }
}

pub struct DemoEnvironment {
    simulation: Simulation,
    server: HttpsServer,
    guests: Arc<ProcessGuests>,
    folder: tempfile::TempDir,
    program: PathBuf,
    /// The notifications of the service. When the channel is full, new ones are dropped.
    notify: mpsc::Receiver<String>,
    service: Option<Child>,
    events: Option<(Child, Lines<BufReader<ChildStdout>>)>,
    agents_to_kill: BTreeSet<String>,
    keep: bool,
    initial_volumes: Vec<String>,
}

/// Notifications that wait to be read.
const NOTIFY_QUEUE_MAX: usize = 16;

/// Reads the service's notification socket all the time: a full socket would block the service.
fn receive_notifications(socket: UnixDatagram) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(NOTIFY_QUEUE_MAX);
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

impl DemoEnvironment {
    /// Starts the cluster and writes the files. [`DemoEnvironment::start_service`] starts the
    /// service.
    ///
    /// # Errors
    /// See [`DemoError`].
    pub async fn start(seed: u64, keep: bool) -> Result<Self, DemoError> {
        leftovers::remove_dead(&std::env::temp_dir(), Path::new("/proc"));
        let folder = tempfile::Builder::new().prefix(leftovers::PREFIX).tempdir();
        let folder = folder.map_err(DemoError::system)?;
        leftovers::claim(folder.path()).map_err(DemoError::system)?;
        let secret = uuid::Uuid::new_v4().to_string();
        let spec = ClusterSpec::three_nodes(&uuid::Uuid::new_v4().to_string(), &secret);
        let mut options = ProcessOptions::new(folder.path().join("guests"));
        options.seed = seed;
        options.boot = Duration::from_millis(500)..Duration::from_millis(1500);
        let known = known::commands();
        let may_run = Arc::clone(&known.may_run);
        let may_run = Arc::new(move |line: &str| may_run(line) || jobs::is_demo_job(line));
        options.known_commands = KnownCommands { may_run, ..known };
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
        let server = simulation.listen(([127, 0, 0, 1], 0).into()).await?;
        let notify = UnixDatagram::bind(folder.path().join("notify")).map_err(DemoError::system)?;
        let notify = receive_notifications(notify);
        let program = std::env::current_exe().map_err(DemoError::system)?;
        let environment = Self {
            initial_volumes: Vec::new(),
            simulation,
            server,
            guests,
            folder,
            program,
            notify,
            service: None,
            events: None,
            agents_to_kill: BTreeSet::new(),
            keep,
        };
        environment.write_files(&secret).map_err(DemoError::system)?;
        Ok(Self { initial_volumes: environment.volumes(), ..environment })
    }

    pub fn isolated(&self) -> bool {
        self.guests.is_isolated()
    }

    fn write_files(&self, secret: &str) -> io::Result<()> {
        let dir = self.folder.path();
        let key = PrivateKey::from_seed(&rand::random(), "drover-demo");
        let text = key.to_openssh().map_err(io::Error::other)?;
        write_private(&dir.join("agent-key"), text.expose_secret())?;
        write_private(&dir.join("proxmox-token"), secret)?;
        std::fs::write(dir.join("ca.pem"), &self.server.ca_pem)?;
        std::fs::write(dir.join("drover.yaml"), self.yaml())
    }

    fn yaml(&self) -> String {
        include_str!("demo.yaml")
            .replace("DIR", &self.folder.path().display().to_string())
            .replace("URL", &format!("https://{}", self.server.addr))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("drover.sock")
    }

    fn drover_command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["DROVER_", "PROXMOX_", "PVE_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env_remove("STATE_DIRECTORY").env_remove("WATCHDOG_USEC");
        command.arg("--socket").arg(self.socket());
        // In its own process group, so that Ctrl-C reaches only the demo, which then stops
        // everything in order.
        command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        command
    }

    /// Starts the service, waits until it is ready, and follows its events.
    ///
    /// # Errors
    /// [`DemoError::Service`] when the service does not become ready.
    pub async fn start_service(&mut self) -> Result<(), DemoError> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())
            .map_err(DemoError::system)?;
        let mut command = self.drover_command();
        command.arg("--config").arg(self.folder.path().join("drover.yaml")).arg("run");
        // The service must die with this process, which has the cluster.
        command.arg("--die-with").arg(std::process::id().to_string());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        command.stdout(Stdio::null()).stderr(log);
        // Notifications of an earlier service are out of date.
        while self.notify.try_recv().is_ok() {}
        self.service = Some(command.spawn().map_err(DemoError::system)?);
        self.wait_for_notification("READY=1", "the service did not become ready").await?;
        let mut follow = self.drover_command();
        follow.args(["--json", "events"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = follow.spawn().map_err(DemoError::system)?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| DemoError::system(io::Error::other("the event stream has no output")))?;
        self.events = Some((child, BufReader::new(stdout).lines()));
        Ok(())
    }

    async fn wait_for_notification(
        &mut self,
        wanted: &str,
        what: &'static str,
    ) -> Result<(), DemoError> {
        let notify = &mut self.notify;
        let received = async {
            while let Some(text) = notify.recv().await {
                if text.lines().any(|line| line == wanted) {
                    return Ok(());
                }
            }
            Err(io::Error::other("the service's notification socket was closed"))
        };
        let service = self.service.as_mut();
        let ended = async {
            match service {
                Some(service) => service.wait().await.map(|_| ()),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            received = tokio::time::timeout(STEP_TIMEOUT, received) => match received {
                Ok(received) => received.map_err(DemoError::system),
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

    /// The command that leases a machine and runs a job on it.
    pub fn lease_command(&self, job: &Job) -> Command {
        let mut command = self.drover_command();
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
                    self.note_lease(&event);
                    return Some(event);
                }
                Ok(None) | Err(_) => self.events = None,
            }
        }
    }

    /// Remembers the agents whose job must lose its VM.
    fn note_lease(&mut self, event: &Value) {
        let lease = &event["lease"];
        let loses_its_vm = |job: &&Job| job.expected == ExpectedOutcome::LosesItsVm;
        let mut losing = jobs::BATCH.iter().filter(loses_its_vm);
        if losing.any(|job| lease["owner"] == job.name)
            && lease["state"] == LeasePhase::Ready.name()
            && let Some(agent) = lease["agent"].as_str()
        {
            self.agents_to_kill.insert(agent.to_owned());
        }
    }

    /// Kills the VMs of jobs that must lose theirs, and starts a service that ended, as systemd
    /// would.
    ///
    /// # Errors
    /// When the service does not become ready again.
    pub async fn supervise(&mut self, screen: &mut Screen) -> Result<(), DemoError> {
        screen.refresh();
        for agent in std::mem::take(&mut self.agents_to_kill) {
            if let Some(vmid) = screen.vmid(&agent) {
                screen.say(&format!("killing VM {vmid} while its job runs"));
                self.simulation.world.control().kill_guest(vmid).await;
            }
        }
        let ended = match &mut self.service {
            Some(service) => service.try_wait().map_err(DemoError::system)?,
            None => None,
        };
        if let Some(status) = ended {
            let text = format!("the service ended ({status}); starting it again, as systemd would");
            screen.say(&text);
            self.start_service().await?;
        }
        Ok(())
    }

    /// Stops the service, which retires all agents; then lists what is left. True when nothing is
    /// left.
    ///
    /// # Errors
    /// When the service does not stop.
    pub async fn tear_down(mut self, screen: &mut Screen) -> Result<bool, DemoError> {
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
                    event = self.next_event() => screen.event(&event),
                }
            }
        };
        let ended = tokio::time::timeout(STEP_TIMEOUT, ended).await;
        if !matches!(ended, Ok(Ok(()))) {
            return Err(DemoError::Service { what: "the service did not end", log: self.log() });
        }
        // The last events, such as the end of an agent, can still arrive.
        let rest = async {
            while let Some(event) = self.event().await {
                screen.event(&event);
            }
        };
        // Without them only the lines of agents are out of date.
        let _ = tokio::time::timeout(FINAL_EVENTS_TIMEOUT, rest).await;
        let side = self.simulation.world.control();
        let templates = [9000, 9001, 9002];
        let guests: Vec<u32> =
            side.guests().into_iter().filter(|vmid| !templates.contains(vmid)).collect();
        let volumes = self.volumes();
        let clean = guests.is_empty() && volumes == self.initial_volumes;
        if !clean {
            screen.say(&format!("LEFT BEHIND: guests {guests:?}, volumes {volumes:?}"));
            screen.say(&self.log());
        }
        self.server.stop().await;
        drop(self.simulation);
        drop(self.guests);
        if self.keep {
            leftovers::keep(self.folder.path());
            screen.say(&format!("the files are kept in {}", self.folder.keep().display()));
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

    /// Commands to try while the demo keeps running.
    pub fn next_steps(&self) -> String {
        let pid = self.service.as_ref().and_then(Child::id).unwrap_or_default();
        format!(
            "the demo keeps running; in another terminal:\n\
             \n  export DROVER_SOCKET={socket}\n  {drover} status\n  \
             {drover} lease --labels linux -- uname -a\n  \
             $EDITOR {yaml}    # drover reloads a valid edit and reports an invalid one\n  \
             kill -USR1 {pid}    # reap\n  \
             kill -USR2 {pid}    # resync\n  \
             kill -HUP {pid}     # reload\n  \
             kill -9 {pid}     # the demo starts the service again, and it adopts its agents\n\
             \nCtrl-C ends the demo and leaves nothing behind.\n",
            socket = self.socket().display(),
            drover = self.program.display(),
            yaml = self.folder.path().join("drover.yaml").display(),
        )
    }
}

/// Runs a job to its end, and compares its outcome.
///
/// # Errors
/// When the command cannot be started.
pub async fn run_job(job: Job, mut command: Command) -> Result<Outcome, DemoError> {
    let out = command.output().await.map_err(DemoError::system)?;
    let mut text = String::from_utf8_lossy(&out.stdout).trim_end().to_owned();
    if text.is_empty() || !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr);
        text = format!("{text}\n{}", stderr.trim_end());
    }
    Ok(Outcome::new(job, out.status.code(), text.trim().to_owned()))
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}
