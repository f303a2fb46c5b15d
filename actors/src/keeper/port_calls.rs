//! Turns a call of a machine's mind into a call of a port.

use std::time::Duration;

use drover_model::container::GuestType;
use drover_model::declared::Installer;
use drover_model::fault::Fault;
use drover_model::id::{CloudId, Upid};
use drover_model::order::TakenSnapshots;
use drover_model::ports::{CloneCall, ConfigureCall, CreateCall, NewDisk, OrderCall, Ports, VmRef};
use drover_model::spec::TemplateSpec;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;

use super::event::{Answer, Call};
use super::mind::Mind;

fn accepted(result: Result<Upid, Fault>) -> Answer {
    Answer::Accepted(result.map(Some))
}

/// The future of a call's answer through this cloud. `None` where the mind knows too little for it.
pub(super) fn make(
    call: Call,
    mind: &Mind,
    cloud: CloudId,
    ports: &Ports,
) -> Option<LocalBoxFuture<'static, Answer>> {
    let pve = &ports.hypervisor;
    let guest = mind.guest();
    let marks = guest.map(|guest| guest.marks.clone());
    let spec = mind.template();
    let vm = || {
        let guest = guest?;
        let (cloud, node, vmid) = (cloud.clone(), guest.node.clone(), guest.marks.vmid);
        Some(VmRef { cloud, node, vmid, guest: GuestType::Vm })
    };
    Some(match call {
        Call::Survey => pve.survey(&cloud, Duration::ZERO).map(Answer::Surveyed).boxed_local(),
        Call::LookAt(vmid, node) => {
            let at = VmRef { cloud, node, vmid, guest: GuestType::Vm };
            pve.look(&at).map(Answer::Looked).boxed_local()
        }
        Call::Locate => pve.locate(&cloud, &spec.sought(), None).map(Answer::Located).boxed_local(),
        Call::Clone if let Some(installer) = mind.installer() => {
            let (_, node) = mind.found()?.clone();
            let Installer { iso, storage, disk_gb, hardware } = installer.clone();
            let disk = NewDisk::InstalledFrom { iso, gib: disk_gb };
            let marks = marks?;
            let call = CreateCall { cloud, node, marks, hardware, disk, storage, spec };
            pve.create(call).map(accepted).boxed_local()
        }
        Call::Clone => {
            let (source, home) = mind.found()?.clone();
            let node = guest?.node.clone();
            let target = Some(node).filter(|node| *node != home);
            let spec = TemplateSpec { source, node: Some(home.clone()), ..spec };
            let call = CloneCall { cloud, node: home, target, marks: marks?, spec };
            pve.clone_vm(call).map(accepted).boxed_local()
        }
        Call::Await(upid, limit) => {
            pve.await_task(&cloud, &upid, limit).map(Answer::TaskEnded).boxed_local()
        }
        Call::Look => pve.look(&vm()?).map(Answer::Looked).boxed_local(),
        Call::Configure => {
            let call = ConfigureCall { vm: vm()?, marks: marks?, spec };
            pve.configure(call).map(Answer::Configured).boxed_local()
        }
        Call::Describe => {
            let marks = marks?;
            let described = pve.describe(&vm()?, &marks.installation, &marks.agent);
            described.map(|view| Answer::Described(view.map(Box::new))).boxed_local()
        }
        Call::Order(work) => {
            let limits = &spec.limits;
            let shutdown = limits.shutdown;
            let call = OrderCall {
                vm: vm()?,
                marks: marks?,
                work,
                order: None,
                // It gives no order about snapshots.
                snapshots: TakenSnapshots::default(),
                repeated: true,
                shutdown,
                limit: limits.operation + shutdown,
            };
            pve.carry_out(call).map(Answer::Carried).boxed_local()
        }
        Call::Fence => {
            let observed = pve.fence(&vm()?, &marks?);
            observed.map(|seen| Answer::Accepted(seen.map(|_| None))).boxed_local()
        }
        Call::Stop => pve.stop(&vm()?).map(accepted).boxed_local(),
        Call::Destroy => pve.destroy(&vm()?).map(accepted).boxed_local(),
        Call::IdTaken => pve.id_taken(&cloud, mind.vmid()?).map(Answer::IdSeen).boxed_local(),
        Call::Leftovers => {
            pve.leftovers(&vm()?, mind.volumes(), None).map(Answer::Leftovers).boxed_local()
        }
    })
}
