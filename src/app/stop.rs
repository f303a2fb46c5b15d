//! The time limit of a stop. An agent can take minutes to retire (a hanging task of Proxmox, an
//! offline node), and the service manager kills a service that takes too long. After
//! `service.stopTimeoutSec` drover stops in order all the same: the journal has the remaining
//! agents, and the next start resumes them.

use std::sync::Arc;
use std::time::Duration;

use drover_model::status::AgentStatus;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval_at, sleep};

/// How often the remaining agents are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// More agents are counted, and not named.
const NAMED_AGENTS_MAX: usize = 20;

/// Whether the herd is drained within the limit. Calls `report` at intervals until then.
pub async fn is_drained(
    drained: oneshot::Receiver<()>,
    limit: Duration,
    mut report: impl FnMut(),
) -> bool {
    let answer = async {
        // A herd that ended without an answer is not drained; its end is reported elsewhere.
        if drained.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let over = sleep(limit);
    let mut each = interval_at(Instant::now() + REPORT_INTERVAL, REPORT_INTERVAL);
    tokio::pin!(answer, over);
    loop {
        tokio::select! {
            biased;
            () = &mut answer => return true,
            () = &mut over => return false,
            _ = each.tick() => report(),
        }
    }
}

/// Agents with their states: `2: a1 (Retiring, VMID 10000), a2 (Queued)`.
pub fn describe_agents(agents: &[Arc<AgentStatus>]) -> String {
    let each = agents.iter().take(NAMED_AGENTS_MAX).map(|one| {
        let vmid = one.vmid.map_or_else(String::new, |vmid| format!(", VMID {vmid}"));
        format!("{} ({}{vmid})", one.agent, one.phase)
    });
    let mut each: Vec<String> = each.collect();
    if let Some(more) = agents.len().checked_sub(NAMED_AGENTS_MAX).filter(|more| *more > 0) {
        each.push(format!("{more} more"));
    }
    let count = agents.len();
    if each.is_empty() { count.to_string() } else { format!("{count}: {}", each.join(", ")) }
}

/// The first notification to the service manager.
pub fn status(limit: Duration) -> String {
    format!("finishing work that must not be interrupted, for at most {} s", limit.as_secs())
}

/// The log line about the agents that remain after the time limit.
pub fn timeout_text(limit: Duration, agents: &[Arc<AgentStatus>]) -> String {
    format!(
        "drover stops after {} s (service.stopTimeoutSec) and waits no longer; the next start \
         resumes these agents: {}",
        limit.as_secs(),
        describe_agents(agents)
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use drover_model::id::VmId;
    use drover_model::phase::AgentPhase;

    use super::*;
    use drover_server::testing::agent;

    const LIMIT: Duration = Duration::from_secs(90);

    // Invariant: a stop ends when the herd is drained, and at the latest at its limit.

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_the_herd_and_no_longer() {
        let (reply, drained) = oneshot::channel();
        let begin = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(89)).await;
            reply.send(()).unwrap();
        });
        let mut reported = Vec::new();
        assert!(is_drained(drained, LIMIT, || reported.push(begin.elapsed().as_secs())).await);
        assert_eq!(begin.elapsed().as_secs(), 89);
        assert_eq!(reported, [10, 20, 30, 40, 50, 60, 70, 80], "a report every 10 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_at_its_limit_though_agents_are_left() {
        let (reply, drained) = oneshot::channel();
        let begin = Instant::now();
        assert!(!is_drained(drained, LIMIT, || {}).await);
        assert_eq!(begin.elapsed().as_secs(), 90);
        drop(reply);
    }

    #[tokio::test(start_paused = true)]
    async fn a_herd_that_ends_without_an_answer_is_not_drained() {
        let (reply, drained) = oneshot::channel();
        drop(reply);
        assert!(!is_drained(drained, LIMIT, || {}).await);
    }

    #[test]
    fn the_log_names_the_agents_that_the_next_start_resumes() {
        let agents = [
            AgentStatus { vmid: Some(VmId(10_000)), ..agent("a1", AgentPhase::Retiring) },
            AgentStatus { vmid: None, ..agent("a2", AgentPhase::Queued) },
        ];
        let mut all: Vec<_> = agents.map(Arc::new).into();
        let line = "drover stops after 90 s (service.stopTimeoutSec) and waits no longer; the next \
                    start resumes these agents: 2: a1 (Retiring, VMID 10000), a2 (Queued)";
        assert_eq!(timeout_text(LIMIT, &all), line);
        assert_eq!(describe_agents(&[]), "0");
        all.resize(25, all[1].clone());
        assert!(
            describe_agents(&all).starts_with("25: a1 ")
                && describe_agents(&all).ends_with(", 5 more")
        );
    }
}
