//! Guests with a real inside: an SSH server on an address of the guest's own, whose sessions run
//! real commands in a folder of the guest's own.
//!
//! Nothing of a guest outlives it, and nothing outlives the host of the guests: not when the
//! simulator stops, is dropped, or is killed.

mod agent;
mod disk;
mod gate;
mod job;
mod machine;
mod sandbox;
mod server;
mod sftp;
mod spawner;
mod standins;
mod sweep;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::disk::{Disk, Inside};

pub use self::gate::KnownCommands;
use self::machine::{Ground, Machine};
use self::sandbox::Sandbox;
pub use self::sandbox::{Isolation, IsolationError};
use self::spawner::Spawner;
use super::address::{AddressBook, dice, within};
use crate::guest::{AgentCall, AgentError, GuestAddress, GuestBoot, GuestHost};

/// Addresses tried before a start fails for want of one.
const ADDRESSES_TRIED_MAX: u32 = 1000;

/// How process guests are run.
#[derive(Clone)]
pub struct ProcessOptions {
    /// The folder for all disks; made when missing.
    pub root: PathBuf,
    /// How guests are kept apart.
    pub isolation: Isolation,
    /// The seed of the boot times.
    pub seed: u64,
    /// From the start to the first answer; drawn for each boot.
    pub boot: Range<Duration>,
    /// The SSH port, the same on every guest's address.
    pub ssh_port: u16,
    /// Folders of the host, absolute, that guests can read at the same place where they are isolated.
    pub shared: Vec<PathBuf>,
    /// Commands of the program that works in the guests.
    pub known: KnownCommands,
}

impl ProcessOptions {
    /// The usual ones: isolated where possible, up after one to three seconds, on port 2222.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            isolation: Isolation::Auto,
            seed: 0,
            boot: Duration::from_secs(1)..Duration::from_secs(3),
            ssh_port: 2222,
            shared: Vec::new(),
            known: KnownCommands::default(),
        }
    }
}

/// The host of process guests.
pub struct ProcessGuests {
    inner: Arc<Inner>,
}

struct Inner {
    root: PathBuf,
    seed: u64,
    boot: Range<Duration>,
    ground: Ground,
    addresses: Mutex<AddressBook>,
    guests: Mutex<BTreeMap<u32, Running>>,
}

/// A guest with the task it lives in.
struct Running {
    machine: Arc<Machine>,
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
    /// When it is up, by the dice.
    up: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        self.machine.sweep();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.ground.spawner.close();
    }
}

impl ProcessGuests {
    /// Finds out how guests can be kept apart here, and makes ready for them.
    ///
    /// # Errors
    /// See [`IsolationError`].
    pub fn new(options: ProcessOptions) -> Result<Self, IsolationError> {
        let ProcessOptions { root, isolation, seed, boot, ssh_port, shared, known } = options;
        let folder = |source| IsolationError::Folder { path: root.display().to_string(), source };
        std::fs::create_dir_all(&root).map_err(folder)?;
        let root = root.canonicalize().map_err(folder)?;
        let sandbox = Sandbox::find(isolation, &root, shared)?;
        let spawner = Spawner::start().map_err(folder)?;
        let ground = Ground {
            sandbox: Arc::new(sandbox),
            spawner: Arc::new(spawner),
            known,
            port: ssh_port,
        };
        let inner = Inner {
            root,
            seed,
            boot,
            ground,
            addresses: Mutex::new(AddressBook::new([127, 77])),
            guests: Mutex::new(BTreeMap::new()),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Whether guests run in namespaces of their own.
    #[must_use]
    pub fn is_isolated(&self) -> bool {
        self.inner.ground.sandbox.is_isolated()
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

    /// The guest's address; another one where somebody else on this computer uses it already.
    ///
    /// The socket holds it from this moment: without address reuse nobody else can bind it.
    fn find_address(&self, boot: &GuestBoot) -> Result<(Ipv4Addr, TcpSocket), String> {
        let vmid = boot.vmid;
        // Another than a loopback address can not be had on this computer.
        if let Some(IpAddr::V4(ip)) = boot.static_address().filter(IpAddr::is_loopback) {
            let reserved = TcpSocket::new_v4().and_then(|socket| {
                // The guest that had it before may have left connections that are ending.
                socket.set_reuseaddr(true)?;
                socket.bind((ip, self.ground.port).into())?;
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
                socket.bind((ip, self.ground.port).into())?;
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
        Err(format!("no address 127.77.x.y with a free port {} is left", self.ground.port))
    }

    async fn start(&self, boot: GuestBoot) -> Result<(), String> {
        let vmid = boot.vmid;
        if self.machine(vmid).is_some_and(|machine| machine.runs()) {
            return Err("the guest runs already".to_owned());
        }
        let (address, reserved) = self.find_address(&boot)?;
        let inside = Inside::new(&boot, address)?;
        let machine =
            Arc::new(Machine::new(self.ground.clone(), self.disk(vmid), inside, reserved));
        let (init, key) = machine.power_on(&boot).await?;
        let (stop, stopped) = watch::channel(false);
        let (seed, range) = (self.seed, self.boot.clone());
        let delay = move |turn| within(&range, &dice(seed, vmid, turn, "boot"));
        let up = Instant::now() + if boot.resumed { Duration::ZERO } else { delay(boot.boot) };
        let task = tokio::spawn(Arc::clone(&machine).live(boot, init, key, delay, stopped));
        self.guests().insert(vmid, Running { machine, task, stop, up });
        Ok(())
    }

    fn warn(&self, vmid: u32, what: &'static str, result: std::io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(vmid, what, %error, "disk of the guest could not be worked on");
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
            if let Some(machine) = machine.filter(|machine| machine.runs()) {
                machine.ask_to_power_off().await;
            }
        }
        .boxed()
    }

    fn running(&self, vmid: u32) -> bool {
        self.inner.machine(vmid).is_some_and(|machine| machine.runs())
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
        self.inner.machine(vmid)?.listens()
    }

    fn reachable_in(&self, vmid: u32) -> Option<Duration> {
        let up = self.inner.guests().get(&vmid)?.up;
        Some(up.saturating_duration_since(Instant::now()))
    }

    fn snapshot(&self, vmid: u32, name: &str) {
        self.inner.warn(vmid, "snapshot", self.inner.disk(vmid).snapshot(name));
    }

    fn rollback(&self, vmid: u32, name: &str) {
        self.inner.warn(vmid, "rollback", self.inner.disk(vmid).rollback(name));
    }

    fn clone_disk(&self, from: u32, to: u32) {
        let copied = self.inner.disk(from).clone_to(&self.inner.disk(to));
        self.inner.warn(to, "clone", copied);
    }

    fn forget(&self, vmid: u32) {
        drop(self.inner.guests().remove(&vmid));
        self.inner.addresses.lock().release(vmid);
        self.inner.warn(vmid, "remove", self.inner.disk(vmid).remove());
    }
}
