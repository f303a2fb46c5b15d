//! The mind of one source of demand (a CI system): when it is polled, what its jobs and runners mean,
//! and which runners are removed or fail.
//!
//! ```text
//! Event (Polled, Cordoned, Deregistered, Probed, Tick …) ──▶ step ──▶ Effect (Poll, Cordon, Publish …)
//! ```
//!
//! A poll reports a level, not a change: an answer that is lost, late or repeated does no lasting harm.
//! Guests are hostile: a runner counts by what its source reports, and by deadlines.
//!
//! A runner goes starting → idle → busy → over → deregistering; `transitions.txt` has every step. A
//! poll that fails changes no runner; after a minute without an answer nothing is wanted. A runner that
//! a list does not show is over only when its guest or a question for its very row confirms that.
//!
//! Files: `event.rs` has events and effects, `observe.rs` what a poll means for a runner, `absent.rs`
//! runners that a poll does not show, `doubt.rs` runners that a poll does not prove idle. `remove.rs`
//! cordons and deregisters, `publish.rs` reports demand. `trouble.rs` and `outdated.rs` hold demand back
//! where runners fail, and `shown.rs` has the status for people.

mod absent;
mod doubt;
pub mod event;
mod observe;
mod outdated;
mod publish;
mod remove;
mod shown;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::demand::report::Outage;
use drover_model::demand::report::{Unoffered, UnreadJob};
use drover_model::demand::spec::SourceSpec;
use drover_model::fault::Fault;
use drover_model::id::{Installation, RunnerName};
use drover_model::ports::{JobObservation, Known, SourceObservation};
use drover_model::record::Want;
use drover_model::state_machine::{StateMachine, Turn};
use drover_model::time::{Moment, Now, WallTime};

use crate::demand::mind::absent::{Answers, Reported};
use crate::demand::mind::event::{Effect, Event, Runner};
use crate::demand::mind::outdated::Outdated;
use crate::demand::mind::trouble::Trouble;
use crate::demand::observed::Observed;
use crate::demand::unknown_runners::UnknownRunners;

/// The longest pause between two polls of a source that does not answer.
const PAUSE_LONGEST: Duration = Duration::from_secs(300);
/// A poll that a webhook asks for starts no sooner after the last one than this.
const WAKE_GAP: Duration = Duration::from_millis(100);
/// The same at most, where polls take long: they take at most a third of the time.
const WAKE_GAP_LONGEST: Duration = Duration::from_secs(10);
/// The jobs of the last poll count for so long while a source does not answer.
const STALE: Duration = Duration::from_secs(60);
/// A runner whose lease no agent has may have been intended a moment ago: it stays for so long.
const UNHEARD: Duration = Duration::from_secs(60);
/// Between two tries to deregister a runner.
const DEREGISTER_PAUSE: Duration = Duration::from_secs(30);
/// After so many failed calls a runner counts as cordoned.
const CORDON_TRIES: u32 = 3;

/// The mind of one source.
#[derive(Debug, Clone)]
pub struct SourceMind {
    pub(super) spec: Arc<SourceSpec>,
    /// Whose runners are drover's own.
    own: Installation,
    unknown_runners: UnknownRunners,
    /// Whether it is configured.
    configured: bool,
    /// Whether a poll is under way.
    polling: bool,
    /// Whether there is a reason for another poll at once.
    woken: bool,
    polled: Option<Moment>,
    /// How long the last poll took.
    took: Duration,
    next: Moment,
    /// When another poll is wanted, because it may end a lease.
    again: Option<Moment>,
    /// When answers of guests about their runners are due, and how long the guests had since they were
    /// due last.
    answers_due: Option<(Moment, Duration)>,
    failures: u32,
    outage: Option<(Moment, Outage)>,
    /// Since when polls fail; also from before this start, until a poll succeeds.
    silent: Option<WallTime>,
    observed: BTreeMap<RunnerName, Observed>,
    /// When its URL, login or scope changed last.
    changed: Option<Moment>,
    /// What keeps runners from being started.
    trouble: Trouble,
    /// What runners are too old for.
    outdated: Outdated,
    /// Jobs that want what this source may not have, by the last poll.
    ignored: Vec<JobObservation>,
    /// Jobs of which the source does not report what they want, by the last poll.
    unread: Vec<UnreadJob>,
    /// What is wanted of the jobs that wait and no template offers.
    unoffered: Arc<[Unoffered]>,
    jobs: Vec<JobObservation>,
    /// Its runners by [`Event::Runners`].
    runners: Arc<BTreeMap<RunnerName, Runner>>,
}

impl SourceMind {
    /// A mind that has not polled yet.
    pub fn new(spec: Arc<SourceSpec>, own: Installation, now: Moment) -> Self {
        Self {
            spec,
            own,
            unknown_runners: UnknownRunners::default(),
            configured: true,
            polling: false,
            woken: false,
            polled: None,
            took: Duration::ZERO,
            next: now,
            again: None,
            answers_due: None,
            failures: 0,
            outage: None,
            silent: None,
            observed: BTreeMap::new(),
            changed: None,
            trouble: Trouble::default(),
            outdated: Outdated::default(),
            ignored: Vec::new(),
            unread: Vec::new(),
            unoffered: Arc::default(),
            jobs: Vec::new(),
            runners: Arc::default(),
        }
    }

    /// The same, of a source whose polls fail since then, as the journal has it.
    #[must_use]
    pub fn silent_from(self, since: Option<WallTime>) -> Self {
        Self { silent: since, ..self }
    }

    /// Since when its polls fail, from before this start too.
    pub fn silent_since(&self) -> Option<WallTime> {
        self.silent
    }

    /// The spec in force, or the last one.
    pub fn spec(&self) -> &Arc<SourceSpec> {
        &self.spec
    }

    /// Whether it is configured.
    pub fn is_configured(&self) -> bool {
        self.configured
    }

    /// A spec comes into force; none when it left the configuration.
    fn apply(&mut self, spec: Option<Arc<SourceSpec>>, now: Now, out: &mut Vec<Effect>) {
        self.configured = spec.is_some();
        if let Some(spec) = spec {
            if spec.connection != self.spec.connection {
                self.failures = 0;
                self.trouble = Trouble::default();
                self.outdated = Outdated::default();
                self.leave_former(now);
            }
            self.spec = spec;
        }
        self.outdated.hurry();
        self.next = now.mono;
        if !self.configured {
            self.jobs.clear();
            self.publish(&BTreeMap::new(), out);
        }
    }

    /// A runner could not be made or started. Each costs a machine: after the first nothing is wanted
    /// for a while, ever longer, until one runs.
    fn not_served(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        self.trouble.cost_one(&self.spec, now);
        self.publish(runners, out);
    }

    /// Its URL, login or scope changed: runners that were made before may be where polls
    /// do not reach any more, and what polls do not show of them means nothing.
    fn leave_former(&mut self, now: Now) {
        self.changed = Some(now.mono);
        for observed in self.observed.values_mut() {
            observed.listed = false;
            observed.gone = None;
        }
        let busy = self.running();
        if busy > 0 {
            tracing::warn!(
                source = %self.spec.id, busy,
                "source is reached otherwise: runners that are not seen there are left to end, and \
                 their rows where they were made are not removed"
            );
        }
    }

    /// A probe found whether runners can be made.
    fn probed(
        &mut self,
        obstacle: Result<Option<String>, Fault>,
        runners: &BTreeMap<RunnerName, Runner>,
        out: &mut Vec<Effect>,
    ) {
        self.trouble.probed(obstacle);
        self.publish(runners, out);
    }

    /// Takes in that its source refused to make runners.
    fn hear_refusals(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        for (name, runner) in runners {
            let Some(text) = &runner.kept.refused else { continue };
            let observed = self.observed.entry(name.clone()).or_default();
            if !std::mem::replace(&mut observed.refused, true) {
                tracing::warn!(
                    source = %self.spec.id, runner = %name, error = text,
                    "source lets no runner be made"
                );
                self.trouble.refuse(text, now);
            }
        }
        if self.configured && self.trouble.wants_probe(self.spec.poll, now.mono) {
            out.push(Effect::Probe);
        }
    }

    /// Runners that a poll asks for, whether a list shows them or not.
    pub fn known(&self, runners: &BTreeMap<RunnerName, Runner>) -> Known {
        let open = |(name, runner): &(&RunnerName, &Runner)| {
            let observed = self.observed.get(*name);
            let made = runner.kept.runner_started.is_some()
                || observed.is_some_and(|observed| observed.listed);
            (made || !runner.lives) && observed.is_none_or(|observed| !observed.settled)
        };
        // What was numbered elsewhere has other rows' numbers here.
        let here = |runner: &Runner| runner.kept.entry.place == Some(self.spec.place);
        let rows = |runner: &Runner| runner.kept.entry.rows.clone();
        let own = runners.iter().filter(open).map(|(name, runner)| {
            (name.clone(), if here(runner) { rows(runner) } else { BTreeSet::new() })
        });
        let unknown_runners =
            self.unknown_runners.names().map(|name| (name.clone(), BTreeSet::new()));
        unknown_runners.chain(own).collect()
    }

    /// A poll that starts then may end a lease.
    fn poll_by(&mut self, due: Moment) {
        self.again = Some(self.again.map_or(due, |again| again.min(due)));
    }

    /// Does what is due. Every step ends with this.
    fn tick(&mut self, runners: &BTreeMap<RunnerName, Runner>, now: Now, out: &mut Vec<Effect>) {
        self.observed.retain(|name, _| runners.contains_key(name));
        if let Some((since, _)) = &self.outage
            && now.mono - *since >= STALE
            && !self.jobs.is_empty()
        {
            self.jobs.clear();
            self.publish(runners, out);
        }
        self.hear_refusals(runners, now, out);
        self.hear_outdated(runners, now, out);
        if self.trouble.until.is_some_and(|until| until <= now.mono) {
            self.trouble.until = None;
            self.publish(runners, out);
        }
        self.hear_guests(runners, now, out);
        for (name, runner) in runners.iter().filter(|(_, runner)| !runner.lives) {
            self.remove_dead(name, runner, now, out);
        }
        let gap = (self.took * 3).clamp(WAKE_GAP, WAKE_GAP_LONGEST);
        let earliest = self.polled.map_or(now.mono, |polled| polled + gap);
        if let Some(again) = self.again.filter(|_| !self.polling) {
            self.next = self.next.min(again);
        }
        let due = if self.woken { earliest.min(self.next) } else { self.next };
        let wanted = self.configured || !runners.is_empty();
        if wanted && !self.polling && due <= now.mono {
            self.polling = true;
            self.woken = false;
            self.again = None;
            self.polled = Some(now.mono);
            out.push(Effect::Poll);
        }
        if wanted && !self.polling {
            let next = if self.woken { earliest } else { self.next };
            out.push(Effect::WakeAt(self.answers_due.map_or(next, |(at, _)| at.min(next))));
        }
    }

    /// A poll came back.
    fn polled(
        &mut self,
        result: Result<Box<SourceObservation>, Fault>,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        turn: &mut Turn<Effect>,
    ) {
        let (draw, out) = (turn.draw, &mut turn.effects);
        self.polling = false;
        self.took = self.polled.map_or(Duration::ZERO, |began| now.mono - began);
        let observation = match result {
            Ok(observation) => observation,
            Err(fault) => return self.failed(&fault, now, draw),
        };
        if self.outage.take().is_some() {
            tracing::info!(source = %self.spec.id, "source can be polled again");
        }
        self.failures = 0;
        self.silent = None;
        self.number(&observation, runners, out);
        let answers = Answers::of(&observation);
        for (name, runner) in runners {
            let reported = answers.reported(name);
            if runner.lives {
                self.observe(name, runner, reported, now, out);
            } else {
                self.observe_dead(name, runner, reported, out);
            }
        }
        for (name, observed) in &mut self.observed {
            let (Reported::Row(row) | Reported::Removed(row)) = answers.reported(name) else {
                continue;
            };
            let id = row.job.as_ref();
            let fresh = id.filter(|id| observed.waited.as_ref().is_none_or(|job| job.id != **id));
            // Only a job that is new to its runner is searched among all that waited.
            let job = fresh.and_then(|id| self.jobs.iter().find(|job| job.id == *id));
            observed.waited = job.cloned().or_else(|| observed.waited.take());
        }
        let is_known = |name: &RunnerName| runners.contains_key(name);
        let unknown_runners =
            self.unknown_runners.observe(&observation, &self.own, is_known, now.mono);
        out.extend(unknown_runners.into_iter().map(Effect::RemoveUnknown));
        self.find(observation.obstacle.as_deref(), now);
        self.unread = observation.unread;
        let (allowed, sizes) = (self.spec.labels.clone(), self.spec.size_keys.clone());
        let jobs = if self.configured { observation.jobs } else { Vec::new() };
        let is_meant =
            |job: &JobObservation| allowed.as_ref().is_none_or(|all| is_of(&job.want, all, &sizes));
        (self.jobs, self.ignored) = jobs.into_iter().partition(is_meant);
        self.outdated.observe(&self.jobs, now.mono);
        // What waits will have a runner soon.
        let quiet = runners.is_empty() && self.jobs.is_empty();
        self.next = now.mono + if quiet { self.spec.poll } else { self.spec.brisk };
        self.publish(runners, out);
    }

    /// Numbers of rows that are new are written down: after a start a row that no list shows can be
    /// asked for by its number alone.
    fn number(
        &self,
        observation: &SourceObservation,
        runners: &BTreeMap<RunnerName, Runner>,
        out: &mut Vec<Effect>,
    ) {
        for (name, rows) in &observation.numbers {
            let Some(Runner { kept, .. }) = runners.get(name) else { continue };
            if kept.entry.place == Some(self.spec.place) && !rows.is_subset(&kept.entry.rows) {
                let all = rows | &kept.entry.rows;
                out.push(Effect::Numbered(name.clone(), all));
            }
        }
    }

    fn failed(&mut self, fault: &Fault, now: Now, draw: u64) {
        self.failures += 1;
        let pause = self.spec.poll.max(Duration::from_secs(1));
        let pause = pause.saturating_mul(1 << self.failures.min(6)).min(PAUSE_LONGEST);
        self.next = now.mono + jittered(pause, draw);
        let since = *self.silent.get_or_insert(now.wall);
        let outage = Outage { since, text: fault.text.clone() };
        let known = self.outage.take();
        if known.as_ref().is_none_or(|(_, known)| known.text != outage.text) {
            tracing::warn!(source = %self.spec.id, error = %fault, "source cannot be polled");
        }
        let from = known.map_or(now.mono, |(from, _)| from);
        self.outage = Some((from, outage));
    }
}

impl StateMachine for SourceMind {
    type Event = Event;
    type Effect = Effect;

    fn step(&mut self, event: Event, now: Now, turn: &mut Turn<Effect>) {
        let (runners, out) = (Arc::clone(&self.runners), &mut turn.effects);
        match event {
            Event::Runners(runners) => self.runners = runners,
            Event::Apply(spec) => self.apply(spec, now, out),
            Event::Woken => self.woken = true,
            Event::NotServed => self.not_served(&runners, now, out),
            Event::NotOffered(unoffered) => self.unoffered = unoffered,
            Event::Republish => self.republish(&runners, out),
            Event::Polled(result) => self.polled(result, &runners, now, turn),
            Event::Cordoned(runner, result) => self.cordoned(&runner, result, now.mono),
            Event::Deregistered(runner, result) => self.deregistered(&runner, result, out),
            Event::NotWritten(runner, fault) => self.not_written(&runner, &fault),
            Event::Probed(obstacle) => self.probed(obstacle, &runners, out),
            Event::Tick => self.tick(&runners, now, out),
        }
    }
}

/// Whether everything that is wanted is among these labels, or is a size by one of these keys.
fn is_of(want: &Want, allowed: &BTreeSet<String>, sizes: &BTreeSet<String>) -> bool {
    let is_size = |label: &str| label.split_once('=').is_some_and(|(key, _)| sizes.contains(key));
    want.names().into_iter().all(|label| allowed.contains(label) || is_size(label))
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, clippy::expect_used, reason = "tests")]
mod tests;
