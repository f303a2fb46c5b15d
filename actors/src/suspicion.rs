//! Suspicion: every answer of Proxmox is checked for what it says of its cloud.
//!
//! A refused login, a lost quorum, a changed certificate or an unreachable endpoint shows in the
//! first call that meets it. The cloud learns of it with that answer and checks its identity at
//! once, long before its next poll.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{CloudId, ClusterId, NodeName, Upid, VmId};
use drover_model::marks::Marks;
use drover_model::os::Os;
use drover_model::placement::Fleet;
use drover_model::ports::{
    AddressObservation, Ask, CloneCall, ClusterObservation, ConfigureCall, Configured, Hypervisor,
    IdStatus, ImageObservation, Ports, Snapped, SnapshotCall, Survey, TaskEnd, VmObservation,
    VmRef,
};
use drover_model::template_image::{Found, Sought};

/// Called with a cloud that an answer speaks against, and the fault.
pub type Suspect = Arc<dyn Fn(&CloudId, &Fault) + Send + Sync>;

/// The ports, with every answer of Proxmox checked for what it says of its cloud.
pub fn suspicious(ports: Ports, suspect: Suspect) -> Ports {
    let hypervisor = Arc::new(Suspicious { inner: ports.hypervisor, suspect });
    Ports { hypervisor, ..ports }
}

struct Suspicious {
    inner: Arc<dyn Hypervisor>,
    suspect: Suspect,
}

/// Whether a fault may be the cloud's. A missing named privilege does not show when drover asks for
/// the cloud's identity.
fn blames_cloud(fault: &Fault) -> bool {
    match &fault.kind {
        FaultKind::Unreachable => true,
        FaultKind::Denied { privilege, .. } => {
            privilege.is_none() && matches!(fault.culprit, Culprit::Cloud(_))
        }
        FaultKind::Contention
        | FaultKind::UnknownOutcome
        | FaultKind::Broken
        | FaultKind::Gone
        | FaultKind::Capacity => matches!(fault.culprit, Culprit::Cloud(_)),
        FaultKind::Locked { .. }
        | FaultKind::IdTaken
        | FaultKind::Foreign
        | FaultKind::KeyRejected
        | FaultKind::Impostor => false,
    }
}

/// What an answer says against its cloud.
trait SetupOutput {
    fn reported(&self) -> Option<Fault> {
        None
    }
}

impl SetupOutput for Found {}
impl SetupOutput for Fleet {}
impl SetupOutput for Upid {}
impl SetupOutput for Configured {}
impl SetupOutput for Snapped {}
impl SetupOutput for () {}
impl SetupOutput for AddressObservation {}
impl<T> SetupOutput for Vec<T> {}

impl SetupOutput for TaskEnd {
    fn reported(&self) -> Option<Fault> {
        match self {
            Self::Failed(fault) => Some(fault.clone()).filter(blames_cloud),
            Self::Done { .. } | Self::Unknown(_) => None,
        }
    }
}

impl SetupOutput for IdStatus {
    fn reported(&self) -> Option<Fault> {
        let text = "no endpoint with quorum said whether a VMID is free";
        let culprit = Culprit::Cloud(CloudId::new(""));
        (*self == Self::Unknown).then(|| Fault::new(FaultKind::Contention, culprit, text))
    }
}

impl SetupOutput for VmObservation {
    fn reported(&self) -> Option<Fault> {
        self.id.reported()
    }
}

impl SetupOutput for Survey {
    fn reported(&self) -> Option<Fault> {
        let id = if self.quorate { IdStatus::Free } else { IdStatus::Unknown };
        id.reported()
    }
}

impl Suspicious {
    fn heard<T: SetupOutput + Send + 'static>(&self, cloud: &CloudId, answer: Ask<T>) -> Ask<T> {
        let (cloud, suspect) = (cloud.clone(), Arc::clone(&self.suspect));
        Box::pin(async move {
            let answer = answer.await;
            let fault = match &answer {
                Ok(answer) => answer.reported(),
                Err(fault) => Some(fault.clone()).filter(blames_cloud),
            };
            if let Some(fault) = fault {
                suspect(&cloud, &fault);
            }
            answer
        })
    }
}

impl Hypervisor for Suspicious {
    fn continues(&self, now: &ClusterId, former: &ClusterId) {
        self.inner.continues(now, former);
    }

    /// The cloud itself asked for this answer.
    fn identify(&self, cloud: &CloudId) -> Ask<ClusterObservation> {
        self.inner.identify(cloud)
    }

    fn survey(&self, cloud: &CloudId, within: Duration) -> Ask<Survey> {
        self.heard(cloud, self.inner.survey(cloud, within))
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, near: Option<&[NodeName]>) -> Ask<Found> {
        self.heard(cloud, self.inner.locate(cloud, sought, near))
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        self.heard(cloud, self.inner.fleet(cloud))
    }

    fn look(&self, vm: &VmRef) -> Ask<VmObservation> {
        self.heard(&vm.cloud, self.inner.look(vm))
    }

    fn confirm(&self, vm: &VmRef, marks: &Marks, name: &str) -> Ask<VmObservation> {
        self.heard(&vm.cloud, self.inner.confirm(vm, marks, name))
    }

    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdStatus> {
        self.heard(cloud, self.inner.id_taken(cloud, vmid))
    }

    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        self.heard(&call.cloud.clone(), self.inner.clone_vm(call))
    }

    fn await_task(&self, cloud: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        self.heard(cloud, self.inner.await_task(cloud, upid, limit))
    }

    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        self.heard(&call.vm.cloud.clone(), self.inner.configure(call))
    }

    fn snapshot(&self, call: SnapshotCall) -> Ask<Snapped> {
        self.heard(&call.vm.cloud.clone(), self.inner.snapshot(call))
    }

    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        self.heard(&call.vm.cloud.clone(), self.inner.rollback(call))
    }

    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        self.heard(&vm.cloud, self.inner.start(vm))
    }

    fn address(
        &self,
        vm: &VmRef,
        mac: Option<&str>,
        networks: &[String],
    ) -> Ask<AddressObservation> {
        self.heard(&vm.cloud, self.inner.address(vm, mac, networks))
    }

    fn host_keys(&self, vm: &VmRef, os: Os) -> Ask<Vec<String>> {
        self.heard(&vm.cloud, self.inner.host_keys(vm, os))
    }

    fn fence(&self, vm: &VmRef, marks: &Marks) -> Ask<VmObservation> {
        self.heard(&vm.cloud, self.inner.fence(vm, marks))
    }

    fn shutdown(&self, vm: &VmRef, limit: Duration) -> Ask<Upid> {
        self.heard(&vm.cloud, self.inner.shutdown(vm, limit))
    }

    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        self.heard(&vm.cloud, self.inner.stop(vm))
    }

    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        self.heard(&vm.cloud, self.inner.destroy(vm))
    }

    fn leftovers(
        &self,
        vm: &VmRef,
        ours: &[String],
        only: Option<&BTreeSet<String>>,
    ) -> Ask<Vec<String>> {
        self.heard(&vm.cloud, self.inner.leftovers(vm, ours, only))
    }

    fn images(&self, cloud: &CloudId, storages: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        self.heard(cloud, self.inner.images(cloud, storages))
    }

    fn remove_image(&self, cloud: &CloudId, image: &ImageObservation) -> Ask<()> {
        self.heard(cloud, self.inner.remove_image(cloud, image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cloud_can_be_blamed_for_is_kept_apart_from_what_it_cannot() {
        let cloud = || Culprit::Cloud(CloudId::new("c"));
        let of = |kind, culprit| blames_cloud(&Fault::new(kind, culprit, "x"));
        let denied = |privilege: Option<&str>| {
            let privilege = privilege.map(str::to_owned);
            of(FaultKind::Denied { privilege, path: None }, cloud())
        };
        assert!(denied(None) && !denied(Some("VM.Clone")));
        assert!(of(FaultKind::Unreachable, Culprit::Guest));
        assert!(of(FaultKind::Contention, cloud()) && of(FaultKind::UnknownOutcome, cloud()));
        assert!(!of(FaultKind::Contention, Culprit::Node(NodeName::new("pve1"))));
        assert!(!of(FaultKind::Locked { lock: "backup".into() }, cloud()));
    }
}
