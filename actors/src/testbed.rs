//! What tests of the herd stand on: specs, a scripted world behind the ports, and an agent that
//! does what it is told.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::birth::{AgentBirth, AgentSpawner, Start};
use crate::fact::Fact;
use crate::fault::{Culprit, Fault, FaultKind};
use crate::id::{
    AgentId, CloudId, ClusterId, Generation, Installation, LeaseId, NodeName, TemplateId, Upid,
    VmId,
};
use crate::ledger::{AgentEntry, Ledger};
use crate::marks::{Kind, Marks};
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree, Standing};
use crate::ports::{
    AddressSight, Ambient, Ask, CloneCall, ClusterSight, ConfigureCall, Configured, Hypervisor,
    IdSight, Journal, JournalFault, Observer, Ports, Ran, Shell, ShellTarget, Survey, TaskEnd,
    VmRef, VmSight,
};
use crate::record::{Body, LeaseAsk, Reason, Record, Want};
use crate::spec::{
    BreakerSpec, CloneStrategy, CloudInitSpec, CloudSpec, HerdSpec, JavaDistribution, JavaSpec,
    LimitSpec, Mode, SshSpec, TemplateSpec,
};
use crate::time::{Moment, Now, WallTime};

pub const CLUSTER: &str = "9f31c0aa52e7d410";

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A moment some seconds after the start, on both clocks.
pub fn at(seconds: u64) -> Now {
    let wall = WallTime(1_800_000_000_000 + i64::try_from(seconds).unwrap() * 1000);
    Now { mono: Moment(seconds * 1000), wall }
}

pub fn template_id(text: &str) -> TemplateId {
    let (cloud, name) = text.split_once('/').unwrap();
    TemplateId::new(CloudId::new(cloud), name)
}

/// A template of one executor, no cap and no minimum.
pub fn template(text: &str, labels: &[&str]) -> TemplateSpec {
    let id = template_id(text);
    TemplateSpec {
        name: id.name.to_string(),
        id,
        generation: Generation(1),
        node: Some(NodeName::new("pve1")),
        source: VmId(9000),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        executors: 1,
        clone: CloneStrategy::Linked,
        target_storage: None,
        target_pool: None,
        cores: None,
        memory_mb: None,
        disk_gb: None,
        remote_fs: "/home/ci".into(),
        mode: Mode::Normal,
        ssh: SshSpec {
            credentials_id: "ssh".into(),
            user: "ci".into(),
            port: 22,
            public_key: String::new(),
        },
        java: JavaSpec {
            distribution: JavaDistribution::None,
            major: 21,
            path: "java".into(),
            options: String::new(),
        },
        idle: None,
        cap: None,
        minimum: 0,
        max_uses: None,
        name_prefix: String::new(),
        tags: BTreeSet::new(),
        description: String::new(),
        cloud_init: CloudInitSpec {
            user: None,
            ip_config: None,
            nameserver: None,
            search_domain: None,
        },
        guest_networks: Vec::new(),
        ready_command: None,
        limits: LimitSpec {
            queue: seconds(600),
            operation: seconds(300),
            clone: seconds(3600),
            startup: seconds(300),
            prepare: seconds(300),
            shutdown: seconds(30),
            retire: seconds(600),
            lifetime: None,
        },
        breaker: BreakerSpec { threshold: 3, cooldown: seconds(120), cooldown_cap: seconds(1800) },
    }
}

pub fn cloud(id: &str, cap: Option<u32>) -> CloudSpec {
    CloudSpec {
        id: CloudId::new(id),
        name: id.into(),
        cap,
        vmid_floor: VmId(10_000),
        vmid_ceiling: VmId(20_000),
        operation_timeout: seconds(300),
        cleanup_orphans: true,
        reconcile_period: seconds(60),
        orphan_grace: seconds(300),
        node_grace: seconds(120),
        clones_per_storage: 100,
        operations_per_node: 100,
        connection: 1,
    }
}

pub fn herd(clouds: Vec<CloudSpec>, templates: Vec<TemplateSpec>) -> Arc<HerdSpec> {
    Arc::new(HerdSpec {
        generation: Generation(1),
        clouds: clouds.into_iter().map(|spec| (spec.id.clone(), Arc::new(spec))).collect(),
        templates: templates.into_iter().map(|spec| (spec.id.clone(), Arc::new(spec))).collect(),
    })
}

pub fn labels(labels: &[&str]) -> Want {
    Want::Labels(labels.iter().map(|label| (*label).to_owned()).collect())
}

pub fn ask(lease: &str, want: Want, asked: u64) -> LeaseAsk {
    LeaseAsk {
        lease: LeaseId::new(lease),
        want,
        principal: "alice".into(),
        owner: "build".into(),
        ttl_ms: 3_600_000,
        public_key: None,
        key_hash: None,
        body_hash: "body".into(),
        asked: at(asked).wall,
    }
}

pub fn marks(agent: &str, vmid: u32) -> Marks {
    Marks {
        installation: Installation::new("7k2m9qxw"),
        agent: AgentId::new(agent),
        vmid: VmId(vmid),
        cluster: ClusterId::new(CLUSTER),
        kind: Kind::Agent,
        seq: 5,
        cloud: "c".into(),
        template: "t".into(),
        born: "2026-11-21T08:11:02Z".into(),
    }
}

pub fn entry(agent: &str, vmid: u32, spec: TemplateSpec, state: &str) -> AgentEntry {
    AgentEntry {
        marks: marks(agent, vmid),
        node: NodeName::new("pve1"),
        spec: Box::new(spec),
        intended: at(0).wall,
        upid: None,
        settled: true,
        volumes: Vec::new(),
        host_keys: Vec::new(),
        address: None,
        state: state.into(),
        leases: BTreeMap::new(),
        uses: 0,
        retiring: None,
        stranded: None,
    }
}

/// The world behind the ports: what it answers, and what was asked of it.
#[derive(Default)]
pub struct Script {
    pub identify: BTreeMap<String, Result<ClusterSight, Fault>>,
    pub survey: Option<Survey>,
    pub ids: BTreeMap<u32, IdSight>,
    pub looks: BTreeMap<u32, VmSight>,
    pub locate: Option<Result<NodeName, Fault>>,
    pub calls: Vec<String>,
    pub bodies: Vec<Body>,
    pub ledger: Ledger,
    pub journal_broken: bool,
    pub facts: Vec<Fact>,
    /// Agents that came to life, with what was told to each.
    pub told: BTreeMap<AgentId, Vec<AgentCommand>>,
    pub draws: u64,
    /// Agents fail with this fault before they are ready.
    pub fail_with: Option<Fault>,
    /// Agents stay on their way to Ready.
    pub never_ready: bool,
}

#[derive(Clone)]
pub struct World {
    pub script: Arc<Mutex<Script>>,
    started: tokio::time::Instant,
}

pub fn sight(cluster: &str) -> ClusterSight {
    ClusterSight {
        cluster: ClusterId::new(cluster),
        version: "8.4.21".into(),
        quorate: true,
        nodes: vec![(NodeName::new("pve1"), true)],
    }
}

pub fn unreachable(cloud: &str) -> Fault {
    let culprit = Culprit::Cloud(CloudId::new(cloud));
    Fault::new(FaultKind::Unreachable, culprit, "no endpoint answers")
}

pub fn survey() -> Survey {
    Survey { guests: Vec::new(), nodes: vec![(NodeName::new("pve1"), true)], quorate: true }
}

impl World {
    /// A world of one healthy cluster behind these clouds, on tokio's clock.
    pub fn new(clouds: &[&str]) -> Self {
        let identify =
            clouds.iter().map(|cloud| ((*cloud).to_owned(), Ok(sight(CLUSTER)))).collect();
        let script = Script { identify, survey: Some(survey()), ..Script::default() };
        Self { script: Arc::new(Mutex::new(script)), started: tokio::time::Instant::now() }
    }

    pub fn with<T>(&self, read: impl FnOnce(&mut Script) -> T) -> T {
        read(&mut self.script.lock().unwrap())
    }

    pub fn ports(&self) -> Ports {
        let all = Arc::new(self.clone());
        Ports {
            hypervisor: all.clone(),
            shell: all.clone(),
            journal: all.clone(),
            observer: all.clone(),
            ambient: all,
        }
    }

    /// Counts the calls whose text begins so.
    pub fn calls(&self, prefix: &str) -> usize {
        self.with(|script| script.calls.iter().filter(|call| call.starts_with(prefix)).count())
    }

    /// A spawner of agents that get ready ten seconds after their place was granted.
    pub fn spawner(&self) -> AgentSpawner {
        let world = self.clone();
        Arc::new(move |birth| {
            FakeAgent { world: world.clone(), birth, vmid: None, leases: Vec::new(), at: "Queued" }
                .start()
                .recipient()
        })
    }
}

fn never<T: Send + 'static>() -> Ask<T> {
    futures_util::future::pending().boxed()
}

fn now<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    async move {
        tokio::task::yield_now().await;
        value
    }
    .boxed()
}

impl Hypervisor for World {
    fn identify(&self, cloud: &CloudId) -> Ask<ClusterSight> {
        now(self.with(|script| {
            script.calls.push(format!("identify {cloud}"));
            script.identify.get(cloud.as_str()).cloned().unwrap()
        }))
    }

    fn survey(&self, cloud: &CloudId) -> Ask<Survey> {
        now(self.with(|script| {
            script.calls.push(format!("survey {cloud}"));
            script.survey.clone().ok_or_else(|| unreachable(cloud.as_str()))
        }))
    }

    fn locate(&self, cloud: &CloudId, source: VmId) -> Ask<NodeName> {
        now(self.with(|script| {
            script.calls.push(format!("locate {cloud} {source}"));
            script.locate.clone().unwrap()
        }))
    }

    fn look(&self, vm: &VmRef) -> Ask<VmSight> {
        now(self.with(|script| {
            script.calls.push(format!("look {}", vm.vmid));
            script.looks.get(&vm.vmid.0).cloned().ok_or_else(|| unreachable("c"))
        }))
    }

    fn id_taken(&self, _: &CloudId, vmid: VmId) -> Ask<IdSight> {
        now(self.with(|script| {
            script.calls.push(format!("id_taken {vmid}"));
            Ok(script.ids.get(&vmid.0).copied().unwrap_or(IdSight::Free))
        }))
    }

    fn clone_vm(&self, _: CloneCall) -> Ask<Upid> {
        never()
    }
    fn await_task(&self, _: &CloudId, _: &Upid, _: Duration) -> Ask<TaskEnd> {
        never()
    }
    fn configure(&self, _: ConfigureCall) -> Ask<Configured> {
        never()
    }
    fn start(&self, _: &VmRef) -> Ask<Upid> {
        never()
    }
    fn address(&self, _: &VmRef, _: Option<&str>, _: &[String]) -> Ask<AddressSight> {
        never()
    }
    fn host_keys(&self, _: &VmRef) -> Ask<Vec<String>> {
        never()
    }
    fn fence(&self, _: &VmRef, _: &Marks) -> Ask<VmSight> {
        never()
    }
    fn shutdown(&self, _: &VmRef, _: Duration) -> Ask<Upid> {
        never()
    }
    fn stop(&self, _: &VmRef) -> Ask<Upid> {
        never()
    }
    fn destroy(&self, _: &VmRef) -> Ask<Upid> {
        never()
    }
    fn leftovers(&self, _: &VmRef) -> Ask<Vec<String>> {
        never()
    }
}

impl Shell for World {
    fn greet(&self, _: ShellTarget, _: Duration) -> Ask<String> {
        never()
    }
    fn run(&self, _: ShellTarget, _: String, _: Duration) -> Ask<Ran> {
        never()
    }
    fn admit(&self, _: ShellTarget, _: &str, _: &str, _: Duration) -> Ask<()> {
        never()
    }
    fn expel(&self, _: ShellTarget, _: &str, _: Duration) -> Ask<()> {
        never()
    }
}

impl Journal for World {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let wall = self.now().wall;
        now(self.with(|script| {
            if script.journal_broken {
                return Err(JournalFault::Failed("disk full".into()));
            }
            for body in bodies {
                let seq = script.ledger.seq + 1;
                let record =
                    Record { version: 1, seq, epoch: 1, wall_time: wall, body: body.clone() };
                script.ledger.apply(&record);
                script.bodies.push(body);
            }
            Ok(script.ledger.seq)
        }))
    }

    fn last_seq(&self) -> u64 {
        self.with(|script| script.ledger.seq.max(100))
    }
}

impl Observer for World {
    fn observe(&self, fact: Fact) {
        self.with(|script| script.facts.push(fact));
    }
}

impl Ambient for World {
    fn now(&self) -> Now {
        let passed = self.started.elapsed();
        let start = at(0);
        Now { mono: start.mono + passed, wall: start.wall + passed }
    }

    fn draw(&self) -> u64 {
        self.with(|script| {
            script.draws = script.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            script.draws >> 33
        })
    }
}

/// An agent that walks its life by the clock: ready after 10 s, gone 5 s after it was told.
pub struct FakeAgent {
    world: World,
    birth: AgentBirth,
    vmid: Option<VmId>,
    leases: Vec<LeaseId>,
    at: &'static str,
}

impl FakeAgent {
    fn report(&self, fault: Option<Fault>) {
        let executors = self.birth.spec.executors;
        let used = u32::try_from(self.leases.len()).unwrap();
        let standing = match self.at {
            "Ready" | "Leased" if used < executors => {
                Standing::Free { executors: executors - used, idle: used == 0 }
            }
            "Ready" | "Leased" | "Draining" => Standing::Busy,
            "Retiring" => Standing::Leaving,
            "Gone" => Standing::Gone,
            _ => Standing::Coming,
        };
        self.birth.report.do_send(AgentReport {
            agent: self.birth.id.clone(),
            template: self.birth.spec.id.clone(),
            standing,
            state: self.at,
            leases: self.leases.clone(),
            fault,
        });
    }

    /// Its guest's id is taken while it exists.
    fn exists(&self, exists: bool) {
        if let Some(vmid) = self.vmid {
            let sight = if exists { IdSight::Taken } else { IdSight::Free };
            self.world.with(|script| script.ids.insert(vmid.0, sight));
        }
    }

    fn become_state(&mut self, state: &'static str, fault: Option<Fault>) {
        self.at = state;
        self.report(fault);
    }

    fn retire(&mut self, fault: Option<Fault>, ctx: &mut Context<Self>) {
        if matches!(self.at, "Retiring" | "Gone") {
            return;
        }
        self.become_state("Retiring", fault);
        self.birth.lanes.free.do_send(LaneFree { agent: self.birth.id.clone() });
        ctx.run_later(seconds(5), |agent, _| {
            let (gone, burned) = (Reason::Asked, false);
            let body = Body::Gone { agent: agent.birth.id.clone(), reason: gone, burned };
            drop(agent.world.append(vec![body]));
            agent.exists(false);
            if let Some(vmid) = agent.vmid {
                agent.birth.lanes.id_back.do_send(IdBack { vmid, burned });
            }
            agent.become_state("Gone", None);
        });
    }

    fn end_lease(&mut self, lease: &LeaseId, why: &str, ctx: &mut Context<Self>) {
        if !self.leases.contains(lease) {
            return;
        }
        self.leases.retain(|other| other != lease);
        let body = Body::LeaseEnded { lease: lease.clone(), why: why.into() };
        drop(self.world.append(vec![body]));
        if self.at == "Draining" && self.leases.is_empty() {
            self.retire(None, ctx);
        } else {
            self.at = if self.leases.is_empty() { "Ready" } else { "Leased" };
            self.report(None);
        }
    }
}

impl Actor for FakeAgent {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.world.with(|script| script.told.insert(self.birth.id.clone(), Vec::new()));
        match self.birth.start.clone() {
            Start::Fresh => self.birth.lanes.ask.do_send(LaneAsk {
                agent: self.birth.id.clone(),
                spec: self.birth.spec.clone(),
                reply: ctx.address().recipient(),
            }),
            Start::Adopted { entry, .. } => {
                self.vmid = Some(entry.marks.vmid);
                self.exists(true);
                self.leases = entry.leases.keys().cloned().collect();
                if entry.retiring.is_some() {
                    self.retire(None, ctx);
                } else {
                    self.become_state(
                        if self.leases.is_empty() { "Ready" } else { "Leased" },
                        None,
                    );
                }
            }
        }
    }
}

impl Handler<AgentCommand> for FakeAgent {
    type Result = ();

    fn handle(&mut self, command: AgentCommand, ctx: &mut Self::Context) {
        let id = self.birth.id.clone();
        self.world.with(|script| script.told.entry(id).or_default().push(command.clone()));
        match command {
            AgentCommand::Granted { vmid, .. } => {
                self.vmid = Some(vmid);
                self.exists(true);
                self.become_state("Cloning", None);
                let fail = self.world.with(|script| script.fail_with.clone());
                if self.world.with(|script| script.never_ready) {
                    return;
                }
                ctx.run_later(seconds(10), |agent, ctx| {
                    agent.birth.lanes.free.do_send(LaneFree { agent: agent.birth.id.clone() });
                    match fail {
                        Some(fault) => agent.retire(Some(fault), ctx),
                        None if agent.at == "Cloning" => agent.become_state("Ready", None),
                        None => {}
                    }
                });
            }
            AgentCommand::NotGranted(fault) => self.retire(Some(fault), ctx),
            AgentCommand::Lease { ask } => {
                if matches!(self.at, "Ready" | "Leased") {
                    self.leases.push(ask.lease.clone());
                    let (agent, expires) = (self.birth.id.clone(), at(9_999).wall);
                    drop(self.world.append(vec![Body::LeaseGranted { agent, ask, expires }]));
                    self.become_state("Leased", None);
                }
            }
            AgentCommand::EndLease { lease, why } => self.end_lease(&lease, &why, ctx),
            AgentCommand::Drain(_) | AgentCommand::Retire(_) => {
                if self.leases.is_empty() {
                    self.retire(None, ctx);
                } else {
                    self.become_state("Draining", None);
                }
            }
            AgentCommand::ForceRetire(_) | AgentCommand::Vanished => {
                self.leases.clear();
                self.retire(None, ctx);
            }
            AgentCommand::LeaseRenewed { .. }
            | AgentCommand::Moved(_)
            | AgentCommand::SeenStopped
            | AgentCommand::NodeDown(_)
            | AgentCommand::Rest => {}
        }
    }
}

/// Runs a future on an actix system whose clock only moves when everybody waits.
pub fn on_paused_system<F: Future>(future: impl FnOnce() -> F) -> F::Output {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    actix::System::with_tokio_rt(runtime).block_on(async move { future().await })
}

/// Lets everything happen that happens within a span.
pub async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

/// Ends an actor of a test.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct End;
