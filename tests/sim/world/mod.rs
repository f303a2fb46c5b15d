//! One herd on one simulated cluster: starts, crashes, starts again, and is asked at the end
//! whether anything is left.
//!
//! The actors live in a set of local tasks that is dropped at a crash, as the process would end;
//! the cluster lives on the runtime beneath and goes on.
#![allow(dead_code, reason = "two test programs share it, and each uses a part")]

pub mod addresses;
pub mod ci;
pub mod clusters;
pub mod eye;
mod ground;
pub mod guests;
mod judge;
pub mod member;
pub mod mirror;
pub mod notes;
mod play;
pub mod setup;
pub mod shell;
pub mod store;
pub mod tally;
pub mod tap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_actors::message::{AgentCommand, ApplySpec, HerdCommand, Refusal};
use drover_config::Checked;
use drover_config::calendar::Almanac;
use drover_forecast::clock::VirtualAmbient;
use drover_forecast::herd::{Running, Start};
use drover_hypervisor::CallInKey;
use drover_hypervisor::{Proxmox, TASK_POLL_INTERVAL};
use drover_journal::{Log as _, MemoryLog, Writer, WriterOptions};
use drover_model::ambient::{mint_installation, mint_lease};
use drover_model::id::{AgentId, Generation, LeaseId};
use drover_model::journal_state::JournalState;
use drover_model::machine::Machine;
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::ports::{Ambient, Journal, Ports};
use drover_model::record::{Body, LeaseAsk, Want};
use drover_model::spec::HerdSpec;
use drover_model::status::AgentStatus;
use drover_model::stop::StopPolicy;
use drover_model::tenant::By;
use drover_model::time::WallTime;
use drover_runtime::reply::Reply;
use drover_server::view::View;
use futures_util::FutureExt;
use proxmox_client::transport::Dialer;
use pve_sim::api::certificates::Certificates;
use pve_sim::guests::StubGuests;
use pve_sim::simulation::{Simulation, SimulationOptions};
use pve_sim::world::{EPOCH, Faults, WorldControl};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep};

use ci::Ci;
use clusters::{Sides, Ways};
use ground::Ground;
use guests::Stubs;
use member::Member;
use mirror::{Folder, Mirror};
use notes::{Listener, Notes, Recorder};
use setup::Setup;
use shell::Scripted;
use store::{Line, Store};
use tally::{Tallied, Tally};
use tap::Tap;

/// Records between snapshots: few, so that each storm starts from many.
const SNAPSHOT_EVERY: u64 = 60;

/// Between the seeds of one world's clusters.
const BEYOND: u64 = 1_000_003;
/// The longest a wait may take, in virtual time.
const WAIT_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// A herd on its cluster.
pub struct World {
    /// What it is made of; change it and [`World::reload`].
    pub setup: Setup,
    /// The way round Proxmox's API, of the first cluster.
    pub side: WorldControl,
    /// The same of every cluster.
    pub sides: Sides,
    /// The ways to the clusters.
    pub ways: Ways,
    /// The insides of guests.
    pub guests: Arc<StubGuests>,
    /// The wire under watch.
    pub wire: Tally,
    /// The ways out of the actors under watch.
    pub tap: Tap,
    pub shell: Scripted,
    pub ci: Ci,
    /// What was seen.
    pub notes: Notes,
    /// The web as drover's machine sees it.
    pub mirror: Mirror,
    /// Where drover downloads to, where it does.
    pub folder: Option<Folder>,
    simulations: Vec<Arc<Simulation>>,
    log: MemoryLog,
    spec: HerdSpec,
    started: Instant,
    /// By how many milliseconds somebody has set the wall clock of the service's machine.
    set: Arc<AtomicI64>,
    down: Option<Instant>,
    starts: u64,
    /// Restarts of actors that a test planned in this run of the service.
    pub planned_restarts: u64,
    /// The machine the service runs on, where a test gives one.
    pub machine: Option<Machine>,
    /// What the service is as one of several members, where a test gives that.
    pub member: Option<Member>,
    /// The way to the store of the journal.
    pub store: Store,
    /// Whether it was looked at what it leaves behind, or somebody else does so.
    pub judged: bool,
    life: Option<Life>,
    ground: Ground,
}

/// One run of the service.
struct Life {
    run: Running,
    view: Arc<View>,
    proxmox: Arc<Proxmox>,
    ambient: Arc<dyn Ambient>,
}

impl std::ops::Deref for Life {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.run
    }
}

impl World {
    /// A cluster without a service yet.
    pub fn new(setup: Setup) -> Self {
        let guests = Arc::new(StubGuests::new(setup.guests.clone()));
        let all = std::iter::once(&setup.cluster).chain(&setup.beyond);
        let simulations = all.zip(0..).map(|(cluster, number)| {
            let names: Vec<String> = cluster.nodes.iter().map(|node| node.name.clone()).collect();
            let seed = setup.seed + number * BEYOND;
            let options = SimulationOptions {
                version: setup.version,
                seed,
                latency: setup.latency.clone(),
                faults: setup.faults.clone(),
                ..SimulationOptions::default()
            };
            let certificates = Certificates::fake(seed, &names);
            Arc::new(Simulation::new(cluster, options, certificates, Arc::clone(&guests) as _))
        });
        let simulations = simulations.collect();
        Self::on(simulations, guests, setup)
    }

    fn on(simulations: Vec<Arc<Simulation>>, guests: Arc<StubGuests>, setup: Setup) -> Self {
        let sides = Sides::of(&simulations);
        let side = sides.at(0).clone();
        let pulse = Arc::new(Notify::new());
        let wire = Tally::new(Arc::clone(&pulse));
        let (shell, started) = (Scripted::new(Arc::clone(&guests)), Instant::now());
        let mut world = Self {
            side: side.clone(),
            sides,
            ways: Ways::to(&simulations),
            tap: Tap::new(wire.clone()),
            wire,
            ci: Ci::new(Arc::new(Stubs(Arc::clone(&guests))), shell.clone(), started),
            shell,
            notes: Notes::new(side, pulse),
            mirror: Mirror::default(),
            folder: setup.sections.contains("downloadBy: DROVER").then(Folder::new),
            setup,
            guests,
            simulations,
            log: MemoryLog::new(),
            spec: HerdSpec::default(),
            started,
            set: Arc::default(),
            down: None,
            starts: 0,
            planned_restarts: 0,
            machine: None,
            member: None,
            store: Store::default(),
            judged: false,
            life: None,
            ground: Ground::default(),
        };
        world.ground = world.survey();
        world
    }

    /// A way to the cluster past everything that counts calls.
    pub fn dialer(&self) -> pve_sim::memory::MemoryDialer {
        self.simulations[0].dialer()
    }

    /// Puts an eye on everything that happens; the notebook leaves the judging to it.
    pub fn watch(&self, eye: &Arc<dyn eye::Eye>) {
        for socket in [&self.notes.socket, &self.wire.socket, &self.shell.socket] {
            socket.set(Arc::clone(eye));
        }
    }

    /// A cluster with its service running, every cloud tried once.
    pub async fn started(setup: Setup) -> Self {
        let mut world = Self::new(setup);
        world.start().await;
        world
    }

    /// Starts the service as `drover run` does, and waits until every cloud was tried once.
    pub async fn start(&mut self) {
        self.starts += 1;
        let now = Instant::now();
        let wall = WallTime(i64::try_from(EPOCH).unwrap() * 1000) + (now - self.started);
        let seed = self.setup.seed * 1000 + self.starts;
        let ambient = VirtualAmbient::new(wall, seed).set_by(Arc::clone(&self.set));
        let ambient: Arc<dyn Ambient> = Arc::new(ambient);
        let options = WriterOptions { threaded: false, snapshot_every: SNAPSHOT_EVERY };
        let opened =
            Writer::open_any(self.store.log(&self.log), Arc::clone(&ambient), options).unwrap();
        let journal_state = opened.journal_state;
        let records = self.log.read_from(0).unwrap().len() as u64;
        assert!(records <= 2 * SNAPSHOT_EVERY, "{records} records, and no snapshot was taken");
        let installation = journal_state
            .installation
            .clone()
            .unwrap_or_else(|| mint_installation(|| ambient.draw()));
        let (notes, tally) = (self.notes.clone(), self.wire.clone());
        let takeover = Body::Takeover { installation: installation.clone() };
        opened.writer.append(vec![takeover]).now_or_never().unwrap().unwrap();
        let line = Line::new(opened.writer, self.store.clone());
        let journal = Arc::new(Recorder { line, notes, tally });

        let dialer = Tallied { dialer: self.ways.clone(), tally: self.wire.clone() };
        let dialer: Arc<dyn Dialer> = match &self.member {
            Some(member) => Arc::new(member.over(dialer)),
            None => Arc::new(dialer),
        };
        let proxmox = Proxmox::new(None, dialer, TASK_POLL_INTERVAL);
        let proxmox = proxmox.with_call_ins(Arc::new(call_in_key()));
        let proxmox = Arc::new(match &self.folder {
            Some(folder) => proxmox.with_downloads(self.mirror.downloads(folder)),
            None => proxmox,
        });
        let view = View::new(journal_state.epoch + 1);
        let mut checked = self.setup.checked();
        checked.follow(&HerdSpec::default(), Generation(1));
        connect(&proxmox, &checked, &HerdSpec::default());
        self.spec = checked.herd;
        self.notes.apply(&self.spec);
        let listener = Listener { notes: self.notes.clone(), view: Arc::clone(&view) };
        let ports = self.tap.on(Ports {
            hypervisor: Arc::clone(&proxmox) as _,
            shell: Arc::new(self.shell.clone()),
            demand: Arc::new(self.ci.clone()),
            journal,
            observer: Arc::new(listener),
            ambient: Arc::clone(&ambient),
            calendar: Arc::new(Almanac),
        });
        let start = Start {
            ports,
            journal_state,
            spec: Arc::new(self.spec.clone()),
            installation,
            down: self.down.take().map_or(Duration::ZERO, |at| now - at),
            machine: self.machine.clone(),
        };
        let run = Running::start(start).await.unwrap();
        self.life = Some(Life { run, view, proxmox, ambient });
    }

    /// The machine loses its power: actors, calls under way and the journal's tail that was not
    /// durable are gone; the cluster goes on.
    pub fn crash(&mut self) {
        self.kill();
        self.log.crash();
    }

    /// The process is killed: what it wrote to the journal stays, durable or not.
    pub fn kill(&mut self) {
        drop(self.life.take().expect("it runs"));
        self.planned_restarts = 0;
        self.down = Some(Instant::now());
        self.wire.disarm();
        self.tap.release();
        self.notes.crash();
    }

    /// Crashes, is away for a while, and starts again.
    pub async fn restart(&mut self, away: Duration) {
        self.crash();
        sleep(away).await;
        self.start().await;
    }

    /// Stops as `drover run` does when asked to, with what the policy leaves alive.
    pub async fn stop(&mut self, policy: StopPolicy) {
        self.command(|reply| HerdCommand::Drain { policy, reply }).await;
        self.planned_restarts = 0;
        drop(self.life.take());
        self.down = Some(Instant::now());
        self.notes.crash();
    }

    fn life(&self) -> &Life {
        self.life.as_ref().expect("it runs")
    }

    /// What the view shows.
    pub fn view(&self) -> &View {
        &self.life().view
    }

    /// What the journal says, crash or not.
    pub fn journal_state(&self) -> JournalState {
        let options = WriterOptions { threaded: false, ..WriterOptions::default() };
        let ambient = Arc::new(VirtualAmbient::new(WallTime(0), 0));
        Writer::open_any(self.store.log(&self.log), ambient, options).unwrap().journal_state
    }

    /// The journal as it is now, as a backup takes it.
    pub fn backup(&self) -> MemoryLog {
        self.log.copy()
    }

    /// Puts a backup of a journal in the place of this one's; the service does not run.
    pub fn restore(&mut self, backup: MemoryLog) {
        assert!(self.life.is_none(), "a journal is not changed under a service");
        self.log = backup;
    }

    /// Lets a while pass.
    pub async fn pass(&self, span: Duration) {
        match &self.life {
            Some(life) => life.local.run_until(sleep(span)).await,
            None => sleep(span).await,
        }
    }

    /// Lets it run until something holds; fails after [`WAIT_LIMIT`].
    pub async fn until(&self, what: &str, holds: impl Fn(&View) -> bool) {
        let life = self.life();
        let deadline = Instant::now() + WAIT_LIMIT;
        let reached = life.local.run_until(async {
            while !holds(&life.view) {
                if Instant::now() > deadline {
                    return false;
                }
                tokio::select! {
                    biased;
                    () = self.notes.pulse.notified() => {}
                    () = sleep(Duration::from_secs(1)) => {}
                }
            }
            true
        });
        if !reached.await {
            panic!("never came: {what}\n{}", self.status());
        }
    }

    /// Lets it run until the trap springs.
    pub async fn until_sprung(&self) {
        self.until("the trap springs", |_| self.wire.sprung()).await;
    }

    /// Lets it run until an agent is in this state.
    pub async fn until_state(&self, state: AgentPhase) -> Arc<AgentStatus> {
        self.until(state.name(), |view| view.agents().iter().any(|agent| agent.phase == state))
            .await;
        self.view().agents().into_iter().find(|agent| agent.phase == state).unwrap()
    }

    fn status(&self) -> String {
        let agents: Vec<String> =
            self.view().agents().iter().map(|agent| format!("{agent:?}")).collect();
        let leases: Vec<String> =
            self.view().leases().iter().map(|lease| format!("{lease:?}")).collect();
        format!("{}\n{}\nlast facts:\n{}", agents.join("\n"), leases.join("\n"), self.notes.tail())
    }

    /// Sends a request; its answer, or none when nobody is left to give one.
    pub async fn try_request<T>(&self, command: impl FnOnce(Reply<T>) -> HerdCommand) -> Option<T> {
        let (reply, answer) = Reply::channel();
        let life = self.life();
        life.herd.do_send(command(reply));
        // Where an actor is given up the service ends.
        let fallen = async {
            while life.given_up.lock().is_empty() {
                self.notes.pulse.notified().await;
            }
        };
        let answer = tokio::time::timeout(WAIT_LIMIT, answer);
        let outcome = life.local.run_until(async {
            tokio::select! {
                biased;
                answer = answer => Some(answer),
                () = fallen => None,
            }
        });
        let answer = outcome.await?;
        answer.unwrap_or_else(|_| panic!("no answer to a request\n{}", self.status())).ok()
    }

    /// Sends a request and waits for its answer.
    pub async fn command<T>(&self, command: impl FnOnce(Reply<T>) -> HerdCommand) -> T {
        self.try_request(command).await.expect("the herd lives")
    }

    /// An ask with a key and user data, on a template's label.
    pub fn an_ask(&self, label: &str, ttl: Duration) -> Box<LeaseAsk> {
        let ambient = &self.life().ambient;
        Box::new(LeaseAsk {
            lease: mint_lease(|| ambient.draw()),
            want: Want::Labels([label.to_owned()].into()),
            principal: "test".into(),
            owner: "somebody".into(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap(),
            public_key: Some("ssh-ed25519 AAAA somebody".into()),
            key_hash: None,
            body_hash: String::new(),
            asked: ambient.now().wall,
            source: None,
            whole: false,
            user_data: true,
            group: None,
            wait_ms: None,
        })
    }

    /// The address of an agent that lives, for what its template, cluster or reconciler would say.
    pub fn address(&self, agent: &AgentId) -> actix::Recipient<AgentCommand> {
        self.life().roster.address(agent).expect("the agent lives")
    }

    /// Asks for a lease of an hour without waiting for the answer.
    pub fn ask(&self, label: &str) -> oneshot::Receiver<Result<LeaseId, Refusal>> {
        let (reply, answer) = Reply::channel();
        let ask = self.an_ask(label, Duration::from_secs(3600));
        self.life().herd.do_send(HerdCommand::Lease { ask, reply });
        answer
    }

    /// Ends a lease without waiting for the answer.
    pub fn begin_release(&self, lease: &LeaseId) -> oneshot::Receiver<Result<(), Refusal>> {
        let (reply, answer) = Reply::channel();
        let lease = lease.clone();
        self.life().herd.do_send(HerdCommand::Release { lease, by: By::admin("test"), reply });
        answer
    }

    /// Begins a drain without waiting for its end.
    pub fn begin_drain(&self, policy: StopPolicy) -> oneshot::Receiver<()> {
        let (reply, answer) = Reply::channel();
        self.life().herd.do_send(HerdCommand::Drain { policy, reply });
        answer
    }

    /// Waits for an answer to what was asked before.
    pub async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> T {
        let answer = self.life().local.run_until(tokio::time::timeout(WAIT_LIMIT, answer)).await;
        answer.expect("an answer comes").unwrap()
    }

    /// Asks for a lease with a key, on a template's label, for some time.
    pub async fn try_lease(&self, label: &str, ttl: Duration) -> Result<LeaseId, Refusal> {
        let ask = self.an_ask(label, ttl);
        self.command(|reply| HerdCommand::Lease { ask, reply }).await
    }

    /// Asks for a lease of an hour that is taken.
    pub async fn lease(&self, label: &str) -> LeaseId {
        self.try_lease(label, Duration::from_secs(3600)).await.unwrap()
    }

    /// Lets it run until a lease has its agent ready, and its key is in the guest.
    pub async fn ready(&self, lease: &LeaseId) -> Arc<AgentStatus> {
        self.until("the lease is ready", |view| {
            let status = view.lease(lease);
            assert!(
                status.as_ref().is_none_or(|seen| seen.state != LeasePhase::Ended),
                "{status:?}"
            );
            status.is_some_and(|seen| seen.state == LeasePhase::Ready)
        })
        .await;
        let agent = self.view().lease(lease).unwrap().agent.unwrap();
        let agent = self.view().agent(&agent).unwrap();
        let keys = self.shell.admitted(agent.vmid.unwrap().0);
        assert!(keys.contains(lease.as_str()), "{lease} has no key in {agent:?}: {keys:?}");
        agent
    }

    /// A lease of an hour with its agent ready.
    pub async fn leased(&self, label: &str) -> (LeaseId, Arc<AgentStatus>) {
        let lease = self.lease(label).await;
        let agent = self.ready(&lease).await;
        (lease, agent)
    }

    /// Ends a lease.
    pub async fn release(&self, lease: &LeaseId) {
        let lease = lease.clone();
        self.command(|reply| HerdCommand::Release { lease, by: By::admin("test"), reply })
            .await
            .unwrap();
    }

    /// Retires everything idle, the warm minimum too; says how many were asked to go.
    pub async fn reap(&self, all: bool) -> u32 {
        self.command(|reply| HerdCommand::Reap { all, reply }).await
    }

    /// Confirms as an operator that the journal is older than the world.
    pub fn confirm_older_journal(&self) {
        self.life().herd.do_send(HerdCommand::ConfirmOlderJournal);
    }

    /// Compares every cluster with what is known; gives the findings of all, and why some could
    /// not be read.
    pub async fn resync(&self) -> Vec<String> {
        let findings = self.command(|reply| HerdCommand::Resync { reply }).await;
        findings.into_values().flat_map(|found| found.unwrap_or_else(|why| vec![why])).collect()
    }

    /// Takes the changed setup into force.
    pub fn reload(&mut self) {
        let generation = Generation(self.spec.generation.0 + 1);
        let mut checked = self.setup.checked();
        checked.follow(&self.spec, generation);
        let life = self.life.as_ref().expect("it runs");
        connect(&life.proxmox, &checked, &self.spec);
        self.spec = checked.herd;
        self.notes.apply(&self.spec);
        life.herd.do_send(ApplySpec(Arc::new(self.spec.clone())));
    }

    /// Replaces what goes wrong on the cluster.
    pub fn faults(&self, faults: Faults) {
        self.side.set_faults(faults);
    }
}

/// The key of the tokens of guests that call.
pub fn call_in_key() -> CallInKey {
    CallInKey::from_bytes([7; 32])
}

fn connect(proxmox: &Proxmox, checked: &Checked, before: &HerdSpec) {
    for spec in checked.herd.clouds.values() {
        proxmox.set_max_concurrent(spec);
    }
    for (id, connection) in &checked.connections {
        let connection_of = |spec: &HerdSpec| spec.clouds.get(id).map(|cloud| cloud.connection);
        if connection_of(&checked.herd) != connection_of(before) {
            proxmox.set_cloud(id.clone(), connection).unwrap();
        }
    }
}
