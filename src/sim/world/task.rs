//! Records of tasks: UPIDs, logs, exit statuses and the lists that show them.
//!
//! The running side of a task is in `worker`. A record goes through these states:
//!
//! ```text
//! add ─→ running ─ finish ─→ OK | WARNINGS: n | error text
//!                └ mark_killed ─→ unexpected status
//! ```

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::worker::WorkerSignals;

/// The most finished tasks of a node in its list.
const MAX_LISTED_FINISHED: usize = 2_000;
/// The most finished tasks of a node that are kept.
const MAX_KEPT_FINISHED: usize = 20_000;
/// The most tasks of a node in the list of the cluster, including running ones (book: proxmox,
/// section 5).
const CLUSTER_LIST_LEN: usize = 25;

/// The parts of a task's unique id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upid {
    pub(crate) node: String,
    /// The process id.
    pub(crate) pid: u32,
    /// The start of the process in clock ticks since boot.
    pub(crate) pstart: u64,
    pub(crate) starttime: u64,
    /// The type of the task, such as `qmclone`.
    pub(crate) kind: String,
    /// The object of the task, often a VMID; may be empty.
    pub(crate) id: String,
    /// `user@realm` or `user@realm!token`.
    pub(crate) user: String,
}

impl std::fmt::Display for Upid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, pid, pstart, starttime, kind, id, user } = self;
        write!(f, "UPID:{node}:{pid:08X}:{pstart:08X}:{starttime:08X}:{kind}:{id}:{user}:")
    }
}

impl Upid {
    /// Parses a UPID; none if it does not follow the grammar (book: proxmox, section 5).
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("UPID:")?.strip_suffix(':')?;
        let parts: Vec<&str> = rest.split(':').collect();
        let [node, pid, pstart, starttime, kind, id, user] = parts.as_slice() else {
            return None;
        };
        let hex = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
            let valid = text.bytes().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(&b));
            (lengths.contains(&text.len()) && valid)
                .then(|| u64::from_str_radix(text, 16).ok())
                .flatten()
        };
        let is_node_name = !node.is_empty()
            && node.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !node.starts_with('-')
            && !node.ends_with('-');
        let is_word = |text: &str| !text.contains(['/', ' ', '\t', '\n']);
        if !is_node_name
            || kind.is_empty()
            || user.is_empty()
            || ![kind, id, user].iter().all(|t| is_word(t))
        {
            return None;
        }
        Some(Self {
            node: (*node).to_owned(),
            pid: u32::try_from(hex(pid, 8..=8)?).ok()?,
            pstart: hex(pstart, 8..=9)?,
            starttime: hex(starttime, 8..=8)?,
            kind: (*kind).to_owned(),
            id: (*id).to_owned(),
            user: (*user).to_owned(),
        })
    }

    /// The user without the token id, and the token id.
    pub(crate) fn user_and_token(&self) -> (&str, Option<&str>) {
        match self.user.split_once('!') {
            Some((user, token)) => (user, Some(token)),
            None => (&self.user, None),
        }
    }

    /// The fields that all representations of a task have.
    pub(crate) fn common_fields(&self) -> Value {
        let (user, token) = self.user_and_token();
        let mut fields = json!({
            "upid": self.to_string(), "node": self.node, "pid": self.pid, "pstart": self.pstart,
            "starttime": self.starttime, "type": self.kind, "id": self.id, "user": user,
        });
        if let Some(token) = token {
            fields["tokenid"] = token.into();
        }
        fields
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskEnd {
    pub(crate) time: u64,
    /// `OK`, `WARNINGS: n`, `unexpected status` or the error.
    pub(crate) status: String,
}

/// A running or finished task.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) upid: Upid,
    /// The lines of the log.
    pub(crate) log: Vec<String>,
    /// The number of warnings in the log.
    pub(crate) warnings: u32,
    /// How the task ended; none while it runs.
    pub(crate) end: Option<TaskEnd>,
    /// The signals of its worker.
    pub(crate) signals: Arc<WorkerSignals>,
    /// The result of [`Task::cluster_list_json`], cached until the task ends, since every list of
    /// the cluster shows it.
    cluster_json: OnceCell<String>,
}

impl Task {
    /// A task that has just been forked.
    pub(crate) fn new(upid: Upid, signals: Arc<WorkerSignals>) -> Self {
        Self {
            upid,
            log: Vec::new(),
            warnings: 0,
            end: None,
            signals,
            cluster_json: OnceCell::new(),
        }
    }

    /// The task in `GET …/status`.
    pub(crate) fn status_json(&self) -> Value {
        let mut fields = self.upid.common_fields();
        match &self.end {
            None => fields["status"] = "running".into(),
            Some(end) => {
                fields["status"] = "stopped".into();
                fields["exitstatus"] = end.status.clone().into();
            }
        }
        fields
    }

    /// The task in the list of a node.
    pub(crate) fn node_list_json(&self) -> Value {
        let mut fields = self.upid.common_fields();
        match &self.end {
            None => fields["status"] = "RUNNING".into(),
            Some(end) => {
                fields["status"] = end.status.clone().into();
                fields["endtime"] = end.time.into();
            }
        }
        fields
    }

    /// A running task in the list of active tasks: `user` contains the token id, and `saved` says
    /// that it is not in the archive (pve-manager, Tasks.pm:229; pve-common, INotify.pm,
    /// read_active_workers).
    pub(crate) fn active_list_json(&self) -> Value {
        let mut fields = self.node_list_json();
        fields["user"] = self.upid.user.clone().into();
        fields["saved"] = "0".into();
        if let Some(fields) = fields.as_object_mut() {
            fields.remove("tokenid");
        }
        fields
    }

    /// The task in the list of the cluster, as JSON text. A running task has no status there, a
    /// finished one has no process id (pve-common, RESTEnvironment.pm, active_workers).
    pub(crate) fn cluster_list_json(&self) -> &str {
        self.cluster_json.get_or_init(|| {
            let mut fields = self.upid.common_fields();
            if let Some(fields) = fields.as_object_mut() {
                fields.remove("pstart");
                if self.end.is_some() {
                    fields.remove("pid");
                }
            }
            if let Some(end) = &self.end {
                fields["status"] = end.status.clone().into();
                fields["endtime"] = end.time.into();
                fields["saved"] = "1".into();
            }
            fields.to_string()
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tasks {
    all: BTreeMap<String, Task>,
    running: BTreeMap<String, Vec<String>>,
    finished: BTreeMap<String, VecDeque<String>>,
}

impl Tasks {
    /// Adds a running task.
    pub(crate) fn add(&mut self, task: Task) {
        let name = task.upid.to_string();
        self.running.entry(task.upid.node.clone()).or_default().push(name.clone());
        self.all.insert(name, task);
    }

    pub(crate) fn get(&self, upid: &str) -> Option<&Task> {
        self.all.get(upid)
    }

    /// Appends to the log of a task; each newline starts a new line.
    pub(crate) fn log(&mut self, upid: &str, text: &str) {
        if let Some(task) = self.all.get_mut(upid) {
            task.log.extend(text.trim_end_matches('\n').split('\n').map(str::to_owned));
        }
    }

    /// Appends a warning to the log of a task and counts it.
    pub(crate) fn warn(&mut self, upid: &str, text: &str) {
        self.log(upid, &format!("WARN: {text}"));
        if let Some(task) = self.all.get_mut(upid) {
            task.warnings += 1;
        }
    }

    /// Ends a task with the result of its worker; the last line of the log states it.
    pub(crate) fn finish(&mut self, upid: &str, outcome: Result<(), String>, time: u64) {
        let warnings = self.all.get(upid).map_or(0, |task| task.warnings);
        let (line, status) = match outcome {
            Ok(()) if warnings > 0 => {
                (format!("TASK WARNINGS: {warnings}"), format!("WARNINGS: {warnings}"))
            }
            Ok(()) => ("TASK OK".to_owned(), "OK".to_owned()),
            Err(error) => {
                let error = error.trim_end().replace('\n', " ");
                (format!("TASK ERROR: {error}"), error)
            }
        };
        if self.close(upid, TaskEnd { time, status }) {
            self.log(upid, &line);
        }
    }

    /// Ends a killed task: without a last line, the status is unknown.
    pub(crate) fn mark_killed(&mut self, upid: &str, time: u64) {
        self.close(upid, TaskEnd { time, status: "unexpected status".into() });
    }

    fn close(&mut self, upid: &str, end: TaskEnd) -> bool {
        let Some(task) = self.all.get_mut(upid) else { return false };
        if task.end.is_some() {
            return false;
        }
        task.end = Some(end);
        task.cluster_json = OnceCell::new();
        task.signals.mark_ended();
        let node = task.upid.node.clone();
        if let Some(running) = self.running.get_mut(&node) {
            running.retain(|name| name != upid);
        }
        let finished = self.finished.entry(node).or_default();
        finished.push_front(upid.to_owned());
        if finished.len() > MAX_KEPT_FINISHED
            && let Some(oldest) = finished.pop_back()
        {
            self.all.remove(&oldest);
        }
        true
    }

    /// Running tasks of a node, newest first.
    pub(crate) fn running(&self, node: &str) -> impl Iterator<Item = &Task> {
        let names = self.running.get(node).map(Vec::as_slice).unwrap_or_default();
        names.iter().rev().filter_map(|name| self.all.get(name))
    }

    /// Finished tasks in the list of a node, the last one first.
    pub(crate) fn finished(&self, node: &str) -> impl Iterator<Item = &Task> {
        let names = self.finished.get(node).into_iter().flatten().take(MAX_LISTED_FINISHED);
        names.filter_map(|name| self.all.get(name))
    }

    /// The tasks that a node broadcasts: running ones, then finished ones.
    pub(crate) fn recent(&self, node: &str) -> Vec<&Task> {
        let mut tasks: Vec<&Task> = self.running(node).collect();
        let room = CLUSTER_LIST_LEN.saturating_sub(tasks.len());
        tasks.extend(self.finished(node).take(room));
        tasks
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    // Invariant (book: proxmox, section 23, item 1): the grammar of UPIDs.

    #[test]
    fn a_recorded_upid_is_read_and_written_alike() {
        let text = "UPID:pve1:000005DC:000BE63D:6B015B82:qmstart:180:ci@pve!limited:";
        let upid = Upid::parse(text).unwrap();
        assert_eq!((upid.pid, upid.starttime), (1500, 1_795_251_074));
        assert_eq!(upid.user_and_token(), ("ci@pve", Some("limited")));
        assert_eq!(upid.to_string(), text);
    }

    #[test]
    fn names_that_are_no_upid_are_refused() {
        for text in [
            "nope",
            "UPID:pve1:x:",
            "UPID:pve1:000005DC:000BE63D:6B015B82:qmstart:180:ci@pve",
            "UPID:-pve:000005DC:000BE63D:6B015B82:qmstart:180:ci@pve:",
            "UPID:pve1:5DC:000BE63D:6B015B82:qmstart:180:ci@pve:",
            "UPID:pve1:000005DC:000BE63D:6B015B82::180:ci@pve:",
        ] {
            assert_eq!(Upid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_empty_id_is_part_of_the_grammar() {
        assert!(Upid::parse("UPID:a:00000001:000000001:00000001:imgcopy::root@pam:").is_some());
    }
}
