//! HTTP with a CI system: JSON, bounded answers, a login that never prints.

use std::time::Duration;

use proxmox_client::Tls;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Client, Method, Url};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::DemandError;

/// The largest answer taken in.
const BODY_MAX: usize = 16 << 20;
/// How much of an answer that says no is told.
const TEXT_MAX: usize = 300;
/// The most one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
    /// The call, for what is told of it.
    pub call: String,
    /// Where it was asked.
    pub url: Url,
    /// The end of that path, beyond the base it was configured with.
    pub path: String,
    /// What it was asked with, which a server may echo and nobody is to read.
    pub hidden: Vec<String>,
}

impl Answer {
    /// The answer if it says yes.
    pub fn ok(self) -> Result<Self, DemandError> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(self.refused()) }
    }

    /// What it says against it.
    pub fn refused(self) -> DemandError {
        if let Some(moved) = self.moved() {
            return moved;
        }
        let mut said = String::from_utf8_lossy(&self.body).into_owned();
        for secret in &self.hidden {
            said = said.replace(secret, "***");
        }
        // A page is for people with browsers: it says less than its status.
        let said = if said.trim_start().starts_with('<') { String::new() } else { said };
        let plain = said.chars().map(|ch| if ch.is_control() { ' ' } else { ch });
        let plain: String = plain.take(TEXT_MAX).collect();
        let text = if plain.trim().is_empty() { plain } else { format!(": {}", plain.trim()) };
        DemandError::Status { call: self.call, status: self.status, text }
    }

    /// That it sends elsewhere, with the base there where the rest of the path is the same.
    fn moved(&self) -> Option<DemandError> {
        let location = self.headers.get(LOCATION).filter(|_| (300..400).contains(&self.status))?;
        let mut to = self.url.join(location.to_str().ok()?).ok()?;
        to.set_query(None);
        to.set_fragment(None);
        // Neither fails for what has a host; what has none has no login.
        let _ = (to.set_username(""), to.set_password(None));
        let base = to.path().strip_suffix(&self.path).filter(|base| base.ends_with('/'));
        let mend = match base.map(|base| base.trim_end_matches('/').to_owned()) {
            Some(base) => {
                let mut url = to.clone();
                url.set_path(&base);
                format!("set `url` to `{}`", url.as_str().trim_end_matches('/'))
            }
            None => {
                "look there: if it moved, correct `url`; if that is a page for logins before it, \
                     let drover's calls through"
                    .to_owned()
            }
        };
        let (call, status) = (self.call.clone(), self.status);
        Some(DemandError::Moved { call, status, to: to.into(), mend })
    }

    /// The clock of whoever answered.
    pub fn date(&self) -> Option<jiff::Timestamp> {
        let text = self.headers.get(DATE)?.to_str().ok()?;
        Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp())
    }

    /// Reads it as JSON, which some servers begin with a byte order mark: GitHub's clients of its runner
    /// service strip it from every answer (actions/scaleset `common_client.go`).
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, DemandError> {
        let body = self.body.strip_prefix(MARK).unwrap_or(&self.body);
        serde_json::from_slice(body).map_err(|error| DemandError::Shape {
            call: self.call.clone(),
            what: error.to_string(),
        })
    }
}

/// The way from this machine to a CI system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Route {
    /// By the proxy that the environment names for it (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, but for what
    /// `NO_PROXY` names), else directly.
    #[default]
    Environment,
    /// Directly.
    Direct,
    /// By this proxy.
    Proxy(Url),
}

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A CI system at a URL.
#[derive(Debug, Clone)]
pub struct Http {
    client: Client,
    base: Url,
    login: Option<(HeaderName, SecretString)>,
    limit: Duration,
}

impl Http {
    /// Prepares a client; connects at the first call. The base may have a path of its own.
    pub fn new(base: &Url, tls: &Tls, route: &Route) -> Result<Self, DemandError> {
        let broken = |error: &dyn std::fmt::Display| DemandError::Setup(error.to_string());
        let tls = proxmox_client::client_config(tls).map_err(|error| broken(&error))?;
        let builder = match route {
            Route::Environment => Client::builder(),
            Route::Direct => Client::builder().no_proxy(),
            Route::Proxy(url) => {
                let proxy = reqwest::Proxy::all(url.clone()).map_err(|error| broken(&error))?;
                Client::builder().proxy(proxy)
            }
        };
        let client = builder
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true)
            .user_agent(concat!("drover/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| broken(&error))?;
        let mut base = base.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(Self { client, base, login: None, limit: CALL_LIMIT })
    }

    /// Sends this value of a header, such as `token …` of `Authorization`, with each call.
    pub fn with_login(mut self, header: HeaderName, value: SecretString) -> Self {
        self.login = Some((header, value));
        self
    }

    /// Lets each call take so long, such as one that waits for news.
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sends this value of `Authorization` with each call.
    pub fn with_authorization(self, value: SecretString) -> Self {
        self.with_login(AUTHORIZATION, value)
    }

    /// The URL it was made for, ending in a slash.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// One call with JSON; `path` is relative to the base and may carry a query.
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
        let mut request = self.client.request(method, url.clone()).timeout(self.limit);
        if more.iter().all(|(name, _)| *name != ACCEPT) {
            request = request.header(ACCEPT, "application/json");
        }
        if let Some((name, value)) = &self.login {
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| DemandError::Setup("the login is no text of a header".into()))?;
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
            source: source.without_url(),
        };
        let mut answer = request.send().await.map_err(lost)?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > BODY_MAX {
                let what = format!("it is larger than {BODY_MAX} bytes");
                return Err(DemandError::Shape { call: call.clone(), what });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, headers, body, call, url, path: rest, hidden })
    }

    /// The secrets of the headers of a call, without the words before them such as `Bearer`.
    fn hidden(&self, more: &[(HeaderName, HeaderValue)]) -> Vec<String> {
        let own = self.login.iter().map(|(_, value)| value.expose_secret().to_owned());
        let more = more.iter().filter(|(_, value)| value.is_sensitive());
        let more = more.filter_map(|(_, value)| Some(value.to_str().ok()?.to_owned()));
        let words =
            own.chain(more).filter_map(|text| text.split(' ').next_back().map(str::to_owned));
        // A shorter one is no secret, and would blank out words.
        words.filter(|word| word.len() >= 6).collect()
    }

    /// Reads JSON.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DemandError> {
        self.call(Method::GET, path, None, &[]).await?.ok()?.json()
    }

    /// Posts JSON and reads JSON.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, DemandError> {
        self.call(Method::POST, path, Some(body), &[]).await?.ok()?.json()
    }

    /// Deletes; what is not there is fine.
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

    // Invariant: what a server echoes of a login is in no message.

    #[test]
    fn a_login_that_a_server_echoes_is_blanked_out() {
        let body = "{\"message\": \"no route for Bearer s3cret-of-ci\"}";
        let text = answer(404, body).refused().to_string();
        assert_eq!(text, "GET /x: 404: {\"message\": \"no route for Bearer ***\"}");
    }
}
