//! A plan played: its events in their time, traps and restarts between them, and a finale in which
//! everything is calm and everybody gets what is owed.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::phase::{AgentPhase, NodeOrder};
use drover_model::stop::StopPolicy;
use drover_runtime::reply::Reply;
use pve_sim::world::Faults;
use tokio::time::{sleep, timeout};

use super::askers::Askers;
use super::branch::Branch;
use super::deaths;
use super::plan::{Bait, CloudConf, Deed, Plan, SOURCES, SourceConf, TemplateConf};
use super::seen::Wrong;
use super::stage;
use super::watch::Watch;
use crate::on_paused_clock;
use crate::world::World;
use crate::world::tap::{Hit, Knock};

/// The longest the finale may take.
const WAIT_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// The longest a start may take.
const START: Duration = Duration::from_secs(3600);
/// The longest an orderly stop may take before it is cut.
const STOP: Duration = Duration::from_secs(120);
/// How long a disc image may outlive its agent: until two reconciliations and their grace are over.
const SWEPT: Duration = Duration::from_secs(600);
/// How long a guest of ours may be without a record: never, but for the time of a look.
const UNOWNED: Duration = Duration::from_secs(60);

/// How often the herd looks at the clock for a reload that changes nothing: for the fact that this reports.
const OWN_LOOKS: u64 = 1;

/// What came of a plan that went well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What became of everybody's lease.
    pub fates: BTreeMap<u32, String>,
    /// Agents ready in the end, by template.
    pub pool: BTreeMap<String, usize>,
    /// Everything that was reported and asked, where that was kept.
    pub log: Vec<String>,
    /// How often actors looked at the clock at the moments of reloads that may change nothing.
    looks: Vec<u64>,
}

/// What went wrong in a plan, with what was seen last.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The first thing that was wrong.
    pub wrong: Wrong,
    /// Agents, leases, last facts.
    pub portrait: String,
}

/// A play under way.
pub struct Play {
    pub(super) world: World,
    pub(super) watch: Arc<Watch>,
    pub(super) askers: Askers,
    pub(super) clouds: [Option<CloudConf>; 3],
    pub(super) templates: [Option<TemplateConf>; 3],
    pub(super) branch: Branch,
    pub(super) sources: Vec<Option<SourceConf>>,
    pub(super) orphans: BTreeSet<u32>,
    /// Nodes that were ever cordoned or drained, by number.
    pub(super) closed_nodes: BTreeSet<usize>,
    pub(super) plan: Plan,
    /// How often actors looked at the clock at each reload that changes nothing.
    looks: Vec<u64>,
    /// What follows when the trap springs: how long others go on, and how long it is down.
    trap: Option<(Duration, Duration)>,
}

/// Plays a plan on a clock of its own; a panic is a failure too.
pub fn play(plan: &Plan, logging: bool) -> Result<Outcome, Failure> {
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        on_paused_clock(async {
            let mut play = Play::new(plan, logging);
            let outcome = play.whole().await;
            play.world.unwatch();
            play.world.judged = true;
            outcome
        })
    }));
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_else(|| "a panic without a text".into());
        let wrong = Wrong { invariant: "nothing-panics", text, at: Duration::ZERO };
        Err(Failure { wrong, portrait: String::new() })
    })
}

/// Plays a plan; one of demand and crashes alone is compared with the same without crashes, and one
/// with reloads that change nothing with the same without them.
pub fn judge(plan: &Plan) -> Result<(), Failure> {
    let untouched = plan.untouched();
    let outcome = play(plan, untouched != *plan)?;
    if untouched != *plan {
        return unheard(&outcome, &play(&untouched, true)?);
    }
    let uncut = plan.uncut();
    if !plan.is_strict() || uncut == *plan {
        return Ok(());
    }
    let other = play(&uncut, false)?;
    if outcome == other {
        return Ok(());
    }
    let text = format!("with crashes {outcome:?}\nwithout     {other:?}");
    let wrong = Wrong { invariant: "crashes-change-nothing", text, at: Duration::ZERO };
    Err(Failure { wrong, portrait: String::new() })
}

/// Nobody but the herd's root hears of a reload that changes nothing: all else is the same, each
/// request and fact at its moment, in whatever order at that.
fn unheard(with: &Outcome, without: &Outcome) -> Result<(), Failure> {
    let reported = |outcome: &Outcome| {
        let reported = outcome.log.iter().filter(|line| !line.contains("ConfigApplied"));
        let mut reported: Vec<String> = reported.cloned().collect();
        reported.sort();
        reported
    };
    let mut looks = with.looks.iter().zip(&without.looks);
    let looked = looks.find(|(with, without)| with.saturating_sub(**without) != OWN_LOOKS);
    let (lines, others) = (reported(with), reported(without));
    let text = if let Some((with, without)) = looked {
        format!("with them {with} looks at the clock, without {without}")
    } else if lines == others {
        return Ok(());
    } else {
        let differs = lines.iter().zip(&others).position(|(with, without)| with != without);
        let at = differs.unwrap_or_else(|| lines.len().min(others.len()));
        format!("with them {:?}\nwithout   {:?}", lines.get(at), others.get(at))
    };
    let wrong = Wrong { invariant: "reloads-reach-whom-they-concern", text, at: Duration::ZERO };
    Err(Failure { wrong, portrait: String::new() })
}

impl Play {
    fn new(plan: &Plan, logging: bool) -> Self {
        let world = World::new(stage::setup(&plan.stage));
        let nodes = |(conf, _): &(&SourceConf, _)| conf.nodes;
        for (_, source) in plan.stage.sources.iter().zip(SOURCES).filter(nodes) {
            world.ci.nodes(source);
        }
        for (conf, source) in plan.stage.sources.iter().zip(SOURCES) {
            world.ci.lists(source, conf.lists);
            if conf.guesses {
                world.ci.guesses(source);
            }
        }
        let watch = Watch::over(&world, &plan.stage, logging);
        let eye: Arc<dyn crate::world::eye::Eye> = Arc::clone(&watch) as _;
        world.watch(&eye);
        for vmid in world.sides.guests() {
            watch.stranger(vmid);
        }
        Self {
            world,
            watch,
            askers: Askers::default(),
            clouds: plan.stage.clouds.clone(),
            templates: plan.stage.templates.clone(),
            branch: Branch::of(plan.stage.templates.clone()),
            sources: plan.stage.sources.iter().cloned().map(Some).collect(),
            orphans: BTreeSet::new(),
            closed_nodes: BTreeSet::new(),
            plan: plan.clone(),
            looks: Vec::new(),
            trap: None,
        }
    }

    async fn whole(&mut self) -> Result<Outcome, Failure> {
        self.start().await?;
        for event in std::mem::take(&mut self.plan.events) {
            self.run_to(Duration::from_millis(event.at)).await?;
            if event.deed.harms() {
                self.watch.harm();
            }
            self.act(event.deed).await?;
            self.askers.turn(&self.world, &self.watch);
            self.look().await?;
        }
        self.finale().await
    }

    /// Whether nothing was wrong so far.
    pub(super) fn sound(&self) -> Result<(), Failure> {
        match self.watch.wrong() {
            Some(wrong) => Err(Failure { wrong, portrait: self.world.portrait() }),
            None => Ok(()),
        }
    }

    /// Reads everything again.
    async fn look(&mut self) -> Result<(), Failure> {
        self.watch.unowned(UNOWNED);
        self.watch.linger();
        if self.world.runs() {
            self.watch.overdue();
        }
        let mut wrongs = self.wrongs();
        if !wrongs.is_empty() && self.world.runs() {
            // Messages of this very moment may be on their way.
            self.world.pass(Duration::from_millis(1)).await;
            wrongs = self.wrongs();
        }
        for (invariant, text) in wrongs {
            self.watch.complain(invariant, text);
        }
        self.sound()
    }

    fn wrongs(&self) -> Vec<(&'static str, String)> {
        let mut wrongs = self.world.wrongs();
        let crowded = self.world.wire.crowded().map(|place| format!("on {place:?}"));
        wrongs.extend(crowded.map(|text| ("one-question-to-guests-at-a-time", text)));
        wrongs.extend(self.unlisted().map(|text| ("no-runner-without-a-record", text)));
        if !self.world.runs() {
            return wrongs;
        }
        let live = self.watch.live();
        let reported = self.world.view().agents();
        let shown: BTreeSet<_> = reported.iter().map(|agent| agent.agent.clone()).collect();
        let recorded: BTreeSet<_> =
            live.iter().filter(|(_, live)| live.recorded).map(|(agent, _)| agent.clone()).collect();
        let queued = |agent: &&std::sync::Arc<drover_model::status::AgentStatus>| {
            let orphan = agent.vmid.is_some_and(|vmid| self.orphans.contains(&vmid.0));
            agent.phase == AgentPhase::Queued || orphan
        };
        let free: BTreeSet<_> =
            reported.iter().filter(queued).map(|agent| agent.agent.clone()).collect();
        let without: Vec<_> = shown.difference(&recorded).filter(|a| !free.contains(*a)).collect();
        let hidden: Vec<_> = recorded.difference(&shown).collect();
        if !without.is_empty() || !hidden.is_empty() {
            let text = format!("without a record: {without:?}, without an actor: {hidden:?}");
            wrongs.push(("permits-equal-live-records", text));
        }
        wrongs
    }

    /// Lets it run until a moment, through every trap that springs meanwhile.
    pub(super) async fn run_to(&mut self, until: Duration) -> Result<(), Failure> {
        loop {
            let (wire, watch) = (self.world.wire.clone(), Arc::clone(&self.watch));
            let ended = self.world.step(until, |_| wire.sprung() || watch.wrong().is_some()).await;
            self.sound()?;
            self.askers.turn(&self.world, &self.watch);
            if !ended {
                return Ok(());
            }
            let (linger, away) = self.trap.take().unwrap_or_default();
            self.world.pass(linger).await;
            self.sound()?;
            self.crash(away).await?;
        }
    }

    /// The service starts.
    pub(super) async fn start(&mut self) -> Result<(), Failure> {
        let journal_state = self.world.journal_state();
        self.watch.begin(&journal_state, &self.world.setup.checked().herd);
        if timeout(START, self.world.start()).await.is_err() {
            let text = "a start never came to its end".to_owned();
            self.watch.complain("every-start-ends", text);
        }
        self.sound()?;
        self.askers.turn(&self.world, &self.watch);
        Ok(())
    }

    /// The power goes and comes back.
    pub(super) async fn crash(&mut self, away: Duration) -> Result<(), Failure> {
        self.trap = None;
        self.world.crash();
        self.askers.cut();
        sleep(away).await;
        self.start().await
    }

    /// The service stops in order, or is cut when that takes too long, and starts again.
    pub(super) async fn stop(&mut self, policy: StopPolicy, away: Duration) -> Result<(), Failure> {
        self.trap = None;
        self.world.tap.release();
        self.world.wire.disarm();
        self.world.stop_within(policy, STOP).await;
        self.askers.cut();
        self.sound()?;
        sleep(away).await;
        self.start().await
    }

    /// Lays a trap; one that lies already is taken away.
    pub(super) fn lay(
        &mut self,
        (of, nth): (Bait, u32),
        after: bool,
        linger: Duration,
        away: Duration,
    ) {
        self.trap = Some((linger, away));
        let mut met = 0;
        self.world.tap.watch(move |knock: &Knock| {
            let counts = match knock.call {
                "append" => of == Bait::Append,
                "admit" | "expel" if of == Bait::Key => true,
                "observe" | "now" | "draw" => false,
                _ => of == Bait::Effect,
            };
            met += u32::from(counts);
            match counts && met == nth + 1 {
                true if after => Hit::HoldAnswer,
                true => Hit::Hold,
                false => Hit::Pass,
            }
        });
    }

    /// The YAML as it stands comes into force.
    pub(super) fn reload(&mut self) {
        let stage = &self.plan.stage;
        stage::configure(&mut self.world.setup, stage, &self.clouds, &self.templates);
        stage::configure_sources(&mut self.world.setup, stage, &self.sources);
        self.watch.spec(&self.world.setup.checked().herd);
        self.world.reload();
        self.askers.hope();
    }

    /// The YAML is saved again as it was, or not; noted is how often actors looked at the clock then.
    pub(super) async fn touch(&mut self, saved: bool) {
        let before = self.world.tap.looks();
        if saved {
            self.world.reload();
        }
        self.world.pass(Duration::from_millis(1)).await;
        self.looks.push(self.world.tap.looks() - before);
    }

    async fn finale(&mut self) -> Result<Outcome, Failure> {
        self.world.tap.release();
        self.world.wire.disarm();
        self.trap = None;
        self.act(Deed::Weather(Box::<Faults>::default())).await?;
        let (clusters, nodes) = (self.plan.stage.clusters(), self.plan.stage.nodes);
        for cluster in 0..clusters {
            self.act(Deed::Afar(cluster, Box::default())).await?;
            self.act(Deed::Cut(cluster, false)).await?;
            self.act(Deed::Apart(cluster, false)).await?;
            for storage in 0..stage::STORAGES.len() {
                self.act(Deed::Offline(cluster, storage, false)).await?;
            }
            for number in 0..nodes {
                self.act(Deed::Stale(10 * cluster + number, false)).await?;
                self.act(Deed::NodeUp(10 * cluster + number)).await?;
            }
        }
        let stage = self.plan.stage.clone();
        let sources: Vec<_> = stage.sources.iter().cloned().map(Some).collect();
        for source in 0..sources.len() {
            self.act(Deed::Mute(source, false)).await?;
            self.act(Deed::Forbid(source, false)).await?;
        }
        let all = (&self.clouds, &self.templates, &self.sources);
        if all != (&stage.clouds, &stage.templates, &sources) {
            (self.clouds, self.templates) = (stage.clouds, stage.templates);
            self.sources = sources;
            self.reload();
        }
        self.unlimit();
        self.unset();
        // Anyone who died by now is known as dead a while later, before anybody gives a lease back.
        self.run_to(self.world.elapsed() + deaths::CALM).await?;
        self.watch.dead_leases(deaths::CALM);
        self.watch.late_leases();
        self.sound()?;
        self.askers.end_all();
        let started = self.world.elapsed();
        while !self.askers.busy(&self.watch).is_empty() || !self.served() || !self.rests() {
            if self.world.elapsed() > started + WAIT_LIMIT {
                let text = format!(
                    "busy are {:?}, all is served: {}, the pool rests: {}, leases {:?}, \
                     sources {:?}, alarms {:?}, pool {:?}",
                    self.askers.busy(&self.watch),
                    self.served(),
                    self.rests(),
                    self.askers.fates(&self.watch),
                    self.world.view().sources(),
                    self.world.view().alarms(),
                    self.pool(),
                );
                self.watch.complain("everything-comes-to-an-end", text);
            }
            self.turn().await?;
        }
        let fates = self.askers.fates(&self.watch);
        let pool = self.pool();
        self.sweep_images().await?;
        self.retire_all().await?;
        let mut log = self.watch.log();
        if !log.is_empty() {
            log.extend(self.world.notes.log());
        }
        Ok(Outcome { fates, pool, log, looks: std::mem::take(&mut self.looks) })
    }

    /// A while passes, and administrators do what they are asked to.
    async fn turn(&mut self) -> Result<(), Failure> {
        let until = self.world.elapsed() + Duration::from_secs(20);
        self.run_to(until).await?;
        self.look().await?;
        self.administer();
        self.unlock_templates();
        for number in self.closed_nodes.clone() {
            self.order_node(number, NodeOrder::Use);
        }
        self.askers.hope();
        Ok(())
    }

    /// Disc images that outlived their agents are removed by drover where it may, and by anyone who reads
    /// its reports where it may not.
    async fn sweep_images(&mut self) -> Result<(), Failure> {
        let started = self.world.elapsed();
        while !self.unknown_images().is_empty() && self.world.elapsed() < started + SWEPT {
            self.turn().await?;
        }
        for (cluster, node, volume) in self.unknown_images() {
            let clouds =
                self.clouds.iter().zip(self.plan.stage.leads).filter(|(_, at)| *at == cluster);
            let clean = clouds.filter_map(|(conf, _)| conf.as_ref()).all(|conf| conf.cleanup);
            if clean {
                let text = format!("image {volume} of nobody is on {node} of cluster {cluster}");
                self.watch.complain("no-image-without-an-owner", text);
            }
            self.world.sides.at(cluster).remove_volume(&node, &volume);
        }
        self.sound()
    }

    /// Disc images of agents that nobody knows.
    fn unknown_images(&self) -> Vec<(usize, String, String)> {
        let live = self.watch.live();
        let unknown = |volume: &str| {
            let owner = drover_model::seed::owner(volume);
            owner.is_some_and(|(_, agent)| !live.contains_key(&agent))
        };
        let all = self.world.images().into_iter();
        all.filter(|(_, _, volume)| unknown(volume)).collect()
    }

    async fn retire_all(&mut self) -> Result<(), Failure> {
        self.watch.harm();
        self.sweep_orphans();
        let (reply, mut answer) = Reply::channel();
        self.world.send(HerdCommand::Drain { policy: StopPolicy::RetireAll, reply });
        let started = self.world.elapsed();
        let mut answered = false;
        while !answered || !self.world.view().agents().is_empty() {
            answered |= answer.try_recv().is_ok();
            if self.world.elapsed() > started + WAIT_LIMIT {
                let text = "a stop that retires all never ends".to_owned();
                self.watch.complain("everything-comes-to-an-end", text);
            }
            self.turn().await?;
        }
        self.world.pass(Duration::from_secs(5)).await;
        for (invariant, text) in self.world.remains() {
            self.watch.complain(invariant, text);
        }
        self.sound()
    }

    /// Agents that are ready for anybody, by template.
    fn pool(&self) -> BTreeMap<String, usize> {
        let mut pool: BTreeMap<String, usize> = BTreeMap::new();
        for agent in self.world.view().agents() {
            let ready = agent.phase == AgentPhase::Ready && agent.leases.is_empty();
            let state = if ready { String::new() } else { format!(" {}", agent.phase) };
            *pool.entry(format!("{}{state}", agent.template)).or_default() += 1;
        }
        pool
    }

    /// Whether each template has just what it keeps warm at this moment, and nothing else lives.
    fn rests(&self) -> bool {
        let specs = &self.world.spec().templates;
        let reported = self.world.view().templates();
        // What windows of a schedule add is theirs to say; less than the YAML says it never is.
        let kept = reported.iter().filter_map(|reported| {
            let spec = specs.get(&reported.template)?;
            let kept =
                (reported.minimum.max(spec.minimum), reported.idle_minimum.max(spec.idle_minimum));
            Some((reported.template.to_string(), kept.0.max(kept.1)))
        });
        let wanted: BTreeMap<String, usize> =
            kept.filter(|(_, kept)| *kept > 0).map(|(id, kept)| (id, kept as usize)).collect();
        self.pool() == wanted
    }
}
