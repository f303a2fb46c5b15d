//! A transport for tests: answers from a script and records the requests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::connection::{Connection, Login, Tls};
use crate::endpoint::Endpoint;
use crate::error::PveError;
use crate::transport::{Dialer, Reply, Request, Transport, TransportError};

/// The answer to one request.
pub enum Step {
    /// Status 200 with this `data`.
    Data(Value),
    /// A refusal with this status and `message`.
    Refuse(u16, &'static str),
    /// A refusal with status 400 and `errors`.
    Errors(Value),
    /// No connection is made.
    NoRoute,
    /// The connection closes before the answer.
    Closed,
    /// No answer ever comes.
    Silence,
}

type Answers = Box<dyn FnMut(&str, &Request) -> Step + Send>;

/// A scripted cluster; each request is shown as `host METHOD path key=value …`.
#[derive(Clone)]
pub struct Script {
    answers: Arc<Mutex<Answers>>,
    seen: Arc<Mutex<Vec<String>>>,
    headers: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// Answers by a function of the request as shown, without its host.
    pub fn new(mut answers: impl FnMut(&str) -> Step + Send + 'static) -> Self {
        Self::by_host(move |_, asked| answers(asked))
    }

    /// Answers by a function of the host and the request as shown.
    pub fn by_host(mut answers: impl FnMut(&str, &str) -> Step + Send + 'static) -> Self {
        let by_request = move |host: &str, request: &Request| answers(host, &show(request));
        Self {
            answers: Arc::new(Mutex::new(Box::new(by_request))),
            seen: Arc::default(),
            headers: Arc::default(),
        }
    }

    /// The requests so far, oldest first.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    /// The headers of each request so far, oldest first.
    pub fn headers(&self) -> Vec<String> {
        self.headers.lock().unwrap().clone()
    }
}

fn show(request: &Request) -> String {
    let mut text = format!("{} {}", request.method.as_str(), request.path);
    for (key, value) in &request.params {
        text.push_str(&format!(" {key}={value}"));
    }
    text
}

impl Dialer for Script {
    fn dial(&self, endpoint: &Endpoint, _: &Connection) -> Result<Arc<dyn Transport>, PveError> {
        Ok(Arc::new(ScriptedTransport { script: self.clone(), host: endpoint.host().to_owned() }))
    }
}

struct ScriptedTransport {
    script: Script,
    host: String,
}

impl Transport for ScriptedTransport {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Reply, TransportError>> {
        let (script, host) = (self.script.clone(), self.host.clone());
        Box::pin(async move {
            script.seen.lock().unwrap().push(format!("{host} {}", show(&request)));
            let headers = request.headers.iter();
            let headers = headers.map(|(name, value)| format!("{name}: {}", value.expose_secret()));
            script.headers.lock().unwrap().push(headers.collect::<Vec<_>>().join(", "));
            let step = (script.answers.lock().unwrap())(&host, &request);
            let (status, body) = match step {
                Step::Data(data) => (200, json!({ "data": data })),
                Step::Refuse(status, text) => (status, json!({"data": null, "message": text})),
                Step::Errors(errors) => (400, json!({"data": null, "errors": errors})),
                Step::NoRoute => return Err(TransportError::Connect("No route to host".into())),
                Step::Closed => return Err(TransportError::Closed("connection reset".into())),
                Step::Silence => std::future::pending().await,
            };
            let body = Bytes::from(body.to_string());
            Ok(Reply { status, reason: "reason".into(), content_type: None, body })
        })
    }
}

/// A login with an API token.
pub fn token() -> Login {
    Login::Token { id: "ci@pve!drover".into(), secret: "s3cret".into() }
}

/// A connection to these hosts, on the default port.
pub fn connection(hosts: &[&str], login: Login) -> Connection {
    let endpoints = hosts.iter().map(|host| Endpoint::new(*host, 8006)).collect();
    Connection::new(endpoints, login, Tls::System)
}
