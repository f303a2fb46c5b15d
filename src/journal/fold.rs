//! Folding: turns the journal's records into a `JournalState`, the state that they add up to.
//!
//! At a start, [`fold`] reads the whole log. While the service runs, [`Fold`] applies every record
//! that was written to a journal state of its own, on a thread beside the writer, and writes the log's
//! successor from that journal state when a snapshot is due. So no append waits for a snapshot.
//!
//! A failure to make a successor goes back to the writer as text; the log goes on as it is. When
//! the thread panics, the next message to it fails with [`FoldEnded`], and the writer stops.

use std::io;
use std::sync::mpsc;

use causes::chain;
use drover_model::journal_state::JournalState;
use drover_model::record::{RECORD_VERSION, Record};

use super::strict::{NotRead, read};
use super::{Log, LogError, Predecessor, Successor};

/// The size of the pieces in which a snapshot is written. The embedded log keeps each value in a
/// page whose size is a power of two: with its key and the page's header, a piece fills a page of
/// 256 KiB.
pub(super) const PIECE_BYTES: usize = 255 * 1024;

/// The number of records that are copied into the successor at once.
const RECORDS_COPIED_AT_ONCE: usize = 4096;
/// When fewer records than this are missing, they are left to the switch, during which no append
/// can be written.
const RECORDS_LEFT_TO_SWITCH: usize = 256;
/// How many times records are copied at most: appends may be faster than the copy.
const COPY_ROUNDS_MAX: usize = 64;

/// The contents of a log.
#[derive(Clone)]
pub(super) struct Folded {
    pub(super) journal_state: JournalState,
    /// The last record that the snapshot includes; zero without a snapshot.
    pub(super) snapshot_at: u64,
    pub(super) snapshot_bytes: u64,
    /// The size of the records after the snapshot.
    pub(super) record_bytes: u64,
}

/// Reads a log and folds it.
///
/// # Errors
/// When the log cannot be read, or has a record that does not parse, is out of sequence, or comes
/// from a newer drover.
pub(super) fn fold(log: &(impl Log + ?Sized)) -> Result<Folded, LogError> {
    fold_each(log, |_, _| ())
}

/// The same, with a look at each record and its bytes.
///
/// # Errors
/// As [`fold`].
pub(super) fn fold_each(
    log: &(impl Log + ?Sized),
    look: impl FnMut(&Record, &[u8]),
) -> Result<Folded, LogError> {
    let (journal_state, snapshot_bytes) = match log.snapshot()? {
        Some((_, bytes)) => {
            let journal_state = read::<JournalState>(&bytes)
                .map_err(|fault| fault.at(log.place(), "the snapshot".into()))?;
            (journal_state, bytes.len() as u64)
        }
        None => (JournalState::default(), 0),
    };
    let snapshot_at = journal_state.seq;
    let mut folded = Folded { journal_state, snapshot_at, snapshot_bytes, record_bytes: 0 };
    let records = log.read_from(snapshot_at + 1)?;
    folded.apply(&log.place(), &records, look)?;
    Ok(folded)
}

impl Folded {
    /// Applies the records that follow.
    ///
    /// # Errors
    /// As [`fold`].
    pub(super) fn apply(
        &mut self,
        place: &str,
        records: &[(u64, Vec<u8>)],
        mut look: impl FnMut(&Record, &[u8]),
    ) -> Result<(), LogError> {
        for (seq, bytes) in records {
            let not_read = |fault: NotRead| fault.at(place.to_owned(), format!("record {seq}"));
            let record = read::<Record>(bytes);
            // A newer record may fail to parse as one of ours, so the version is read alone.
            let version = match &record {
                Ok(record) => record.version,
                Err(_) => {
                    let version = serde_json::from_slice::<RecordVersion>(bytes);
                    version.map_err(|error| not_read(error.into()))?.version
                }
            };
            if version > RECORD_VERSION {
                return Err(LogError::Newer {
                    place: place.to_owned(),
                    found: u64::from(version),
                    known: u64::from(RECORD_VERSION),
                });
            }
            let record = record.map_err(not_read)?;
            let last = self.journal_state.seq;
            if record.seq != *seq || *seq != last + 1 {
                let text =
                    format!("record {seq} follows record {last} and has sequence {}", record.seq);
                return Err(LogError::Corrupt { place: place.to_owned(), source: text.into() });
            }
            self.journal_state.apply(&record);
            look(&record, bytes);
            self.record_bytes += bytes.len() as u64;
        }
        Ok(())
    }
}

#[derive(serde::Deserialize)]
struct RecordVersion {
    version: u32,
}

/// A successor that is ready to take the log's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    /// Its last record.
    pub(super) seq: u64,
    /// The size of its snapshot.
    pub(super) bytes: u64,
}

/// A ready successor, or why there is none.
pub(super) type SuccessorResult = Result<Ready, String>;

/// Receives the outcome of making a successor.
pub(super) type OnSuccessor = Box<dyn FnOnce(SuccessorResult) + Send>;

/// What the fold thread receives.
pub(super) enum FoldMessage {
    /// These records were written.
    Wrote(Vec<Record>),
    /// A snapshot is due: fill this successor.
    Snapshot(Box<dyn Successor>, OnSuccessor),
    /// Close the log from before the last switch, which takes time.
    Close(Predecessor),
}

/// The fold thread has ended, which happens only after a panic.
#[derive(Debug)]
pub(super) struct FoldEnded;

/// The journal state that snapshots are made of.
pub(super) enum Fold {
    /// On a thread of its own, for real time.
    Threaded(mpsc::Sender<FoldMessage>),
    /// Within the call, for virtual time.
    Inline(Box<JournalState>),
}

impl Fold {
    /// Starts the fold thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn threaded(journal_state: JournalState) -> io::Result<Self> {
        let (sender, messages) = mpsc::channel();
        let serve = move || serve(journal_state, &messages);
        std::thread::Builder::new().name("journal-fold".into()).spawn(serve)?;
        Ok(Self::Threaded(sender))
    }

    /// Applies records that were written.
    pub(super) fn record(&mut self, records: Vec<Record>) -> Result<(), FoldEnded> {
        match self {
            Self::Threaded(messages) => {
                messages.send(FoldMessage::Wrote(records)).map_err(|_| FoldEnded)
            }
            Self::Inline(journal_state) => {
                records.iter().for_each(|record| journal_state.apply(record));
                Ok(())
            }
        }
    }

    /// Fills a successor with everything applied so far. The threaded fold answers through `done`;
    /// the inline one returns the outcome and does not call `done`.
    pub(super) fn snapshot(
        &mut self,
        successor: Box<dyn Successor>,
        done: OnSuccessor,
    ) -> Result<Option<SuccessorResult>, FoldEnded> {
        match self {
            Self::Threaded(messages) => {
                messages.send(FoldMessage::Snapshot(successor, done)).map_err(|_| FoldEnded)?;
                Ok(None)
            }
            Self::Inline(journal_state) => {
                Ok(Some(fill_successor(journal_state, successor, &mut Vec::new)))
            }
        }
    }

    /// Closes the log from before the last switch.
    pub(super) fn close(&mut self, predecessor: Predecessor) {
        if let Self::Threaded(messages) = self {
            // Without the thread, the log is closed here.
            let _ = messages.send(FoldMessage::Close(predecessor));
        }
    }
}

fn serve(mut journal_state: JournalState, messages: &mpsc::Receiver<FoldMessage>) {
    for message in messages {
        match message {
            FoldMessage::Wrote(records) => {
                records.iter().for_each(|record| journal_state.apply(record))
            }
            FoldMessage::Close(predecessor) => drop(predecessor),
            FoldMessage::Snapshot(successor, done) => {
                let mut written = || written_meanwhile(messages);
                done(fill_successor(&mut journal_state, successor, &mut written));
            }
        }
    }
}

/// The records written since, in order, at most [`RECORDS_COPIED_AT_ONCE`].
fn written_meanwhile(messages: &mpsc::Receiver<FoldMessage>) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < RECORDS_COPIED_AT_ONCE {
        match messages.try_recv() {
            Ok(FoldMessage::Wrote(more)) => records.extend(more),
            Ok(FoldMessage::Close(predecessor)) => drop(predecessor),
            Ok(FoldMessage::Snapshot(_, done)) => {
                done(Err("another snapshot is being written".into()))
            }
            Err(_) => break,
        }
    }
    records
}

/// Fills a successor with the journal state and with the records that are written meanwhile.
fn fill_successor(
    journal_state: &mut JournalState,
    mut successor: Box<dyn Successor>,
    written: &mut dyn FnMut() -> Vec<Record>,
) -> SuccessorResult {
    let bytes = write_snapshot(journal_state, &mut *successor)?;
    for _ in 0..COPY_ROUNDS_MAX {
        let records = written();
        records.iter().for_each(|record| journal_state.apply(record));
        if !records.is_empty() {
            let encoded = records.iter().map(serde_json::to_vec).collect::<Result<Vec<_>, _>>();
            let encoded = encoded.map_err(|error| error.to_string())?;
            successor.append(&encoded).map_err(|error| chain(&error))?;
        }
        if records.len() < RECORDS_LEFT_TO_SWITCH {
            break;
        }
    }
    successor.ready().map_err(|error| chain(&error))?;
    Ok(Ready { seq: journal_state.seq, bytes })
}

/// Writes a journal state into a successor, piece by piece; returns its size in bytes.
fn write_snapshot(
    journal_state: &JournalState,
    successor: &mut dyn Successor,
) -> Result<u64, String> {
    let mut writer =
        ChunkWriter { piece: Vec::with_capacity(PIECE_BYTES), bytes: 0, successor, failed: None };
    let written =
        serde_json::to_writer(&mut writer, journal_state).map_err(|error| error.to_string());
    let flushed = written.and_then(|()| writer.write_piece().map_err(|error| error.to_string()));
    let (bytes, failed) = (writer.bytes, writer.failed.take());
    flushed.map(|()| bytes).map_err(|text| failed.unwrap_or(text))
}

/// Cuts what is written to it into pieces for the successor.
struct ChunkWriter<'a> {
    piece: Vec<u8>,
    bytes: u64,
    successor: &'a mut dyn Successor,
    /// Why a piece could not be written.
    failed: Option<String>,
}

impl ChunkWriter<'_> {
    fn write_piece(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.bytes += self.piece.len() as u64;
        let put = self.successor.put(&self.piece);
        self.piece.clear();
        put.map_err(|error| {
            self.failed = Some(chain(&error));
            io::ErrorKind::Other.into()
        })
    }
}

impl io::Write for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..fits]);
        if self.piece.len() == PIECE_BYTES {
            self.write_piece()?;
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
