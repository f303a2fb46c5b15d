//! Readiness, status and the watchdog towards systemd (`sd_notify(3)`); without `NOTIFY_SOCKET` it
//! does nothing.
//!
//! systemd may stand still, and a message to a full socket waits for it. A thread of its own sends
//! the messages in their order, so the service never waits.

use std::fmt::Write as _;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sd_notify::NotifyState;

/// Whether systemd started the service, or somebody who speaks as it does.
pub fn is_manager() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Speaks to the notify socket named by `NOTIFY_SOCKET`, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Notifier;

impl Notifier {
    /// Says that the journal is folded and every cloud was tried.
    pub fn ready(self, status: &str) {
        send(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Replaces the line that `systemctl status` shows.
    pub fn status(self, status: &str) {
        send(&[NotifyState::Status(status)]);
    }

    /// Says that a reload has started; [`Notifier::ready`] ends it.
    pub fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => send(&[NotifyState::Reloading, now]),
            Err(error) => {
                tracing::debug!(%error, "monotonic clock not readable");
                send(&[NotifyState::Reloading]);
            }
        }
    }

    /// Says that the service stops, and what it still waits for.
    pub fn stopping(self, status: &str) {
        send(&[NotifyState::Stopping, NotifyState::Status(status)]);
    }
}

/// Messages that wait while nobody listens; more are dropped.
const MOST_WAITING: usize = 64;

fn send(state: &[NotifyState<'_>]) {
    static SENDER: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
    let Some(sender) = SENDER.get_or_init(sender) else { return };
    let mut text = String::new();
    for one in state {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{one}");
    }
    if sender.try_send(text).is_err() {
        tracing::warn!("systemd does not listen: drover notifies it again once it does");
    }
}

/// Starts the thread that sends, where there is a socket to send to.
fn sender() -> Option<SyncSender<String>> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (sender, messages) = sync_channel::<String>(MOST_WAITING);
    // It ends with the process; without it messages are dropped, which is said.
    let thread = std::thread::Builder::new().name("sd-notify".into());
    let spawned = thread.spawn(move || {
        for text in messages {
            let state = NotifyState::Custom(text.trim_end());
            if let Err(error) = sd_notify::notify(&[state]) {
                tracing::warn!(%error, "systemd could not be notified");
            }
        }
    });
    if let Err(error) = spawned {
        tracing::warn!(%error, "systemd cannot be notified");
    }
    Some(sender)
}

/// Feeds systemd's watchdog while `alive` says so, at half its period; ends at once without one.
///
/// `alive` is the actors' own liveness: a herd that stopped turning is killed and restarted.
pub async fn feed_watchdog(alive: Arc<dyn Fn() -> bool + Send + Sync>) {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval((period / 2).max(Duration::from_millis(10)));
    loop {
        tick.tick().await;
        if alive() {
            send(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the actors do not turn: the watchdog is not fed");
        }
    }
}
