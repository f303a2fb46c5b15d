//! The machines as the actors' port to Proxmox.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::hardware::Devices;
use drover_model::id::{AgentId, CloudId, ClusterId, Installation, NodeName, Upid, VmId};
use drover_model::image::ImageVersion;
use drover_model::marks::Marks;
use drover_model::order::MachineView;
use drover_model::os::Os;
use drover_model::phase::{AgentPhase, Power};
use drover_model::placement::Fleet;
use drover_model::ports::{
    AddressObservation, Ask, Carried, CloneCall, ClusterObservation, ConfigureCall, Configured,
    CreateCall, EjectCall, FinishCall, Hypervisor, IdStatus, ImageObservation, Listed, OrderCall,
    PullCall, SealCall, Snapped, SnapshotCall, Survey, TaskEnd, VmObservation, VmRef,
};
use drover_model::template_image::{Candidate, Found, Sought};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep, sleep_until};

use crate::ground::REPLAY_STORAGE;

use super::{Machine, Machines, address_of, configured_address, host_key_of, mac_of};

/// How long a question for an address is held back: the port's caller gives up after 180 s.
const HELD_BACK: Duration = Duration::from_secs(60);

fn answer<T: Send + 'static>(value: T) -> Ask<T> {
    std::future::ready(Ok(value)).boxed()
}

fn fails<T: Send + 'static>(kind: FaultKind, text: &str) -> Ask<T> {
    std::future::ready(Err(Fault::new(kind, Culprit::Guest, text))).boxed()
}

fn gone<T: Send + 'static>() -> Ask<T> {
    fails(FaultKind::Gone, "there is no such machine")
}

/// A replay has agents alone: no images are built and no machines declared in it.
fn unknown<T: Send + 'static>() -> Ask<T> {
    fails(FaultKind::Broken, "a replay has no such call")
}

/// A failure as often as the trace has it.
pub(crate) fn measured_fault(phase: AgentPhase) -> Fault {
    let text = format!("{phase} failed, as in the trace");
    Fault::new(FaultKind::Broken, Culprit::Template, text)
}

fn done() -> TaskEnd {
    TaskEnd::Done { warnings: Vec::new() }
}

impl Hypervisor for Machines {
    fn continues(&self, _: &ClusterId, _: &ClusterId) {}

    fn identify(&self, cloud: &CloudId) -> Ask<ClusterObservation> {
        let cluster = self.cluster(cloud);
        let nodes = self.ground.nodes.get(&cluster).into_iter().flat_map(BTreeMap::keys);
        let nodes = nodes.map(|node| (node.clone(), true)).collect();
        let version = "9.2.11".to_owned();
        answer(ClusterObservation { cluster, version, quorate: true, nodes })
    }

    fn survey(&self, cloud: &CloudId, _: Duration) -> Ask<Survey> {
        let cluster = self.cluster(cloud);
        let nodes = self.ground.nodes.get(&cluster).into_iter().flat_map(BTreeMap::keys);
        let nodes = nodes.map(|node| (node.clone(), true)).collect();
        let state = self.state.lock();
        let here = state.machines.iter().filter(|((at, _), _)| *at == cluster);
        let guests = here.map(|((_, vmid), machine)| Listed {
            vmid: *vmid,
            node: machine.node.clone(),
            name: Some(machine.name.clone()),
            tags: machine.tags.clone(),
            lock: None,
            status: if machine.running { "running" } else { "stopped" }.to_owned(),
            template: false,
            container: machine.container,
        });
        answer(Survey { guests: guests.collect(), nodes, quorate: true, age: Duration::ZERO })
    }

    fn locate(&self, cloud: &CloudId, sought: &Sought, _: Option<&[NodeName]>) -> Ask<Found> {
        let image = self.ground.images.get(&(cloud.clone(), sought.clone()));
        let candidates = image.into_iter().flat_map(|image| {
            image.nodes.iter().zip(0..).map(|(node, number)| Candidate {
                vmid: VmId(image.vmid.0 + number),
                node: node.clone(),
                name: image.name.clone(),
                created: Some(1),
                storages: [REPLAY_STORAGE.to_owned()].into(),
                digest: "replay".to_owned(),
                sizes: image.sizes,
            })
        });
        let candidates = candidates.collect();
        let fleet = Arc::new(self.fleet_of(&self.cluster(cloud)));
        answer(Found { candidates, fleet, whole: true })
    }

    fn provide(
        &self,
        cloud: &CloudId,
        template: &drover_model::container::OsTemplate,
        _: &[NodeName],
    ) -> Ask<Found> {
        self.locate(cloud, &Sought::Os(template.clone()), None)
    }

    fn fleet(&self, cloud: &CloudId) -> Ask<Fleet> {
        answer(self.fleet_of(&self.cluster(cloud)))
    }

    /// Every device that is wanted is there: a mapping without figures of its nodes.
    fn devices(&self, _: &CloudId) -> Ask<Devices> {
        answer(self.ground.devices.clone())
    }

    fn look(&self, vm: &VmRef) -> Ask<VmObservation> {
        answer(self.observation(vm))
    }

    fn confirm(&self, vm: &VmRef, _: &Marks, _: &str) -> Ask<VmObservation> {
        answer(self.observation(vm))
    }

    fn id_taken(&self, cloud: &CloudId, vmid: VmId) -> Ask<IdStatus> {
        let taken = self.state.lock().machines.contains_key(&(self.cluster(cloud), vmid));
        answer(if taken { IdStatus::Taken } else { IdStatus::Free })
    }

    fn clone_vm(&self, call: CloneCall) -> Ask<Upid> {
        let way = self.dealer.lock().way(&call.spec.id);
        let takes = way.cloning;
        if way.fails == Some(AgentPhase::Cloning) {
            let end = TaskEnd::Failed(measured_fault(AgentPhase::Cloning));
            return answer(self.task(takes, end, None));
        }
        let key = (self.cluster(&call.cloud), call.marks.vmid);
        let from = call.spec.origin.as_ref().map_or_else(Default::default, |origin| origin.sizes);
        let mut state = self.state.lock();
        state.serials += 1;
        let serial = state.serials;
        let machine = Machine {
            serial,
            name: call.marks.name(&call.spec.name_prefix),
            template: call.spec.id.clone(),
            node: call.target.unwrap_or(call.node),
            container: call.marks.guest.is_container(),
            sizes: from.cloned(&call.spec),
            tags: call.spec.tags.iter().cloned().collect(),
            way,
            address: address_of(serial),
            fixed: false,
            running: false,
            started: None,
            open_from: None,
            prepared: None,
            marks: call.marks,
        };
        state.by_serial.insert(serial, key.clone());
        state.by_address.insert(machine.address, serial);
        state.machines.insert(key, machine);
        drop(state);
        answer(self.task(takes, done(), None))
    }

    fn await_task(&self, _: &CloudId, upid: &Upid, limit: Duration) -> Ask<TaskEnd> {
        let (machines, upid) = (self.clone(), upid.clone());
        async move {
            let ends = machines.state.lock().tasks.get(&upid).map(|task| task.ends);
            let Some(ends) = ends else { return Ok(done()) };
            if ends > Instant::now() + limit {
                sleep(limit).await;
                return Ok(TaskEnd::Unknown("the task runs on".to_owned()));
            }
            sleep_until(ends).await;
            let task = machines.state.lock().tasks.remove(&upid);
            if let Some(key) = task.as_ref().and_then(|task| task.removes.as_ref()) {
                machines.remove(key);
            }
            Ok(task.map_or_else(done, |task| task.end))
        }
        .boxed()
    }

    fn configure(&self, call: ConfigureCall) -> Ask<Configured> {
        let address = configured_address(call.spec.cloud_init.ip_config.as_deref());
        let key = self.key(&call.vm);
        let mut state = self.state.lock();
        let Some(machine) = state.machines.get_mut(&key) else { return gone() };
        let (way, serial) = (machine.way.clone(), machine.serial);
        if let Some(address) = address {
            machine.fixed = true;
            machine.address = address;
            state.by_address.insert(address, serial);
        }
        drop(state);
        async move {
            sleep(way.configuring).await;
            if way.fails == Some(AgentPhase::Configuring) {
                return Err(measured_fault(AgentPhase::Configuring));
            }
            let mac = Some(mac_of(serial));
            Ok(Configured { volumes: Vec::new(), mac, tags_refused: None, image_refused: None })
        }
        .boxed()
    }

    fn snapshot(&self, _: SnapshotCall) -> Ask<Snapped> {
        answer(Snapped::Taken)
    }

    fn rollback(&self, call: SnapshotCall) -> Ask<()> {
        let Some(takes) = self.with(&call.vm, |machine| machine.way.resetting) else {
            return gone();
        };
        sleep(takes).map(Ok).boxed()
    }

    fn start(&self, vm: &VmRef) -> Ask<Upid> {
        let started = self.with(vm, |machine| {
            machine.running = true;
            machine.started = Some(Instant::now());
            // One without questions for its address is up when it was started.
            if machine.fixed { machine.way.booting } else { Duration::ZERO }
        });
        let Some(takes) = started else { return gone() };
        answer(self.task(takes, done(), None))
    }

    fn address(&self, vm: &VmRef, _: Option<&str>, _: &[String]) -> Ask<AddressObservation> {
        let seen = self.with(vm, |machine| {
            let up = machine.started.map(|at| at + machine.way.booting);
            (machine.address, up, machine.way.fails)
        });
        let Some((address, Some(up), failing)) = seen else { return gone() };
        async move {
            if up > Instant::now() + HELD_BACK {
                sleep(HELD_BACK / 2).await;
                return Ok(AddressObservation::NotYet("the guest boots".to_owned()));
            }
            sleep_until(up).await;
            match failing {
                Some(phase @ AgentPhase::Booting) => Err(measured_fault(phase)),
                Some(_) | None => Ok(AddressObservation::At(address)),
            }
        }
        .boxed()
    }

    fn host_keys(&self, vm: &VmRef, _: Os) -> Ask<Vec<String>> {
        match self.with(vm, |machine| machine.serial) {
            Some(serial) => answer(vec![host_key_of(serial)]),
            None => gone(),
        }
    }

    fn fence(&self, vm: &VmRef, _: &Marks) -> Ask<VmObservation> {
        let seen = self.observation(vm);
        if seen.id == IdStatus::Free { gone() } else { answer(seen) }
    }

    fn shutdown(&self, vm: &VmRef, _: Duration) -> Ask<Upid> {
        self.stop(vm)
    }

    fn stop(&self, vm: &VmRef) -> Ask<Upid> {
        match self.with(vm, |machine| machine.running = false) {
            Some(()) => answer(self.task(Duration::ZERO, done(), None)),
            None => gone(),
        }
    }

    /// All that a machine takes to go is here.
    fn destroy(&self, vm: &VmRef) -> Ask<Upid> {
        let Some(takes) = self.with(vm, |machine| machine.way.retiring) else { return gone() };
        answer(self.task(takes, done(), Some(self.key(vm))))
    }

    fn carry_out(&self, _: OrderCall) -> Ask<Carried> {
        answer(Carried {
            power: Power::Running,
            sent: false,
            snapshot_taken: None,
            outcome: Ok(String::new()),
        })
    }

    fn describe(&self, _: &VmRef, _: &Installation, _: &AgentId) -> Ask<MachineView> {
        unknown()
    }

    fn leftovers(&self, _: &VmRef, _: &[String], _: Option<&BTreeSet<String>>) -> Ask<Vec<String>> {
        answer(Vec::new())
    }

    fn images(&self, _: &CloudId, _: &BTreeSet<String>) -> Ask<Vec<ImageObservation>> {
        answer(Vec::new())
    }

    fn remove_image(&self, _: &CloudId, _: &ImageObservation) -> Ask<()> {
        answer(())
    }

    fn pull(&self, _: PullCall) -> Ask<Option<Upid>> {
        unknown()
    }

    fn create(&self, _: CreateCall) -> Ask<Upid> {
        unknown()
    }

    fn eject(&self, _: EjectCall) -> Ask<()> {
        unknown()
    }

    fn finish(&self, _: FinishCall) -> Ask<Option<Upid>> {
        unknown()
    }

    fn shortcomings(&self, _: &VmRef) -> Ask<Vec<String>> {
        answer(Vec::new())
    }

    fn seal(&self, _: SealCall) -> Ask<()> {
        unknown()
    }

    fn image_versions(&self, _: &CloudId, _: &[(NodeName, VmId)]) -> Ask<Vec<ImageVersion>> {
        answer(Vec::new())
    }

    fn linked_volumes(&self, _: &VmRef) -> Ask<Vec<String>> {
        answer(Vec::new())
    }
}

impl Machines {
    fn remove(&self, key: &(ClusterId, VmId)) {
        let mut state = self.state.lock();
        let Some(machine) = state.machines.remove(key) else { return };
        state.by_serial.remove(&machine.serial);
        if state.by_address.get(&machine.address) == Some(&machine.serial) {
            state.by_address.remove(&machine.address);
        }
        state.by_address.remove(&address_of(machine.serial));
    }
}
