//! Watches the configuration and reads it again whenever it changed.
//!
//! In: events of the file system, a poll, and requests ([`Trigger`]). Out: [`Outcome`]s, each a new
//! configuration or the reason of its refusal; the previous configuration stays in force meanwhile.
//!
//! A change is taken once it has *settled*: two snapshots, `DEBOUNCE` apart, have the same texts
//! of the same files. What may be half of a change waits longer: a file that is gone, empty or cut
//! off for `MISSING_FILE_GRACE`, a file that is still open for writing for `OPEN_FILE_GRACE`. A
//! change that does not settle is not taken, and after `MAX_UNSETTLED` the watch says so.
//!
//! ```text
//! settled ── a snapshot differs ──▶ unsettled ── no change ──▶ check ──▶ settled, Outcome
//!                                     └── MAX_UNSETTLED ──▶ Outcome::Refused, still unsettled
//! ```
//!
//! Events only say when to look; a poll finds what they miss. [`Watch::next`] may be dropped and
//! called again at any time. Files: `snapshot.rs` (one reading of all files), `events.rs` (the
//! system's events).

mod events;
mod snapshot;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test says what it expects")]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::load::{self, Loaded};
use super::source::Sources;
use super::{Checked, Environment, LoadError};
use events::Events;
use snapshot::Snapshot;

/// A change has settled after this time without another; also the time between two snapshots
/// meanwhile.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The time a file is gone, empty or cut off before the watch takes that as the change.
const MISSING_FILE_GRACE: Duration = Duration::from_secs(2);
/// The time without a change before the watch takes a file that is still open for writing.
const OPEN_FILE_GRACE: Duration = Duration::from_secs(5);
/// A change that does not settle for this long is refused.
const MAX_UNSETTLED: Duration = Duration::from_secs(15);
/// The poll, which finds what events miss.
const POLL: Duration = Duration::from_secs(30);
/// At the start, the files are read up to so often until two snapshots agree.
const MAX_READS: u32 = 5;

/// The result of a change.
#[derive(Debug)]
pub enum Change {
    /// The new configuration.
    Reloaded(Box<Checked>),
    /// The new configuration has faults, as rendered text; the one in force stays.
    Refused(String),
}

/// A change, and the requests that it answers.
#[derive(Debug)]
pub struct Outcome {
    pub change: Change,
    /// The last [`Trigger::pull`] before the files were read; the outcome answers it and all
    /// before.
    pub answers: u64,
}

/// Requests a reload, also without a change (SIGHUP, `drover reload`).
#[derive(Debug, Clone)]
pub struct Trigger(watch::Sender<u64>);

impl Trigger {
    /// Requests a reload and returns the number of the request. One outcome answers several
    /// requests.
    pub fn pull(&self) -> u64 {
        let mut number = 0;
        self.0.send_modify(|pulls| {
            *pulls += 1;
            number = *pulls;
        });
        number
    }
}

/// A change that has not settled yet.
#[derive(Debug, Clone, Copy)]
struct Unsettled {
    stamp: snapshot::Digest,
    /// The first snapshot of the current state.
    since: Instant,
    /// The first snapshot of the change.
    first: Instant,
    /// When the watch reported that the change does not settle.
    reported: Option<Instant>,
}

/// What to do after a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Take,
    Complain,
}

/// A configuration under watch.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    environment: Environment,
    events: Events,
    trigger: Trigger,
    pulls: watch::Receiver<u64>,
    /// The last pull that is answered.
    answered: u64,
    /// The digest of the last configuration taken, and its files.
    seen: snapshot::Digest,
    taken: Option<Sources>,
    inputs: Vec<PathBuf>,
    /// Where the files are that git manages; none where it manages nothing.
    managed: Option<PathBuf>,
    unsettled: Option<Unsettled>,
    /// The last outcome was that the change does not settle.
    complained: bool,
    /// Nothing is in force yet.
    opening: bool,
    /// Faults of edited copies, which did not count at the start.
    put_aside: Option<LoadError>,
    last_snapshot: Instant,
    due: Option<Instant>,
    poll: Instant,
}

impl Watch {
    /// Starts watching a file or directory, and reads it for the first time.
    pub async fn open(path: &Path, environment: Environment) -> (Self, Result<Checked, LoadError>) {
        Self::over(path, environment, Events::of_system()).await
    }

    async fn over(
        path: &Path,
        environment: Environment,
        events: Events,
    ) -> (Self, Result<Checked, LoadError>) {
        let (trigger, pulls) = watch::channel(0);
        let now = Instant::now();
        let mut watch = Self {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            environment,
            events,
            trigger: Trigger(trigger),
            pulls,
            answered: 0,
            seen: snapshot::Digest::default(),
            taken: None,
            inputs: Vec::new(),
            managed: None,
            unsettled: None,
            complained: false,
            opening: true,
            put_aside: None,
            last_snapshot: now,
            due: None,
            poll: now + POLL,
        };
        let mut seen_now = watch.snapshot().await;
        for _ in 1..MAX_READS {
            if let Some(result) = watch.take(&seen_now).await {
                watch.opening = false;
                return (watch, result);
            }
            seen_now = watch.snapshot().await;
        }
        // Someone is writing the files: the next state comes as a change.
        let loaded = watch.load(&seen_now).await;
        watch.opening = false;
        (watch, loaded.result)
    }

    /// A handle that asks for a reload.
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// Waits for the next change that matters.
    pub async fn next(&mut self) -> Outcome {
        if let Some(error) = self.put_aside.take() {
            log_refusal(&error.lines());
            let change = Change::Refused(error.render());
            return Outcome { change, answers: self.answered };
        }
        loop {
            self.wait().await;
            let answers = *self.pulls.borrow_and_update();
            let seen_now = self.snapshot().await;
            let change = match self.weigh(&seen_now, answers > self.answered, Instant::now()) {
                Verdict::Nothing => continue,
                Verdict::Complain => {
                    let text = complaint(&self.path);
                    log_refusal(&[text.replace('\n', " ")]);
                    Change::Refused(text)
                }
                Verdict::Take => match self.take(&seen_now).await {
                    None => continue,
                    Some(Ok(checked)) => Change::Reloaded(Box::new(checked)),
                    Some(Err(error)) => {
                        log_refusal(&error.lines());
                        Change::Refused(error.render())
                    }
                },
            };
            self.answered = answers;
            return Outcome { change, answers };
        }
    }

    /// Waits until the next snapshot is due.
    async fn wait(&mut self) {
        loop {
            let asked = *self.pulls.borrow_and_update() > self.answered;
            let soon = Instant::now().max(self.last_snapshot + DEBOUNCE / 2);
            if asked && self.unsettled.is_none() {
                self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
            }
            let at = self.due.map_or(self.poll, |due| due.min(self.poll));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => return,
                Ok(()) = self.pulls.changed() => {}
                // Unsettled changes have frequent snapshots anyway.
                () = self.events.next(), if self.unsettled.is_none() => {
                    let soon = Instant::now().max(self.last_snapshot + DEBOUNCE / 2);
                    self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
                }
            }
        }
    }

    /// What a snapshot means at this moment.
    fn weigh(&mut self, seen_now: &Snapshot, asked: bool, now: Instant) -> Verdict {
        self.last_snapshot = now;
        self.poll = now + POLL;
        self.due = None;
        let known = seen_now.digest == self.seen;
        let quiet = self.quiet(seen_now);
        let Some(unsettled) = &mut self.unsettled else {
            if known && !asked {
                return Verdict::Nothing;
            }
            self.due = Some(now);
            if known {
                return Verdict::Take;
            }
            self.mark_unsettled(seen_now.stamp, now);
            return Verdict::Nothing;
        };
        if unsettled.stamp != seen_now.stamp {
            unsettled.stamp = seen_now.stamp;
            unsettled.since = now;
        }
        if now - unsettled.since >= quiet {
            if known && !asked && !self.complained {
                self.unsettled = None;
                return Verdict::Nothing;
            }
            // If the caller drops the future here, the next call starts again.
            self.due = Some(now);
            return Verdict::Take;
        }
        self.due = Some((unsettled.since + quiet).min(now + DEBOUNCE));
        let silent = now - unsettled.reported.unwrap_or(unsettled.first);
        if silent >= MAX_UNSETTLED && (unsettled.reported.is_none() || asked) {
            unsettled.reported = Some(now);
            self.complained = true;
            return Verdict::Complain;
        }
        Verdict::Nothing
    }

    fn mark_unsettled(&mut self, stamp: snapshot::Digest, now: Instant) {
        let fresh = Unsettled { stamp, since: now, first: now, reported: None };
        let started = self.unsettled.unwrap_or(fresh);
        self.unsettled = Some(Unsettled { stamp, since: now, ..started });
        self.due = Some(now + DEBOUNCE);
    }

    /// How long this state must last before it counts as settled.
    fn quiet(&self, seen_now: &Snapshot) -> Duration {
        let Ok(sources) = &seen_now.read else { return MISSING_FILE_GRACE };
        if seen_now.being_written {
            OPEN_FILE_GRACE
        } else if snapshot::is_less(self.taken.as_ref(), sources) {
            MISSING_FILE_GRACE
        } else {
            DEBOUNCE
        }
    }

    /// Reads the files on another thread, and watches their directories.
    async fn snapshot(&mut self) -> Snapshot {
        let mut reads = 0;
        loop {
            let (path, inputs) = (self.path.clone(), self.inputs.clone());
            let (managed, writers) = (self.managed.clone(), self.events.writers());
            let reading = tokio::task::spawn_blocking(move || {
                Snapshot::at(&path, managed.as_deref(), &inputs, &writers)
            });
            let reading = reading.await;
            let seen_now = reading.unwrap_or_else(|error| Snapshot::failed(&self.path, error));
            reads += 1;
            // Changes before the new directories were watched had no event: read again.
            if !self.events.follow(&seen_now.places) || reads == MAX_READS {
                return seen_now;
            }
        }
    }

    /// Checks on another thread: an encrypted key takes long.
    async fn load(&mut self, seen_now: &Snapshot) -> Loaded {
        let (path, environment) = (self.path.clone(), self.environment.clone());
        let read = seen_now.read();
        let opening = self.opening;
        let checking = tokio::task::spawn_blocking(move || match opening {
            true => load::loaded_at_start(&path, read, &environment),
            false => (load::loaded(&path, read, &environment), None),
        });
        let (loaded, put_aside) = checking.await.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            let result = Err(LoadError::Io { path: self.path.clone(), source });
            let (inputs, managed) = (self.inputs.clone(), self.managed.clone());
            (Loaded { result, inputs, managed }, None)
        });
        self.put_aside = put_aside;
        loaded
    }

    /// Checks a snapshot; none when the files changed meanwhile, or it names other files.
    async fn take(&mut self, seen: &Snapshot) -> Option<Result<Checked, LoadError>> {
        let loaded = self.load(seen).await;
        self.inputs = loaded.inputs;
        self.managed = loaded.managed;
        let after = self.snapshot().await;
        if after.stamp != seen.stamp {
            self.mark_unsettled(after.stamp, Instant::now());
            return None;
        }
        self.seen = after.digest;
        self.taken = after.read.ok();
        self.unsettled = None;
        self.complained = false;
        self.due = None;
        self.events.forget_writers();
        Some(loaded.result)
    }
}

/// Logs a refusal in one line, with the place of each fault.
fn log_refusal(faults: &[String]) {
    let faults = faults.join(" | ");
    tracing::error!(faults = faults.trim(), "configuration refused, the old one stays in force");
}

fn complaint(path: &Path) -> String {
    format!(
        "`{}` has been changing for {} s without a pause of {} ms\n  help: drover reads it after the \
         next pause; check which program writes it\n",
        path.display(),
        MAX_UNSETTLED.as_secs(),
        DEBOUNCE.as_millis()
    )
}
