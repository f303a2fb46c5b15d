//! The fold of the journal: at a start, and beside the writer, on a thread that hears each record
//! and writes the log's successor, so that no append waits for a snapshot.

use std::io;
use std::path::Path;
use std::sync::mpsc;

use causes::chain;
use drover_model::ledger::Ledger;
use drover_model::record::{RECORD_VERSION, Record};

use super::{Log, LogError, Predecessor, Successor};

/// Bytes of a snapshot that are written at once. The embedded log keeps a value in a page of a power
/// of two: with its key and the page's header this fills one of 256 KiB.
const PIECE: usize = 255 * 1024;

/// Records that are carried over at once.
const CARRIED_AT_ONCE: usize = 4096;
/// So few records are left to the switch, which no append can be written beside.
const FEW_RECORDS: usize = 256;
/// How often records are carried over, at most: appends may be faster than their copy.
const ROUNDS: usize = 64;

/// What a log says.
pub(super) struct Folded {
    pub(super) ledger: Ledger,
    /// Where its snapshot ends; zero without one.
    pub(super) snapshot_at: u64,
    pub(super) snapshot_bytes: u64,
    /// Bytes of the records behind the snapshot.
    pub(super) record_bytes: u64,
}

/// What the log says, folded.
///
/// # Errors
/// When it cannot be read, or holds what is not understood.
pub(super) fn fold(log: &impl Log, path: &Path) -> Result<Folded, LogError> {
    // What is JSON and not understood is another drover's; what is no JSON is damaged.
    let not_read = |place: String, source: serde_json::Error| {
        let (path, is_json) = (path.to_owned(), source.is_data());
        let source = Box::new(source);
        if is_json {
            LogError::Unknown { path, place, source }
        } else {
            LogError::Corrupt { path, source }
        }
    };
    let (mut ledger, snapshot_bytes) = match log.snapshot()? {
        Some((_, bytes)) => {
            let ledger = serde_json::from_slice::<Ledger>(&bytes)
                .map_err(|error| not_read("the snapshot".into(), error))?;
            (ledger, bytes.len() as u64)
        }
        None => (Ledger::default(), 0),
    };
    let (snapshot_at, mut record_bytes) = (ledger.seq, 0);
    for (seq, bytes) in log.read_from(ledger.seq + 1)? {
        let not_read = |error| not_read(format!("record {seq}"), error);
        let read = serde_json::from_slice::<Record>(&bytes);
        // A newer record may or may not look like one of ours.
        let version = match &read {
            Ok(record) => record.version,
            Err(_) => serde_json::from_slice::<Version>(&bytes).map_err(not_read)?.version,
        };
        if version > RECORD_VERSION {
            return Err(LogError::Newer {
                path: path.to_owned(),
                found: u64::from(version),
                known: u64::from(RECORD_VERSION),
            });
        }
        let record = read.map_err(not_read)?;
        if record.seq != seq || seq != ledger.seq + 1 {
            let text =
                format!("record {seq} follows {} and calls itself {}", ledger.seq, record.seq);
            return Err(LogError::Corrupt { path: path.to_owned(), source: text.into() });
        }
        ledger.apply(&record);
        record_bytes += bytes.len() as u64;
    }
    Ok(Folded { ledger, snapshot_at, snapshot_bytes, record_bytes })
}

#[derive(serde::Deserialize)]
struct Version {
    version: u32,
}

/// A successor that is ready to take the log's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ready {
    /// Its last record.
    pub(super) seq: u64,
    /// Bytes of its snapshot.
    pub(super) bytes: u64,
}

/// A successor, or why there is none.
pub(super) type Made = Result<Ready, String>;

/// Hears what became of a successor.
pub(super) type Done = Box<dyn FnOnce(Made) + Send>;

/// To the thread that folds.
pub(super) enum Told {
    /// These records were written.
    Wrote(Vec<Record>),
    /// A successor is due.
    Snapshot(Box<dyn Successor>, Done),
    /// The log before the last switch; closing it takes time.
    Close(Predecessor),
}

/// The thread that folds has ended, as after a panic.
#[derive(Debug)]
pub(super) struct Ended;

/// The fold that snapshots are made of.
pub(super) enum Fold {
    /// On a thread of its own.
    Beside(mpsc::Sender<Told>),
    /// Within the call, which is what virtual time needs.
    Within(Box<Ledger>),
}

impl Fold {
    /// Folds on a thread of its own.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub(super) fn beside(ledger: Ledger) -> io::Result<Self> {
        let (told, messages) = mpsc::channel();
        let serve = move || serve(ledger, &messages);
        std::thread::Builder::new().name("journal-fold".into()).spawn(serve)?;
        Ok(Self::Beside(told))
    }

    /// Hands over what was written.
    pub(super) fn wrote(&mut self, records: Vec<Record>) -> Result<(), Ended> {
        match self {
            Self::Beside(told) => told.send(Told::Wrote(records)).map_err(|_| Ended),
            Self::Within(ledger) => {
                records.iter().for_each(|record| ledger.apply(record));
                Ok(())
            }
        }
    }

    /// Fills a successor with what was handed over so far. Within the call `done` is not called:
    /// the answer is here.
    pub(super) fn snapshot(
        &mut self,
        successor: Box<dyn Successor>,
        done: Done,
    ) -> Result<Option<Made>, Ended> {
        match self {
            Self::Beside(told) => {
                told.send(Told::Snapshot(successor, done)).map_err(|_| Ended)?;
                Ok(None)
            }
            Self::Within(ledger) => Ok(Some(make(ledger, successor, &mut Vec::new))),
        }
    }

    /// Closes the log before the last switch.
    pub(super) fn close(&mut self, predecessor: Predecessor) {
        if let Self::Beside(told) = self {
            // Where the thread has ended it is closed here.
            let _ = told.send(Told::Close(predecessor));
        }
    }
}

fn serve(mut ledger: Ledger, messages: &mpsc::Receiver<Told>) {
    for told in messages {
        match told {
            Told::Wrote(records) => records.iter().for_each(|record| ledger.apply(record)),
            Told::Close(predecessor) => drop(predecessor),
            Told::Snapshot(successor, done) => {
                let mut more = || wrote_meanwhile(messages);
                done(make(&mut ledger, successor, &mut more));
            }
        }
    }
}

/// What was handed over since, in order.
fn wrote_meanwhile(messages: &mpsc::Receiver<Told>) -> Vec<Record> {
    let mut records = Vec::new();
    while records.len() < CARRIED_AT_ONCE {
        match messages.try_recv() {
            Ok(Told::Wrote(more)) => records.extend(more),
            Ok(Told::Close(predecessor)) => drop(predecessor),
            Ok(Told::Snapshot(_, done)) => done(Err("another one is under way".into())),
            Err(_) => break,
        }
    }
    records
}

/// Fills a successor with the ledger, and with the records that are written meanwhile.
fn make(
    ledger: &mut Ledger,
    mut successor: Box<dyn Successor>,
    more: &mut dyn FnMut() -> Vec<Record>,
) -> Made {
    let bytes = spell(ledger, &mut *successor)?;
    for _ in 0..ROUNDS {
        let records = more();
        records.iter().for_each(|record| ledger.apply(record));
        if !records.is_empty() {
            let encoded = records.iter().map(serde_json::to_vec).collect::<Result<Vec<_>, _>>();
            let encoded = encoded.map_err(|error| error.to_string())?;
            successor.append(&encoded).map_err(|error| chain(&error))?;
        }
        if records.len() < FEW_RECORDS {
            break;
        }
    }
    successor.ready().map_err(|error| chain(&error))?;
    Ok(Ready { seq: ledger.seq, bytes })
}

/// Writes a ledger piece by piece; gives its bytes.
fn spell(ledger: &Ledger, successor: &mut dyn Successor) -> Result<u64, String> {
    let mut cut = Cut { piece: Vec::with_capacity(PIECE), bytes: 0, successor, failed: None };
    let written = serde_json::to_writer(&mut cut, ledger).map_err(|error| error.to_string());
    let handed = written.and_then(|()| cut.hand_over().map_err(|error| error.to_string()));
    let (bytes, failed) = (cut.bytes, cut.failed.take());
    handed.map(|()| bytes).map_err(|text| failed.unwrap_or(text))
}

/// Cuts what is written into pieces.
struct Cut<'a> {
    piece: Vec<u8>,
    bytes: u64,
    successor: &'a mut dyn Successor,
    /// Why a piece could not be written.
    failed: Option<String>,
}

impl Cut<'_> {
    fn hand_over(&mut self) -> io::Result<()> {
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

impl io::Write for Cut<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..fits]);
        if self.piece.len() == PIECE {
            self.hand_over()?;
        }
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
