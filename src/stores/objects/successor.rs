//! A snapshot in the making: its parts lie beside the log until an entry names them.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use drover_journal::{LogError, Successor};
use parking_lot::Mutex;

use super::gateway::{CallError, Gateway};
use super::layout::{PART_BYTES, SnapshotMark, part};

/// Where a successor is left that is ready.
pub(super) type Slot = Mutex<Option<Parts>>;

/// The parts of a snapshot; deleted when no entry ever names them.
pub(super) struct Parts {
    gateway: Arc<Gateway>,
    mark: SnapshotMark,
    kept: bool,
}

impl Parts {
    pub(super) fn mark(&self) -> &SnapshotMark {
        &self.mark
    }

    /// An entry names them, or may.
    pub(super) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if !self.kept {
            self.gateway.delete_soon(&self.mark.names());
        }
    }
}

/// A successor that is being filled.
pub(super) struct ObjectSuccessor {
    slot: Weak<Slot>,
    parts: Parts,
    /// What goes into the next part.
    piece: Vec<u8>,
}

impl ObjectSuccessor {
    pub(super) fn new(gateway: Arc<Gateway>, mark: SnapshotMark, slot: Weak<Slot>) -> Self {
        Self { slot, parts: Parts { gateway, mark, kept: false }, piece: Vec::new() }
    }

    fn failed(&self, source: CallError) -> LogError {
        let place = self.parts.gateway.place().to_owned();
        LogError::Io { place, doing: "written", source: source.into() }
    }

    fn given_up(&self) -> LogError {
        let text = "a write to the journal failed while its snapshot was written";
        self.failed(CallError::Refused(text.to_owned()))
    }

    fn flush(&mut self) -> Result<(), LogError> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = Bytes::from(std::mem::take(&mut self.piece));
        let mark = &mut self.parts.mark;
        // A part that is there although no answer came is deleted with the others.
        mark.parts += 1;
        mark.bytes += piece.len() as u64;
        let name = part(&mark.folder, mark.parts);
        self.parts.gateway.overwrite(&name, piece).map_err(|error| self.failed(error))
    }
}

impl Successor for ObjectSuccessor {
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), LogError> {
        if self.slot.strong_count() == 0 {
            return Err(self.given_up());
        }
        while !bytes.is_empty() {
            let (fits, rest) = bytes.split_at(bytes.len().min(PART_BYTES - self.piece.len()));
            self.piece.extend(fits);
            bytes = rest;
            if self.piece.len() == PART_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// The records are in the store already.
    fn append(&mut self, _: &[Vec<u8>]) -> Result<(), LogError> {
        Ok(())
    }

    fn ready(mut self: Box<Self>) -> Result<(), LogError> {
        self.flush()?;
        let slot = self.slot.upgrade().ok_or_else(|| self.given_up())?;
        *slot.lock() = Some(self.parts);
        Ok(())
    }
}
