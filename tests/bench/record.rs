//! What the simulator wrote down: its own delays for each guest, and the calls it was asked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A file that `drover sim --record` writes.
pub struct Record {
    path: PathBuf,
}

/// A line of it.
#[derive(Debug, Deserialize)]
#[serde(tag = "what", rename_all = "camelCase")]
enum Line {
    Call { call: String, guest: Option<u32>, at: f64, took: f64, upid: Option<String> },
    Task { upid: String, took: f64 },
    Boot { guest: u32, took: Option<f64> },
}

/// A piece of the record, between two marks.
pub struct Piece {
    lines: Vec<Line>,
}

impl Record {
    /// The record at a path.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The end of what is written so far, in bytes.
    pub fn mark(&self) -> usize {
        std::fs::metadata(&self.path).unwrap().len() as usize
    }

    /// Everything from a mark on.
    pub fn since(&self, mark: usize) -> Piece {
        let text = std::fs::read_to_string(&self.path).unwrap();
        let whole = text[mark..].rfind('\n').map_or(mark, |end| mark + end);
        let parse = |line: &str| serde_json::from_str(line).unwrap();
        Piece { lines: text[mark..whole].lines().map(parse).collect() }
    }
}

/// Routes that are read for all guests at once.
fn is_shared(call: &str) -> bool {
    ["GET /cluster/tasks", "GET /nodes/{node}/tasks", "GET /cluster/resources"].contains(&call)
}

impl Piece {
    /// Seconds of the cluster's own work for each guest until it could be reached: the calls that
    /// change something, the tasks they began, and the boot.
    pub fn own_delays(&self) -> BTreeMap<u32, f64> {
        let tasks: BTreeMap<&str, f64> = self
            .lines
            .iter()
            .filter_map(|line| match line {
                Line::Task { upid, took } => Some((upid.as_str(), *took)),
                Line::Call { .. } | Line::Boot { .. } => None,
            })
            .collect();
        let mut delays: BTreeMap<u32, f64> = BTreeMap::new();
        for line in &self.lines {
            match line {
                Line::Call { call, guest: Some(guest), took, upid, .. }
                    if !call.starts_with("GET ") =>
                {
                    let task = upid.as_deref().and_then(|upid| tasks.get(upid));
                    *delays.entry(*guest).or_default() += took + task.unwrap_or(&0.0);
                }
                Line::Boot { guest, took } => {
                    *delays.entry(*guest).or_default() += took.unwrap_or_default();
                }
                Line::Call { .. } | Line::Task { .. } => {}
            }
        }
        delays
    }

    /// How often each route was called.
    pub fn calls(&self) -> BTreeMap<&str, u32> {
        let mut calls = BTreeMap::new();
        for line in &self.lines {
            if let Line::Call { call, .. } = line {
                *calls.entry(call.as_str()).or_default() += 1;
            }
        }
        calls
    }

    /// Calls for all guests at once, and all others.
    pub fn shared_and_own(&self) -> (u32, u32) {
        let calls = self.calls();
        let shared = calls.iter().filter(|(call, _)| is_shared(call)).map(|(_, n)| n).sum();
        let all: u32 = calls.values().sum();
        (shared, all - shared)
    }

    /// Questions for an address that came too early, and had to be asked again.
    pub fn asked_again(&self) -> u32 {
        let ask = "GET /nodes/{node}/qemu/{vmid}/agent/network-get-interfaces";
        let mut asked: BTreeMap<u32, u32> = BTreeMap::new();
        for line in &self.lines {
            if let Line::Call { call, guest: Some(guest), .. } = line
                && call == ask
            {
                *asked.entry(*guest).or_default() += 1;
            }
        }
        asked.values().map(|count| count - 1).sum()
    }

    /// Prints how often each route was called, for each of so many.
    pub fn print_calls(&self, among: f64) {
        for (call, count) in self.calls() {
            println!("    {:>8.2}  {call}", f64::from(count) / among);
        }
    }

    /// Seconds from the first call to the last.
    pub fn span(&self) -> f64 {
        let times = self.lines.iter().filter_map(|line| match line {
            Line::Call { at, .. } => Some(*at),
            Line::Task { .. } | Line::Boot { .. } => None,
        });
        let (first, last) =
            times.fold((f64::MAX, 0.0_f64), |(first, last), at| (first.min(at), last.max(at)));
        (last - first).max(0.0)
    }
}
