//! The signals of the service: SIGHUP reloads, SIGUSR1 reaps, SIGUSR2 resyncs, SIGTERM and SIGINT
//! stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::RunError;

/// What a signal asks the service to do.
#[derive(Debug, Clone, Copy)]
pub(super) enum SignalAction {
    Reload,
    Reap,
    Resync,
    Stop,
}

/// The signals that the service handles.
pub(super) struct Signals {
    reload: Signal,
    reap: Signal,
    resync: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// [`RunError::System`].
    pub(super) fn listen() -> Result<Self, RunError> {
        let open = |kind| {
            signal(kind)
                .map_err(|source| RunError::System { doing: "cannot handle signals", source })
        };
        Ok(Self {
            reload: open(SignalKind::hangup())?,
            reap: open(SignalKind::user_defined1())?,
            resync: open(SignalKind::user_defined2())?,
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.reload.recv() => SignalAction::Reload,
            _ = self.reap.recv() => SignalAction::Reap,
            _ = self.resync.recv() => SignalAction::Resync,
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
        }
    }

    /// Waits for SIGTERM or SIGINT.
    pub(super) async fn terminated(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
