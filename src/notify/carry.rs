//! How messages leave: the port, and what all kinds of servers have in common.

use std::time::{Duration, SystemTime};

use causes::chain;
use futures_util::future::BoxFuture;
use proxmox_client::{Tls, client_config};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, RequestBuilder, Response};
use tokio::time::{Instant, timeout, timeout_at};

use super::message::Message;
use super::settings::{Channel, Secret, Via};
use super::words::cut;
use super::{mail, ntfy, webhook};

/// How long one message may take, from the connection to the answer.
const LIMIT: Duration = Duration::from_secs(30);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long drover reads what the other side says once it is known whether it took the message.
pub(crate) const REST_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of an answer that are read, and characters of a text that are shown.
const ANSWER_BYTES: usize = 16 << 10;
const SHOWN_CHARS: usize = 600;
/// Characters of a part of a URL that can be a secret; shorter ones are words such as `hooks`.
const PART_CHARS: usize = 8;

/// A message was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// What the other side said.
    pub answer: String,
    /// For whom it was not taken, and why.
    pub refused: Option<String>,
}

/// A message was not taken, or nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// For people, without secrets.
    pub text: String,
    /// The other side asks for this wait.
    pub retry_after: Option<Duration>,
    /// The same message would be refused again: somebody must change something.
    pub is_final: bool,
}

impl Failure {
    pub(crate) fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), retry_after: None, is_final: false }
    }

    pub(crate) fn lasting(text: impl Into<String>) -> Self {
        Self { is_final: true, ..Self::passing(text) }
    }
}

/// What sends messages to the other side.
pub trait Carrier: Send + Sync {
    /// Sends one message over a channel. Dropping the future takes nothing back.
    fn send<'a>(
        &'a self,
        channel: &'a Channel,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<Delivered, Failure>>;
}

/// Sends over the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct Network;

impl Carrier for Network {
    fn send<'a>(
        &'a self,
        channel: &'a Channel,
        message: &'a Message,
    ) -> BoxFuture<'a, Result<Delivered, Failure>> {
        Box::pin(async move {
            let result = match &channel.via {
                Via::Webhook(to) => webhook::send(to, message).await,
                Via::Mail(to) => mail::send(to, message).await,
                Via::Ntfy(to) => ntfy::send(to, message).await,
            };
            let hide = |text: String| hidden(text, &channel.via);
            match result {
                Ok(Delivered { answer, refused }) => {
                    Ok(Delivered { answer: hide(answer), refused: refused.map(hide) })
                }
                Err(failure) => Err(Failure { text: hide(failure.text), ..failure }),
            }
        })
    }
}

/// Whether the other side answers, as far as that can be seen without a message.
///
/// # Errors
/// When it does not, or refuses the login.
pub async fn probe(channel: &Channel) -> Result<String, Failure> {
    let result = match &channel.via {
        Via::Webhook(to) => webhook::probe(to).await,
        Via::Mail(to) => mail::probe(to).await,
        Via::Ntfy(to) => ntfy::probe(to).await,
    };
    let hide = |text: String| hidden(text, &channel.via);
    result.map(hide).map_err(|failure| Failure { text: hide(failure.text), ..failure })
}

/// What the other side must say in time. What it does after that changes nothing about the message.
pub(crate) async fn in_time<T>(
    answering: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = |_| Failure::passing(format!("no answer within {} s", LIMIT.as_secs()));
    timeout(LIMIT, answering).await.map_err(late)?
}

/// A text of one line without the secrets of a channel: a server may repeat what it was sent. It is cut here
/// alone: who cuts before may leave a piece of a secret.
fn hidden(text: String, via: &Via) -> String {
    let secrets: Vec<&Secret> = match via {
        Via::Webhook(to) => [Some(&to.url), to.secret.as_ref()].into_iter().flatten().collect(),
        Via::Mail(to) => to.login.iter().map(|(_, password)| password).collect(),
        Via::Ntfy(to) => to.token.iter().collect(),
    };
    let mut secrets: Vec<String> =
        secrets.into_iter().map(|secret| secret.text().to_owned()).collect();
    if let Via::Webhook(to) = via {
        secrets.extend(parts(to.url.text()));
    }
    let mut text = text;
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "***");
    }
    cut(text.trim(), SHOWN_CHARS)
}

/// The parts of a webhook's URL that let others send, the longest first: servers name what they were asked for
/// without the host.
fn parts(url: &str) -> Vec<String> {
    let Ok(url) = url.parse::<reqwest::Url>() else { return Vec::new() };
    let path = url.path();
    let query = url.query().unwrap_or_default();
    let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let steps = path.split('/').chain(query.split(['&', '='])).map(str::to_owned);
    let all = [whole, path.to_owned(), query.to_owned()].into_iter().chain(steps);
    all.filter(|part| part.chars().count() >= PART_CHARS).collect()
}

/// A client for servers with such certificates. It follows no redirect: what it sends is meant for one host.
pub(crate) fn client(tls: &Tls) -> Result<Client, Failure> {
    let tls = client_config(tls).map_err(|error| Failure::lasting(chain(&error)))?;
    let client = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("drover/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|error| Failure::lasting(chain(&error)))
}

/// Whether a server answers a call at all, whatever it answers.
pub(crate) async fn answers(request: RequestBuilder) -> Result<u16, Failure> {
    Ok(head(request).await?.status().as_u16())
}

/// Makes a call, and waits for the head of its answer.
async fn head(request: RequestBuilder) -> Result<Response, Failure> {
    // The URL can have a secret in it.
    let fault = |error: reqwest::Error| Failure::passing(chain(&error.without_url()));
    in_time(async { request.send().await.map_err(fault) }).await
}

/// Makes a call and reads what the server says to it.
pub(crate) async fn call(request: RequestBuilder) -> Result<Delivered, Failure> {
    let answer = head(request).await?;
    let status = answer.status();
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = retry_after.and_then(|text| wait_asked(text, SystemTime::now()));
    let said = said(answer).await;
    let text = if said.is_empty() { format!("{status}") } else { format!("{status}: {said}") };
    if status.is_success() {
        return Ok(Delivered { answer: text, refused: None });
    }
    // Too many calls, too slow, too early: the same call can succeed later.
    let passes = matches!(status.as_u16(), 408 | 425 | 429);
    let is_final = !passes && (status.is_client_error() || status.is_redirection());
    let text = format!("the server answered {text}");
    Err(Failure { text, retry_after, is_final })
}

/// The wait that a server asks for: seconds, or until a date.
fn wait_asked(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than a number holds are a long wait, too.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// The beginning of an answer, as far as it comes soon; a page of HTML says less than its status.
async fn said(mut answer: Response) -> String {
    let mut body = Vec::new();
    let end = Instant::now() + REST_LIMIT;
    while let Ok(Ok(Some(piece))) = timeout_at(end, answer.chunk()).await {
        body.extend_from_slice(&piece);
        if body.len() >= ANSWER_BYTES {
            break;
        }
    }
    let text = String::from_utf8_lossy(&body);
    let text = text.trim();
    if text.starts_with('<') { String::new() } else { text.to_owned() }
}

#[cfg(test)]
mod tests;
