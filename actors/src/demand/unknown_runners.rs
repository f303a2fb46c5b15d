//! Runners at a source under this installation's names that the journal does not know: made by a
//! call that came through after its agent was gone, or after an older journal was put back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::id::{Installation, RunnerName};
use drover_model::ports::{RowObservation, Shut, SourceObservation};
use drover_model::time::Moment;

/// A runner is deregistered once polls show it unknown, offline and without a job for so long.
const GRACE: Duration = Duration::from_secs(300);
/// A poll asks for so many of them at most, whether a list shows them or not.
const ASKED: usize = 20;
/// Between two tries to remove one.
const PAUSE: Duration = Duration::from_secs(60);

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnknownRunner {
    /// Since when it is seen so without a break.
    since: Moment,
    /// When its removal was tried last.
    tried: Option<Moment>,
}

/// All that were seen at the last poll.
#[derive(Debug, Clone, Default)]
pub struct UnknownRunners(BTreeMap<RunnerName, UnknownRunner>);

impl UnknownRunners {
    /// Takes a poll in; gives those to be removed now, by their exact names.
    ///
    /// Those of other installations are never among them, nor one that is connected or has a job:
    /// its machine may be somebody's yet.
    pub fn observe(
        &mut self,
        observation: &SourceObservation,
        own: &Installation,
        is_known: impl Fn(&RunnerName) -> bool,
        now: Moment,
    ) -> Vec<RunnerName> {
        let is_ours =
            |name: &RunnerName| RunnerName::parse(name.as_str()).is_some_and(|(of, ..)| of == *own);
        // A node that drover shut does not show whether it is connected.
        let off = |row: &RowObservation| !row.online || row.node.shut == Shut::Quiet;
        let idle = |row: &RowObservation| off(row) && row.jobs == 0;
        // Of one name there may be several rows, and all of them are removed.
        let used = observation.rows.iter().filter(|row| !idle(row)).map(|row| &row.runner);
        let used: BTreeSet<&RunnerName> = used.collect();
        let lost = |row: &&RowObservation| {
            !used.contains(&row.runner) && is_ours(&row.runner) && !is_known(&row.runner)
        };
        let mut before = std::mem::take(&mut self.0);
        let mut due = Vec::new();
        let shown: BTreeSet<&RunnerName> = observation.rows.iter().map(|row| &row.runner).collect();
        for row in observation.rows.iter().filter(lost) {
            let fresh = UnknownRunner { since: now, tried: None };
            let mut unknown = before.remove(&row.runner).unwrap_or(fresh);
            let rests = unknown.tried.is_some_and(|at| now - at < PAUSE);
            if now - unknown.since >= GRACE && !rests {
                unknown.tried = Some(now);
                due.push(row.runner.clone());
            }
            self.0.insert(row.runner.clone(), unknown);
        }
        // One that a list does not show may stand as it stood, unless that list is all there is.
        let may_stand = |name: &RunnerName| {
            !observation.whole
                && !shown.contains(name)
                && !observation.gone.contains(name)
                && !is_known(name)
        };
        self.0.extend(before.into_iter().filter(|(name, _)| may_stand(name)));
        due
    }

    /// Those that the next poll asks for.
    pub fn names(&self) -> impl Iterator<Item = &RunnerName> {
        self.0.keys().take(ASKED)
    }

    /// How many there are by the last poll.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use drover_model::id::AgentId;
    use drover_model::ports::{Idle, NodeObservation};

    fn own() -> Installation {
        Installation::new("p9t76c7v")
    }

    fn row(of: &str, online: bool, jobs: u32) -> RowObservation {
        let runner = RunnerName::of(&Installation::new(of), &AgentId::new("4f8z1c3px9t2vkab"), 1);
        let (idle, node) = (Idle::Known, NodeObservation::default());
        RowObservation { runner, online, jobs, job: None, idle, node }
    }

    fn list(rows: &[RowObservation]) -> SourceObservation {
        SourceObservation { rows: rows.to_vec(), whole: true, ..SourceObservation::default() }
    }

    // Invariant: a runner nobody knows is removed after a while, and one that may be somebody's is not.

    #[test]
    fn a_leftover_is_removed_once_it_was_seen_for_long_enough_and_tried_again_after_a_pause() {
        let mut unknown_runners = UnknownRunners::default();
        let mut observe = |seconds| {
            let lost = list(&[row("p9t76c7v", false, 0)]);
            unknown_runners.observe(&lost, &own(), |_| false, at(seconds).mono).len()
        };
        let due: Vec<usize> = [0, 299, 300, 330, 360].into_iter().map(&mut observe).collect();
        assert_eq!(due, [0, 0, 1, 0, 1]);
    }

    #[test]
    fn what_is_known_connected_busy_or_anothers_is_left_alone() {
        let rows = [row("p9t76c7v", true, 0), row("p9t76c7v", false, 1), row("qqqqqqqq", false, 0)];
        for (rows, known) in [(&rows[..], false), (&[row("p9t76c7v", false, 0)], true)] {
            let mut unknown_runners = UnknownRunners::default();
            for seconds in [0, 1000, 2000] {
                assert!(
                    unknown_runners
                        .observe(&list(rows), &own(), |_| known, at(seconds).mono)
                        .is_empty()
                );
            }
        }
    }

    #[test]
    fn a_node_that_drover_shut_before_is_a_leftover_although_nobody_says_whether_it_is_connected() {
        let mut unknown_runners = UnknownRunners::default();
        let mut shut = row("p9t76c7v", true, 0);
        shut.node.shut = Shut::Quiet;
        unknown_runners.observe(&list(&[shut.clone()]), &own(), |_| false, at(0).mono);
        assert_eq!(
            unknown_runners.observe(&list(&[shut]), &own(), |_| false, at(300).mono).len(),
            1
        );
    }

    #[test]
    fn one_that_came_back_meanwhile_starts_again() {
        let mut unknown_runners = UnknownRunners::default();
        let lost = list(&[row("p9t76c7v", false, 0)]);
        unknown_runners.observe(&lost, &own(), |_| false, at(0).mono);
        unknown_runners.observe(
            &list(&[row("p9t76c7v", true, 0)]),
            &own(),
            |_| false,
            at(200).mono,
        );
        assert!(unknown_runners.observe(&lost, &own(), |_| false, at(400).mono).is_empty());
        assert_eq!(unknown_runners.count(), 1);
    }

    #[test]
    fn one_whose_name_another_row_with_a_job_has_is_left_alone() {
        let rows = list(&[row("p9t76c7v", false, 0), row("p9t76c7v", true, 1)]);
        let mut unknown_runners = UnknownRunners::default();
        for seconds in [0, 1000] {
            assert!(unknown_runners.observe(&rows, &own(), |_| false, at(seconds).mono).is_empty());
        }
    }

    // Invariant: a list that is not whole says nothing of what it does not show.

    #[test]
    fn one_that_a_cut_list_does_not_show_stands_as_it_stood_and_is_not_removed_unseen() {
        let lost = list(&[row("p9t76c7v", false, 0)]);
        let cut = SourceObservation::default();
        let mut unknown_runners = UnknownRunners::default();
        let mut observe = |observation: &SourceObservation, seconds| {
            unknown_runners.observe(observation, &own(), |_| false, at(seconds).mono).len()
        };
        assert_eq!([observe(&lost, 0), observe(&cut, 200), observe(&cut, 400)], [0, 0, 0]);
        assert_eq!(observe(&lost, 401), 1);
        let gone = SourceObservation { gone: [lost.rows[0].runner.clone()].into(), ..cut };
        assert_eq!([observe(&gone, 500), observe(&lost, 900)], [0, 0], "it came back");
    }
}
