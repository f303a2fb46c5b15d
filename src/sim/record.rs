//! What a simulated cluster was asked for and how long its own work took, line by line
//! (`drover sim --record FILE`).
//!
//! One JSON object a line. `call` is a request with its route, `node` the node that does its work,
//! `guest` the VMID it is about (a clone's new one), `upid` the task it began; `task` is a task that ended, `boot` a guest from the
//! start of its process to the moment it can be reached. `at` is the beginning in seconds since the
//! simulator's, `took` a length in seconds.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Outcome;

/// A file that is written to while a cluster is played.
#[derive(Debug)]
pub struct Record {
    begun: Instant,
    file: Mutex<File>,
}

/// A request, as far as it is written down.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// Its route, with names in place of what the path gives.
    pub route: String,
    /// The node that it is about, or that took it.
    pub node: String,
    /// The VMID it is about.
    pub guest: Option<u32>,
    /// When it came.
    pub at: Instant,
}

impl Record {
    /// Begins a file, in place of one that stands there.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { begun: Instant::now(), file: Mutex::new(File::create(path)?) })
    }

    /// A request was answered, or broke.
    pub fn call(&self, asked: &Asked, outcome: &Outcome) {
        let (status, upid) = match outcome {
            Ok(answer) => (200, answer.data.as_str().filter(|text| text.starts_with("UPID:"))),
            Err(error) => (error.status, None),
        };
        self.write(&json!({
            "what": "call", "call": format!("{} {}", asked.method, asked.route), "node": asked.node,
            "guest": asked.guest, "at": self.at(asked.at), "took": seconds(asked.at.elapsed()),
            "status": status, "upid": upid,
        }));
    }

    /// A task ended.
    pub fn task(&self, upid: &str, began: Instant, status: &str) {
        self.write(&json!({
            "what": "task", "upid": upid, "at": self.at(began), "took": seconds(began.elapsed()),
            "status": status,
        }));
    }

    /// A guest's process began; `reachable` is how long the guest takes from there.
    pub fn boot(&self, guest: u32, reachable: Option<Duration>) {
        self.write(&json!({
            "what": "boot", "guest": guest, "at": self.at(Instant::now()),
            "took": reachable.map(seconds),
        }));
    }

    fn at(&self, moment: Instant) -> f64 {
        seconds(moment.saturating_duration_since(self.begun))
    }

    fn write(&self, line: &Value) {
        let mut file = self.file.lock();
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            tracing::warn!(%error, "the record cannot be written");
        }
    }
}

/// To the microsecond, so that lines stay short.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e6
}
