//! How a source is reached.

use proxmox_client::Tls;
use reqwest::Url;
use secrecy::SecretString;
use sha2::{Digest, Sha256};

use crate::{Route, System};

/// How a source is reached. Its secrets never print.
#[derive(Debug, Clone)]
pub struct SourceConnection {
    /// Where it is.
    pub url: Url,
    /// How it proves itself.
    pub tls: Tls,
    /// The way there.
    pub route: Route,
    /// What is spoken there, with its login.
    pub system: System,
    /// What runs a runner in its guest; none for the kind's own program.
    pub command: Option<String>,
    /// What its webhooks are signed with; none where it sends none.
    pub webhook: Option<SecretString>,
}

impl SourceConnection {
    /// A number that changes with the URL and the scope, and with nothing else: it is written down.
    pub fn place(&self) -> u64 {
        let mut url = self.url.clone();
        // Neither fails for what has a host; what has none has no login.
        let _ = (url.set_username(""), url.set_password(None));
        let url = url.as_str().trim_end_matches('/').to_owned();
        number(&[url.as_bytes(), self.system.scope().as_bytes()])
    }

    /// A number that changes with anything in it, secrets included; tells nothing about them.
    pub fn fingerprint(&self) -> u64 {
        let secrets = self.system.parts();
        let mut parts: Vec<&[u8]> = vec![self.url.as_str().as_bytes()];
        parts.extend(secrets.iter().map(String::as_bytes));
        parts.push(self.command.as_deref().unwrap_or_default().as_bytes());
        match &self.tls {
            Tls::System => parts.push(b"system"),
            Tls::Bundle(texts) => parts.extend(texts.iter().map(AsRef::<[u8]>::as_ref)),
            Tls::Pins(pins) => parts.extend(pins.iter().map(AsRef::<[u8]>::as_ref)),
            Tls::Ignore => parts.push(b"ignore"),
        }
        match &self.route {
            Route::Environment => {}
            Route::Direct => parts.push(b"direct"),
            Route::Proxy(url) => parts.push(url.as_str().as_bytes()),
        }
        number(&parts)
    }
}

/// The beginning of a digest of these parts, in this order.
fn number(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for bytes in parts {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
