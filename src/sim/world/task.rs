//! Tasks as records: UPIDs, logs, exit statuses and the lists they stand in.
//!
//! What a task does is not here; see the worker that runs it.

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use super::worker::Control;

/// Finished tasks of one node that are still listed.
const LISTED: usize = 2_000;
/// Finished tasks of one node whose records are kept.
const KEPT: usize = 20_000;
/// Entries of a node in the cluster's list, running ones included (behaviour section 5).
const RECENT: usize = 25;

/// A task's unique name in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upid {
    /// The node it runs on.
    pub node: String,
    /// Its process.
    pub pid: u32,
    /// The process's start in ticks since boot.
    pub pstart: u64,
    /// Unix seconds of the start.
    pub starttime: u64,
    /// What it does, such as `qmclone`.
    pub kind: String,
    /// What it does it to; may be empty.
    pub id: String,
    /// `user@realm` or `user@realm!token`.
    pub user: String,
}

impl std::fmt::Display for Upid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, pid, pstart, starttime, kind, id, user } = self;
        write!(f, "UPID:{node}:{pid:08X}:{pstart:08X}:{starttime:08X}:{kind}:{id}:{user}:")
    }
}

impl Upid {
    /// Parses a UPID; none when it does not follow the grammar of behaviour section 5.
    pub fn parse(text: &str) -> Option<Self> {
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
        let name = !node.is_empty()
            && node.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !node.starts_with('-')
            && !node.ends_with('-');
        let word = |text: &str| !text.contains(['/', ' ', '\t', '\n']);
        if !name || kind.is_empty() || user.is_empty() || ![kind, id, user].iter().all(|t| word(t))
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

    /// The user without the token, and the token.
    pub fn user_and_token(&self) -> (&str, Option<&str>) {
        match self.user.split_once('!') {
            Some((user, token)) => (user, Some(token)),
            None => (&self.user, None),
        }
    }

    /// The fields that every view of a task has.
    pub fn fields(&self) -> Value {
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

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Unix seconds.
    pub time: u64,
    /// `OK`, `WARNINGS: n`, `unexpected status` or the error.
    pub status: String,
}

/// A task, running or ended.
#[derive(Debug)]
pub struct Task {
    /// Its name.
    pub upid: Upid,
    /// Its log, a line each.
    pub log: Vec<String>,
    /// How many of them are warnings.
    pub warnings: u32,
    /// Its end, once it has one.
    pub end: Option<End>,
    /// How it is signalled.
    pub control: Arc<Control>,
    /// [`Task::recent`], kept until the task ends: every look at the cluster's list shows it.
    shown: OnceCell<String>,
}

impl Task {
    /// A task that has just been forked.
    pub fn new(upid: Upid, control: Arc<Control>) -> Self {
        Self { upid, log: Vec::new(), warnings: 0, end: None, control, shown: OnceCell::new() }
    }

    /// The task as `GET …/status` shows it.
    pub fn status(&self) -> Value {
        let mut fields = self.upid.fields();
        match &self.end {
            None => fields["status"] = "running".into(),
            Some(end) => {
                fields["status"] = "stopped".into();
                fields["exitstatus"] = end.status.clone().into();
            }
        }
        fields
    }

    /// The task as a node's list shows it.
    pub fn listed(&self) -> Value {
        let mut fields = self.upid.fields();
        match &self.end {
            None => fields["status"] = "RUNNING".into(),
            Some(end) => {
                fields["status"] = end.status.clone().into();
                fields["endtime"] = end.time.into();
            }
        }
        fields
    }

    /// A running task as a node's list of active ones shows it: the user is whole there, and
    /// `saved` says that the archive has it not (pve-manager, Tasks.pm:229; pve-common,
    /// INotify.pm, read_active_workers).
    pub fn active(&self) -> Value {
        let mut fields = self.listed();
        fields["user"] = self.upid.user.clone().into();
        fields["saved"] = "0".into();
        if let Some(fields) = fields.as_object_mut() {
            fields.remove("tokenid");
        }
        fields
    }

    /// The task as the cluster's list shows it, as JSON text: a running one has no status there,
    /// and an ended one no process (pve-common, RESTEnvironment.pm, active_workers).
    pub fn recent(&self) -> &str {
        self.shown.get_or_init(|| {
            let mut fields = self.upid.fields();
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

/// All tasks of a world.
#[derive(Debug, Default)]
pub struct Tasks {
    all: BTreeMap<String, Task>,
    running: BTreeMap<String, Vec<String>>,
    finished: BTreeMap<String, VecDeque<String>>,
}

impl Tasks {
    /// Enters a task that has just been forked.
    pub fn begin(&mut self, task: Task) {
        let name = task.upid.to_string();
        self.running.entry(task.upid.node.clone()).or_default().push(name.clone());
        self.all.insert(name, task);
    }

    /// A task by its UPID.
    pub fn get(&self, upid: &str) -> Option<&Task> {
        self.all.get(upid)
    }

    /// Adds a line to a task's log; more lines when it has newlines in it.
    pub fn log(&mut self, upid: &str, text: &str) {
        if let Some(task) = self.all.get_mut(upid) {
            task.log.extend(text.trim_end_matches('\n').split('\n').map(str::to_owned));
        }
    }

    /// Adds a warning.
    pub fn warn(&mut self, upid: &str, text: &str) {
        self.log(upid, &format!("WARN: {text}"));
        if let Some(task) = self.all.get_mut(upid) {
            task.warnings += 1;
        }
    }

    /// Ends a task by what its worker returned; its last line says how.
    pub fn finish(&mut self, upid: &str, outcome: Result<(), String>, time: u64) {
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
        if self.close(upid, End { time, status }) {
            self.log(upid, &line);
        }
    }

    /// Ends a task that was killed: no last line, so the status is unknown.
    pub fn die(&mut self, upid: &str, time: u64) {
        self.close(upid, End { time, status: "unexpected status".into() });
    }

    fn close(&mut self, upid: &str, end: End) -> bool {
        let Some(task) = self.all.get_mut(upid) else { return false };
        if task.end.is_some() {
            return false;
        }
        task.end = Some(end);
        task.shown = OnceCell::new();
        task.control.ended();
        let node = task.upid.node.clone();
        if let Some(running) = self.running.get_mut(&node) {
            running.retain(|name| name != upid);
        }
        let finished = self.finished.entry(node).or_default();
        finished.push_front(upid.to_owned());
        if finished.len() > KEPT
            && let Some(oldest) = finished.pop_back()
        {
            self.all.remove(&oldest);
        }
        true
    }

    /// Running tasks of a node, the newest first.
    pub fn running(&self, node: &str) -> impl Iterator<Item = &Task> {
        let names = self.running.get(node).map(Vec::as_slice).unwrap_or_default();
        names.iter().rev().filter_map(|name| self.all.get(name))
    }

    /// Listed finished tasks of a node, the last ended first.
    pub fn finished(&self, node: &str) -> impl Iterator<Item = &Task> {
        let names = self.finished.get(node).into_iter().flatten().take(LISTED);
        names.filter_map(|name| self.all.get(name))
    }

    /// What a node tells the cluster: its running tasks, filled up with finished ones.
    pub fn recent(&self, node: &str) -> Vec<&Task> {
        let mut tasks: Vec<&Task> = self.running(node).collect();
        let room = RECENT.saturating_sub(tasks.len());
        tasks.extend(self.finished(node).take(room));
        tasks
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    // Invariant: section 23 item 1, the grammar of UPIDs.

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
