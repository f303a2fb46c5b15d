//! A guest's whole life through the port, on the simulated cluster.

use std::sync::Arc;
use std::time::Duration;

use drover_hypervisor::testing::{marks as agent, spec};
use drover_hypervisor::{Proxmox, TASK_POLL_INTERVAL};
use drover_model::container::GuestType;
use drover_model::fault::FaultKind;
use drover_model::id::{CloudId, NodeName, VmId};
use drover_model::marks;
use drover_model::os::Os;
use drover_model::ports::{
    AddressObservation, CloneCall, ConfigureCall, Hypervisor, IdStatus, TaskEnd, VmRef,
};
use drover_model::spec::CloneStrategy;
use drover_model::template_image::Sought;
use proxmox_client::{Connection, Endpoint, Login, Tls};
use pve_sim::api::certificates::Certificates;
use pve_sim::guests::{StubGuests, StubOptions};
use pve_sim::simulation::{Simulation, SimulationOptions};
use pve_sim::spec::{ClusterSpec, PveVersion};

const LIMIT: Duration = Duration::from_secs(600);

fn primary() -> CloudId {
    CloudId::new("primary")
}

/// A port into a fresh cluster of three nodes.
fn cluster(version: PveVersion, login: Option<Login>) -> (Proxmox, Simulation) {
    cluster_of(&ClusterSpec::three_nodes("secret123", "token-secret"), version, login)
}

/// A port into a fresh cluster as described.
fn cluster_of(
    spec: &ClusterSpec,
    version: PveVersion,
    login: Option<Login>,
) -> (Proxmox, Simulation) {
    let token = Login::Token {
        id: format!("root@pam!{}", spec.root_tokens[0].name),
        secret: spec.root_tokens[0].secret.clone().into(),
    };
    let names: Vec<String> = spec.nodes.iter().map(|node| node.name.clone()).collect();
    let options = SimulationOptions { version, ..SimulationOptions::default() };
    let guests = Arc::new(StubGuests::new(StubOptions::default()));
    let simulation = Simulation::new(spec, options, Certificates::fake(1, &names), guests);
    let port = Proxmox::new(None, Arc::new(simulation.dialer()), TASK_POLL_INTERVAL);
    let endpoints = names.iter().map(|name| Endpoint::new(name, 8006)).collect();
    let connection = Connection::new(endpoints, login.unwrap_or(token), Tls::System);
    port.set_cloud(primary(), &connection).unwrap();
    (port, simulation)
}

/// The node of the template.
async fn home(port: &Proxmox) -> NodeName {
    let found = port.locate(&primary(), &Sought::Id(VmId(9000)), None).await.unwrap();
    found.candidates[0].node.clone()
}

async fn finish(port: &Proxmox, upid: &drover_model::id::Upid) {
    let end = port.await_task(&primary(), upid, LIMIT).await.unwrap();
    assert_eq!(end, TaskEnd::Done { warnings: Vec::new() }, "{upid}");
}

// Invariant: the description of a cluster that is shipped as an example is one to clone on.

#[tokio::test(start_paused = true)]
async fn the_example_of_a_cluster_is_cloned_on() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/configs/sim-cluster.yaml");
    let spec: ClusterSpec = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let root_tokens = ClusterSpec::three_nodes("", "token-secret").root_tokens;
    let (port, _simulation) =
        cluster_of(&ClusterSpec { root_tokens, ..spec }, PveVersion::V9_2, None);
    tokio::time::sleep(Duration::from_secs(30)).await; // until the lists mention running guests
    let fleet = port.fleet(&primary()).await.unwrap();
    assert_eq!(fleet.nodes().len(), 2);
    assert!(fleet.guests()[&VmId(9000)].template && fleet.guests()[&VmId(100)].running);
    let node = home(&port).await;
    let mut spec = drover_hypervisor::testing::spec();
    (spec.clone, spec.target_pool, spec.target_storage) = (CloneStrategy::Full, None, None);
    let call = CloneCall { cloud: primary(), node, target: None, marks: agent(), spec };
    finish(&port, &port.clone_vm(call).await.unwrap()).await;
    assert_eq!(port.id_taken(&primary(), VmId(101)).await.unwrap(), IdStatus::Taken);
}

// Invariant: every call of the port does on a cluster what it says, from clone to gone.

async fn live(version: PveVersion, clone: CloneStrategy, login: Option<Login>) {
    let (port, _simulation) = cluster(version, login);
    let observation = port.identify(&primary()).await.unwrap();
    assert!(observation.quorate && observation.nodes.len() == 3, "{observation:?}");
    let node = home(&port).await;
    let mut spec = spec();
    spec.clone = clone;
    spec.target_pool = None;
    spec.target_storage = None;
    spec.ssh.public_key =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB0pWOLUZqVnR7cyPq7c3cKBtF1hpx9IbjrJJw0bsqxW drover"
            .into();
    let call = CloneCall {
        cloud: primary(),
        node: node.clone(),
        target: None,
        marks: agent(),
        spec: spec.clone(),
    };
    assert_eq!(port.id_taken(&primary(), VmId(101)).await.unwrap(), IdStatus::Free);
    finish(&port, &port.clone_vm(call.clone()).await.unwrap()).await;
    assert_eq!(port.id_taken(&primary(), VmId(101)).await.unwrap(), IdStatus::Taken);
    let again = port.clone_vm(call).await.unwrap_err();
    assert_eq!(again.kind, FaultKind::IdTaken, "{again}");
    let vm = VmRef { cloud: primary(), node: node.clone(), vmid: VmId(101), guest: GuestType::Vm };
    let configure = ConfigureCall { vm: vm.clone(), marks: agent(), spec: spec.clone() };
    let configured = port.configure(configure.clone()).await.unwrap();
    assert!(configured.mac.is_some() && !configured.volumes.is_empty(), "{configured:?}");
    assert_eq!(port.configure(configure).await.unwrap(), configured, "configuring twice is fine");
    finish(&port, &port.start(&vm).await.unwrap()).await;
    let mac = configured.mac.as_deref();
    let address = loop {
        match port.address(&vm, mac, &[]).await.unwrap() {
            AddressObservation::At(address) => break address,
            AddressObservation::NotYet(_) => tokio::time::sleep(Duration::from_secs(2)).await,
        }
    };
    assert!(address.is_ipv4());
    assert_eq!(port.host_keys(&vm, Os::Linux).await.unwrap().len(), 1);
    let seen = port.look(&vm).await.unwrap();
    assert_eq!((seen.node.as_ref(), seen.running), (Some(&node), Some(true)));
    assert!(marks::is_ours(&seen.marks.unwrap(), &agent(), VmId(101)));
    let listed = port.survey(&primary(), std::time::Duration::ZERO).await.unwrap();
    let listed = listed.guests.iter().find(|guest| guest.vmid == VmId(101)).unwrap();
    assert_eq!(listed.tags, ["drover", "drover-7k2m9qxw", "team-a"]);
    port.fence(&vm, &agent()).await.unwrap();
    finish(&port, &port.shutdown(&vm, Duration::from_secs(60)).await.unwrap()).await;
    finish(&port, &port.stop(&vm).await.unwrap()).await;
    finish(&port, &port.destroy(&vm).await.unwrap()).await;
    assert_eq!(port.id_taken(&primary(), VmId(101)).await.unwrap(), IdStatus::Free);
    assert!(port.leftovers(&vm, &[], None).await.unwrap().is_empty());
    assert_eq!(port.fence(&vm, &agent()).await.unwrap_err().kind, FaultKind::Gone);
    assert_eq!(port.look(&vm).await.unwrap().id, IdStatus::Free);
}

#[tokio::test(start_paused = true)]
async fn a_linked_clone_lives_and_goes_on_8_4() {
    live(PveVersion::V8_4, CloneStrategy::Linked, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_clone_lives_and_goes_on_9_2() {
    live(PveVersion::V9_2, CloneStrategy::Full, None).await;
}

#[tokio::test(start_paused = true)]
async fn a_ticket_does_as_well_as_a_token() {
    let login = Login::Password { username: "root@pam".into(), secret: "secret123".into() };
    live(PveVersion::V9_2, CloneStrategy::Linked, Some(login)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_secret_is_denied() {
    let login = Login::Token { id: "root@pam!drover".into(), secret: "wrong".into() };
    let (port, _simulation) = cluster(PveVersion::V9_2, Some(login));
    let fault = port.identify(&primary()).await.unwrap_err();
    assert_eq!(fault.kind.label(), "denied", "{fault}");
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_is_not_there_is_gone() {
    let (port, _simulation) = cluster(PveVersion::V8_4, None);
    let vm = VmRef {
        cloud: primary(),
        node: NodeName::new("pve1"),
        vmid: VmId(777),
        guest: GuestType::Vm,
    };
    let node = home(&port).await;
    let vm = VmRef { node, ..vm };
    let upid = port.destroy(&vm).await;
    assert_eq!(upid.unwrap_err().kind, FaultKind::Gone);
    let TaskEnd::Failed(fault) =
        port.await_task(&primary(), &port.start(&vm).await.unwrap(), LIMIT).await.unwrap()
    else {
        panic!("the start did not fail")
    };
    assert_eq!(fault.kind, FaultKind::Gone, "{fault}");
}
