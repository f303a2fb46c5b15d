//! The log of virtual time: in memory, shared by handles so that it survives a simulated crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Log, LogError};

/// A log in memory; clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryLog {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Clone, Default)]
struct Inner {
    records: BTreeMap<u64, Vec<u8>>,
    snapshot: Option<(u64, Vec<u8>)>,
    last: u64,
    durable: u64,
}

impl MemoryLog {
    /// A copy that goes its own way from here on, as a backup does.
    pub fn copy(&self) -> Self {
        let inner = self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets what was not durable, as a crash of the machine does.
    pub fn crash(&self) {
        let mut inner = self.lock();
        let durable = inner.durable;
        inner.records.split_off(&(durable + 1));
        inner.last = durable;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn compact(&mut self, seq: u64, snapshot: &[u8]) -> Result<(), LogError> {
        let mut inner = self.lock();
        inner.records = inner.records.split_off(&(seq + 1));
        inner.snapshot = Some((seq, snapshot.to_vec()));
        inner.durable = inner.last;
        Ok(())
    }
}
