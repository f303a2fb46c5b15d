//! How a cluster is reached: endpoints, login, trust and time limits. Its secrets never print.

use std::fmt;
use std::time::Duration;

use secrecy::SecretString;

use crate::endpoint::Endpoint;

/// The settings of a connection to a cluster.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Nodes of one cluster, the preferred one first.
    pub endpoints: Vec<Endpoint>,
    /// The account that makes the calls.
    pub login: Login,
    /// How the nodes' certificates are checked.
    pub tls: Tls,
    /// The time limit for making a connection.
    pub connect_timeout: Duration,
    /// The time limit for a whole call.
    pub call_timeout: Duration,
    /// How requests name the program that sends them (`User-Agent`).
    pub user_agent: String,
}

impl Connection {
    /// A connection with default limits: 5 s to connect, and 60 s for a call, which is longer than
    /// the 30 s that Proxmox's own proxy waits plus its waits for locks.
    pub fn new(endpoints: Vec<Endpoint>, login: Login, tls: Tls) -> Self {
        Self {
            endpoints,
            login,
            tls,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(60),
            user_agent: concat!("proxmox-client/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// The account that makes the calls.
#[derive(Debug, Clone)]
pub enum Login {
    /// An API token: no session and no CSRF token.
    Token {
        /// The full id, `user@realm!name`.
        id: String,
        /// The token's secret.
        secret: SecretString,
    },
    /// A user with a password, which is exchanged for tickets.
    Password {
        /// The full name, `user@realm`.
        username: String,
        /// The user's password.
        secret: SecretString,
    },
}

impl Login {
    /// The login's name, without its secret.
    pub fn name(&self) -> &str {
        match self {
            Self::Token { id, .. } => id,
            Self::Password { username, .. } => username,
        }
    }
}

/// How the nodes' certificates are checked.
#[derive(Clone, PartialEq, Eq)]
pub enum Tls {
    /// Against the system's certificate authorities.
    System,
    /// Against these authorities only: texts in PEM, each with one or more certificates.
    Bundle(Vec<String>),
    /// By the SHA-256 of the node's own certificate, which must be one of these; names and dates do
    /// not count.
    Pins(Vec<[u8; 32]>),
    /// Not at all (`ignoreSslErrors`).
    Ignore,
}

impl fmt::Debug for Tls {
    /// Shows how many certificates or pins there are, not their text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::Bundle(texts) => write!(f, "Bundle({})", texts.len()),
            Self::Pins(pins) => write!(f, "Pins({})", pins.len()),
            Self::Ignore => f.write_str("Ignore"),
        }
    }
}

/// A pin that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a SHA-256 fingerprint: write 64 hexadecimal digits, with or without colons, as \
     `openssl x509 -noout -fingerprint -sha256 -in pve-ssl.pem` prints them"
)]
pub struct PinError(String);

/// Reads a pin: 64 hexadecimal digits in either case, with or without colons and a prefix
/// `sha256:`.
pub fn parse_pin(text: &str) -> Result<[u8; 32], PinError> {
    let refuse = || PinError(text.to_owned());
    let trimmed = text.trim();
    let bare = trimmed.strip_prefix("sha256:").unwrap_or(trimmed);
    let digits: String = bare.chars().filter(|ch| *ch != ':').collect();
    if digits.len() != 64 || !digits.is_ascii() {
        return Err(refuse());
    }
    let mut pin = [0_u8; 32];
    for (byte, at) in pin.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| refuse())?;
    }
    Ok(pin)
}

/// A fingerprint as Proxmox and openssl print it: upper case with colons.
pub fn fingerprint(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_pin_reads_back_as_it_is_printed() {
        let pin: [u8; 32] = std::array::from_fn(|n| n as u8 * 7);
        let text = fingerprint(&pin);
        assert_eq!(parse_pin(&text).unwrap(), pin);
        assert_eq!(parse_pin(&format!("sha256:{}", text.replace(':', "").to_lowercase())), Ok(pin));
    }

    #[test]
    fn a_pin_of_another_kind_is_refused_with_what_to_write() {
        let text = parse_pin("AA:BB").unwrap_err().to_string();
        insta::assert_snapshot!(text, @"`AA:BB` is not a SHA-256 fingerprint: write 64 hexadecimal digits, with or without colons, as `openssl x509 -noout -fingerprint -sha256 -in pve-ssl.pem` prints them");
        assert!(parse_pin(&"zz".repeat(32)).is_err());
    }

    #[test]
    fn a_connection_prints_no_secret() {
        let login = Login::Password { username: "a@pve".into(), secret: "hunter2".into() };
        let shown = format!("{:?}", Connection::new(Vec::new(), login, Tls::System));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
