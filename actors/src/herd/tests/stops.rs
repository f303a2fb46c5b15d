//! What becomes of agents when the service stops.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use drover_model::status::Standing;
use drover_model::stop::StopPolicy;
use drover_runtime::reply::Reply;
use tokio::sync::oneshot;

use super::{Bed, t};
use crate::message::{AgentCommand, HerdCommand, Refusal};
use crate::testing::{ask, cloud, herd, on_paused_system, pass, seconds, template};

// Invariant: stopping takes no new work, and does with the agents what the policy says.

async fn stopped(policy: StopPolicy) -> (Bed, oneshot::Receiver<()>) {
    let mut spec = template("c/t", &[]);
    spec.minimum = 1;
    let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
    bed.lease(ask("l1", t(), 0)).await.unwrap();
    pass(seconds(30)).await;
    assert_eq!(bed.states(), "c/t Leased, c/t Ready");
    let (reply, done) = Reply::channel();
    bed.herd.do_send(HerdCommand::Drain { policy, reply });
    pass(seconds(1)).await;
    let refused = bed.lease(ask("l2", t(), 1)).await;
    assert_eq!(refused, Err(Refusal::Unavailable("the service is stopping".into())));
    (bed, done)
}

#[test]
fn by_default_all_agents_rest_and_live_on() {
    on_paused_system(|| async {
        let (bed, done) = stopped(StopPolicy::Keep).await;
        done.await.unwrap();
        assert_eq!(bed.states(), "c/t Leased, c/t Ready");
        for agent in bed.roster.select(|_| true).keys() {
            assert_eq!(bed.on(agent.as_str()).last(), Some(&AgentCommand::Rest));
        }
    });
}

#[test]
fn retire_idle_waits_for_the_idle_ones_only() {
    on_paused_system(|| async {
        let (bed, done) = stopped(StopPolicy::RetireIdle).await;
        done.await.unwrap();
        assert_eq!(bed.states(), "c/t Leased");
    });
}

#[test]
fn retire_all_waits_until_nobody_is_left() {
    on_paused_system(|| async {
        let (bed, done) = stopped(StopPolicy::RetireAll).await;
        assert!(bed.roster.select(|living| living.status.standing != Standing::Leaving).is_empty());
        done.await.unwrap();
        assert!(bed.roster.is_empty());
        pass(seconds(60)).await;
        assert_eq!(bed.born(), 2);
    });
}

#[test]
fn agents_that_are_being_started_while_it_stops_leave_too() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &[])]));
        pass(seconds(1)).await;
        let (reply, _started) = Reply::channel();
        bed.herd.do_send(HerdCommand::Provision {
            template: "c/t".into(),
            count: 2,
            trial: false,
            reply,
        });
        let (reply, done) = Reply::channel();
        bed.herd.do_send(HerdCommand::Drain { policy: StopPolicy::RetireAll, reply });
        done.await.unwrap();
        pass(seconds(60)).await;
        assert_eq!((bed.born(), bed.states().as_str()), (2, ""));
    });
}
