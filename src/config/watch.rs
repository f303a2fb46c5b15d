//! Watches the configuration and reads it again whenever it changed.
//!
//! A change is taken once it has *settled*: two looks, [`QUIET`] apart, found the same texts in the
//! same writing of the same files. What may be half of a change waits longer: a file that is gone,
//! empty or cut off for [`ABSENCE`], one that somebody still has open for writing for [`HELD`].
//! What never settles is never taken: after [`RESTLESS`] that is told, and the old one goes on.
//! Events only say when to look; a poll catches what no event told. [`Watch::next`] may be dropped
//! and called again at any time.

mod look;
mod notice;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test says what it expects")]
mod saves;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test says what it expects")]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::source::Sources;
use super::survey::{self, Survey};
use super::{Checked, Environment, LoadError};
use look::Look;
use notice::Notices;

/// Unchanged for this long, a change has settled; also the time between two looks meanwhile.
const QUIET: Duration = Duration::from_millis(200);
/// How long a file must have been gone, empty or cut off until that is believed.
const ABSENCE: Duration = Duration::from_secs(2);
/// How long a file that is still open for writing must have been left alone.
const HELD: Duration = Duration::from_secs(5);
/// What did not settle for this long is told.
const RESTLESS: Duration = Duration::from_secs(15);
/// What events miss is found after this.
const POLL: Duration = Duration::from_secs(30);
/// How often the files are read at the start until two looks agree.
const TRIES: u32 = 5;

/// What came of a change.
#[derive(Debug)]
pub enum Change {
    /// The new configuration.
    Reloaded(Box<Checked>),
    /// The new configuration has faults; the one in force stays. The faults, as people read them.
    Refused(String),
}

/// A change, and whom it answers.
#[derive(Debug)]
pub struct Told {
    /// What came of it.
    pub change: Change,
    /// The last [`Trigger::pull`] before it was read: it answers that one and all before.
    pub answers: u64,
}

/// Asks for a reload even if nothing seems to have changed (SIGHUP, `drover reload`).
#[derive(Debug, Clone)]
pub struct Trigger(watch::Sender<u64>);

impl Trigger {
    /// Asks, and gives the number of this request; asking twice before the answer is asking once.
    pub fn pull(&self) -> u64 {
        let mut number = 0;
        self.0.send_modify(|pulls| {
            *pulls += 1;
            number = *pulls;
        });
        number
    }
}

/// Something changed and has not settled yet.
#[derive(Debug, Clone, Copy)]
struct Unrest {
    stamp: look::Digest,
    /// When it was first seen as it is.
    since: Instant,
    /// When it began.
    first: Instant,
    /// When it was told that it does not end.
    told: Option<Instant>,
}

/// What is to be done after a look.
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
    notices: Notices,
    trigger: Trigger,
    pulls: watch::Receiver<u64>,
    /// The last pull that is answered.
    answered: u64,
    /// What was taken last, as a digest, and the files that were read for it.
    seen: look::Digest,
    taken: Option<Sources>,
    inputs: Vec<PathBuf>,
    unrest: Option<Unrest>,
    /// The last word was that it does not settle.
    complained: bool,
    looked: Instant,
    due: Option<Instant>,
    poll: Instant,
}

impl Watch {
    /// Starts watching a file or directory, and reads it for the first time.
    pub async fn open(path: &Path, environment: Environment) -> (Self, Result<Checked, LoadError>) {
        Self::over(path, environment, Notices::of_system()).await
    }

    async fn over(
        path: &Path,
        environment: Environment,
        notices: Notices,
    ) -> (Self, Result<Checked, LoadError>) {
        let (trigger, pulls) = watch::channel(0);
        let now = Instant::now();
        let mut watch = Self {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            environment,
            notices,
            trigger: Trigger(trigger),
            pulls,
            answered: 0,
            seen: look::Digest::default(),
            taken: None,
            inputs: Vec::new(),
            unrest: None,
            complained: false,
            looked: now,
            due: None,
            poll: now + POLL,
        };
        let mut look = watch.look().await;
        for _ in 1..TRIES {
            if let Some(result) = watch.take(&look).await {
                return (watch, result);
            }
            look = watch.look().await;
        }
        // It is being written: what follows is told as a change.
        let survey = watch.survey(&look).await;
        (watch, survey.result)
    }

    /// A handle that asks for a reload.
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// Waits for the next change that matters.
    pub async fn next(&mut self) -> Told {
        loop {
            self.wait().await;
            let answers = *self.pulls.borrow_and_update();
            let look = self.look().await;
            let change = match self.weigh(&look, answers > self.answered, Instant::now()) {
                Verdict::Nothing => continue,
                Verdict::Complain => {
                    let text = complaint(&self.path);
                    log_refusal(&[text.replace('\n', " ")]);
                    Change::Refused(text)
                }
                Verdict::Take => match self.take(&look).await {
                    None => continue,
                    Some(Ok(checked)) => Change::Reloaded(Box::new(checked)),
                    Some(Err(error)) => {
                        log_refusal(&error.lines());
                        Change::Refused(error.render())
                    }
                },
            };
            self.answered = answers;
            return Told { change, answers };
        }
    }

    /// Waits until it is time to look.
    async fn wait(&mut self) {
        loop {
            let asked = *self.pulls.borrow_and_update() > self.answered;
            let soon = Instant::now().max(self.looked + QUIET / 2);
            if asked && self.unrest.is_none() {
                self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
            }
            let at = self.due.map_or(self.poll, |due| due.min(self.poll));
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => return,
                Ok(()) = self.pulls.changed() => {}
                // While something is unsettled it is looked at often anyway.
                () = self.notices.told(), if self.unrest.is_none() => {
                    let soon = Instant::now().max(self.looked + QUIET / 2);
                    self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
                }
            }
        }
    }

    /// What a look means at this moment.
    fn weigh(&mut self, look: &Look, asked: bool, now: Instant) -> Verdict {
        self.looked = now;
        self.poll = now + POLL;
        self.due = None;
        let known = look.digest == self.seen;
        let quiet = self.quiet(look);
        let Some(unrest) = &mut self.unrest else {
            if known && !asked {
                return Verdict::Nothing;
            }
            self.due = Some(now);
            if known {
                return Verdict::Take;
            }
            self.begin_unrest(look.stamp, now);
            return Verdict::Nothing;
        };
        if unrest.stamp != look.stamp {
            unrest.stamp = look.stamp;
            unrest.since = now;
        }
        if now - unrest.since >= quiet {
            if known && !asked && !self.complained {
                self.unrest = None;
                return Verdict::Nothing;
            }
            // Should taking it be dropped half-way, it is begun again.
            self.due = Some(now);
            return Verdict::Take;
        }
        self.due = Some((unrest.since + quiet).min(now + QUIET));
        let silent = now - unrest.told.unwrap_or(unrest.first);
        if silent >= RESTLESS && (unrest.told.is_none() || asked) {
            unrest.told = Some(now);
            self.complained = true;
            return Verdict::Complain;
        }
        Verdict::Nothing
    }

    fn begin_unrest(&mut self, stamp: look::Digest, now: Instant) {
        let fresh = Unrest { stamp, since: now, first: now, told: None };
        let begun = self.unrest.unwrap_or(fresh);
        self.unrest = Some(Unrest { stamp, since: now, ..begun });
        self.due = Some(now + QUIET);
    }

    /// How long what is seen must stay as it is.
    fn quiet(&self, look: &Look) -> Duration {
        let Ok(sources) = &look.read else { return ABSENCE };
        if look.being_written {
            HELD
        } else if look::lessens(self.taken.as_ref(), sources) {
            ABSENCE
        } else {
            QUIET
        }
    }

    /// Reads the files, off this thread, and follows where they are.
    async fn look(&mut self) -> Look {
        let mut tries = 0;
        loop {
            let (path, inputs) = (self.path.clone(), self.inputs.clone());
            let writers = self.notices.writers();
            let looking =
                tokio::task::spawn_blocking(move || Look::at(&path, &inputs, &writers)).await;
            let look = looking.unwrap_or_else(|error| Look::failed(&self.path, error));
            tries += 1;
            // What happened before new places were followed told nobody: look again.
            if !self.notices.follow(&look.places) || tries == TRIES {
                return look;
            }
        }
    }

    /// Checks, off this thread: an encrypted key takes its time.
    async fn survey(&self, look: &Look) -> Survey {
        let (path, environment) = (self.path.clone(), self.environment.clone());
        let read = look.read();
        let checking =
            tokio::task::spawn_blocking(move || survey::of(&path, read, &environment)).await;
        checking.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            let result = Err(LoadError::Io { path: self.path.clone(), source });
            Survey { result, inputs: self.inputs.clone() }
        })
    }

    /// Checks what was seen; none when something was written, or other files are named, meanwhile.
    async fn take(&mut self, seen: &Look) -> Option<Result<Checked, LoadError>> {
        let survey = self.survey(seen).await;
        self.inputs = survey.inputs;
        let after = self.look().await;
        if after.stamp != seen.stamp {
            self.begin_unrest(after.stamp, Instant::now());
            return None;
        }
        self.seen = after.digest;
        self.taken = after.read.ok();
        self.unrest = None;
        self.complained = false;
        self.due = None;
        self.notices.forgive();
        Some(survey.result)
    }
}

/// Logs a refusal in one line, with the place of each fault.
fn log_refusal(faults: &[String]) {
    let faults = faults.join(" | ");
    tracing::error!(faults = faults.trim(), "configuration refused, the old one stays in force");
}

fn complaint(path: &Path) -> String {
    format!(
        "`{}` has been changing for {} s without a pause of {} ms\n  help: it is read as soon as \
         whatever writes it rests\n",
        path.display(),
        RESTLESS.as_secs(),
        QUIET.as_millis()
    )
}
