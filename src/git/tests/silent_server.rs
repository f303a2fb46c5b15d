//! A server that takes connections and never answers.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// One server; it ends with this value.
pub(super) struct SilentServer {
    pub(super) address: SocketAddr,
    /// Each connection that began.
    pub(super) opened: mpsc::UnboundedReceiver<()>,
    /// Each connection that the other end closed: the process that had it is gone.
    closed: mpsc::UnboundedReceiver<()>,
    task: JoinHandle<()>,
}

impl Drop for SilentServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Long before git and ssh give up by themselves.
const SOON: Duration = Duration::from_secs(10);

impl SilentServer {
    /// Waits until the process that had a connection is gone.
    pub(super) async fn closes(&mut self) {
        tokio::time::timeout(SOON, self.closed.recv()).await.unwrap().unwrap();
    }

    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (to_opened, opened) = mpsc::unbounded_channel();
        let (to_closed, closed) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let to_closed = to_closed.clone();
                to_opened.send(()).unwrap();
                connections.spawn(async move {
                    let mut part = [0; 1024];
                    while matches!(stream.read(&mut part).await, Ok(1..)) {}
                    let _receiver_gone = to_closed.send(());
                });
            }
        });
        Self { address, opened, closed, task }
    }
}
