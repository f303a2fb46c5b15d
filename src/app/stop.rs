//! The bound of a stop. An agent may take minutes to go (a task of Proxmox that hangs, a node that is
//! offline), and the service manager kills whoever takes too long. Past `service.stopTimeoutSec` drover
//! ends in order all the same: the journal has the agents that are left, and the next start takes them
//! up where they are.

use std::time::Duration;

use tokio::sync::oneshot;

/// Whether the herd answers within the limit that nothing is left which must not be cut.
pub async fn is_drained(drained: oneshot::Receiver<()>, limit: Duration) -> bool {
    let answer = async {
        // A herd that ended without an answer has drained nothing; why it ended is told elsewhere.
        if drained.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::time::timeout(limit, answer).await.is_ok()
}

/// What the service manager is told at the beginning.
pub fn status(limit: Duration) -> String {
    format!("finishing what must not be cut, for {} s at most", limit.as_secs())
}

/// What the log says of the agents that are left when the time is over.
pub fn time_over(limit: Duration, agents: usize) -> String {
    format!(
        "drover stops after {} s (service.stopTimeoutSec) without waiting any longer; agents left for \
         the next start, which takes them up: {agents}",
        limit.as_secs()
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use tokio::time::Instant;

    use super::*;

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
        assert!(is_drained(drained, LIMIT).await);
        assert_eq!(begin.elapsed().as_secs(), 89);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_at_its_limit_though_agents_are_left() {
        let (reply, drained) = oneshot::channel();
        let begin = Instant::now();
        assert!(!is_drained(drained, LIMIT).await);
        assert_eq!(begin.elapsed().as_secs(), 90);
        drop(reply);
    }

    #[tokio::test(start_paused = true)]
    async fn a_herd_that_ends_without_an_answer_is_not_drained() {
        let (reply, drained) = oneshot::channel();
        drop(reply);
        assert!(!is_drained(drained, LIMIT).await);
    }

    #[test]
    fn the_log_says_how_many_agents_are_left_for_the_next_start() {
        let line = "drover stops after 90 s (service.stopTimeoutSec) without waiting any longer; \
                    agents left for the next start, which takes them up: 3";
        assert_eq!(time_over(LIMIT, 3), line);
    }
}
