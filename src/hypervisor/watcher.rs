//! The watcher of one cluster's tasks. While a task is awaited, one call per tick reads the
//! cluster's task list for all of them, and one more call reads each node whose tasks have left
//! that short list.
//!
//! It has no background task: the callers that wait take turns in polling. So nothing runs when
//! nothing is awaited, and it works alike on a runtime's threads and under simulated time.
//!
//! ```text
//! cluster's task list ──running──> next tick          tasks missing from it twice: the login sees no
//!         │ ended ──> answer the caller               cluster-wide tasks, so the cloud's tasks are
//!         │ missing                                   read node by node for NODE_BY_NODE_FOR
//!         v
//! node's own list ──missing──> the task by its name ──> answer the caller
//! ```
//!
//! Failures: a list that cannot be read is tried again after a growing pause. A node that does not
//! answer is skipped for [`SILENT_NODE_PAUSE`]. A task that does not end in time, or cannot be
//! read, has an unknown end.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::{Fault, FaultKind};
use drover_model::id::{CloudId, NodeName, Upid};
use drover_model::ports::TaskEnd;
use futures_util::future::join_all;
use parking_lot::Mutex;
use proxmox_client::PveError;
use proxmox_client::refusal::bounded;
use proxmox_client::types::TaskRow;
use proxmox_client::upid::{task_kind, task_node, task_start};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::classify::{self, CallOrigin};
use crate::client::Client;

/// The end of a task is noticed at most this fraction of the task's duration late (1/N), once that
/// is longer than a tick.
const LATENESS_FRACTION: u32 = 20;

/// The most ticks between two reads while Proxmox answers.
const POLL_PAUSE_TICKS_MAX: u32 = 8;

/// The longest pause between two reads while Proxmox does not answer.
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long the tasks of a cloud whose login sees no cluster-wide tasks are read node by node,
/// before the cluster's list is tried again.
const NODE_BY_NODE_FOR: Duration = Duration::from_secs(300);

/// How many times in a row the cluster's list must lack a running task before that counts as such a
/// login: the list may lag behind a start.
const MISSES_UNTIL_NODE_BY_NODE: u32 = 2;

/// How long one node may take to answer.
const NODE_READ_LIMIT: Duration = Duration::from_secs(5);

/// How long a node that did not answer is skipped.
const SILENT_NODE_PAUSE: Duration = Duration::from_secs(10);

/// How many warnings of one task are kept.
const WARNINGS_MAX: usize = 50;

/// Waits for the ends of one cluster's tasks.
pub struct Watcher {
    tick: Duration,
    waiting: Mutex<BTreeMap<Upid, Awaited>>,
    poll: tokio::sync::Mutex<PollState>,
}

struct Awaited {
    client: Arc<Client>,
    since: Instant,
    answers: Vec<oneshot::Sender<TaskEnd>>,
    missed: u32,
}

struct PollState {
    next: Instant,
    misses: u32,
    blind: BTreeMap<CloudId, Instant>,
    silent: BTreeMap<NodeName, Instant>,
}

impl PollState {
    /// Skips a node that did not answer, so that it delays no other.
    fn pause_node(&mut self, node: NodeName) {
        self.silent.insert(node, Instant::now() + SILENT_NODE_PAUSE);
    }
}

/// Awaited tasks, each with the client that reads it.
type AwaitedTasks = BTreeMap<Upid, Arc<Client>>;

/// The tasks that a list did not settle.
#[derive(Default)]
struct Unsettled {
    running: AwaitedTasks,
    missing: AwaitedTasks,
}

/// What a list shows about one task.
enum ListedTask {
    Running,
    Ended(String),
    Missing,
}

impl Watcher {
    /// A watcher that reads every `tick` while tasks are awaited.
    pub fn new(tick: Duration) -> Self {
        let poll = PollState {
            next: Instant::now(),
            misses: 0,
            blind: BTreeMap::new(),
            silent: BTreeMap::new(),
        };
        Self { tick, waiting: Mutex::default(), poll: tokio::sync::Mutex::new(poll) }
    }

    /// Waits at most `limit` for the end of a task; reads go through `client`.
    pub async fn wait(&self, client: Arc<Client>, upid: &Upid, limit: Duration) -> TaskEnd {
        let deadline = Instant::now() + limit;
        let (answer, mut end) = oneshot::channel();
        self.await_end(client, upid, answer);
        let outcome = tokio::time::timeout_at(deadline, async {
            loop {
                tokio::select! {
                    biased;
                    end = &mut end => break end.ok(),
                    mut poll = self.poll.lock() => self.poll_once(&mut poll).await,
                }
            }
        });
        let outcome = outcome.await;
        drop(end);
        self.drop_unawaited();
        match outcome {
            Ok(Some(end)) => end,
            Ok(None) => TaskEnd::Unknown(format!("drover lost track of task `{upid}`")),
            Err(_) => {
                let text = format!("task `{upid}` did not end within {} s", limit.as_secs());
                TaskEnd::Unknown(text)
            }
        }
    }

    fn await_end(&self, client: Arc<Client>, upid: &Upid, answer: oneshot::Sender<TaskEnd>) {
        let mut waiting = self.waiting.lock();
        let since = Instant::now();
        let fresh = || Awaited { client, since, answers: Vec::new(), missed: 0 };
        waiting.entry(upid.clone()).or_insert_with(fresh).answers.push(answer);
    }

    /// Drops tasks that no caller awaits any more.
    fn drop_unawaited(&self) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, awaited| {
            awaited.answers.retain(|answer| !answer.is_closed());
            !awaited.answers.is_empty()
        });
    }

    /// One poll: waits until it is due, reads the tasks, and answers for those that have ended.
    async fn poll_once(&self, poll: &mut PollState) {
        let now = Instant::now();
        if poll.next <= now {
            poll.next = now + self.tick;
        }
        tokio::time::sleep_until(poll.next).await;
        self.drop_unawaited();
        let wanted = self.awaited();
        let readable = self.read_tasks(poll, &wanted).await;
        poll.misses = if readable { 0 } else { poll.misses.saturating_add(1) };
        let factor = 1_u32 << poll.misses.min(8);
        let pause = if readable { self.pause() } else { self.tick * factor };
        poll.next = Instant::now() + pause.min(FAILURE_PAUSE_MAX.max(self.tick));
    }

    /// The pause until the next read: a new task may end at any moment, long ones are read less
    /// often.
    fn pause(&self) -> Duration {
        let waiting = self.waiting.lock();
        let youngest = waiting.values().map(|awaited| awaited.since.elapsed()).min();
        (youngest.unwrap_or_default() / LATENESS_FRACTION)
            .clamp(self.tick, self.tick * POLL_PAUSE_TICKS_MAX)
    }

    fn awaited(&self) -> AwaitedTasks {
        let waiting = self.waiting.lock();
        waiting.iter().map(|(upid, awaited)| (upid.clone(), awaited.client.newest())).collect()
    }

    /// Reads all awaited tasks; returns whether the cluster's list could be read.
    async fn read_tasks(&self, poll: &mut PollState, wanted: &AwaitedTasks) -> bool {
        let now = Instant::now();
        poll.blind.retain(|_, until| *until > now);
        poll.silent.retain(|_, until| *until > now);
        let sees = |client: &Client| !poll.blind.contains_key(client.cloud());
        let (open, blind): (AwaitedTasks, AwaitedTasks) =
            wanted.clone().into_iter().partition(|(_, client)| sees(client));
        let mut readable = true;
        let mut missing = AwaitedTasks::new();
        // The list of any cloud's login may show all tasks. One that cannot be read must not stop
        // the others.
        let clients: BTreeMap<&CloudId, &Arc<Client>> =
            open.values().map(|client| (client.cloud(), client)).collect();
        for client in clients.into_values() {
            match client.cluster_tasks().await {
                Ok(rows) => {
                    let listed_tasks = self.settle(&rows, &open).await;
                    listed_tasks.running.keys().for_each(|upid| self.note_listed(upid));
                    missing = listed_tasks.missing;
                    readable = true;
                    break;
                }
                Err(error) => {
                    client.fault(&error);
                    readable = false;
                }
            }
        }
        let running = self.read_missing(poll, &missing).await;
        self.note_blind_clouds(poll, &running);
        self.read_node_by_node(poll, &blind).await;
        readable
    }

    /// Reads the running tasks of each node, where a login always sees its own, and then the ends
    /// of the others.
    async fn read_node_by_node(&self, poll: &mut PollState, blind: &AwaitedTasks) {
        let mut places: BTreeMap<(CloudId, NodeName), AwaitedTasks> = BTreeMap::new();
        for (upid, client) in blind {
            let place = (client.cloud().clone(), NodeName::new(task_node(upid.as_str())));
            places.entry(place).or_default().insert(upid.clone(), client.clone());
        }
        places.retain(|(_, node), _| !poll.silent.contains_key(node));
        let reads = places.iter().filter_map(|((_, node), here)| {
            let client = here.values().next()?;
            Some(async move {
                match within_node_limit(client, client.running_tasks(node.as_str())).await {
                    Some(Ok(rows)) => Ok(self.settle(&rows, here).await.missing),
                    _ => Err(node.clone()),
                }
            })
        });
        let mut missing = AwaitedTasks::new();
        for read in join_all(reads).await {
            match read {
                Ok(more) => missing.extend(more),
                Err(node) => poll.pause_node(node),
            }
        }
        self.read_missing(poll, &missing).await;
    }

    /// Answers for the tasks that ended in this list; returns those that run and those that it
    /// lacks.
    async fn settle(&self, rows: &[TaskRow], wanted: &AwaitedTasks) -> Unsettled {
        // Most rows are tasks that ended long ago.
        let known: BTreeSet<&str> = wanted.keys().map(Upid::as_str).collect();
        let asked = rows.iter().filter(|row| known.contains(row.upid.as_str()));
        let listed: BTreeMap<&str, &TaskRow> = asked.map(|row| (row.upid.as_str(), row)).collect();
        let mut left = Unsettled::default();
        let mut ends = Vec::new();
        for (upid, client) in wanted {
            match read_row(listed.get(upid.as_str()).copied()) {
                ListedTask::Running => drop(left.running.insert(upid.clone(), client.clone())),
                ListedTask::Missing => drop(left.missing.insert(upid.clone(), client.clone())),
                ListedTask::Ended(exit) => ends.push(async move {
                    self.deliver(upid, task_end(client, upid, &exit).await);
                }),
            }
        }
        join_all(ends).await;
        left
    }

    /// Reads these tasks from their nodes, all nodes at the same time; returns those that run.
    async fn read_missing(&self, poll: &mut PollState, missing: &AwaitedTasks) -> AwaitedTasks {
        let mut nodes: BTreeMap<NodeName, AwaitedTasks> = BTreeMap::new();
        for (upid, client) in missing {
            nodes
                .entry(NodeName::new(task_node(upid.as_str())))
                .or_default()
                .insert(upid.clone(), client.clone());
        }
        nodes.retain(|node, _| !poll.silent.contains_key(node));
        let reads = nodes.iter().map(|(node, here)| self.read_node(node, here));
        let mut running = AwaitedTasks::new();
        for (node, read) in nodes.keys().zip(join_all(reads).await) {
            match read {
                Some(more) => running.extend(more),
                None => poll.pause_node(node.clone()),
            }
        }
        running
    }

    /// Reads a node's own list from the start of the first of these tasks, which includes ended
    /// tasks. Returns those that run, or none as soon as the node does not answer.
    async fn read_node(&self, node: &NodeName, here: &AwaitedTasks) -> Option<AwaitedTasks> {
        let mut left = Unsettled { missing: here.clone(), ..Unsettled::default() };
        let since = here.keys().map(|upid| task_start(upid.as_str())).min().unwrap_or(0);
        if let Some(client) = here.values().next() {
            match within_node_limit(client, client.tasks_since(node.as_str(), since)).await? {
                Ok(rows) => left = self.settle(&rows, here).await,
                Err(fault) => {
                    tracing::debug!(node = %node, error = %fault, "node did not list its tasks")
                }
            }
        }
        let named = self.read_named(&left.missing).await?;
        left.running.extend(named);
        Some(left.running)
    }

    /// Reads tasks by their names. Returns those that run, or none as soon as the node does not
    /// answer.
    async fn read_named(&self, here: &AwaitedTasks) -> Option<AwaitedTasks> {
        let mut running = AwaitedTasks::new();
        for (upid, client) in here {
            match within_node_limit(client, client.task_status(upid.as_str())).await? {
                Ok(status) if status.status == "running" => {
                    running.insert(upid.clone(), client.clone());
                }
                Ok(status) => {
                    let exit = status.exitstatus.unwrap_or_else(|| "unexpected status".into());
                    self.deliver(upid, task_end(client, upid, &exit).await);
                }
                Err(fault) => self.deliver(upid, TaskEnd::Unknown(fault.text)),
            }
        }
        Some(running)
    }

    /// Notes the clouds whose running tasks are missing from the cluster's list repeatedly.
    fn note_blind_clouds(&self, poll: &mut PollState, running: &AwaitedTasks) {
        for (upid, client) in running {
            if self.note_missed(upid) >= MISSES_UNTIL_NODE_BY_NODE {
                tracing::info!(cloud = %client.cloud(), "login sees no tasks of the cluster: reading them node by node");
                poll.blind.insert(client.cloud().clone(), Instant::now() + NODE_BY_NODE_FOR);
            }
        }
    }

    fn note_listed(&self, upid: &Upid) {
        let mut waiting = self.waiting.lock();
        if let Some(awaited) = waiting.get_mut(upid) {
            awaited.missed = 0;
        }
    }

    fn note_missed(&self, upid: &Upid) -> u32 {
        let mut waiting = self.waiting.lock();
        let Some(awaited) = waiting.get_mut(upid) else { return 0 };
        awaited.missed += 1;
        awaited.missed
    }

    fn deliver(&self, upid: &Upid, end: TaskEnd) {
        let mut waiting = self.waiting.lock();
        for answer in waiting.remove(upid).into_iter().flat_map(|awaited| awaited.answers) {
            let _ = answer.send(end.clone());
        }
    }
}

/// Reads from a node that may be silent; none when a later try may help.
async fn within_node_limit<T>(
    client: &Client,
    read: impl Future<Output = Result<T, PveError>>,
) -> Option<Result<T, Fault>> {
    let fault = match tokio::time::timeout(NODE_READ_LIMIT, read).await.ok()? {
        Ok(value) => return Some(Ok(value)),
        Err(error) => client.fault(&error),
    };
    let passing = matches!(
        fault.kind,
        FaultKind::Contention | FaultKind::Unreachable | FaultKind::UnknownOutcome
    );
    (!passing).then_some(Err(fault))
}

fn read_row(row: Option<&TaskRow>) -> ListedTask {
    let Some(row) = row else { return ListedTask::Missing };
    match (&row.status, row.endtime) {
        (Some(status), _) if status.eq_ignore_ascii_case("running") => ListedTask::Running,
        (Some(status), Some(_)) if !status.is_empty() => ListedTask::Ended(status.clone()),
        (_, Some(_)) => ListedTask::Missing,
        (_, None) => ListedTask::Running,
    }
}

/// The end that an exit status means (book: proxmox, section 5).
async fn task_end(client: &Client, upid: &Upid, exit: &str) -> TaskEnd {
    let exit = exit.trim();
    if exit == "OK" {
        return TaskEnd::Done { warnings: Vec::new() };
    }
    if let Some(count) = exit.strip_prefix("WARNINGS: ") {
        return TaskEnd::Done { warnings: warnings(client, upid, count).await };
    }
    let (kind, node) = (task_kind(upid.as_str()), NodeName::new(task_node(upid.as_str())));
    if exit == "unexpected status" {
        return TaskEnd::Unknown(format!("task `{kind}` on node `{node}` ended without a result"));
    }
    let starts = matches!(kind, "qmstart" | "vzstart");
    if starts
        && (exit.starts_with("VM ") || exit.starts_with("CT "))
        && exit.ends_with("already running")
    {
        return TaskEnd::Done { warnings: vec![bounded(exit)] };
    }
    let place = CallOrigin { cloud: client.cloud(), login: client.login() };
    TaskEnd::Failed(classify::task(place, &node, kind, exit))
}

async fn warnings(client: &Client, upid: &Upid, count: &str) -> Vec<String> {
    let lines = client.task_log(upid.as_str()).await.unwrap_or_default();
    let output = lines
        .iter()
        .map(|line| line.t.trim())
        .filter(|text| text.starts_with("WARN") || text.contains("check manually"));
    let found: Vec<_> = output.take(WARNINGS_MAX).map(bounded).collect();
    if found.is_empty() { vec![format!("{count} warnings: see the task's log")] } else { found }
}

#[cfg(test)]
mod tests;
