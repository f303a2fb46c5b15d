//! Terminals in guests: a login as for every other call, then a shell for as long as somebody sits at it.

use std::time::Duration;

use causes::chain;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::ports::{Ask, ShellTarget};
use drover_ssh::{TerminalEnd, TerminalInput, TerminalOutput, TerminalSize};
use tokio::sync::mpsc;

use super::SshShell;

/// Pieces that wait between a guest and the one who sits at its terminal: what comes after that waits in
/// the guest.
const PIECES: usize = 32;

/// A terminal whose shell runs. It ends with this.
#[derive(Debug)]
pub struct OpenTerminal {
    pub input: mpsc::Sender<TerminalInput>,
    /// Its last piece is its end.
    pub output: mpsc::Receiver<TerminalOutput>,
}

impl SshShell {
    /// Logs in and opens a terminal of this size, both within `limit`. It stays open until its shell ends,
    /// the connection is lost, or what this gives is dropped.
    pub fn terminal(
        &self,
        target: ShellTarget,
        size: TerminalSize,
        limit: Duration,
    ) -> Ask<OpenTerminal> {
        self.with_session(target, limit, move |session, left| async move {
            let terminal = session
                .terminal(size, left)
                .await
                .map_err(|error| Fault::new(FaultKind::Broken, Culprit::Guest, chain(&error)))?;
            let (input, keys) = mpsc::channel(PIECES);
            let (sink, output) = mpsc::channel(PIECES);
            // On the ports' runtime, with which it ends.
            tokio::spawn(async move {
                let end: TerminalEnd = terminal.run(keys, &sink).await;
                let _gone = sink.send(TerminalOutput::Ended(end)).await;
                session.close().await;
            });
            Ok(OpenTerminal { input, output })
        })
    }
}
