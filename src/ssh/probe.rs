//! Checks whether an SSH server answers: a connection and its first line, without a login.
//!
//! This is cheap enough for every agent every ten seconds: no key exchange, one socket for a
//! moment. One connection in ten seconds stays below what OpenSSH counts against an address that
//! does not log in (`PerSourcePenalties`).

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// How many bytes are read while waiting for the server's version line: other lines may come before
/// it (RFC 4253, 4.2).
const GREETING_MAX: usize = 8 * 1024;

/// Why no SSH server is known to answer.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// No SSH server answers.
    #[error("SSH at `{at}` does not answer")]
    Silent {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// This machine could not connect, which says nothing about the other end.
    #[error("this machine could not connect to SSH at `{at}`")]
    NotMade {
        at: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// Waits at most `limit` for the version line of the SSH server at `at`.
///
/// # Errors
/// See [`ProbeError`].
pub async fn probe(at: SocketAddr, limit: Duration) -> Result<(), ProbeError> {
    let asked = tokio::time::timeout(limit, greeting(at)).await;
    let result = asked.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
    result.map_err(|source| {
        if is_own(&source) {
            ProbeError::NotMade { at, source }
        } else {
            ProbeError::Silent { at, source }
        }
    })
}

async fn greeting(at: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(at).await?;
    let mut said = Vec::with_capacity(256);
    loop {
        if said.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"SSH-")) {
            return Ok(());
        }
        let left = GREETING_MAX.saturating_sub(said.len());
        let limit = u64::try_from(left).unwrap_or(0);
        if (&mut stream).take(limit).read_buf(&mut said).await? == 0 {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the server that answers does not speak SSH",
            ));
        }
    }
}

/// Whether the error comes from this machine and so says nothing about the other end.
fn is_own(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::NetworkDown,
        ErrorKind::NetworkUnreachable,
        ErrorKind::AddrNotAvailable,
        ErrorKind::PermissionDenied,
        ErrorKind::OutOfMemory,
    ];
    // ENFILE, EMFILE and ENOBUFS have no `ErrorKind` of their own.
    kinds.contains(&error.kind()) || matches!(error.raw_os_error(), Some(23 | 24 | 105))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    /// Probes a server that sends `said` to each connection and keeps it open.
    async fn found(said: &'static [u8]) -> Result<(), ProbeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(said).await.unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            found = probe(at, LIMIT) => found,
            () = server => Ok(()),
        }
    }

    // Invariant: only the version line of an SSH server counts as an answer, and every other end
    // says which it was.

    #[tokio::test]
    async fn an_ssh_server_is_there_whatever_it_says_before_its_own_line() {
        found(b"SSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
        found(b"welcome\r\nSSH-2.0-OpenSSH_9.9\r\n").await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_hangs_or_is_another_is_silent() {
        for said in [&b""[..], b"220 mail ready\r\n", b"say SSH-2.0\r\n", &[b'x'; GREETING_MAX]] {
            let error = found(said).await.unwrap_err();
            assert!(matches!(error, ProbeError::Silent { .. }), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_port_where_nobody_listens_is_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let error = probe(at, LIMIT).await.unwrap_err();
        assert!(matches!(error, ProbeError::Silent { .. }), "{error:?}");
    }

    #[test]
    fn what_this_machine_cannot_do_says_nothing_of_a_guest() {
        for (error, own) in [(24, true), (101, true), (111, false), (113, false), (110, false)] {
            assert_eq!(is_own(&io::Error::from_raw_os_error(error)), own, "{error}");
        }
    }
}
