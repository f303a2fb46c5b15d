//! Declared machines that adopt a guest: one that was forgotten, one whose name somebody changed, one that
//! was made by hand; and guests of others, which they never take.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_actors::message::{AdoptAsk, HerdCommand, MachineAdopted, Refusal, Target};
use drover_model::id::{AgentId, VmId};
use drover_model::order::Work;
use drover_model::phase::{DeclaredPhase, DriftKind};
use drover_model::record::Body;
use drover_model::tenant::By;
use pve_sim::spec::GuestSpec;

use super::declared::{finish, gitea, guests, is, kept, machines, reload, runs, setup, value};
use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);

/// Asks for the adoption of a guest, which may be named and confirmed, or only looked at.
async fn adopt(
    world: &World,
    vmid: Option<u32>,
    (confirmed, dry_run): (bool, bool),
) -> Result<MachineAdopted, Refusal> {
    let (name, vmid) = ("gitea".to_owned(), vmid.map(VmId));
    world
        .command(|reply| {
            HerdCommand::AdoptMachine(Box::new(AdoptAsk { name, vmid, confirmed, dry_run, reply }))
        })
        .await
}

fn conflict(result: Result<MachineAdopted, Refusal>) -> String {
    match result {
        Err(Refusal::Conflict(text)) => text,
        other => panic!("no conflict: {other:?}"),
    }
}

async fn forget(world: &World) {
    let name = "gitea".to_owned();
    world.command(|reply| HerdCommand::ForgetMachine { name, reply }).await.unwrap();
}

/// A machine that was forgotten and is declared again.
async fn forgotten(keys: &str) -> (World, u32) {
    let (mut world, vmid) = kept(keys).await;
    reload(&mut world, String::new());
    world.until("it is left", |view| is(view, DeclaredPhase::Left)).await;
    forget(&world).await;
    world.until("it is forgotten", |view| gitea(view).is_none()).await;
    reload(&mut world, machines(keys));
    world.until("it is blocked", |view| is(view, DeclaredPhase::Blocked)).await;
    (world, vmid)
}

/// A guest that somebody made by hand, which blocks the machine.
async fn blocked() -> World {
    let mut world = World::new(setup(""));
    let config = [("name", "gitea"), ("cores", "1"), ("memory", "256"), ("description", "by hand")];
    let config: BTreeMap<String, String> =
        config.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let node = "pve1".to_owned();
    let (template, running) = (false, false);
    assert!(world.side.add_guest(&GuestSpec {
        vmid: 300,
        node,
        template,
        running,
        pool: None,
        config
    }));
    world.keep_ground();
    world.start().await;
    world.until("it is blocked", |view| is(view, DeclaredPhase::Blocked)).await;
    world
}

// Invariant: the marks of a guest prove that drover made it for the machine, and nothing is guessed.

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_forgotten_is_adopted_again_by_its_marks() {
    let (mut world, vmid) = forgotten("").await;
    let detail = gitea(world.view()).unwrap().detail;
    assert!(detail.contains("`drover machine adopt gitea` takes it over"), "{detail}");
    let before = world.side.config(vmid);
    let shown = adopt(&world, None, (false, true)).await.unwrap();
    assert_eq!((shown.vmid, shown.proven), (VmId(vmid), true));
    world.pass(10 * MINUTE).await;
    assert!(is(world.view(), DeclaredPhase::Blocked), "a look changes nothing");
    adopt(&world, None, (false, false)).await.unwrap();
    world.until("it is kept", runs).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.side.config(vmid), before, "nothing of it is written");
    assert_eq!((guests(&world), world.resync().await), (vec![vmid], Vec::new()));
    world.restart(MINUTE).await;
    world.until("it is kept after a restart", runs).await;
    let again = conflict(adopt(&world, None, (false, false)).await);
    assert!(again.starts_with("machine `gitea` is kept"), "{again}");
    // From here on it is the machine's guest, also for its end.
    reload(&mut world, machines("onRemoval: DELETE"));
    world.pass(MINUTE).await;
    reload(&mut world, String::new());
    world.until("it is gone", |view| gitea(view).is_none()).await;
    assert_eq!(guests(&world), Vec::<u32>::new());
    finish(world);
}

#[tokio::test(start_paused = true)]
async fn a_guest_whose_name_somebody_changed_is_named_and_adopted_by_its_vmid() {
    let (mut world, vmid) = kept("").await;
    let made_as = value(&world, vmid, "name").unwrap();
    world.side.set_config(vmid, "name", Some("renamed"));
    world.until("it is foreign", |view| is(view, DeclaredPhase::Foreign)).await;
    let detail = gitea(world.view()).unwrap().detail;
    for part in
        ["it is called `renamed`", &format!("--name {made_as}"), "first rename", "machine adopt"]
    {
        let part = part.replace("first rename", "rename or remove guest");
        assert!(detail.contains(&part), "{detail}");
    }
    let refused = conflict(adopt(&world, None, (false, false)).await);
    assert!(refused.contains("name the guest with `--vmid`"), "{refused}");
    let refused = conflict(adopt(&world, Some(vmid), (false, false)).await);
    assert!(refused.contains("cannot prove that guest"), "{refused}");
    adopt(&world, Some(vmid), (true, false)).await.unwrap();
    world.until("it is kept", runs).await;
    let name = value(&world, vmid, "name").unwrap();
    assert!(name.starts_with("gitea-") && name != made_as, "{name}");
    world.pass(10 * MINUTE).await;
    assert_eq!((guests(&world), gitea(world.view()).unwrap().drift), (vec![vmid], Vec::new()));
    assert_eq!(world.journal_state().declared.len(), 1);
    // Its new marks were there a moment before their record, which the judge of all worlds forbids.
    world.judged = true;
}

// Invariant: any other guest is adopted only by its VMID and the operator's word, and only its name and its
// notes change.

#[tokio::test(start_paused = true)]
async fn a_guest_made_by_hand_is_adopted_as_it_is_and_differs() {
    let mut world = blocked().await;
    let refused = conflict(adopt(&world, None, (false, false)).await);
    assert!(refused.contains("no guest carries sound marks"), "{refused}");
    let shown = adopt(&world, Some(300), (false, true)).await.unwrap();
    assert_eq!((&*shown.called, shown.proven), ("gitea", false));
    let before = world.side.config(300).unwrap();
    adopt(&world, Some(300), (true, false)).await.unwrap();
    world.keep_ground();
    world.until("it is kept", |view| is(view, DeclaredPhase::Kept)).await;
    world.pass(10 * MINUTE).await;
    let after = world.side.config(300).unwrap();
    let changed: Vec<&str> = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value))
        .map(|(key, _)| key.as_str())
        .filter(|key| !matches!(*key, "digest"))
        .collect();
    assert_eq!(changed, ["description", "name", "tags"]);
    assert!(after["description"].starts_with("by hand"), "{after:?}");
    let kinds: Vec<DriftKind> =
        gitea(world.view()).unwrap().drift.iter().map(|one| one.kind).collect();
    assert!(kinds.contains(&DriftKind::Power) && kinds.contains(&DriftKind::Size), "{kinds:?}");
    world.judged = true;
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_between_the_marks_and_the_journal_leaves_a_guest_that_its_marks_prove() {
    let mut world = blocked().await;
    world.wire.hold("PUT", "/config", super::world::tally::Hold::Answer);
    let name = "gitea".to_owned();
    let (reply, _answer) = drover_runtime::reply::Reply::channel();
    let ask = AdoptAsk { name, vmid: Some(VmId(300)), confirmed: true, dry_run: false, reply };
    world.send(HerdCommand::AdoptMachine(Box::new(ask)));
    world.until_sprung().await;
    world.restart(MINUTE).await;
    world.until("it is blocked", |view| is(view, DeclaredPhase::Blocked)).await;
    assert_eq!(world.journal_state().declared.len(), 0);
    adopt(&world, None, (false, false)).await.unwrap();
    world.until("it is kept", |view| is(view, DeclaredPhase::Kept)).await;
    world.judged = true;
}

#[tokio::test(start_paused = true)]
async fn an_adoption_is_one_also_where_the_power_goes_once_it_is_durable() {
    let (mut world, vmid) = forgotten("").await;
    world.notes.hold(|body| matches!(body, Body::DeclaredIntended { adopted: true, .. }));
    adopt(&world, None, (false, false)).await.unwrap();
    world.until_sprung().await;
    let before = world.side.config(vmid);
    world.restart(MINUTE).await;
    world.until("it is kept", runs).await;
    world.pass(10 * MINUTE).await;
    assert_eq!(world.side.config(vmid), before, "it is not configured again");
    finish(world);
}

// Invariant: a guest of somebody else is never adopted, whatever the operator says.

#[tokio::test(start_paused = true)]
async fn agents_templates_and_unknown_guests_are_refused() {
    let (world, _) = forgotten("").await;
    let (lease, agent) = world.leased("linux").await;
    let vmid = agent.vmid.unwrap().0;
    let refused = conflict(adopt(&world, Some(vmid), (true, false)).await);
    assert!(refused.contains("it is somebody else's"), "{refused}");
    let refused = conflict(adopt(&world, Some(9000), (true, false)).await);
    assert!(refused.contains("a template image"), "{refused}");
    let unknown = adopt(&world, Some(777), (true, false)).await;
    assert!(matches!(unknown, Err(Refusal::Unknown(_))), "{unknown:?}");
    world.release(&lease).await;
    finish(world);
}

// Invariant: a declared machine takes no orders, and the answer says what it is.

#[tokio::test(start_paused = true)]
async fn an_order_to_a_declared_machine_is_refused_with_what_it_is() {
    let (world, _) = kept("").await;
    for (name, part) in
        [("gitea", "is a declared machine and no agent"), ("nope", "no declared machine")]
    {
        let (target, by) = (Target::Agent(AgentId::new(name)), By::admin("test"));
        let ordered = world
            .command(|reply| HerdCommand::Order { target, work: Work::Stop, key: None, by, reply })
            .await;
        let Err(Refusal::Unknown(text)) = ordered else { panic!("{ordered:?}") };
        assert!(text.contains(part) && text.contains("drover machine list"), "{text}");
    }
    finish(world);
}
