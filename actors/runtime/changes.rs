//! Waiting for a change of what actors of one thread share.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::sync::oneshot;

/// Those who wait for a change, woken in the order they came.
#[derive(Debug, Clone, Default)]
pub struct Changes(Rc<RefCell<Vec<oneshot::Sender<()>>>>);

impl Changes {
    /// Something has changed.
    pub fn tell(&self) {
        for waiter in self.0.take() {
            // It may have gone meanwhile.
            let _ = waiter.send(());
        }
    }

    /// Resolves when something has changed since this call.
    pub fn next(&self) -> impl Future<Output = ()> + use<> {
        let (waiter, change) = oneshot::channel();
        let mut waiting = self.0.borrow_mut();
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(waiter);
        async move {
            // Without a sender nothing changes any more.
            let _ = change.await;
        }
    }
}
