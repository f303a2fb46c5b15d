//! A scripted world behind every port, on tokio's paused clock. A call takes 100 ms and succeeds,
//! unless the test asked for a twist.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use actix::{Actor, Addr, Context, Handler};
use drover_model::fact::{Fact, What};
use drover_model::id::{AgentId, CloudId, ClusterId, LeaseId, NodeName, Upid, VmId};
use drover_model::journal_state::{AgentEntry, JournalState};
use drover_model::marks::{Marks, Reading};
use drover_model::os::Os;
use drover_model::phase::AgentPhase;
use drover_model::ports::*;
use drover_model::record::{Body, Record};
use drover_model::spec::UploadSpec;
use drover_model::status::Standing;
use drover_model::time::{Moment, Now, WallTime};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::agent::testing::{ADDRESS, WALL, agent_id, spec, upid};
use crate::agent::{Agent, start};
use crate::birth::{AgentBirth, AgentSpawner, Common, Lanes, Start};
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree};
use crate::shared::{Shared, role};
use crate::testing::{Hours, common};
use crate::ways::Ways;

pub const CLUSTER: &str = "9f31c0aa52e7d410";
const CALL: Duration = Duration::from_millis(100);

/// A failure of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twist {
    Panic,
}

#[derive(Default)]
struct Inner {
    calls: Vec<String>,
    twists: BTreeMap<String, Twist>,
    facts: Vec<(Duration, What)>,
    written: Vec<Record>,
    journal_state: JournalState,
    cloned_with: Option<Marks>,
    journal_takes: Duration,
    journal_fails: u32,
    clock_panics_at_grant: bool,
    fenced: bool,
    free: bool,
}

struct Ground {
    start: tokio::time::Instant,
    inner: Mutex<Inner>,
}

impl Ground {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn call<T: Send + 'static>(&self, name: &str, value: T) -> Ask<T> {
        let mut inner = self.inner();
        inner.calls.push(name.to_owned());
        let twist = inner.twists.remove(name);
        async move {
            tokio::time::sleep(CALL).await;
            assert_ne!(twist, Some(Twist::Panic), "a planned panic");
            Ok(value)
        }
        .boxed()
    }

    fn observation(&self) -> VmObservation {
        let inner = self.inner();
        let taken = !inner.free;
        let entry = inner.journal_state.agents.values().next();
        VmObservation {
            id: if taken { IdStatus::Taken } else { IdStatus::Free },
            node: taken.then(|| NodeName::new("n1")),
            marks: entry.map(|entry| Reading::Marked(Box::new(entry.marks.clone()))),
            lock: None,
            running: Some(true),
        }
    }
}

impl FakeHypervisor for Ground {
    fn unserved<T: Send + 'static>(&self, call: &'static str) -> Ask<T> {
        unreachable!("an agent does not ask for `{call}`")
    }
    fn confirm(&self, vm: &VmRef, _: &Marks, _: &str) -> Ask<VmObservation> {
        FakeHypervisor::look(self, vm)
    }
    fn look(&self, _: &VmRef) -> Ask<VmObservation> {
        let observation = self.observation();
        self.call("look", observation)
    }
    fn id_taken(&self, _: &CloudId, _: VmId) -> Ask<IdStatus> {
        self.call("id_taken", IdStatus::Free)
    }
    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        self.inner().cloned_with = Some(call.marks);
        self.call("clone", upid("qmclone"))
    }
    fn await_task(&self, _: &CloudId, _: &Upid, _: Duration) -> Ask<TaskEnd> {
        self.call("await", TaskEnd::Done { warnings: Vec::new() })
    }
    fn configure(&self, _: ConfigureCall) -> Ask<Configured> {
        let volumes = vec!["local:vm-10417-disk-0".into()];
        self.call(
            "configure",
            Configured { volumes, mac: None, tags_refused: None, image_refused: None },
        )
    }
    fn snapshot(&self, _: SnapshotCall) -> Ask<Snapped> {
        self.call("snapshot", Snapped::Taken)
    }
    fn rollback(&self, _: SnapshotCall) -> Ask<()> {
        self.call("rollback", ())
    }
    fn start(&self, _: &VmRef) -> Ask<Upid> {
        self.call("start", upid("qmstart"))
    }
    fn address(&self, _: &VmRef, _: Option<&str>, _: &[String]) -> Ask<AddressObservation> {
        self.call("address", AddressObservation::At(ADDRESS.parse().unwrap()))
    }
    fn host_keys(&self, _: &VmRef, _: Os) -> Ask<Vec<String>> {
        self.call("host_keys", vec!["ssh-ed25519 HOST".into()])
    }
    fn fence(&self, _: &VmRef, _: &Marks) -> Ask<VmObservation> {
        let observation = self.observation();
        self.call("fence", observation)
    }
    fn shutdown(&self, _: &VmRef, _: Duration) -> Ask<Upid> {
        self.call("shutdown", upid("qmshutdown"))
    }
    fn stop(&self, _: &VmRef) -> Ask<Upid> {
        self.call("stop", upid("qmstop"))
    }
    fn destroy(&self, _: &VmRef) -> Ask<Upid> {
        self.call("destroy", upid("qmdestroy"))
    }
    fn images(&self, _: &CloudId, _: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        self.call("images", Vec::new())
    }

    fn remove_image(&self, _: &CloudId, _: &ImageObservation) -> Ask<()> {
        self.call("remove_image", ())
    }

    fn leftovers(&self, _: &VmRef, _: &[String], _: Option<&BTreeSet<String>>) -> Ask<Vec<String>> {
        self.call("leftovers", Vec::new())
    }
}

impl Shell for Ground {
    fn greet(&self, _: ShellTarget, _: Duration) -> Ask<Greeting> {
        self.call("greet", "ssh-ed25519 HOST".into())
    }
    fn probe(&self, _: ShellTarget, _: Duration) -> Ask<()> {
        Box::pin(async { Ok(()) })
    }
    fn run(&self, _: ShellTarget, _: String, _: Duration) -> Ask<Ran> {
        self.call("run", Ran { exit: Some(0), tail: String::new() })
    }
    fn upload(&self, _: ShellTarget, upload: UploadSpec, _: Duration) -> Ask<Ran> {
        self.call(&format!("upload {}", upload.to), Ran { exit: Some(0), tail: String::new() })
    }
    fn admit(&self, _: ShellTarget, lease: &str, _: &Holder, _: Duration) -> Ask<()> {
        self.call(&format!("admit {lease}"), ())
    }
    fn expel(&self, _: ShellTarget, lease: &str, _: Sessions, _: Duration) -> Ask<()> {
        self.call(&format!("expel {lease}"), ())
    }
}

/// The journal half of `Ground`. It needs itself behind an `Arc` to write later.
struct Paper(Arc<Ground>);

impl Journal for Paper {
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let ground = Arc::clone(&self.0);
        async move {
            let takes = ground.inner().journal_takes;
            tokio::time::sleep(takes).await;
            let wall_time = ground.now().wall;
            let mut inner = ground.inner();
            if inner.fenced {
                return Err(JournalFault::Fenced);
            }
            if inner.journal_fails > 0 {
                inner.journal_fails -= 1;
                return Err(JournalFault::Failed("no space".into()));
            }
            let first = inner.journal_state.seq + 1;
            for body in bodies {
                let seq = inner.journal_state.seq + 1;
                let record = Record { version: 1, seq, epoch: 1, wall_time, body };
                inner.journal_state.apply(&record);
                inner.written.push(record);
            }
            Ok(first)
        }
        .boxed()
    }

    fn last_seq(&self) -> u64 {
        self.0.inner().journal_state.seq
    }
}

impl Observer for Ground {
    fn observe(&self, fact: Fact) {
        let at = self.elapsed();
        self.inner().facts.push((at, fact.what));
    }
}

impl Ambient for Ground {
    fn now(&self) -> Now {
        let twist = self.inner().twists.remove("now");
        assert_ne!(twist, Some(Twist::Panic), "a planned panic");
        let ms = u64::try_from(self.elapsed().as_millis()).unwrap();
        Now { mono: Moment(ms), wall: WallTime(WALL + i64::try_from(ms).unwrap()) }
    }
    fn draw(&self) -> u64 {
        4
    }
}

/// What the agent's template and cluster received.
#[derive(Default)]
struct Said {
    words: Vec<String>,
    reports: Vec<AgentReport>,
}

struct Boss {
    said: Rc<RefCell<Said>>,
    ground: Arc<Ground>,
}

impl Actor for Boss {
    type Context = Context<Self>;
}

impl Handler<AgentReport> for Boss {
    type Result = ();
    fn handle(&mut self, report: AgentReport, _: &mut Context<Self>) {
        self.said.borrow_mut().reports.push(report);
    }
}

impl Handler<LaneAsk> for Boss {
    type Result = ();
    fn handle(&mut self, ask: LaneAsk, _: &mut Context<Self>) {
        self.said.borrow_mut().words.push("lane asked".into());
        let mut inner = self.ground.inner();
        if inner.clock_panics_at_grant {
            inner.twists.insert("now".into(), Twist::Panic);
        }
        drop(inner);
        let cluster = ClusterId::new(CLUSTER);
        let node = NodeName::new("n1");
        ask.reply.do_send(AgentCommand::Granted { vmid: VmId(10_417), node, cluster, spec: None });
    }
}

impl Handler<LaneFree> for Boss {
    type Result = ();
    fn handle(&mut self, _: LaneFree, _: &mut Context<Self>) {
        self.said.borrow_mut().words.push("lane free".into());
    }
}

impl Handler<IdBack> for Boss {
    type Result = ();
    fn handle(&mut self, back: IdBack, _: &mut Context<Self>) {
        let burned = if back.burned { " burned" } else { "" };
        self.said.borrow_mut().words.push(format!("id {} back{burned}", back.vmid));
    }
}

pub struct World {
    ground: Arc<Ground>,
    said: Rc<RefCell<Said>>,
    boss: Addr<Boss>,
    pub ways: Shared<Ways, role::Herd>,
}

impl World {
    #[expect(clippy::disallowed_methods, reason = "the paused clock of the test")]
    pub fn new() -> Self {
        let start = tokio::time::Instant::now();
        let ground = Arc::new(Ground { start, inner: Mutex::default() });
        let said = Rc::new(RefCell::new(Said::default()));
        let boss = Boss { said: Rc::clone(&said), ground: Arc::clone(&ground) };
        let ways = Shared::<Ways, role::Herd>::default();
        ways.configured(&spec().id.cloud);
        ways.leads(&spec().id.cloud, &ClusterId::new(CLUSTER));
        Self { ground, said, boss: boss.start(), ways }
    }

    fn ports(&self) -> Ports {
        Ports {
            hypervisor: Arc::clone(&self.ground) as Arc<dyn Hypervisor>,
            shell: Arc::clone(&self.ground) as Arc<dyn Shell>,
            demand: std::sync::Arc::new(drover_model::ports::NoDemand),
            journal: Arc::new(Paper(Arc::clone(&self.ground))),
            observer: Arc::clone(&self.ground) as Arc<dyn Observer>,
            ambient: Arc::clone(&self.ground) as Arc<dyn Ambient>,
            calendar: Arc::new(Hours),
        }
    }

    pub fn start(&self, adopted: Option<(AgentEntry, Duration)>) -> Addr<Agent> {
        let boss = &self.boss;
        let spawner: AgentSpawner = Arc::new(|_| panic!("an agent starts no other"));
        let birth = AgentBirth {
            id: agent_id(),
            spec: Arc::new(spec()),
            start: adopted.map_or(Start::Fresh, |(entry, down)| Start::Adopted {
                entry: Box::new(entry),
                down,
            }),
            common: Common { ways: self.ways.playing(), ..common(self.ports(), spawner) },
            report: boss.clone().recipient(),
            lanes: Lanes {
                cluster: ClusterId::new(CLUSTER),
                ask: boss.clone().recipient(),
                free: boss.clone().recipient(),
                id_back: boss.clone().recipient(),
            },
            history: Shared::default(),
        };
        start(birth, |given_up| panic!("{given_up:?}"))
    }

    pub fn twist(&self, call: &str, twist: Twist) {
        self.ground.inner().twists.insert(call.to_owned(), twist);
    }

    pub fn journal_takes(&self, span: Duration) {
        self.ground.inner().journal_takes = span;
    }

    pub fn journal_fails(&self, times: u32) {
        self.ground.inner().journal_fails = times;
    }

    pub fn clock_panics_at_grant(&self) {
        self.ground.inner().clock_panics_at_grant = true;
    }

    pub fn fence(&self) {
        self.ground.inner().fenced = true;
    }

    pub fn free(&self) {
        self.ground.inner().free = true;
    }

    pub fn calls(&self) -> Vec<String> {
        self.ground.inner().calls.clone()
    }

    pub fn forget_calls(&self) {
        self.ground.inner().calls.clear();
    }

    pub fn count(&self, call: &str) -> usize {
        self.ground.inner().calls.iter().filter(|name| *name == call).count()
    }

    pub fn boss(&self) -> Vec<String> {
        self.said.borrow().words.clone()
    }

    fn last<T>(&self, read: impl Fn(&AgentReport) -> T) -> T {
        read(self.said.borrow().reports.last().expect("a report"))
    }

    pub fn state(&self) -> AgentPhase {
        self.last(|report| report.status.phase)
    }

    pub fn standing(&self) -> Standing {
        self.last(|report| report.status.standing)
    }

    pub fn leases(&self) -> Vec<LeaseId> {
        self.last(|report| report.status.leases.clone())
    }

    pub fn facts(&self) -> Vec<What> {
        self.ground.inner().facts.iter().map(|(_, what)| what.clone()).collect()
    }

    pub fn detail(&self) -> String {
        let details = self.facts().into_iter().filter_map(|what| match what {
            What::Agent(status) => Some(status.detail.clone()),
            _ => None,
        });
        details.collect::<Vec<_>>().join("\n")
    }

    pub fn restarts(&self) -> usize {
        let facts = self.facts();
        facts.iter().filter(|what| matches!(what, What::Restarted { .. })).count()
    }

    pub fn written(&self, wanted: impl Fn(&Body) -> bool) -> (u64, Body) {
        let inner = self.ground.inner();
        let record = inner.written.iter().find(|record| wanted(&record.body));
        record.map(|record| (record.seq, record.body.clone())).expect("a record")
    }

    pub fn cloned_with(&self) -> Marks {
        self.ground.inner().cloned_with.clone().expect("a clone")
    }

    pub fn entry(&self, agent: &AgentId) -> AgentEntry {
        self.ground.inner().journal_state.agents[agent].clone()
    }

    pub fn elapsed(&self) -> Duration {
        self.ground.elapsed()
    }

    pub fn wall(&self) -> WallTime {
        self.ground.now().wall
    }

    /// When the agent was gone, and its waterfall.
    pub fn end(&self) -> (Duration, Vec<(String, u64)>) {
        let inner = self.ground.inner();
        let end = inner.facts.iter().find_map(|(at, what)| match what {
            What::AgentGone { phases, .. } => Some((*at, phases.clone())),
            _ => None,
        });
        end.expect("an end")
    }
}
