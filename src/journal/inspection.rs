//! A look into a journal as a start would read it. The file does not change.

use std::path::Path;

use drover_model::journal_state::JournalState;
use drover_model::record::Record;
use drover_model::time::WallTime;

use super::fold::fold_each;
use super::{Log, LogError, RedbLog};

/// What a journal holds.
#[derive(Debug)]
pub struct Inspection {
    /// The size of the file, in bytes.
    pub size: u64,
    /// The last record that the snapshot includes; 0 without a snapshot.
    pub snapshot_at: u64,
    pub snapshot_bytes: u64,
    /// The size of the records after the snapshot.
    pub record_bytes: u64,
    /// What all of it adds up to.
    pub state: JournalState,
    /// The records after the snapshot, the oldest first.
    pub records: Vec<RecordHead>,
}

/// What a record is about; what it says in full may be secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    pub seq: u64,
    /// The start of the service that wrote it.
    pub epoch: u64,
    pub at: WallTime,
    /// What happened, as the journal names it: `cloneIntended`.
    pub kind: String,
    /// The ids in it, by what they are of: `agent`, `lease`, `template`.
    pub about: Vec<(&'static str, String)>,
}

/// The ids that a record may be about.
const IDS: [&str; 6] = ["agent", "lease", "template", "cluster", "source", "node"];

/// Reads the whole journal, as strictly as a start.
///
/// # Errors
/// [`LogError::Busy`] while a drover runs with it; what a start would say of the file.
pub fn inspect(path: &Path) -> Result<Inspection, LogError> {
    inspect_log(&RedbLog::look(path)?)
}

/// Reads the whole of a log, as strictly as a start.
///
/// # Errors
/// What a start would say of it.
pub fn inspect_log(log: &(impl Log + ?Sized)) -> Result<Inspection, LogError> {
    let mut records = Vec::new();
    let folded = fold_each(log, |record, _| records.push(head(record)))?;
    Ok(Inspection {
        size: log.size(),
        snapshot_at: folded.snapshot_at,
        snapshot_bytes: folded.snapshot_bytes,
        record_bytes: folded.record_bytes,
        state: folded.journal_state,
        records,
    })
}

fn head(record: &Record) -> RecordHead {
    // What was read can be written again.
    let body = serde_json::to_value(&record.body).unwrap_or_default();
    let entry = body.as_object().and_then(|body| body.iter().next());
    let (kind, fields) = match entry {
        Some((kind, fields)) => (kind.clone(), Some(fields)),
        None => (body.as_str().unwrap_or_default().to_owned(), None),
    };
    // Marks and requests have some of them one level below.
    let nested = || fields?.as_object().map(|all| all.values());
    let id = |name: &'static str| {
        let inside = || nested()?.find_map(|value| value.get(name)?.as_str());
        let found = fields?.get(name).and_then(|value| value.as_str()).or_else(inside)?;
        Some((name, found.to_owned()))
    };
    let about = IDS.into_iter().filter_map(id).collect();
    RecordHead { seq: record.seq, epoch: record.epoch, at: record.wall_time, kind, about }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::fs;
    use std::sync::Arc;

    use drover_model::ports::Journal as _;

    use super::*;
    use crate::testing::{Still, burn};
    use crate::{Writer, WriterOptions};

    // Invariant: a look reads what a start reads, and leaves the file as it is.

    #[tokio::test]
    async fn a_look_shows_what_was_written_and_changes_no_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        let options = WriterOptions { threaded: false, snapshot_every: 100 };
        let log = RedbLog::open(&path).unwrap();
        let opened = Writer::open(log, Arc::new(Still), options).unwrap();
        opened.writer.append(vec![burn(101), burn(102)]).await.unwrap();
        assert!(matches!(inspect(&path), Err(LogError::Busy { .. })));
        drop(opened);
        let before = fs::read(&path).unwrap();
        let found = inspect(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!((found.state.seq, found.snapshot_at), (2, 0));
        let heads: Vec<_> = found.records.iter().map(|one| (one.seq, &*one.kind)).collect();
        assert_eq!(heads, [(1, "idBurned"), (2, "idBurned")]);
        assert_eq!(found.records[0].about, [("cluster", "9f31c0aa52e7d410".to_owned())]);
    }

    #[test]
    fn what_is_no_journal_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.redb");
        assert!(matches!(inspect(&path), Err(LogError::Io { .. })));
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        assert!(matches!(inspect(&path), Err(LogError::Corrupt { .. })));
        fs::write(&path, "no journal ".repeat(1000)).unwrap();
        assert!(matches!(inspect(&path), Err(LogError::Corrupt { .. })));
        assert_eq!(fs::read(&path).unwrap().len(), 11_000);
    }
}
