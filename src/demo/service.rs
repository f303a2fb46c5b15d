//! The service of the demo: a child process that may be killed and is started again, and a second
//! one that follows its events.
//!
//! ```text
//! start -> Starting -- READY=1 --> Ready: follow its events
//!    ^         | ends, or STEP_TIMEOUT: the demo fails       | ends: ServiceEnded
//!    +-------------------------------------------------------+
//! ```
//!
//! A follower that ends while the service goes on is started again by [`DemoService::follow`], and
//! gets the events that are kept once more.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixDatagram;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::STEP_TIMEOUT;
use super::fault::DemoError;
use super::files::{DemoFiles, Page};

/// Notifications that wait to be read.
const NOTIFY_QUEUE_MAX: usize = 16;

/// What the service or its follower did.
#[derive(Debug)]
pub enum Happened {
    Event(Value),
    Ready,
    ServiceEnded(ExitStatus),
    FollowerEnded,
}

enum Run {
    Down,
    Starting { child: Child, deadline: Instant },
    Ready(Child),
}

pub struct DemoService {
    program: PathBuf,
    socket: PathBuf,
    yaml: PathBuf,
    log: PathBuf,
    page: Page,
    notify_socket: PathBuf,
    /// The notifications of the service. When the channel is full, new ones are dropped.
    notify: mpsc::Receiver<String>,
    run: Run,
    events: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

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

impl DemoService {
    /// A service that is down, on the files of the demo.
    ///
    /// # Errors
    /// When its notification socket cannot be made.
    pub fn new(files: &DemoFiles) -> Result<Self, DemoError> {
        let notify_socket = files.notify_socket();
        let notify = UnixDatagram::bind(&notify_socket).map_err(DemoError::system)?;
        Ok(Self {
            program: std::env::current_exe().map_err(DemoError::system)?,
            socket: files.socket(),
            yaml: files.yaml_file(),
            log: files.log_file(),
            page: files.page().clone(),
            notify_socket,
            notify: receive_notifications(notify),
            run: Run::Down,
            events: None,
        })
    }

    /// A command of drover for this service. Its process dies with this one.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["DROVER_", "PROXMOX_", "PVE_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env_remove("STATE_DIRECTORY").env_remove("WATCHDOG_USEC");
        command.arg("--die-with").arg(std::process::id().to_string());
        command.arg("--socket").arg(&self.socket);
        // In its own process group, so that Ctrl-C reaches only the demo, which then stops
        // everything in order.
        command.stdin(Stdio::null()).kill_on_drop(true).process_group(0);
        command
    }

    /// Starts the service; [`Happened::Ready`] follows.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn start(&mut self) -> Result<(), DemoError> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        let mut command = self.command();
        command.arg("--config").arg(&self.yaml).arg("run");
        command.env("NOTIFY_SOCKET", &self.notify_socket);
        command.stdout(Stdio::null()).stderr(log.map_err(DemoError::system)?);
        // Notifications of an earlier service are out of date.
        while self.notify.try_recv().is_ok() {}
        let child = command.spawn().map_err(DemoError::system)?;
        self.run = Run::Starting { child, deadline: Instant::now() + STEP_TIMEOUT };
        Ok(())
    }

    /// Follows the events of a service that is ready, if nothing does. True when it started to.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub fn follow(&mut self) -> Result<bool, DemoError> {
        let Run::Ready(service) = &mut self.run else { return Ok(false) };
        let is_over = service.try_wait().map_err(DemoError::system)?.is_some();
        if is_over || self.events.is_some() {
            return Ok(false);
        }
        let mut follow = self.command();
        // From the first event that the service keeps, so that none is missed.
        follow.args(["--json", "events", "--since", "1d"]);
        let mut child = follow
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(DemoError::system)?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| DemoError::system(io::Error::other("the event stream has no output")))?;
        self.events = Some((child, BufReader::new(stdout).lines()));
        Ok(true)
    }

    /// What happens next; it can be cancelled without loss.
    ///
    /// # Errors
    /// [`DemoError::Service`] when the service does not become ready.
    pub async fn next(&mut self) -> Result<Happened, DemoError> {
        loop {
            let deadline = match &self.run {
                Run::Starting { deadline, .. } => Some(*deadline),
                Run::Down | Run::Ready(_) => None,
            };
            tokio::select! {
                ended = ended(&mut self.run) => {
                    let was_ready = matches!(self.run, Run::Ready(_));
                    self.run = Run::Down;
                    let status = ended.map_err(DemoError::system)?;
                    return match was_ready {
                        true => Ok(Happened::ServiceEnded(status)),
                        false => Err(self.not_ready()),
                    };
                }
                text = self.notify.recv() => {
                    let is_ready = text.is_some_and(|text| text.lines().any(|l| l == "READY=1"));
                    if is_ready && self.became_ready() {
                        return Ok(Happened::Ready);
                    }
                }
                () = reached(deadline) => return Err(self.not_ready()),
                line = next_line(&mut self.events) => {
                    let Some(line) = line else {
                        self.events = None;
                        return Ok(Happened::FollowerEnded);
                    };
                    if let Ok(event) = serde_json::from_str::<Value>(&line) {
                        return Ok(Happened::Event(event));
                    }
                }
            }
        }
    }

    fn became_ready(&mut self) -> bool {
        match std::mem::replace(&mut self.run, Run::Down) {
            Run::Starting { child, .. } => {
                self.run = Run::Ready(child);
                true
            }
            other @ (Run::Down | Run::Ready(_)) => {
                self.run = other;
                false
            }
        }
    }

    fn not_ready(&self) -> DemoError {
        DemoError::Service { what: "the service did not become ready", log: self.log_end() }
    }

    /// The service did not end.
    pub fn did_not_end(&self) -> DemoError {
        DemoError::Service { what: "the service did not end", log: self.log_end() }
    }

    /// Whether no service runs.
    pub fn is_down(&self) -> bool {
        matches!(self.run, Run::Down)
    }

    /// The process id of the service.
    pub fn pid(&self) -> Option<u32> {
        match &self.run {
            Run::Down => None,
            Run::Starting { child, .. } | Run::Ready(child) => child.id(),
        }
    }

    /// Sends a signal to the service, if it runs.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&self, signal: rustix::process::Signal) -> Result<(), DemoError> {
        let pid = self.pid().and_then(|id| i32::try_from(id).ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return Ok(()) };
        rustix::process::kill_process(pid, signal).map_err(|error| DemoError::system(error.into()))
    }

    /// The end of the service's log.
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Commands to try while the demo keeps running.
    pub fn next_steps(&self) -> String {
        let pid = self.pid().unwrap_or_default();
        format!(
            "the demo keeps running; its page in a browser:\n\
             \n  {page}\n\
             \nin another terminal:\n\
             \n  export DROVER_SOCKET={socket}\n  {drover} status\n  \
             {drover} top    # the same live; q ends it\n  \
             {drover} lease --labels linux -- uname -a\n  \
             # a valid edit is reloaded, an invalid one reported:\n  \
             $EDITOR {yaml}\n  \
             kill -USR1 {pid}    # reap\n  \
             kill -USR2 {pid}    # resync\n  \
             kill -HUP {pid}     # reload\n  \
             # the demo starts the service again, and it adopts its agents:\n  \
             kill -9 {pid}\n\
             \nCtrl-C ends the demo and leaves nothing behind.\n",
            page = self.page.shown(),
            socket = self.socket.display(),
            drover = self.program.display(),
            yaml = self.yaml.display(),
        )
    }
}

async fn ended(run: &mut Run) -> io::Result<ExitStatus> {
    match run {
        Run::Down => std::future::pending().await,
        Run::Starting { child, .. } | Run::Ready(child) => child.wait().await,
    }
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The next line of the follower; none when it ended.
async fn next_line(events: &mut Option<(Child, Lines<BufReader<ChildStdout>>)>) -> Option<String> {
    match events {
        Some((_, lines)) => lines.next_line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}
