//! Which agents have a workflow by the server's database.
//!
//! The queue alone does not show that a workflow is over: a restarted server forgets which
//! workflows run (`Poll` of `server/queue/persistent.go`, 3.17, takes each out of what is stored),
//! while their agents run them to their end. The database has pipelines and workflows, each
//! workflow with its agent (`server/model/workflow.go`).

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Agent, Task};
use crate::error::DemandError;
use crate::http::Http;

/// An agent with a workflow reports it every 20 s, and the server updates `last_work` at most once
/// a minute (`updateAgentLastWork` of `server/rpc/rpc.go`, 3.17). An agent with an older date has
/// none.
const WORK_MAX_AGE_SECS: i64 = 120;
/// The most running pipelines that are asked for one by one.
const PIPELINES_MAX: usize = 50;

/// A pipeline that waits or runs, of `GET /api/pipelines`.
#[derive(Deserialize)]
struct Entry {
    repo_id: i64,
    #[serde(default)]
    number: i64,
    #[serde(default)]
    status: String,
}

#[derive(Deserialize)]
struct Pipeline {
    #[serde(default)]
    workflows: Option<Vec<Workflow>>,
}

#[derive(Deserialize)]
struct Workflow {
    /// 0 for none.
    #[serde(default)]
    agent_id: i64,
    #[serde(default)]
    state: String,
}

/// Whether an agent had a workflow so recently that its date does not show that the workflow is
/// over.
pub(super) fn is_recent(agent: &Agent, clock: i64) -> bool {
    agent.last_work > 0 && clock - agent.last_work < WORK_MAX_AGE_SECS
}

/// The numbers of agents that have a workflow by the database; none where no agent needs that
/// answer, or where the server does not answer.
pub(super) async fn at_work(
    http: &Http,
    own: &[&Agent],
    running: &[Task],
    clock: i64,
) -> Option<BTreeSet<i64>> {
    let in_queue = |agent: &Agent| running.iter().any(|task| task.agent_id == agent.id);
    if !own.iter().any(|&agent| is_recent(agent, clock) && !in_queue(agent)) {
        return None;
    }
    let asked = read(http).await;
    let url = http.base();
    let note = |error: &DemandError| tracing::debug!(%url, %error, "cannot read the pipelines");
    asked.inspect_err(note).ok()
}

async fn read(http: &Http) -> Result<BTreeSet<i64>, DemandError> {
    let all = http.get::<Option<Vec<Entry>>>("api/pipelines").await?.unwrap_or_default();
    let running: Vec<&Entry> = all.iter().filter(|entry| entry.status == "running").collect();
    if running.len() > PIPELINES_MAX {
        let text =
            format!("{} pipelines run, which is more than drover reads one by one", running.len());
        return Err(DemandError::Setup(text));
    }
    let mut agents = BTreeSet::new();
    for Entry { repo_id, number, .. } in running {
        let path = format!("api/repos/{repo_id}/pipelines/{number}");
        let pipeline: Pipeline = http.get(&path).await?;
        let all = pipeline.workflows.into_iter().flatten();
        let open = all.filter(|it| matches!(it.state.as_str(), "pending" | "running"));
        agents.extend(open.map(|workflow| workflow.agent_id).filter(|id| *id != 0));
    }
    Ok(agents)
}
