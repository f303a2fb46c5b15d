//! One watcher per cluster: while any task is awaited, one list call per tick serves them all.
//!
//! It has no task of its own: the waiters take turns at driving the tick, so nothing runs when
//! nothing is awaited, and it works alike on a runtime's threads and under simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drover_actors::fault::FaultKind;
use drover_actors::id::{CloudId, NodeName, Upid};
use drover_actors::ports::TaskEnd;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::api::{task_kind, task_node};
use super::classify::{self, Place, bounded};
use super::client::Client;
use super::error::PveError;
use super::types::TaskRow;

/// The longest wait between two looks while Proxmox does not answer.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long a cloud whose token sees no cluster-wide tasks is read node by node before the
/// cluster's list is tried again.
const BLIND_FOR: Duration = Duration::from_secs(300);

/// Looks in a row that miss a task which runs, before its cloud counts as blind: a list may lag
/// behind a start by a moment.
const BLIND_AFTER: u32 = 2;

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
    answers: Vec<oneshot::Sender<TaskEnd>>,
    missed: u32,
}

struct Pump {
    next: Instant,
    misses: u32,
    blind: BTreeMap<CloudId, Instant>,
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
        let pump = Pump { next: Instant::now(), misses: 0, blind: BTreeMap::new() };
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
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Awaited { client, answers: Vec::new(), missed: 0 };
        waiting.entry(upid.clone()).or_insert_with(fresh).answers.push(answer);
    }

    /// Forgets tasks nobody waits for any more.
    fn sweep(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, awaited| {
            awaited.answers.retain(|answer| !answer.is_closed());
            !awaited.answers.is_empty()
        });
    }

    /// One turn at the tick: sleep until it is due, look, hand out what has ended.
    async fn turn(&self, pump: &mut Pump) {
        let now = Instant::now();
        if pump.next < now {
            pump.next = now + self.tick;
        }
        tokio::time::sleep_until(pump.next).await;
        self.sweep();
        let wanted = self.wanted();
        let fine = self.look(pump, &wanted).await;
        pump.misses = if fine { 0 } else { pump.misses.saturating_add(1) };
        let factor = 1_u32 << pump.misses.min(8);
        pump.next = Instant::now() + (self.tick * factor).min(BACKOFF_MAX.max(self.tick));
    }

    fn wanted(&self) -> BTreeMap<Upid, Arc<Client>> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().map(|(upid, awaited)| (upid.clone(), awaited.client.clone())).collect()
    }

    /// Looks for all tasks; whether Proxmox answered.
    async fn look(&self, pump: &mut Pump, wanted: &BTreeMap<Upid, Arc<Client>>) -> bool {
        let now = Instant::now();
        pump.blind.retain(|_, until| *until > now);
        let sees = |client: &Client| !pump.blind.contains_key(client.cloud());
        let (open, blind): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|(_, client)| sees(client.as_ref()));
        let mut fine = true;
        if let Some((_, client)) = open.first() {
            match client.cluster_tasks().await {
                Ok(rows) => {
                    let upids = open.iter().map(|(upid, client)| (*upid, *client));
                    fine &= self.settle(pump, &rows, upids, true).await;
                }
                Err(error) => {
                    client.fault(&error);
                    fine = false;
                }
            }
        }
        fine & self.look_by_node(pump, &blind).await
    }

    /// Reads the task lists of the nodes concerned, where the token always sees its own.
    async fn look_by_node(&self, pump: &mut Pump, blind: &[(&Upid, &Arc<Client>)]) -> bool {
        let places: BTreeSet<(CloudId, NodeName)> =
            blind.iter().map(|(upid, client)| (client.cloud().clone(), task_node(upid))).collect();
        let mut fine = true;
        for (cloud, node) in places {
            let here = |(upid, client): &&(&Upid, &Arc<Client>)| {
                *client.cloud() == cloud && task_node(upid) == node
            };
            let here: Vec<_> = blind.iter().filter(here).copied().collect();
            let Some((_, client)) = here.first() else { continue };
            match client.node_tasks(&node).await {
                Ok(rows) => fine &= self.settle(pump, &rows, here.into_iter(), false).await,
                Err(error) => {
                    client.fault(&error);
                    fine = false;
                }
            }
        }
        fine
    }

    /// Hands out ends; asks the node itself about tasks that are not in the list.
    async fn settle<'a>(
        &self,
        pump: &mut Pump,
        rows: &[TaskRow],
        wanted: impl Iterator<Item = (&'a Upid, &'a Arc<Client>)>,
        cluster_wide: bool,
    ) -> bool {
        let listed: BTreeMap<&str, &TaskRow> =
            rows.iter().map(|row| (row.upid.as_str(), row)).collect();
        let mut fine = true;
        for (upid, client) in wanted {
            match read_row(listed.get(upid.as_str()).copied()) {
                Look::Running => self.seen(upid),
                Look::Ended(exit) => self.deliver(upid, ended(client, upid, &exit).await),
                Look::Missing => match client.task_status(upid).await {
                    Ok(status) if status.status == "running" => {
                        if cluster_wide && self.missed(upid) >= BLIND_AFTER {
                            tracing::info!(cloud = %client.cloud(), "tasks are read node by node");
                            let until = Instant::now() + BLIND_FOR;
                            pump.blind.insert(client.cloud().clone(), until);
                        }
                    }
                    Ok(status) => {
                        let exit = status.exitstatus.unwrap_or_else(|| "unexpected status".into());
                        self.deliver(upid, ended(client, upid, &exit).await);
                    }
                    Err(error) => fine &= self.unread(client, upid, &error),
                },
            }
        }
        fine
    }

    /// A status that could not be read: final when asking again can not help.
    fn unread(&self, client: &Client, upid: &Upid, error: &PveError) -> bool {
        let fault = client.fault(error);
        let passing = matches!(
            fault.kind,
            FaultKind::Contention | FaultKind::Unreachable | FaultKind::UnknownOutcome
        );
        if !passing {
            self.deliver(upid, TaskEnd::Unknown(fault.text));
        }
        !passing
    }

    fn seen(&self, upid: &Upid) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(awaited) = waiting.get_mut(upid) {
            awaited.missed = 0;
        }
    }

    fn missed(&self, upid: &Upid) -> u32 {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(awaited) = waiting.get_mut(upid) else { return 0 };
        awaited.missed += 1;
        awaited.missed
    }

    fn deliver(&self, upid: &Upid, end: TaskEnd) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for answer in waiting.remove(upid).into_iter().flat_map(|awaited| awaited.answers) {
            let _ = answer.send(end.clone());
        }
    }
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
    let (kind, node) = (task_kind(upid), task_node(upid));
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
    let lines = client.task_log(upid).await.unwrap_or_default();
    let telling = lines
        .iter()
        .map(|line| line.t.trim())
        .filter(|text| text.starts_with("WARN") || text.contains("check manually"));
    let found: Vec<_> = telling.take(WARNINGS_MAX).map(bounded).collect();
    if found.is_empty() { vec![format!("{count} warnings, see the task's log")] } else { found }
}

#[cfg(test)]
mod tests;
