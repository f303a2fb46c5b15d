//! The bound of a stop. An agent may take minutes to go (a task of Proxmox that hangs, a node that is
//! offline), and the service manager kills whoever takes too long. Past `service.stopTimeoutSec` drover
//! ends in order all the same: the journal has the agents that are left, and the next start takes them
//! up where they are.

use std::time::Duration;

use drover_model::fact::AgentPicture;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval_at, sleep};

/// How often it is told meanwhile what is still there.
const TELL: Duration = Duration::from_secs(10);
/// More agents than that are counted, and not named.
const NAMED: usize = 20;

/// Whether the herd answers within the limit that nothing is left which must not be cut; `tell` is
/// called now and then while it does not.
pub async fn is_drained(
    drained: oneshot::Receiver<()>,
    limit: Duration,
    mut tell: impl FnMut(),
) -> bool {
    let answer = async {
        // A herd that ended without an answer has drained nothing; why it ended is told elsewhere.
        if drained.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let over = sleep(limit);
    let mut each = interval_at(Instant::now() + TELL, TELL);
    tokio::pin!(answer, over);
    loop {
        tokio::select! {
            biased;
            () = &mut answer => return true,
            () = &mut over => return false,
            _ = each.tick() => tell(),
        }
    }
}

/// Agents by name, with where they are: `2: a1 (Retiring, VMID 10000), a2 (Queued)`.
pub fn named(agents: &[AgentPicture]) -> String {
    let each = agents.iter().take(NAMED).map(|one| {
        let vmid = one.vmid.map_or_else(String::new, |vmid| format!(", VMID {vmid}"));
        format!("{} ({}{vmid})", one.agent, one.state)
    });
    let mut each: Vec<String> = each.collect();
    if let Some(more) = agents.len().checked_sub(NAMED).filter(|more| *more > 0) {
        each.push(format!("{more} more"));
    }
    let count = agents.len();
    if each.is_empty() { count.to_string() } else { format!("{count}: {}", each.join(", ")) }
}

/// What the service manager is told at the beginning.
pub fn status(limit: Duration) -> String {
    format!("finishing what must not be cut, for {} s at most", limit.as_secs())
}

/// What the log says of the agents that are left when the time is over.
pub fn time_over(limit: Duration, agents: &[AgentPicture]) -> String {
    format!(
        "drover stops after {} s (service.stopTimeoutSec) without waiting any longer; agents left for \
         the next start, which takes them up: {}",
        limit.as_secs(),
        named(agents)
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

    // Invariant: a stop ends when the herd is drained, and at its limit whatever the herd does.

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_the_herd_and_no_longer() {
        let (reply, drained) = oneshot::channel();
        let begin = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(89)).await;
            reply.send(()).unwrap();
        });
        let mut told = Vec::new();
        assert!(is_drained(drained, LIMIT, || told.push(begin.elapsed().as_secs())).await);
        assert_eq!(begin.elapsed().as_secs(), 89);
        assert_eq!(told, [10, 20, 30, 40, 50, 60, 70, 80], "it is told meanwhile");
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
    fn the_log_names_the_agents_that_are_left_for_the_next_start() {
        let mut all = vec![agent("a1", AgentPhase::Retiring), agent("a2", AgentPhase::Queued)];
        (all[0].vmid, all[1].vmid) = (Some(VmId(10_000)), None);
        let line = "drover stops after 90 s (service.stopTimeoutSec) without waiting any longer; \
                    agents left for the next start, which takes them up: 2: a1 (Retiring, VMID \
                    10000), a2 (Queued)";
        assert_eq!(time_over(LIMIT, &all), line);
        assert_eq!(named(&[]), "0");
        all.resize(25, all[1].clone());
        assert!(named(&all).starts_with("25: a1 ") && named(&all).ends_with(", 5 more"));
    }
}
