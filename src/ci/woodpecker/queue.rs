//! Woodpecker's queue, and which of its workflows would start now if there were agents.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// A workflow (`server/model/task.go` of 3.17; before 3.16 without its limits and its date).
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Task {
    /// The number, as text.
    pub id: String,
    #[serde(default)]
    pub name: String,
    /// The labels that the workflow demands of an agent.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// The agent that runs the workflow; 0 for none.
    #[serde(default)]
    pub agent_id: i64,
    /// When the pipeline was made, Unix seconds; 0 where the server does not report it.
    #[serde(default)]
    created: i64,
    /// Its pipeline; 0 where the server does not report it.
    #[serde(default)]
    pub pipeline_id: i64,
    #[serde(default)]
    concurrency_group: String,
    #[serde(default)]
    concurrency_limit: i64,
}

/// The answer of `queue/info`. Empty lists may be null.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Queue {
    #[serde(default)]
    pending: Option<Vec<Task>>,
    #[serde(default)]
    waiting_on_deps: Option<Vec<Task>>,
    #[serde(default)]
    running: Option<Vec<Task>>,
    /// Whether no workflow of the queue starts.
    #[serde(default)]
    pub paused: bool,
}

impl Task {
    /// The group that shares a limit with this workflow.
    fn group(&self) -> Option<&str> {
        let limited = self.concurrency_limit > 0 && !self.concurrency_group.is_empty();
        limited.then_some(self.concurrency_group.as_str())
    }

    /// Whether the pipeline was made earlier than another's, in the server's order.
    fn comes_before(&self, other: &Self) -> bool {
        let earlier = (self.created, self.name.as_str()) < (other.created, other.name.as_str());
        self.pipeline_id != other.pipeline_id && earlier
    }
}

impl Queue {
    /// Workflows that run.
    pub(super) fn running(&self) -> &[Task] {
        self.running.as_deref().unwrap_or_default()
    }

    /// Workflows that start as soon as there are agents for all of them. A workflow that the limit
    /// of its group (`concurrency`) holds back stays in the queue (`canRunConcurrent` of
    /// `server/queue/fifo.go`, 3.17), and a machine would wait for it in vain.
    pub(super) fn wanted(&self) -> Vec<&Task> {
        let pending = self.pending.as_deref().unwrap_or_default();
        if self.paused {
            return Vec::new();
        }
        let (mut wanted, mut started) = (Vec::new(), BTreeSet::new());
        for task in pending {
            if self.may_begin(task, &started) {
                started.insert(task.id.as_str());
                wanted.push(task);
            }
        }
        wanted
    }

    /// Whether a workflow may start beside those that run and those that have `started` by then.
    fn may_begin(&self, task: &Task, started: &BTreeSet<&str>) -> bool {
        let Some(group) = task.group() else { return true };
        let in_group = |other: &&Task| other.concurrency_group == group;
        let running = self.running().iter().filter(in_group).count();
        let waiting = [&self.pending, &self.waiting_on_deps].into_iter().flatten().flatten();
        let takes_place =
            |other: &&Task| started.contains(other.id.as_str()) || other.comes_before(task);
        let taken = running + waiting.filter(in_group).filter(takes_place).count();
        i64::try_from(taken).is_ok_and(|taken| taken < task.concurrency_limit)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use serde_json::{Value, json};

    use super::*;

    fn task(id: u32, limit: u32, pipeline: u32) -> Value {
        json!({
            "id": id.to_string(), "name": format!("w{id}"), "pipeline_id": pipeline,
            "created": 1000 + pipeline, "concurrency_group": "deploy", "concurrency_limit": limit,
        })
    }

    fn wanted(queue: Value) -> Vec<String> {
        let queue: Queue = serde_json::from_value(queue).unwrap();
        queue.wanted().into_iter().map(|task| task.id.clone()).collect()
    }

    // Invariant: a workflow that no agent would get demands no machine.

    #[test]
    fn of_a_group_with_a_limit_as_many_are_wanted_as_may_begin_and_the_earliest_first() {
        let four: Vec<Value> = (1..=4).map(|n| task(n, 1, n)).collect();
        assert_eq!(wanted(json!({ "pending": four })), ["1"]);
        let backwards: Vec<Value> = (1..=4).rev().map(|n| task(n, 2, n)).collect();
        assert_eq!(wanted(json!({ "pending": backwards, "running": [task(9, 2, 0)] })), ["1"]);
        assert!(wanted(json!({ "pending": four, "running": [task(9, 1, 0)] })).is_empty());
    }

    #[test]
    fn an_earlier_pipeline_that_waits_for_its_dependencies_keeps_its_place() {
        let queue = json!({ "pending": [task(2, 1, 2)], "waiting_on_deps": [task(1, 1, 1)] });
        assert!(wanted(queue).is_empty());
        let same = json!({ "pending": [task(2, 1, 1)], "waiting_on_deps": [task(1, 1, 1)] });
        assert_eq!(wanted(same), ["2"], "within a pipeline its own order counts");
    }

    #[test]
    fn without_a_limit_all_are_wanted_also_of_servers_that_know_none() {
        let old = json!({ "id": "7", "name": "w", "labels": null });
        assert_eq!(
            wanted(json!({ "pending": [task(1, 0, 1), task(2, 0, 2), old] })),
            ["1", "2", "7"]
        );
        assert!(wanted(json!({ "pending": [task(1, 0, 1)], "paused": true })).is_empty());
        assert!(wanted(json!({ "pending": null })).is_empty());
    }
}
