//! What a configuration says of notifications.

use std::collections::BTreeSet;
use std::time::Duration;

use proxmox_client::Tls;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use super::kind::Kind;
use super::mail::MailAddress;

/// Notifications as configured; none without channels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// How long drover collects what goes wrong before it sends a message.
    pub group: Duration,
    /// How long a trouble must be gone before its end is sent.
    pub recovery: Duration,
    /// After this time drover sends again what still stands.
    pub repeat: Option<Duration>,
    /// Where people reach the page, without a slash at its end.
    pub page: Option<String>,
    pub channels: Vec<Channel>,
}

/// One way to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Letters, digits, `-` and `_` ([`is_name`]).
    pub name: String,
    pub wanted: Wanted,
    pub via: Via,
}

/// Which troubles a channel sends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// These alone; empty: all.
    pub kinds: BTreeSet<Kind>,
    /// None of these.
    pub quiet: BTreeSet<Kind>,
}

impl Wanted {
    /// Whether the channel sends troubles of this kind.
    pub fn has(&self, kind: Kind) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind)) && !self.quiet.contains(&kind)
    }
}

/// How a channel sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    Webhook(Webhook),
    Mail(Box<Mail>),
    Ntfy(Ntfy),
}

impl Via {
    /// The word for its type.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Mail(_) => "mail",
            Self::Ntfy(_) => "ntfy",
        }
    }
}

/// A server that takes messages as JSON.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Can have a secret in its path: it is shown nowhere.
    pub url: Secret,
    pub format: Format,
    /// What bodies are signed with; none for no signature.
    pub secret: Option<Secret>,
    pub tls: Tls,
}

/// The form of a webhook's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// All of the message, as the book's schema has it.
    Drover,
    /// One text, as Slack, Mattermost and Rocket.Chat take it.
    Slack,
}

/// A mail server that takes messages.
#[derive(Debug, Clone)]
pub struct Mail {
    pub host: String,
    pub port: u16,
    pub security: MailTls,
    pub tls: Tls,
    /// User and password.
    pub login: Option<(String, Secret)>,
    pub from: MailAddress,
    pub to: Vec<MailAddress>,
}

/// How the connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MailTls {
    /// Plain until the command STARTTLS, which must succeed.
    StartTls,
    /// From the first byte.
    Tls,
    /// Never, which others can read.
    None,
}

/// A topic of a server of ntfy.
#[derive(Debug, Clone)]
pub struct Ntfy {
    /// The server, by its root.
    pub url: Url,
    pub topic: String,
    pub token: Option<Secret>,
    /// 1 to 5; none: by severity.
    pub priority: Option<u8>,
    pub tls: Tls,
}

/// A secret that does not print, and can be compared with the one of another configuration.
#[derive(Debug, Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<SecretString>) -> Self {
        Self(text.into())
    }

    pub(crate) fn text(&self) -> &str {
        self.0.expose_secret()
    }
}

impl From<SecretString> for Secret {
    fn from(secret: SecretString) -> Self {
        Self(secret)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Secret {}

/// What of a TLS setting makes it what it is.
fn trust(tls: &Tls) -> (u8, Vec<&[u8]>) {
    match tls {
        Tls::System => (0, Vec::new()),
        Tls::Bundle(texts) => (1, texts.iter().map(String::as_bytes).collect()),
        Tls::Pins(pins) => (2, pins.iter().map(<[u8; 32]>::as_slice).collect()),
        Tls::Ignore => (3, Vec::new()),
    }
}

impl PartialEq for Webhook {
    fn eq(&self, other: &Self) -> bool {
        let Self { url, format, secret, tls } = self;
        (url, format, secret, trust(tls))
            == (&other.url, &other.format, &other.secret, trust(&other.tls))
    }
}

impl Eq for Webhook {}

impl PartialEq for Mail {
    fn eq(&self, other: &Self) -> bool {
        let Self { host, port, security, tls, login, from, to } = self;
        (host, port, security, login, from, to, trust(tls))
            == (
                &other.host,
                &other.port,
                &other.security,
                &other.login,
                &other.from,
                &other.to,
                trust(&other.tls),
            )
    }
}

impl Eq for Mail {}

impl PartialEq for Ntfy {
    fn eq(&self, other: &Self) -> bool {
        let Self { url, topic, token, priority, tls } = self;
        (url, topic, token, priority, trust(tls))
            == (&other.url, &other.topic, &other.token, &other.priority, trust(&other.tls))
    }
}

impl Eq for Ntfy {}

/// The longest name of a channel, in bytes.
const NAME_MAX: usize = 40;

/// Whether a channel may have this name: what is sent over it is kept under it.
pub fn is_name(name: &str) -> bool {
    let of_name = |one: u8| one.is_ascii_alphanumeric() || b"-_".contains(&one);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(of_name)
}
