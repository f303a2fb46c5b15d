//! A guest that echoes what is typed into its terminal, until it reads `exit`.

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::os::Os;
use drover_model::ports::ShellTarget;
use drover_model::spec::SshSpec;
use drover_model::status::WayIn;
use drover_shell::OpenTerminal;
use drover_ssh::{TerminalEnd, TerminalInput, TerminalOutput, TerminalSize};
use tokio::sync::mpsc;

/// How drover logs in to agents of tests.
pub(super) fn way_in() -> WayIn {
    let (credentials_id, user, port) = ("ssh".into(), "ci".into(), 2222);
    let public_key = "ssh-ed25519 AAAAC3".into();
    WayIn { ssh: SshSpec { credentials_id, user, port, public_key }, os: Os::Linux }
}

/// Opens one; at a guest of another user than `ci` the login fails.
pub(super) async fn opened(target: ShellTarget, size: TerminalSize) -> Result<OpenTerminal, Fault> {
    if target.ssh.user != "ci" {
        return Err(Fault::new(FaultKind::Unreachable, Culprit::Guest, "nobody answers"));
    }
    let (input, mut keys) = mpsc::channel(4);
    let (shown, output) = mpsc::channel(4);
    let sized = |TerminalSize { columns, rows }| format!("{columns}x{rows}\r\n");
    let hello = sized(size);
    tokio::spawn(async move {
        let mut next = Some(hello.into());
        while let Some(bytes) = next {
            if shown.send(TerminalOutput::Bytes(bytes)).await.is_err() {
                return;
            }
            next = match keys.recv().await {
                Some(TerminalInput::Bytes(keys)) if keys.starts_with(b"exit") => None,
                Some(TerminalInput::Bytes(keys)) => Some(keys),
                Some(TerminalInput::Size(size)) => Some(sized(size).into()),
                None => return,
            };
        }
        let end = TerminalOutput::Ended(TerminalEnd::Exited(Some(0)));
        // The test may have seen enough.
        let _gone = shown.send(end).await;
    });
    Ok(OpenTerminal { input, output })
}
