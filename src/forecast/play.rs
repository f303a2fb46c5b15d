//! One replay: the demands of a trace come to a herd of a configuration, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_history::{Demand, DemandKind, Header, Trace};
use drover_model::addresses::AddressSource;
use drover_model::ambient::{Dice, mint_installation, mint_lease};
use drover_model::id::{CloudId, LeaseId, SourceId};
use drover_model::journal_state::JournalState;
use drover_model::ports::{Ambient as _, Calendar, Journal, JournalFault, Ports};
use drover_model::record::{Body, LeaseAsk, Want};
use drover_model::spec::HerdSpec;
use drover_model::tenant::By;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep_until, timeout};

use crate::ci::Job;
use crate::clock::VirtualAmbient;
use crate::figures::{Counted, Report};
use crate::ground::{Ground, Hardware};
use crate::herd::{GivenUpAtStart, Running, Start};
use crate::jobs::Jobs;
use crate::machines::Machines;
use crate::seen::Seen;
use crate::ways::{Dealer, Measured};

/// How long a herd runs before the range of a trace that began with agents already there.
const WARM_UP: Duration = Duration::from_secs(30 * 60);
/// How long those that still wait are waited for at the end.
const END_WAIT: Duration = Duration::from_secs(6 * 3600);
/// Between two looks whether jobs are over.
const GLANCE: Duration = Duration::from_secs(60);
/// How long a herd may take to answer. It answers at once.
const ANSWER: Duration = Duration::from_secs(3600);
/// The use of one whose like never was seen to its end.
const USE: Duration = Duration::from_secs(600);
/// The longest use, and how long after the end of a trace somebody still calls off: a replay ends within this.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);
/// What a lease may last beyond its use.
const SPARE: Duration = Duration::from_secs(3600);

/// What a replay is made with.
#[derive(Clone)]
pub struct Options {
    /// Fixes all chance.
    pub seed: u64,
    /// Cron patterns and time zones.
    pub calendar: Arc<dyn Calendar>,
    /// Clouds with equal names lead to one cluster.
    pub clusters: BTreeMap<CloudId, String>,
    pub hardware: Hardware,
}

/// What came of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Played {
    /// What drover would have seen, by the rules of its own history.
    pub trace: Trace,
    /// When those came that no template serves, or that a limit refused.
    pub refused: Vec<WallTime>,
    /// What was assumed, and what could not be replayed, in sentences.
    pub notes: Vec<String>,
    /// How often breakers of templates opened.
    pub breaker_trips: u64,
}

impl Played {
    /// The numbers of it; `spec` is the configuration that was played.
    pub fn report(&self, spec: &HerdSpec) -> Report {
        Counted::of(&self.trace, &self.refused).report(Some(spec))
    }
}

/// Why nothing came of a replay.
#[derive(Debug, thiserror::Error)]
pub enum PlayFault {
    #[error("the runtime of the replay did not start")]
    Runtime(#[source] std::io::Error),
    #[error("the herd did not start")]
    Start(#[source] GivenUpAtStart),
    #[error("the herd did not answer for {} s", ANSWER.as_secs())]
    Silent,
    #[error("the actor {0} panicked too often")]
    GivenUp(String),
}

/// A journal that keeps nothing: nobody starts again in a replay.
struct NoJournal(std::sync::atomic::AtomicU64);

impl Journal for NoJournal {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let many = u64::try_from(bodies.len()).unwrap_or(u64::MAX);
        let first = self.0.fetch_add(many, std::sync::atomic::Ordering::AcqRel) + 1;
        std::future::ready(Ok(first)).boxed()
    }

    fn last_seq(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Acquire)
    }
}

/// Replays a trace on a configuration. `progress` hears how far it is, from 0 to 1.
///
/// # Errors
/// When the herd cannot be started, or does not go on.
pub fn play(
    trace: &Trace,
    spec: &HerdSpec,
    options: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Played, PlayFault> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().map_err(PlayFault::Runtime)?;
    runtime.block_on(async { Play::start(trace, spec, options).await?.run(progress).await })
}

/// A configuration without what has no part in a replay.
fn replayed(
    spec: &HerdSpec,
    header: &Header,
    sources: &BTreeSet<&str>,
    notes: &mut Vec<String>,
) -> HerdSpec {
    let mut spec = spec.clone();
    if !spec.declared.is_empty() {
        let room = match header.nodes.is_empty() {
            true => "they take no room of the nodes",
            false => "what ran when the trace was written takes its room of the nodes",
        };
        notes.push(format!("declared machines are left out; {room}"));
    }
    if !spec.leases.quotas.is_empty() && !header.names {
        let text = "quotas limit nobody: the trace has no names of owners; `drover trace --names` writes them";
        notes.push(text.to_owned());
    }
    spec.declared.clear();
    spec.images.clear();
    spec.sources.retain(|source, _| sources.contains(source.as_str()));
    for template in spec.templates.values_mut().filter(|one| one.address == AddressSource::Call) {
        Arc::make_mut(template).address = AddressSource::GuestAgent;
    }
    spec
}

/// A demand in the replay.
pub(crate) struct Due<'a> {
    demand: &'a Demand,
    want: Want,
    /// The time of its use.
    pub(crate) used: Duration,
    /// When it is called off if it still waits.
    pub(crate) called_off: Option<WallTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Release(usize),
    CallOff(usize),
    Arrive(usize),
}

struct Play<'a> {
    trace: &'a Trace,
    due: Vec<Due<'a>>,
    run: Running,
    seen: Seen,
    jobs: Jobs,
    ambient: Arc<VirtualAmbient>,
    began: (Instant, WallTime),
    agenda: BTreeSet<(Instant, Happens)>,
    leases: BTreeMap<LeaseId, usize>,
    /// By the demand's number: its lease, or its job at its source.
    asked: BTreeMap<usize, LeaseId>,
    pushed: BTreeMap<usize, (SourceId, usize)>,
    refused: BTreeSet<usize>,
    released: BTreeSet<usize>,
    notes: Vec<String>,
}

impl<'a> Play<'a> {
    async fn start(
        trace: &'a Trace,
        spec: &HerdSpec,
        options: &Options,
    ) -> Result<Self, PlayFault> {
        let from = trace.header.from;
        let is_warm = trace.agents.iter().any(|agent| agent.made < from);
        let wall = if is_warm { from.before(WARM_UP) } else { from };
        let mut notes = Vec::new();
        let due = due(trace, spec, &mut notes);
        let sources: BTreeSet<&str> =
            due.iter().filter_map(|one| one.demand.source.as_deref()).collect();
        let spec = replayed(spec, &trace.header, &sources, &mut notes);
        let mut dice = Dice::from_number(options.seed).fork("installation");
        let installation = mint_installation(|| dice.draw());
        let ground = Ground::new(&spec, trace, &options.clusters, options.hardware, &installation);
        notes.extend(ground.assumed.iter().cloned());
        let measured = Measured::of(trace);
        notes.extend(borrowed(&spec, &measured));
        let machines = Machines::new(ground, Dealer::new(measured, options.seed));
        let jobs = Jobs::new(&spec, machines.clone());
        let seen = Seen::new(wall);
        let ambient = Arc::new(VirtualAmbient::new(wall, options.seed));
        let ports = Ports {
            hypervisor: Arc::new(machines.clone()),
            shell: Arc::new(machines),
            demand: Arc::new(jobs.clone()),
            journal: Arc::new(NoJournal(Default::default())),
            observer: Arc::new(seen.clone()),
            ambient: Arc::clone(&ambient) as _,
            calendar: Arc::clone(&options.calendar),
        };
        let start = Start {
            ports,
            journal_state: JournalState::default(),
            spec: Arc::new(spec),
            installation,
            down: Duration::ZERO,
            machine: None,
        };
        let began = (Instant::now(), wall);
        let run = Running::start(start).await.map_err(PlayFault::Start)?;
        let mut play = Self {
            trace,
            due,
            run,
            seen,
            jobs,
            ambient,
            began,
            agenda: BTreeSet::new(),
            leases: BTreeMap::new(),
            asked: BTreeMap::new(),
            pushed: BTreeMap::new(),
            refused: BTreeSet::new(),
            released: BTreeSet::new(),
            notes,
        };
        let arrivals = play.due.iter().enumerate();
        let arrivals: Vec<_> = arrivals.map(|(at, due)| (due.demand.arrived, at)).collect();
        for (arrived, at) in arrivals {
            play.agenda.insert((play.instant(arrived), Happens::Arrive(at)));
        }
        Ok(play)
    }

    /// The instant of a wall time; the start for one before it.
    fn instant(&self, wall: WallTime) -> Instant {
        self.began.0 + (wall - self.began.1)
    }

    fn wall(&self, at: Instant) -> WallTime {
        self.began.1 + at.saturating_duration_since(self.began.0)
    }

    async fn run(mut self, progress: &mut dyn FnMut(f64)) -> Result<Played, PlayFault> {
        let to = self.instant(self.trace.header.to);
        let last = self.agenda.last().map_or(to, |(at, _)| *at).max(to);
        let whole = last.saturating_duration_since(self.began.0).as_secs_f64().max(1.0);
        let mut deadline = last + END_WAIT;
        loop {
            progress((self.began.0.elapsed().as_secs_f64() / whole).min(1.0));
            self.hear();
            let now = Instant::now();
            if let Some((at, happens)) = self.agenda.first().copied() {
                if at <= now {
                    self.agenda.pop_first();
                    self.carry_out(happens).await?;
                    continue;
                }
                deadline = deadline.max(at + END_WAIT);
            } else if now >= to && (self.is_over() || now >= deadline) {
                break;
            }
            let glance = if now < to { to } else { now + GLANCE };
            let next = self.agenda.first().map_or(glance, |(at, _)| *at);
            self.pass(next).await?;
        }
        Ok(self.played())
    }

    /// Lets the herd run until then, or until a lease is ready.
    async fn pass(&self, until: Instant) -> Result<(), PlayFault> {
        let seen = &self.seen;
        let passed = self.run.local.run_until(async {
            tokio::select! {
                biased;
                () = seen.news() => {}
                () = sleep_until(until) => {}
            }
        });
        passed.await;
        match self.run.given_up.lock().first() {
            Some(actor) => Err(PlayFault::GivenUp(actor.name.clone())),
            None => Ok(()),
        }
    }

    /// Leases that are ready are used from now on.
    fn hear(&mut self) {
        for lease in self.seen.take_news() {
            let Some(number) = self.leases.get(&lease).copied() else { continue };
            let (Some(ready), Some(due)) = (self.seen.ready(&lease), self.due.get(number)) else {
                continue;
            };
            let over = self.instant(ready) + due.used;
            self.agenda.insert((over, Happens::Release(number)));
        }
    }

    fn is_over(&self) -> bool {
        let waits = self
            .asked
            .keys()
            .any(|number| !self.released.contains(number) && !self.refused.contains(number));
        !waits && self.jobs.are_quiet()
    }

    async fn carry_out(&mut self, happens: Happens) -> Result<(), PlayFault> {
        match happens {
            Happens::Arrive(number) => self.arrive(number).await,
            Happens::Release(number) => self.release(number).await,
            Happens::CallOff(number) => {
                if let Some((source, job)) = self.pushed.get(&number) {
                    self.jobs.cancel(source, *job);
                }
                let waits =
                    self.asked.get(&number).is_some_and(|one| self.seen.ready(one).is_none());
                if waits { self.release(number).await } else { Ok(()) }
            }
        }
    }

    async fn arrive(&mut self, number: usize) -> Result<(), PlayFault> {
        let Some(due) = self.due.get(number) else { return Ok(()) };
        if let Some(at) = due.called_off {
            self.agenda.insert((self.instant(at), Happens::CallOff(number)));
        }
        let now = self.wall(Instant::now());
        if let Some(source) = &due.demand.source {
            let source = SourceId::new(source);
            let job = Job::new(due.want.clone(), due.used, now);
            let job = self.jobs.push(&source, job);
            self.pushed.insert(number, (source, job));
            return Ok(());
        }
        let owner = due.demand.owner.clone().unwrap_or_else(|| "unknown".to_owned());
        let lease = mint_lease(|| self.ambient.draw());
        let ttl = (due.used + SPARE).as_millis();
        let ask = Box::new(LeaseAsk {
            lease: lease.clone(),
            want: due.want.clone(),
            principal: owner.clone(),
            owner,
            ttl_ms: u64::try_from(ttl).unwrap_or(u64::MAX),
            public_key: Some("ssh-ed25519 REPLAY replay".to_owned()),
            key_hash: None,
            body_hash: String::new(),
            asked: now,
            source: None,
            whole: due.demand.whole,
            user_data: false,
            group: due.demand.group.clone(),
            wait_ms: None,
        });
        self.leases.insert(lease.clone(), number);
        self.asked.insert(number, lease);
        let answer = self.ask(|reply| HerdCommand::Lease { ask, reply }).await?;
        if answer.is_err() {
            self.refused.insert(number);
        }
        Ok(())
    }

    async fn release(&mut self, number: usize) -> Result<(), PlayFault> {
        let Some(lease) = self.asked.get(&number).cloned() else { return Ok(()) };
        self.released.insert(number);
        let by = By::admin("simulate");
        // One that ended by itself is released already.
        self.ask(|reply| HerdCommand::Release { lease, by, reply }).await.map(drop)
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> HerdCommand) -> Result<T, PlayFault> {
        let (reply, answer) = Reply::channel();
        self.run.herd.do_send(command(reply));
        let answer = self.run.local.run_until(timeout(ANSWER, answer)).await;
        answer.ok().and_then(Result::ok).ok_or(PlayFault::Silent)
    }

    fn played(self) -> Played {
        let now = self.wall(Instant::now());
        let header = Header { names: true, left_out: Vec::new(), ..self.trace.header.clone() };
        let trace = self.seen.trace(header, now);
        let refused = self.refused.iter().filter_map(|number| self.due.get(*number));
        let refused = refused.map(|due| due.demand.arrived).collect();
        Played { trace, refused, breaker_trips: self.seen.trips(), notes: self.notes }
    }
}

/// The demands of a trace that can be replayed on a configuration.
pub(crate) fn due<'a>(trace: &'a Trace, spec: &HerdSpec, notes: &mut Vec<String>) -> Vec<Due<'a>> {
    let typical = Typical::of(trace);
    let (mut due, mut unknown) = (Vec::new(), 0_u64);
    let mut sourceless: BTreeMap<&str, u64> = BTreeMap::new();
    for demand in trace.demands.iter().filter(|one| one.kind != DemandKind::Runner) {
        let Some(want) = &demand.wants else {
            unknown += 1;
            continue;
        };
        if let Some(source) = &demand.source
            && !spec.sources.contains_key(&SourceId::new(source))
        {
            *sourceless.entry(source).or_default() += 1;
            continue;
        }
        // Who was not served in the end is as patient here.
        let latest = trace.header.to + LONGEST;
        let called_off = demand.ended.filter(|_| demand.served.is_none()).map(|at| at.min(latest));
        due.push(Due {
            demand,
            want: want.clone(),
            used: typical.used(demand, trace).min(LONGEST),
            called_off,
        });
    }
    if unknown > 0 {
        notes
            .push(format!("{unknown} demands are left out: the trace does not say what they want"));
    }
    for (source, count) in sourceless {
        notes
            .push(format!("{count} jobs are left out: the configuration has no source `{source}`"));
    }
    due
}

/// Usual times of use, for demands whose own is not known.
struct Typical<'a> {
    by_want: BTreeMap<&'a Want, Vec<u64>>,
    all: Vec<u64>,
}

impl<'a> Typical<'a> {
    fn of(trace: &'a Trace) -> Self {
        let (mut by_want, mut all): (BTreeMap<&Want, Vec<u64>>, Vec<u64>) = Default::default();
        for demand in trace.demands.iter().filter(|one| one.kind != DemandKind::Runner) {
            let Some(ran) = demand.ran_ms() else { continue };
            all.push(ran);
            if let Some(want) = &demand.wants {
                by_want.entry(want).or_default().push(ran);
            }
        }
        by_want.values_mut().chain([&mut all]).for_each(|spans| spans.sort_unstable());
        Self { by_want, all }
    }

    fn used(&self, demand: &Demand, trace: &Trace) -> Duration {
        if let Some(ran) = demand.ran_ms() {
            return Duration::from_millis(ran);
        }
        let middle = |spans: &Vec<u64>| spans.get(spans.len() / 2).copied();
        let known = demand.wants.as_ref().and_then(|want| self.by_want.get(want));
        let usual = known.and_then(middle).or_else(|| middle(&self.all));
        let usual = usual.map_or(USE, Duration::from_millis);
        // One that goes on has run for so long already.
        let so_far = demand.served.map_or(Duration::ZERO, |served| trace.header.to - served);
        usual.max(so_far)
    }
}

/// Which templates have the lengths of others.
fn borrowed(spec: &HerdSpec, measured: &Measured) -> Vec<String> {
    let notes = spec.templates.values().filter_map(|template| {
        let name = template.id.to_string();
        match measured.lender(&template.id) {
            Some(lender) if lender == name => None,
            Some(lender) => Some(format!(
                "`{name}` has the lengths of `{lender}`: the trace has no agent of it"
            )),
            None => Some(format!(
                "an agent of `{name}` is ready after {} s: the trace has no agent",
                READY_AFTER.as_secs()
            )),
        }
    });
    notes.collect()
}

/// The whole way of an agent that is assumed.
const READY_AFTER: Duration = Duration::from_secs(45);
