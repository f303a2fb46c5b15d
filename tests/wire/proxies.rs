//! Proxies on the way to CI systems: those that the environment and the YAML name, and the ways past them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine as _;
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio_rustls::TlsAcceptor;

use crate::ci::{Fake, Server};
use crate::harness::{Events, Service, Sim, Site, WAIT_LIMIT, drover, world};
use crate::woodpecker::Woodpecker;

/// A forward proxy on loopback, which takes each host for this machine and keeps what it was asked for.
struct Forward {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Forward {
    /// One that serves those who log in so.
    fn start(login: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let login = base64::engine::general_purpose::STANDARD.encode(login);
        let (login, all) = (format!("Basic {login}"), Arc::clone(&asked));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (login, asked) = (login.clone(), Arc::clone(&all));
                // One that ends in the middle of its request is no fault.
                std::thread::spawn(move || drop(carry(client, &login, &asked)));
            }
        });
        Self { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The header of a login.
const LOGIN: &str = "proxy-authorization";

/// Serves one connection: a request, or a tunnel for as long as it stands.
fn carry(mut client: TcpStream, login: &str, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let mut words = head.first().map_or("", String::as_str).split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if target.is_empty() {
        return Ok(());
    }
    asked.lock().unwrap().push(format!("{method} {target}"));
    let pairs = head[1..].iter().filter_map(|line| line.split_once(": "));
    let (own, others): (Vec<_>, Vec<_>) =
        pairs.partition(|(name, _)| name.to_ascii_lowercase().starts_with("proxy-"));
    let is_known =
        own.iter().any(|(name, value)| name.eq_ignore_ascii_case(LOGIN) && *value == login);
    if !is_known {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\n\
                       Proxy-Authenticate: Basic realm=\"lab\"\r\nContent-Length: 0\r\n\
                       Connection: close\r\n\r\n";
        return client.write_all(refusal.as_bytes());
    }
    if method == "CONNECT" {
        let server = here(target)?;
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let (from, to) = (server.try_clone()?, client);
        std::thread::spawn(move || pump(from, to));
        pump(reader, server);
        return Ok(());
    }
    let rest = target.trim_start_matches("http://");
    let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut server = here(place)?;
    let mut request = format!("{method} /{path} HTTP/1.1\r\n");
    for (name, value) in others {
        request += &format!("{name}: {value}\r\n");
    }
    server.write_all(format!("{request}\r\n").as_bytes())?;
    pump(server, client);
    Ok(())
}

/// A connection to the port of a `host:port`, on this machine.
fn here(place: &str) -> std::io::Result<TcpStream> {
    let port = place.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    TcpStream::connect(("127.0.0.1", port.unwrap_or(0)))
}

/// Carries bytes one way until they end.
fn pump(mut from: impl Read, mut to: TcpStream) {
    // Either end may be gone, which is the end of it.
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

/// TLS before a server of this address, by a certificate for this name: its port, and the certificate.
pub fn tls_before(address: String, name: &str) -> (u16, String) {
    let certified = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, address) = (acceptor.clone(), address.clone());
                tokio::spawn(async move {
                    let Ok(mut inner) = acceptor.accept(stream).await else { return };
                    let Ok(mut plain) = tokio::net::TcpStream::connect(&address).await else {
                        return;
                    };
                    // Either end may be gone, which is the end of it.
                    let _ = tokio::io::copy_bidirectional(&mut inner, &mut plain).await;
                });
            }
        });
    });
    (port, certified.cert.pem())
}

/// A server that is reached by several names of this machine, and the service.
struct Scene {
    server: Server<Woodpecker>,
    sim: Sim,
    site: Site,
    proxy: Forward,
    /// The ports of the server, without and with TLS.
    ports: (String, u16),
    _dir: tempfile::TempDir,
}

/// The login of the proxy; a URL has it escaped.
const USER: (&str, &str) = ("ann:a secret", "ann:a%20secret");

impl Scene {
    fn new() -> Self {
        let server = Server::start(Woodpecker::default());
        let (dir, sim, site) = world();
        let token = server.fake().core().token.clone();
        site.write_secret("ci", &token);
        let names = ["plain", "secure", "near", "own"];
        let hosts: String = names.iter().map(|name| format!("127.0.0.1 {name}.lan\n")).collect();
        fs::write(site.dir.path().join("hosts"), hosts).unwrap();
        let (secure, pem) = tls_before(server.address(), "secure.lan");
        fs::write(site.dir.path().join("secure.pem"), pem).unwrap();
        let plain = server.address().rsplit(':').next().unwrap_or_default().to_owned();
        let proxy = Forward::start(USER.0);
        Self { server, sim, site, proxy, ports: (plain, secure), _dir: dir }
    }

    /// Writes a YAML with sources of these names, each at its host, with more keys.
    fn write(&self, sources: &[(&str, &str)]) {
        let dir = self.site.dir.path().display();
        let credential =
            format!("credentials:\n  ci: {{kind: apiToken, secretFile: \"{dir}/ci\"}}\n");
        let yaml = self.site.yaml(&self.sim, "").replace("credentials:\n", &credential);
        let address = self.server.address();
        let keys = format!(
            "kind: woodpecker, credentialsId: ci, pollSeconds: 1, grpcServer: \"{address}\", \
             grpcSecure: false"
        );
        let (plain, secure) = &self.ports;
        let each = sources.iter().map(|(name, more)| {
            let (url, trust) = match *name {
                "secure" => {
                    let trust = format!(", caFile: \"{dir}/secure.pem\"");
                    (format!("https://secure.lan:{secure}"), trust)
                }
                name => (format!("http://{name}.lan:{plain}"), String::new()),
            };
            format!("  {name}: {{{keys}, url: \"{url}\"{trust}{more}}}\n")
        });
        let sources: String = each.collect();
        self.site.write_yaml(&format!("{yaml}demand:\n{sources}"));
    }

    /// A command that knows the names, with a proxy in its environment.
    fn command(&self, login: &str) -> Command {
        let plain = drover();
        let mut command = Command::new("bwrap");
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let proxy = format!("http://{login}127.0.0.1:{}", self.proxy.port);
        command.env("HTTP_PROXY", &proxy).env("HTTPS_PROXY", &proxy).env("NO_PROXY", "near.lan");
        command.args(["--die-with-parent", "--dev-bind", "/", "/", "--ro-bind"]);
        command.arg(self.site.dir.path().join("hosts")).args(["/etc/hosts", "--"]);
        command.arg(plain.get_program()).arg("--config").arg(self.site.config());
        command.stdin(Stdio::null());
        command
    }

    fn start(&self, login: &str) -> (Service, Events) {
        let mut command = self.command(login);
        command.arg("run");
        let mut service = Service::launch(command);
        service.hear("READY=1");
        service.drain();
        let events = Events::follow(&self.site);
        (service, events)
    }

    /// What is reported a source.
    fn reported(&self, name: &str) -> Value {
        let status = self.site.json(&["status"]);
        let mut all = status["sources"].as_array().into_iter().flatten();
        all.find(|source| source["id"] == name).cloned().unwrap_or_default()
    }
}

/// Waits until each of these sources was looked at and showed its job.
fn seen(events: &mut Events, names: &[&str]) {
    let mut left: BTreeSet<&str> = names.iter().copied().collect();
    while !left.is_empty() {
        let fact = events.until("source", |fact| fact["source"]["unoffered"] == 1);
        left.remove(fact["source"]["id"].as_str().unwrap());
    }
}

// Invariant: a source is reached by the proxy that the environment names for it, and by none where the
// environment or the YAML says so.

#[test]
fn a_source_is_reached_by_the_proxy_of_the_environment_and_past_it_where_no_proxy_says_so() {
    let scene = Scene::new();
    scene.write(&[("plain", ""), ("secure", ""), ("near", ""), ("own", ", proxy: none")]);
    let (_service, mut events) = scene.start(&format!("{}@", USER.1));
    scene.server.push("it", &["os=windows"], "true");
    seen(&mut events, &["plain", "secure", "near", "own"]);

    let (plain, secure) = &scene.ports;
    let (request, tunnel) =
        (format!("GET http://plain.lan:{plain}/"), format!("CONNECT secure.lan:{secure}"));
    let asked = scene.proxy.asked();
    assert!(asked.iter().any(|line| line.starts_with(&request)), "{asked:?}");
    assert!(asked.contains(&tunnel), "{asked:?}");
    let others: Vec<&String> =
        asked.iter().filter(|line| !line.starts_with(&request) && **line != tunnel).collect();
    assert!(others.is_empty(), "others go past it: {others:?}");
}

// Invariant: a proxy that refuses is reported as that, nothing goes past it unless somebody says so, and then all
// is served.

#[test]
fn a_proxy_that_refuses_is_reported_and_nothing_goes_past_it_unless_the_yaml_says_so() {
    let scene = Scene::new();
    scene.write(&[("plain", ""), ("secure", "")]);
    scene.server.push("it", &["os=windows"], "true");
    let (_service, mut events) = scene.start("");
    let end = Instant::now() + WAIT_LIMIT;
    while ["plain", "secure"].iter().any(|name| scene.reported(name)["silentSince"].is_null()) {
        assert!(Instant::now() < end, "{} {}", scene.reported("plain"), scene.reported("secure"));
    }
    let detail = |name| scene.reported(name)["detail"].as_str().unwrap_or_default().to_owned();
    let (plain, secure) = (detail("plain"), detail("secure"));
    let begin = "source `plain` is behind a proxy that refuses drover: GET /api/agents: 407; ";
    assert!(plain.starts_with(begin) && plain.contains("`HTTP_PROXY`"), "{plain}");
    assert!(secure.contains("tunnel error: proxy authorization required"), "{secure}");
    assert!(secure.ends_with("in `NO_PROXY` or set `proxy: none`"), "{secure}");
    assert_eq!(doctored(&scene, "plain"), "fail  proxy: wants a login: GET /api/user: 407");
    assert_eq!(scene.server.fake().core().calls, Vec::<String>::new());

    scene.write(&[("plain", ", proxy: none"), ("secure", ", proxy: none")]);
    let reloaded = scene.site.cli(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    seen(&mut events, &["plain", "secure"]);
}

/// The line of `drover doctor` that says what is wrong with a source.
fn doctored(scene: &Scene, source: &str) -> String {
    let mut command = scene.command("");
    let out = command.args(["doctor", "--source", source]).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = said.lines().map(str::trim).find(|line| line.starts_with("fail"));
    line.map(str::to_owned).unwrap_or(said)
}
