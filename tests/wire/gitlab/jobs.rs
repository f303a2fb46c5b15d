//! What runners call: a job is asked for, and reported.
//!
//! It follows gitlab-runner 19.4.0 at d79f3e7b89ab (`common/network.go`, `network/gitlab.go`) and GitLab's own
//! source (gitlabhq/gitlabhq: `lib/api/ci/runner.rb` at 027f19b39c73, and of `app/services/ci`
//! `append_build_trace_service.rb` at 0c872e02b2c8 and `update_build_state_service.rb` at 01afc4b887e4). It is
//! stricter in this: the end of a part's range must be right, and a runner that has sent another log than it
//! says at its end is refused.

use serde_json::{Value, json};

use super::GitLab;
use crate::ci::{Job, Reply, Request};

/// The type of a log's parts.
const PLAIN: &str = "text/plain";

/// Whether this is what a runner says of itself with each call.
fn is_info(info: &Value) -> bool {
    let texts = ["name", "version", "revision", "platform", "architecture", "executor", "shell"];
    let features = info["features"].as_object();
    texts.iter().all(|name| info[name].is_string())
        && features.is_some_and(|all| all.values().all(Value::is_boolean))
}

impl GitLab {
    /// What a runner asks for.
    pub(super) fn request(&mut self, request: &Request) -> Reply {
        let body = request.json();
        let needed = ["token", "info", "system_id"];
        self.core.fields(&body, &needed, &["last_update", "session"]);
        let token = body["token"].as_str().unwrap_or_default().to_owned();
        if request.header("runner-token") != token || !is_info(&body["info"]) {
            return self.core.complain(format!("no runner asks for jobs by {body}"));
        }
        let Some(row) = self.core.caller(&token) else { return Reply::empty(403) };
        let fits = |job: &Job| match job.labels.as_slice() {
            [] => row.labels.contains(&String::new()),
            tags => tags.iter().all(|tag| row.labels.contains(tag)),
        };
        let Some(job) = self.core.take(&row, fits) else {
            return Reply::empty(204).with("X-GitLab-Last-Update", "1");
        };
        let steps = json!([{ "name": "script", "script": [job.run], "timeout": 3600 }]);
        let info = json!({ "name": job.name, "project_id": 11 });
        let token = format!("job-{}", job.id);
        Reply::json(201, &json!({ "id": job.id, "token": token, "job_info": info, "steps": steps }))
    }

    /// What a runner reports of its job.
    pub(super) fn reported(&mut self, request: &Request, id: &str) -> Reply {
        let token = format!("job-{id}");
        if request.header("job-token") != token {
            return self.core.complain(format!("job {id} is reported without its token"));
        }
        let id: u64 = id.parse().unwrap();
        if request.method == "PATCH" {
            return self.appended(request, id);
        }
        let body = request.json();
        let more = ["checksum", "failure_reason", "exit_code"];
        self.core.fields(&body, &["info", "token", "state", "output"], &more);
        let job = self.core.jobs.iter().find(|job| job.id == id).unwrap();
        let whole = body["output"]["bytesize"].as_u64().unwrap_or(0) == job.log.len() as u64;
        let well = body["token"] == token && is_info(&body["info"]) && body["output"].is_object();
        let reason = body["failure_reason"].is_string() && body["exit_code"].is_i64();
        match body["state"].as_str() {
            Some("running") if well => {}
            Some("success") if well && whole => self.core.finish(id, true),
            Some("failed") if well && whole && reason => self.core.finish(id, false),
            _ => return self.core.complain(format!("job {id} cannot be so: {body}")),
        }
        Reply::empty(200)
    }

    /// One more part of a job's log, which says where it belongs.
    fn appended(&mut self, request: &Request, id: u64) -> Reply {
        let (part, kind) = (request.body.len(), request.header("content-type"));
        if part == 0 || kind != PLAIN {
            return self.core.complain(format!("{part} bytes of `{kind}` are no part of a log"));
        }
        let job = self.core.jobs.iter_mut().find(|job| job.id == id).unwrap();
        let start = job.log.len();
        let status = match request.header("content-range") {
            range if range == format!("{start}-{}", start + part - 1) => {
                job.log += &request.body;
                202
            }
            _ => 416,
        };
        let reply = Reply::empty(status).with("Job-Status", "running");
        reply.with("Range", format!("0-{}", job.log.len()))
    }
}
