//! Following a log that another process writes, so that little is left to read when it takes over.
//!
//! A follower reads what is new and folds it. It reads the whole log again where its own past is not that of
//! the log: a snapshot took the place of what it knew last, or the writer undid an append that it had
//! seen. So its state is never one that the log does not add up to at the moment of the last look.

use super::fold::{Folded, fold_each};
use super::{Log, LogError};

/// What a log adds up to, as it was at the last look.
#[derive(Default)]
pub struct Follower {
    folded: Option<Folded>,
    /// The last record as it was read: another one in its place means that an append was undone.
    last: Option<Vec<u8>>,
}

impl Follower {
    /// Reads what is new. Says how many records that were.
    ///
    /// # Errors
    /// When the log cannot be read, or not understood. What was read before stays: the next look reads what is
    /// new since.
    pub fn follow(&mut self, log: &(impl Log + ?Sized)) -> Result<u64, LogError> {
        let Some(folded) = &mut self.folded else { return self.begin(log) };
        let before = folded.journal_state.seq;
        // What a snapshot includes is never undone.
        let from = if self.last.is_some() { before } else { before + 1 };
        let records = log.read_from(from)?;
        let new = match (&self.last, records.split_first()) {
            (Some(last), Some(((seq, first), new))) if *seq == before && first == last => new,
            (None, Some(((seq, _), _))) if *seq == before + 1 => &records,
            (None, None) if log.last()? == before => return Ok(0),
            (Some(_) | None, Some(_) | None) => return self.begin(log),
        };
        let mut newest = self.last.clone();
        let applied = folded.apply(&log.place(), new, |_, bytes| newest = Some(bytes.to_owned()));
        if let Err(error) = applied {
            // Some of it may be folded.
            *self = Self::default();
            return Err(error);
        }
        self.last = newest;
        Ok(new.len() as u64)
    }

    /// Reads the whole log.
    fn begin(&mut self, log: &(impl Log + ?Sized)) -> Result<u64, LogError> {
        let (mut last, mut count) = (None, 0);
        let folded = fold_each(log, |_, bytes| {
            last = Some(bytes.to_owned());
            count += 1;
        })?;
        (self.folded, self.last) = (Some(folded), last);
        Ok(count)
    }

    /// The last record that was read; zero before the first look.
    pub fn seq(&self) -> u64 {
        self.folded.as_ref().map_or(0, |folded| folded.journal_state.seq)
    }

    /// What was folded.
    pub(super) fn folded(&self) -> Result<&Folded, LogError> {
        self.folded.as_ref().ok_or_else(|| LogError::Io {
            place: String::new(),
            doing: "read",
            source: "nothing was read yet".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use drover_model::ports::Journal as _;
    use futures_util::FutureExt as _;
    use parking_lot::Mutex;

    use super::*;
    use crate::testing::{Still, burn};
    use crate::{MemoryLog, Predecessor, Successor, Writer, WriterOptions};

    const OPTIONS: WriterOptions = WriterOptions { threaded: false, snapshot_every: 7 };

    fn write(writer: &Writer, numbers: std::ops::Range<u32>) {
        for number in numbers {
            writer.append(vec![burn(number)]).now_or_never().unwrap().unwrap();
        }
    }

    fn state(log: &MemoryLog) -> String {
        serde_json::to_string(&crate::fold::fold(log).unwrap().journal_state).unwrap()
    }

    fn followed(follower: &Follower) -> String {
        serde_json::to_string(&follower.folded().unwrap().journal_state).unwrap()
    }

    // Invariant: a follower's state is what the log adds up to.

    #[test]
    fn what_is_followed_is_what_is_folded_over_snapshots_and_appends_that_were_undone() {
        let log = MemoryLog::new();
        let writer = Writer::open(log.clone(), Arc::new(Still), OPTIONS).unwrap().writer;
        let mut follower = Follower::default();
        assert_eq!(follower.follow(&log).unwrap(), 0);
        for round in 0..10 {
            let before = follower.seq();
            write(&writer, 100 + 4 * round..104 + 4 * round);
            let read = follower.follow(&log).unwrap();
            assert_eq!(followed(&follower), state(&log));
            assert!(read >= follower.seq() - before || follower.seq() > before, "{read}");
        }
        assert_eq!(follower.follow(&log).unwrap(), 0, "nothing is new");
        // Records that were read are undone, and others take their place.
        let undone = log.copy();
        let rare = WriterOptions { snapshot_every: 1000, ..OPTIONS };
        let other = Writer::open(undone.clone(), Arc::new(Still), rare).unwrap().writer;
        write(&other, 300..302);
        follower.follow(&undone).unwrap();
        write(&writer, 400..403);
        follower.follow(&log).unwrap();
        assert_eq!(followed(&follower), state(&log));
    }

    /// A log that notes from where it is read, and that cannot be read while it is away.
    struct Noted {
        log: MemoryLog,
        away: bool,
        reads: Mutex<Vec<u64>>,
    }

    impl Noted {
        fn of(log: &MemoryLog) -> Self {
            Self { log: log.clone(), away: false, reads: Mutex::default() }
        }
    }

    impl Log for Noted {
        fn append(&mut self, _: u64, _: &[Vec<u8>], _: bool) -> Result<u64, LogError> {
            unreachable!("a follower writes nothing")
        }

        fn read_from(&self, seq: u64) -> Result<Vec<(u64, Vec<u8>)>, LogError> {
            if self.away {
                let source = "it is away".into();
                return Err(LogError::Io { place: self.place(), doing: "read", source });
            }
            self.reads.lock().push(seq);
            self.log.read_from(seq)
        }

        fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, LogError> {
            self.log.snapshot()
        }

        fn place(&self) -> String {
            self.log.place()
        }

        fn successor(&mut self, _: u64) -> Result<Box<dyn Successor>, LogError> {
            unreachable!("a follower writes nothing")
        }

        fn succeed(&mut self, _: u64, _: &[Vec<u8>]) -> Result<Predecessor, LogError> {
            unreachable!("a follower writes nothing")
        }
    }

    // Invariant: what was read once is not read again, or the next leader of a long journal serves late.

    #[test]
    fn what_was_followed_is_not_read_again_after_the_log_was_away_and_after_a_term() {
        let log = MemoryLog::new();
        let rare = WriterOptions { snapshot_every: 1000, ..OPTIONS };
        let writer = Writer::open(log.clone(), Arc::new(Still), rare).unwrap().writer;
        let (mut follower, mut noted) = (Follower::default(), Noted::of(&log));
        write(&writer, 100..120);
        follower.follow(&noted).unwrap();
        noted.away = true;
        write(&writer, 120..125);
        assert!(follower.follow(&noted).is_err());
        noted.away = false;
        assert_eq!(follower.follow(&noted).unwrap(), 5);
        // A term of this member.
        let own =
            Writer::open_followed(Box::new(log.clone()), &mut follower, Arc::new(Still), rare);
        write(&own.unwrap().writer, 125..128);
        assert_eq!(follower.follow(&noted).unwrap(), 3);
        assert_eq!(
            *noted.reads.lock(),
            [1, 20, 25],
            "the last record that is known, and what is new"
        );
        assert_eq!(followed(&follower), state(&log));
    }

    #[test]
    fn a_writer_goes_on_from_what_was_followed() {
        let log = MemoryLog::new();
        let writer = Writer::open(log.clone(), Arc::new(Still), OPTIONS).unwrap().writer;
        write(&writer, 100..105);
        let mut follower = Follower::default();
        follower.follow(&log).unwrap();
        write(&writer, 105..107);
        let opened =
            Writer::open_followed(Box::new(log.clone()), &mut follower, Arc::new(Still), OPTIONS);
        let opened = opened.unwrap();
        assert_eq!(opened.journal_state.seq, 7);
        write(&opened.writer, 107..120);
        let fenced = writer.append(vec![burn(9)]).now_or_never().unwrap();
        assert!(fenced.is_err(), "the writer before is fenced");
        assert!(state(&log).contains("\"seq\":20"), "{}", state(&log));
    }
}
