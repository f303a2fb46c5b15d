//! Workers: what a task's process does, its signals, and how it is forked, stopped and killed.

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
const PATIENCE: Duration = Duration::from_secs(5);

/// The signal side of a worker.
#[derive(Debug)]
pub struct Control {
    masked: AtomicBool,
    outer: Notify,
    inner: Notify,
    done: watch::Sender<bool>,
    abort: Mutex<Option<AbortHandle>>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            masked: AtomicBool::new(false),
            outer: Notify::new(),
            inner: Notify::new(),
            done: watch::Sender::new(false),
            abort: Mutex::new(None),
        }
    }
}

impl Control {
    /// Sends SIGTERM.
    pub fn terminate(&self) {
        if self.masked.load(Ordering::SeqCst) {
            self.inner.notify_one();
        } else {
            self.outer.notify_one();
        }
    }

    /// Says that the task has ended.
    pub fn ended(&self) {
        self.done.send_replace(true);
    }

    fn kill(&self) {
        if let Some(handle) = &*self.abort.lock() {
            handle.abort();
        }
    }

    fn arm(&self, handle: AbortHandle) {
        *self.abort.lock() = Some(handle);
    }

    async fn wait_end(&self) {
        // The sender lives in `self`, so waiting can only end by the value.
        let _ = self.done.subscribe().wait_for(|done| *done).await;
    }
}

/// The running side of a task.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Its UPID.
    pub upid: String,
    /// The node it runs on.
    pub node: String,
    cluster: Arc<Cluster>,
    control: Arc<Control>,
}

impl Worker {
    /// Writes to the task's log.
    pub fn log(&self, text: impl AsRef<str>) {
        self.cluster.state().tasks.log(&self.upid, text.as_ref());
    }

    /// Writes a warning to the task's log.
    pub fn warn(&self, text: impl AsRef<str>) {
        self.cluster.state().tasks.warn(&self.upid, text.as_ref());
    }

    /// From here on SIGTERM only ends [`Worker::sleep`], for workers that clean up after it.
    pub fn catch_signals(&self) {
        self.control.masked.store(true, Ordering::SeqCst);
    }

    /// From here on SIGTERM ends the worker.
    pub fn release_signals(&self) {
        self.control.masked.store(false, Ordering::SeqCst);
    }

    /// Sleeps; false when a caught SIGTERM cut it short.
    pub async fn sleep(&self, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        tokio::select! {
            biased;
            () = self.control.inner.notified() => false,
            () = tokio::time::sleep(time) => true,
        }
    }
}

impl Cluster {
    /// Forks a worker and answers its UPID.
    pub fn fork<Body, Run>(
        self: &Arc<Self>,
        caller: &Caller,
        node: &str,
        kind: &str,
        id: impl ToString,
        body: Body,
    ) -> Answer
    where
        Body: FnOnce(Worker) -> Run,
        Run: Future<Output = Result<(), String>> + Send + 'static,
    {
        let control = Arc::new(Control::default());
        let (upid, fate) = self.enter_task(caller, node, kind, id.to_string(), &control);
        let worker = Worker {
            upid: upid.clone(),
            node: node.to_owned(),
            cluster: self.clone(),
            control: control.clone(),
        };
        let run = body(worker);
        let began = Instant::now();
        let cluster = self.clone();
        let name = upid.clone();
        let signals = control.clone();
        let handle = tokio::spawn(async move {
            let outcome = match fate.error {
                Some(error) => Err(error),
                None => tokio::select! {
                    biased;
                    outcome = run => outcome,
                    () = signals.outer.notified() => Err("received interrupt".to_owned()),
                },
            };
            let mut state = cluster.state();
            let now = state.clock.unix();
            state.tasks.finish(&name, outcome, now);
            let end = state.tasks.get(&name).and_then(|task| task.end.clone());
            drop(state);
            if let (Some(record), Some(end)) = (&cluster.record, end) {
                record.task(&name, began, &end.status);
            }
        });
        control.arm(handle.abort_handle());
        if let Some(after) = fate.killed_after {
            let cluster = self.clone();
            let doomed = upid.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                cluster.kill_task(&doomed);
            });
        }
        Answer::new(upid.into())
    }

    fn enter_task(
        &self,
        caller: &Caller,
        node: &str,
        kind: &str,
        id: String,
        control: &Arc<Control>,
    ) -> (String, super::fault::Fate) {
        let mut state = self.state();
        let fate = state.task_fate(node, kind);
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
        let control = control.clone();
        state.tasks.begin(Task::new(upid, control));
        (name, fate)
    }

    /// Stops a task as `DELETE …/tasks/{upid}` does: SIGTERM, and SIGKILL after 5 s.
    pub async fn stop_task(&self, upid: &str) {
        let Some(control) = self.control_of(upid) else { return };
        control.terminate();
        if tokio::time::timeout(PATIENCE, control.wait_end()).await.is_err() {
            self.kill_task(upid);
        }
    }

    /// Kills a task's worker at once: nothing is cleaned up, its status becomes
    /// `unexpected status`.
    pub fn kill_task(&self, upid: &str) {
        let Some(control) = self.control_of(upid) else { return };
        control.kill();
        let mut state = self.state();
        let now = state.clock.unix();
        state.tasks.die(upid, now);
    }

    fn control_of(&self, upid: &str) -> Option<Arc<Control>> {
        let state = self.state();
        let task = state.tasks.get(upid)?;
        task.end.is_none().then(|| task.control.clone())
    }
}
