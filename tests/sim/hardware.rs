//! Virtual hardware of templates: what clones get, and devices of nodes, which are shared out.

use std::time::Duration;

use drover_actors::message::HerdCommand;
use drover_hypervisor::Client;
use drover_model::id::{CloudId, NodeName};
use drover_model::phase::{AgentPhase, BreakerPhase};
use proxmox_client::transport::Method;

use super::world::World;
use super::world::setup::Setup;

const MINUTE: Duration = Duration::from_secs(60);

/// Makes the resource mapping `pci/gpu`: two devices on pve1, one on pve2.
async fn map_devices(world: &World) {
    let checked = world.setup.checked();
    let rack = CloudId::new("rack");
    let client = Client::new(rack.clone(), &checked.connections[&rack], &world.dialer()).unwrap();
    let items = [
        "node=pve1,path=0000:00:01.0,id=1af4:1042",
        "node=pve1,path=0000:00:02.0,id=1af4:1041",
        "node=pve2,path=0000:00:01.0,id=1af4:1042",
    ];
    let params = items.map(|item| ("map".to_owned(), item.to_owned()));
    let params = [("id".to_owned(), "gpu".to_owned())].into_iter().chain(params).collect();
    let _: serde_json::Value =
        client.write(Method::Post, "/cluster/mapping/pci", params).await.unwrap();
}

fn with_gpu(keys: &str) -> Setup {
    let hardware = "hardware: {pciDevices: [gpu], disks: [{storage: local-lvm, sizeGb: 3}]}";
    Setup::linux(&format!("templateName: debian-12, nodes: [\"*\"], {hardware}, {keys}"))
}

/// How many agents are ready.
fn ready(world: &World) -> usize {
    world.view().agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count()
}

// Invariant: an agent that needs a device waits for a free one, and no start fails for want of one.

#[tokio::test(start_paused = true)]
async fn agents_wait_for_a_free_device_crash_or_not() {
    let mut world = World::new(with_gpu("instanceMin: 5, instanceCap: 5"));
    map_devices(&world).await;
    world.start().await;
    world
        .until("as many as there are devices are ready", |view| {
            view.agents().iter().filter(|agent| agent.phase == AgentPhase::Ready).count() == 3
        })
        .await;
    world.pass(5 * MINUTE).await;
    world.restart(MINUTE).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(ready(&world), 3);
    let template = &world.view().templates()[0];
    let paused = template.paused.clone().unwrap_or_default();
    assert!(paused.contains("devices of the resource mapping `pci/gpu` are in use"), "{paused}");
    assert_eq!(template.breaker, BreakerPhase::Closed);
    let why =
        world.command(|reply| HerdCommand::Why { template: "linux".into(), reply }).await.unwrap();
    for node in ["pve1", "pve2"] {
        let of_node = |(name, _): &&(NodeName, Option<String>)| name.as_str() == node;
        let text = why.nodes.iter().find(of_node).and_then(|(_, text)| text.clone());
        let text = text.unwrap_or_default();
        assert!(text.contains("`pci/gpu` are in use"), "{node}: {text}");
    }
    // An agent that goes leaves its device to the next.
    let gone = world.view().agents()[0].agent.clone();
    world.reap(true).await;
    world.pass(5 * MINUTE).await;
    assert_eq!(ready(&world), 3);
    assert!(world.view().agents().iter().all(|agent| agent.agent != gone));
    world.end().await;
}

// Invariant: a clone has the hardware that its template names, once, whatever crashed meanwhile.

#[tokio::test(start_paused = true)]
async fn a_clone_has_each_disk_once() {
    let mut world = World::new(with_gpu("instanceMin: 1, instanceCap: 1"));
    map_devices(&world).await;
    world.start().await;
    world.until_state(AgentPhase::Configuring).await;
    world.restart(Duration::from_secs(3)).await;
    let agent = world.until_state(AgentPhase::Ready).await;
    let config = world.side.config(agent.vmid.unwrap().0).unwrap();
    let disks: Vec<&String> =
        config.values().filter(|value| value.contains("serial=drover-disk-1")).collect();
    assert_eq!(disks.len(), 1, "{config:?}");
    assert!(disks[0].contains("size=3G"), "{disks:?}");
    assert_eq!(config["hostpci0"], "mapping=gpu");
    world.end().await;
}
