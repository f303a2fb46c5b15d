//! A short life of a herd with everything in it, that goes on whichever actor panics: where the root did,
//! the service is started again, as its supervisor does.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_model::fact::What;
use drover_model::id::LeaseId;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::status::AgentStatus;
use drover_model::stop::StopPolicy;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;
use drover_server::view::View;
use futures_util::FutureExt;
use pve_sim::spec::GuestSpec;

use super::asker;
use crate::world::World;
use crate::world::ci::{Habit, Job, Stage};
use crate::world::setup::{CI_LOGINS, Setup};
use crate::world::tap::{Hit, Knock};

const MINUTE: Duration = Duration::from_secs(60);

/// A knock at a port, by the actor that knocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    pub actor: String,
    /// The port's method.
    pub call: &'static str,
}

/// What goes wrong in a play.
#[derive(Debug, Clone)]
pub enum Blow {
    /// The knock of this number is hit.
    Once(usize, Hit),
    /// From the knock of this number on every knock of its actor panics, until it is given up. The
    /// knocks by which supervision counts a panic pass.
    Fell(usize),
}

/// How supervision counts a panic.
const COUNTING: [&str; 2] = ["now", "observe"];

impl Blow {
    /// `counting` are knocks yet to come by which a panic is counted.
    fn hit(&self, knocks: &[Spot], counting: &mut VecDeque<&str>) -> Hit {
        let here = knocks.len() - 1;
        match self {
            Self::Once(number, hit) if here == *number => hit.clone(),
            Self::Fell(number)
                if here >= *number && knocks[here].actor == knocks[*number].actor =>
            {
                if counting.front() == Some(&knocks[here].call) {
                    counting.pop_front();
                    return Hit::Pass;
                }
                counting.extend(COUNTING);
                Hit::Panic
            }
            Self::Once(..) | Self::Fell(_) => Hit::Pass,
        }
    }
}

/// What a play came to.
pub struct Played {
    /// Every knock, in order.
    pub knocks: Vec<Spot>,
    /// Who panicked, and whether they were given up.
    pub restarts: Vec<(String, bool)>,
    /// Starts of the service that came to nothing.
    pub failed_starts: u32,
    /// Every fact, as a line to compare.
    pub log: Vec<String>,
}

/// What is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// Leases, orphans, reloads.
    Lives,
    /// Jobs of a CI system.
    Jobs,
    /// The same where runners are nodes that take job after job.
    Nodes,
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lives, Self::Jobs, Self::Nodes];

    /// What its trials have in their names.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Lives => "",
            Self::Jobs => "_with_jobs",
            Self::Nodes => "_with_nodes",
        }
    }

    /// Keys of its CI system.
    fn source(self) -> Option<&'static str> {
        match self {
            Self::Lives => None,
            Self::Jobs => Some("kind: gitea, credentialsId: ci"),
            Self::Nodes => Some("kind: jenkins, credentialsId: login"),
        }
    }
}

struct Play {
    world: World,
    blow: Option<Blow>,
    knocks: Arc<Mutex<Vec<Spot>>>,
    failed_starts: u32,
}

fn setup() -> Setup {
    let cleaning = "cleanupOrphanedAgents: true, orphanCleanupPeriodSeconds: 60, \
                    orphanCleanupGracePeriodSeconds: 30";
    let mut setup = Setup::linux("instanceCap: 2, maxTotalUses: 1")
        .rack(&format!("instanceCap: 3, {cleaning}"))
        .template("edge", "cloudIds: [spare], templateVmId: 9001");
    setup.clouds.push(("spare", format!("startVmId: 20000, {cleaning}")));
    setup
}

impl Play {
    /// Starts the service until it comes up.
    async fn rise(&mut self) {
        while AssertUnwindSafe(self.world.start()).catch_unwind().await.is_err() {
            self.failed_starts += 1;
            assert!(self.failed_starts < 3, "the service does not come up");
            self.world.notes.crash();
            self.spare();
        }
    }

    /// Who was given up is not hit again.
    fn spare(&mut self) {
        if matches!(self.blow, Some(Blow::Fell(_))) {
            self.blow = None;
            self.watch();
        }
    }

    fn fell(view: &View) -> bool {
        view.restarts().iter().any(|restart| restart.gave_up)
    }

    async fn rise_again(&mut self) {
        let fell = Self::fell(self.world.view());
        self.world.crash();
        self.watch();
        if fell {
            self.spare();
        }
        self.rise().await;
    }

    fn watch(&self) {
        let (knocks, blow) = (Arc::clone(&self.knocks), self.blow.clone());
        let mut counting = VecDeque::new();
        self.world.tap.watch(move |knock: &Knock| {
            let mut knocks = knocks.lock().unwrap();
            let actor = asker::at_work().unwrap_or_else(|| "nobody".to_owned());
            knocks.push(Spot { actor, call: knock.call });
            let hit = |blow: &Blow| blow.hit(&knocks, &mut counting);
            blow.as_ref().map_or(Hit::Pass, hit)
        });
    }

    async fn until(&mut self, what: &str, holds: impl Fn(&View) -> bool) {
        loop {
            self.world.until(what, |view| Self::fell(view) || holds(view)).await;
            if !Self::fell(self.world.view()) {
                return;
            }
            self.rise_again().await;
        }
    }

    async fn command<T>(&mut self, command: impl Fn(Reply<T>) -> HerdCommand) -> T {
        loop {
            match self.world.try_request(&command).await {
                Some(answer) => return answer,
                None => self.rise_again().await,
            }
        }
    }

    async fn lease(&mut self, label: &str) -> LeaseId {
        let ask = self.world.an_ask(label, 24 * 60 * MINUTE);
        self.command(|reply| HerdCommand::Lease { ask: ask.clone(), reply }).await.unwrap()
    }

    /// Lets it run until a lease has its agent, with its key in the guest.
    async fn ready(&mut self, lease: &LeaseId) -> Arc<AgentStatus> {
        self.until("the lease is ready", |view| {
            let seen = view.lease(lease);
            assert!(seen.as_ref().is_none_or(|seen| seen.state != LeasePhase::Ended), "{seen:?}");
            seen.is_some_and(|seen| seen.state == LeasePhase::Ready)
        })
        .await;
        self.world.ready(lease).await
    }

    async fn release(&mut self, lease: &LeaseId) {
        self.command(|reply| HerdCommand::Release {
            lease: lease.clone(),
            by: By::admin("test"),
            reply,
        })
        .await
        .unwrap();
    }

    /// An agent's guest comes back after it was destroyed, as a restored copy would.
    fn plant_orphan(&self, vmid: u32, config: Vec<(String, String)>) {
        let (node, config) = ("pve1".to_owned(), config.into_iter().collect());
        let spec = GuestSpec { vmid, node, template: false, running: false, pool: None, config };
        assert!(self.world.side.add_guest(&spec));
        self.world.notes.planted(vmid);
    }

    /// Retires all, once more where the service fell over it.
    async fn drain(&mut self) {
        for _ in 0..5 {
            let policy = StopPolicy::RetireAll;
            self.command(|reply| HerdCommand::Drain { policy, reply }).await;
            let before = self.world.view().restart_count();
            // Who panicked at the very end has yet to come back, or to be given up.
            self.world.pass(MINUTE).await;
            let view = self.world.view();
            if Self::fell(view) {
                self.rise_again().await;
            } else if view.agents().is_empty() && view.restart_count() == before {
                return;
            }
        }
        panic!("it is never empty\n{}", self.world.portrait());
    }

    /// Lets it run until so many jobs are over, whose runners are gone, too.
    async fn over(&mut self, count: usize) {
        let ci = self.world.ci.clone();
        self.until("jobs are over", |_| ci.over("git") == count && ci.rows("git") == 0).await;
    }

    /// Jobs whose runner is refused or ends at once, that run, over a restart, and while their source
    /// is taken out.
    async fn jobs(&mut self) {
        self.rise().await;
        let ci = self.world.ci.clone();
        ci.refuse("git", true);
        ci.habits("git", &[Habit::Ends]);
        ci.push("git", 1, &["linux"], MINUTE);
        self.until("none is made", |view| {
            view.sources().iter().any(|source| source.refused.is_some())
        })
        .await;
        ci.refuse("git", false);
        self.over(1).await;
        ci.push("git", 1, &["linux"], MINUTE);
        self.over(2).await;
        ci.push("git", 1, &["linux"], 2 * MINUTE);
        self.until("it runs", |_| ci.running("git") == 1).await;
        let demand = std::mem::take(&mut self.world.setup.sections);
        self.world.reload();
        // A node is left by a service that was started again without its source, until that is back.
        self.until("the third job is over", |_| ci.over("git") == 3).await;
        self.world.setup.sections = demand;
        self.world.reload();
        self.over(3).await;
        ci.push("git", 1, &["linux"], 2 * MINUTE);
        self.until("the last one runs", |_| ci.running("git") == 1).await;
        let policy = StopPolicy::Keep;
        self.command(|reply| HerdCommand::Drain { policy, reply }).await;
        self.rise_again().await;
        self.over(4).await;
        self.world.setup.sections.clear();
        self.world.reload();
        // Where the service was started again before it was written down that the last runner is gone,
        // there is no way to its source any more, and that is reported.
        self.until("its source is gone", |view| {
            view.sources().iter().all(|source| source.kind == "-")
        })
        .await;
        self.drain().await;
        let jobs = ci.jobs("git");
        let fair = |job: &Job| {
            let given_up = matches!(self.blow, Some(Blow::Fell(_)) | None);
            job.runs == 1 && (job.stage == Stage::Done || (given_up && job.stage == Stage::Lost))
        };
        assert!(jobs.iter().all(fair), "{jobs:?}");
    }

    async fn play(&mut self) {
        self.rise().await;
        let (short, long) = (self.lease("linux").await, self.lease("edge").await);
        let agent = self.ready(&short).await;
        self.ready(&long).await;
        let vmid = agent.vmid.unwrap().0;
        let config = self.world.side.config(vmid).unwrap().into_iter().collect();
        self.release(&short).await;
        self.until("the used agent is gone", |view| view.agent(&agent.agent).is_none()).await;
        self.plant_orphan(vmid, config);
        let side = self.world.side.clone();
        self.until("the orphan is gone", |_| !side.guests().contains(&vmid)).await;

        self.world.setup.templates[0].1 = "instanceCap: 2, idleMin: 1, cores: 2".to_owned();
        self.world.reload();
        self.until("one is warm", |view| count(view, "linux", AgentPhase::Ready) == 1).await;
        self.command(|reply| HerdCommand::Resync { reply }).await;
        self.command(|reply| HerdCommand::Reap { all: true, reply }).await;
        self.until("another is warm", |view| {
            count(view, "linux", AgentPhase::Ready) == 1 && view.agents().len() == 2
        })
        .await;

        let policy = StopPolicy::Keep;
        self.command(|reply| HerdCommand::Drain { policy, reply }).await;
        self.rise_again().await;
        self.ready(&long).await;
        self.world.setup.templates.pop();
        self.world.reload();
        self.world.pass(MINUTE).await;
        self.ready(&long).await;
        self.release(&long).await;
        self.until("the template is gone", |view| view.templates().len() == 1).await;
        // With this lease it is durable that the cloud has no agents: at a start there would be no
        // way to them any more.
        let last = self.lease("linux").await;
        self.ready(&last).await;
        self.release(&last).await;
        self.world.setup.clouds.pop();
        self.world.reload();
        self.until("the cloud is gone", |view| view.clouds().len() == 1).await;
        self.drain().await;
    }
}

fn count(view: &View, template: &str, state: AgentPhase) -> usize {
    let agents = view.agents();
    let like = |seen: &&Arc<AgentStatus>| &*seen.template.name == template && seen.phase == state;
    agents.iter().filter(like).count()
}

fn setup_of(scene: Scene) -> Setup {
    let Some(keys) = scene.source() else { return setup() };
    let mut setup = Setup::linux("instanceCap: 2, idleTerminationMinutes: 1");
    setup.credentials = CI_LOGINS.to_owned();
    setup.sections = format!("demand: {{git: {{{keys}, url: \"https://ci\"}}}}\n");
    setup
}

/// Plays, and something goes wrong.
pub async fn play(scene: Scene, blow: Option<Blow>) -> Played {
    let guard = asker::listen();
    let world = World::new(setup_of(scene));
    let mut play = Play { world, blow, knocks: Arc::default(), failed_starts: 0 };
    play.watch();
    if scene == Scene::Nodes {
        play.world.ci.nodes("git");
    }
    match scene {
        Scene::Lives => play.play().await,
        Scene::Jobs | Scene::Nodes => play.jobs().await,
    }
    let Play { mut world, knocks, failed_starts, .. } = play;
    world.planned_restarts = world.view().restart_count();
    world.tap.release();
    let world = world.end().await;
    let restart = |what: &What| match what {
        What::Restarted { actor, gave_up, .. } => Some((actor.clone(), *gave_up)),
        _ => None,
    };
    let restarts = world.notes.facts(restart);
    drop(guard);
    let knocks = knocks.lock().unwrap().clone();
    Played { knocks, restarts, failed_starts, log: world.notes.log() }
}
