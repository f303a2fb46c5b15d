//! What is known of runners after a start, and of the ends of their leases.

use std::collections::BTreeSet;

use drover_model::id::{AgentId, LeaseId};
use drover_model::journal_state::GrantedLease;
use drover_model::phase::AgentPhase;
use drover_model::record::Want;

use super::*;
use crate::testing::{ask, at, entry, template};

fn ci() -> SourceId {
    SourceId::new("ci")
}

/// Of agent `a` and this lease.
fn runner(lease: &str) -> RunnerEntry {
    let (agent, lease) = (AgentId::new("a"), LeaseId::new(lease));
    RunnerEntry { agent, lease, began: 0, place: None, rows: BTreeSet::new() }
}

/// Whether the lease of each runner is over.
fn over(runners: &Runners) -> Vec<(String, bool)> {
    let each = runners.of(&ci()).into_iter();
    each.map(|(name, kept)| (name.to_string(), kept.lease_over)).collect()
}

// Invariant: a runner's lease counts as over when the journal says so, and not because nobody has it.

#[test]
fn a_lease_that_the_journal_does_not_know_at_a_start_is_over_and_one_that_it_knows_is_not() {
    let ask = ask("l1", Want::Template("c/t".into()), 0);
    let (granted, expires, span_ms) = (None, at(9_000).wall, None);
    let lease = GrantedLease { ask, granted, expires, span_ms, runner: None, pending: false };
    let mut agent = entry("a", 10_000, template("c/t", &[]), AgentPhase::Leased);
    agent.leases.insert(LeaseId::new("l1"), lease);
    let all = [("r1", "l1"), ("r2", "l2")];
    let all = all.map(|(name, lease)| (RunnerName::new(name), runner(lease)));
    let known = JournalState {
        agents: [(AgentId::new("a"), agent)].into(),
        runners: [(ci(), all.into())].into(),
        ..JournalState::default()
    };
    let runners: Shared<Runners, role::Herd> = Shared::new(Runners::default());
    runners.restore(&known, at(0).mono);
    assert_eq!(over(&runners), [("r1".into(), false), ("r2".into(), true)]);
    let known = JournalState { agents: BTreeMap::new(), ..known };
    runners.restore(&known, at(0).mono);
    assert_eq!(over(&runners), [("r1".into(), true), ("r2".into(), true)]);
}

#[test]
fn an_agent_that_wrote_the_end_of_a_lease_says_so_of_its_runner_alone() {
    let runners: Shared<Runners, role::Agent> = Shared::new(Runners::default());
    for (name, lease) in [("r1", "l1"), ("r2", "l2")] {
        runners.intend(&ci(), &RunnerName::new(name), runner(lease), at(0).mono);
    }
    runners.lease_over(&LeaseId::new("l2"));
    assert_eq!(over(&runners), [("r1".into(), false), ("r2".into(), true)]);
}
