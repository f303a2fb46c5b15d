//! Waiting for a change of something that actors on one thread share.

use std::cell::RefCell;

use tokio::sync::oneshot;

/// Wakes those who wait for a change, in the order in which they came.
#[derive(Debug, Default)]
pub struct ChangeNotifier(RefCell<Vec<oneshot::Sender<()>>>);

impl ChangeNotifier {
    /// Wakes everybody who waits.
    pub fn notify(&self) {
        for waiter in self.0.take() {
            // The waiter may be gone meanwhile.
            let _ = waiter.send(());
        }
    }

    /// Resolves at the first [`Self::notify`] after this call, even when the result is polled
    /// later.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        let (waiter, change) = oneshot::channel();
        let mut waiting = self.0.borrow_mut();
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(waiter);
        async move {
            // When the notifier is gone, nothing changes any more.
            let _ = change.await;
        }
    }
}
