//! One watcher per cluster: while any task is awaited, one list call per tick serves them all, and
//! one more on each node whose tasks have left the cluster's short list.
//!
//! It has no task of its own: the waiters take turns at driving the tick, so nothing runs when
//! nothing is awaited, and it works alike on a runtime's threads and under simulated time.

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

use crate::classify::{self, Place};
use crate::client::Client;

/// A task is seen to have ended at most this part of its length late, once that is above a tick.
const LATE_BY: u32 = 20;

/// The most ticks between two looks while Proxmox answers.
const TICKS_MAX: u32 = 8;

/// The longest wait between two looks while Proxmox does not answer.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long a cloud whose token sees no cluster-wide tasks is read node by node before the
/// cluster's list is tried again.
const BLIND_FOR: Duration = Duration::from_secs(300);

/// Looks in a row that miss a task which runs, before its cloud counts as blind: a list may lag
/// behind a start by a moment.
const BLIND_AFTER: u32 = 2;

/// How long one node may take to tell of a task.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// How long a node that did not answer is left alone.
const SILENT_FOR: Duration = Duration::from_secs(10);

/// Warnings that are kept of one task.
const WARNINGS_MAX: usize = 50;

/// Waits for tasks of one cluster.
pub struct Watcher {
    tick: Duration,
    waiting: Mutex<BTreeMap<Upid, Awaited>>,
    pump: tokio::sync::Mutex<Pump>,
}

struct Awaited {
    client: Arc<Client>,
    since: Instant,
    answers: Vec<oneshot::Sender<TaskEnd>>,
    missed: u32,
}

struct Pump {
    next: Instant,
    misses: u32,
    blind: BTreeMap<CloudId, Instant>,
    silent: BTreeMap<NodeName, Instant>,
}

impl Pump {
    /// Leaves a node alone that did not answer, so that it holds nobody else up.
    fn hush(&mut self, node: NodeName) {
        self.silent.insert(node, Instant::now() + SILENT_FOR);
    }
}

/// Tasks that are awaited, each with the way to read it.
type Wanted = BTreeMap<Upid, Arc<Client>>;

/// What a list did not settle.
#[derive(Default)]
struct Unsettled {
    running: Wanted,
    missing: Wanted,
}

/// What a look said of one task.
enum Look {
    Running,
    Ended(String),
    Missing,
}

impl Watcher {
    /// Builds a watcher that looks every `tick` while there is something to look for.
    pub fn new(tick: Duration) -> Self {
        let pump = Pump {
            next: Instant::now(),
            misses: 0,
            blind: BTreeMap::new(),
            silent: BTreeMap::new(),
        };
        Self { tick, waiting: Mutex::default(), pump: tokio::sync::Mutex::new(pump) }
    }

    /// Waits for a task's end, at most `limit`; reads go through `client`.
    pub async fn wait(&self, client: Arc<Client>, upid: &Upid, limit: Duration) -> TaskEnd {
        let deadline = Instant::now() + limit;
        let (answer, mut end) = oneshot::channel();
        self.enter(client, upid, answer);
        let outcome = tokio::time::timeout_at(deadline, async {
            loop {
                tokio::select! {
                    biased;
                    end = &mut end => break end.ok(),
                    mut pump = self.pump.lock() => self.turn(&mut pump).await,
                }
            }
        });
        let outcome = outcome.await;
        drop(end);
        self.sweep();
        match outcome {
            Ok(Some(end)) => end,
            Ok(None) => TaskEnd::Unknown("the watcher let the task go".into()),
            Err(_) => {
                let text = format!("`{upid}` did not end within {} s", limit.as_secs());
                TaskEnd::Unknown(text)
            }
        }
    }

    fn enter(&self, client: Arc<Client>, upid: &Upid, answer: oneshot::Sender<TaskEnd>) {
        let mut waiting = self.waiting.lock();
        let since = Instant::now();
        let fresh = || Awaited { client, since, answers: Vec::new(), missed: 0 };
        waiting.entry(upid.clone()).or_insert_with(fresh).answers.push(answer);
    }

    /// Forgets tasks nobody waits for any more.
    fn sweep(&self) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, awaited| {
            awaited.answers.retain(|answer| !answer.is_closed());
            !awaited.answers.is_empty()
        });
    }

    /// One turn at the tick: sleep until it is due, look, hand out what has ended.
    async fn turn(&self, pump: &mut Pump) {
        let now = Instant::now();
        if pump.next <= now {
            pump.next = now + self.tick;
        }
        tokio::time::sleep_until(pump.next).await;
        self.sweep();
        let wanted = self.wanted();
        let fine = self.look(pump, &wanted).await;
        pump.misses = if fine { 0 } else { pump.misses.saturating_add(1) };
        let factor = 1_u32 << pump.misses.min(8);
        let pause = if fine { self.pause() } else { self.tick * factor };
        pump.next = Instant::now() + pause.min(BACKOFF_MAX.max(self.tick));
    }

    /// Tasks that were only just begun may end any moment; long ones are looked at more rarely.
    fn pause(&self) -> Duration {
        let waiting = self.waiting.lock();
        let youngest = waiting.values().map(|awaited| awaited.since.elapsed()).min();
        (youngest.unwrap_or_default() / LATE_BY).clamp(self.tick, self.tick * TICKS_MAX)
    }

    fn wanted(&self) -> Wanted {
        let waiting = self.waiting.lock();
        waiting.iter().map(|(upid, awaited)| (upid.clone(), awaited.client.newest())).collect()
    }

    /// Looks for all tasks; whether the cluster's list could be read.
    async fn look(&self, pump: &mut Pump, wanted: &Wanted) -> bool {
        let now = Instant::now();
        pump.blind.retain(|_, until| *until > now);
        pump.silent.retain(|_, until| *until > now);
        let sees = |client: &Client| !pump.blind.contains_key(client.cloud());
        let (open, blind): (Wanted, Wanted) =
            wanted.clone().into_iter().partition(|(_, client)| sees(client));
        let mut fine = true;
        let mut missing = Wanted::new();
        // Any cloud that leads there can tell of all; one that can not must not silence the others.
        let ways: BTreeMap<&CloudId, &Arc<Client>> =
            open.values().map(|client| (client.cloud(), client)).collect();
        for client in ways.into_values() {
            match client.cluster_tasks().await {
                Ok(rows) => {
                    let told = self.settle(&rows, &open).await;
                    told.running.keys().for_each(|upid| self.seen(upid));
                    missing = told.missing;
                    fine = true;
                    break;
                }
                Err(error) => {
                    client.fault(&error);
                    fine = false;
                }
            }
        }
        let running = self.read_missing(pump, &missing).await;
        self.judge_blind(pump, &running);
        self.look_by_node(pump, &blind).await;
        fine
    }

    /// Reads the running tasks of the nodes concerned, where a token always sees its own, and what
    /// has become of the others.
    async fn look_by_node(&self, pump: &mut Pump, blind: &Wanted) {
        let mut places: BTreeMap<(CloudId, NodeName), Wanted> = BTreeMap::new();
        for (upid, client) in blind {
            let place = (client.cloud().clone(), NodeName::new(task_node(upid.as_str())));
            places.entry(place).or_default().insert(upid.clone(), client.clone());
        }
        places.retain(|(_, node), _| !pump.silent.contains_key(node));
        let reads = places.iter().filter_map(|((_, node), here)| {
            let client = here.values().next()?;
            Some(async move {
                match patient(client, client.running_tasks(node.as_str())).await {
                    Some(Ok(rows)) => Ok(self.settle(&rows, here).await.missing),
                    _ => Err(node.clone()),
                }
            })
        });
        let mut missing = Wanted::new();
        for read in join_all(reads).await {
            match read {
                Ok(more) => missing.extend(more),
                Err(node) => pump.hush(node),
            }
        }
        self.read_missing(pump, &missing).await;
    }

    /// Hands out the ends a list tells of; gives the tasks that run, and those it does not tell of.
    async fn settle(&self, rows: &[TaskRow], wanted: &Wanted) -> Unsettled {
        // Most rows are of tasks that ended long ago.
        let known: BTreeSet<&str> = wanted.keys().map(Upid::as_str).collect();
        let asked = rows.iter().filter(|row| known.contains(row.upid.as_str()));
        let listed: BTreeMap<&str, &TaskRow> = asked.map(|row| (row.upid.as_str(), row)).collect();
        let mut left = Unsettled::default();
        let mut ends = Vec::new();
        for (upid, client) in wanted {
            match read_row(listed.get(upid.as_str()).copied()) {
                Look::Running => drop(left.running.insert(upid.clone(), client.clone())),
                Look::Missing => drop(left.missing.insert(upid.clone(), client.clone())),
                Look::Ended(exit) => ends.push(async move {
                    self.deliver(upid, ended(client, upid, &exit).await);
                }),
            }
        }
        join_all(ends).await;
        left
    }

    /// Asks the nodes themselves about tasks, all nodes at once; gives those that run.
    async fn read_missing(&self, pump: &mut Pump, missing: &Wanted) -> Wanted {
        let mut nodes: BTreeMap<NodeName, Wanted> = BTreeMap::new();
        for (upid, client) in missing {
            nodes
                .entry(NodeName::new(task_node(upid.as_str())))
                .or_default()
                .insert(upid.clone(), client.clone());
        }
        nodes.retain(|node, _| !pump.silent.contains_key(node));
        let reads = nodes.iter().map(|(node, here)| self.read_node(node, here));
        let mut running = Wanted::new();
        for (node, read) in nodes.keys().zip(join_all(reads).await) {
            match read {
                Some(more) => running.extend(more),
                None => pump.hush(node.clone()),
            }
        }
        running
    }

    /// Reads a node's own list from the first of these tasks on, which tells of ended ones too;
    /// gives those that run, none as soon as the node does not answer.
    async fn read_node(&self, node: &NodeName, here: &Wanted) -> Option<Wanted> {
        let mut left = Unsettled { missing: here.clone(), ..Unsettled::default() };
        let since = here.keys().map(|upid| task_start(upid.as_str())).min().unwrap_or(0);
        if let Some(client) = here.values().next() {
            match patient(client, client.tasks_since(node.as_str(), since)).await? {
                Ok(rows) => left = self.settle(&rows, here).await,
                Err(fault) => tracing::debug!(node = %node, error = %fault, "no list of tasks"),
            }
        }
        let named = self.read_named(&left.missing).await?;
        left.running.extend(named);
        Some(left.running)
    }

    /// Reads tasks by their names; gives those that run, none as soon as the node does not answer.
    async fn read_named(&self, here: &Wanted) -> Option<Wanted> {
        let mut running = Wanted::new();
        for (upid, client) in here {
            match patient(client, client.task_status(upid.as_str())).await? {
                Ok(status) if status.status == "running" => {
                    running.insert(upid.clone(), client.clone());
                }
                Ok(status) => {
                    let exit = status.exitstatus.unwrap_or_else(|| "unexpected status".into());
                    self.deliver(upid, ended(client, upid, &exit).await);
                }
                Err(fault) => self.deliver(upid, TaskEnd::Unknown(fault.text)),
            }
        }
        Some(running)
    }

    /// Notes the clouds whose running tasks are missing from the cluster's list again and again.
    fn judge_blind(&self, pump: &mut Pump, running: &Wanted) {
        for (upid, client) in running {
            if self.missed(upid) >= BLIND_AFTER {
                tracing::info!(cloud = %client.cloud(), "tasks are read node by node");
                pump.blind.insert(client.cloud().clone(), Instant::now() + BLIND_FOR);
            }
        }
    }

    fn seen(&self, upid: &Upid) {
        let mut waiting = self.waiting.lock();
        if let Some(awaited) = waiting.get_mut(upid) {
            awaited.missed = 0;
        }
    }

    fn missed(&self, upid: &Upid) -> u32 {
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

/// Reads from a node that may be silent: none when asking again later may help.
async fn patient<T>(
    client: &Client,
    read: impl Future<Output = Result<T, PveError>>,
) -> Option<Result<T, Fault>> {
    let fault = match tokio::time::timeout(READ_LIMIT, read).await.ok()? {
        Ok(value) => return Some(Ok(value)),
        Err(error) => client.fault(&error),
    };
    let passing = matches!(
        fault.kind,
        FaultKind::Contention | FaultKind::Unreachable | FaultKind::UnknownOutcome
    );
    (!passing).then_some(Err(fault))
}

fn read_row(row: Option<&TaskRow>) -> Look {
    let Some(row) = row else { return Look::Missing };
    match (&row.status, row.endtime) {
        (Some(status), _) if status.eq_ignore_ascii_case("running") => Look::Running,
        (Some(status), Some(_)) if !status.is_empty() => Look::Ended(status.clone()),
        (_, Some(_)) => Look::Missing,
        (_, None) => Look::Running,
    }
}

/// What an exit status means (behaviour section 5).
async fn ended(client: &Client, upid: &Upid, exit: &str) -> TaskEnd {
    let exit = exit.trim();
    if exit == "OK" {
        return TaskEnd::Done { warnings: Vec::new() };
    }
    if let Some(count) = exit.strip_prefix("WARNINGS: ") {
        return TaskEnd::Done { warnings: warnings(client, upid, count).await };
    }
    let (kind, node) = (task_kind(upid.as_str()), NodeName::new(task_node(upid.as_str())));
    if exit == "unexpected status" {
        return TaskEnd::Unknown(format!("task `{kind}` on node `{node}` left no result"));
    }
    if kind == "qmstart" && exit.starts_with("VM ") && exit.ends_with("already running") {
        return TaskEnd::Done { warnings: vec![bounded(exit)] };
    }
    let place = Place { cloud: client.cloud(), login: client.login() };
    TaskEnd::Failed(classify::task(place, &node, kind, exit))
}

async fn warnings(client: &Client, upid: &Upid, count: &str) -> Vec<String> {
    let lines = client.task_log(upid.as_str()).await.unwrap_or_default();
    let telling = lines
        .iter()
        .map(|line| line.t.trim())
        .filter(|text| text.starts_with("WARN") || text.contains("check manually"));
    let found: Vec<_> = telling.take(WARNINGS_MAX).map(bounded).collect();
    if found.is_empty() { vec![format!("{count} warnings, see the task's log")] } else { found }
}

#[cfg(test)]
mod tests;
