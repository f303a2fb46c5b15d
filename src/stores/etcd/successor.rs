//! A snapshot in the making: its pages lie beside the log until the head names them.

use std::sync::{Arc, Weak};

use drover_journal::{LogError, Successor};
use parking_lot::Mutex;

use super::gateway::{CallError, Gateway};
use super::layout::{Keys, SnapshotMark};

/// Where a successor is left that is ready.
pub(super) type Slot = Mutex<Option<Pages>>;

/// The pages of a snapshot; deleted when no head ever names them.
pub(super) struct Pages {
    gateway: Arc<Gateway>,
    keys: Keys,
    mark: SnapshotMark,
    kept: bool,
}

impl Pages {
    pub(super) fn mark(&self) -> &SnapshotMark {
        &self.mark
    }

    /// The head names them, or may.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.kept || self.mark.pages == 0 {
            return;
        }
        if let Err(error) = self.gateway.delete(&self.keys.snapshot(&self.mark.name)) {
            tracing::warn!(%error, "unfinished journal snapshot stays");
        }
    }
}

/// A successor that is being filled.
pub(super) struct EtcdSuccessor {
    slot: Weak<Slot>,
    pages: Pages,
}

impl EtcdSuccessor {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        keys: Keys,
        mark: SnapshotMark,
        slot: Weak<Slot>,
    ) -> Self {
        Self { slot, pages: Pages { gateway, keys, mark, kept: false } }
    }

    fn failed(&self, source: CallError) -> LogError {
        let place = self.pages.gateway.place().to_owned();
        LogError::Io { place, doing: "written", source: source.into() }
    }

    fn given_up(&self) -> LogError {
        let text = "a write to the journal failed while its snapshot was written";
        self.failed(CallError::Refused(text.to_owned()))
    }
}

impl Successor for EtcdSuccessor {
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        if self.slot.strong_count() == 0 {
            return Err(self.given_up());
        }
        let Pages { gateway, keys, mark, .. } = &mut self.pages;
        // A page that is there although no answer came is deleted with the others.
        mark.pages += 1;
        let put = gateway.put(&keys.page(&mark.name, mark.pages), bytes);
        mark.bytes += bytes.len() as u64;
        put.map_err(|error| self.failed(error))
    }

    /// The records are in the store already.
    fn append(&mut self, _: &[Vec<u8>]) -> Result<(), LogError> {
        Ok(())
    }

    fn ready(self: Box<Self>) -> Result<(), LogError> {
        let slot = self.slot.upgrade().ok_or_else(|| self.given_up())?;
        *slot.lock() = Some(self.pages);
        Ok(())
    }
}
