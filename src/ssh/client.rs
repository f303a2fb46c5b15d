//! Logging in: one attempt, with the host key checked and every way to fail kept apart. Trying
//! again is in `retry.rs`.
//!
//! [`connect`] makes the TCP connection, the key exchange and the login within one time limit. With
//! pinned host keys only their kinds are negotiated, so that a guest with several host keys
//! presents the pinned one; without pins, any key is accepted and returned. RSA host keys are never
//! accepted.
//!
//! [`ConnectError::is_passing`] says whether a guest that is still booting can cause the failure.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use russh::client::{self, AuthResult};
use russh::keys::{Algorithm, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use tokio::net::TcpStream;

use super::key::{KeyError, PrivateKey, PublicKey};
use super::session::Session;

/// The server and user to log in to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: IpAddr,
    pub port: u16,
    /// The user to log in as.
    pub user: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, SocketAddr::new(self.host, self.port))
    }
}

/// Which host keys are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// Only these, given as public key lines.
    Pinned(Vec<String>),
    /// Any key. [`Session::host_key`] returns it, so that the caller can pin it from then on.
    TrustOnFirst,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there yet, no route leads there, or the other end closed the connection
    /// before the login.
    #[error("`{target}` is not reachable")]
    Unreachable {
        target: String,
        #[source]
        source: std::io::Error,
    },
    /// The login took longer than the limit.
    #[error("`{target}` did not complete the login within {after:?}")]
    TimedOut { target: String, after: Duration },
    /// The guest refused the key.
    #[error(
        "`{target}` does not accept the key {fingerprint} (login methods: {offers}): check the user \
         and that cloud-init installed this key"
    )]
    KeyRejected {
        target: String,
        /// The fingerprint of the refused key.
        fingerprint: String,
        /// The login methods that the guest accepts.
        offers: String,
    },
    /// The guest presented another host key than the pinned ones.
    #[error("`{target}` presents the host key {seen}, expected {}", .expected.join(" or "))]
    Impostor {
        target: String,
        /// The fingerprint that it presented, or the kinds of keys that it has.
        seen: String,
        /// The fingerprints of the pinned keys.
        expected: Vec<String>,
    },
    /// A pinned host key is not a public key line.
    #[error("the pinned host key of `{target}` cannot be read")]
    BadPin {
        target: String,
        #[source]
        source: Box<KeyError>,
    },
    /// The other end violated the SSH protocol.
    #[error("`{target}` violated the SSH protocol")]
    Protocol {
        target: String,
        #[source]
        source: Box<russh::Error>,
    },
}

impl ConnectError {
    /// Whether a guest that is still booting can cause this.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } => true,
            Self::KeyRejected { .. }
            | Self::Impostor { .. }
            | Self::BadPin { .. }
            | Self::Protocol { .. } => false,
        }
    }
}

/// Logs in once, within `timeout` from the first packet to the accepted key.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(
    target: &Target,
    key: &PrivateKey,
    host_key: &HostKeyPolicy,
    timeout: Duration,
) -> Result<Session, ConnectError> {
    let pins = parse_pins(target, host_key)?;
    let attempt = log_in(target, key, pins);
    let session = tokio::time::timeout(timeout, attempt)
        .await
        .map_err(|_| ConnectError::TimedOut { target: target.to_string(), after: timeout })??;
    Ok(session)
}

fn parse_pins(
    target: &Target,
    policy: &HostKeyPolicy,
) -> Result<Option<Vec<PublicKey>>, ConnectError> {
    let HostKeyPolicy::Pinned(lines) = policy else {
        return Ok(None);
    };
    let pins =
        lines.iter().map(|line| PublicKey::parse(line)).collect::<Result<Vec<_>, _>>().map_err(
            |source| ConnectError::BadPin { target: target.to_string(), source: Box::new(source) },
        )?;
    Ok(Some(pins))
}

async fn log_in(
    target: &Target,
    key: &PrivateKey,
    pins: Option<Vec<PublicKey>>,
) -> Result<Session, ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { target: target.to_string(), source };
    let stream = TcpStream::connect((target.host, target.port)).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;

    let seen = Arc::new(OnceLock::new());
    let config = Arc::new(client_config(pins.as_deref()));
    let check = HostKeyCheck { pins: pins.clone(), seen: Arc::clone(&seen) };
    let mut handle = client::connect_stream(config, stream, check)
        .await
        .map_err(|error| classify(target, error, pins.as_deref(), seen.get()))?;

    let offered = PrivateKeyWithHashAlg::new(key.inner(), None);
    let answer = handle
        .authenticate_publickey(target.user.clone(), offered)
        .await
        .map_err(|error| classify(target, error, pins.as_deref(), seen.get()))?;
    if let AuthResult::Failure { remaining_methods, .. } = answer {
        let offers: Vec<String> =
            remaining_methods.iter().map(<&str>::from).map(str::to_owned).collect();
        return Err(ConnectError::KeyRejected {
            target: target.to_string(),
            fingerprint: key.fingerprint(),
            offers: if offers.is_empty() { "nothing".to_owned() } else { offers.join(", ") },
        });
    }
    let Some(host_key) = seen.get().cloned() else {
        // russh never logs in without a host key; if it did, the login must not count as good.
        return Err(ConnectError::Protocol {
            target: target.to_string(),
            source: Box::new(russh::Error::UnknownKey),
        });
    };
    Ok(Session::new(handle, host_key))
}

/// With pins, only their kinds of keys are negotiated: a guest with several host keys must present
/// the pinned one.
fn client_config(pins: Option<&[PublicKey]>) -> client::Config {
    let mut preferred = russh::Preferred::DEFAULT;
    let wanted: Vec<Algorithm> = preferred
        .key
        .iter()
        .filter(|kind| !matches!(kind, Algorithm::Rsa { .. }))
        .filter(|kind| pins.is_none_or(|pins| pins.iter().any(|pin| pin.algorithm() == **kind)))
        .cloned()
        .collect();
    preferred.key = Cow::Owned(wanted);
    client::Config {
        preferred,
        nodelay: true,
        keepalive_interval: Some(Duration::from_secs(15)),
        keepalive_max: 4,
        ..client::Config::default()
    }
}

fn classify(
    target: &Target,
    error: russh::Error,
    pins: Option<&[PublicKey]>,
    seen: Option<&PublicKey>,
) -> ConnectError {
    let target = target.to_string();
    let expected = || pins.unwrap_or_default().iter().map(PublicKey::fingerprint).collect();
    let hung_up = |why: &str| std::io::Error::new(std::io::ErrorKind::ConnectionReset, why);
    #[expect(clippy::wildcard_enum_match_arm, reason = "russh's errors are many and grow")]
    match error {
        russh::Error::UnknownKey if seen.is_some() => ConnectError::Impostor {
            target,
            seen: seen.map(PublicKey::fingerprint).unwrap_or_default(),
            expected: expected(),
        },
        russh::Error::NoCommonAlgo { kind: russh::AlgorithmKind::Key, theirs, .. }
            if pins.is_some() =>
        {
            let kinds: String = theirs.join(", ").chars().take(200).collect();
            ConnectError::Impostor {
                target,
                seen: format!("of another kind ({kinds})"),
                expected: expected(),
            }
        }
        russh::Error::IO(source) => ConnectError::Unreachable { target, source },
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::SendError => {
            ConnectError::Unreachable {
                target,
                source: hung_up("the connection closed before the login"),
            }
        }
        source => ConnectError::Protocol { target, source: Box::new(source) },
    }
}

/// Checks the host key during russh's handshake.
pub(super) struct HostKeyCheck {
    pins: Option<Vec<PublicKey>>,
    seen: Arc<OnceLock<PublicKey>>,
}

impl client::Handler for HostKeyCheck {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let key = PublicKey::from(key.clone());
        let good = self.pins.as_ref().is_none_or(|pins| pins.contains(&key))
            // A new key exchange must present the same key as the login.
            && self.seen.get().is_none_or(|first| *first == key);
        // The first key is kept; a later one was compared with it above.
        let _first = self.seen.set(key);
        Ok(good)
    }
}
