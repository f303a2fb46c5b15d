//! The calls of one login: log in, fail-over, the total timeout, one repeat of a read whose connection
//! closed, and the reading of answers. Writes are never repeated.

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
use crate::refusal::Refusal;
use crate::route::Route;
use crate::transport::{Dialer, File, Method, Reply, Request, Sent, Transport, TransportError};
use crate::turn::{NoTurn, Turn, Turns};

/// A login's headers.
pub type Headers = Vec<(&'static str, SecretString)>;

/// Parameters of a call.
pub type Params = Vec<(String, String)>;

/// An answer below 300, and who gave it.
#[derive(Debug)]
pub struct Answer {
    /// The endpoint's place in the cloud's list.
    pub endpoint: usize,
    name: String,
    reply: Reply,
}

impl Answer {
    /// Reads `data`.
    pub fn read<T: DeserializeOwned>(&self, call: &Call) -> Result<T, PveError> {
        #[derive(Deserialize)]
        struct Envelope<T> {
            data: T,
        }
        // Text is known to be text once, rather than at each string in it.
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

/// A login at one cluster, and the way to each of its endpoints.
pub struct Client {
    route: Route,
    session: Session,
    call_timeout: Duration,
    turns: Mutex<Option<Arc<dyn Turns>>>,
}

impl Client {
    /// Prepares the ways to all endpoints; connects at the first call.
    ///
    /// # Errors
    /// [`PveError::Setup`] without an endpoint, and where trust cannot be set up.
    pub fn new(connection: &Connection, dialer: &dyn Dialer) -> Result<Self, PveError> {
        if connection.endpoints.is_empty() {
            return Err(PveError::setup("no endpoint is given: name one node of the cluster"));
        }
        let mut ways: Vec<(_, Arc<dyn Transport>)> = Vec::new();
        for endpoint in &connection.endpoints {
            ways.push((endpoint.clone(), dialer.dial(endpoint, connection)?));
        }
        Ok(Self {
            route: Route::new(ways),
            session: Session::new(connection.login.clone()),
            call_timeout: connection.call_timeout,
            turns: Mutex::default(),
        })
    }

    /// From now on its calls wait for their turn.
    pub fn take_turns(&self, turns: Arc<dyn Turns>) {
        *self.turns.lock() = Some(turns);
    }

    fn turns(&self) -> Option<Arc<dyn Turns>> {
        self.turns.lock().clone()
    }

    /// Its endpoints, and which of them takes the next call.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The name of an endpoint.
    pub fn endpoint(&self, index: usize) -> String {
        self.route.way(index).map(|(endpoint, _)| endpoint.to_string()).unwrap_or_default()
    }

    /// The login's name.
    pub fn login(&self) -> &str {
        self.session.name()
    }

    /// Reads.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        params: Params,
    ) -> Result<T, PveError> {
        let call = Call::new(Method::Get, path);
        self.call(&call, params).await?.read(&call)
    }

    /// Writes, and reads what came back.
    pub async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        params: Params,
    ) -> Result<T, PveError> {
        let call = Call::new(method, path);
        self.call(&call, params).await?.read(&call)
    }

    /// Sends a file with parameters before it, and reads what came back.
    pub async fn send_file<T: DeserializeOwned>(
        &self,
        path: &str,
        params: Params,
        file: File,
    ) -> Result<T, PveError> {
        let call = Call::new(Method::Post, path);
        self.call_with(&call, (params, Some(file))).await?.read(&call)
    }

    /// Makes a call as the login; a ticket that was refused is fetched anew, once: a 401 comes
    /// before anything was done, so writes may be asked again.
    pub async fn call(&self, call: &Call, params: Params) -> Result<Answer, PveError> {
        self.call_with(call, (params, None)).await
    }

    async fn call_with(
        &self,
        call: &Call,
        body: (Params, Option<File>),
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

    /// Sends to the first endpoint that takes the connection.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        (params, file): (Params, Option<File>),
        headers: Headers,
    ) -> Result<Answer, PveError> {
        let order = match &file {
            // `/nodes/NODE/…`.
            Some(_) => self.route.order_near(call.path.split('/').nth(2).unwrap_or_default()),
            None => self.route.order(),
        };
        let request = Request {
            method: call.method,
            path: call.path.clone(),
            params,
            file,
            headers,
            timeout: self.call_timeout,
        };
        let mut tried = Vec::new();
        let (mut distrusted, mut seen) = (true, None);
        let mut unsent = None;
        for index in order {
            let Some((endpoint, transport)) = self.route.way(index) else { continue };
            let name = endpoint.to_string();
            let mut turn = match self.turn(call, &name).await {
                Ok(turn) => turn,
                Err(source) => {
                    let endpoint = name;
                    unsent = Some(PveError::Unsent { call: call.clone(), endpoint, source });
                    continue;
                }
            };
            let outcome = self.send(transport, &request).await;
            if let Some(mut turn) = turn.take() {
                turn.ended(&outcome);
            }
            match outcome {
                Ok(reply) => {
                    self.route.took(index);
                    return settle(call, index, endpoint.to_string(), reply);
                }
                Err(error) if error.sent() == Sent::No => {
                    let refused = match &error {
                        TransportError::Certificate(refused) => Some(refused.seen()),
                        TransportError::Connect(_)
                        | TransportError::Closed(_)
                        | TransportError::TimedOut(_)
                        | TransportError::TooLarge(_)
                        | TransportError::Broken(_) => None,
                    };
                    distrusted &= refused.is_some();
                    seen = refused.map(|one| one.sha256.clone()).or(seen);
                    tried.push(format!("`{endpoint}`: {}", chain(&error)));
                }
                Err(source) => {
                    if matches!(source, TransportError::TimedOut(_)) {
                        // It takes connections and answers nothing: the next call goes elsewhere.
                        self.route.leave(index);
                    }
                    let endpoint = endpoint.to_string();
                    return Err(PveError::Lost { call: call.clone(), endpoint, source });
                }
            }
        }
        // An endpoint that has no turn is there.
        let unreachable = PveError::Unreachable { call: call.clone(), tried, distrusted, seen };
        Err(unsent.unwrap_or(unreachable))
    }

    async fn turn(&self, call: &Call, endpoint: &str) -> Result<Option<Box<dyn Turn>>, NoTurn> {
        match self.turns() {
            Some(turns) => turns.turn(call, endpoint).await.map(Some),
            None => Ok(None),
        }
    }

    /// Sends once, and a read once more when its kept-alive connection was closed meanwhile.
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
        let limit = self.call_timeout;
        match tokio::time::timeout(limit, transport.send(request.clone())).await {
            Ok(result) => result,
            Err(_) => Err(TransportError::TimedOut(limit)),
        }
    }
}

fn settle(call: &Call, endpoint: usize, name: String, reply: Reply) -> Result<Answer, PveError> {
    if (200..300).contains(&reply.status) {
        return Ok(Answer { endpoint, name, reply });
    }
    let refusal = Refusal::of(&reply);
    Err(PveError::Refused { call: call.clone(), endpoint: name, refusal })
}
