//! The client: makes calls as one login.
//!
//! ```text
//! call ──> headers (auth.rs) ──> endpoint by endpoint (route.rs): permit (limiter.rs) ──> transport
//!            ^                                                                              │
//!            └── new ticket, once, after a 401 <──────────── answer, or PveError <──────────┘
//! ```
//!
//! It moves on to the next endpoint only when a connection was not made. A read is repeated once
//! when its kept-alive connection closed; a write is never repeated, except after a 401, which a
//! node answers before it does anything. Every call ends within the total timeout.

use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use parking_lot::Mutex;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::auth::Session;
use crate::connection::Connection;
use crate::error::{Call, PveError};
use crate::limiter::{CallLimiter, CallPermit, NotAdmitted};
use crate::refusal::Refusal;
use crate::route::Route;
use crate::tls::CertificateRefused;
use crate::transport::{
    Dialer, Method, Reply, Request, Sent, Transport, TransportError, UploadFile,
};

/// Headers that authenticate a call.
pub type Headers = Vec<(&'static str, SecretString)>;

/// The parameters of a call, in order and not encoded.
pub type Params = Vec<(String, String)>;

/// A successful answer (status below 300), with the endpoint that gave it.
#[derive(Debug)]
pub struct Answer {
    /// The index of the endpoint in the connection's list.
    pub endpoint: usize,
    name: String,
    reply: Reply,
}

impl Answer {
    /// Reads the answer's `data`.
    pub fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, PveError> {
        #[derive(Deserialize)]
        struct Envelope<T> {
            data: T,
        }
        // Checks the whole body for UTF-8 once, rather than each string in it.
        let envelope: Result<Envelope<T>, _> = match std::str::from_utf8(&self.reply.body) {
            Ok(body) => serde_json::from_str(body),
            Err(_) => serde_json::from_slice(&self.reply.body),
        };
        envelope.map(|envelope| envelope.data).map_err(|source| PveError::Shape {
            call: call.clone(),
            endpoint: self.name.clone(),
            source,
        })
    }
}

/// A login at one cluster, with a transport to each of its endpoints.
pub struct Client {
    route: Route,
    session: Session,
    call_timeout: Duration,
    limiter: Mutex<Option<Arc<dyn CallLimiter>>>,
}

impl Client {
    /// Prepares the transports to all endpoints; connects at the first call.
    ///
    /// # Errors
    /// [`PveError::Setup`] without an endpoint, and when TLS cannot be set up.
    pub fn new(connection: &Connection, dialer: &dyn Dialer) -> Result<Self, PveError> {
        if connection.endpoints.is_empty() {
            return Err(PveError::setup("no endpoint is given: name one node of the cluster"));
        }
        let mut transports: Vec<(_, Arc<dyn Transport>)> = Vec::new();
        for endpoint in &connection.endpoints {
            transports.push((endpoint.clone(), dialer.dial(endpoint, connection)?));
        }
        Ok(Self {
            route: Route::new(transports),
            session: Session::new(connection.login.clone()),
            call_timeout: connection.call_timeout,
            limiter: Mutex::default(),
        })
    }

    /// Lets `limiter` decide from now on when each call is sent.
    pub fn set_limiter(&self, limiter: Arc<dyn CallLimiter>) {
        *self.limiter.lock() = Some(limiter);
    }

    fn limiter(&self) -> Option<Arc<dyn CallLimiter>> {
        self.limiter.lock().clone()
    }

    /// The endpoints, and which of them takes the next call.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The name of an endpoint; empty when there is none at this index.
    pub fn endpoint(&self, index: usize) -> String {
        self.route.get(index).map(|(endpoint, _)| endpoint.to_string()).unwrap_or_default()
    }

    /// The login's name, without its secret.
    pub fn login(&self) -> &str {
        self.session.name()
    }

    /// Makes a GET call and reads its answer.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        params: Params,
    ) -> Result<T, PveError> {
        let call = Call::new(Method::Get, path);
        self.call(&call, params).await?.read(&call)
    }

    /// Makes a writing call and reads its answer.
    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        params: Params,
    ) -> Result<T, PveError> {
        let call = Call::new(method, path);
        self.call(&call, params).await?.read(&call)
    }

    /// Sends a file after the parameters, and reads the answer.
    pub async fn send_file<T: DeserializeOwned>(
        &self,
        path: &str,
        params: Params,
        file: UploadFile,
    ) -> Result<T, PveError> {
        let call = Call::new(Method::Post, path);
        self.call_with(&call, (params, Some(file))).await?.read(&call)
    }

    /// Makes a call. When a node refuses the ticket, the call is repeated once with a new one; that
    /// is safe for writes, because a node answers 401 before it does anything.
    pub async fn call(&self, call: &Call, params: Params) -> Result<Answer, PveError> {
        self.call_with(call, (params, None)).await
    }

    async fn call_with(
        &self,
        call: &Call,
        body: (Params, Option<UploadFile>),
    ) -> Result<Answer, PveError> {
        let headers = self.session.headers(self, call.method).await?;
        let first = self.exchange(call, body.clone(), headers.clone()).await;
        match &first {
            Err(PveError::Refused { refusal, .. })
                if refusal.status == 401 && self.session.renewable() =>
            {
                self.session.forget(&headers).await;
                let headers = self.session.headers(self, call.method).await?;
                self.exchange(call, body, headers).await
            }
            _ => first,
        }
    }

    /// Sends a request to the first endpoint that accepts a connection.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        (params, file): (Params, Option<UploadFile>),
        headers: Headers,
    ) -> Result<Answer, PveError> {
        let order = match &file {
            // The node in `/nodes/NODE/…`.
            Some(_) => self.route.order_for_node(call.path.split('/').nth(2).unwrap_or_default()),
            None => self.route.order(),
        };
        let timeout = file.as_ref().and_then(|file| file.limit).unwrap_or(self.call_timeout);
        let request = Request {
            method: call.method,
            path: call.path.clone(),
            params,
            file,
            headers,
            timeout,
        };
        let mut tried = Vec::new();
        let (mut distrusted, mut seen, mut advice) = (true, None, None);
        let mut unsent = None;
        for index in order {
            let Some((endpoint, transport)) = self.route.get(index) else { continue };
            let name = endpoint.to_string();
            let mut permit = match self.permit(call, &name).await {
                Ok(permit) => permit,
                Err(source) => {
                    let endpoint = name;
                    unsent = Some(PveError::Unsent { call: call.clone(), endpoint, source });
                    continue;
                }
            };
            let outcome = self.send(transport, &request).await;
            if let Some(mut permit) = permit.take() {
                permit.ended(&outcome);
            }
            match outcome {
                Ok(reply) => {
                    self.route.mark_used(index);
                    return into_answer(call, index, endpoint.to_string(), reply);
                }
                Err(error) if error.sent() == Sent::No => {
                    let refused = match &error {
                        TransportError::Certificate(refused) => Some(&**refused),
                        TransportError::Connect(_)
                        | TransportError::BrokeOff(_)
                        | TransportError::Closed(_)
                        | TransportError::TimedOut(_)
                        | TransportError::TooLarge(_)
                        | TransportError::Broken(_) => None,
                    };
                    distrusted &= refused.is_some();
                    seen = refused.map(|one| one.certificate().sha256.clone()).or(seen);
                    advice = refused.map(|one| one.advice()).or(advice);
                    let what = refused.map_or_else(|| chain(&error), CertificateRefused::what);
                    tried.push(format!("`{endpoint}`: {what}"));
                }
                Err(source) => {
                    if matches!(source, TransportError::TimedOut(_)) {
                        // It accepts connections and does not answer: the next call goes elsewhere.
                        self.route.skip(index);
                    }
                    let endpoint = endpoint.to_string();
                    return Err(PveError::Lost { call: call.clone(), endpoint, source });
                }
            }
        }
        // A call that was not admitted does not make its endpoint unreachable.
        let (call, answered) = (call.clone(), self.route.has_answered());
        let unreachable = PveError::Unreachable { call, tried, distrusted, seen, advice, answered };
        Err(unsent.unwrap_or(unreachable))
    }

    async fn permit(
        &self,
        call: &Call,
        endpoint: &str,
    ) -> Result<Option<Box<dyn CallPermit>>, NotAdmitted> {
        match self.limiter() {
            Some(limiter) => limiter.admit(call, endpoint).await.map(Some),
            None => Ok(None),
        }
    }

    /// Sends a request, and a read once more when its kept-alive connection was closed meanwhile.
    async fn send(
        &self,
        transport: &Arc<dyn Transport>,
        request: &Request,
    ) -> Result<Reply, TransportError> {
        match self.send_once(transport, request).await {
            Err(TransportError::Closed(_)) if !request.method.writes() => {
                self.send_once(transport, request).await
            }
            other => other,
        }
    }

    async fn send_once(
        &self,
        transport: &Arc<dyn Transport>,
        request: &Request,
    ) -> Result<Reply, TransportError> {
        let limit = request.timeout;
        match tokio::time::timeout(limit, transport.send(request.clone())).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::TimedOut(limit)),
        }
    }
}

fn into_answer(
    call: &Call,
    endpoint: usize,
    name: String,
    reply: Reply,
) -> Result<Answer, PveError> {
    if (200..300).contains(&reply.status) {
        return Ok(Answer { endpoint, name, reply });
    }
    let refusal = Refusal::of(&reply);
    Err(PveError::Refused { call: call.clone(), endpoint: name, refusal })
}
