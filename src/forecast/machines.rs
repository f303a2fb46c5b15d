//! Machines on clusters that exist in virtual time alone. Each takes its [`Way`]: a clone, a boot and a
//! destroy last as long as the trace measured.
//!
//! The cluster answers at once otherwise. What its calls cost is in the measured lengths already.

mod port;

pub(crate) use port::measured_fault;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use drover_model::id::{CloudId, ClusterId, NodeName, TemplateId, Upid, VmId};
use drover_model::marks::{Marks, Reading};
use drover_model::placement::{
    Fleet, GuestObservation, NodeFigures, NodeObservation, Sizes, StorageObservation,
};
use drover_model::ports::{IdStatus, TaskEnd, VmObservation, VmRef};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ground::Ground;
use crate::guests::Guests;
use crate::ways::{Dealer, Way};

/// A machine of an agent.
struct Machine {
    /// Which of all machines it is: VMIDs come again.
    serial: u32,
    marks: Marks,
    name: String,
    template: TemplateId,
    node: NodeName,
    container: bool,
    sizes: Sizes,
    tags: Vec<String>,
    way: Way,
    address: IpAddr,
    /// Whether it has its address by its configuration.
    fixed: bool,
    running: bool,
    /// When it was started.
    started: Option<Instant>,
    /// From when on it lets drover in: set at the first login.
    open_from: Option<Instant>,
    /// When it is prepared: set at the first step.
    prepared: Option<Instant>,
}

struct Task {
    ends: Instant,
    end: TaskEnd,
    /// The machine that is gone at its end.
    removes: Option<(ClusterId, VmId)>,
}

#[derive(Default)]
struct State {
    machines: BTreeMap<(ClusterId, VmId), Machine>,
    by_serial: BTreeMap<u32, (ClusterId, VmId)>,
    by_address: BTreeMap<IpAddr, u32>,
    tasks: BTreeMap<Upid, Task>,
    serials: u32,
    upids: u64,
}

/// All machines of a replay.
#[derive(Clone)]
pub struct Machines {
    ground: Arc<Ground>,
    dealer: Arc<Mutex<Dealer>>,
    state: Arc<Mutex<State>>,
}

impl Machines {
    /// Clusters without machines.
    pub fn new(ground: Ground, dealer: Dealer) -> Self {
        let (ground, dealer) = (Arc::new(ground), Arc::new(Mutex::new(dealer)));
        Self { ground, dealer, state: Arc::default() }
    }

    fn cluster(&self, cloud: &CloudId) -> ClusterId {
        let known = self.ground.clusters.get(cloud).cloned();
        known.unwrap_or_else(|| ClusterId::new(cloud.as_str()))
    }

    fn key(&self, vm: &VmRef) -> (ClusterId, VmId) {
        (self.cluster(&vm.cloud), vm.vmid)
    }

    /// What is done with a machine; none where there is none.
    fn with<T>(&self, vm: &VmRef, look: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let key = self.key(vm);
        self.state.lock().machines.get_mut(&key).map(look)
    }

    fn with_serial<T>(&self, serial: u32, look: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let key = state.by_serial.get(&serial).cloned()?;
        state.machines.get_mut(&key).map(look)
    }

    /// From when on a machine lets drover in, and whether it ever does.
    pub(crate) fn opens(&self, serial: u32) -> Option<(Instant, Way)> {
        self.with_serial(serial, |machine| {
            let from = machine.open_from.get_or_insert(Instant::now() + machine.way.connecting);
            (*from, machine.way.clone())
        })
    }

    /// When a machine is prepared, and whether it ever is.
    pub(crate) fn prepared(&self, serial: u32) -> Option<(Instant, Way)> {
        self.with_serial(serial, |machine| {
            let at = machine.prepared.get_or_insert(Instant::now() + machine.way.preparing);
            (*at, machine.way.clone())
        })
    }

    /// How long a machine takes to be handed out.
    pub(crate) fn hand_out(&self, serial: u32) -> Duration {
        let template = self.with_serial(serial, |machine| machine.template.clone());
        template.map_or(Duration::ZERO, |template| self.dealer.lock().hand_out(&template))
    }

    /// A task that ends after so long.
    fn task(&self, takes: Duration, end: TaskEnd, removes: Option<(ClusterId, VmId)>) -> Upid {
        let mut state = self.state.lock();
        state.upids += 1;
        let upid = Upid::new(format!("UPID:replay:{}", state.upids));
        let task = Task { ends: Instant::now() + takes, end, removes };
        state.tasks.insert(upid.clone(), task);
        upid
    }

    fn observation(&self, vm: &VmRef) -> VmObservation {
        let found = self.with(vm, |machine| VmObservation {
            id: IdStatus::Taken,
            node: Some(machine.node.clone()),
            marks: Some(Reading::Marked(Box::new(machine.marks.clone()))),
            lock: None,
            running: Some(machine.running),
        });
        let free = VmObservation {
            id: IdStatus::Free,
            node: None,
            marks: None,
            lock: None,
            running: None,
        };
        found.unwrap_or(free)
    }

    fn fleet_of(&self, cluster: &ClusterId) -> Fleet {
        let state = self.state.lock();
        let here = state.machines.iter().filter(|((at, _), _)| at == cluster);
        let guests: BTreeMap<VmId, GuestObservation> = here
            .map(|((_, vmid), machine)| {
                let memory = machine.sizes.memory_mb << 20;
                let guest = GuestObservation {
                    node: machine.node.clone(),
                    running: machine.running,
                    template: false,
                    memory,
                    used: memory,
                    cpus: machine.sizes.cores,
                    busy: 0,
                    disk: machine.sizes.disk_gb << 30,
                    tags: machine.tags.clone(),
                };
                (*vmid, guest)
            })
            .collect();
        let known = self.ground.nodes.get(cluster).into_iter().flatten();
        let nodes = known.map(|(node, hardware)| {
            let on = guests.values().filter(|guest| guest.node == *node && guest.running);
            let used = on.map(|guest| guest.memory).sum();
            let figures = hardware.map(|hardware| NodeFigures {
                cpus: hardware.cpus,
                busy: 0,
                memory: hardware.memory_mib << 20,
                used,
            });
            (node.clone(), NodeObservation { figures, ..NodeObservation::default() })
        });
        let nodes: BTreeMap<_, _> = nodes.collect();
        let storages = nodes.keys().flat_map(|node| {
            self.ground.storages.iter().map(|storage| StorageObservation {
                node: node.clone(),
                name: storage.clone(),
                shared: true,
                kind: "rbd".to_owned(),
                images: true,
                containers: true,
                reached: true,
                space: Some((0, 1 << 60)),
            })
        });
        Fleet::new(nodes.clone(), storages.collect(), guests)
    }
}

/// Addresses by serial, in 10.0.0.0/8.
fn address_of(serial: u32) -> IpAddr {
    Ipv4Addr::from((10 << 24) | (serial & 0x00ff_ffff)).into()
}

/// The address that a machine is configured with.
fn configured_address(ip_config: Option<&str>) -> Option<IpAddr> {
    let parts = ip_config?.split(',');
    let addresses = parts.filter_map(|part| part.strip_prefix("ip=").or(part.strip_prefix("ip6=")));
    addresses.filter_map(|text| text.split('/').next()?.parse().ok()).next()
}

impl Guests for Machines {
    fn at(&self, address: IpAddr) -> Option<u32> {
        let serial = self.state.lock().by_address.get(&address).copied()?;
        self.with_serial(serial, |machine| machine.running)?.then_some(serial)
    }

    fn host_key(&self, serial: u32) -> Option<String> {
        let now = Instant::now();
        let up = |machine: &mut Machine| {
            machine.started.is_some_and(|at| now >= at + machine.way.booting)
        };
        let runs = self.with_serial(serial, |machine| machine.running && up(machine))?;
        runs.then(|| host_key_of(serial))
    }

    fn mac(&self, serial: u32) -> Option<String> {
        Some(mac_of(serial))
    }
}

fn host_key_of(serial: u32) -> String {
    format!("ssh-ed25519 REPLAY{serial} replay")
}

fn mac_of(serial: u32) -> String {
    let [a, b, c, d] = serial.to_be_bytes();
    format!("02:00:{a:02X}:{b:02X}:{c:02X}:{d:02X}")
}
