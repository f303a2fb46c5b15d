//! What a reconciliation would do, asked of the whole herd.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use drover_model::journal_state::JournalState;
use drover_model::marks::Reading;
use drover_runtime::reply::Reply;

use super::*;
use super::{Bed, orphan_world};
use crate::testing::{CLUSTER, cloud, herd, marks, on_paused_system, pass, seconds};
use drover_model::finding::Does;

// Invariant: the plan is what a reconciliation would do, and reporting it changes nothing.

#[test]
fn a_planned_resync_says_what_would_go_and_changes_nothing() {
    on_paused_system(|| async {
        let mut lab = cloud("c", None);
        lab.reconcile_period = seconds(3600);
        let bed =
            Bed::start(orphan_world(10_000), herd(vec![lab], vec![]), JournalState::default());
        let plan = async || {
            let (reply, answer) = Reply::channel();
            bed.herd.do_send(HerdCommand::PlanResync { reply });
            let found = answer.await.unwrap().remove(&ClusterId::new(CLUSTER)).unwrap().unwrap();
            found.into_iter().map(|one| (one.does, one.text)).collect::<Vec<_>>()
        };
        pass(seconds(5)).await;
        let text = |what| format!("10000 is an orphan of agent `4f8z1c3px9t2vkab`: {what}");
        assert_eq!(plan().await, [(Does::Leave, text("left alone for 295 s more"))]);
        pass(seconds(400)).await;
        for _ in 0..2 {
            assert_eq!(plan().await, [(Does::Destroy, text("is retired"))]);
            pass(seconds(5)).await;
            assert_eq!((bed.born(), bed.states().as_str()), (0, ""));
        }
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::Resync { reply });
        answer.await.unwrap();
        pass(seconds(5)).await;
        assert_eq!(bed.states(), "c/t Retiring");
    });
}

#[test]
fn a_plan_says_that_a_guest_is_ahead_of_the_journal_and_writes_nothing_down() {
    on_paused_system(|| async {
        let world = orphan_world(10_000);
        let bed = Bed::start(world, herd(vec![cloud("c", None)], vec![]), JournalState::default());
        pass(seconds(5)).await;
        let mut ahead = marks("4f8z1c3px9t2vkab", 10_000);
        ahead.seq = 5000;
        bed.world.with(|script| {
            let guest = script.survey.as_mut().unwrap().guests.last_mut().unwrap();
            // Under another name it is looked at again.
            guest.name = Some("restored".into());
            let reading = Some(Reading::Marked(Box::new(ahead)));
            script.looks.get_mut(&10_000).unwrap().marks = reading;
        });
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::PlanResync { reply });
        let found = answer.await.unwrap().remove(&ClusterId::new(CLUSTER)).unwrap().unwrap();
        assert_eq!(found[0].does, Does::Leave);
        assert!(found[0].text.contains("not destroyed before an operator confirms"), "{found:?}");
        assert!(bed.world.with(|script| script.journal_state.ahead.is_empty()));
    });
}

// Invariant: a cluster that cannot be read is reported as that, and not as a finding.

#[test]
fn a_cluster_that_cannot_be_read_is_no_finding() {
    on_paused_system(|| async {
        let world = orphan_world(10_000);
        let bed = Bed::start(world, herd(vec![cloud("c", None)], vec![]), JournalState::default());
        pass(seconds(5)).await;
        bed.world.with(|script| script.survey = None);
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::Resync { reply });
        let why = answer.await.unwrap().remove(&ClusterId::new(CLUSTER)).unwrap().unwrap_err();
        assert!(why.starts_with("cloud c: ") && why.contains("no endpoint answers"), "{why}");
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::PlanResync { reply });
        let why = answer.await.unwrap().remove(&ClusterId::new(CLUSTER)).unwrap().unwrap_err();
        assert!(why.starts_with("cloud c: "), "{why}");
    });
}

#[test]
fn a_cluster_without_quorum_is_no_finding() {
    on_paused_system(|| async {
        let world = orphan_world(10_000);
        let bed = Bed::start(world, herd(vec![cloud("c", None)], vec![]), JournalState::default());
        pass(seconds(5)).await;
        bed.world.with(|script| script.survey.as_mut().unwrap().quorate = false);
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::Resync { reply });
        let why = answer.await.unwrap().remove(&ClusterId::new(CLUSTER)).unwrap().unwrap_err();
        assert!(why.starts_with("cloud c: the cluster has no quorum"), "{why}");
        let (reply, answer) = Reply::channel();
        bed.herd.do_send(HerdCommand::PlanResync { reply });
        let planned = answer.await.unwrap().remove(&ClusterId::new(CLUSTER)).unwrap();
        assert_eq!(planned.unwrap_err(), why);
    });
}
