//! How one configured cloud is reached: endpoints, login, trust, limits. Made by the
//! configuration, held by the client; its secrets never print.

use std::fmt;
use std::time::Duration;

use secrecy::SecretString;

use crate::endpoint::Endpoint;

/// A way into a cluster.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Nodes of one cluster, the preferred one first.
    pub endpoints: Vec<Endpoint>,
    /// Who logs in.
    pub login: Login,
    /// How the nodes prove themselves.
    pub tls: Tls,
    /// The most a connection may take to come about.
    pub connect_timeout: Duration,
    /// The most a call may take in all.
    pub call_timeout: Duration,
    /// How requests name the program that sends them (`User-Agent`).
    pub user_agent: String,
}

impl Connection {
    /// Builds a connection with the usual limits: 5 s to connect, 60 s for a call (above the
    /// 30 s that Proxmox's own proxy waits plus its lock waits). Requests name this crate.
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

/// Who logs in.
#[derive(Debug, Clone)]
pub enum Login {
    /// An API token: no session, no CSRF.
    Token {
        /// Its full id, `user@realm!name`.
        id: String,
        /// Its value.
        secret: SecretString,
    },
    /// A user with a password, for tickets.
    Password {
        /// The user, `user@realm`.
        username: String,
        /// The password.
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

/// How the nodes prove themselves.
#[derive(Clone, PartialEq, Eq)]
pub enum Tls {
    /// By the system's certificate authorities.
    System,
    /// By these authorities alone: texts of PEM, each with one certificate or more.
    Bundle(Vec<String>),
    /// By the SHA-256 of their own certificate, any of these; names and dates do not matter.
    Pins(Vec<[u8; 32]>),
    /// Not at all (`ignoreSslErrors`).
    Ignore,
}

impl fmt::Debug for Tls {
    /// Counts certificates and pins rather than spelling them.
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

/// Reads a pin: 64 hexadecimal digits, colons and case as one likes, `sha256:` in front or not.
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

/// Spells a fingerprint the way Proxmox and openssl do: upper case with colons.
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
