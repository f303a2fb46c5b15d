//! A web server on this machine that runs git's own CGI program, with a login where one is set.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What the server does beside serving repositories.
#[derive(Default)]
pub struct Rules {
    /// The folder of the repositories.
    pub root: PathBuf,
    /// The user and password that every request must have.
    pub login: Option<(String, String)>,
    /// Whether it passes git's newer protocol on.
    pub is_old: bool,
    /// Where every request that is let in is sent instead.
    pub redirect: Option<String>,
    /// The status of every answer.
    pub status: Option<u16>,
    /// What the server says when it refuses a login: `AUTH` becomes what the client sent.
    pub refusal: String,
    /// Takes requests that are let in, and then never answers them.
    pub holds: Option<mpsc::UnboundedSender<()>>,
}

/// One server; it ends with this value.
pub struct HttpServer {
    pub address: SocketAddr,
    /// The `Authorization` of each request.
    pub seen: Arc<Mutex<Vec<Option<String>>>>,
    task: JoinHandle<()>,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpServer {
    pub async fn start(rules: Rules) -> Self {
        Self::start_over(rules, None).await
    }

    /// With TLS where there is an acceptor.
    pub async fn start_over(rules: Rules, tls: Option<tokio_rustls::TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::default();
        let (rules, kept) = (Arc::new(rules), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (rules, seen, tls) = (Arc::clone(&rules), Arc::clone(&kept), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, rules, seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, rules, seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, seen, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    rules: Arc<Rules>,
    seen: Arc<Mutex<Vec<Option<String>>>>,
) {
    let service = service_fn(|request| answer(request, Arc::clone(&rules), Arc::clone(&seen)));
    // A client that goes away early is no failure of the server.
    let _ended = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    rules: Arc<Rules>,
    seen: Arc<Mutex<Vec<Option<String>>>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let header =
        |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let sent = header("authorization");
    seen.lock().unwrap().push(sent.clone());
    let plain = |status: u16, text: &str| {
        Response::builder()
            .status(status)
            .header("content-type", "text/plain")
            .header("www-authenticate", "Basic realm=\"git\"")
            .body(Full::new(Bytes::from(text.to_owned())))
            .unwrap()
    };
    if let Some((user, password)) = &rules.login {
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        if sent.as_deref() != Some(&format!("Basic {pair}")) {
            return Ok(plain(401, &rules.refusal.replace("AUTH", &sent.unwrap_or_default())));
        }
    }
    if let Some(held) = &rules.holds {
        held.send(()).unwrap();
        return std::future::pending().await;
    }
    if let Some(status) = rules.status {
        return Ok(plain(status, "<html>no</html>\n"));
    }
    if let Some(place) = &rules.redirect {
        let place = format!("{place}{}", request.uri().path_and_query().unwrap());
        let mut answer = plain(302, "");
        answer.headers_mut().insert("location", place.parse().unwrap());
        return Ok(answer);
    }
    let mut cgi = tokio::process::Command::new("git");
    cgi.arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_PROJECT_ROOT", &rules.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", request.uri().path())
        .env("QUERY_STRING", request.uri().query().unwrap_or_default())
        .env("REQUEST_METHOD", request.method().as_str())
        .env("CONTENT_TYPE", header("content-type").unwrap_or_default())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding").unwrap_or_default())
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let (Some(version), false) = (header("git-protocol"), rules.is_old) {
        cgi.env("GIT_PROTOCOL", version);
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut child = cgi.env("CONTENT_LENGTH", body.len().to_string()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (fed, output) =
        tokio::join!(async move { stdin.write_all(&body).await }, child.wait_with_output());
    let (_fed, output) = (fed, output.unwrap().stdout);
    let end = output.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let mut answer = Response::builder();
    for line in std::str::from_utf8(&output[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        answer = if name == "Status" {
            answer.status(value[..3].parse::<u16>().unwrap())
        } else {
            answer.header(name, value)
        };
    }
    Ok(answer.body(Full::new(Bytes::copy_from_slice(&output[end + 4..]))).unwrap())
}
