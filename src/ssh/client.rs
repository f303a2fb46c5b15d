//! Logging in: one attempt, with the host key checked and every way to fail told apart.
//!
//! Trying again is in `retry`.

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

/// Whom to log in to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its address.
    pub host: IpAddr,
    /// Its SSH port.
    pub port: u16,
    /// The user to become.
    pub user: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.user, SocketAddr::new(self.host, self.port))
    }
}

/// Which host keys are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// Exactly these, as public key lines.
    Pinned(Vec<String>),
    /// Any; the one seen is told by [`Session::host_key`] so that it can be pinned from then on.
    TrustOnFirst,
}

/// Why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens there yet, the way is closed, or the other end hung up before the login.
    #[error("`{target}` is not reachable")]
    Unreachable {
        /// Whom.
        target: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No login within the limit.
    #[error("`{target}` did not complete the login within {after:?}")]
    TimedOut {
        /// Whom.
        target: String,
        /// The limit.
        after: Duration,
    },
    /// The guest does not take the key.
    #[error(
        "`{target}` does not accept the key {fingerprint} (it offers: {offers}): check the user \
         and that cloud-init installed this key"
    )]
    KeyRejected {
        /// Whom.
        target: String,
        /// The key offered.
        fingerprint: String,
        /// The login methods the guest would take.
        offers: String,
    },
    /// The guest shows another host key than the one known.
    #[error("`{target}` shows the host key {seen}, expected {}", .expected.join(" or "))]
    Impostor {
        /// Whom.
        target: String,
        /// The fingerprint it showed, or which kinds it lacks.
        seen: String,
        /// The fingerprints expected.
        expected: Vec<String>,
    },
    /// A pinned host key is no public key line.
    #[error("the pinned host key of `{target}` can not be used")]
    BadPin {
        /// Whom.
        target: String,
        /// Why.
        #[source]
        source: Box<KeyError>,
    },
    /// The other end does not speak SSH as it should.
    #[error("`{target}` broke the SSH protocol")]
    Protocol {
        /// Whom.
        target: String,
        /// Why.
        #[source]
        source: Box<russh::Error>,
    },
}

impl ConnectError {
    /// Whether a guest that is still booting may cause this.
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
    let gate = Gate { pins: pins.clone(), seen: Arc::clone(&seen) };
    let mut handle = client::connect_stream(config, stream, gate)
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
        // A login without a host key can not happen; it must not pass as a good one.
        return Err(ConnectError::Protocol {
            target: target.to_string(),
            source: Box::new(russh::Error::UnknownKey),
        });
    };
    Ok(Session::new(handle, host_key))
}

/// With pins, only their kinds of key are asked for: a guest that has several host keys must show
/// the one that is known.
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
            ConnectError::Unreachable { target, source: hung_up("hung up before the login") }
        }
        source => ConnectError::Protocol { target, source: Box::new(source) },
    }
}

/// Looks at the host key while russh shakes hands.
pub(super) struct Gate {
    pins: Option<Vec<PublicKey>>,
    seen: Arc<OnceLock<PublicKey>>,
}

impl client::Handler for Gate {
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
            // A rekey must not bring in another key than the login's.
            && self.seen.get().is_none_or(|first| *first == key);
        // The first one seen is kept; a later one was compared above.
        let _first = self.seen.set(key);
        Ok(good)
    }
}
