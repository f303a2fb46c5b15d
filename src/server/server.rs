//! Sockets and threads of the web: binding, serving, stopping.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::{fs, io};

use actix_web::web;

use super::auth::Auth;
use super::house::{House, Limits};
use super::routes;
use super::serve::{self, Routes};
use super::session::SessionKey;
use super::standby::{self, Standby, StandbyDoors};
use super::state::{Doors, State};

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
        place: String,
        #[source]
        cause: io::Error,
    },
    /// A thread of the web could not be started.
    #[error("cannot start a thread of the web")]
    Thread(#[source] io::Error),
    /// The client that calls the leader could not be made.
    #[error("cannot prepare calls to the leader")]
    Client(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The web while it runs.
pub struct Running {
    /// TCP addresses it listens on, in the order asked for, with the ports the system chose.
    pub addrs: Vec<SocketAddr>,
    sockets: Arc<Sockets>,
    house: Arc<House>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Changes who may come in, from the next request on.
    pub fn replace_auth(&self, auth: Auth) {
        self.sockets.follow(&auth);
        self.house.replace_auth(auth);
    }

    /// Stops: no new connection, waiting requests and streams end, running ones have 5 s.
    pub async fn stop(self) {
        self.house.stopping.send_replace(true);
        let threads = self.threads;
        let join = || threads.into_iter().all(|thread| thread.join().is_ok());
        if !matches!(tokio::task::spawn_blocking(join).await, Ok(true)) {
            tracing::warn!("web ended with a fault");
        }
        drop(self.sockets);
    }
}

/// Unix sockets that go with the last server on them, with the modes they were given.
#[derive(Default)]
struct Sockets(Vec<(PathBuf, Option<u32>)>);

impl Sockets {
    /// Lets those reach the sockets who may come in now.
    fn follow(&self, auth: &Auth) {
        for (path, _) in self.0.iter().filter(|(_, mode)| mode.is_none()) {
            let mode = fs::Permissions::from_mode(needed_mode(auth));
            if let Err(error) = fs::set_permissions(path, mode) {
                tracing::warn!(socket = %path.display(), %error, "socket keeps its mode");
            }
        }
    }
}

/// Who may come in is decided by peer credentials; the mode only spares others the attempt.
fn needed_mode(auth: &Auth) -> u32 {
    if auth.admits_peers() { 0o666 } else { 0o600 }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for (socket, _) in &self.0 {
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
    sockets: Arc<Sockets>,
}

/// Takes the addresses; anyone who is to come in by them says which permissions a socket needs.
///
/// # Errors
/// [`StartError`], when one is in use or the system refuses it.
pub fn bind(listen: Vec<Listen>, auth: &Auth) -> Result<Bound, StartError> {
    let (mut tcp, mut unix, mut addrs, mut sockets) = (vec![], vec![], vec![], Sockets::default());
    for place in listen {
        match place {
            Listen::Tcp(addr) => {
                let (listener, addr) = bind_tcp(addr)?;
                tcp.push(listener);
                addrs.push(addr);
            }
            Listen::Unix { path, mode } => {
                unix.push(bind_unix(&path, mode.unwrap_or_else(|| needed_mode(auth)))?);
                sockets.0.push((path, mode));
            }
        }
    }
    Ok(Bound { tcp, unix, addrs, sockets: Arc::new(sockets) })
}

impl Bound {
    /// The same addresses, to be served once more. While one of both is there, connections wait for
    /// the next server, and the Unix socket keeps its file.
    ///
    /// # Errors
    /// The system's, where the process has no descriptor left.
    pub fn again(&self) -> io::Result<Self> {
        let tcp = self.tcp.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?;
        let unix = self.unix.iter().map(|(listener, uid)| Ok((listener.try_clone()?, *uid)));
        let unix = unix.collect::<io::Result<_>>()?;
        Ok(Self { tcp, unix, addrs: self.addrs.clone(), sockets: Arc::clone(&self.sockets) })
    }

    /// TCP addresses, in the order asked for, with the ports the system chose.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Serves as the leader, or alone, on threads of its own.
    ///
    /// # Errors
    /// [`StartError::Thread`].
    pub fn serve(self, doors: Doors, auth: Auth, limits: Limits) -> Result<Running, StartError> {
        let (key, sessions) = (doors.key.clone(), doors.session_key.clone());
        let house = House::new(limits, auth, key, sessions, doors.audit.clone());
        let state = web::Data::new(State::new(doors, &house));
        let register = Arc::new(move |config: &mut web::ServiceConfig| {
            config.app_data(state.clone());
            routes::register(config);
        });
        self.run(house, &Routes { register, end_with_caller: false })
    }

    /// Serves as a standby on threads of its own: calls go on to the leader.
    ///
    /// # Errors
    /// [`StartError::Thread`] and [`StartError::Client`].
    pub fn stand_by(
        self,
        doors: StandbyDoors,
        auth: Auth,
        limits: Limits,
    ) -> Result<Running, StartError> {
        let sessions = SessionKey::of_members(&doors.key);
        let key = Some(doors.key.clone());
        let house = House::new(limits, auth, key, sessions, doors.audit.clone());
        let standby = web::Data::new(Standby::new(doors).map_err(StartError::Client)?);
        let register = Arc::new(move |config: &mut web::ServiceConfig| {
            standby::register(config, &standby);
        });
        // What a caller waited for and does not any more leaves room for other calls.
        self.run(house, &Routes { register, end_with_caller: true })
    }

    fn run(self, house: Arc<House>, routes: &Routes) -> Result<Running, StartError> {
        let Self { tcp, unix, addrs, sockets } = self;
        // Since the sockets were bound, others may have come to be listed.
        sockets.follow(&house.auth());
        let threads = serve::start(&house, routes, tcp, unix).map_err(|cause| {
            // Those that run already end.
            house.stopping.send_replace(true);
            StartError::Thread(cause)
        })?;
        Ok(Running { addrs, sockets, house, threads })
    }
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
    // A runtime directory goes at each boot, and without a unit nobody else makes it.
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let made = fs::DirBuilder::new().mode(0o755).create(parent);
        made.or_else(|error| if parent.is_dir() { Ok(()) } else { Err(error) }).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
    let uid = fs::metadata(path).map_err(failed)?.uid();
    Ok((listener, uid))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::auth::PeerGrant;
    use super::super::testing::{self, Served};
    use super::*;
    use drover_api::{Peer, Role};

    // Invariant: one socket, one service.

    #[tokio::test]
    async fn a_socket_in_use_is_refused_and_a_stale_one_replaced() {
        let served = Served::default();
        let listen = |path: &std::path::Path| {
            let listen = vec![Listen::Unix { path: path.to_owned(), mode: None }];
            bind(listen, &Auth::default())
        };
        assert!(matches!(listen(&served.socket), Err(StartError::InUse(_))));
        let file = served.directory.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(matches!(listen(&file), Err(StartError::NotASocket(_))));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        let stale = served.directory.path().join("stale.sock");
        drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
        drop(listen(&stale).ok().unwrap());
        assert!(!stale.exists());
        // The directory is made, and none above it.
        let run = served.directory.path().join("run");
        drop(listen(&run.join("drover.sock")).ok().unwrap());
        assert_eq!(std::fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(matches!(listen(&run.join("a/b/drover.sock")), Err(StartError::Bind { .. })));
        served.stop().await;
    }

    #[tokio::test]
    async fn the_socket_has_the_mode_it_was_given_or_what_its_callers_need() {
        use std::os::unix::fs::PermissionsExt;

        let served = Served::default();
        let path = served.directory.path().join("other.sock");
        let peers = || Auth::new([], vec![PeerGrant { peer: Peer::Uid(7), role: Role::Viewer }]);
        for (mode, auth, expected) in [
            (None, Auth::default(), 0o600),
            (None, peers(), 0o666),
            (Some(0o660), Auth::default(), 0o660),
            (Some(0o600), peers(), 0o600),
        ] {
            let listen = vec![Listen::Unix { path: path.clone(), mode }];
            let bound = bind(listen, &auth).ok().unwrap();
            let running = bound.serve(served.doors(), auth, Limits::default()).ok().unwrap();
            let seen = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(seen(), expected);
            // Anyone who is listed by an edit reaches it, and anyone who is not any more does not.
            running.replace_auth(peers());
            assert_eq!(seen(), mode.unwrap_or(0o666));
            running.replace_auth(Auth::default());
            assert_eq!(seen(), mode.unwrap_or(0o600));
            running.stop().await;
        }
        served.stop().await;
    }

    // Invariant: between two servers on the same addresses nobody is turned away.

    #[tokio::test]
    async fn the_next_server_answers_who_came_while_none_was_there() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        const CALL: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: drover\r\nconnection: close\r\n\r\n";
        let served = Served::leading();
        let path = served.directory.path().join("other.sock");
        let listen = vec![
            Listen::Unix { path: path.clone(), mode: None },
            Listen::Tcp("127.0.0.1:0".parse().unwrap()),
        ];
        let bound = bind(listen, &Auth::default()).ok().unwrap();
        let doors = StandbyDoors {
            leader: tokio::sync::watch::channel(None).1,
            members: Arc::new(testing::members),
            audit: served.doors().audit,
            key: testing::members_key(),
            member: "b".to_owned(),
            why: Arc::new(String::new),
        };
        let address = bound.addrs()[0];
        let first = bound.again().unwrap().stand_by(doors, Auth::default(), Limits::default());
        let first = first.ok().unwrap();
        assert_eq!(first.addrs, [address]);
        let asked = async || {
            let mut local = tokio::net::UnixStream::connect(&path).await.unwrap();
            let mut remote = tokio::net::TcpStream::connect(address).await.unwrap();
            local.write_all(CALL).await.unwrap();
            remote.write_all(CALL).await.unwrap();
            (local, remote)
        };
        let answered =
            async |(mut local, mut remote): (tokio::net::UnixStream, tokio::net::TcpStream)| {
                let (mut one, mut other) = (String::new(), String::new());
                local.read_to_string(&mut one).await.unwrap();
                remote.read_to_string(&mut other).await.unwrap();
                [one, other].map(|text| text.split("\r\n\r\n").nth(1).unwrap().to_owned())
            };
        assert_eq!(answered(asked().await).await, [r#"{"status":"standby"}"#; 2]);
        first.stop().await;
        assert!(path.exists());
        let between = asked().await;
        let auth = Auth::new([], vec![PeerGrant { peer: Peer::Uid(7), role: Role::Viewer }]);
        let second = bound.again().unwrap().serve(served.doors(), auth, Limits::default());
        let second = second.ok().unwrap();
        assert_eq!(answered(between).await, [r#"{"status":"alive"}"#; 2]);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "who is listed by now reaches it");
        drop(bound);
        assert!(path.exists(), "a server is on it");
        second.stop().await;
        assert!(!path.exists());
        served.stop().await;
    }
}
