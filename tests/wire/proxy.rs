//! A node's network: a proxy in front of a socket that can be cut or fall silent.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// What becomes of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Open,
    /// No connection comes about, those that stand break.
    Cut,
    /// Connections come about and requests arrive, but no answer to one ever comes back.
    Silent,
}

struct Shared {
    way: Mutex<Way>,
    changed: Condvar,
    taken: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

/// A proxy that lives as long as the test.
pub struct Proxy {
    /// Where it listens.
    pub addr: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Stands before the socket of a URL such as `https://127.0.0.1:8006`.
    pub fn before(url: &str) -> Self {
        let target: SocketAddr = url.trim_start_matches("https://").parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            way: Mutex::new(Way::Open),
            changed: Condvar::new(),
            taken: AtomicUsize::new(0),
            open: Mutex::new(Vec::new()),
        });
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                all.taken.fetch_add(1, Ordering::Relaxed);
                if *all.way.lock().unwrap() == Way::Cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(target) else { continue };
                all.join(client, server);
            }
        });
        Self { addr, shared }
    }

    /// Changes what becomes of the bytes.
    pub fn set(&self, way: Way) {
        *self.shared.way.lock().unwrap() = way;
        if way == Way::Cut {
            for stream in self.shared.open.lock().unwrap().drain(..) {
                // One that has ended is cut already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.changed.notify_all();
    }

    /// Connections that were asked for so far.
    pub fn taken(&self) -> usize {
        self.shared.taken.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let copy = |stream: &TcpStream| stream.try_clone().unwrap();
        self.open.lock().unwrap().extend([copy(&client), copy(&server)]);
        let (from, to) = (copy(&client), copy(&server));
        // A handshake is the client's first flight and the server's first: what the client sends
        // after it asks for something.
        let flights = Arc::new(AtomicUsize::new(0));
        let (asked, all) = (Arc::clone(&flights), Arc::clone(self));
        std::thread::spawn(move || {
            pump(from, to, |_| {
                asked.fetch_add(1, Ordering::Relaxed);
            });
            drop(all);
        });
        let all = Arc::clone(self);
        std::thread::spawn(move || {
            pump(server, client, |_| {
                let way = all.way.lock().unwrap();
                let silent =
                    |way: &mut Way| *way == Way::Silent && flights.load(Ordering::Relaxed) > 1;
                drop(all.changed.wait_while(way, silent).unwrap());
            });
        });
    }
}

/// Carries bytes until either end closes.
fn pump(mut from: TcpStream, mut to: TcpStream, mut before: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 {
            break;
        }
        before(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // Already gone is as good.
    let _ = to.shutdown(Shutdown::Both);
}
