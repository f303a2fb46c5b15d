//! What is said of runners that could not be started.

use drover_model::fact::What;
use drover_model::id::{CloudId, TemplateId};
use drover_model::phase::AgentPhase;
use drover_model::record::Reason;
use drover_model::status::LeaseStatus;

use super::*;
use crate::testing::reported;

/// A lease of a source, or of a person.
fn lease(id: &str, principal: &str, state: LeasePhase, agent: Option<&str>) -> What {
    What::Lease(Box::new(LeaseStatus {
        lease: LeaseId::new(id),
        state,
        agent: agent.map(AgentId::new),
        owner: principal.into(),
        principal: principal.into(),
        group: None,
        wants: "a job".into(),
        want: None,
        whole: false,
        asked: None,
        granted: None,
        expires: None,
        detail: String::new(),
    }))
}

/// An agent that failed so.
fn failed(id: &str, text: &str) -> What {
    let (state, kind, text) = (AgentPhase::Leased, "broken".to_owned(), text.to_owned());
    let reason = Reason::Failed { state, kind, text };
    gone(id, reason)
}

fn gone(id: &str, reason: Reason) -> What {
    let (agent, template) = (AgentId::new(id), TemplateId::new(CloudId::new("lab"), "linux"));
    What::AgentGone { agent, template, reason, phases: Vec::new() }
}

// Invariant: where runners of a source could not be started, the last cause is named: of the agents that
// were started for it, and of those whose fault names it.

#[test]
fn the_last_cause_of_runners_that_could_not_be_started_is_reported_their_own_source() {
    let (view, git) = (View::new(1), SourceId::new("git"));
    let said = |view: &View| unserved(view, &git, 2).unwrap_or_default();
    let plain =
        "2 runners in a row could not be started, and none is wanted for a while, ever longer";
    reported(&view, lease("l1", "source:git", LeasePhase::Granted, Some("a1")));
    reported(&view, failed("a1", "`gitea-runner` is not in the guest"));
    // Nobody says then which agent it was on.
    reported(&view, lease("l1", "source:git", LeasePhase::Ended, None));
    reported(&view, lease("l2", "source:wood", LeasePhase::Granted, Some("a2")));
    reported(&view, failed("a2", "another source's"));
    reported(&view, lease("l3", "source:git", LeasePhase::Granted, Some("a3")));
    reported(&view, gone("a3", Reason::UsedUp));
    let cause = "Leased failed (broken): `gitea-runner` is not in the guest";
    assert_eq!(said(&view), format!("{plain}: {cause}"));
    reported(&view, failed("a4", "its runner did not connect to source `git`"));
    let cause = "Leased failed (broken): its runner did not connect to source `git`";
    assert_eq!(said(&view), format!("{plain}: {cause}"));
    assert_eq!(said(&View::new(1)), plain);
    assert_eq!(unserved(&view, &git, 0), None);
}
