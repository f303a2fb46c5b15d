//! One running guest: its first process, its boots, its end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
use super::disk::{Disk, Inside};
use super::gate::KnownCommands;
use super::sandbox::{Greeting, POWERED_OFF, REBOOTS, Sandbox};
use super::spawner::Spawner;
use super::{server, sweep};
use crate::guest::{GuestAddress, GuestBoot};

/// A first process says that it is ready within this time.
const GREETING_TIME: Duration = Duration::from_secs(20);

/// What all guests of a host share.
#[derive(Clone)]
pub(super) struct Ground {
    pub sandbox: Arc<Sandbox>,
    pub spawner: Arc<Spawner>,
    pub known: KnownCommands,
    pub port: u16,
}

/// One guest, as its sessions, its agent and its supervisor see it.
pub(super) struct Machine {
    pub ground: Ground,
    pub disk: Disk,
    pub inside: Inside,
    pub processes: Processes,
    /// Keeps the address from others until the guest listens on it; taken by the first boot.
    reserved: Mutex<Option<TcpSocket>>,
    life: watch::Sender<Life>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Booting { first_process: Option<u32> },
    Up { first_process: Option<u32>, address: SocketAddr },
    Over,
}

/// A first process that runs.
pub(super) struct Init {
    child: Child,
    first_process: Option<u32>,
}

/// Connections that may wait to be taken.
const BACKLOG: u32 = 1024;

impl Machine {
    pub(super) fn new(ground: Ground, disk: Disk, inside: Inside, reserved: TcpSocket) -> Self {
        Self {
            ground,
            disk,
            inside,
            processes: Processes::default(),
            reserved: Mutex::new(Some(reserved)),
            life: watch::Sender::new(Life::Booting { first_process: None }),
        }
    }

    /// Prepares the disk and starts the first process.
    pub(super) async fn power_on(&self, boot: &GuestBoot) -> Result<(Init, PrivateKey), String> {
        // A simulator that was killed may have left some behind.
        self.sweep();
        let key = self.disk.prepare(boot, &self.inside).map_err(|error| error.to_string())?;
        let command = self.ground.sandbox.init(&self.disk, &self.inside);
        let mut child = self
            .spawn(command, Stdio::null(), true)
            .await
            .map_err(|error| format!("failed to start the guest's first process: {error}"))?;
        let heard = tokio::time::timeout(GREETING_TIME, listen(&mut child)).await;
        let Ok(Some(first_process)) = heard else {
            return Err(format!("the guest's first process failed: {}", last_words(child).await));
        };
        self.set_life(Life::Booting { first_process });
        Ok((Init { child, first_process }, key))
    }

    /// Lives until the guest ends: by itself, or because `stop` says so.
    pub(super) async fn live(
        self: Arc<Self>,
        mut boot: GuestBoot,
        mut init: Init,
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
            self.set_life(Life::Booting { first_process: None });
            self.end_all(&mut init).await;
            tracing::debug!(vmid = boot.vmid, ?ended, "guest ended");
            if ended != Some(REBOOTS) {
                if ended.is_some_and(|status| status != POWERED_OFF) {
                    tracing::warn!(
                        vmid = boot.vmid,
                        ?ended,
                        "first process of the guest was killed"
                    );
                }
                break;
            }
            boot.boot += 1;
            boot.resumed = false;
            match self.power_on(&boot).await {
                Ok((next, same)) => (init, key) = (next, same),
                Err(reason) => {
                    tracing::warn!(vmid = boot.vmid, %reason, "guest failed to reboot");
                    break;
                }
            }
        }
        self.set_life(Life::Over);
    }

    /// Listens and answers for ever; every session is dropped with this future.
    async fn serve(self: &Arc<Self>, first_process: Option<u32>, key: &PrivateKey) {
        let address = SocketAddr::from((self.inside.address, self.ground.port));
        let reserved = self.reserved.lock().take();
        let bound = match reserved {
            // From here on a reboot may bind again beside connections that linger.
            Some(socket) => socket.set_reuseaddr(true).and_then(|()| socket.listen(BACKLOG)),
            None => TcpListener::bind(address).await,
        };
        let listener = match bound {
            Ok(listener) => Some(listener),
            Err(error) => {
                // A machine whose sshd fails is up all the same.
                tracing::warn!(vmid = self.inside.vmid, %address, %error, "guest can not listen");
                None
            }
        };
        self.set_life(Life::Up { first_process, address });
        match listener {
            Some(listener) => server::serve(listener, Arc::clone(self), key).await,
            None => std::future::pending().await,
        }
    }

    async fn end_all(&self, init: &mut Init) {
        self.processes.forget();
        // Only where bubblewrap itself was not reaped yet is the id certain to be its child's.
        if init.child.id().is_some()
            && let Some(first) = init.first_process.and_then(pid_of)
        {
            // The kernel lets a first process go only after all others of its namespace, so that
            // nothing is left when bubblewrap has seen it end.
            let _gone = kill_process(first, Signal::KILL);
            let _slow = tokio::time::timeout(Duration::from_secs(5), init.child.wait()).await;
        }
        // Both fail only when it has ended already.
        let _sent = init.child.start_kill();
        let _ended = init.child.wait().await;
        self.sweep();
    }

    /// Ends the processes that no namespace ends; they are known by their environment.
    pub(super) fn sweep(&self) {
        if !self.ground.sandbox.is_isolated() {
            let mark = format!("GUEST_RUN={}", self.disk.run_folder().display());
            sweep::kill_marked(&mark);
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.life() != Life::Over
    }

    /// Where the guest listens; none before it is up.
    pub(super) fn listens(&self) -> Option<GuestAddress> {
        match self.life() {
            Life::Up { address, .. } => {
                Some(GuestAddress { ip: address.ip(), port: address.port() })
            }
            Life::Booting { .. } | Life::Over => None,
        }
    }

    pub(super) fn address(&self) -> (IpAddr, u8) {
        let ip: Ipv4Addr = self.inside.address;
        (IpAddr::V4(ip), 8)
    }

    /// The environment of a session, with the client's own variables beneath the guest's.
    pub(super) fn environment(&self, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = extra.clone();
        // Outside a sandbox one such as LD_PRELOAD would reach programs of the host.
        let harmless = |name: &str| name == "LANG" || name.starts_with("LC_");
        all.retain(|name, _| !self.ground.sandbox.needs_leave() || harmless(name));
        all.extend(self.ground.sandbox.environment(&self.disk, &self.inside));
        all
    }

    /// A command line as it is run here: where commands need leave, what is made in the home is made
    /// in the folder that stands for it.
    pub(super) fn at_home(&self, line: &str) -> Option<String> {
        let folder = self.disk.folder().join(&self.inside.home[1..]);
        let bare = self.ground.sandbox.needs_leave();
        bare.then(|| (self.ground.known.in_folder)(line, &self.inside.home, &folder)).flatten()
    }

    /// Whether a command line may run here.
    pub(super) fn may_run(&self, line: &str) -> bool {
        !self.ground.sandbox.needs_leave() || (self.ground.known.may_run)(line)
    }

    /// Starts a command in the guest, with all its streams as pipes.
    pub(super) async fn start(
        &self,
        words: &[String],
        environment: &BTreeMap<String, String>,
    ) -> std::io::Result<Child> {
        let first_process = match self.life() {
            Life::Booting { first_process } | Life::Up { first_process, .. } => first_process,
            Life::Over => None,
        };
        let sandbox = &self.ground.sandbox;
        if sandbox.is_isolated() && first_process.is_none() {
            return Err(std::io::Error::other("the guest does not run"));
        }
        let command = sandbox.job(&self.disk, &self.inside, first_process, environment, words);
        let child = self.spawn(command, Stdio::piped(), false).await?;
        Ok(child)
    }

    /// Asks the guest to end, as its own `poweroff` would.
    pub(super) async fn ask_to_power_off(&self) {
        let words = ["poweroff".to_owned()];
        // A guest that can not take the wish ignores it.
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
        let child = self.ground.spawner.spawn(command).await?;
        Ok(child)
    }

    fn life(&self) -> Life {
        *self.life.borrow()
    }

    fn set_life(&self, life: Life) {
        self.life.send_replace(life);
    }

    /// Waits until the guest is up, or over.
    #[cfg(test)]
    pub(super) async fn settled(&self) {
        self.until(|life| !matches!(life, Life::Booting { .. })).await;
    }

    /// Waits until the guest has ended.
    #[cfg(test)]
    pub(super) async fn over(&self) {
        self.until(|life| *life == Life::Over).await;
    }

    /// Waits until the guest is not up any more: it ends or boots again.
    #[cfg(test)]
    pub(super) async fn down(&self) {
        self.until(|life| !matches!(life, Life::Up { .. })).await;
    }

    #[cfg(test)]
    async fn until(&self, wanted: fn(&Life) -> bool) {
        let mut changes = self.life.subscribe();
        // The sender is this machine, which outlives the wait.
        let _life = changes.wait_for(wanted).await;
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// Hears the greeting of a first process; none when it ends before.
async fn listen(child: &mut Child) -> Option<Option<u32>> {
    let stdout = child.stdout.take()?;
    let mut lines = BufReader::new(stdout.take(4096)).lines();
    let mut greeting = Greeting::default();
    while let Ok(Some(line)) = lines.next_line().await {
        if greeting.hear(&line) {
            return Some(greeting.first_process);
        }
    }
    None
}

async fn last_words(mut child: Child) -> String {
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

/// Sends a signal to a process group; one that has ended is none.
pub(super) fn signal_group(group: u32, signal: Signal) {
    if let Some(pid) = pid_of(group) {
        let _gone = kill_process_group(pid, signal);
    }
}
