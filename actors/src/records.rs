//! Records that must be written even if the journal fails for a while: burned ids, breakers, facts
//! about marks. The actor that hands one over goes on. The record is tried again, in order, until
//! it is written. The queue belongs to no actor, so a panic of one loses no record.
//!
//! Of two records about the same subject, such as one breaker, only the later one is kept. So there
//! are never more records than subjects. Agents keep their own records, which they wait for, in
//! their journal views.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use drover_model::id::{ClusterId, RunnerName, SourceId, TemplateId, VmId};
use drover_model::ports::{Journal, JournalFault};
use drover_model::record::{Body, Troubled};
use drover_model::scope::Scope;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use crate::shared::{Shared, role};

/// The pause after the first failure.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST: Duration = Duration::from_secs(30);
/// The most records in one append.
const AT_ONCE: usize = 100;

/// The subject of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Breaker(TemplateId),
    Canary(TemplateId),
    Place(Scope),
    Id(ClusterId, VmId),
    Ahead(ClusterId),
    Runner(SourceId, RunnerName),
    Rows(SourceId, RunnerName),
    Trouble(Troubled),
}

/// Records on their way to the journal.
pub struct Records(Rc<Inner>);

struct Inner {
    journal: Arc<dyn Journal>,
    waiting: RefCell<VecDeque<Body>>,
    writing: Cell<bool>,
    fenced: Cell<bool>,
}

impl Records {
    /// An empty queue.
    pub fn new(journal: Arc<dyn Journal>) -> Self {
        Self(Rc::new(Inner {
            journal,
            waiting: RefCell::default(),
            writing: Cell::new(false),
            fenced: Cell::new(false),
        }))
    }

    fn take(&self, body: Body) {
        if self.0.fenced.get() {
            return;
        }
        self.put(body);
        if !self.0.writing.replace(true) {
            // The first try starts at once: the service may be about to stop.
            let (batch, tried) = self.begin();
            actix::spawn(Self(Rc::clone(&self.0)).go_on(batch, tried));
        }
    }

    /// The number of records that are not written.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.waiting.borrow().len()
    }

    fn put(&self, body: Body) {
        let mut waiting = self.0.waiting.borrow_mut();
        if let Some(subject) = subject(&body) {
            waiting.retain(|other| self::subject(other).as_ref() != Some(&subject));
        }
        waiting.push_back(body);
    }

    fn begin(&self) -> (Vec<Body>, LocalBoxFuture<'static, Result<u64, JournalFault>>) {
        let mut waiting = self.0.waiting.borrow_mut();
        let count = waiting.len().min(AT_ONCE);
        let batch: Vec<Body> = waiting.drain(..count).collect();
        // A span of its own, as appends of agents have one: a panic in it is no panic of the
        // running actor.
        let span = tracing::error_span!("append");
        let tried = span.in_scope(|| try_append(&self.0.journal, batch.clone()));
        (batch, tried)
    }

    async fn go_on(
        self,
        mut batch: Vec<Body>,
        mut tried: LocalBoxFuture<'static, Result<u64, JournalFault>>,
    ) {
        let mut pause = PAUSE_FIRST;
        loop {
            match tried.await {
                Ok(_) => pause = PAUSE_FIRST,
                Err(JournalFault::Fenced) => {
                    self.0.fenced.set(true);
                    self.0.waiting.borrow_mut().clear();
                    return;
                }
                Err(fault @ JournalFault::Failed(_)) => {
                    self.put_back(batch);
                    let records = self.0.waiting.borrow().len();
                    tracing::warn!(
                        error = %fault, records, pause_s = pause.as_secs(),
                        "records are not written and are tried again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_LONGEST);
                }
            }
            if self.0.waiting.borrow().is_empty() {
                self.0.writing.set(false);
                return;
            }
            (batch, tried) = self.begin();
        }
    }

    /// Puts records in front of all later ones. A later record about the same subject replaces the
    /// earlier one.
    fn put_back(&self, batch: Vec<Body>) {
        let later = std::mem::take(&mut *self.0.waiting.borrow_mut());
        batch.into_iter().chain(later).for_each(|body| self.put(body));
    }
}

/// A role that hands records over. Agents wait for theirs.
pub trait HandsOver {}

impl HandsOver for role::Herd {}
impl HandsOver for role::Cloud {}
impl HandsOver for role::Template {}
impl HandsOver for role::Cluster {}
impl HandsOver for role::Reconciler {}
impl HandsOver for role::Source {}

impl<R: HandsOver> Shared<Records, R> {
    /// Takes a record, which is written as soon as possible.
    pub fn write(&self, body: Body) {
        self.take(body);
    }

    /// Takes records, in order.
    pub fn write_all(&self, bodies: impl IntoIterator<Item = Body>) {
        bodies.into_iter().for_each(|body| self.take(body));
    }
}

/// The subject of a record that a later record about the same subject replaces.
fn subject(body: &Body) -> Option<Subject> {
    if let Body::BreakerMoved { scope, template, .. } = body {
        return Some(match scope {
            Some(scope) => Subject::Place(scope.clone()),
            None => Subject::Breaker(template.clone()),
        });
    }
    if let Body::CanaryMoved { template, .. } = body {
        return Some(Subject::Canary(template.clone()));
    }
    if let Body::IdBurned { cluster, vmid } | Body::IdCleared { cluster, vmid } = body {
        return Some(Subject::Id(cluster.clone(), *vmid));
    }
    if let Body::MarksAhead { cluster, .. } | Body::AheadConfirmed { cluster } = body {
        return Some(Subject::Ahead(cluster.clone()));
    }
    if let Body::RunnerWorked { source, runner, .. } = body {
        return Some(Subject::Runner(source.clone(), runner.clone()));
    }
    if let Body::RowsNumbered { source, runner, .. } = body {
        return Some(Subject::Rows(source.clone(), runner.clone()));
    }
    if let Body::TroubleSince { of, .. } = body {
        return Some(Subject::Trouble(of.clone()));
    }
    None
}

/// One try to append. A port that panics counts as a failed journal: what waits behind must not
/// hang.
pub(crate) fn try_append(
    journal: &Arc<dyn Journal>,
    bodies: Vec<Body>,
) -> LocalBoxFuture<'static, Result<u64, JournalFault>> {
    let panicked = || Err(JournalFault::Failed("it panicked".into()));
    match std::panic::catch_unwind(AssertUnwindSafe(|| journal.append(bodies))) {
        Ok(append) => {
            let caught = AssertUnwindSafe(append).catch_unwind();
            caught.map(move |done| done.unwrap_or_else(|_| panicked())).boxed_local()
        }
        Err(_) => futures_util::future::ready(panicked()).boxed_local(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::testing::{CLUSTER, on_paused_system, pass, seconds};

    /// A journal that fails while the test says so, and keeps what it was given.
    #[derive(Default)]
    struct Disk {
        full: Mutex<bool>,
        written: Mutex<Vec<Body>>,
        tries: Mutex<u32>,
    }

    impl Journal for Disk {
        fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
            *self.tries.lock().unwrap() += 1;
            let full = *self.full.lock().unwrap();
            if !full {
                self.written.lock().unwrap().extend(bodies);
            }
            async move { if full { Err(JournalFault::Failed("disk full".into())) } else { Ok(1) } }
                .boxed()
        }

        fn last_seq(&self) -> u64 {
            0
        }
    }

    fn disk() -> (Arc<Disk>, Shared<Records, role::Herd>) {
        let disk = Arc::new(Disk::default());
        (disk.clone(), Shared::new(Records::new(disk)))
    }

    fn burned(vmid: u32) -> Body {
        Body::IdBurned { cluster: ClusterId::new(CLUSTER), vmid: VmId(vmid) }
    }

    fn cleared(vmid: u32) -> Body {
        Body::IdCleared { cluster: ClusterId::new(CLUSTER), vmid: VmId(vmid) }
    }

    // Invariant: every record is written in the end and in order, or a later one about the same
    // subject is.

    #[test]
    fn records_wait_for_a_full_disk_and_are_written_in_their_order() {
        on_paused_system(|| async {
            let (disk, records) = disk();
            *disk.full.lock().unwrap() = true;
            for vmid in 0..300 {
                records.write(burned(vmid));
                pass(Duration::from_millis(20)).await;
            }
            records.write(cleared(7));
            pass(seconds(300)).await;
            assert_eq!((records.len(), disk.written.lock().unwrap().len()), (300, 0));
            let tries = *disk.tries.lock().unwrap();
            assert!(tries < 20, "a disk that is full is not tried without rest: {tries}");
            *disk.full.lock().unwrap() = false;
            pass(PAUSE_LONGEST).await;
            let expected: Vec<Body> =
                (0..300).filter(|vmid| *vmid != 7).map(burned).chain([cleared(7)]).collect();
            assert_eq!(*disk.written.lock().unwrap(), expected);
            assert_eq!(records.len(), 0);
            records.write(burned(1));
            pass(Duration::from_millis(1)).await;
            assert_eq!(disk.written.lock().unwrap().last(), Some(&burned(1)));
        });
    }

    #[test]
    fn what_is_said_again_while_the_journal_fails_is_kept_once() {
        on_paused_system(|| async {
            let (disk, records) = disk();
            *disk.full.lock().unwrap() = true;
            for _ in 0..1000 {
                records.write(burned(1));
                records.write(cleared(1));
            }
            pass(seconds(5)).await;
            assert_eq!(records.len(), 1);
            *disk.full.lock().unwrap() = false;
            pass(PAUSE_LONGEST).await;
            assert_eq!(*disk.written.lock().unwrap(), [cleared(1)]);
        });
    }
}
