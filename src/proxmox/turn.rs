//! Turns: who decides when a call may be sent.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::error::Call;
use crate::transport::{Reply, TransportError};

/// Who decides when a call may be sent; a client without one sends at once.
pub trait Turns: Send + Sync {
    /// Waits until a call may be sent to an endpoint.
    ///
    /// # Errors
    /// When it had no turn in time; it is not sent then.
    fn turn<'a>(
        &'a self,
        call: &'a Call,
        endpoint: &'a str,
    ) -> BoxFuture<'a, Result<Box<dyn Turn>, NoTurn>>;
}

/// A call's place, which is given back when this is dropped.
pub trait Turn: Send {
    /// The call was sent, and this came of it.
    fn ended(&mut self, outcome: &Result<Reply, TransportError>);
}

/// A call had no turn in time; nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoTurn {
    /// Too many wait already.
    #[error("too many calls wait for their turn")]
    Full,
    /// Those before it took too long.
    #[error("the call waited {} s for its turn, and {ahead} others wait", .waited.as_secs())]
    Late {
        /// How long it waited.
        waited: Duration,
        /// Calls that wait beside it.
        ahead: usize,
    },
}
