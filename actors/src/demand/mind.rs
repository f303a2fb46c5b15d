//! The mind of one source of demand: when it is looked at, what its jobs and runners mean, and what
//! becomes of runners that do not do what they are there for.
//!
//! What a source says is a level: an answer that is lost, late or told twice changes nothing for
//! good. Guests are hostile: a runner counts by what its source says of it, and by deadlines.

mod absent;
mod doubt;
mod judge;
mod outdated;
mod shown;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::demand::report::Outage;
use drover_model::demand::report::{Unoffered, UnreadJob};
use drover_model::demand::spec::SourceSpec;
use drover_model::fault::{Fault, FaultKind};
use drover_model::id::{AgentId, Installation, LeaseId, RunnerName, TemplateId};
use drover_model::ports::{JobObservation, JournalFault, Known, SourceObservation};
use drover_model::record::Want;
use drover_model::time::{Moment, Now, WallTime};

use crate::demand::Level;
use crate::demand::mind::absent::{Answers, Reported};
use crate::demand::mind::outdated::Outdated;
use crate::demand::mind::trouble::Trouble;
use crate::demand::seen::Seen;
use crate::demand::unknown_runners::UnknownRunners;
use crate::runners::Kept;

/// The longest pause between two looks at a source that does not answer.
const PAUSE_LONGEST: Duration = Duration::from_secs(300);
/// Looks that somebody woke it for begin no sooner after the last one than this.
const WAKE_GAP: Duration = Duration::from_millis(100);
/// At the most, where looks take long: they have no more than a third of the time.
const WAKE_GAP_LONGEST: Duration = Duration::from_secs(10);
/// For so long what was heard last still counts while a source does not answer.
const STALE: Duration = Duration::from_secs(60);
/// A runner whose lease nobody has heard of may have just been intended.
const UNHEARD: Duration = Duration::from_secs(60);
/// Between two tries to remove a runner.
const STRIKE_PAUSE: Duration = Duration::from_secs(30);
/// How often a runner is told to take no further job before that is taken for done.
const QUIET_TRIES: u32 = 3;

/// What the mind wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Read the source.
    Look,
    /// Let a runner take no further job.
    Quiet(RunnerName),
    /// Remove a runner from the source.
    Hit(RunnerName),
    /// Write down that a runner is gone.
    Gone(RunnerName),
    /// Write down how many jobs began on a runner.
    Worked(RunnerName, u32),
    /// Write down the numbers of a runner's rows.
    Numbered(RunnerName, BTreeSet<u64>),
    /// Remove a runner that nobody knows.
    Sweep(RunnerName),
    /// Tell the herd what is wanted, and the jobs on each lease.
    Lines(Vec<Level>, Vec<(LeaseId, u32)>),
    /// Look whether runners can be made, without making one.
    Prove,
    /// Ask a lease's guest whether its runner has ended.
    Ask(AgentId, LeaseId),
    /// A lease's runner is done: it is over.
    Over(AgentId, LeaseId, &'static str),
    /// A lease's runner is not what it should be.
    Fail(AgentId, LeaseId, String),
    /// A job was lost with its machine.
    Lost {
        /// Its runner.
        runner: RunnerName,
        /// The agent it ran on.
        agent: AgentId,
        /// The job, where that is known.
        job: Option<String>,
    },
    /// Wake it at this moment.
    WakeAt(Moment),
}

/// A runner whose lease lives, with what this side knows of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Runner {
    /// What this side knows.
    pub kept: Kept,
    /// Whether its lease is on its agent.
    pub lives: bool,
    /// The template of its agent, while that lives.
    pub template: Option<TemplateId>,
    /// Jobs after which it is done.
    pub most: u32,
    /// How long it may be without a job by what its template says; none for no limit.
    pub idle: Option<Duration>,
}

/// The mind of one source.
#[derive(Debug, Clone)]
pub struct SourceMind {
    pub(super) spec: Arc<SourceSpec>,
    /// Whose runners are drover's own.
    own: Installation,
    unknown_runners: UnknownRunners,
    /// Whether it is configured.
    configured: bool,
    /// Whether a look is under way.
    looking: bool,
    /// Whether there is a reason for another look at once.
    woken: bool,
    looked: Option<Moment>,
    /// How long the last look took.
    took: Duration,
    next: Moment,
    /// When another look is wanted, because it may end a lease.
    again: Option<Moment>,
    /// When it is looked whether guests answered that were asked about their runners, and for how
    /// long they had time since the last such look.
    hark: Option<(Moment, Duration)>,
    failures: u32,
    outage: Option<(Moment, Outage)>,
    /// Since when it cannot be looked at; also from before this start, until a look succeeds.
    silent: Option<WallTime>,
    seen: BTreeMap<RunnerName, Seen>,
    /// When its URL, login or scope changed last.
    changed: Option<Moment>,
    /// What keeps runners from being started.
    trouble: Trouble,
    /// What runners are too old for.
    outdated: Outdated,
    /// Jobs that want what this source may not have, by the last look.
    ignored: Vec<JobObservation>,
    /// Jobs of which the source does not tell what they want, by the last look.
    unread: Vec<UnreadJob>,
    /// What is wanted of the jobs that wait and no template offers.
    unoffered: Arc<[Unoffered]>,
    jobs: Vec<JobObservation>,
}

impl SourceMind {
    /// A mind that has not looked yet.
    pub fn new(spec: Arc<SourceSpec>, own: Installation, now: Moment) -> Self {
        Self {
            spec,
            own,
            unknown_runners: UnknownRunners::default(),
            configured: true,
            looking: false,
            woken: false,
            looked: None,
            took: Duration::ZERO,
            next: now,
            again: None,
            hark: None,
            failures: 0,
            outage: None,
            silent: None,
            seen: BTreeMap::new(),
            changed: None,
            trouble: Trouble::default(),
            outdated: Outdated::default(),
            ignored: Vec::new(),
            unread: Vec::new(),
            unoffered: Arc::default(),
            jobs: Vec::new(),
        }
    }

    /// The same, of a source that could not be looked at since then when it was heard of last.
    #[must_use]
    pub fn silent_from(self, since: Option<WallTime>) -> Self {
        Self { silent: since, ..self }
    }

    /// Since when it cannot be looked at, or could not be when it was heard of last.
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
    pub fn apply(&mut self, spec: Option<Arc<SourceSpec>>, now: Now, out: &mut Vec<Effect>) {
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
    pub fn not_served(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        self.trouble.cost_one(&self.spec, now);
        self.publish(runners, out);
    }

    /// Its URL, login or scope changed: runners that were made before may be where it does not look
    /// any more, and what is not seen of them means nothing.
    fn leave_former(&mut self, now: Now) {
        self.changed = Some(now.mono);
        for seen in self.seen.values_mut() {
            seen.listed = false;
            seen.gone = None;
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

    /// Whether runners can be made was looked at.
    pub fn proven(
        &mut self,
        obstacle: Result<Option<String>, Fault>,
        runners: &BTreeMap<RunnerName, Runner>,
        out: &mut Vec<Effect>,
    ) {
        self.trouble.proven(obstacle);
        self.publish(runners, out);
    }

    /// Takes in what its source said against runners.
    fn hear_refusals(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        for (name, runner) in runners {
            let Some(text) = &runner.kept.refused else { continue };
            let seen = self.seen.entry(name.clone()).or_default();
            if !std::mem::replace(&mut seen.refused, true) {
                tracing::warn!(
                    source = %self.spec.id, runner = %name, error = text,
                    "source lets no runner be made"
                );
                self.trouble.refuse(text, now);
            }
        }
        if self.configured && self.trouble.wants_proof(self.spec.poll, now.mono) {
            out.push(Effect::Prove);
        }
    }

    /// Runners that a look is to tell of, whether a list shows them or not.
    pub fn known(&self, runners: &BTreeMap<RunnerName, Runner>) -> Known {
        let open = |(name, runner): &(&RunnerName, &Runner)| {
            let seen = self.seen.get(*name);
            let made = runner.kept.runner_started.is_some() || seen.is_some_and(|seen| seen.listed);
            (made || !runner.lives) && seen.is_none_or(|seen| !seen.settled)
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

    /// A look that begins then may end a lease.
    fn look_by(&mut self, due: Moment) {
        self.again = Some(self.again.map_or(due, |again| again.min(due)));
    }

    /// Somebody says that there is news.
    pub fn wake(&mut self) {
        self.woken = true;
    }

    /// Does what is due. Every step ends with this.
    pub fn tick(
        &mut self,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        self.seen.retain(|name, _| runners.contains_key(name));
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
            self.bury(name, runner, now, out);
        }
        let gap = (self.took * 3).clamp(WAKE_GAP, WAKE_GAP_LONGEST);
        let earliest = self.looked.map_or(now.mono, |looked| looked + gap);
        if let Some(again) = self.again.filter(|_| !self.looking) {
            self.next = self.next.min(again);
        }
        let due = if self.woken { earliest.min(self.next) } else { self.next };
        let wanted = self.configured || !runners.is_empty();
        if wanted && !self.looking && due <= now.mono {
            self.looking = true;
            self.woken = false;
            self.again = None;
            self.looked = Some(now.mono);
            out.push(Effect::Look);
        }
        if wanted && !self.looking {
            let next = if self.woken { earliest } else { self.next };
            out.push(Effect::WakeAt(self.hark.map_or(next, |(at, _)| at.min(next))));
        }
    }

    /// Removes a runner whose lease is over.
    fn bury(&mut self, name: &RunnerName, runner: &Runner, now: Now, out: &mut Vec<Effect>) {
        let seen = self.seen.entry(name.clone()).or_default();
        if !seen.held && now.mono - runner.kept.since < UNHEARD {
            return;
        }
        if !seen.settled {
            // Whether its job was over before its machine was, only its source can tell; and so
            // whether one had a job at all whose machine went while nobody looked, or that was free
            // when it was looked at last.
            if seen.died.is_none() {
                seen.died = Some(now.mono);
                self.woken = true;
            }
            return;
        }
        seen.settled = true;
        let due = seen
            .deregister
            .is_none_or(|(at, under_way)| !under_way && now.mono - at >= STRIKE_PAUSE);
        if due {
            seen.deregister = Some((now.mono, true));
            out.push(Effect::Hit(name.clone()));
        }
    }

    /// A runner was told to take no further job, or could not be told: then it is told once more
    /// when it is seen again, until that is given up.
    pub fn cordoned(&mut self, name: &RunnerName, result: Result<(), Fault>, now: Moment) {
        let Some(seen) = self.seen.get_mut(name) else { return };
        match result {
            Ok(()) => seen.cordoned = Some(now),
            // It took a job meanwhile, which its row may show later.
            Err(Fault { kind: FaultKind::Locked { .. }, .. }) => {
                seen.quiet = false;
                seen.idle = None;
                seen.jobs = seen.jobs.max(1);
            }
            Err(fault) => {
                tracing::warn!(
                    source = %self.spec.id, runner = %name, error = %fault,
                    "runner takes jobs still"
                );
                seen.refusals += 1;
                seen.cordoned = (seen.refusals >= QUIET_TRIES).then_some(now);
                seen.quiet = seen.cordoned.is_some();
            }
        }
    }

    /// A removal came back.
    pub fn deregistered(
        &mut self,
        name: &RunnerName,
        result: Result<(), Fault>,
        out: &mut Vec<Effect>,
    ) {
        let Some(seen) = self.seen.get_mut(name) else { return };
        match result {
            Ok(()) => out.push(Effect::Gone(name.clone())),
            Err(fault) => {
                tracing::warn!(
                    source = %self.spec.id, runner = %name, error = %fault,
                    "runner can not be removed and is tried again"
                );
                if let Some((_, under_way)) = &mut seen.deregister {
                    *under_way = false;
                }
            }
        }
    }

    /// That a runner is gone could not be written down: it is removed once more.
    pub fn not_written(&mut self, name: &RunnerName, fault: &JournalFault) {
        tracing::warn!(source = %self.spec.id, runner = %name, error = %fault, "record not written");
        if let Some((_, under_way)) =
            self.seen.get_mut(name).and_then(|seen| seen.deregister.as_mut())
        {
            *under_way = false;
        }
    }

    /// A look came back.
    pub fn looked(
        &mut self,
        result: Result<SourceObservation, Fault>,
        runners: &BTreeMap<RunnerName, Runner>,
        now: Now,
        draw: u64,
        out: &mut Vec<Effect>,
    ) {
        self.looking = false;
        self.took = self.looked.map_or(Duration::ZERO, |began| now.mono - began);
        let observation = match result {
            Ok(observation) => observation,
            Err(fault) => return self.failed(&fault, now, draw),
        };
        if self.outage.take().is_some() {
            tracing::info!(source = %self.spec.id, "source can be looked at again");
        }
        self.failures = 0;
        self.silent = None;
        self.number(&observation, runners, out);
        let answers = Answers::of(&observation);
        for (name, runner) in runners {
            let reported = answers.reported(name);
            if runner.lives {
                self.judge(name, runner, reported, now, out);
            } else {
                self.mourn(name, runner, reported, out);
            }
        }
        for (name, seen) in &mut self.seen {
            let (Reported::Row(row) | Reported::Removed(row)) = answers.reported(name) else {
                continue;
            };
            let id = row.job.as_ref();
            let fresh = id.filter(|id| seen.waited.as_ref().is_none_or(|job| job.id != **id));
            // Only a job that is new to its runner is looked for among all that waited.
            let job = fresh.and_then(|id| self.jobs.iter().find(|job| job.id == *id));
            seen.waited = job.cloned().or_else(|| seen.waited.take());
        }
        let is_known = |name: &RunnerName| runners.contains_key(name);
        let unknown_runners =
            self.unknown_runners.look(&observation, &self.own, is_known, now.mono);
        out.extend(unknown_runners.into_iter().map(Effect::Sweep));
        self.find(observation.obstacle.as_deref(), now);
        self.unread = observation.unread;
        let allowed = self.spec.labels.clone();
        let jobs = if self.configured { observation.jobs } else { Vec::new() };
        let is_meant =
            |job: &JobObservation| allowed.as_ref().is_none_or(|allowed| is_of(&job.want, allowed));
        (self.jobs, self.ignored) = jobs.into_iter().partition(is_meant);
        self.outdated.look(&self.jobs, now.mono);
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
            tracing::warn!(source = %self.spec.id, error = %fault, "source can not be looked at");
        }
        let from = known.map_or(now.mono, |(from, _)| from);
        self.outage = Some((from, outage));
    }

    /// Says again what is wanted by the last look, where anything is.
    pub fn republish(&self, runners: &BTreeMap<RunnerName, Runner>, out: &mut Vec<Effect>) {
        if !self.jobs.is_empty() {
            self.publish(runners, out);
        }
    }

    /// Levels by what is wanted, and the jobs on each lease.
    fn publish(&self, runners: &BTreeMap<RunnerName, Runner>, out: &mut Vec<Effect>) {
        let mut levels: Vec<Level> = Vec::new();
        let mut places: BTreeMap<&Want, usize> = BTreeMap::new();
        let held = self.trouble.holds();
        let open = |job: &&JobObservation| !held && self.outdated.most(&job.want) > 0;
        for job in self.jobs.iter().filter(open) {
            let place = *places.entry(&job.want).or_insert(levels.len());
            match levels.get_mut(place) {
                Some(level) => level.since.push(job.since),
                None => levels.push(Level { want: job.want.clone(), since: vec![job.since] }),
            }
        }
        let most = if self.trouble.is_on_trial() { 1 } else { usize::MAX };
        for level in &mut levels {
            level.since.sort_unstable();
            level.since.truncate(most.min(self.outdated.most(&level.want)));
        }
        let on = runners.iter().filter(|(_, runner)| runner.lives).map(|(name, runner)| {
            // One that is settled takes no further job, and one whose row is gone for certain none that
            // it had not; nobody knows whether it had one before this start of the service.
            let jobs = self.seen.get(name).map_or(0, |seen| {
                // One of an earlier start had a row, and where nothing is heard of it no room is
                // counted on.
                let is_lost = runner.kept.restored && seen.missing && !seen.listed;
                let has_row = seen.gone.is_none() && !is_lost;
                let has_row = has_row || self.spec.registers && !seen.listed;
                let full = seen.settled || seen.quiet || seen.shut;
                let full = full || !has_row && seen.jobs < runner.most;
                if full { u32::MAX } else { seen.jobs }
            });
            (runner.kept.entry.lease.clone(), jobs)
        });
        out.push(Effect::Lines(levels, on.collect()));
    }
}

/// Whether everything that is wanted is among these labels.
fn is_of(want: &Want, allowed: &BTreeSet<String>) -> bool {
    match want {
        Want::Labels(labels) => labels.is_subset(allowed),
        Want::Expression(expression) => {
            expression.names().iter().all(|name| allowed.contains(*name))
        }
        Want::Template(_) => true,
    }
}

#[cfg(test)]
#[expect(clippy::wildcard_enum_match_arm, clippy::expect_used, reason = "tests")]
#[path = "mind_tests.rs"]
mod tests;
