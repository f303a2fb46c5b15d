//! The worker of syncs: one thing after another, as people ask and as the schedule says.

use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_api::{AttemptOut, SyncDoneOut, SyncResult};
use drover_audit::{Entry, Sync};
use drover_config::{ConfigSyncSpec, calendar};
use drover_model::fact::{Fact, What};
use drover_model::id::CloudId;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use drover_server::NotSynced;
use tokio::sync::{mpsc, oneshot, watch};

use super::attempt::{Asked, Done};
use super::error::SyncError;
use super::reader::Reader;
use super::{Configured, RELOAD_TIMEOUT, off, report};

/// The wait for the time that a schedule says, at most: clocks are set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// A request of people.
pub(super) struct Ask {
    pub(super) asked: Asked,
    pub(super) reply: oneshot::Sender<Result<SyncDoneOut, NotSynced>>,
}

/// Requests for a return to a commit.
pub(super) struct Returns {
    asked: mpsc::Receiver<Ask>,
    /// One that came while a sync read git.
    came: Option<Ask>,
}

impl Returns {
    pub(super) fn of(asked: mpsc::Receiver<Ask>) -> Self {
        Self { asked, came: None }
    }

    /// Waits until there is one, and leaves it for [`Self::next`].
    async fn come(&mut self) {
        if self.came.is_none() {
            self.came = self.asked.recv().await;
        }
        if self.came.is_none() {
            // The service stops.
            std::future::pending().await
        }
    }

    async fn next(&mut self) -> Option<Ask> {
        match self.came.take() {
            Some(asked) => Some(asked),
            None => self.asked.recv().await,
        }
    }
}

pub(super) struct Worker {
    pub(super) reader: Reader,
    asked: mpsc::Receiver<Ask>,
    pub(super) last: Option<AttemptOut>,
    pub(super) running: bool,
    pub(super) next: Option<WallTime>,
}

impl Worker {
    pub(super) fn of(reader: Reader, asked: mpsc::Receiver<Ask>) -> Self {
        Self { reader, asked, last: None, running: false, next: None }
    }

    pub(super) async fn run(
        mut self,
        mut returns: Returns,
        mut changes: watch::Receiver<Configured>,
    ) {
        let mut known: Option<ConfigSyncSpec> = None;
        loop {
            let configured = changes.borrow_and_update().clone();
            self.set_next(known.as_ref(), &configured);
            known.clone_from(&configured.spec);
            self.report(&configured);
            let wait = self.next.map(|at| self.until(at));
            let asked = tokio::select! {
                biased;
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    continue;
                }
                Some(asked) = returns.next() => asked,
                Some(asked) = self.asked.recv() => asked,
                () = sleep(wait) => {
                    if self.next.is_some_and(|at| at <= self.reader.now()) {
                        self.next = None;
                        self.by_schedule(&configured, &mut returns).await;
                    }
                    continue;
                }
            };
            self.answer(asked, &configured, &mut returns).await;
        }
    }

    /// Decides when the next sync is due: at once for a repository that is new to this start, else as the
    /// schedule says.
    fn set_next(&mut self, known: Option<&ConfigSyncSpec>, configured: &Configured) {
        let Some(spec) = &configured.spec else {
            (self.next, self.last) = (None, None);
            return;
        };
        let Some(schedule) = &spec.schedule else {
            self.next = None;
            return;
        };
        let is_new = known.is_none_or(|known| {
            known.remote.url != spec.remote.url
                || known.remote.branch != spec.remote.branch
                || known.path != spec.path
        });
        let same = known.is_some_and(|known| {
            known.schedule.as_ref() == Some(schedule) && known.time_zone == spec.time_zone
        });
        if is_new {
            self.next = Some(self.reader.now());
        } else if self.next.is_none() || !same {
            self.next = calendar::next(schedule, &spec.time_zone, self.reader.now());
        }
    }

    async fn by_schedule(&mut self, configured: &Configured, returns: &mut Returns) {
        let Some(spec) = &configured.spec else { return };
        // What came of it is in the view, the events and the log.
        let _ = self.sync(spec, configured, &Asked::Schedule, returns).await;
    }

    async fn answer(
        &mut self,
        Ask { asked, reply }: Ask,
        configured: &Configured,
        returns: &mut Returns,
    ) {
        let outcome = match &configured.spec {
            Some(spec) => self.sync(spec, configured, &asked, returns).await,
            None => Err(off()),
        };
        // The caller may have gone.
        let _ = reply.send(outcome);
    }

    /// One sync, with what people hear of it.
    async fn sync(
        &mut self,
        spec: &ConfigSyncSpec,
        configured: &Configured,
        asked: &Asked,
        returns: &mut Returns,
    ) -> Result<SyncDoneOut, NotSynced> {
        self.running = true;
        self.report(configured);
        let ended = self.attempt(spec, configured, asked, returns).await;
        self.running = false;
        let (result, commit, fault) = match &ended {
            Ok(Done { result, head, .. }) => (*result, head.clone(), None),
            Err(error) => (error.result(), error.commit(), Some(error.text())),
        };
        if ended.as_ref().err().is_none_or(|error| !error.is_of_request()) {
            let news = self.last.as_ref().is_none_or(|last| last.fault != fault);
            if result == SyncResult::Applied || fault.is_some() && news {
                let failed = fault.is_some();
                let sync = Sync { commit: commit.clone(), failed };
                self.reader.tools.audit.note(Entry::Sync(sync));
            }
            if let Some(text) = fault.clone().filter(|_| news) {
                tracing::error!(
                    fault = text,
                    "configuration not synced; the old one stays in force"
                );
                self.observe(What::ConfigNotSynced { text });
            }
            let at = self.reader.now().rfc3339();
            self.last = Some(AttemptOut { at, result, commit, fault });
        }
        let done = ended.map_err(|error| error.into_answer())?;
        if done.result == SyncResult::Applied {
            let (commit, subject) = (done.in_force.commit.clone(), done.in_force.subject.clone());
            let by_schedule = *asked == Asked::Schedule;
            tracing::info!(commit, subject, by_schedule, "configuration of git applied");
            self.observe(What::ConfigSynced { commit, subject });
        }
        Ok(SyncDoneOut {
            result: done.result,
            in_force: report::applied(&done.in_force),
            generation: done.generation,
            undone: done.undone,
            drained: done.drained,
        })
    }

    /// Prepares what was asked for and brings it into force. Who returns to a commit does not wait until
    /// a slow repository answered.
    async fn attempt(
        &self,
        spec: &ConfigSyncSpec,
        configured: &Configured,
        asked: &Asked,
        returns: &mut Returns,
    ) -> Result<Done, SyncError> {
        let prepared = if self.reads_git(asked) {
            tokio::select! {
                biased;
                () = returns.come() => return Err(SyncError::Overtaken),
                prepared = self.prepare(spec, asked) => prepared?,
            }
        } else {
            self.prepare(spec, asked).await?
        };
        self.bring(prepared, asked, configured).await
    }

    /// Lets the service read its configuration again.
    pub(super) async fn reload(&self) -> Result<u64, String> {
        let (reply, outcome) = Reply::channel();
        let stopping = || "the service is stopping".to_owned();
        self.reader.tools.reloads.send(reply).map_err(|_| stopping())?;
        match tokio::time::timeout(RELOAD_TIMEOUT, outcome).await {
            Ok(outcome) => outcome.map_err(|_| stopping())?,
            Err(_) => Err(format!("the reload did not end within {} s", RELOAD_TIMEOUT.as_secs())),
        }
    }

    /// Takes back what operators say of the clouds that git manages.
    pub(super) async fn undo_overrides(&self, configured: &Configured) -> usize {
        let (reply, outcome) = Reply::channel();
        let clouds = configured.clouds.iter().map(CloudId::new).collect();
        self.reader.tools.herd.do_send(HerdCommand::UndoOverrides { clouds, reply });
        match tokio::time::timeout(RELOAD_TIMEOUT, outcome).await {
            Ok(Ok(Ok(count))) => count,
            // The journal says why, and the next sync tries again.
            Ok(Ok(Err(_)) | Err(_)) | Err(_) => 0,
        }
    }

    fn observe(&self, what: What) {
        self.reader.tools.observer.observe(Fact { at: self.reader.now(), what });
    }

    fn until(&self, at: WallTime) -> Duration {
        let ms = u64::try_from(at.0 - self.reader.now().0).unwrap_or_default();
        Duration::from_millis(ms).min(LONGEST_SLEEP)
    }
}

/// Sleeps so long, or for ever.
async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
