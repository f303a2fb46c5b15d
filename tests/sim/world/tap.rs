//! A tap on every way out of the actors: a test sees each call before it leaves, and may hit it.
//!
//! The tap sits above the ports, where one call of an agent is one call; [`super::tally`] sits below
//! the client, where it is one or more requests.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drover_model::demand::words::Words;
use drover_model::fact::Fact;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, ClusterId, NodeName, RunnerName, SourceId, Upid, VmId};
use drover_model::marks::Marks;
use drover_model::os::Os;
use drover_model::placement::Fleet;
use drover_model::ports::{
    AddressObservation, Ambient, Ask, CloneCall, ClusterObservation, ConfigureCall, Configured,
    Demand, Greeting, Holder, Hypervisor, IdStatus, ImageObservation, Journal, JournalFault, Known,
    Observer, Ports, Ran, Shell, ShellTarget, Snapped, SnapshotCall, SourceObservation,
    StartRunnerCall, Survey, TaskEnd, VmObservation, VmRef,
};
use drover_model::record::Body;
use drover_model::spec::UploadSpec;
use drover_model::template_image::{Found, Sought};
use drover_model::time::Now;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};

use super::tally::Tally;

/// One call that is about to leave.
#[derive(Debug, Clone, PartialEq)]
pub struct Knock {
    /// The port's method, such as `clone_vm`.
    pub call: &'static str,
    /// The guest it is about, where it is about one.
    pub vmid: Option<VmId>,
    /// What an append would write.
    pub records: Vec<Body>,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Hit {
    /// Nothing: it goes its way.
    Pass,
    /// The caller panics while asking, inside its handler or timer.
    Panic,
    /// The caller panics when the answer is there, inside the future of the effect.
    PanicLater,
    /// It never leaves, and the trap springs.
    Hold,
    /// It is carried out, its answer never comes, and the trap springs.
    HoldAnswer,
    /// It never arrives, and is answered like this.
    Fail(Fault),
    /// It is carried out, and answered like this.
    FailAfter(Fault),
    /// It is carried out twice, one after the other; the second answer counts.
    Twice,
    /// Nobody answers for so long, and then the outcome is unknown; carried out or not.
    Lose {
        /// Whether it is carried out.
        done: bool,
        /// How long nobody answers.
        after: Duration,
    },
    /// It is carried out, and something else is answered.
    Alter(Alteration),
}

type Alter = dyn Fn(&mut dyn Any) + Send + Sync;

/// Makes another answer of a call's own.
#[derive(Clone)]
pub struct Alteration(Arc<Alter>);

impl Alteration {
    /// Answers with what this makes of the call's own answer, whose type must be the call's.
    pub fn of<T: 'static>(
        alter: impl Fn(Result<T, Fault>) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |answer| {
            let answer = answer.downcast_mut::<Result<T, Fault>>().expect("the call's own type");
            let nothing = Fault::new(FaultKind::Broken, Culprit::Guest, "taken out");
            *answer = alter(std::mem::replace(answer, Err(nothing)));
        }))
    }
}

impl fmt::Debug for Alteration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Alteration")
    }
}

impl PartialEq for Alteration {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

type Watcher = Box<dyn FnMut(&Knock) -> Hit + Send>;

/// The tap of one world; it outlives crashes, and passes everything until a test says otherwise.
#[derive(Clone)]
pub struct Tap {
    watcher: Arc<Mutex<Option<Watcher>>>,
    tally: Tally,
    looks: Arc<AtomicU64>,
}

impl Tap {
    /// A tap that passes everything; a trap that springs informs the tally.
    pub fn new(tally: Tally) -> Self {
        Self { watcher: Arc::default(), tally, looks: Arc::default() }
    }

    /// Lets every call from here on be judged.
    pub fn watch(&self, watcher: impl FnMut(&Knock) -> Hit + Send + 'static) {
        *self.watcher.lock().unwrap() = Some(Box::new(watcher));
    }

    /// Passes everything from here on.
    pub fn release(&self) {
        *self.watcher.lock().unwrap() = None;
    }

    /// How often actors looked at the clock: once and more at each of their steps.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// The ports, with every call through this tap.
    pub fn on(&self, ports: Ports) -> Ports {
        let tap = self.clone();
        Ports {
            hypervisor: Arc::new(Tapped { inner: ports.hypervisor, tap: tap.clone() }),
            shell: Arc::new(Tapped { inner: ports.shell, tap: tap.clone() }),
            demand: Arc::new(Tapped { inner: ports.demand, tap: tap.clone() }),
            journal: Arc::new(Tapped { inner: ports.journal, tap: tap.clone() }),
            observer: Arc::new(Tapped { inner: ports.observer, tap: tap.clone() }),
            ambient: Arc::new(Tapped { inner: ports.ambient, tap }),
            calendar: ports.calendar,
        }
    }

    /// Taken out while it judges, so that a watcher may use the world.
    fn judge(&self, call: &'static str, vmid: Option<VmId>) -> Hit {
        self.judge_knock(&Knock { call, vmid, records: Vec::new() })
    }

    fn judge_knock(&self, knock: &Knock) -> Hit {
        let Some(mut watcher) = self.watcher.lock().unwrap().take() else { return Hit::Pass };
        let deregister = watcher(knock);
        self.watcher.lock().unwrap().get_or_insert(watcher);
        assert_ne!(deregister, Hit::Panic, "a planned panic at {}", knock.call);
        deregister
    }

    fn ask<T: Send + 'static>(
        &self,
        call: &'static str,
        vmid: Option<VmId>,
        make: impl Fn() -> Ask<T>,
    ) -> Ask<T> {
        let tally = self.tally.clone();
        match self.judge(call, vmid) {
            Hit::Pass | Hit::Panic => make(),
            Hit::PanicLater => {
                let answer = make();
                async move {
                    drop(answer.await);
                    panic!("a planned panic at the answer of {call}")
                }
                .boxed()
            }
            Hit::Hold => {
                tally.spring();
                pending().boxed()
            }
            Hit::HoldAnswer => {
                let answer = make();
                async move {
                    drop(answer.await);
                    tally.spring();
                    pending().await
                }
                .boxed()
            }
            Hit::Fail(fault) => async move { Err(fault) }.boxed(),
            Hit::FailAfter(fault) => {
                let answer = make();
                async move {
                    drop(answer.await);
                    Err(fault)
                }
                .boxed()
            }
            Hit::Twice => {
                let (first, second) = (make(), make());
                async move {
                    drop(first.await);
                    second.await
                }
                .boxed()
            }
            Hit::Lose { done, after } => {
                let answer = done.then(make);
                async move {
                    if let Some(answer) = answer {
                        drop(answer.await);
                    }
                    tokio::time::sleep(after).await;
                    let text = format!("{call}: nobody answers");
                    Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
                }
                .boxed()
            }
            Hit::Alter(alteration) => {
                let answer = make();
                async move {
                    let mut answer = answer.await;
                    (alteration.0)(&mut answer);
                    answer
                }
                .boxed()
            }
        }
    }
}

struct Tapped<P: ?Sized> {
    inner: Arc<P>,
    tap: Tap,
}

impl Hypervisor for Tapped<dyn Hypervisor> {
    fn continues(&self, now: &ClusterId, former: &ClusterId) {
        self.inner.continues(now, former);
    }
    fn identify(&self, cloud: &CloudId) -> Ask<ClusterObservation> {
        self.tap.ask("identify", None, || self.inner.identify(cloud))
    }
    fn survey(&self, cloud: &CloudId, within: Duration) -> Ask<Survey> {
        self.tap.ask("survey", None, || self.inner.survey(cloud, within))
    }
    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        self.tap.ask("fleet", None, || self.inner.fleet(cloud))
    }
    fn locate(&self, cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Ask<Found> {
        let vmid = match sought {
            Sought::Id(vmid) => Some(*vmid),
            Sought::Name(_) | Sought::Pattern(_) | Sought::Tag(_) => None,
        };
        self.tap.ask("locate", vmid, || self.inner.locate(cloud, sought, near))
    }
    fn look(&self, vm: &VmRef) -> Ask<VmObservation> {
        self.tap.ask("look", Some(vm.vmid), || self.inner.look(vm))
    }
    fn confirm(&self, vm: &VmRef, marks: &Marks, name: &str) -> Ask<VmObservation> {
        self.tap.ask("look", Some(vm.vmid), || self.inner.confirm(vm, marks, name))
    }
    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdStatus> {
        self.tap.ask("id_taken", Some(vmid), || self.inner.id_taken(cloud, vmid))
    }
    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        let vmid = call.marks.vmid;
        self.tap.ask("clone_vm", Some(vmid), || self.inner.clone_vm(call.clone()))
    }
    fn await_task(&self, cloud: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        self.tap.ask("await_task", None, || self.inner.await_task(cloud, upid, limit))
    }
    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        self.tap.ask("configure", Some(call.vm.vmid), || self.inner.configure(call.clone()))
    }
    fn snapshot(&self, call: SnapshotCall) -> Ask<Snapped> {
        self.tap.ask("snapshot", Some(call.vm.vmid), || self.inner.snapshot(call.clone()))
    }
    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        self.tap.ask("rollback", Some(call.vm.vmid), || self.inner.rollback(call.clone()))
    }
    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        self.tap.ask("start", Some(vm.vmid), || self.inner.start(vm))
    }
    fn address(
        &self,
        vm: &VmRef,
        mac: Option<&str>,
        networks: &[String],
    ) -> Ask<AddressObservation> {
        self.tap.ask("address", Some(vm.vmid), || self.inner.address(vm, mac, networks))
    }
    fn host_keys(&self, vm: &VmRef, os: Os) -> Ask<Vec<String>> {
        self.tap.ask("host_keys", Some(vm.vmid), || self.inner.host_keys(vm, os))
    }
    fn fence(&self, vm: &VmRef, marks: &Marks) -> Ask<VmObservation> {
        self.tap.ask("fence", Some(vm.vmid), || self.inner.fence(vm, marks))
    }
    fn shutdown(&self, vm: &VmRef, limit: Duration) -> Ask<Upid> {
        self.tap.ask("shutdown", Some(vm.vmid), || self.inner.shutdown(vm, limit))
    }
    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        self.tap.ask("stop", Some(vm.vmid), || self.inner.stop(vm))
    }
    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        self.tap.ask("destroy", Some(vm.vmid), || self.inner.destroy(vm))
    }
    fn images(&self, cloud: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        self.tap.ask("images", None, || self.inner.images(cloud, storages))
    }
    fn remove_image(&self, cloud: &CloudId, image: &ImageObservation) -> Ask<()> {
        self.tap.ask("remove_image", None, || self.inner.remove_image(cloud, image))
    }
    fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Ask<Vec<String>> {
        self.tap.ask("leftovers", Some(vm.vmid), || self.inner.leftovers(vm, ours, only))
    }
}

impl Shell for Tapped<dyn Shell> {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<Greeting> {
        self.tap.ask("greet", None, || self.inner.greet(target.clone(), limit))
    }
    /// Passes: how a guest answers probes is the guest's matter.
    fn probe(&self, target: ShellTarget, limit: Duration) -> Ask<()> {
        self.inner.probe(target, limit)
    }
    fn run(&self, target: ShellTarget, command: String, limit: Duration) -> Ask<Ran> {
        self.tap.ask("run", None, || self.inner.run(target.clone(), command.clone(), limit))
    }
    fn upload(&self, target: ShellTarget, upload: UploadSpec, limit: Duration) -> Ask<Ran> {
        self.tap.ask("upload", None, || self.inner.upload(target.clone(), upload.clone(), limit))
    }
    fn admit(&self, target: ShellTarget, lease: &str, holder: &Holder, limit: Duration) -> Ask<()> {
        self.tap.ask("admit", None, || self.inner.admit(target.clone(), lease, holder, limit))
    }
    fn expel(&self, target: ShellTarget, lease: &str, limit: Duration) -> Ask<()> {
        self.tap.ask("expel", None, || self.inner.expel(target.clone(), lease, limit))
    }
}

impl Demand for Tapped<dyn Demand> {
    fn look(&self, source: &SourceId, known: &Known) -> Ask<SourceObservation> {
        self.tap.ask("look_at_jobs", None, || self.inner.look(source, known))
    }
    fn start_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        self.tap.ask("start_runner", None, || self.inner.start_runner(call.clone(), limit))
    }
    fn stop_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        self.tap.ask("stop_runner", None, || self.inner.stop_runner(call.clone(), limit))
    }
    fn words(&self, call: StartRunnerCall, limit: Duration) -> Ask<Words> {
        self.tap.ask("words", None, || self.inner.words(call.clone(), limit))
    }
    fn obstacle(&self, source: &SourceId) -> Ask<Option<String>> {
        self.tap.ask("obstacle", None, || self.inner.obstacle(source))
    }
    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        self.tap.ask("quiet", None, || self.inner.quiet(source, runner))
    }
    fn deregister(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        self.tap.ask("deregister", None, || self.inner.deregister(source, runner))
    }
}

impl Journal for Tapped<dyn Journal> {
    /// Only `Panic`, `Hold` (nothing is written) and `HoldAnswer` hit an append.
    fn append(&self, bodies: Vec<Body>) -> BoxFuture<'static, Result<u64, JournalFault>> {
        let knock = Knock { call: "append", vmid: None, records: bodies.clone() };
        let deregister = self.tap.judge_knock(&knock);
        if deregister == Hit::Hold {
            self.tap.tally.spring();
            return pending().boxed();
        }
        let done = self.inner.append(bodies);
        if deregister != Hit::HoldAnswer {
            return done;
        }
        let tally = self.tap.tally.clone();
        async move {
            drop(done.await);
            tally.spring();
            pending().await
        }
        .boxed()
    }

    fn last_seq(&self) -> u64 {
        self.inner.last_seq()
    }
}

impl Observer for Tapped<dyn Observer> {
    /// Only `Panic` hits a fact.
    fn observe(&self, fact: Fact) {
        self.tap.judge("observe", None);
        self.inner.observe(fact);
    }
}

impl Ambient for Tapped<dyn Ambient> {
    /// Only `Panic` hits a look at the clock.
    fn now(&self) -> Now {
        self.tap.looks.fetch_add(1, Ordering::Relaxed);
        self.tap.judge("now", None);
        self.inner.now()
    }

    fn draw(&self) -> u64 {
        self.tap.judge("draw", None);
        self.inner.draw()
    }
}
