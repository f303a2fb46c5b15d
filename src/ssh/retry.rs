//! Logging in to a guest that is still booting: attempts repeat until a deadline.

use std::time::Duration;

use tokio::time::Instant;

use super::client::{ConnectError, HostKeyPolicy, Target, connect};
use super::key::PrivateKey;
use super::session::Session;

/// How attempts are spaced: the pause doubles from `first` to `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub max: Duration,
    /// The time limit of one attempt.
    pub attempt: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            max: Duration::from_secs(3),
            attempt: Duration::from_secs(10),
        }
    }
}

/// Logs in, and tries again until `deadline` while the guest is unreachable or silent.
///
/// `failed` receives the error of each attempt that will be repeated.
///
/// # Errors
/// The last attempt's error at the deadline; at once for a refused key, a wrong host key or a
/// broken protocol.
pub async fn connect_until(
    deadline: Instant,
    target: &Target,
    key: &PrivateKey,
    host_key: &HostKeyPolicy,
    backoff: Backoff,
    mut failed: impl FnMut(&ConnectError) + Send,
) -> Result<Session, ConnectError> {
    let mut wait = backoff.first;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let error = match connect(target, key, host_key, backoff.attempt.min(left)).await {
            Ok(session) => return Ok(session),
            Err(error) => error,
        };
        let next = Instant::now() + wait;
        if !error.is_passing() || next >= deadline {
            return Err(error);
        }
        failed(&error);
        tokio::time::sleep_until(next).await;
        wait = (wait * 2).min(backoff.max);
    }
}
