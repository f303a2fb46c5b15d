//! Threads that accept connections and answer their requests.
//!
//! The Unix socket has a thread and a [`Crowd`] of its own, so that nothing on TCP can keep
//! `drover status` waiting; TCP has two threads with one crowd. Each connection is a task that ends
//! with its line (`line.rs`). A thread ends when the service stops, after its connections have
//! answered what they work on, or 5 s later.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use actix_http::HttpService;
use actix_service::map_config;
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, Service, ServiceFactory};
use actix_web::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, rt};
use tokio::task::JoinSet;

use super::audited;
use super::crowd::Crowd;
use super::forwarded;
use super::house::House;
use super::line::REST_LIMIT;
use super::peer::{LocalPeer, Peer};
use super::seat::{self, Seat};
use super::wire::{Stream, Wire};

/// Threads for TCP.
const TCP_THREADS: usize = 2;
/// How long running requests have when the service stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long an idle connection may wait for its next request.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// How long nothing is accepted after the system refused.
const PAUSE: Duration = Duration::from_millis(50);

/// Where connections come from.
enum Door {
    Tcp(tokio::net::TcpListener),
    /// With the user the service runs as.
    Unix(tokio::net::UnixListener, u32),
}

/// A listener that no runtime has yet.
enum Bound {
    Tcp(TcpListener),
    Unix(UnixListener, u32),
}

/// The routes that are answered.
#[derive(Clone)]
pub(super) struct Routes {
    pub register: Arc<dyn Fn(&mut ServiceConfig) + Send + Sync>,
    /// Whether a call ends where its caller hangs up. A handler of the leader goes on: it must not stop
    /// in the middle of what it changes.
    pub end_with_caller: bool,
}

/// Starts all threads, which answer these routes.
pub(super) fn start(
    house: &Arc<House>,
    routes: &Routes,
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, u32)>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    let room = house.limits.room;
    let local = Arc::new(Crowd::new(room));
    for (listener, service_uid) in unix {
        let bound = Bound::Unix(listener, service_uid);
        threads.push(thread("web-unix", vec![bound], (house, routes), &local)?);
    }
    let remote = Arc::new(Crowd::new(room));
    if !tcp.is_empty() {
        for _ in 0..TCP_THREADS {
            let bound = tcp.iter().map(|listener| listener.try_clone().map(Bound::Tcp));
            let bound = bound.collect::<io::Result<_>>()?;
            threads.push(thread("web-tcp", bound, (house, routes), &remote)?);
        }
    }
    Ok(threads)
}

fn thread(
    name: &str,
    bound: Vec<Bound>,
    (house, routes): (&Arc<House>, &Routes),
    crowd: &Arc<Crowd>,
) -> io::Result<JoinHandle<()>> {
    let (house, routes, crowd) = (Arc::clone(house), routes.clone(), Arc::clone(crowd));
    let (ready, started) = std::sync::mpsc::channel();
    let run = move || {
        rt::System::new().block_on(async move {
            let doors: io::Result<Vec<Door>> = bound.into_iter().map(Door::open).collect();
            match doors {
                Ok(doors) => {
                    // The starter waits below.
                    let _ = ready.send(Ok(()));
                    serve(doors, (&house, &routes), &crowd).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(run)?;
    match started.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the thread ended early")),
    }
}

impl Door {
    fn open(bound: Bound) -> io::Result<Self> {
        match bound {
            Bound::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(listener).map(Self::Tcp)
            }
            Bound::Unix(listener, uid) => {
                listener.set_nonblocking(true)?;
                tokio::net::UnixListener::from_std(listener).map(|it| Self::Unix(it, uid))
            }
        }
    }

    /// The next connection, and who is at its other end.
    async fn accept(&self) -> io::Result<(Stream, Other)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are sent whole; without it a small one may wait for nothing.
                let _ = stream.set_nodelay(true);
                Ok((Stream::Tcp(stream), Other::Address(address)))
            }
            Self::Unix(listener, service_uid) => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                let service_uid = *service_uid;
                let peer = LocalPeer { uid: peer.uid(), gid: peer.gid(), service_uid };
                Ok((Stream::Unix(stream), Other::User(peer)))
            }
        }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy)]
enum Other {
    Address(SocketAddr),
    User(LocalPeer),
}

impl Other {
    fn peer(self) -> Peer {
        match self {
            Self::Address(address) => Peer::at(address.ip()),
            Self::User(peer) => Peer::User(peer.uid),
        }
    }
}

async fn serve(doors: Vec<Door>, (house, routes): (&Arc<House>, &Routes), crowd: &Arc<Crowd>) {
    let app = App::new()
        .app_data(web::Data::from(Arc::clone(house)))
        .configure(|config| (routes.register)(config))
        .wrap(from_fn(forwarded::admit))
        .wrap(from_fn(seat::follow))
        .wrap(from_fn(audited::follow))
        // What one caller may see is for no cache, and what is JSON is read as nothing else.
        .wrap(
            DefaultHeaders::new()
                .add((CACHE_CONTROL, "no-store"))
                .add((X_CONTENT_TYPE_OPTIONS, "nosniff")),
        );
    let factory = HttpService::<Wire, _, BoxBody>::build()
        .keep_alive(KEEP_ALIVE)
        // Heads and bodies have their limits with the line, each of them, and not the first alone.
        .client_request_timeout(Duration::ZERO)
        .client_disconnect_timeout(REST_LIMIT)
        .h1_allow_half_closed(!routes.end_with_caller)
        .on_connect_ext(|wire: &Wire, data| {
            data.insert(Arc::clone(&wire.seat));
            data.insert(wire.peer);
            if let Some(local) = wire.local {
                data.insert(local);
            }
        })
        .h1(map_config(app, |()| AppConfig::default()));
    let Ok(service) = factory.new_service(()).await else {
        // What failed was answered by the framework, which has no more to say.
        tracing::error!("web cannot be built");
        return;
    };
    let service = Rc::new(service);
    let answer = |stream: Stream, other: Other| {
        let (service, house, crowd) = (Rc::clone(&service), Arc::clone(house), Arc::clone(crowd));
        async move {
            let (local, address) = match other {
                Other::User(peer) => (Some(peer), None),
                Other::Address(address) => (None, Some(address)),
            };
            let peer = other.peer();
            let known = local.is_some_and(|local| house.auth().knows(local));
            let seat = Seat::take(&crowd, peer, known);
            let wire = Wire { stream, seat: Arc::clone(&seat), peer, local, refusal: None };
            let connection = service.call((wire, address));
            tokio::pin!(connection);
            let over = seat.line.over();
            tokio::pin!(over);
            let stopping = async {
                house.stopping().await;
                seat.line.stop();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                // How a connection ended is its client's affair.
                _ = &mut connection => {}
                () = &mut over => {}
                () = stopping => {}
            }
        }
    };
    let mut connections = JoinSet::new();
    let stopping = house.stopping();
    tokio::pin!(stopping);
    loop {
        let next =
            futures_util::future::select_all(doors.iter().map(|door| Box::pin(door.accept())));
        tokio::select! {
            () = &mut stopping => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (accepted, _, _) = next => match accepted {
                Ok((stream, other)) => drop(connections.spawn_local(answer(stream, other))),
                Err(error) if is_of_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    crowd.shed(8);
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
    drop(doors);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_LIMIT, ended).await.is_err() {
        tracing::warn!("requests cut that did not end");
    }
}

/// Whether only the connection that would have come is gone.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotConnected
            | io::ErrorKind::Interrupted
    )
}
