//! A file that is only read, with everything that is written to it kept in memory.
//!
//! The journal is opened on an overlay first: redb repairs a file while it opens it, and a file
//! that turns out to be damaged must stay as it was. The overlay takes memory only for the blocks
//! that redb repairs.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};

use parking_lot::Mutex;
use redb::StorageBackend;

/// The size of the blocks that are kept in memory.
const BLOCK: u64 = 4096;

/// The file and what was written over it.
#[derive(Debug)]
pub(super) struct Overlay<F> {
    file: F,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    length: u64,
    /// The part of the file that still counts: what lies beyond it was cut off once.
    counts: u64,
    written: BTreeMap<u64, Vec<u8>>,
}

impl<F: StorageBackend> Overlay<F> {
    pub(super) fn new(file: F) -> Result<Self, Error> {
        let length = file.len()?;
        let inner = Mutex::new(Inner { length, counts: length, written: BTreeMap::new() });
        Ok(Self { file, inner })
    }

    /// The present bytes of one block.
    fn block(&self, inner: &Inner, number: u64) -> Result<Vec<u8>, Error> {
        if let Some(block) = inner.written.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; usize::try_from(BLOCK).unwrap_or_default()];
        let from = number * BLOCK;
        let there = inner.counts.saturating_sub(from).min(BLOCK);
        let there = usize::try_from(there).unwrap_or_default();
        self.file.read(from, &mut block[..there])?;
        Ok(block)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> Result<T, Error>) -> Result<T, Error> {
        act(&mut self.inner.lock())
    }
}

/// The parts of a byte range, block by block: block number, offset in the block, offset in the
/// range, length.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let block = usize::try_from(BLOCK).unwrap_or_default();
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % BLOCK).unwrap_or_default();
        let many = (length - done).min(block - within);
        let part = (at / BLOCK, within, done, many);
        done += many;
        (many > 0).then_some(part)
    })
}

impl<F: StorageBackend> StorageBackend for Overlay<F> {
    fn len(&self) -> Result<u64, Error> {
        self.with(|inner| Ok(inner.length))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.with(|inner| {
            if offset.saturating_add(out.len() as u64) > inner.length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            for (number, within, at, many) in parts(offset, out.len()) {
                let block = self.block(inner, number)?;
                out[at..at + many].copy_from_slice(&block[within..within + many]);
            }
            Ok(())
        })
    }

    fn set_len(&self, length: u64) -> Result<(), Error> {
        self.with(|inner| {
            if length < inner.length {
                inner.counts = inner.counts.min(length);
                inner.written.retain(|number, _| number * BLOCK < length);
                let within = usize::try_from(length % BLOCK).unwrap_or_default();
                if let Some(block) = inner.written.get_mut(&(length / BLOCK)) {
                    block[within..].fill(0);
                }
            }
            inner.length = length;
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.with(|inner| {
            inner.length = inner.length.max(offset + data.len() as u64);
            for (number, within, at, many) in parts(offset, data.len()) {
                let mut block = self.block(inner, number)?;
                block[within..within + many].copy_from_slice(&data[at..at + many]);
                inner.written.insert(number, block);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may end at the first surprise")]

    use std::fs::File;

    use proptest::prelude::*;
    use redb::backends::FileBackend;

    use super::*;

    proptest! {
        // Invariant: the overlay reads as a file would that received the same writes, and the file
        // itself does not change.
        #[test]
        fn it_reads_as_a_file_of_its_own_would(
            first in prop::collection::vec(any::<u8>(), 0..20_000),
            steps in prop::collection::vec((0u8..3, 0u64..20_000, 1usize..9_000, any::<u8>()), 0..12),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("file");
            std::fs::write(&path, &first).unwrap();
            let overlay = Overlay::new(FileBackend::new(File::open(&path).unwrap()).unwrap()).unwrap();
            let mut model = first.clone();
            for (step, offset, many, byte) in steps {
                let at = usize::try_from(offset).unwrap();
                match step {
                    0 => {
                        overlay.write(offset, &vec![byte; many]).unwrap();
                        model.resize(model.len().max(at + many), 0);
                        model[at..at + many].fill(byte);
                    }
                    1 => {
                        overlay.set_len(offset).unwrap();
                        model.resize(at, 0);
                    }
                    _ => {
                        let mut out = vec![0; many];
                        let read = overlay.read(offset, &mut out);
                        prop_assert_eq!(read.is_ok(), at + many <= model.len());
                        if read.is_ok() {
                            prop_assert_eq!(&out[..], &model[at..at + many]);
                        }
                    }
                }
                prop_assert_eq!(overlay.len().unwrap(), model.len() as u64);
            }
            let mut all = vec![0; model.len()];
            overlay.read(0, &mut all).unwrap();
            prop_assert_eq!(all, model);
            prop_assert_eq!(std::fs::read(&path).unwrap(), first);
        }
    }
}
