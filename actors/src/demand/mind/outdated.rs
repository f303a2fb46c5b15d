//! Runners whose program is too old for their source: it starts, connects, is refused and ends, and the
//! job stays queued.
//!
//! Each costs a machine. What such a runner was started for is wanted no more for a while, ever longer, and
//! then by one machine alone, until a runner of that template, or any runner for that, has a job. Other
//! jobs of the source are not concerned.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_model::demand::report::Unoffered;
use drover_model::demand::spec::SourceSpec;
use drover_model::id::{RunnerName, TemplateId};
use drover_model::ports::JobObservation;
use drover_model::record::Want;
use drover_model::time::{Moment, Now};

use crate::demand::mind::SourceMind;
use crate::demand::mind::event::{Effect, Runner};
use crate::demand::mind::trouble::pause_after;
use crate::runners::TooOld;

/// A kind of which no job has waited for so long is forgotten: longer than any pause.
const FORGOTTEN: Duration = Duration::from_secs(15 * 60);

/// What has runners that are too old, by what they were started for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Outdated(BTreeMap<Want, Kind>);

/// One kind of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    /// The template whose image has the old program.
    template: TemplateId,
    /// Why its jobs are not served, for people.
    lacks: String,
    /// Runners in a row that were too old.
    count: u32,
    /// Until when nothing of the kind is wanted.
    until: Option<Moment>,
    /// Since when no job of the kind waits.
    idle: Option<Moment>,
}

impl Outdated {
    /// A runner was too old, which cost a machine.
    pub fn cost_one(&mut self, old: &TooOld, spec: &SourceSpec, now: Now) {
        let count = self.0.get(&old.want).map_or(0, |kind| kind.count) + 1;
        let pause = pause_after(count, spec);
        let (template, until) = (old.template.clone(), Some(now.mono + pause));
        let lacks = format!("runners of template {template} are given no job: {}", old.text);
        tracing::warn!(
            source = %spec.id, %template, count, seconds = pause.as_secs(), error = old.text,
            "runner is too old for its source: none is wanted for its kind of jobs for a while"
        );
        self.0.insert(old.want.clone(), Kind { template, lacks, count, until, idle: None });
    }

    /// Takes in which jobs wait by a poll.
    pub fn observe(&mut self, jobs: &[JobObservation], now: Moment) {
        self.0.retain(|want, kind| {
            if jobs.iter().any(|job| job.want == *want) {
                kind.idle = None;
            } else {
                kind.idle.get_or_insert(now);
            }
            kind.idle.is_none_or(|since| now - since < FORGOTTEN)
        });
    }

    /// Jobs of this kind that are wanted at most.
    pub fn most(&self, want: &Want) -> usize {
        match self.0.get(want) {
            Some(Kind { until: Some(_), .. }) => 0,
            Some(Kind { until: None, .. }) => 1,
            None => usize::MAX,
        }
    }

    /// A runner of this template has a job of this kind, as far as either is known.
    pub fn serves(&mut self, template: Option<&TemplateId>, want: Option<&Want>) {
        self.0.retain(|kind, old| want != Some(kind) && template != Some(&old.template));
    }

    /// Ends pauses that are over; gives whether there were any.
    pub fn wake(&mut self, now: Moment) -> bool {
        let mut any = false;
        for kind in self.0.values_mut() {
            if kind.until.is_some_and(|until| until <= now) {
                kind.until = None;
                any = true;
            }
        }
        any
    }

    /// Ends all pauses: somebody may have repaired the image.
    pub fn hurry(&mut self) {
        self.0.values_mut().for_each(|kind| kind.until = None);
    }

    /// Whether there is nothing of it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runners in a row that were too old, of all kinds.
    pub fn count(&self) -> u32 {
        self.0.values().map(|kind| kind.count).sum()
    }

    /// Why jobs of this kind are not served.
    pub fn lacks(&self, want: &Want) -> Option<&String> {
        self.0.get(want).map(|kind| &kind.lacks)
    }

    /// All kinds, each with why it is not served.
    pub fn unoffered(&self) -> impl Iterator<Item = Unoffered> {
        let reported = |(want, kind): (&Want, &Kind)| Unoffered {
            want: want.clone(),
            lacks: kind.lacks.clone(),
        };
        self.0.iter().map(reported)
    }
}

impl SourceMind {
    /// Whether the program of a runner that had no job is too old. It is counted once.
    pub(super) fn note_outdated(
        &mut self,
        name: &RunnerName,
        runner: &Runner,
        now: Now,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(old) = &runner.kept.too_old else { return false };
        let Some(observed) = self.observed.get_mut(name).filter(|observed| observed.began == 0)
        else {
            return false;
        };
        if !std::mem::replace(&mut observed.outdated, true) {
            self.outdated.cost_one(old, &self.spec, now);
            out.push(Effect::TooOld(old.template.clone()));
        }
        true
    }

    /// A runner came to its end as one does that had its job, also where no look saw that.
    pub(super) fn note_served(&mut self, runner: &Runner) {
        if runner.kept.too_old.is_none() {
            self.outdated.serves(runner.template.as_ref(), None);
            self.trouble.end_jobless();
        }
    }

    /// Takes in that runners were too old of which that was known only after they were given up, and that
    /// pauses are over.
    pub(super) fn hear_outdated(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let before = self.outdated.count();
        for (name, runner) in runners.iter().filter(|(_, it)| it.kept.too_old.is_some()) {
            if self.observed.get(name).is_some_and(|observed| observed.settled) {
                self.note_outdated(name, runner, now, out);
            }
        }
        if self.outdated.wake(now.mono) || self.outdated.count() != before {
            self.publish(runners, out);
        }
    }
}
