//! Machines of the size that a job or a lease asks for, on the simulated cluster.

use std::time::Duration;

use drover_actors::message::{HerdCommand, Refusal};
use drover_model::id::LeaseId;
use drover_model::phase::AgentPhase;
use drover_model::record::Want;
use drover_model::size::Size;
use drover_model::status::AgentStatus;

use super::world::World;
use super::world::setup::{CI_LOGINS, Setup};

const MINUTE: Duration = Duration::from_secs(60);

/// Two cores and 2 GiB of memory, of which labels make up to 8 and 16 GiB.
const SIZABLE: &str = "cores: 2, memoryMb: 2048, \
                       sizeLabels: {cpu: {max: 8}, memory: {max: 16Gi}, disk: {max: 100}}";

fn sizable(keys: &str) -> Setup {
    Setup::linux(&format!("{SIZABLE}, {keys}"))
}

fn size(cores: Option<u32>, memory_mb: Option<u32>, disk_gb: Option<u32>) -> Size {
    Size { cores, memory_mb, disk_gb }
}

/// Cores, memory and boot disk of an agent's guest, as the cluster has it.
fn guest(world: &World, agent: &AgentStatus) -> [String; 3] {
    let config = world.side.config(agent.vmid.unwrap().0).unwrap();
    let disk = config["scsi0"].split("size=").nth(1).unwrap().to_owned();
    [config["cores"].clone(), config["memory"].clone(), disk]
}

async fn ask(world: &World, want: Want) -> Result<LeaseId, Refusal> {
    let mut ask = world.an_ask("linux", Duration::from_secs(3600));
    ask.want = want;
    world.command(|reply| HerdCommand::Lease { ask, reply }).await
}

async fn leased(world: &World, want: Want) -> (LeaseId, std::sync::Arc<AgentStatus>) {
    let lease = ask(world, want).await.unwrap();
    let agent = world.ready(&lease).await;
    (lease, agent)
}

fn labels(texts: &[&str]) -> Want {
    Want::Labels(texts.iter().map(|text| (*text).to_owned()).collect())
}

// Invariant: the guest has the size that was asked for, by whatever way.

#[tokio::test(start_paused = true)]
async fn a_lease_gets_a_machine_of_its_size() {
    let world = World::started(sizable("instanceCap: 4")).await;
    let (_, plain) = leased(&world, labels(&["linux"])).await;
    let [cores, memory, own_disk] = guest(&world, &plain);
    assert_eq!([cores.as_str(), memory.as_str()], ["2", "2048"]);
    assert_eq!(plain.size, Size::NONE);
    let (_, by_labels) = leased(&world, labels(&["linux", "cpu=8", "memory=16g"])).await;
    assert_eq!(guest(&world, &by_labels), ["8", "16384", own_disk.as_str()]);
    assert_eq!(by_labels.size, size(Some(8), Some(16_384), None));
    let named = Want::Template("linux".into()).of_size(size(Some(4), None, Some(100)));
    let (lease, by_name) = leased(&world, named).await;
    assert_eq!(guest(&world, &by_name), ["4", "2048", "100G"]);
    assert_eq!(
        world.view().lease(&lease).unwrap().wants,
        "template `linux` with 4 cores, 100 GiB of disk"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn jobs_get_machines_of_their_sizes_and_run_once_each() {
    let mut setup = sizable("instanceCap: 4");
    setup.credentials = CI_LOGINS.to_owned();
    let git = "git: {kind: gitea, url: \"https://ci\", credentialsId: ci, labels: [linux]}";
    setup.sections = format!("demand: {{{git}}}\n");
    let world = World::started(setup).await;
    world.ci.push("git", 1, &["linux", "cpu=4"], 10 * MINUTE);
    world.ci.push("git", 1, &["linux", "memory=8g"], 10 * MINUTE);
    let ci = world.ci.clone();
    world.until("both run", |_| ci.running("git") == 2).await;
    let agents = world.view().agents();
    let mut guests: Vec<_> = agents.iter().map(|agent| guest(&world, agent)).collect();
    guests.sort();
    let sizes: Vec<[&str; 2]> =
        guests.iter().map(|[cores, memory, _]| [&**cores, &**memory]).collect();
    assert_eq!(sizes, [["2", "8192"], ["4", "2048"]]);
    world.until("they are over", |_| ci.over("git") == 2 && ci.rows("git") == 0).await;
    assert!(world.ci.jobs("git").iter().all(|job| job.runs == 1));
    world.ci.push("git", 1, &["linux", "cpu=64"], MINUTE);
    world.pass(MINUTE).await;
    assert!(world.view().agents().is_empty(), "nothing is started for what is beyond the limits");
    world.end().await;
}

// Invariant: a size beyond the limits is refused with what would do.

#[tokio::test(start_paused = true)]
async fn a_lease_beyond_the_limits_is_refused_with_the_limits() {
    let world = World::started(sizable("instanceCap: 4")).await;
    let large = Want::Template("linux".into()).of_size(size(None, Some(1 << 20), None));
    let Err(Refusal::Unknown(text)) = ask(&world, large).await else { panic!("it is let in") };
    assert_eq!(
        text,
        "no template serves template `linux` with 1048576 MiB of memory: template `rack/linux` \
         gives 16 to 16384 MiB of memory (`sizeLabels`), not 1048576"
    );
    world.end().await;
}

// Invariant: a restart changes no agent's size, and gives it to nobody else.

#[tokio::test(start_paused = true)]
async fn an_agent_has_its_size_after_a_restart_too() {
    let mut world = World::started(sizable("instanceCap: 4, idleTerminationMinutes: 60")).await;
    let (lease, agent) = leased(&world, labels(&["linux", "cpu=8"])).await;
    world.restart(Duration::from_secs(7)).await;
    world
        .until("it is taken over", |view| {
            let agent = view.agent(&agent.agent);
            agent.is_some_and(|agent| agent.phase == AgentPhase::Leased)
        })
        .await;
    assert_eq!(world.view().agent(&agent.agent).unwrap().size, agent.size);
    world.release(&lease).await;
    let is_idle = |view: &drover_server::view::View| {
        view.agent(&agent.agent).is_some_and(|agent| agent.is_idle())
    };
    world.until("it is free", is_idle).await;
    let (_, other) = leased(&world, labels(&["linux"])).await;
    assert_ne!(other.agent, agent.agent, "a plain lease gets no larger machine");
    let (_, same) = leased(&world, labels(&["linux", "cpu=8"])).await;
    assert_eq!(same.agent, agent.agent);
    assert_eq!(guest(&world, &same)[0], "8");
    world.end().await;
}

// Invariant: the warm pool has the template's own size, whatever else lives.

#[tokio::test(start_paused = true)]
async fn agents_of_a_size_are_no_part_of_the_warm_pool() {
    let world =
        World::started(sizable("instanceCap: 3, idleMin: 1, idleTerminationMinutes: 1")).await;
    let warm = |view: &drover_server::view::View| {
        view.agents().iter().filter(|one| one.is_idle() && one.size.is_none()).count()
    };
    world.until("one is warm", |view| warm(view) == 1).await;
    let (lease, agent) = leased(&world, labels(&["linux", "cpu=8"])).await;
    assert_eq!(warm(world.view()), 1, "it was not taken for the lease");
    world.release(&lease).await;
    world.until("it goes", |view| view.agent(&agent.agent).is_none()).await;
    assert_eq!(warm(world.view()), 1);
    world.end().await;
}

// Invariant: idle agents of one size keep nobody from another.

#[tokio::test(start_paused = true)]
async fn a_full_template_makes_room_for_another_size() {
    let world = World::started(sizable("instanceCap: 1, idleTerminationMinutes: 0")).await;
    let (lease, first) = leased(&world, labels(&["linux", "cpu=8"])).await;
    world.release(&lease).await;
    let (lease, second) = leased(&world, labels(&["linux", "cpu=4"])).await;
    assert!(world.view().agent(&first.agent).is_none());
    assert_eq!(guest(&world, &second)[0], "4");
    world.release(&lease).await;
    let (_, third) = leased(&world, labels(&["linux"])).await;
    assert_eq!(guest(&world, &third)[0], "2");
    world.end().await;
}

// Invariant: a size for which there is no room waits alone, and says why.

#[tokio::test(start_paused = true)]
async fn a_size_without_a_place_does_not_hold_up_other_sizes() {
    let mut setup = sizable("instanceCap: 4");
    setup.cluster.nodes.iter_mut().for_each(|node| node.memory_bytes = 8 << 30);
    let world = World::started(setup).await;
    let large = ask(&world, labels(&["linux", "memory=16g"])).await.unwrap();
    world.pass(MINUTE).await;
    let detail = world.view().lease(&large).unwrap().detail;
    assert!(detail.contains("16384 MiB"), "{detail}");
    let (lease, plain) = leased(&world, labels(&["linux"])).await;
    assert_eq!(guest(&world, &plain)[0], "2");
    world.release(&lease).await;
    world.release(&large).await;
    world.end().await;
}
