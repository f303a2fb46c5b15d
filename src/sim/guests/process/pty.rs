//! Pseudo-terminals of sessions: the end that the SSH server reads and writes, and the size.
//!
//! The other end is the standard input, output and error of a session's first process. That process starts
//! in a session of the system of its own with the terminal (`setsid --ctty`), so that keys such as Ctrl-C reach
//! the programs there, and all of them get HUP when this end is closed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::net::unix::pipe;

/// Columns and rows that a client may ask for.
const SIDE_MAX: u32 = 1000;
/// The longest name of a kind of terminal.
const KIND_BYTES_MAX: usize = 32;

/// A terminal as a client asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PtyRequest {
    /// The value of `TERM`.
    pub kind: String,
    pub columns: u32,
    pub rows: u32,
}

impl PtyRequest {
    /// The request where it is a sensible one.
    pub(super) fn new(kind: &str, columns: u32, rows: u32) -> Option<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-+._".contains(c);
        let good = (1..=KIND_BYTES_MAX).contains(&kind.len()) && kind.chars().all(plain);
        good.then(|| Self { kind: kind.to_owned(), columns, rows })
    }
}

/// The words of a command that has the terminal of its standard input.
pub(super) fn with_terminal(words: Vec<String>) -> Vec<String> {
    let mut all = ["setsid", "--ctty", "--"].map(str::to_owned).to_vec();
    all.extend(words);
    all
}

/// A pseudo-terminal, from the side of the server.
#[derive(Debug, Clone)]
pub(super) struct Pty(Arc<OwnedFd>);

impl Pty {
    /// Opens one; gives the end of the processes too.
    pub(super) fn open(request: &PtyRequest) -> io::Result<(Self, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let own = openpt(flags)?;
        grantpt(&own)?;
        unlockpt(&own)?;
        let other = ioctl_tiocgptpeer(&own, flags)?;
        let flags = fcntl_getfl(&own)?;
        fcntl_setfl(&own, flags | OFlags::NONBLOCK)?;
        let pty = Self(Arc::new(own));
        pty.resize(request.columns, request.rows);
        Ok((pty, other))
    }

    /// Gives it another size. Its programs get WINCH.
    pub(super) fn resize(&self, columns: u32, rows: u32) {
        let side = |asked: u32| u16::try_from(asked.clamp(1, SIDE_MAX)).unwrap_or(80);
        let size =
            Winsize { ws_row: side(rows), ws_col: side(columns), ws_xpixel: 0, ws_ypixel: 0 };
        // It fails only when the processes have gone.
        let _gone = tcsetwinsize(self.0.as_fd(), size);
    }

    /// What its programs write. It ends when none of them has it any more.
    pub(super) fn reader(&self) -> io::Result<pipe::Receiver> {
        let copy = fcntl_dupfd_cloexec(&*self.0, 0)?;
        pipe::Receiver::from_owned_fd_unchecked(copy)
    }

    /// What its programs read.
    pub(super) fn writer(&self) -> io::Result<pipe::Sender> {
        let copy = fcntl_dupfd_cloexec(&*self.0, 0)?;
        pipe::Sender::from_owned_fd_unchecked(copy)
    }
}
