//! The scripted world behind the ports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::Actor as _;
use drover_model::container::OsTemplate;
use drover_model::fact::Fact;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::hardware::Devices;
use drover_model::id::{AgentId, CloudId, ClusterId, Installation, NodeName, VmId};
use drover_model::journal_state::JournalState;
use drover_model::marks::Marks;
use drover_model::placement::Fleet;
use drover_model::ports::{
    Ambient, Ask, ClusterObservation, FakeHypervisor, FakeShell, IdStatus, ImageObservation,
    Journal, JournalFault, Observer, Ports, Survey, VmObservation, VmRef,
};
use drover_model::record::{Body, Record};
use drover_model::template_image::{Candidate, Found, Sought};
use drover_model::testing::{CLUSTER, at};
use drover_model::time::Now;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::agent::FakeAgent;
use crate::birth::{AgentSpawner, Common, Run, Supervision};
use crate::hold_next::HoldNext;
use crate::message::AgentCommand;
use drover_runtime::supervise::Census;

/// The world behind the ports: what it answers, and what was asked of it.
#[derive(Default)]
pub struct Script {
    pub identify: BTreeMap<String, Result<ClusterObservation, Fault>>,
    pub survey: Option<Survey>,
    pub ids: BTreeMap<u32, IdStatus>,
    pub looks: BTreeMap<u32, VmObservation>,
    /// The node that templates are found on, `pve1` where nothing is said.
    pub locate: Option<Result<NodeName, Fault>>,
    /// What the cluster's list says of nodes, storages and guests.
    pub fleet: Fleet,
    /// The devices behind resource mappings.
    pub devices: Devices,
    pub leftovers: Vec<String>,
    /// Disc images on the storages that are asked about.
    pub images: Vec<ImageObservation>,
    pub calls: Vec<String>,
    pub bodies: Vec<Body>,
    pub journal_state: JournalState,
    pub journal_broken: bool,
    pub facts: Vec<Fact>,
    /// Agents that came to life, with what was sent to each.
    pub reported: BTreeMap<AgentId, Vec<AgentCommand>>,
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

pub fn observation(cluster: &str) -> ClusterObservation {
    ClusterObservation {
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
    let nodes = vec![(NodeName::new("pve1"), true)];
    Survey { guests: Vec::new(), nodes, quorate: true, age: Duration::ZERO }
}

impl World {
    /// A world of one healthy cluster behind these clouds, on tokio's clock.
    #[expect(clippy::disallowed_methods, reason = "the paused clock of the test")]
    pub fn new(clouds: &[&str]) -> Self {
        let identify =
            clouds.iter().map(|cloud| ((*cloud).to_owned(), Ok(observation(CLUSTER)))).collect();
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
            demand: std::sync::Arc::new(drover_model::ports::NoDemand),
            journal: all.clone(),
            observer: all.clone(),
            ambient: all,
            calendar: Arc::new(super::Hours),
        }
    }

    /// What an actor of a herd in this world is given.
    pub fn common<R>(&self) -> Common<R> {
        common(self.ports(), self.spawner())
    }

    /// Counts the calls whose text begins so.
    pub fn calls(&self, prefix: &str) -> usize {
        self.with(|script| script.calls.iter().filter(|call| call.starts_with(prefix)).count())
    }

    /// A spawner of agents that get ready ten seconds after their place was granted.
    pub fn spawner(&self) -> AgentSpawner {
        let world = self.clone();
        Arc::new(move |birth| FakeAgent::new(world.clone(), birth).start().recipient())
    }
}

/// What an actor of a herd behind these ports is given.
pub fn common<R>(ports: Ports, spawner: AgentSpawner) -> Common<R> {
    let run =
        Run { installation: Installation::new("7k2m9qxw"), epoch: 1, since: at(100_000_000).wall };
    let supervision = Supervision {
        census: Census::default(),
        give_up: Arc::new(|what| panic!("{} was given up", what.name)),
        spawner,
    };
    Common::new(ports, run, supervision, HoldNext::default())
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

impl FakeHypervisor for World {
    fn unserved<T: Send + 'static>(&self, _: &'static str) -> Ask<T> {
        never()
    }

    fn continues(&self, now: &ClusterId, former: &ClusterId) {
        self.with(|script| script.calls.push(format!("continues {now} {former}")));
    }

    fn identify(&self, cloud: &CloudId) -> Ask<ClusterObservation> {
        now(self.with(|script| {
            script.calls.push(format!("identify {cloud}"));
            script.identify.get(cloud.as_str()).cloned().unwrap()
        }))
    }

    fn survey(&self, cloud: &CloudId, _: Duration) -> Ask<Survey> {
        now(self.with(|script| {
            script.calls.push(format!("survey {cloud}"));
            script.survey.clone().ok_or_else(|| unreachable(cloud.as_str()))
        }))
    }

    fn provide(&self, cloud: &CloudId, _: &OsTemplate, _: &[NodeName]) -> Ask<Found> {
        self.locate(cloud, &Sought::Id(VmId(0)), None)
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, _: Option<&[NodeName]>) -> Ask<Found> {
        let vmid = sought.vmid().unwrap_or(VmId(9000));
        now(self.with(|script| {
            script.calls.push(format!("locate {cloud} {vmid}"));
            let node = script.locate.clone().unwrap_or_else(|| Ok(NodeName::new("pve1")))?;
            let candidate = Candidate {
                vmid,
                node,
                name: "debian".into(),
                created: None,
                storages: ["local-lvm".to_owned()].into(),
                digest: "d".into(),
                sizes: drover_model::placement::Sizes::default(),
            };
            let fleet = Arc::new(script.fleet.clone());
            Ok(Found { candidates: vec![candidate], fleet, whole: true })
        }))
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        now(self.with(|script| {
            script.calls.push(format!("fleet {cloud}"));
            Ok(script.fleet.clone())
        }))
    }

    fn devices(&self, cloud: &CloudId) -> Ask<Devices> {
        now(self.with(|script| {
            script.calls.push(format!("devices {cloud}"));
            Ok(script.devices.clone())
        }))
    }

    fn confirm(&self, vm: &VmRef, _: &Marks, _: &str) -> Ask<VmObservation> {
        self.look(vm)
    }

    fn look(&self, vm: &VmRef) -> Ask<VmObservation> {
        now(self.with(|script| {
            script.calls.push(format!("look {}", vm.vmid));
            script.looks.get(&vm.vmid.0).cloned().ok_or_else(|| unreachable("c"))
        }))
    }

    fn id_taken(&self, _: &CloudId, vmid: VmId) -> Ask<IdStatus> {
        now(self.with(|script| {
            script.calls.push(format!("id_taken {vmid}"));
            Ok(script.ids.get(&vmid.0).copied().unwrap_or(IdStatus::Free))
        }))
    }

    fn images(&self, _: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        now(self.with(|script| {
            let shown = storages.iter().cloned().collect::<Vec<_>>().join(",");
            script.calls.push(format!("images {shown}"));
            Ok(script.images.clone())
        }))
    }
    fn remove_image(&self, _: &CloudId, image: &ImageObservation) -> Ask<()> {
        now(self.with(|script| {
            script.calls.push(format!("remove {} on {}", image.volume, image.node));
            script.images.retain(|other| other != image);
            Ok(())
        }))
    }
    fn leftovers(
        &self,
        vm: &VmRef,
        _: &[String],
        _: Option<&BTreeSet<String>>,
    ) -> Ask<Vec<String>> {
        now(self.with(|script| {
            script.calls.push(format!("leftovers {}", vm.vmid));
            Ok(script.leftovers.clone())
        }))
    }
}

impl FakeShell for World {
    fn unserved<T: Send + 'static>(&self, _: &'static str) -> Ask<T> {
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
                let seq = script.journal_state.seq + 1;
                let record =
                    Record { version: 1, seq, epoch: 1, wall_time: wall, body: body.clone() };
                script.journal_state.apply(&record);
                script.bodies.push(body);
            }
            Ok(script.journal_state.seq)
        }))
    }

    fn last_seq(&self) -> u64 {
        self.with(|script| script.journal_state.seq.max(100))
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
