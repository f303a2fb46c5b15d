//! The end of a connection whose client still sends.
//!
//! A socket that is closed with unread bytes resets the connection, and the reset overtakes the
//! answer. So a refusal of an unread body is followed by reading what the client still sends.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client that has sent more than this after its answer is cut off.
pub(super) const BYTES_MAX: u64 = 256 << 20;

/// The longest wait for a client to close its end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A second hold on the socket of a connection: the socket stays open when the server closes its
/// own.
pub(super) struct Socket(TcpStream);

impl Socket {
    /// Splits a stream into the server's and the hold on its socket.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub(super) fn hold(stream: TcpStream) -> io::Result<(TcpStream, Self)> {
        let stream = stream.into_std()?;
        let held = TcpStream::from_std(stream.try_clone()?)?;
        Ok((TcpStream::from_std(stream)?, Self(held)))
    }

    /// Says that nothing more is sent, and reads and drops what comes until the client closes.
    pub(super) async fn drain(mut self) {
        let drained = async {
            self.0.shutdown().await?;
            tokio::io::copy(&mut (&mut self.0).take(BYTES_MAX), &mut tokio::io::sink()).await
        };
        match tokio::time::timeout(TIMEOUT, drained).await {
            Ok(Ok(bytes)) => tracing::debug!(bytes, "dropped what followed an answer"),
            Ok(Err(error)) => tracing::debug!(%error, "client went away before its answer"),
            Err(_) => tracing::debug!("client kept its connection open after its answer"),
        }
    }
}
