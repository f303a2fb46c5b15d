//! Suspicion: every answer of Proxmox is checked for what it says of its cloud.
//!
//! A refused login, a lost quorum, a changed certificate or an unreachable endpoint shows in the
//! first call that meets it. The cloud learns of it with that answer and checks its identity at
//! once, long before its next poll.

use std::sync::Arc;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::CloudId;
use drover_model::layer::{Layer, Layered, PortCall, Reply};
use drover_model::ports::{Ask, Ports};

/// Called with a cloud that an answer speaks against, and the fault.
pub type Suspect = Arc<dyn Fn(&CloudId, &Fault) + Send + Sync>;

/// The ports, with every answer of Proxmox checked for what it says of its cloud.
pub fn suspicious(ports: Ports, suspect: Suspect) -> Ports {
    let hypervisor = Layered { layer: Suspicion { suspect }, port: ports.hypervisor };
    Ports { hypervisor: Arc::new(hypervisor), ..ports }
}

struct Suspicion {
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
fn evidence<T: Reply>(cloud: &CloudId, answer: &Result<T, Fault>) -> Option<Fault> {
    let fault = match answer {
        Ok(reply) if reply.lacks_quorum() => {
            let text = "no endpoint with quorum said whether a VMID is free";
            Some(Fault::new(FaultKind::Contention, Culprit::Cloud(cloud.clone()), text))
        }
        Ok(reply) => reply.failure().cloned(),
        Err(fault) => Some(fault.clone()),
    };
    fault.filter(blames_cloud)
}

impl Layer for Suspicion {
    fn ask<T: Reply>(&self, call: PortCall, make: impl Fn() -> Ask<T>) -> Ask<T> {
        let (answer, suspect) = (make(), Arc::clone(&self.suspect));
        let Culprit::Cloud(cloud) = call.culprit else { return answer };
        // The cloud itself asks for its identity and reads the answer.
        if call.name == "identify" {
            return answer;
        }
        Box::pin(async move {
            let answer = answer.await;
            if let Some(fault) = evidence(&cloud, &answer) {
                suspect(&cloud, &fault);
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use drover_model::id::NodeName;

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
