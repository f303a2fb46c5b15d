//! A log in memory, for virtual time. Its handles share it, so it survives a simulated crash of the
//! service.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::{Contents, Log, LogError, Predecessor, Successor};

/// A log in memory; clones share their records.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    inner: Arc<Mutex<Inner>>,
    /// What it is a copy of, for people.
    of: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Inner {
    records: BTreeMap<u64, Vec<u8>>,
    snapshot: Option<(u64, Vec<u8>)>,
    last: u64,
    durable: u64,
    /// The successor that is ready to take this log's place.
    ready: Option<ReadySuccessor>,
}

#[derive(Debug, Clone)]
struct ReadySuccessor {
    snapshot: (u64, Vec<u8>),
    /// The records after the snapshot.
    records: BTreeMap<u64, Vec<u8>>,
}

impl Inner {
    fn fill(&mut self, snapshot: Option<(u64, Vec<u8>)>, records: Vec<Vec<u8>>, last: u64) {
        let from = last - records.len() as u64;
        let records = (from + 1..).zip(records).collect();
        *self = Self { records, snapshot, last, durable: last, ready: None };
    }
}

impl MemoryLog {
    /// An independent copy, such as a backup.
    pub fn copy(&self) -> Self {
        let inner = self.inner.lock().clone();
        Self { inner: Arc::new(Mutex::new(inner)), of: self.of.clone() }
    }

    /// A log with the contents of another one.
    pub(super) fn of(contents: Contents, place: String) -> Self {
        let last = contents.last();
        let log = Self { of: Some(place), ..Self::default() };
        log.lock().fill(contents.snapshot, contents.records, last);
        log
    }

    pub fn new() -> Self {
        Self::default()
    }

    /// Drops what was not durable, as a crash of the machine does.
    pub fn crash(&self) {
        let mut inner = self.lock();
        let durable = inner.durable;
        inner.records.split_off(&(durable + 1));
        inner.last = durable;
        inner.ready = None;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Log for MemoryLog {
    fn append(&mut self, expected: u64, batch: &[Vec<u8>], durable: bool) -> Result<u64, LogError> {
        let mut inner = self.lock();
        if inner.last != expected {
            return Err(LogError::Fenced { expected, actual: inner.last });
        }
        for record in batch {
            inner.last += 1;
            let seq = inner.last;
            inner.records.insert(seq, record.clone());
        }
        if durable {
            inner.durable = inner.last;
        }
        Ok(inner.last)
    }

    fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
        Ok(self.lock().records.range(seq..).map(|(seq, record)| (*seq, record.clone())).collect())
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
        Ok(self.lock().snapshot.clone())
    }

    fn place(&self) -> String {
        self.of.clone().unwrap_or_else(|| "memory".to_owned())
    }

    fn restore(
        &mut self,
        snapshot: Option<(u64, &[u8])>,
        records: &[Vec<u8>],
    ) -> Result<(), LogError> {
        let last = snapshot.map_or(0, |(at, _)| at) + records.len() as u64;
        let snapshot = snapshot.map(|(at, bytes)| (at, bytes.to_vec()));
        self.lock().fill(snapshot, records.to_vec(), last);
        Ok(())
    }

    fn successor(&mut self, seq: u64) -> Result<Box<dyn Successor>, LogError> {
        self.lock().ready = None;
        let (snapshot, records) = (Vec::new(), Vec::new());
        Ok(Box::new(MemorySuccessor { log: self.clone(), seq, snapshot, records }))
    }

    fn succeed(&mut self, expected: u64, behind: &[Vec<u8>]) -> Result<Predecessor, LogError> {
        let mut inner = self.lock();
        if inner.last != expected {
            return Err(LogError::Fenced { expected, actual: inner.last });
        }
        let Some(ReadySuccessor { snapshot, mut records }) = inner.ready.take() else {
            return Err(LogError::Io {
                place: self.place(),
                doing: "written",
                source: "no successor is ready".into(),
            });
        };
        let from = expected - behind.len() as u64;
        records.extend((from + 1..).zip(behind.iter().cloned()));
        inner.records = records;
        inner.snapshot = Some(snapshot);
        inner.durable = inner.last;
        Ok(Box::new(()))
    }
}

struct MemorySuccessor {
    log: MemoryLog,
    seq: u64,
    snapshot: Vec<u8>,
    records: Vec<Vec<u8>>,
}

impl Successor for MemorySuccessor {
    fn put(&mut self, bytes: &[u8]) -> Result<(), LogError> {
        self.snapshot.extend_from_slice(bytes);
        Ok(())
    }

    fn append(&mut self, records: &[Vec<u8>]) -> Result<(), LogError> {
        self.records.extend_from_slice(records);
        Ok(())
    }

    fn ready(self: Box<Self>) -> Result<(), LogError> {
        let records = (self.seq + 1..).zip(self.records).collect();
        self.log.lock().ready =
            Some(ReadySuccessor { snapshot: (self.seq, self.snapshot), records });
        Ok(())
    }
}
