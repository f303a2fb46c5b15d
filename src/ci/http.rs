//! HTTP calls to a CI system: JSON, bounded answers, and a login that never prints.
//!
//! [`Http`] makes one call and returns an [`Answer`] whatever its status; [`Answer::ok`] turns a
//! failure into an error with the server's text. Redirects are not followed, because the login is
//! meant for one host alone: the error names the address, and the `url` to configure where it can.
//! Secrets of a call are masked in every text that an error quotes.

use std::time::Duration;

use drover_model::gate::Gate;
use proxmox_client::Tls;
use proxmox_client::gate::GateLayer;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Client, Method, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::DemandError;

/// The largest answer that is read.
const BODY_MAX_BYTES: usize = 16 << 20;
/// How many characters of a failed answer an error quotes.
const ERROR_TEXT_MAX_CHARS: usize = 300;
/// The limit of one call unless [`Http::with_limit`] sets another.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// Method and path, for error texts.
    pub call: String,
    /// The URL that was called.
    pub url: Url,
    /// The path of the call, relative to the configured base.
    pub path: String,
    /// Secrets that the call sent: a server may echo them, and no message may show them.
    pub hidden: Vec<String>,
}

impl Answer {
    /// The answer, where its status means success.
    pub fn ok(self) -> Result<Self, DemandError> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(self.into_error()) }
    }

    /// The error that this answer means.
    pub fn into_error(self) -> DemandError {
        if let Some(redirect_error) = self.redirect_error() {
            return redirect_error;
        }
        let mut said = String::from_utf8_lossy(&self.body).into_owned();
        for secret in &self.hidden {
            said = said.replace(secret, "***");
        }
        // An HTML page says less to an operator than its status.
        let said = if said.trim_start().starts_with('<') { String::new() } else { said };
        let plain = said.chars().map(|ch| if ch.is_control() { ' ' } else { ch });
        let plain: String = plain.take(ERROR_TEXT_MAX_CHARS).collect();
        let text = if plain.trim().is_empty() { plain } else { format!(": {}", plain.trim()) };
        DemandError::Status { call: self.call, status: self.status, text }
    }

    /// The error for a redirect, with the `url` to configure where only the base differs.
    fn redirect_error(&self) -> Option<DemandError> {
        let location = self.headers.get(LOCATION).filter(|_| (300..400).contains(&self.status))?;
        let mut to = self.url.join(location.to_str().ok()?).ok()?;
        to.set_query(None);
        to.set_fragment(None);
        // Both fail only for a URL without a host, which has no login.
        let _ = (to.set_username(""), to.set_password(None));
        let base = to.path().strip_suffix(&self.path).filter(|base| base.ends_with('/'));
        let remedy = match base.map(|base| base.trim_end_matches('/').to_owned()) {
            Some(base) => {
                let mut url = to.clone();
                url.set_path(&base);
                format!("set `url` to `{}`", url.as_str().trim_end_matches('/'))
            }
            None => {
                "open that address: if the server moved, correct `url`; if a login page stands in \
                     front of the server, let drover's calls pass it"
                    .to_owned()
            }
        };
        let (call, status) = (self.call.clone(), self.status);
        Some(DemandError::Moved { call, status, to: to.into(), remedy })
    }

    /// The server's clock at the time of the answer.
    pub fn date(&self) -> Option<jiff::Timestamp> {
        let text = self.headers.get(DATE)?.to_str().ok()?;
        Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp())
    }

    /// Reads the body as JSON. Some servers put a byte order mark before it: GitHub's clients of
    /// its runner service strip one from every answer (actions/scaleset `common_client.go`).
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, DemandError> {
        let body = self.body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.body);
        serde_json::from_slice(body).map_err(|error| DemandError::Shape {
            call: self.call.clone(),
            what: error.to_string(),
        })
    }
}

/// The route from this machine to a CI system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Route {
    /// Through the proxy that the environment names (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`,
    /// except for hosts in `NO_PROXY`), else directly.
    #[default]
    Environment,
    Direct,
    /// Through this proxy.
    Proxy(Url),
}

/// The byte order mark of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// An HTTP client for one CI system.
#[derive(Debug, Clone)]
pub struct Http {
    reads: Client,
    /// For calls that change something, with the gate behind each connection.
    writes: Client,
    base: Url,
    login: Option<(HeaderName, SecretString)>,
    limit: Duration,
    gate: Gate,
}

impl Http {
    /// Makes a client; connects at the first call. The base URL may have a path.
    ///
    /// Calls that change something pass the gate, and so do their new connections: seconds may pass while
    /// one is made.
    pub fn new(base: &Url, tls: &Tls, route: &Route, gate: Gate) -> Result<Self, DemandError> {
        let broken = |error: &dyn std::fmt::Display| DemandError::Setup(error.to_string());
        let tls = proxmox_client::client_config(tls).map_err(|error| broken(&error))?;
        let builder = || {
            let builder = match route {
                Route::Environment => Client::builder(),
                Route::Direct => Client::builder().no_proxy(),
                Route::Proxy(url) => {
                    let proxy = reqwest::Proxy::all(url.clone()).map_err(|error| broken(&error))?;
                    Client::builder().proxy(proxy)
                }
            };
            Ok(builder
                .tls_backend_preconfigured(tls.clone())
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .tcp_nodelay(true)
                .user_agent(concat!("drover/", env!("CARGO_PKG_VERSION"))))
        };
        let reads = builder()?.build().map_err(|error| broken(&error))?;
        let gated = builder()?.connector_layer(GateLayer::new(gate.ask()));
        let writes = gated.build().map_err(|error| broken(&error))?;
        let mut base = base.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self { reads, writes, base, login: None, limit: CALL_TIMEOUT, gate })
    }

    /// Sends this header with each call.
    pub fn with_login(mut self, header: HeaderName, value: SecretString) -> Self {
        self.login = Some((header, value));
        self
    }

    /// Sets the limit of each call, for example for a long poll.
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sends this `Authorization` header with each call.
    pub fn with_authorization(self, value: SecretString) -> Self {
        self.with_login(AUTHORIZATION, value)
    }

    /// The base URL, which ends in a slash.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// One call with an optional JSON body; `path` is relative to the base and may carry a query.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<Answer, DemandError> {
        let body = body.map(|body| ("application/json", body.to_string()));
        self.send(method, path, body, more).await
    }

    /// One call with a body of any type; `path` is relative to the base and may carry a query.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, String)>,
        more: &[(HeaderName, HeaderValue)],
    ) -> Result<Answer, DemandError> {
        let shown = path.split('?').next().unwrap_or(path);
        let call = format!("{method} {}{shown}", self.base.path());
        let url = self.base.join(path).map_err(|error| DemandError::Setup(error.to_string()))?;
        let rest = url.path().strip_prefix(self.base.path()).unwrap_or(url.path()).to_owned();
        let writes = !method.is_safe();
        let client = if writes { &self.writes } else { &self.reads };
        let mut request = client.request(method, url.clone()).timeout(self.limit);
        if more.iter().all(|(name, _)| *name != ACCEPT) {
            request = request.header(ACCEPT, "application/json");
        }
        if let Some((name, value)) = &self.login {
            let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| {
                DemandError::Setup(
                    "the login has characters that an HTTP header cannot carry".into(),
                )
            })?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        for (name, value) in more {
            request = request.header(name, value);
        }
        let hidden = self.hidden(more);
        if let Some((of_type, body)) = body {
            request = request.header(CONTENT_TYPE, of_type).body(body);
        }
        let lost = |source: reqwest::Error| DemandError::Unreachable {
            call: call.clone(),
            at: url.origin().ascii_serialization(),
            source: source.without_url(),
        };
        if writes {
            self.gate.pass().await;
        }
        let mut answer = request.send().await.map_err(lost)?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > BODY_MAX_BYTES {
                let what = format!("it is larger than {BODY_MAX_BYTES} bytes");
                return Err(DemandError::Shape { call: call.clone(), what });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body, call, url, path: rest, hidden })
    }

    /// The secrets that a call sends, without words before them such as `Bearer`.
    fn hidden(&self, more: &[(HeaderName, HeaderValue)]) -> Vec<String> {
        let own = self.login.iter().map(|(_, value)| value.expose_secret().to_owned());
        let more = more.iter().filter(|(_, value)| value.is_sensitive());
        let more = more.filter_map(|(_, value)| Some(value.to_str().ok()?.to_owned()));
        let words =
            own.chain(more).filter_map(|text| text.split(' ').next_back().map(str::to_owned));
        // A shorter text is no secret, and masking it would garble messages.
        words.filter(|word| word.len() >= 6).collect()
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DemandError> {
        self.call(Method::GET, path, None, &[]).await?.ok()?.json()
    }

    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, DemandError> {
        self.call(Method::POST, path, Some(body), &[]).await?.ok()?.json()
    }

    /// Deletes; an object that does not exist counts as deleted.
    pub async fn delete(&self, path: &str) -> Result<(), DemandError> {
        let answer = self.call(Method::DELETE, path, None, &[]).await?;
        if matches!(answer.status, 404 | 410) { Ok(()) } else { answer.ok().map(drop) }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_answer_is_read_behind_a_byte_order_mark() {
        for body in ["{\"count\": 3}", "\u{feff}{\"count\": 3}"] {
            let read: Value = answer(200, body).json().unwrap();
            assert_eq!(read["count"], 3);
        }
    }

    fn answer(status: u16, body: &str) -> Answer {
        Answer {
            status,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
            call: "GET /x".to_owned(),
            url: "http://git.lan/x".parse().unwrap(),
            path: "x".to_owned(),
            hidden: vec!["s3cret-of-ci".to_owned()],
        }
    }

    // Invariant: no message shows a login that a server echoes.

    #[test]
    fn a_login_that_a_server_echoes_is_blanked_out() {
        let body = "{\"message\": \"no route for Bearer s3cret-of-ci\"}";
        let text = answer(404, body).into_error().to_string();
        assert_eq!(text, "GET /x: 404: {\"message\": \"no route for Bearer ***\"}");
    }
}
