//! The HTTP beneath requests to object stores: the workspace's own client with its TLS, one answer a
//! request. What an answer of a store means is decided above; what no answer means is said here.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use causes::chain;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use proxmox_client::Tls;
use proxmox_client::tls::client_config_with;
use reqwest::{Client, StatusCode, Url};

/// The slowest line to a store, in bytes a second.
const SLOWEST: u64 = 1 << 20;
use crate::tls_advice;

const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// The most bytes of an answer.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why a request has no answer that counts.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum NoAnswer {
    /// Nothing was sent, so nothing happened.
    #[error("the store was not reached: {0}")]
    NotSent(String),
    /// It may have happened.
    #[error("no answer came: {0}")]
    Lost(String),
    /// It may have happened, and can be tried again.
    #[error("the store could not serve (status {status}): {said}")]
    Busy { status: u16, said: String },
}

impl NoAnswer {
    fn of(error: reqwest::Error) -> HttpError {
        // Without a connection nothing was sent.
        let sent = !error.is_connect() && !error.is_builder();
        let host =
            error.url().and_then(|url| Some((url.host_str()?, url.port_or_known_default()?)));
        let host = host.map(|(host, port)| format!("{host}:{port}: ")).unwrap_or_default();
        let text = host + &chain(&error.without_url());
        Self::raise(if sent { Self::Lost(text) } else { Self::NotSent(text) })
    }

    /// As a fault that nobody below repeats.
    fn raise(self) -> HttpError {
        HttpError::new(HttpErrorKind::Unknown, self)
    }
}

/// The client of one store.
#[derive(Debug, Clone)]
pub(super) struct Http {
    client: Client,
    /// How long the store may take to answer, and as much longer as what is sent needs.
    answer: Duration,
}

impl Http {
    pub(super) fn new(
        tls: &Tls,
        answer: Duration,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let client = Client::builder()
            .tls_backend_preconfigured(client_config_with(tls, tls_advice::FOR_A_STORE)?)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT.min(answer))
            .tcp_nodelay(true)
            .build()?;
        Ok(Self { client, answer })
    }
}

impl HttpConnector for Http {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Http {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = Url::parse(&parts.uri.to_string())
            .map_err(|error| NoAnswer::NotSent(error.to_string()).raise())?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        let bytes = body.content_length() as u64;
        *request.timeout_mut() = Some(self.answer + Duration::from_secs(bytes / SLOWEST));
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let mut answer = self.client.execute(request).await.map_err(NoAnswer::of)?;
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(NoAnswer::of)? {
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(NoAnswer::Lost("it has more than 64 MiB".to_owned()).raise());
            }
            body.extend(part);
        }
        let status = answer.status();
        let is_passing = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        if is_passing {
            let said = said(&String::from_utf8_lossy(&body));
            return Err(NoAnswer::Busy { status: status.as_u16(), said }.raise());
        }
        let mut found = HttpResponse::new(HttpResponseBody::from(Bytes::from(body)));
        *found.status_mut() = status;
        *found.headers_mut() = answer.headers().clone();
        Ok(found)
    }
}

/// What a store says of a refusal: the code and the message of its XML, or the text as it is.
pub(super) fn said(text: &str) -> String {
    /// The most characters of a text that is no XML of a store.
    const LENGTH_MAX: usize = 300;
    let element = |name: &str| {
        let (_, behind) = text.split_once(&format!("<{name}>"))?;
        Some(behind.split_once(&format!("</{name}>"))?.0)
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => text.chars().take(LENGTH_MAX).collect(),
    }
}
