//! Tasks of a guest that is gone, and the calls about it, for people who look for what went wrong.
//!
//! Proxmox keeps the list and the logs of tasks after the guest. So nothing waits for this: it is read when the
//! agent is gone.

use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::{CloudId, NodeName, VmId};
use drover_model::time::WallTime;
use proxmox_client::PveError;
use proxmox_client::refusal::bounded;
use proxmox_client::types::TaskRow;
use proxmox_client::upid::task_kind;

use crate::client::Client;
use crate::guest;
use crate::proxmox::Proxmox;
use crate::recent_calls::GuestCall;

/// Lines of a log that are read: the last ones.
const LOG_LINES_MAX: usize = 100;
/// The most seconds by which the clock of a node may be behind.
const CLOCK_DIFFERENCE_SECS: u64 = 300;
/// Logs that are read of one guest.
const LOGS_MAX: usize = 8;
/// The task that makes a guest. It counts for the guest that the clone was made from.
const CLONE: &str = "qmclone";

/// A task of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestTask {
    pub upid: String,
    /// Such as `qmstart`.
    pub kind: String,
    /// `OK`, or what went wrong; none while it runs.
    pub status: Option<String>,
    /// The end of its log; empty for one that went well.
    pub log: Vec<String>,
}

impl Proxmox {
    /// The last calls about a guest that ended within this span, the oldest first; none where the cloud is
    /// not configured.
    pub fn guest_calls(&self, cloud: &CloudId, vmid: VmId, span: Duration) -> Vec<GuestCall> {
        let cloud = self.cloud(cloud);
        cloud.map_or_else(|_| Vec::new(), |cloud| cloud.calls_about(vmid, span))
    }

    /// The end of a log of a guest, as its guest agent reads it; none where the guest agent does not answer,
    /// or may not be asked, or the guest has no such log.
    pub async fn guest_log(
        &self,
        cloud: &CloudId,
        (node, vmid): (&NodeName, VmId),
    ) -> Option<String> {
        let client = self.cloud(cloud).ok()?.client.newest();
        guest::log(&client, node, vmid).await
    }

    /// The tasks of a guest on this node since then, in their order, with the logs of those that failed. Its
    /// clone is among them where it failed and its log names the guest.
    ///
    /// # Errors
    /// What the list says, or that the cloud is not configured. A log that cannot be read is empty.
    pub async fn guest_tasks(
        &self,
        cloud: &CloudId,
        (node, vmid): (&NodeName, VmId),
        since: WallTime,
    ) -> Result<Vec<GuestTask>, Fault> {
        let cloud = self.cloud(cloud)?;
        let client = cloud.client.newest();
        let since = u64::try_from(since.0 / 1000).unwrap_or_default();
        let since = since.saturating_sub(CLOCK_DIFFERENCE_SECS);
        let fault = |error: PveError| client.fault(&error);
        let mut rows = client.tasks_of_guest(node.as_str(), vmid.0, since).await.map_err(fault)?;
        // The newest come first.
        rows.reverse();
        let rows = of_last_guest(rows);
        let mut tasks = Vec::new();
        for row in client.failed_tasks(node.as_str(), CLONE, since).await.map_err(fault)? {
            let task = read(&client, row).await;
            if task.log.iter().any(|line| names(line, vmid)) {
                tasks.push(task);
            }
        }
        let mut logs = LOGS_MAX;
        for row in rows {
            let reads = logs > 0 && !went_well(&row);
            logs -= usize::from(reads);
            tasks.push(if reads { read(&client, row).await } else { unread(row) });
        }
        Ok(tasks)
    }
}

/// The rows without those of an earlier guest that had the VMID: it was destroyed before.
fn of_last_guest(mut rows: Vec<TaskRow>) -> Vec<TaskRow> {
    let is_destroy = |row: &TaskRow| matches!(task_kind(&row.upid), "qmdestroy" | "vzdestroy");
    let before_last = rows.len().saturating_sub(1);
    match rows[..before_last].iter().rposition(is_destroy) {
        Some(at) => rows.split_off(at + 1),
        None => rows,
    }
}

fn went_well(row: &TaskRow) -> bool {
    row.endtime.is_none() || row.status.as_deref() == Some("OK")
}

fn unread(TaskRow { upid, endtime, status }: TaskRow) -> GuestTask {
    let kind = task_kind(&upid).to_owned();
    GuestTask { upid, kind, status: status.filter(|_| endtime.is_some()), log: Vec::new() }
}

async fn read(client: &Client, row: TaskRow) -> GuestTask {
    let lines = client.task_log(&row.upid).await.unwrap_or_default();
    let skipped = lines.len().saturating_sub(LOG_LINES_MAX);
    let log = lines.iter().skip(skipped).map(|line| bounded(&line.t)).collect();
    GuestTask { log, ..unread(row) }
}

/// Whether a text has the number of a guest, and not as a part of another number.
fn names(line: &str, vmid: VmId) -> bool {
    line.split(|c: char| !c.is_ascii_digit()).any(|number| number == vmid.0.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str) -> TaskRow {
        let upid = format!("UPID:pve1:00000001:00000002:65600000:{kind}:10417:drover@pve:");
        TaskRow { upid, endtime: Some(1), status: Some("OK".to_owned()) }
    }

    // Invariant: tasks of another guest that had the same VMID are not shown as this guest's.

    #[test]
    fn what_came_before_an_earlier_destroy_is_of_an_earlier_guest() {
        for (kinds, kept) in [
            (vec!["qmstart", "qmdestroy", "qmstart", "qmstop", "qmdestroy"], 3),
            (vec!["qmstart", "qmdestroy"], 2),
            (vec!["qmdestroy", "qmstart"], 1),
            (vec!["qmdestroy"], 1),
            (vec![], 0),
        ] {
            let rows = kinds.iter().map(|kind| row(kind)).collect();
            assert_eq!(of_last_guest(rows).len(), kept, "{kinds:?}");
        }
    }

    #[test]
    fn a_log_names_a_guest_by_its_whole_number_alone() {
        assert!(names("clone failed: 'vm-10417-disk-0' exists", VmId(10_417)));
        for other in ["vm-104170-disk-0", "vm-1041-disk-7", "no number"] {
            assert!(!names(other, VmId(10_417)), "{other}");
        }
    }
}
