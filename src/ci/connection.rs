//! The settings that all kinds of sources have in common.

use proxmox_client::Tls;
use reqwest::Url;
use secrecy::SecretString;
use sha2::{Digest, Sha256};

use crate::{Route, System};

/// How drover reaches a source. Its secrets never print.
#[derive(Debug, Clone)]
pub struct SourceConnection {
    /// The URL of the system, as configured.
    pub url: Url,
    /// How the server's certificate is verified.
    pub tls: Tls,
    /// Directly or through a proxy.
    pub route: Route,
    /// The kind of the source with its settings, the login among them.
    pub system: System,
    /// The operator's own command that runs a runner; none for the kind's own program.
    pub command: Option<String>,
    /// The secret that webhooks are verified with; none where the source sends no webhooks.
    pub webhook: Option<SecretString>,
}

impl SourceConnection {
    /// A number that changes with the URL and the scope and with nothing else. It is stored in the
    /// journal, so it must not change between versions.
    pub fn place(&self) -> u64 {
        let mut url = self.url.clone();
        // Both fail only for a URL without a host, which has no login.
        let _ = (url.set_username(""), url.set_password(None));
        let url = url.as_str().trim_end_matches('/').to_owned();
        number(&[url.as_bytes(), self.system.scope().as_bytes()])
    }

    /// A number that changes with every setting, secrets included, and reveals none of them.
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

/// The first 8 bytes of a SHA-256 digest of these parts in this order.
fn number(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for bytes in parts {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
