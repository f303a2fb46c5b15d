//! The body under paused time, on a scripted world.

mod world;

use std::time::Duration;

use actix::Addr;
use drover_model::fact::What;
use drover_model::id::{ClusterId, LeaseId};
use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::record::{Body, Reason};
use drover_model::status::Standing;
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::agent::testing::{agent_id, ask, secs, spec};
use crate::agent::{Agent, State};
use crate::message::AgentCommand;
use world::{CLUSTER, Twist, World};

async fn on_world(run: impl AsyncFn(World)) {
    LocalSet::new()
        .run_until(async {
            run(World::new()).await;
        })
        .await;
}

async fn ready(world: &World) -> Addr<Agent> {
    let address = world.start(None);
    sleep(secs(30)).await;
    assert_eq!(world.state(), AgentPhase::Ready);
    address
}

fn lease(key: Option<&str>) -> AgentCommand {
    AgentCommand::Lease { ask: Box::new(ask("l1", key)) }
}

fn end() -> AgentCommand {
    AgentCommand::EndLease { lease: LeaseId::new("l1"), why: "released".into() }
}

// Invariant: the body carries out the mind's effects in their order.

#[tokio::test(start_paused = true)]
async fn a_whole_life_makes_the_calls_of_the_table_and_no_others() {
    on_world(async |world| {
        let address = ready(&world).await;
        address.do_send(lease(Some("ssh-ed25519 USER")));
        sleep(secs(1)).await;
        address.do_send(end());
        sleep(secs(1)).await;
        address.do_send(AgentCommand::Retire(Reason::Asked));
        sleep(secs(10)).await;
        let expected = [
            "clone",
            "await",
            "configure",
            "start",
            "await",
            "address",
            "host_keys",
            "greet",
            "run",
            "run",
            "upload ci.conf",
            "run",
            "admit l1",
            "expel l1",
            "fence",
            "stop",
            "await",
            "destroy",
            "await",
        ];
        assert_eq!(world.calls(), expected);
        assert_eq!(world.boss(), ["lane asked", "lane free", "id 10417 back"]);
        assert_eq!(world.standing(), Standing::Gone);
        assert!(!address.connected(), "the actor ends");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_clone_carries_the_sequence_of_its_intent() {
    on_world(async |world| {
        ready(&world).await;
        let (at, _) = world.written(|body| matches!(body, Body::CloneIntended { .. }));
        assert_eq!(world.cloned_with().seq, at);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_waterfall_of_a_life_sums_to_its_time() {
    on_world(async |world| {
        let started = world.elapsed();
        let address = ready(&world).await;
        address.do_send(AgentCommand::Retire(Reason::Asked));
        sleep(secs(30)).await;
        let (gone, phases) = world.end();
        let sum: u64 = phases.iter().map(|(_, ms)| ms).sum();
        assert_eq!(Duration::from_millis(sum), gone - started);
    })
    .await;
}

// Invariant: nothing runs behind a record before the journal has it.

#[tokio::test(start_paused = true)]
async fn no_clone_is_asked_for_while_the_intent_is_being_written() {
    on_world(async |world| {
        world.journal_takes(secs(5));
        world.start(None);
        sleep(secs(4)).await;
        assert_eq!(world.calls(), Vec::<String>::new());
        sleep(secs(2)).await;
        assert_eq!(world.calls(), ["clone"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_append_is_tried_again_and_the_clone_waits_for_it() {
    on_world(async |world| {
        world.journal_fails(3);
        world.start(None);
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(world.calls(), Vec::<String>::new());
        assert!(world.detail().contains("the journal could not be written"));
        sleep(secs(60)).await;
        assert_eq!(world.state(), AgentPhase::Ready);
        assert_eq!(world.count("clone"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_clone_the_mind_has_given_up_is_never_made() {
    on_world(async |world| {
        world.free();
        world.journal_fails(200);
        world.start(None);
        sleep(secs(1200)).await;
        assert_eq!(world.count("clone"), 0);
        assert_ne!(world.state(), AgentPhase::Cloning);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fenced_agent_sends_nothing_and_ends() {
    on_world(async |world| {
        world.fence();
        let address = world.start(None);
        sleep(secs(60)).await;
        assert_eq!(world.calls(), Vec::<String>::new());
        assert!(!address.connected());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_resting_agent_keeps_its_guest() {
    on_world(async |world| {
        let address = ready(&world).await;
        address.do_send(AgentCommand::Rest);
        sleep(secs(4000)).await;
        assert!(!address.connected());
        assert_eq!(world.count("fence"), 0);
    })
    .await;
}

// Invariant: a panic costs only time. What is durable is all that counts.

#[tokio::test(start_paused = true)]
async fn a_panic_at_any_call_is_survived_with_one_clone() {
    for call in ["clone", "configure", "start", "address", "host_keys", "greet", "run"] {
        on_world(async |world| {
            world.twist(call, Twist::Panic);
            world.start(None);
            sleep(secs(300)).await;
            assert_eq!(world.state(), AgentPhase::Ready, "{call}");
            assert_eq!(world.count("clone"), 1, "{call}");
            assert_eq!(world.restarts(), 1, "{call}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_on_the_way_out_is_survived() {
    for call in ["fence", "stop", "destroy"] {
        on_world(async |world| {
            let address = ready(&world).await;
            world.twist(call, Twist::Panic);
            address.do_send(AgentCommand::Retire(Reason::Asked));
            sleep(secs(300)).await;
            assert_eq!(world.standing(), Standing::Gone, "{call}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_written_while_its_agent_panics_is_known_afterwards() {
    on_world(async |world| {
        let address = ready(&world).await;
        world.journal_takes(secs(2));
        address.do_send(lease(None));
        sleep(Duration::from_millis(500)).await;
        world.twist("now", Twist::Panic);
        address.do_send(AgentCommand::SeenStopped);
        sleep(secs(30)).await;
        assert_eq!(world.restarts(), 1);
        assert_eq!(world.leases(), [LeaseId::new("l1")]);
        assert_eq!(world.standing(), Standing::Busy);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_panics_before_its_intent_gives_its_id_back_and_goes() {
    on_world(async |world| {
        world.clock_panics_at_grant();
        world.start(None);
        sleep(secs(30)).await;
        assert_eq!(world.count("clone"), 0);
        assert_eq!(world.standing(), Standing::Gone);
        assert_eq!(world.boss(), ["lane asked", "id 10417 back", "lane free"]);
    })
    .await;
}

// Invariant: an adopted agent goes on where the journal left it.

#[tokio::test(start_paused = true)]
async fn an_adopted_lease_goes_on_and_ends() {
    on_world(async |world| {
        let address = ready(&world).await;
        address.do_send(lease(None));
        sleep(secs(1)).await;
        address.do_send(AgentCommand::Rest);
        sleep(secs(1)).await;
        let entry = world.entry(&agent_id());
        world.forget_calls();
        let address = world.start(Some((entry, secs(60))));
        sleep(secs(5)).await;
        assert_eq!((world.calls(), world.state()), (vec!["look".to_owned()], AgentPhase::Leased));
        address.do_send(end());
        sleep(secs(5)).await;
        assert_eq!(world.state(), AgentPhase::Ready);
    })
    .await;
}

// Invariant: the status shows what people want to know.

#[tokio::test(start_paused = true)]
async fn the_status_of_a_ready_agent_says_how_to_reach_it() {
    on_world(async |world| {
        ready(&world).await;
        let status = world
            .facts()
            .into_iter()
            .rev()
            .find_map(|what| match what {
                What::Agent(status) => Some(status),
                _ => None,
            })
            .unwrap();
        assert_eq!(status.phase, State::Ready.phase());
        assert_eq!(status.address.as_deref(), Some("10.0.0.5"));
        assert_eq!(status.host_keys, ["ssh-ed25519 HOST"]);
        assert_eq!(status.ssh, Some((22, "ci".to_owned())));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn anyone_who_hears_that_a_lease_is_ready_has_heard_how_to_reach_its_agent() {
    for key in [None, Some("ssh-ed25519 USER")] {
        on_world(async |world| {
            let address = ready(&world).await;
            address.do_send(lease(key));
            sleep(secs(1)).await;
            let facts = world.facts();
            let is_ready =
                |what: &What| matches!(what, What::Lease(it) if it.state == LeasePhase::Ready);
            let at = facts.iter().position(is_ready).unwrap();
            let reachable = facts[..at].iter().any(|what| {
                matches!(what, What::Agent(status) if status.address.is_some()
                    && status.ssh.is_some() && status.leases == [LeaseId::new("l1")])
            });
            assert!(reachable);
        })
        .await;
    }
}

// Invariant: commands that no record contains survive a panic too.

#[tokio::test(start_paused = true)]
async fn a_cancelled_clone_stays_cancelled_over_a_panic() {
    on_world(async |world| {
        world.twist("await", Twist::Panic);
        let address = world.start(None);
        sleep(Duration::from_millis(150)).await;
        address.do_send(AgentCommand::Retire(Reason::Cancelled));
        sleep(secs(60)).await;
        assert_eq!((world.standing(), world.restarts()), (Standing::Gone, 1));
        assert_eq!(world.count("configure"), 0);
    })
    .await;
}

// Invariant: no cluster is called about a guest before it is proven to be the guest's cluster.

#[tokio::test(start_paused = true)]
async fn an_agent_whose_cloud_changed_waits_until_that_said_where_it_leads() {
    on_world(async |world| {
        let cloud = spec().id.cloud;
        let address = ready(&world).await;
        world.ways.configured(&cloud);
        world.forget_calls();
        address.do_send(AgentCommand::Retire(Reason::Idle));
        sleep(secs(30)).await;
        assert_eq!((world.state(), world.calls()), (AgentPhase::Retiring, Vec::new()));
        let wait = format!("waits until cloud `{cloud}` has said to which cluster it leads");
        assert!(world.detail().ends_with(&wait), "{}", world.detail());
        world.ways.leads(&cloud, &ClusterId::new("0000000000000000"));
        sleep(secs(30)).await;
        assert_eq!(world.calls(), Vec::<String>::new(), "that is another cluster");
        world.ways.leads(&cloud, &ClusterId::new(CLUSTER));
        sleep(Duration::from_millis(150)).await;
        assert!(!world.detail().ends_with(&wait), "{}", world.detail());
        sleep(secs(60)).await;
        assert_eq!(world.standing(), Standing::Gone);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_written_by_the_herd_outlives_a_panic() {
    on_world(async |world| {
        let address = ready(&world).await;
        address.do_send(lease(None));
        sleep(secs(1)).await;
        let expires = world.wall() + secs(10_000);
        address.do_send(AgentCommand::LeaseRenewed { lease: LeaseId::new("l1"), expires });
        world.twist("look", Twist::Panic);
        address.do_send(AgentCommand::SeenStopped);
        sleep(secs(5000)).await;
        assert_eq!((world.state(), world.restarts()), (AgentPhase::Leased, 1));
        sleep(secs(6000)).await;
        assert_eq!(world.standing(), Standing::Gone);
    })
    .await;
}
