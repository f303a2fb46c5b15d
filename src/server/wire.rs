//! The stream of a connection, TCP or Unix, read and written as its line says.
//!
//! The framework reads requests from a [`Wire`] and writes answers to it. Of a client that does not
//! read, little is read; a head that is no request, or is too large, is answered here
//! (`malformed.rs`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::line::{Phase, Reads};
use super::malformed::{HeadFault, Refusal, bare_answer};
use super::peer::{LocalPeer, Peer};
use super::seat::Seat;

/// Either kind of stream.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The stream of a connection, which reports to the line what goes over it.
pub(super) struct Wire {
    pub stream: Stream,
    pub seat: Arc<Seat>,
    pub peer: Peer,
    /// Who is at the other end of a Unix socket.
    pub local: Option<LocalPeer>,
    /// The answer to a head that is no request or too large, once there was one.
    pub refusal: Option<Refusal>,
}

macro_rules! on_stream {
    ($wire:expr, $stream:ident => $call:expr) => {
        match &mut $wire.stream {
            Stream::Tcp($stream) => $call,
            Stream::Unix($stream) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.refusal.is_some() {
            return self.refuse(cx, HeadFault::TooLarge);
        }
        let most = match self.seat.line.reads(cx) {
            Reads::Now(most) => most,
            Reads::Later => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Reads::OnWake => return Poll::Pending,
            Reads::Never => return self.refuse(cx, HeadFault::TooLarge),
        };
        if most >= buffer.remaining() {
            let before = buffer.filled().len();
            let read = on_stream!(self, stream => Pin::new(stream).poll_read(cx, buffer));
            self.seat.line.took(buffer.filled().len() - before);
            return read;
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
        let read = on_stream!(self, stream => Pin::new(stream).poll_read(cx, &mut part));
        let count = part.filled().len();
        buffer.advance(count);
        self.seat.line.took(count);
        read
    }
}

impl Wire {
    /// Writes the answer to such a head, where none was written, and takes what comes until the client
    /// hangs up: a socket that is closed over unread bytes is reset, and the answer is lost with it.
    fn refuse(&mut self, cx: &mut Context<'_>, fault: HeadFault) -> Poll<std::io::Result<()>> {
        let refusal = self.refusal.get_or_insert_with(|| Refusal::of(fault));
        while !refusal.rest().is_empty() {
            let written =
                on_stream!(self, stream => Pin::new(stream).poll_write(cx, refusal.rest()));
            self.seat.line.wrote(written.is_pending());
            match ready!(written)? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                count => refusal.wrote(count),
            }
        }
        if !refusal.is_ended {
            ready!(on_stream!(self, stream => Pin::new(stream).poll_shutdown(cx)))?;
            refusal.is_ended = true;
            self.seat.line.go(Phase::Rest);
        }
        let mut rubbish = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut rubbish);
            ready!(on_stream!(self, stream => Pin::new(stream).poll_read(cx, &mut buffer)))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let wire = self.get_mut();
        let bytes = match bare_answer(bytes) {
            // In place of the framework's own.
            Some((0, fault)) => return wire.refuse(cx, fault).map_ok(|()| bytes.len()),
            Some((at, _)) => &bytes[..at],
            None => bytes,
        };
        let written = on_stream!(wire, stream => Pin::new(stream).poll_write(cx, bytes));
        wire.seat.line.wrote(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        on_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}
