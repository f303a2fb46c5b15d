//! What people do with one guest: power beyond start and stop, snapshots of any name, and what waits for
//! a restart (book: proxmox, sections 11, 13 and 15).

use std::time::Duration;

use crate::api::{guest, params};
use crate::client::{Client, Params};
use crate::error::PveError;
use crate::transport::{Method, encode};
use crate::types::{PendingRow, SnapshotRow};
use crate::upid::Upid;

/// The most rows that are read of a guest's snapshots or pending configuration.
const ROWS_MAX: usize = 500;

impl Client {
    async fn power(
        &self,
        node: &str,
        vmid: u32,
        verb: &str,
        how: Params,
    ) -> Result<Upid, PveError> {
        let path = guest(node, vmid, &format!("/status/{verb}"));
        self.start_task(Method::Post, &path, how).await
    }

    /// Asks a guest to shut down. The task fails where it does not within `limit`.
    pub async fn shutdown_only(
        &self,
        node: &str,
        vmid: u32,
        limit: Duration,
    ) -> Result<Upid, PveError> {
        let limit = limit.as_secs().max(1).to_string();
        self.power(node, vmid, "shutdown", params([("timeout", &limit)])).await
    }

    /// Shuts a running guest down and starts it again with its pending changes. The start comes after the
    /// end of the task.
    pub async fn reboot(&self, node: &str, vmid: u32, limit: Duration) -> Result<Upid, PveError> {
        let limit = limit.as_secs().max(1).to_string();
        self.power(node, vmid, "reboot", params([("timeout", &limit)])).await
    }

    /// Resets a running guest hard.
    pub async fn reset(&self, node: &str, vmid: u32) -> Result<Upid, PveError> {
        self.power(node, vmid, "reset", Params::new()).await
    }

    /// Lets a running guest stand still.
    pub async fn suspend(&self, node: &str, vmid: u32) -> Result<Upid, PveError> {
        self.power(node, vmid, "suspend", Params::new()).await
    }

    /// Lets a guest that stands still run on.
    pub async fn resume(&self, node: &str, vmid: u32) -> Result<Upid, PveError> {
        self.power(node, vmid, "resume", Params::new()).await
    }

    /// A guest's configuration with the changes that wait for its next start.
    pub async fn pending(&self, node: &str, vmid: u32) -> Result<Vec<PendingRow>, PveError> {
        let rows: Vec<PendingRow> = self.get(&guest(node, vmid, "/pending"), Params::new()).await?;
        Ok(rows.into_iter().take(ROWS_MAX).collect())
    }

    /// A guest's snapshots, and its present state as the row `current`.
    pub async fn snapshots(&self, node: &str, vmid: u32) -> Result<Vec<SnapshotRow>, PveError> {
        let rows: Vec<SnapshotRow> =
            self.get(&guest(node, vmid, "/snapshot"), Params::new()).await?;
        Ok(rows.into_iter().take(ROWS_MAX).collect())
    }

    /// Takes a snapshot with a description, with the memory of a running guest if `memory`.
    pub async fn take_described_snapshot(
        &self,
        node: &str,
        vmid: u32,
        name: &str,
        description: &str,
        memory: bool,
    ) -> Result<Upid, PveError> {
        let memory = if memory { "1" } else { "0" };
        let mut how = params([("snapname", name), ("vmstate", memory)]);
        if !description.is_empty() {
            how.push(("description".to_owned(), description.to_owned()));
        }
        self.start_task(Method::Post, &guest(node, vmid, "/snapshot"), how).await
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(
        &self,
        node: &str,
        vmid: u32,
        name: &str,
    ) -> Result<Upid, PveError> {
        let path = guest(node, vmid, &format!("/snapshot/{}", encode(name)));
        self.start_task(Method::Delete, &path, Params::new()).await
    }
}
