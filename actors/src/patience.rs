//! Patience: how long an answer of a port is waited for at most, so that a call which never comes
//! back holds nobody up for ever.
//!
//! The ports keep limits of their own, which are shorter; this is the net beneath them. A call that
//! is given up may have had its effect, and may still have it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::demand::words::Words;
use crate::fault::{Culprit, Fault, FaultKind};
use crate::id::{CloudId, NodeName, RunnerName, SourceId, Upid, VmId};
use crate::marks::Marks;
use crate::placement::Fleet;
use crate::ports::{
    AddressSight, Ask, CloneCall, ClusterSight, ConfigureCall, Configured, Demand, HireCall,
    Holder, Hypervisor, IdSight, ImageSight, Ports, Ran, Shell, ShellTarget, Snapped, SnapshotCall,
    SourceSight, Survey, TaskEnd, VmRef, VmSight,
};
use crate::source::{Found, Sought};
use crate::spec::UploadSpec;

/// For a call of Proxmox: a few requests, each with the client's own limit (`callTimeoutSec`) at
/// each endpoint.
const CALL: Duration = Duration::from_secs(10 * 60);
/// For a call that knows its own limit: what it may take beyond that.
const BEYOND: Duration = Duration::from_secs(60);

/// The ports, none of whose answers is waited for without an end. The journal is not among them:
/// what it was given cannot be taken back, and nothing may be done before it is durable.
pub fn patient(ports: Ports) -> Ports {
    let Ports { hypervisor, shell, demand, journal, observer, ambient, calendar } = ports;
    let hypervisor = Arc::new(Patient(hypervisor));
    let shell = Arc::new(Patient(shell));
    let demand = Arc::new(Patient(demand));
    Ports { hypervisor, shell, demand, journal, observer, ambient, calendar }
}

struct Patient<P: ?Sized>(Arc<P>);

/// Counts from the first poll: a call may wait for its turn before.
fn within<T: Send + 'static>(
    limit: Duration,
    call: &'static str,
    culprit: Culprit,
    answer: Ask<T>,
) -> Ask<T> {
    Box::pin(async move {
        tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
            let text = format!("`{call}` was not answered within {} s", limit.as_secs());
            tracing::error!(call, limit_s = limit.as_secs(), "call through a port is given up");
            Err(Fault::new(FaultKind::UnknownOutcome, culprit, text))
        })
    })
}

fn asked<T: Send + 'static>(call: &'static str, cloud: &CloudId, answer: Ask<T>) -> Ask<T> {
    within(CALL, call, Culprit::Cloud(cloud.clone()), answer)
}

impl Hypervisor for Patient<dyn Hypervisor> {
    fn identify(&self, cloud: &CloudId) -> Ask<ClusterSight> {
        asked("identify", cloud, self.0.identify(cloud))
    }

    fn survey(&self, cloud: &CloudId) -> Ask<Survey> {
        asked("survey", cloud, self.0.survey(cloud))
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Ask<Found> {
        asked("locate", cloud, self.0.locate(cloud, sought, near))
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        asked("fleet", cloud, self.0.fleet(cloud))
    }

    fn look(&self, vm: &VmRef) -> Ask<VmSight> {
        asked("look", &vm.cloud, self.0.look(vm))
    }

    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdSight> {
        asked("id_taken", cloud, self.0.id_taken(cloud, vmid))
    }

    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        let cloud = call.cloud.clone();
        asked("clone_vm", &cloud, self.0.clone_vm(call))
    }

    fn await_task(&self, cloud: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        let culprit = Culprit::Cloud(cloud.clone());
        within(limit + BEYOND, "await_task", culprit, self.0.await_task(cloud, upid, limit))
    }

    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        let culprit = Culprit::Cloud(call.vm.cloud.clone());
        let limit = call.spec.limits.operation + CALL;
        within(limit, "configure", culprit, self.0.configure(call))
    }

    fn snapshot(&self, call: SnapshotCall) -> Ask<Snapped> {
        let culprit = Culprit::Cloud(call.vm.cloud.clone());
        within(call.limit + CALL, "snapshot", culprit, self.0.snapshot(call))
    }

    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        let culprit = Culprit::Cloud(call.vm.cloud.clone());
        within(call.limit + CALL, "rollback", culprit, self.0.rollback(call))
    }

    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        asked("start", &vm.cloud, self.0.start(vm))
    }

    fn address(&self, vm: &VmRef, mac: Option<&str>, networks: &[String]) -> Ask<AddressSight> {
        asked("address", &vm.cloud, self.0.address(vm, mac, networks))
    }

    fn host_keys(&self, vm: &VmRef) -> Ask<Vec<String>> {
        asked("host_keys", &vm.cloud, self.0.host_keys(vm))
    }

    fn fence(&self, vm: &VmRef, marks: &Marks) -> Ask<VmSight> {
        asked("fence", &vm.cloud, self.0.fence(vm, marks))
    }

    fn shutdown(&self, vm: &VmRef, limit: Duration) -> Ask<Upid> {
        asked("shutdown", &vm.cloud, self.0.shutdown(vm, limit))
    }

    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        asked("stop", &vm.cloud, self.0.stop(vm))
    }

    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        asked("destroy", &vm.cloud, self.0.destroy(vm))
    }

    fn images(&self, cloud: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageSight>> {
        asked("images", cloud, self.0.images(cloud, storages))
    }

    fn remove_image(&self, cloud: &CloudId, image: &ImageSight) -> Ask<()> {
        asked("remove image", cloud, self.0.remove_image(cloud, image))
    }

    fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Ask<Vec<String>> {
        asked("leftovers", &vm.cloud, self.0.leftovers(vm, ours, only))
    }
}

impl Demand for Patient<dyn Demand> {
    fn look(&self, source: &SourceId) -> Ask<SourceSight> {
        of_source("look at jobs", source, self.0.look(source))
    }

    fn hire(&self, call: HireCall, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "hire", Culprit::Guest, self.0.hire(call, limit))
    }

    fn dismiss(&self, call: HireCall, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "dismiss", Culprit::Guest, self.0.dismiss(call, limit))
    }

    fn words(&self, call: HireCall, limit: Duration) -> Ask<Words> {
        within(limit + BEYOND, "words", Culprit::Guest, self.0.words(call, limit))
    }

    fn obstacle(&self, source: &SourceId) -> Ask<Option<String>> {
        of_source("obstacle", source, self.0.obstacle(source))
    }

    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        of_source("quiet", source, self.0.quiet(source, runner))
    }

    fn strike(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        of_source("strike", source, self.0.strike(source, runner))
    }
}

fn of_source<T: Send + 'static>(call: &'static str, source: &SourceId, answer: Ask<T>) -> Ask<T> {
    within(CALL, call, Culprit::Source(source.clone()), answer)
}

impl Shell for Patient<dyn Shell> {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<String> {
        within(limit + BEYOND, "greet", Culprit::Guest, self.0.greet(target, limit))
    }

    fn run(&self, target: ShellTarget, command: String, limit: Duration) -> Ask<Ran> {
        within(limit + BEYOND, "run", Culprit::Guest, self.0.run(target, command, limit))
    }

    fn upload(&self, target: ShellTarget, upload: UploadSpec, limit: Duration) -> Ask<Ran> {
        within(limit + BEYOND, "upload", Culprit::Guest, self.0.upload(target, upload, limit))
    }

    fn admit(&self, target: ShellTarget, lease: &str, holder: &Holder, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "admit", Culprit::Guest, self.0.admit(target, lease, holder, limit))
    }

    fn expel(&self, target: ShellTarget, lease: &str, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "expel", Culprit::Guest, self.0.expel(target, lease, limit))
    }
}
