//! Limiting calls: a program may decide when each call is sent.
//!
//! A client asks its [`CallLimiter`] before each call. It gets a [`CallPermit`], which hears the
//! outcome of the call and then drops, or a [`NotAdmitted`]; then the call is not sent.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::Call;
use crate::transport::{Reply, TransportError};

/// Decides when a call may be sent; a client without one sends at once.
pub trait CallLimiter: Send + Sync {
    /// Waits until a call may be sent to an endpoint.
    ///
    /// # Errors
    /// When the call was not admitted in time; it is not sent then.
    fn admit<'a>(
        &'a self,
        call: &'a Call,
        endpoint: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn CallPermit>, NotAdmitted>>;
}

/// The permit of one call; dropping it lets others go ahead.
pub trait CallPermit: Send {
    /// Reports the outcome of the call.
    fn ended(&mut self, outcome: &Result<Reply, TransportError>);
}

/// A call was not admitted; nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// Too many calls wait already.
    #[error("too many calls wait already")]
    QueueFull,
    /// The call waited too long.
    #[error("the call waited {} s to be sent, and {ahead} other calls wait", .waited.as_secs())]
    TimedOut {
        /// How long it waited.
        waited: Duration,
        /// How many other calls wait.
        ahead: usize,
    },
}
