//! The standard input of `drover lease`, which its command reads.
//!
//! A thread of its own reads it. Nobody can end a read, as of a terminal in which nobody types: such a
//! thread keeps neither the command nor drover from ending.

use std::io::{self, IsTerminal as _, Read};
use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc;

/// The largest piece that is read at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Whether a path stands for the standard input.
pub(super) fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Reads the standard input until it ends or nobody takes it. Nothing is read of the terminal of
/// another job of the shell: the system would stop drover for it.
pub(super) fn read(to: mpsc::Sender<Bytes>) {
    let stdin = io::stdin();
    let owner = rustix::termios::tcgetpgrp(&stdin).ok();
    if stdin.is_terminal() && owner != Some(rustix::process::getpgrp()) {
        return;
    }
    let reader = std::thread::Builder::new().name("stdin".into());
    if let Err(error) = reader.spawn(move || pass_on(stdin.lock(), &to)) {
        tracing::warn!(%error, "standard input cannot be read");
    }
}

/// Passes on what is read. An input that cannot be read has ended.
fn pass_on(mut from: impl Read, to: &mpsc::Sender<Bytes>) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                if to.blocking_send(Bytes::copy_from_slice(&piece[..count])).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
