//! What agents call, and which workflow each is given.
//!
//! It follows Woodpecker 3.17.0 at a4cb541b82de: `server/rpc/rpc.go` and `auth_server.go` (the calls),
//! `server/scheduler/filter.go` (what fits an agent) and `server/queue/fifo.go` (what may begin). It is looser
//! in this: the first agent that asks is given what fits it, and not the one that fits best.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Woodpecker, labels};
use crate::ci::{Job, Reply, Request, Row, Stand};

/// The versions of the agents' protocol (`rpc/proto/version.go`) and of the server.
const PROTOCOL: u32 = 16;
const SERVER: &str = "3.17.0";
/// What the label of an agent begins with which its workflows must have.
const REQUIRED: char = '!';

/// How well an agent with these labels fits a workflow; none where it does not.
fn score(job: &Job, own: &BTreeMap<String, String>) -> Option<u32> {
    let labels = labels(job);
    for (name, value) in own {
        if let Some(name) = name.strip_prefix(REQUIRED)
            && labels.get(name) != Some(value)
        {
            return None;
        }
    }
    let counts = |(name, value): &(&String, &String)| {
        !value.is_empty() && !name.starts_with("woodpecker-ci.org")
    };
    let mut score = 0;
    for (name, value) in labels.iter().filter(counts) {
        let agents = own.get(name).or_else(|| own.get(&format!("{REQUIRED}{name}")))?;
        score += match agents.as_str() {
            "*" => 1,
            text if text == value => 10,
            _ => return None,
        };
    }
    Some(score)
}

impl Woodpecker {
    /// What stands for gRPC.
    pub(super) fn agent(&mut self, request: &Request, what: &str) -> Reply {
        let secret = request.header("x-agent-secret").to_owned();
        let body = request.json();
        let known = self.core.rows.iter().find(|row| row.secret == secret).cloned();
        let Some(row) = known else { return Reply::empty(403) };
        match what {
            "auth" if body["agent_id"].is_i64() => Reply::json(200, &json!({ "agent_id": row.id })),
            "version" => {
                Reply::json(200, &json!({ "grpc_version": PROTOCOL, "server_version": SERVER }))
            }
            "register" => self.register(&row, &body),
            "next" | "done" | "log" if !self.registered.contains(&row.id) => {
                self.core.complain(format!("{} calls {what} before it registers", row.name))
            }
            "next" => self.next(&row, &body),
            "done" => {
                let id = body["id"].as_u64().unwrap();
                self.core.finish(id, body["good"] == true);
                Reply::empty(204)
            }
            // Lines come after the end of their workflow, too (`allowAppendingLogs`).
            "log" => {
                let id = body["id"].as_u64().unwrap();
                let job = self.core.jobs.iter_mut().find(|job| job.id == id).unwrap();
                job.log += body["lines"].as_str().unwrap();
                Reply::empty(204)
            }
            // It has a token of its own, and stays.
            "unregister" => Reply::empty(204),
            _ => self.core.complain(format!("no agent calls {what} with {body}")),
        }
    }

    /// An agent says what it is, and is in contact from then on.
    fn register(&mut self, row: &Row, body: &Value) -> Reply {
        let needed = ["version", "backend", "platform", "capacity", "custom_labels"];
        self.core.fields(body, &needed, &[]);
        let custom = body["custom_labels"].as_object();
        let labelled = custom.is_some_and(|all| all.values().all(Value::is_string));
        // One that took two would be given a second workflow on the same machine.
        if body["capacity"] != 1 || body["backend"] != "local" || !labelled {
            return self
                .core
                .complain(format!("{} is no agent for one workflow: {body}", row.name));
        }
        self.core.caller(&row.secret);
        self.registered.insert(row.id);
        Reply::empty(204)
    }

    /// An agent asks for a workflow.
    fn next(&mut self, row: &Row, body: &Value) -> Reply {
        self.core.caller(&row.secret);
        let own: Option<BTreeMap<String, String>> =
            serde_json::from_value(body["labels"].clone()).ok();
        let Some(mut own) = own.filter(|own| own.get("hostname") == Some(&row.name)) else {
            return self.core.complain(format!("{} calls with {body}", row.name));
        };
        // The server's word counts: this agent is of no one organisation.
        own.insert("org-id".to_owned(), "*".to_owned());
        let fits = |job: &&Job| score(job, &own).is_some_and(|score| score > 0);
        let may = self.core.jobs.iter().filter(|job| self.may_begin(job)).filter(fits);
        let may: BTreeSet<u64> = may.map(|job| job.id).collect();
        match self.core.take(row, |job| may.contains(&job.id)) {
            Some(job) => Reply::json(200, &json!({ "id": job.id, "run": job.run })),
            None => Reply::empty(204),
        }
    }

    /// Whether a workflow's group has a place for it beside what runs, and what is of earlier pipelines:
    /// here each is of a pipeline of its own, which the numbers order.
    fn may_begin(&self, job: &Job) -> bool {
        let takes_place = |other: &&Job| match other.stand {
            Stand::Runs(_) => true,
            Stand::Waits | Stand::Held(_) => other.id < job.id,
            Stand::Done(..) => false,
        };
        let taken = self.core.jobs.iter().filter(takes_place).count();
        !self.paused && (self.limit == 0 || taken < self.limit)
    }
}
