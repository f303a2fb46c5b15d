//! One running guest, from its start through reboots to its end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use drover_ssh::PrivateKey;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpSocket};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::agent::Processes;
use super::disk::Disk;
use super::identity::GuestIdentity;
use super::known_commands::KnownCommands;
use super::sandbox::{EXIT_POWER_OFF, EXIT_REBOOT, Sandbox, StartupReport};
use super::{leftovers, server};
use crate::guest::{GuestAddress, GuestBoot};
use crate::guests::spawner::Spawner;

/// The first process must report within this time that it is ready.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);

/// What all guests of a host have in common.
#[derive(Clone)]
pub(super) struct HostContext {
    pub sandbox: Arc<Sandbox>,
    pub spawner: Arc<Spawner>,
    pub known_commands: KnownCommands,
    pub port: u16,
}

/// One guest, shared by its sessions, its agent and the task that runs it.
pub(super) struct Machine {
    pub host: HostContext,
    pub disk: Disk,
    pub identity: GuestIdentity,
    pub processes: Processes,
    /// Reserves the address until the guest listens on it; the first boot takes it.
    reserved: Mutex<Option<TcpSocket>>,
    /// Whether the guest is halted, so that new connections get no answer.
    paused: watch::Sender<bool>,
    state: watch::Sender<PowerState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PowerState {
    Booting { first_process: Option<u32> },
    Up { first_process: Option<u32>, address: SocketAddr },
    Off,
}

/// A running first process.
pub(super) struct FirstProcess {
    child: Child,
    first_process: Option<u32>,
}

/// Connections that can wait for `accept`.
const BACKLOG: u32 = 1024;

impl Machine {
    pub(super) fn new(
        host: HostContext,
        disk: Disk,
        identity: GuestIdentity,
        reserved: TcpSocket,
    ) -> Self {
        Self {
            host,
            disk,
            identity,
            processes: Processes::default(),
            reserved: Mutex::new(Some(reserved)),
            paused: watch::Sender::new(false),
            state: watch::Sender::new(PowerState::Booting { first_process: None }),
        }
    }

    /// Prepares the disk and starts the first process.
    pub(super) async fn power_on(
        &self,
        boot: &GuestBoot,
    ) -> Result<(FirstProcess, PrivateKey), String> {
        // A killed simulator can leave processes behind.
        self.kill_leftovers();
        let key = self.disk.prepare(boot, &self.identity).map_err(|error| error.to_string())?;
        let command = self.host.sandbox.first_process(&self.disk, &self.identity);
        let mut child = self
            .spawn(command, Stdio::null(), true)
            .await
            .map_err(|error| format!("failed to start the guest's first process: {error}"))?;
        let report = tokio::time::timeout(STARTUP_TIMEOUT, read_startup_report(&mut child)).await;
        let Ok(Some(first_process)) = report else {
            return Err(format!("the guest's first process failed: {}", stderr_of(child).await));
        };
        self.set_state(PowerState::Booting { first_process });
        Ok((FirstProcess { child, first_process }, key))
    }

    /// Runs the guest until it ends by itself or `stop` becomes true; a reboot starts it again.
    pub(super) async fn run(
        self: Arc<Self>,
        mut boot: GuestBoot,
        mut init: FirstProcess,
        mut key: PrivateKey,
        delay: impl Fn(u32) -> Duration + Send,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let first_process = init.first_process;
            let up = async {
                if !boot.resumed {
                    tokio::time::sleep(delay(boot.boot)).await;
                }
                self.serve(first_process, &key).await;
            };
            let ended = tokio::select! {
                status = init.child.wait() => status.ok().and_then(|status| status.code()),
                () = up => None,
                _ = stop.wait_for(|stop| *stop) => None,
            };
            self.set_state(PowerState::Booting { first_process: None });
            self.kill_all(&mut init).await;
            tracing::debug!(vmid = boot.vmid, ?ended, "guest ended");
            if ended != Some(EXIT_REBOOT) {
                if ended.is_some_and(|status| status != EXIT_POWER_OFF) {
                    tracing::warn!(
                        vmid = boot.vmid,
                        ?ended,
                        "the guest's first process was killed"
                    );
                }
                break;
            }
            boot.boot += 1;
            boot.resumed = false;
            match self.power_on(&boot).await {
                Ok((next, same)) => (init, key) = (next, same),
                Err(reason) => {
                    tracing::warn!(vmid = boot.vmid, %reason, "the guest failed to reboot");
                    break;
                }
            }
        }
        self.set_state(PowerState::Off);
    }

    /// Serves SSH until the future is dropped, which ends all sessions.
    async fn serve(self: &Arc<Self>, first_process: Option<u32>, key: &PrivateKey) {
        let address = SocketAddr::from((self.identity.address, self.host.port));
        let reserved = self.reserved.lock().take();
        let bound = match reserved {
            // A reboot can bind again while old connections are closing.
            Some(socket) => socket.set_reuseaddr(true).and_then(|()| socket.listen(BACKLOG)),
            None => TcpListener::bind(address).await,
        };
        let listener = match bound {
            Ok(listener) => Some(listener),
            Err(error) => {
                // A machine is up even when its sshd fails.
                let vmid = self.identity.vmid;
                tracing::warn!(vmid, %address, %error, "the guest's SSH server cannot listen");
                None
            }
        };
        self.set_state(PowerState::Up { first_process, address });
        match listener {
            Some(listener) => server::serve(listener, Arc::clone(self), key).await,
            None => std::future::pending().await,
        }
    }

    async fn kill_all(&self, init: &mut FirstProcess) {
        self.processes.clear();
        // The process id is certain to be bubblewrap's child only while bubblewrap was not reaped.
        if init.child.id().is_some()
            && let Some(first) = init.first_process.and_then(pid_of)
        {
            // The kernel ends a first process after all others of its namespace, so that no process
            // is left when bubblewrap has seen it end.
            let _gone = kill_process(first, Signal::KILL);
            let _slow = tokio::time::timeout(Duration::from_secs(5), init.child.wait()).await;
        }
        // Both fail only when the process has ended.
        let _sent = init.child.start_kill();
        let _ended = init.child.wait().await;
        self.kill_leftovers();
    }

    /// Kills the processes of a guest without a namespace; a variable in their environment
    /// identifies them.
    pub(super) fn kill_leftovers(&self) {
        if !self.host.sandbox.is_isolated() {
            let mark = format!("GUEST_RUN={}", self.disk.run_folder().display());
            leftovers::kill_marked(&mark);
        }
    }

    pub(super) fn set_paused(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    pub(super) async fn wait_until_not_paused(&self) {
        let mut halts = self.paused.subscribe();
        // The sender lives as long as the machine.
        let _alive = halts.wait_for(|paused| !paused).await.is_ok();
    }

    pub(super) fn is_running(&self) -> bool {
        self.state() != PowerState::Off
    }

    /// Where the guest's SSH server listens; none before the guest is up.
    pub(super) fn ssh_address(&self) -> Option<GuestAddress> {
        match self.state() {
            PowerState::Up { address, .. } => {
                Some(GuestAddress { ip: address.ip(), port: address.port() })
            }
            PowerState::Booting { .. } | PowerState::Off => None,
        }
    }

    pub(super) fn address(&self) -> (IpAddr, u8) {
        let ip: Ipv4Addr = self.identity.address;
        (IpAddr::V4(ip), 8)
    }

    /// The environment of a session. The guest's variables replace those of the client.
    pub(super) fn environment(&self, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = extra.clone();
        // Without a sandbox, a variable such as LD_PRELOAD would reach programs of the host.
        let harmless = |name: &str| name == "LANG" || name.starts_with("LC_");
        all.retain(|name, _| !self.host.sandbox.restricts_commands() || harmless(name));
        all.extend(self.host.sandbox.environment(&self.disk, &self.identity));
        all
    }

    /// The command line for a restricted host, where the folder of the home stands in for the home.
    /// None for a command line that runs unchanged.
    pub(super) fn in_home_folder(&self, line: &str) -> Option<String> {
        let folder = self.disk.folder().join(&self.identity.home[1..]);
        let bare = self.host.sandbox.restricts_commands();
        bare.then(|| (self.host.known_commands.in_folder)(line, &self.identity.home, &folder))
            .flatten()
    }

    /// Whether a command line can run on this host.
    pub(super) fn may_run(&self, line: &str) -> bool {
        !self.host.sandbox.restricts_commands() || (self.host.known_commands.may_run)(line)
    }

    /// Starts a command in the guest, with pipes for all streams.
    pub(super) async fn start(
        &self,
        words: &[String],
        environment: &BTreeMap<String, String>,
    ) -> std::io::Result<Child> {
        let command = self.session_command(words, environment)?;
        self.spawn(command, Stdio::piped(), false).await
    }

    /// Starts a command in the guest whose streams are all one terminal.
    pub(super) async fn start_in_terminal(
        &self,
        words: &[String],
        environment: &BTreeMap<String, String>,
        terminal: OwnedFd,
    ) -> std::io::Result<Child> {
        let mut command = Command::from(self.session_command(words, environment)?);
        let (out, err) = (terminal.try_clone()?, terminal.try_clone()?);
        command.stdin(terminal).stdout(out).stderr(err).process_group(0);
        self.host.spawner.spawn(command).await
    }

    fn session_command(
        &self,
        words: &[String],
        environment: &BTreeMap<String, String>,
    ) -> std::io::Result<std::process::Command> {
        let first_process = match self.state() {
            PowerState::Booting { first_process } | PowerState::Up { first_process, .. } => {
                first_process
            }
            PowerState::Off => None,
        };
        let sandbox = &self.host.sandbox;
        if sandbox.is_isolated() && first_process.is_none() {
            return Err(std::io::Error::other("the guest is not running"));
        }
        Ok(sandbox.session_command(&self.disk, &self.identity, first_process, environment, words))
    }

    /// Asks the guest to power off, as its own `poweroff` does.
    pub(super) async fn ask_to_power_off(&self) {
        let words = ["poweroff".to_owned()];
        // A guest that cannot run the command ignores the request.
        if let Ok(mut child) = self.start(&words, &self.environment(&BTreeMap::new())).await {
            let _late = tokio::time::timeout(Duration::from_secs(5), child.wait()).await;
        }
    }

    async fn spawn(
        &self,
        command: std::process::Command,
        stdin: Stdio,
        kill_on_drop: bool,
    ) -> std::io::Result<Child> {
        let mut command = Command::from(command);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(kill_on_drop);
        let child = self.host.spawner.spawn(command).await?;
        Ok(child)
    }

    fn state(&self) -> PowerState {
        *self.state.borrow()
    }

    fn set_state(&self, state: PowerState) {
        self.state.send_replace(state);
    }

    /// Waits until the guest is up or off.
    #[cfg(test)]
    pub(super) async fn wait_until_up_or_off(&self) {
        self.until(|state| !matches!(state, PowerState::Booting { .. })).await;
    }

    /// Waits until the guest is off.
    #[cfg(test)]
    pub(super) async fn wait_until_off(&self) {
        self.until(|state| *state == PowerState::Off).await;
    }

    /// Waits until the guest ends or reboots.
    #[cfg(test)]
    pub(super) async fn wait_until_not_up(&self) {
        self.until(|state| !matches!(state, PowerState::Up { .. })).await;
    }

    #[cfg(test)]
    async fn until(&self, wanted: fn(&PowerState) -> bool) {
        let mut changes = self.state.subscribe();
        // The sender belongs to this machine, which exists during the wait.
        let _life = changes.wait_for(wanted).await;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill_leftovers();
    }
}

/// Reads the startup report of a first process: its process id, if it has a namespace. None when
/// the process ends before.
async fn read_startup_report(child: &mut Child) -> Option<Option<u32>> {
    let stdout = child.stdout.take()?;
    let mut lines = BufReader::new(stdout.take(4096)).lines();
    let mut report = StartupReport::default();
    while let Ok(Some(line)) = lines.next_line().await {
        if report.take_line(&line) {
            return Some(report.first_process);
        }
    }
    None
}

async fn stderr_of(mut child: Child) -> String {
    let _ended = child.start_kill();
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        let mut words = stderr.take(1000);
        let read = words.read_to_string(&mut said);
        let _late = tokio::time::timeout(Duration::from_secs(1), read).await;
    }
    said.trim().to_owned()
}

fn pid_of(id: u32) -> Option<Pid> {
    i32::try_from(id).ok().and_then(Pid::from_raw)
}

/// Sends a signal to a process group, and ignores one that has ended.
pub(super) fn signal_group(group: u32, signal: Signal) {
    if let Some(pid) = pid_of(group) {
        let _gone = kill_process_group(pid, signal);
    }
}
