//! A journal in etcd.
//!
//! ```text
//! <prefix>/head                          the last record, who wrote it, the snapshot
//! <prefix>/records/<last record>         a chunk: the records of one write, or a part of them
//! <prefix>/snapshots/<name>/<page>       the snapshot that the head names, and one in the making
//! ```
//!
//! - Every write is one transaction that compares the revision of the head, and all but the first
//!   chunks of a large write change it. So two writers can never both go on: the one that writes
//!   second finds another head and is fenced for good.
//! - What lies behind the head (of a large write that was cut off, or of one whose answer was lost)
//!   and snapshots that it does not name are not part of the log. The next writer, and the next write
//!   after a failure, take them away first; it also undoes what was
//!   reported to its caller as failed.
//! - etcd syncs every write before it answers, so an append is always durable.
//! - A snapshot's pages are written beside the log. The switch names them in the head and deletes
//!   the records that they include, in one transaction.
//!
//! Beside it: `address.rs`, `identity.rs` (the certificate of the caller), `layout.rs` (keys, chunks, [`Head`]), `gateway.rs` (calls),
//! `successor.rs`, `store.rs` (what lies beside the journal).
//!
//! Follows etcd 3.4 and later: its API reference (<https://etcd.io/docs/v3.4/dev-guide/api_reference_v3/>),
//! and its limits (a request has 1.5 MiB at most, a transaction 128 operations).

mod address;
mod gateway;
mod identity;
mod layout;
mod store;
mod successor;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use drover_journal::{Log, LogError, Predecessor, Successor};

use super::nearby;
use address::OWN_NAMES;
pub use address::{AddressError, EtcdAddress};
pub(crate) use gateway::Gateway;
use gateway::{CallError, Operation};
pub use identity::IdentityError;
use layout::{Chunk, FORMAT, Head, KeyRange, Keys, SnapshotMark, name};
pub use store::EtcdStore;
use successor::{EtcdSuccessor, Slot};

/// The most bytes of a snapshot's page.
const PAGE_BYTES: usize = 256 << 10;

/// The head as it was last read or written.
#[derive(Debug, Clone, Default)]
struct Known {
    /// The revision that wrote it; zero where there is none.
    revision: u64,
    /// The revision of the store when it was read. The one that wrote it may be compacted away.
    at: u64,
    head: Head,
}

/// A log in etcd.
pub struct EtcdLog {
    gateway: Arc<Gateway>,
    keys: Keys,
    /// What the log is for its writer.
    known: Known,
    /// A head whose write may have happened although it was reported as failed.
    unsure: Option<Head>,
    /// Whether nothing lies beside what the head names.
    claimed: bool,
    /// Where a successor in the making is left when it is ready.
    slot: Option<Arc<Slot>>,
}

impl EtcdLog {
    /// Opens the log, which is empty where nothing is there. Nothing is written.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Corrupt`] or [`LogError::Newer`].
    pub fn open(address: &EtcdAddress) -> Result<Self, LogError> {
        let gateway = Gateway::new(address).map_err(|error| failed(address, "opened", error))?;
        let (gateway, keys) = (Arc::new(gateway), Keys::new(address.prefix()));
        let known = read_head(&gateway, &keys)?;
        Ok(Self { gateway, keys, known, unsure: None, claimed: false, slot: None })
    }

    /// Opens the log to look at it.
    ///
    /// # Errors
    /// As [`EtcdLog::open`]; also where nothing is there.
    pub fn look(address: &EtcdAddress) -> Result<Self, LogError> {
        let log = Self::open(address)?;
        if log.known.revision == 0 {
            let text = log.nothing_at(address.prefix());
            return Err(log.io("opened", text));
        }
        Ok(log)
    }

    /// Says that nothing is at a prefix. What cannot be read is not named.
    fn nothing_at(&self, prefix: &str) -> String {
        let range = KeyRange(format!("{prefix}/"), format!("{prefix}0"));
        let names = self.gateway.first_keys(&range, nearby::NAMES_MAX).unwrap_or_default();
        nearby::nothing_at(prefix, &names, &OWN_NAMES, |place| {
            let head = self.gateway.get(&Keys::new(place).head());
            head.is_ok_and(|found| found.value.is_some())
        })
    }

    fn io(&self, doing: &'static str, source: impl Into<Fault>) -> LogError {
        LogError::Io { place: self.place(), doing, source: source.into() }
    }

    fn corrupt(&self, text: String) -> LogError {
        LogError::Corrupt { place: self.place(), source: text.into() }
    }

    fn fenced(&self, found: &Known) -> LogError {
        LogError::Fenced { expected: self.known.head.seq, actual: found.head.seq }
    }

    /// Makes sure that nothing lies beside what the head names, and that the head is this writer's.
    ///
    /// # Errors
    /// [`LogError::Fenced`] when somebody else wrote since.
    fn claim(&mut self) -> Result<(), LogError> {
        let found = read_head(&self.gateway, &self.keys)?;
        let unsure = self.unsure.take().filter(|unsure| unsure.by == found.head.by);
        if found.revision != self.known.revision && unsure.is_none() {
            return Err(self.fenced(&found));
        }
        // A switch that happened has deleted the records of before: it stands. An append that was
        // reported as failed is undone.
        let switched = unsure.filter(|unsure| unsure.snapshot != self.known.head.snapshot);
        let head = switched.unwrap_or_else(|| self.known.head.clone());
        self.known = Known { head, ..found };
        let next = self.known.head.again();
        // A snapshot in the making goes with it: nobody finishes one that another process began.
        self.slot = None;
        let named = self.known.head.snapshot.as_ref().map(|mark| mark.name.as_str());
        let mut left = self.keys.snapshots_but(named);
        left.push(self.keys.records_behind(next.seq));
        self.commit(next, left.into_iter().map(Operation::DeleteRange).collect())?;
        self.claimed = true;
        Ok(())
    }

    fn claim_if_needed(&mut self) -> Result<(), LogError> {
        if self.claimed { Ok(()) } else { self.claim() }
    }

    /// Writes the next head, and this with it.
    fn commit(&mut self, next: Head, mut operations: Vec<Operation>) -> Result<(), LogError> {
        operations.push(Operation::Put(self.keys.head(), next.encode()));
        self.unsure = Some(next.clone());
        match self.gateway.txn(&self.keys.head(), self.known.revision, &operations) {
            Ok(Some(revision)) => {
                self.known = Known { revision, at: revision, head: next };
                self.unsure = None;
                Ok(())
            }
            // Somebody else wrote, or this write was sent twice because its answer was lost.
            Ok(None) => {
                self.claimed = false;
                let found = read_head(&self.gateway, &self.keys)?;
                self.unsure = None;
                if found.head.by != next.by {
                    return Err(self.fenced(&found));
                }
                self.claimed = true;
                self.known = found;
                Ok(())
            }
            Err(error) => {
                self.claimed = false;
                self.slot = None;
                if matches!(error, CallError::Refused(_)) {
                    self.unsure = None;
                }
                Err(self.io("written", error))
            }
        }
    }

    /// Writes a chunk that the head does not name yet.
    fn put_behind(&mut self, chunk: Chunk) -> Result<(), LogError> {
        let put = [Operation::Put(self.keys.record(chunk.last), chunk.bytes)];
        match self.gateway.txn(&self.keys.head(), self.known.revision, &put) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.fenced(&read_head(&self.gateway, &self.keys)?)),
            Err(error) => {
                self.claimed = false;
                Err(self.io("written", error))
            }
        }
    }
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

fn failed(address: &EtcdAddress, doing: &'static str, source: impl Into<Fault>) -> LogError {
    LogError::Io { place: address.to_string(), doing, source: source.into() }
}

fn read_head(gateway: &Gateway, keys: &Keys) -> Result<Known, LogError> {
    let place = || gateway.place().to_owned();
    let found = gateway.get(&keys.head());
    let found = found.map_err(|error| LogError::Io {
        place: place(),
        doing: "read",
        source: error.into(),
    })?;
    let at = found.at;
    let Some((value, revision)) = found.value else {
        return Ok(Known { at, ..Known::default() });
    };
    let corrupt = |source: Fault| LogError::Corrupt { place: place(), source };
    let format = layout::format(&value).map_err(|error| corrupt(error.into()))?;
    if format > FORMAT {
        return Err(LogError::Newer { place: place(), found: format, known: FORMAT });
    }
    let head = Head::decode(&value).map_err(|error| corrupt(error.into()))?;
    Ok(Known { revision, at, head })
}

impl Log for EtcdLog {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], _: bool) -> Result<u64, LogError> {
        if self.known.head.seq != expected {
            return Err(LogError::Fenced { expected, actual: self.known.head.seq });
        }
        if batch.is_empty() && self.unsure.is_none() {
            return Ok(expected);
        }
        self.claim_if_needed()?;
        let mut chunks =
            layout::chunks(expected, batch).map_err(|error| self.io("written", error))?;
        let Some(last) = chunks.pop() else { return Ok(expected) };
        for chunk in chunks {
            self.put_behind(chunk)?;
        }
        let next = Head { seq: last.last, ..self.known.head.again() };
        let put = Operation::Put(self.keys.record(last.last), last.bytes);
        self.commit(next, vec![put])?;
        Ok(self.known.head.seq)
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let found = read_head(&self.gateway, &self.keys)?;
        if found.head.seq < seq {
            return Ok(Vec::new());
        }
        let mut records = Vec::new();
        let mut expected = None;
        let range = self.keys.records(seq, found.head.seq);
        let pages = self.gateway.range(&range, found.at);
        for (key, value) in pages.map_err(|error| self.io("read", error))? {
            let chunk = layout::unpack(&self.keys, &key, &value);
            let chunk = chunk.map_err(|text| self.corrupt(text))?;
            for (at, record) in chunk {
                if expected.is_some_and(|expected| expected != at) {
                    return Err(self.corrupt(format!("record {at} is not the next one")));
                }
                expected = Some(at + 1);
                if at >= seq {
                    records.push((at, record));
                }
            }
        }
        if expected != Some(found.head.seq + 1) {
            let text = format!("the records end before record {}", found.head.seq);
            let at = found.head.snapshot.as_ref().map_or(0, |snapshot| snapshot.at);
            if expected.is_some() || found.head.seq > at {
                return Err(self.corrupt(text));
            }
        }
        Ok(records)
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        let found = read_head(&self.gateway, &self.keys)?;
        let Some(mark) = found.head.snapshot else { return Ok(None) };
        let pages = self.gateway.range(&self.keys.snapshot(&mark.name), found.at);
        let pages = pages.map_err(|error| self.io("read", error))?;
        let bytes: Vec<u8> = pages.iter().flat_map(|(_, page)| page.iter().copied()).collect();
        if pages.len() as u64 != mark.pages || bytes.len() as u64 != mark.bytes {
            let text = format!("its snapshot has {} of {} pages", pages.len(), mark.pages);
            return Err(self.corrupt(text));
        }
        Ok(Some((mark.at, bytes)))
    }

    fn last(&self) -> Result<u64, LogError> {
        Ok(read_head(&self.gateway, &self.keys)?.head.seq)
    }

    fn place(&self) -> String {
        self.gateway.place().to_owned()
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        self.claim_if_needed()?;
        let slot = Arc::new(Slot::default());
        let mark = SnapshotMark { at: seq, name: name(), pages: 0, bytes: 0 };
        let (gateway, keys) = (Arc::clone(&self.gateway), self.keys.clone());
        let successor = EtcdSuccessor::new(gateway, keys, mark, Arc::downgrade(&slot));
        self.slot = Some(slot);
        Ok(Box::new(successor))
    }

    fn succeed(&mut self, expected: u64, _: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        let ready = self.slot.take().and_then(|slot| slot.lock().take());
        let Some(ready) = ready else {
            return Err(self.io("written", "a write failed while the snapshot was written"));
        };
        if self.known.head.seq != expected {
            return Err(LogError::Fenced { expected, actual: self.known.head.seq });
        }
        self.claim_if_needed()?;
        let mut operations = vec![Operation::DeleteRange(self.keys.records_up_to(ready.mark().at))];
        if let Some(before) = &self.known.head.snapshot {
            operations.push(Operation::DeleteRange(self.keys.snapshot(&before.name)));
        }
        let mark = ready.mark().clone();
        let next = Head { snapshot: Some(mark), ..self.known.head.again() };
        let written = self.commit(next, operations);
        // Where nobody knows whether the head names them, the pages stay.
        if written.is_ok() || self.unsure.is_some() {
            ready.keep();
        }
        written?;
        Ok(Box::new(()))
    }

    fn restore(
        &mut self,
        snapshot: Option<(u64, &[u8])>,
        records: &[Vec<u8>],
    ) -> Result<(), LogError> {
        self.claim_if_needed()?;
        let at = snapshot.map_or(0, |(at, _)| at);
        let chunks = layout::chunks(at, records).map_err(|error| self.io("written", error))?;
        let mut successor = self.successor(at)?;
        for piece in snapshot.map_or(&[][..], |(_, bytes)| bytes).chunks(PAGE_BYTES) {
            successor.put(piece)?;
        }
        successor.ready()?;
        for chunk in chunks {
            self.put_behind(chunk)?;
        }
        let ready = self.slot.take().and_then(|slot| slot.lock().take());
        let ready = ready.filter(|_| snapshot.is_some());
        let mark = ready.as_ref().map(|ready| ready.mark().clone());
        let seq = at + records.len() as u64;
        let written =
            self.commit(Head { seq, snapshot: mark, ..self.known.head.again() }, Vec::new());
        if let Some(ready) = ready.filter(|_| written.is_ok() || self.unsure.is_some()) {
            ready.keep();
        }
        written
    }
}
