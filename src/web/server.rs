//! Sockets and threads of the web: binding, serving, stopping.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, io};

use actix_web::dev::ServerHandle;
use actix_web::middleware::from_fn;
use actix_web::{App, HttpServer, rt, web};

use super::{Auth, Doors, Limits, State, auth, routes};

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// On a Unix socket; callers are known by their peer credentials.
    Unix {
        /// The socket's name.
        path: PathBuf,
        /// Its permissions; none for 0666 where local users are listed, else 0600.
        mode: Option<u32>,
    },
    /// On TCP; callers give a bearer token.
    Tcp(SocketAddr),
}

/// Why the web could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Somebody listens there.
    #[error("another process listens on `{0}`; stop it, or give this one another address")]
    InUse(String),
    /// Something that is not a socket has the name.
    #[error("`{0}` exists and is not a socket; move it away, or give another path")]
    NotASocket(PathBuf),
    /// The system refused.
    #[error(
        "cannot listen on `{place}`: make it usable, or name another with --socket, \
         service.socket or service.listen"
    )]
    Bind {
        /// Where.
        place: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The thread of the web could not be started.
    #[error("cannot start the web's thread")]
    Thread(#[source] io::Error),
}

/// The web while it runs.
pub struct Running {
    /// TCP addresses it listens on, in the order asked for, with the ports the system chose.
    pub addrs: Vec<SocketAddr>,
    sockets: Sockets,
    state: web::Data<State>,
    server: ServerHandle,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Changes who may come in, from the next request on.
    pub fn replace_auth(&self, auth: Auth) {
        self.state.replace_auth(auth);
    }

    /// Stops: no new connection, waiting requests and streams end, running ones have 5 s.
    pub async fn stop(self) {
        self.state.stopping.send_replace(true);
        self.server.stop(true).await;
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await;
        if !matches!(ended, Ok(Ok(Ok(())))) {
            tracing::warn!("web ended with a fault");
        }
        drop(self.sockets);
    }
}

/// Unix sockets that go with their server.
#[derive(Default)]
struct Sockets(Vec<PathBuf>);

impl Drop for Sockets {
    fn drop(&mut self) {
        for socket in &self.0 {
            // It may be gone already; what matters is that it does not stay.
            let _ = fs::remove_file(socket);
        }
    }
}

/// Addresses that are taken, and on which nobody is answered yet.
pub struct Bound {
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, u32)>,
    addrs: Vec<SocketAddr>,
    sockets: Sockets,
}

/// Takes the addresses; whoever is to come in by them says which permissions a socket needs.
///
/// # Errors
/// [`StartError`], when one is in use or the system refuses it.
pub fn bind(listen: Vec<Listen>, auth: &Auth) -> Result<Bound, StartError> {
    let (tcp, unix, addrs, sockets) = (vec![], vec![], vec![], Sockets::default());
    let mut bound = Bound { tcp, unix, addrs, sockets };
    for place in listen {
        match place {
            Listen::Tcp(addr) => {
                let (listener, addr) = bind_tcp(addr)?;
                bound.tcp.push(listener);
                bound.addrs.push(addr);
            }
            Listen::Unix { path, mode } => {
                // Who may come in is decided by peer credentials; the mode only spares others the
                // attempt.
                let mode = mode.unwrap_or(if auth.admits_peers() { 0o666 } else { 0o600 });
                bound.unix.push(bind_unix(&path, mode)?);
                bound.sockets.0.push(path);
            }
        }
    }
    Ok(bound)
}

impl Bound {
    /// Serves on threads of its own.
    ///
    /// # Errors
    /// [`StartError::Thread`].
    pub fn serve(self, doors: Doors, auth: Auth, limits: Limits) -> Result<Running, StartError> {
        let Self { tcp, unix, addrs, sockets } = self;
        let state = web::Data::new(State::new(doors, limits, auth));
        let (ready, handle) = std::sync::mpsc::channel();
        let served = state.clone();
        let serve = move || {
            rt::System::new().block_on(async move {
                let server = build(served, tcp, unix)?;
                // The receiver waits below; it cannot have gone.
                let _ = ready.send(server.handle());
                server.await
            })
        };
        let thread = std::thread::Builder::new()
            .name("web".into())
            .spawn(serve)
            .map_err(StartError::Thread)?;
        match handle.recv() {
            Ok(server) => Ok(Running { addrs, sockets, state, server, thread }),
            Err(_) => Err(StartError::Thread(match thread.join() {
                Ok(Err(cause)) => cause,
                Ok(Ok(())) | Err(_) => io::Error::other("the thread ended early"),
            })),
        }
    }
}

fn build(
    state: web::Data<State>,
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, u32)>,
) -> io::Result<actix_web::dev::Server> {
    let service_uid = unix.first().map_or(0, |(_, uid)| *uid);
    let mut server = HttpServer::new(move || {
        App::new().app_data(state.clone()).wrap(from_fn(auth::gate)).configure(routes)
    })
    .on_connect(move |stream, data| auth::note_peer(service_uid, stream, data))
    .workers(2)
    .max_connections(1024)
    .client_request_timeout(Duration::from_secs(10))
    .shutdown_timeout(5)
    .disable_signals();
    for listener in tcp {
        server = server.listen(listener)?;
    }
    for (listener, _) in unix {
        server = server.listen_uds(listener)?;
    }
    Ok(server.run())
}

fn bind_tcp(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let bound = TcpListener::bind(addr).and_then(|listener| {
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    });
    if !addr.ip().is_loopback() {
        tracing::warn!(%addr, "tokens cross the network unencrypted unless a proxy adds tls");
    }
    bound.map_err(|cause| {
        let place = addr.to_string();
        if cause.kind() == io::ErrorKind::AddrInUse {
            StartError::InUse(place)
        } else {
            StartError::Bind { place, cause }
        }
    })
}

/// Binds a Unix socket, past a stale one; gives the user that the service runs as beside it.
fn bind_unix(path: &Path, mode: u32) -> Result<(UnixListener, u32), StartError> {
    let failed = |cause| StartError::Bind { place: path.display().to_string(), cause };
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(StartError::NotASocket(path.to_owned()));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(StartError::InUse(path.display().to_string()));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    let uid = fs::metadata(path).map_err(failed)?.uid();
    Ok((listener, uid))
}
