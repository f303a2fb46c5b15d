//! The thread that starts every process of the guests.
//!
//! The kernel kills a process that asked to die with its parent when the *thread* that started it
//! ends. Threads of the runtime come and go; this one ends with the host of the guests, so that
//! nothing outlives it, however it ends.

use std::io;
use std::sync::mpsc;

use parking_lot::Mutex;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Order {
    command: Command,
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

pub(super) struct Spawner {
    orders: Mutex<Option<mpsc::Sender<Order>>>,
}

impl Spawner {
    pub(super) fn start() -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let work = move || {
            for order in inbox {
                let Order { mut command, runtime, started } = order;
                let _inside = runtime.enter();
                // A caller that is gone drops the child, which kills it.
                let _unwanted = started.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("guest-spawner".to_owned()).spawn(work)?;
        Ok(Self { orders: Mutex::new(Some(orders)) })
    }

    pub(super) async fn spawn(&self, command: Command) -> io::Result<Child> {
        let closed = || io::Error::other("the host of the guests has ended");
        let (started, child) = oneshot::channel();
        let order = Order { command, runtime: Handle::current(), started };
        self.lock().as_ref().ok_or_else(closed)?.send(order).map_err(|_| closed())?;
        let child = child.await.map_err(|_| closed())??;
        Ok(child)
    }

    /// Ends the thread, and with it all that was started.
    pub(super) fn close(&self) {
        self.lock().take();
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Option<mpsc::Sender<Order>>> {
        self.orders.lock()
    }
}
