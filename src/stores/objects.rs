//! A journal in an object store: S3, stores like it, and Google Cloud Storage.
//!
//! ```text
//! <prefix>/log/<term>-<slot>           an entry: one write, and what the journal is after it
//! <prefix>/parts/<term>-<name>/<n>     parts of a snapshot, and the records of large writes
//! <prefix>/beside/…, register/…        what lies beside the journal
//! ```
//!
//! - The last entry is the journal. It holds the newest records, and names the snapshot and the
//!   objects with the records in between. So a start lists the entries, and reads a few objects.
//! - An append is one request: the next entry is put where no object may be (`If-None-Match: *`). Of
//!   two writers the one that puts second finds the slot taken, and is fenced for good. One object
//!   that every append replaces would fence as well, but GCS and R2 take one write a second of it.
//! - A slot that was deleted could be written again, and its writer would believe that it goes on. So
//!   a new writer begins with an entry of its own, which ends the term of the one before. That entry
//!   is a seal: it stays for [`SEAL_DAYS`], since it is just where the other one writes next. Behind its
//!   first entry a writer looks whether later ones are there: then it knew an old journal, and is
//!   fenced. It looks again behind an entry that took [`LOOK_AGAIN`], so that a machine that was
//!   stopped for longer than a seal stays trusts nothing.
//! - An append whose answer was lost is sent again, and recognised by the name in it. Where no answer
//!   comes at all, the next write first puts a seal in its slot: then the append can never happen. Where
//!   it did happen, the seal behind it says what the journal is without it.
//! - Entries that the last one does not need are deleted, many at a time. Each writer deletes only
//!   what no entry of its own or a later one can name: entries before its own, parts of terms before.
//!   A failure leaves litter, which goes when the next writer begins.
//! - A snapshot's parts are written beside the log. The switch is an entry that names them.
//! - An append is as durable as the store makes it: S3 and GCS answer when they have the object for
//!   good. versitygw over a file system does not sync.
//!
//! Beside it: `address.rs`, `layout.rs` (names, [`Entry`]), `gateway.rs` (requests), `client.rs` (HTTP),
//! `probe.rs` (whether a store keeps conditions), `successor.rs`, `litter.rs`, `beside.rs`.
//!
//! Needs conditional writes and lists that know every write. S3 has the latter since 2020 and the
//! former since 2024 (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html>).
//! Tried against versitygw 1.8.0. Not tried against the real services of Amazon and Google.

mod address;
mod beside;
mod client;
mod gateway;
mod layout;
mod litter;
mod probe;
mod successor;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use drover_journal::{Log, LogError, Predecessor, Successor};

use super::nearby;
use address::OWN_NAMES;
pub use address::{ObjectAddress, ObjectAddressError};
pub use beside::{ObjectRegister, ObjectVault};
pub(crate) use gateway::Gateway;
use gateway::{CallError, Created};
use layout::{Chunk, Entry, LOG, NoEntry, PART_BYTES, Position, SnapshotMark, TAIL_BYTES};
use litter::Litter;
use successor::{ObjectSuccessor, Slot};

/// How long the entry stays that ended another writer's term, by the store's clock.
const SEAL_DAYS: i64 = 30;
/// A writer whose last write is older than this looks whether somebody wrote since.
const LOOK_AGAIN: Duration = Duration::from_secs(60 * 60);
/// How many entries are deleted at once.
const DELETE_AT_ONCE: usize = 200;
/// How often a read begins again because what it wanted to read was replaced.
const READS: usize = 5;

/// An entry as it was last read or written.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Where it lies; none where the store has nothing.
    at: Option<Position>,
    entry: Entry,
}

/// A log in an object store.
pub struct ObjectLog {
    gateway: Arc<Gateway>,
    /// What the log is for its writer.
    known: Known,
    /// Where the next entry goes.
    next: Position,
    /// Entries of which one may be where the next one goes, although its write was reported as failed.
    unsure: Vec<Entry>,
    /// Whether the last entry is this writer's.
    claimed: bool,
    /// Entries that no later one needs.
    superseded: Vec<String>,
    /// Where a successor in the making is left when it is ready.
    slot: Option<Arc<Slot>>,
    /// When this writer was last known to be the only one, by two clocks.
    sure: (Instant, SystemTime),
}

type Fault = Box<dyn std::error::Error + Send + Sync>;

impl ObjectLog {
    /// Opens the log to write to it; it is empty where nothing is there. Nothing of it is written.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Corrupt`] or [`LogError::Newer`]; also where the store ignores
    /// the conditions of writes.
    pub fn open(address: &ObjectAddress) -> Result<Self, LogError> {
        let log = Self::begin(address)?;
        probe::probe(&log.gateway).map_err(|error| log.io("opened", error))?;
        Ok(log)
    }

    /// Opens the log to look at it. Nothing is written.
    ///
    /// # Errors
    /// As [`ObjectLog::open`]; also where nothing is there.
    pub fn look(address: &ObjectAddress) -> Result<Self, LogError> {
        let log = Self::begin(address)?;
        if log.known.at.is_none() {
            let text = log.nothing_at(address.prefix());
            return Err(log.io("opened", text));
        }
        Ok(log)
    }

    /// Says that nothing is at a prefix. What cannot be read is not named.
    fn nothing_at(&self, prefix: &str) -> String {
        let some = |prefix: &str, most| self.gateway.some_beneath(prefix, most).unwrap_or_default();
        let names = some(prefix, nearby::NAMES_MAX);
        nearby::nothing_at(prefix, &names, &OWN_NAMES, |place| {
            !some(&format!("{place}/{LOG}"), 1).is_empty()
        })
    }

    fn begin(address: &ObjectAddress) -> Result<Self, LogError> {
        let gateway = Gateway::new(address);
        let failed = |source| {
            let place = address.to_string();
            LogError::Io { place, doing: "opened", source }
        };
        Self::over(Arc::new(gateway.map_err(failed)?))
    }

    fn over(gateway: Arc<Gateway>) -> Result<Self, LogError> {
        let known = newest(&gateway, None)?.unwrap_or_default();
        let next = known.at.map_or(Position::FIRST, |at| at.in_term(known.entry.head.term));
        Ok(Self {
            gateway,
            known,
            next,
            unsure: Vec::new(),
            claimed: false,
            superseded: Vec::new(),
            slot: None,
            sure: (Instant::now(), SystemTime::now()),
        })
    }

    fn io(&self, doing: &'static str, source: impl Into<Fault>) -> LogError {
        io(&self.gateway, doing, source)
    }

    fn corrupt(&self, text: String) -> LogError {
        LogError::Corrupt { place: self.place(), source: text.into() }
    }

    fn seq(&self) -> u64 {
        self.known.entry.head.seq
    }

    /// Somebody else wrote.
    fn fenced(&mut self) -> LogError {
        (self.claimed, self.slot) = (false, None);
        let found = newest(&self.gateway, self.known.at).ok().flatten();
        let actual = found.map_or(self.seq(), |found| found.entry.head.seq);
        LogError::Fenced { expected: self.seq(), actual }
    }

    /// Begins a term: what another writer, or this one, has under way can never happen then.
    ///
    /// # Errors
    /// [`LogError::Fenced`] when somebody else wrote since.
    fn claim(&mut self) -> Result<(), LogError> {
        // Nobody finishes a snapshot that was started before a failure.
        self.slot = None;
        while !self.settle()? {
            let mut entry = self.known.entry.again(self.known.at);
            entry.head.term = self.next.term + 1;
            match self.put(entry) {
                Ok(()) => break,
                // What is in its slot may be a write of this one that came late.
                Err(LogError::Fenced { .. }) if !self.unsure.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        self.claimed = true;
        self.superseded.clear();
        litter::clean(&self.gateway, &self.known);
        Ok(())
    }

    fn claim_if_needed(&mut self) -> Result<(), LogError> {
        if self.claimed { Ok(()) } else { self.claim() }
    }

    /// Finds out whether a write happened that was reported as failed. Returns whether it began a term.
    fn settle(&mut self) -> Result<bool, LogError> {
        if self.unsure.is_empty() {
            return Ok(false);
        }
        let at = self.next;
        let found = self.gateway.get(&at.name()).map_err(|error| self.io("read", error))?;
        // Where the slot is free, the next entry takes it.
        let Some((bytes, _)) = found else { return Ok(false) };
        let Some(entry) = self.unsure.iter().find(|entry| entry.encode() == bytes).cloned() else {
            return Err(self.fenced());
        };
        // What adds no record stands; an append is undone by what comes behind it.
        if entry.head.seq != self.seq() {
            (self.next, self.unsure) = (at.next(), Vec::new());
            return Ok(false);
        }
        let begins = entry.head.term != at.term;
        if begins {
            self.look_behind(at)?;
        }
        self.adopt(at, entry);
        Ok(begins)
    }

    /// Writes the next entry. What it names is there.
    fn put(&mut self, entry: Entry) -> Result<(), LogError> {
        let at = self.next;
        match self.gateway.create(&at.name(), entry.encode()) {
            Ok(Created::Done(_)) => {}
            Ok(Created::Taken) => return Err(self.fenced()),
            Err(error) => {
                self.slot = None;
                if matches!(error, CallError::Unknown(_)) {
                    self.claimed = false;
                    self.unsure.push(entry);
                }
                return Err(self.io("written", error));
            }
        }
        if entry.head.term != at.term || self.was_sure_long_ago() {
            // Until somebody has looked, nobody knows whether the entry counts.
            self.unsure.push(entry.clone());
            self.look_behind(at).inspect_err(|_| (self.claimed, self.slot) = (false, None))?;
        }
        self.adopt(at, entry);
        if self.superseded.len() >= DELETE_AT_ONCE {
            self.gateway.delete_soon(&std::mem::take(&mut self.superseded));
        }
        Ok(())
    }

    fn was_sure_long_ago(&self) -> bool {
        let (monotonic, wall) = self.sure;
        let is_long = |spent: Duration| spent > LOOK_AGAIN;
        is_long(monotonic.elapsed()) || wall.elapsed().is_ok_and(is_long)
    }

    /// Makes sure that no entry lies behind one: it would show that others went on long ago.
    fn look_behind(&mut self, at: Position) -> Result<(), LogError> {
        let behind = self.gateway.list(LOG, Some(&at.name()));
        if behind.map_err(|error| self.io("written", error))?.is_empty() {
            return Ok(());
        }
        Err(self.fenced())
    }

    fn adopt(&mut self, at: Position, entry: Entry) {
        let before = std::mem::replace(&mut self.known, Known { at: Some(at), entry });
        // An entry that ended a term stays.
        let old = before.at.filter(|at| at.term == before.entry.head.term).map(Position::name);
        let chunks = &self.known.entry.head.chunks;
        self.superseded.extend(old.filter(|old| chunks.iter().all(|chunk| chunk.name != *old)));
        self.next = at.in_term(self.known.entry.head.term);
        self.unsure.clear();
        self.sure = (Instant::now(), SystemTime::now());
    }

    /// The journal with these records behind its last one. Where they are many, they are written in
    /// parts first.
    fn with(&self, mut entry: Entry, batch: &[Vec<u8>]) -> Result<Entry, LogError> {
        let (base, mut seq) = (entry.head.seq, entry.head.seq);
        let packed = layout::pack(base, batch).map_err(|error| self.io("written", error))?;
        if packed.len() + entry.tail.len() > TAIL_BYTES {
            entry.leave_tail(self.known.at, self.known.entry.head.term);
        }
        if packed.len() <= PART_BYTES {
            entry.tail.extend(packed);
            entry.head.seq = base + batch.len() as u64;
            return Ok(entry);
        }
        let (folder, mut rest, mut number) = (layout::parts_folder(self.next.term), batch, 0);
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |record: &&Vec<u8>| {
                bytes += record.len();
                bytes <= PART_BYTES
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (fitting, behind) = rest.split_at(count);
            number += 1;
            let (name, last) = (layout::part(&folder, number), seq + count as u64);
            let packed = layout::pack(seq, fitting).map_err(|error| self.io("written", error))?;
            let put = self.gateway.overwrite(&name, packed.into());
            put.map_err(|error| self.io("written", error))?;
            entry.head.chunks.push(Chunk { name, base: seq, last, seal: false });
            (seq, rest) = (last, behind);
        }
        (entry.head.base, entry.head.seq) = (seq, seq);
        Ok(entry)
    }

    /// The last entry as it is now.
    fn newest(&self) -> Result<Known, LogError> {
        Ok(newest(&self.gateway, self.known.at)?.unwrap_or_else(|| self.known.clone()))
    }

    /// Objects that an entry names. Where one is not there, the entry may have been replaced: `found`
    /// becomes the last one then, and nothing is returned.
    fn named(
        &self,
        found: &mut Known,
        names: &[String],
    ) -> Result<Option<Vec<bytes::Bytes>>, LogError> {
        let read = self.gateway.get_all(names).map_err(|error| self.io("read", error))?;
        let missing = names.iter().zip(&read).find(|(_, read)| read.is_none());
        let Some((missing, _)) = missing else {
            return Ok(Some(read.into_iter().flatten().collect()));
        };
        let newest = self.newest()?;
        if newest.at == found.at {
            return Err(self.corrupt(format!("the object `{missing}` is missing")));
        }
        *found = newest;
        Ok(None)
    }

    fn replaced(&self) -> LogError {
        self.io("read", "it was replaced while it was read")
    }
}

fn io(gateway: &Gateway, doing: &'static str, source: impl Into<Fault>) -> LogError {
    LogError::Io { place: gateway.place().to_owned(), doing, source: source.into() }
}

/// The last entry behind a position, where there is one.
fn newest(gateway: &Gateway, after: Option<Position>) -> Result<Option<Known>, LogError> {
    let corrupt = |source: Fault| LogError::Corrupt { place: gateway.place().to_owned(), source };
    let after = after.map(Position::name);
    for _ in 0..READS {
        let listed = gateway.list(LOG, after.as_deref());
        let Some((name, _)) = listed.map_err(|error| io(gateway, "read", error))?.pop() else {
            return Ok(None);
        };
        let at = Position::of(&name);
        let at = at.ok_or_else(|| corrupt(format!("`{name}` is no entry of a journal").into()))?;
        let found = gateway.get(&name).map_err(|error| io(gateway, "read", error))?;
        // One that is gone was replaced meanwhile.
        let Some((bytes, _)) = found else { continue };
        let entry = Entry::decode(&bytes).map_err(|error| match error {
            NoEntry::Newer(found) => {
                let place = gateway.place().to_owned();
                LogError::Newer { place, found, known: layout::FORMAT }
            }
            NoEntry::NoHead | NoEntry::Head(_) => corrupt(error.into()),
        })?;
        return Ok(Some(Known { at: Some(at), entry }));
    }
    Err(io(gateway, "read", "it was replaced while it was read"))
}

/// The numbered records of an object that an entry names.
fn records(chunk: &Chunk, bytes: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    if Position::of(&chunk.name).is_none() {
        return layout::unpack(chunk.base, chunk.last, bytes);
    }
    let entry = Entry::decode(bytes).ok()?;
    let is_the_one = entry.head.base == chunk.base && entry.head.seq == chunk.last;
    is_the_one.then(|| layout::unpack(chunk.base, chunk.last, &entry.tail)).flatten()
}

impl Log for ObjectLog {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], _: bool) -> Result<u64, LogError> {
        if self.seq() != expected {
            return Err(LogError::Fenced { expected, actual: self.seq() });
        }
        if batch.is_empty() && self.unsure.is_empty() {
            return Ok(expected);
        }
        self.claim_if_needed()?;
        if batch.is_empty() {
            return Ok(expected);
        }
        let entry = self.with(self.known.entry.again(self.known.at), batch)?;
        self.put(entry)?;
        Ok(self.seq())
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        let mut found = self.newest()?;
        for _ in 0..READS {
            let head = &found.entry.head;
            let chunks: Vec<_> =
                head.chunks.iter().filter(|chunk| chunk.last >= seq).cloned().collect();
            let (mut last, end) = (chunks.first().map_or(head.base, |first| first.base), head.seq);
            let tail = layout::unpack(head.base, head.seq, &found.entry.tail);
            let tail = tail.ok_or_else(|| self.corrupt("its last entry is cut".to_owned()))?;
            let names: Vec<_> = chunks.iter().map(|chunk| chunk.name.clone()).collect();
            let Some(objects) = self.named(&mut found, &names)? else { continue };
            let mut all = Vec::new();
            for (chunk, bytes) in chunks.iter().zip(objects) {
                let read = records(chunk, &bytes).filter(|_| chunk.base == last);
                let text = || format!("the object `{}` has not its records", chunk.name);
                all.extend(read.ok_or_else(|| self.corrupt(text()))?);
                last = chunk.last;
            }
            if last + tail.len() as u64 != end {
                return Err(self.corrupt(format!("the records end before record {end}")));
            }
            all.extend(tail);
            all.retain(|(number, _)| *number >= seq);
            return Ok(all);
        }
        Err(self.replaced())
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        let mut found = self.newest()?;
        for _ in 0..READS {
            let Some(mark) = found.entry.head.snapshot.clone() else { return Ok(None) };
            let Some(parts) = self.named(&mut found, &mark.names())? else { continue };
            let bytes = parts.concat();
            if bytes.len() as u64 != mark.bytes {
                let text = format!("its snapshot has {} of {} bytes", bytes.len(), mark.bytes);
                return Err(self.corrupt(text));
            }
            return Ok(Some((mark.at, bytes)));
        }
        Err(self.replaced())
    }

    fn place(&self) -> String {
        self.gateway.place().to_owned()
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        self.claim_if_needed()?;
        let slot = Arc::new(Slot::default());
        let folder = layout::parts_folder(self.next.term);
        let mark = SnapshotMark { at: seq, folder, parts: 0, bytes: 0 };
        let gateway = Arc::clone(&self.gateway);
        let successor = ObjectSuccessor::new(gateway, mark, Arc::downgrade(&slot));
        self.slot = Some(slot);
        Ok(Box::new(successor))
    }

    fn succeed(&mut self, expected: u64, _: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        let ready = self.slot.take().and_then(|slot| slot.lock().take());
        let Some(ready) = ready.filter(|_| self.claimed) else {
            return Err(self.io("written", "a write failed while the snapshot was written"));
        };
        if self.seq() != expected {
            return Err(LogError::Fenced { expected, actual: self.seq() });
        }
        let before = self.known.entry.head.clone();
        let mut entry = self.known.entry.again(self.known.at);
        entry.forget_up_to(ready.mark().at);
        entry.head.snapshot = Some(ready.mark().clone());
        let written = self.put(entry);
        // Where nobody knows whether an entry names them, the parts stay.
        if written.is_ok() || !self.unsure.is_empty() {
            ready.keep();
        }
        written?;
        let kept = &self.known.entry.head.chunks;
        let mut names = std::mem::take(&mut self.superseded);
        names.extend(before.snapshot.iter().flat_map(SnapshotMark::names));
        let old = before.chunks.into_iter().filter(|chunk| !chunk.seal && !kept.contains(chunk));
        names.extend(old.map(|chunk| chunk.name));
        Ok(Box::new(Litter::new(Arc::clone(&self.gateway), names)))
    }

    fn restore(
        &mut self,
        snapshot: Option<(u64, &[u8])>,
        records: &[Vec<u8>],
    ) -> Result<(), LogError> {
        if self.seq() != 0 {
            return Err(LogError::Fenced { expected: 0, actual: self.seq() });
        }
        self.claim_if_needed()?;
        let mut entry = self.known.entry.again(self.known.at);
        let mut ready = None;
        if let Some((at, bytes)) = snapshot {
            let mut successor = self.successor(at)?;
            successor.put(bytes)?;
            successor.ready()?;
            ready = self.slot.take().and_then(|slot| slot.lock().take());
            entry.head.snapshot = ready.as_ref().map(|ready| ready.mark().clone());
            (entry.head.base, entry.head.seq) = (at, at);
        }
        let entry = self.with(entry, records)?;
        let written = self.put(entry);
        if let Some(ready) = ready.filter(|_| written.is_ok() || !self.unsure.is_empty()) {
            ready.keep();
        }
        written
    }
}
