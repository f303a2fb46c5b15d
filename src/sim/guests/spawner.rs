//! The thread that starts all processes of the guests.
//!
//! The kernel kills a process that asked to die with its parent when the *thread* that started it
//! ends. Threads of the runtime come and go; this one ends with the host of the guests, so that no
//! process outlives the host, however it ends.

use std::io;
use std::sync::mpsc;

use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct SpawnRequest {
    command: Command,
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

pub(super) struct Spawner {
    requests: Mutex<Option<mpsc::Sender<SpawnRequest>>>,
}

impl Spawner {
    pub(super) fn start() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<SpawnRequest>();
        let work = move || {
            for request in inbox {
                let SpawnRequest { mut command, runtime, started } = request;
                let _inside = runtime.enter();
                // A caller that has gone away drops the child, which kills it.
                let _unwanted = started.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("guest-spawner".to_owned()).spawn(work)?;
        Ok(Self { requests: Mutex::new(Some(requests)) })
    }

    pub(super) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let closed = || io::Error::other("the host of the guests has ended");
        let (started, child) = oneshot::channel();
        let request = SpawnRequest { command, runtime: Handle::current(), started };
        self.lock().as_ref().ok_or_else(closed)?.send(request).map_err(|_| closed())?;
        let child = child.await.map_err(|_| closed())??;
        Ok(child)
    }

    /// Ends the thread, and with it all processes that it started.
    pub(super) fn close(&self) {
        self.lock().take();
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<mpsc::Sender<SpawnRequest>>> {
        self.requests.lock()
    }
}
