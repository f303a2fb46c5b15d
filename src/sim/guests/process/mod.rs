//! Process guests: an SSH server on an address of the guest's own, whose sessions run real commands
//! in a folder of the guest's own.
//!
//! The host owns one folder with a disk for each VMID, and one thread that starts all processes.
//! In: the calls of [`GuestHost`]. Out: SSH sessions with commands and SFTP, and agent answers about
//! what really happens in the guest.
//!
//! ```text
//!   boot            first process ready       delay over
//! ------> Booting -------------------> Booting ---------> Up
//!            ^                                            |
//!            |  exit 91: reboot, the same disk            | first process ends,
//!            +--------------------------------------------+ or the world stops the guest
//!                                                         |
//!                                              otherwise  v
//!                                                        Off
//! ```
//!
//! Failure paths: without bubblewrap, guests run only known commands, or none start
//! ([`Isolation`]). A first process that does not report in time fails the boot. No process of a
//! guest outlives the guest, and none outlives the host: not when the simulator stops, is dropped,
//! or is killed.
//!
//! Files beside this one: `machine` (one running guest), `sandbox` (bubblewrap), `leftovers`
//! (processes without a namespace), `disk` and `identity` (what a boot
//! prepares), `server`, `command`, `pty` and `sftp` (SSH), `agent`, `known_commands`, `windows` and
//! `windows_sftp`, `standins` (programs that replace those of a whole machine).

mod agent;
mod command;
mod disk;
mod identity;
mod known_commands;
mod leftovers;
mod machine;
mod pty;
mod sandbox;
mod server;
mod sftp;
mod standins;
#[cfg(test)]
mod tests;
mod windows;
mod windows_sftp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::disk::Disk;
use self::identity::GuestIdentity;

pub use self::known_commands::KnownCommands;
use self::machine::{HostContext, Machine};
use self::sandbox::Sandbox;
pub use self::sandbox::{Isolation, IsolationError};
use super::address::{AddressPool, draw_duration, seeded_bytes};
use super::spawner::Spawner;
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost, GuestWork};

/// A start fails after this many addresses in use.
const ADDRESSES_TRIED_MAX: u32 = 1000;

/// The options of a host of process guests.
#[derive(Clone)]
pub struct ProcessOptions {
    /// The folder of all disks; created when it does not exist.
    pub root: PathBuf,
    pub isolation: Isolation,
    /// The seed of the boot times.
    pub seed: u64,
    /// From the start until the SSH server answers; drawn for each boot.
    pub boot: Range<Duration>,
    /// The SSH port on every guest's address.
    pub ssh_port: u16,
    /// Absolute folders of the host that isolated guests can read at the same path.
    pub shared_folders: Vec<PathBuf>,
    /// The commands of the program that works in the guests.
    pub known_commands: KnownCommands,
}

impl ProcessOptions {
    /// The defaults: isolated where possible, up after one to three seconds, port 2222.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            isolation: Isolation::Auto,
            seed: 0,
            boot: Duration::from_secs(1)..Duration::from_secs(3),
            ssh_port: 2222,
            shared_folders: Vec::new(),
            known_commands: KnownCommands::default(),
        }
    }
}

/// A host of process guests.
pub struct ProcessGuests {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    seed: u64,
    boot: Range<Duration>,
    host: HostContext,
    addresses: Mutex<AddressPool>,
    guests: Mutex<BTreeMap<u32, Running>>,
}

/// A guest and the task that runs it.
struct Running {
    machine: Arc<Machine>,
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
    /// When the guest is up, as drawn by the seed.
    up: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        self.machine.kill_leftovers();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.host.spawner.close();
    }
}

impl ProcessGuests {
    /// Detects how guests can be isolated on this computer, and prepares the folder.
    ///
    /// # Errors
    /// See [`IsolationError`].
    pub fn new(options: ProcessOptions) -> Result<Self, IsolationError> {
        let ProcessOptions {
            root,
            isolation,
            seed,
            boot,
            ssh_port,
            shared_folders,
            known_commands,
        } = options;
        let folder = |source| IsolationError::Folder { path: root.display().to_string(), source };
        std::fs::create_dir_all(&root).map_err(folder)?;
        let root = root.canonicalize().map_err(folder)?;
        let sandbox = Sandbox::detect(isolation, &root, shared_folders)?;
        let spawner = Spawner::start().map_err(folder)?;
        let host = HostContext {
            sandbox: Arc::new(sandbox),
            spawner: Arc::new(spawner),
            known_commands,
            port: ssh_port,
        };
        let inner = Inner {
            root,
            seed,
            boot,
            host,
            addresses: Mutex::new(AddressPool::new([127, 77])),
            guests: Mutex::new(BTreeMap::new()),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    #[must_use]
    pub fn is_isolated(&self) -> bool {
        self.inner.host.sandbox.is_isolated()
    }
}

impl Inner {
    fn disk(&self, vmid: u32) -> Disk {
        Disk::new(&self.root, vmid)
    }

    fn guests(&self) -> MutexGuard<'_, BTreeMap<u32, Running>> {
        self.guests.lock()
    }

    fn machine(&self, vmid: u32) -> Option<Arc<Machine>> {
        self.guests().get(&vmid).map(|running| Arc::clone(&running.machine))
    }

    /// The guest's address, or another one where a program outside uses that.
    ///
    /// The socket reserves it: without address reuse no other program can bind it.
    fn find_address(&self, boot: &GuestBoot) -> Result<(Ipv4Addr, TcpSocket), String> {
        let vmid = boot.vmid;
        // Only loopback addresses can be used on this computer.
        if let Some(IpAddr::V4(ip)) = boot.static_address().filter(IpAddr::is_loopback) {
            let reserved = TcpSocket::new_v4().and_then(|socket| {
                // Connections of an earlier guest with this address can still be closing.
                socket.set_reuseaddr(true)?;
                socket.bind((ip, self.host.port).into())?;
                Ok(socket)
            });
            let reserved =
                reserved.map_err(|error| format!("failed to listen on {ip}: {error}"))?;
            return Ok((ip, reserved));
        }
        let book = || self.addresses.lock();
        let mut address = book().assign(vmid);
        for _ in 0..ADDRESSES_TRIED_MAX {
            let Some(ip) = address else { break };
            let reserved = TcpSocket::new_v4().and_then(|socket| {
                socket.bind((ip, self.host.port).into())?;
                Ok(socket)
            });
            match reserved {
                Ok(socket) => return Ok((ip, socket)),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    address = book().reassign(vmid);
                }
                Err(error) => return Err(format!("failed to listen on {ip}: {error}")),
            }
        }
        Err(format!("no address 127.77.x.y has a free port {}", self.host.port))
    }

    async fn start(&self, boot: GuestBoot) -> Result<(), String> {
        let vmid = boot.vmid;
        if self.machine(vmid).is_some_and(|machine| machine.is_running()) {
            return Err("the guest is already running".to_owned());
        }
        let (address, reserved) = self.find_address(&boot)?;
        let identity = GuestIdentity::new(&boot, address)?;
        let machine =
            Arc::new(Machine::new(self.host.clone(), self.disk(vmid), identity, reserved));
        let (first_process, key) = machine.power_on(&boot).await?;
        let (stop, stopped) = watch::channel(false);
        let (seed, range) = (self.seed, self.boot.clone());
        let delay = move |boot| draw_duration(&range, &seeded_bytes(seed, vmid, boot, "boot"));
        let up = Instant::now() + if boot.resumed { Duration::ZERO } else { delay(boot.boot) };
        let task = tokio::spawn(Arc::clone(&machine).run(boot, first_process, key, delay, stopped));
        self.guests().insert(vmid, Running { machine, task, stop, up });
        Ok(())
    }

    fn log_failure(&self, vmid: u32, what: &'static str, result: std::io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(vmid, what, %error, "operation on the guest's disk failed");
        }
    }
}

impl GuestHost for ProcessGuests {
    fn boot(&self, boot: GuestBoot) -> BoxFuture<'static, Result<(), String>> {
        let inner = Arc::clone(&self.inner);
        async move { inner.start(boot).await }.boxed()
    }

    fn stop(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let running = self.inner.guests().remove(&vmid);
        async move {
            if let Some(mut running) = running {
                let _over = running.stop.send(true);
                let _ended = (&mut running.task).await;
            }
        }
        .boxed()
    }

    fn shutdown(&self, vmid: u32) -> BoxFuture<'static, ()> {
        let machine = self.inner.machine(vmid);
        async move {
            if let Some(machine) = machine.filter(|machine| machine.is_running()) {
                machine.ask_to_power_off().await;
            }
        }
        .boxed()
    }

    fn running(&self, vmid: u32) -> bool {
        self.inner.machine(vmid).is_some_and(|machine| machine.is_running())
    }

    fn agent(&self, vmid: u32, call: AgentCall) -> BoxFuture<'static, Result<Value, AgentError>> {
        let machine = self.inner.machine(vmid);
        async move {
            let machine = machine.ok_or(AgentError::NotRunning)?;
            let answer = agent::answer(machine, call).await?;
            Ok(answer)
        }
        .boxed()
    }

    fn address(&self, vmid: u32) -> Option<GuestAddress> {
        self.inner.machine(vmid)?.ssh_address()
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        let up = self.inner.guests().get(&vmid)?.up;
        Some(up.saturating_duration_since(Instant::now()))
    }

    fn set_paused(&self, vmid: u32, paused: bool) -> GuestWork {
        if let Some(machine) = self.inner.machine(vmid) {
            machine.set_paused(paused);
        }
        ready(Ok(())).boxed()
    }

    fn snapshot(&self, vmid: u32, name: &str, _with_memory: bool) -> GuestWork {
        self.inner.log_failure(vmid, "snapshot", self.inner.disk(vmid).snapshot(name));
        ready(Ok(())).boxed()
    }

    fn rollback(&self, vmid: u32, name: &str) -> GuestWork {
        self.inner.log_failure(vmid, "rollback", self.inner.disk(vmid).rollback(name));
        ready(Ok(())).boxed()
    }

    fn clone_disk(&self, from: u32, to: u32, _linked: bool) -> GuestWork {
        let copied = self.inner.disk(from).clone_to(&self.inner.disk(to));
        self.inner.log_failure(to, "clone", copied);
        ready(Ok(())).boxed()
    }

    fn forget(&self, vmid: u32) {
        drop(self.inner.guests().remove(&vmid));
        self.inner.addresses.lock().release(vmid);
        self.inner.log_failure(vmid, "remove", self.inner.disk(vmid).remove());
    }
}
