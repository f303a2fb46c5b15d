//! Workers: the processes of tasks.
//!
//! `Cluster::fork` registers a task and runs its body as a tokio task. SIGTERM (`stop_task`) aborts
//! the body, or only its sleep if the body has caught signals to clean up; after 5 s, SIGKILL
//! follows. SIGKILL (`kill_task`) drops the body: its file locks are released, but volumes and
//! `lock` keys stay. An injected fault fails the task at once or kills it later.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Cluster;
use super::task::{Task, Upid};
use crate::call::{Answer, Caller};

/// How long a stopped worker may take to clean up before it is killed.
const SIGKILL_DELAY: Duration = Duration::from_secs(5);

/// The signals of a worker.
#[derive(Debug)]
pub(crate) struct WorkerSignals {
    sigterm_caught: AtomicBool,
    interrupt_worker: Notify,
    interrupt_sleep: Notify,
    ended: watch::Sender<bool>,
    abort_handle: Mutex<Option<AbortHandle>>,
}

impl Default for WorkerSignals {
    fn default() -> Self {
        Self {
            sigterm_caught: AtomicBool::new(false),
            interrupt_worker: Notify::new(),
            interrupt_sleep: Notify::new(),
            ended: watch::Sender::new(false),
            abort_handle: Mutex::new(None),
        }
    }
}

impl WorkerSignals {
    pub(crate) fn terminate(&self) {
        if self.sigterm_caught.load(Ordering::SeqCst) {
            self.interrupt_sleep.notify_one();
        } else {
            self.interrupt_worker.notify_one();
        }
    }

    /// Says waiting callers that the task has ended.
    pub(crate) fn mark_ended(&self) {
        self.ended.send_replace(true);
    }

    fn kill(&self) {
        if let Some(handle) = &*self.abort_handle.lock() {
            handle.abort();
        }
    }

    fn set_abort_handle(&self, handle: AbortHandle) {
        *self.abort_handle.lock() = Some(handle);
    }

    async fn wait_until_ended(&self) {
        // The sender lives in `self`, so the wait ends only with the value.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

/// What the body of a task works with: its log, and sleeps that signals interrupt.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) upid: String,
    /// The node of the task.
    pub(crate) node: String,
    cluster: Arc<Cluster>,
    signals: Arc<WorkerSignals>,
}

impl Worker {
    /// Appends to the log of the task.
    pub(crate) fn log(&self, text: impl AsRef<str>) {
        self.cluster.state().tasks.log(&self.upid, text.as_ref());
    }

    /// Appends a warning to the log of the task.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        self.cluster.state().tasks.warn(&self.upid, text.as_ref());
    }

    /// From now on SIGTERM only interrupts [`Worker::sleep`]; for workers that clean up after it.
    pub(crate) fn catch_signals(&self) {
        self.signals.sigterm_caught.store(true, Ordering::SeqCst);
    }

    /// From now on SIGTERM ends the worker.
    pub(crate) fn release_signals(&self) {
        self.signals.sigterm_caught.store(false, Ordering::SeqCst);
    }

    /// Sleeps; false if a caught SIGTERM interrupted it.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        tokio::select! {
            biased;
            () = self.signals.interrupt_sleep.notified() => false,
            () = tokio::time::sleep(time) => true,
        }
    }
}

impl Cluster {
    /// Forks a worker; returns its UPID.
    pub(crate) fn fork<Body, Work>(
        self: &Arc<Self>,
        caller: &Caller,
        node: &str,
        kind: &str,
        id: impl ToString,
        body: Body,
    ) -> Answer
    where
        Body: FnOnce(Worker) -> Work,
        Work: Future<Output = Result<(), String>> + Send + 'static,
    {
        let signals = Arc::new(WorkerSignals::default());
        let (upid, injected) = self.register_task(caller, node, kind, id.to_string(), &signals);
        let worker = Worker {
            upid: upid.clone(),
            node: node.to_owned(),
            cluster: self.clone(),
            signals: signals.clone(),
        };
        let work = body(worker);
        let started_at = Instant::now();
        let cluster = self.clone();
        let name = upid.clone();
        let task_signals = signals.clone();
        let handle = tokio::spawn(async move {
            let outcome = match injected.error {
                Some(error) => Err(error),
                None => tokio::select! {
                    biased;
                    outcome = work => outcome,
                    () = task_signals.interrupt_worker.notified() => Err("received interrupt".to_owned()),
                },
            };
            let mut state = cluster.state();
            let now = state.clock.unix();
            state.tasks.finish(&name, outcome, now);
            let end = state.tasks.get(&name).and_then(|task| task.end.clone());
            drop(state);
            if let (Some(record), Some(end)) = (&cluster.record, end) {
                record.task(&name, started_at, &end.status);
            }
        });
        signals.set_abort_handle(handle.abort_handle());
        if let Some(after) = injected.killed_after {
            let cluster = self.clone();
            let target = upid.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                cluster.kill_task(&target);
            });
        }
        Answer::new(upid.into())
    }

    fn register_task(
        &self,
        caller: &Caller,
        node: &str,
        kind: &str,
        id: String,
        signals: &Arc<WorkerSignals>,
    ) -> (String, super::faults::InjectedTaskFault) {
        let mut state = self.state();
        let injected = state.injected_task_fault(node, kind);
        let now = state.clock.unix();
        let (pid, pstart) = state.new_process(node);
        let upid = Upid {
            node: node.to_owned(),
            pid,
            pstart,
            starttime: now,
            kind: kind.to_owned(),
            id,
            user: caller.full_id(),
        };
        let name = upid.to_string();
        let signals = signals.clone();
        state.tasks.add(Task::new(upid, signals));
        (name, injected)
    }

    /// Stops a task as `DELETE …/tasks/{upid}` does: SIGTERM, and SIGKILL after 5 s.
    pub(crate) async fn stop_task(&self, upid: &str) {
        let Some(signals) = self.signals_of(upid) else { return };
        signals.terminate();
        if tokio::time::timeout(SIGKILL_DELAY, signals.wait_until_ended()).await.is_err() {
            self.kill_task(upid);
        }
    }

    /// Kills the worker of a task at once: nothing is cleaned up, and the status becomes
    /// `unexpected status`.
    pub(crate) fn kill_task(&self, upid: &str) {
        let Some(signals) = self.signals_of(upid) else { return };
        signals.kill();
        let mut state = self.state();
        let now = state.clock.unix();
        state.tasks.mark_killed(upid, now);
    }

    fn signals_of(&self, upid: &str) -> Option<Arc<WorkerSignals>> {
        let state = self.state();
        let task = state.tasks.get(upid)?;
        task.end.is_none().then(|| task.signals.clone())
    }
}
