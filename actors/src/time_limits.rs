//! Patience: the longest wait for an answer of a port, so that a call which never comes back blocks
//! no actor for ever.
//!
//! The ports have limits of their own, which are shorter. This layer is the net beneath them. A
//! call that is given up may have had its effect, and may still have it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_model::demand::words::Words;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, ClusterId, NodeName, RunnerName, SourceId, Upid, VmId};
use drover_model::marks::Marks;
use drover_model::os::Os;
use drover_model::placement::Fleet;
use drover_model::ports::{
    AddressObservation, Ask, CloneCall, ClusterObservation, ConfigureCall, Configured, Demand,
    Greeting, Holder, Hypervisor, IdStatus, ImageObservation, Known, Ports, Ran, Shell,
    ShellTarget, Snapped, SnapshotCall, SourceObservation, StartRunnerCall, Survey, TaskEnd,
    VmObservation, VmRef,
};
use drover_model::spec::UploadSpec;
use drover_model::template_image::{Found, Sought};

/// The longest wait for an answer of Proxmox, by the kind of question. A request waits at most 30 s
/// for its turn (120 s for a request to a guest agent) before it is sent. The client gives the
/// request up after `callTimeoutSec` (60 s) at an endpoint.
mod limit {
    use std::time::Duration;

    /// The cluster's identity, its lists, the place of a template image. An actor waits for the
    /// answer and asks again.
    pub(super) const LIST: Duration = Duration::from_secs(60);
    /// A guest or an id: a few reads.
    pub(super) const LOOK: Duration = Duration::from_secs(90);
    /// A question to a guest agent: it waits for earlier questions on its node.
    pub(super) const AGENT: Duration = Duration::from_secs(180);
    /// One change: it may wait for its turn and for locks.
    pub(super) const CHANGE: Duration = Duration::from_secs(180);
    /// A start or a destroy: it also waits for a place in the concurrency limits of its node or
    /// storage.
    pub(super) const LANE: Duration = Duration::from_secs(10 * 60);
    /// Volumes and images: storages list slowly, and several are asked.
    pub(super) const VOLUMES: Duration = Duration::from_secs(5 * 60);
    /// A CI system: its lists come page by page.
    pub(super) const SOURCE: Duration = Duration::from_secs(5 * 60);
    /// The wait beyond a limit that the call itself has.
    pub(super) const BEYOND: Duration = Duration::from_secs(60);
}

use limit::BEYOND;

/// The ports with a limit on every wait. The journal has none: an append cannot be taken back, and
/// nothing may be done before it is durable.
pub fn patient(ports: Ports) -> Ports {
    let Ports { hypervisor, shell, demand, journal, observer, ambient, calendar } = ports;
    let hypervisor = Arc::new(Patient(hypervisor));
    let shell = Arc::new(Patient(shell));
    let demand = Arc::new(Patient(demand));
    Ports { hypervisor, shell, demand, journal, observer, ambient, calendar }
}

struct Patient<P: ?Sized>(Arc<P>);

/// The limit counts from the first poll: a call may wait for its turn before.
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

fn asked<T: Send + 'static>(
    call: &'static str,
    limit: Duration,
    cloud: &CloudId,
    answer: Ask<T>,
) -> Ask<T> {
    within(limit, call, Culprit::Cloud(cloud.clone()), answer)
}

impl Hypervisor for Patient<dyn Hypervisor> {
    fn continues(&self, now: &ClusterId, former: &ClusterId) {
        self.0.continues(now, former);
    }

    fn identify(&self, cloud: &CloudId) -> Ask<ClusterObservation> {
        asked("identify", limit::LIST, cloud, self.0.identify(cloud))
    }

    fn survey(&self, cloud: &CloudId, within: Duration) -> Ask<Survey> {
        asked("survey", limit::LIST, cloud, self.0.survey(cloud, within))
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Ask<Found> {
        asked("locate", limit::LIST, cloud, self.0.locate(cloud, sought, near))
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        asked("fleet", limit::LIST, cloud, self.0.fleet(cloud))
    }

    fn look(&self, vm: &VmRef) -> Ask<VmObservation> {
        asked("look", limit::LOOK, &vm.cloud, self.0.look(vm))
    }

    fn confirm(&self, vm: &VmRef, marks: &Marks, name: &str) -> Ask<VmObservation> {
        asked("confirm", limit::LOOK, &vm.cloud, self.0.confirm(vm, marks, name))
    }

    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdStatus> {
        asked("id_taken", limit::LOOK, cloud, self.0.id_taken(cloud, vmid))
    }

    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        let cloud = call.cloud.clone();
        asked("clone_vm", limit::CHANGE, &cloud, self.0.clone_vm(call))
    }

    fn await_task(&self, cloud: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        let culprit = Culprit::Cloud(cloud.clone());
        within(limit + BEYOND, "await_task", culprit, self.0.await_task(cloud, upid, limit))
    }

    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        let culprit = Culprit::Cloud(call.vm.cloud.clone());
        let limit = call.spec.limits.operation + limit::CHANGE;
        within(limit, "configure", culprit, self.0.configure(call))
    }

    fn snapshot(&self, call: SnapshotCall) -> Ask<Snapped> {
        let culprit = Culprit::Cloud(call.vm.cloud.clone());
        within(call.limit + limit::CHANGE, "snapshot", culprit, self.0.snapshot(call))
    }

    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        let culprit = Culprit::Cloud(call.vm.cloud.clone());
        within(call.limit + limit::CHANGE, "rollback", culprit, self.0.rollback(call))
    }

    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        asked("start", limit::LANE, &vm.cloud, self.0.start(vm))
    }

    fn address(
        &self,
        vm: &VmRef,
        mac: Option<&str>,
        networks: &[String],
    ) -> Ask<AddressObservation> {
        asked("address", limit::AGENT, &vm.cloud, self.0.address(vm, mac, networks))
    }

    fn host_keys(&self, vm: &VmRef, os: Os) -> Ask<Vec<String>> {
        asked("host_keys", limit::AGENT, &vm.cloud, self.0.host_keys(vm, os))
    }

    fn fence(&self, vm: &VmRef, marks: &Marks) -> Ask<VmObservation> {
        asked("fence", limit::CHANGE, &vm.cloud, self.0.fence(vm, marks))
    }

    fn shutdown(&self, vm: &VmRef, limit: Duration) -> Ask<Upid> {
        asked("shutdown", limit::CHANGE, &vm.cloud, self.0.shutdown(vm, limit))
    }

    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        asked("stop", limit::CHANGE, &vm.cloud, self.0.stop(vm))
    }

    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        asked("destroy", limit::LANE, &vm.cloud, self.0.destroy(vm))
    }

    fn images(&self, cloud: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        asked("images", limit::VOLUMES, cloud, self.0.images(cloud, storages))
    }

    fn remove_image(&self, cloud: &CloudId, image: &ImageObservation) -> Ask<()> {
        asked("remove image", limit::VOLUMES, cloud, self.0.remove_image(cloud, image))
    }

    fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Ask<Vec<String>> {
        asked("leftovers", limit::VOLUMES, &vm.cloud, self.0.leftovers(vm, ours, only))
    }
}

impl Demand for Patient<dyn Demand> {
    fn look(&self, source: &SourceId, known: &Known) -> Ask<SourceObservation> {
        of_source("look at jobs", source, self.0.look(source, known))
    }

    fn start_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "hire", Culprit::Guest, self.0.start_runner(call, limit))
    }

    fn stop_runner(&self, call: StartRunnerCall, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "dismiss", Culprit::Guest, self.0.stop_runner(call, limit))
    }

    fn words(&self, call: StartRunnerCall, limit: Duration) -> Ask<Words> {
        within(limit + BEYOND, "words", Culprit::Guest, self.0.words(call, limit))
    }

    fn obstacle(&self, source: &SourceId) -> Ask<Option<String>> {
        of_source("obstacle", source, self.0.obstacle(source))
    }

    fn quiet(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        of_source("quiet", source, self.0.quiet(source, runner))
    }

    fn deregister(&self, source: &SourceId, runner: &RunnerName) -> Ask<()> {
        of_source("strike", source, self.0.deregister(source, runner))
    }
}

fn of_source<T: Send + 'static>(call: &'static str, source: &SourceId, answer: Ask<T>) -> Ask<T> {
    within(limit::SOURCE, call, Culprit::Source(source.clone()), answer)
}

impl Shell for Patient<dyn Shell> {
    fn greet(&self, target: ShellTarget, limit: Duration) -> Ask<Greeting> {
        within(limit + BEYOND, "greet", Culprit::Guest, self.0.greet(target, limit))
    }

    fn probe(&self, target: ShellTarget, limit: Duration) -> Ask<()> {
        within(limit + BEYOND, "probe", Culprit::Guest, self.0.probe(target, limit))
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    // Invariant: an answer that never comes blocks a sequence of questions only for a limited time.

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_never_answered_is_given_up_at_the_limit_of_its_kind() {
        let silent = || -> Ask<()> { Box::pin(std::future::pending()) };
        let cloud = CloudId::new("rack");
        let second = Duration::from_secs(1);
        for (call, limit) in [("identify", limit::LIST), ("look", limit::LOOK)] {
            assert!(limit <= Duration::from_secs(90));
            let early = asked(call, limit, &cloud, silent());
            assert!(tokio::time::timeout(limit - second, early).await.is_err(), "{call}");
            let late = asked(call, limit, &cloud, silent());
            let fault = tokio::time::timeout(limit + second, late).await.unwrap().unwrap_err();
            assert_eq!(fault.kind, FaultKind::UnknownOutcome);
            let text = format!("`{call}` was not answered within {} s", limit.as_secs());
            assert_eq!(fault.text, text);
        }
    }
}
