//! Writes the requests, tasks and boots of a simulated cluster to a file (`drover sim --record
//! FILE`), one JSON object a line.
//!
//! The key `what` says what a line is about:
//! - `call`: a request. `call` is its method and route, `node` the node that does the work, `guest`
//!   the VMID (for a clone the new one), `upid` the task that the call started;
//! - `task`: a task that ended;
//! - `boot`: a guest, from the start of its process until it can be reached.
//!
//! `at` is the start in seconds since the recorder's start, `took` a length in seconds.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::call::Outcome;

/// The file that a cluster writes to while it runs.
#[derive(Debug)]
pub struct Recorder {
    started: Instant,
    file: Mutex<File>,
}

/// The facts of a request that are written to the file.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: String,
    /// The path template, such as `/nodes/{node}/qemu`.
    pub route: String,
    /// The node in the path; without one, the node that took the request.
    pub node: String,
    pub guest: Option<u32>,
    /// When the request arrived.
    pub at: Instant,
}

impl Recorder {
    /// Creates the file, and replaces an existing one.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { started: Instant::now(), file: Mutex::new(File::create(path)?) })
    }

    /// Writes the line of a request that was answered, or whose connection broke.
    pub fn call(&self, request: &RecordedRequest, outcome: &Outcome) {
        let (status, upid) = match outcome {
            Ok(answer) => (200, answer.data.as_str().filter(|text| text.starts_with("UPID:"))),
            Err(error) => (error.status, None),
        };
        self.write(&json!({
            "what": "call", "call": format!("{} {}", request.method, request.route),
            "node": request.node, "guest": request.guest, "at": self.at(request.at),
            "took": seconds(request.at.elapsed()), "status": status, "upid": upid,
        }));
    }

    /// Writes the line of a task that ended; `started` is when it started.
    pub fn task(&self, upid: &str, started: Instant, status: &str) {
        self.write(&json!({
            "what": "task", "upid": upid, "at": self.at(started), "took": seconds(started.elapsed()),
            "status": status,
        }));
    }

    /// Writes the line of a guest whose process started; `reachable` is how long the guest takes
    /// from there until it can be reached.
    pub fn boot(&self, guest: u32, reachable: Option<Duration>) {
        self.write(&json!({
            "what": "boot", "guest": guest, "at": self.at(Instant::now()),
            "took": reachable.map(seconds),
        }));
    }

    fn at(&self, moment: Instant) -> f64 {
        seconds(moment.saturating_duration_since(self.started))
    }

    fn write(&self, line: &Value) {
        let mut file = self.file.lock();
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            tracing::warn!(%error, "cannot write the record");
        }
    }
}

/// Seconds rounded to the microsecond, so that lines stay short.
fn seconds(span: Duration) -> f64 {
    (span.as_secs_f64() * 1e6).round() / 1e6
}
