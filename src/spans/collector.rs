//! Calls a collector: one request at a time, each within a limit of time, its answer within a limit of bytes.
//! Redirects are not followed, since they would take the headers elsewhere; proxies of the environment are
//! not used.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use causes::chain;
use jiff::Timestamp;
use proxmox_client::Tls;
use proxmox_client::tls::{Advice, client_config_with};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use secrecy::{ExposeSecret as _, SecretString};

use crate::answer::{Answer, answer};
use crate::encode::{Sender, encode};
use crate::span::Span;

/// How long one request may take.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

const UNTRUSTED: &str = "name the file with the authority that signed the collector's certificate as \
                         `service.traces.caFile`, and the endpoint by a name that its certificate has";
/// What the certificate of a collector asks for that is refused.
const FOR_A_COLLECTOR: Advice = Advice { unpinned: UNTRUSTED, untrusted: UNTRUSTED };

/// A header of each request. Its value does not print.
#[derive(Debug, Clone)]
pub struct Header {
    pub name: String,
    pub value: SecretString,
}

impl PartialEq for Header {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.value.expose_secret() == other.value.expose_secret()
    }
}

impl Header {
    /// Whether the name and the value can be those of a header.
    pub fn is_sound(&self) -> bool {
        self.parts().is_some()
    }

    fn parts(&self) -> Option<(HeaderName, HeaderValue)> {
        let name = HeaderName::from_bytes(self.name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(self.value.expose_secret()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }
}

/// Where spans go.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The whole address, `/v1/traces` included.
    pub endpoint: String,
    pub headers: Vec<Header>,
    pub tls: Tls,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        let tls = match (&self.tls, &other.tls) {
            (Tls::System, Tls::System) | (Tls::Ignore, Tls::Ignore) => true,
            (Tls::Bundle(one), Tls::Bundle(other)) => one == other,
            (Tls::Pins(one), Tls::Pins(other)) => one == other,
            (Tls::System | Tls::Ignore | Tls::Bundle(_) | Tls::Pins(_), _) => false,
        };
        tls && self.endpoint == other.endpoint && self.headers == other.headers
    }
}

/// The client of one collector.
pub struct Collector {
    settings: Settings,
    client: OnceLock<Result<(Client, Url), String>>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Collector {
    /// Calls nobody yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, client: OnceLock::new() }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sends spans; none ask whether it takes any.
    pub async fn send(&self, sender: &Sender, spans: &[Span]) -> Answer {
        self.post(encode(sender, spans), &sender.version).await
    }

    async fn post(&self, body: Vec<u8>, version: &str) -> Answer {
        let (client, url) = match self.client.get_or_init(|| self.made(version)) {
            Ok(made) => made,
            Err(why) => return Answer::Refused { why: why.clone() },
        };
        let request = client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        let unreached =
            |error: reqwest::Error| Answer::Later { why: chain(&error.without_url()), after: None };
        let mut said = match request.send().await {
            Ok(said) => said,
            Err(error) => return unreached(error),
        };
        let status = said.status().as_u16();
        let after = said.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.map(str::to_owned);
        let mut read = Vec::new();
        loop {
            match said.chunk().await {
                Ok(Some(part)) if read.len() + part.len() <= ANSWER_BYTES_MAX => read.extend(part),
                Ok(Some(_) | None) => break,
                // Whether it was taken is known by the status.
                Err(error) if status != 200 => return unreached(error),
                Err(_) => break,
            }
        }
        let headers = self.settings.headers.iter();
        let secrets: Vec<&str> = headers.map(|header| header.value.expose_secret()).collect();
        answer((status, after.as_deref(), &read), &secrets, Timestamp::now())
    }

    fn made(&self, version: &str) -> Result<(Client, Url), String> {
        let Settings { endpoint, headers, tls } = &self.settings;
        let url: Url = endpoint.parse().map_err(|_| format!("`{endpoint}` is no address"))?;
        let mut sent = HeaderMap::new();
        for header in headers {
            let (name, value) =
                header.parts().ok_or_else(|| format!("`{}` cannot be a header", header.name))?;
            sent.append(name, value);
        }
        let tls = client_config_with(tls, FOR_A_COLLECTOR).map_err(|error| chain(&error))?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .user_agent(format!("drover/{version}"))
            .default_headers(sent)
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .timeout(CALL_LIMIT)
            .build()
            .map_err(|error| chain(&error))?;
        Ok((client, url))
    }
}
