//! What operators say of single agents and templates, over a scripted world.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use drover_model::id::AgentId;
use drover_model::journal_state::JournalState;
use drover_model::overrides::{Change, OverrideChange, Overrides};
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, Hold, Reason};
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use super::{Bed, t};
use crate::hold_next::HoldNext;
use crate::message::{AgentCommand, HerdCommand, Refusal};
use crate::shared::{Shared, role};
use crate::testing::{World, ask, cloud, entry, herd, on_paused_system, pass, seconds, template};

async fn with_one_agent() -> (Bed, AgentId) {
    let mut spec = template("c/t", &["x"]);
    spec.minimum = 1;
    let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
    pass(seconds(30)).await;
    let agent = bed.roster.select(|_| true).into_keys().next().unwrap();
    (bed, agent)
}

// Invariant: what an operator sets for one agent is durable before it holds, and is not lost.

async fn limited(bed: &Bed, agent: &str, max_uses: Change) -> Result<Overrides, Refusal> {
    let change = OverrideChange { max_uses, ..OverrideChange::default() };
    let (reply, answer) = Reply::channel();
    bed.herd.do_send(HerdCommand::Override { agent: AgentId::new(agent), change, reply });
    answer.await.unwrap()
}

#[test]
fn limits_of_one_agent_are_written_then_reported_and_others_are_left_alone() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &["x"]);
        spec.minimum = 2;
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
        pass(seconds(30)).await;
        let agents: Vec<AgentId> = bed.roster.select(|_| true).into_keys().collect();
        let agent = agents[0].as_str();
        let own = |max_uses| Ok(Overrides { max_uses, ..Overrides::default() });
        assert_eq!(limited(&bed, agent, Change::Set(3)).await, own(Some(3)));
        assert_eq!(limited(&bed, agent, Change::Set(4)).await, own(Some(4)));
        let written = bed.world.with(|script| {
            let set = |body: &&Body| matches!(body, Body::OverrideSet { .. });
            script.bodies.iter().filter(set).count()
        });
        assert_eq!(written, 2);
        pass(seconds(1)).await;
        let reported = |agent| {
            let reported = bed.on(agent).into_iter();
            reported.filter(|command| matches!(command, AgentCommand::Override(_))).count()
        };
        assert_eq!((reported(agent), reported(agents[1].as_str())), (2, 0));
        assert_eq!(limited(&bed, agent, Change::TakeBack).await, own(None));
        let unknown = Refusal::Unknown("no agent `nobody` lives".into());
        assert_eq!(limited(&bed, "nobody", Change::Set(1)).await, Err(unknown));
    });
}

#[test]
fn of_several_requests_at_one_moment_the_last_one_holds_as_in_the_journal() {
    on_paused_system(|| async {
        let (bed, agent) = with_one_agent().await;
        for uses in 1..6 {
            let change = OverrideChange { max_uses: Change::Set(uses), ..Default::default() };
            let (reply, _) = Reply::channel();
            bed.herd.do_send(HerdCommand::Override { agent: agent.clone(), change, reply });
        }
        pass(seconds(1)).await;
        let reported = bed.on(agent.as_str()).into_iter().filter_map(|command| {
            if let AgentCommand::Override(change) = command { Some(change.max_uses) } else { None }
        });
        let sent: Vec<Change> = (1..6).map(Change::Set).collect();
        assert_eq!(reported.collect::<Vec<_>>(), sent);
        assert_eq!(bed.roster.get(&agent).unwrap().overrides.max_uses, Some(5));
    });
}

// Invariant: agents that an operator wants are started at once, within the caps, and stay.

async fn provisioned(bed: &Bed, template: &str, count: u32) -> Result<(usize, String), Refusal> {
    let (reply, answer) = Reply::channel();
    bed.herd.do_send(HerdCommand::Provision {
        template: template.into(),
        count,
        trial: false,
        reply,
    });
    let done = answer.await.unwrap()?;
    Ok((done.agents.len(), done.short.unwrap_or_default()))
}

#[test]
fn an_operators_agents_fill_the_templates_cap_and_then_the_clouds() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &["x"]);
        spec.cap = Some(2);
        let templates = vec![spec, template("c/u", &["x"])];
        let bed = Bed::new(herd(vec![cloud("c", Some(5))], templates));
        pass(seconds(1)).await;
        assert_eq!(provisioned(&bed, "t", 1).await, Ok((1, String::new())));
        assert_eq!(provisioned(&bed, "t", 4).await, Ok((1, "c/t is full: 2 of 2".into())));
        assert_eq!(provisioned(&bed, "c/u", 4).await, Ok((3, "cloud c is full: 5 of 5".into())));
        assert_eq!(provisioned(&bed, "u", 1).await, Ok((0, "cloud c is full: 5 of 5".into())));
        let unknown = Refusal::Unknown("no template is called `v`".into());
        assert_eq!(provisioned(&bed, "v", 1).await, Err(unknown));
        pass(seconds(60)).await;
        assert_eq!(bed.states(), "c/t Ready, c/t Ready, c/u Ready, c/u Ready, c/u Ready");
    });
}

#[test]
fn a_name_on_several_clouds_is_not_guessed() {
    on_paused_system(|| async {
        let templates = vec![template("c/t", &["x"]), template("d/t", &["x"])];
        let bed = Bed::new(herd(vec![cloud("c", None), cloud("d", None)], templates));
        let reported = "several templates are called `t`: name one of `c/t`, `d/t`";
        assert_eq!(provisioned(&bed, "t", 1).await, Err(Refusal::Conflict(reported.into())));
        assert_eq!(bed.born(), 0);
    });
}

#[test]
fn a_lease_that_is_given_up_takes_no_agent_back_that_an_operator_wanted() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &["x"])]));
        pass(seconds(1)).await;
        bed.world.with(|script| script.never_ready = true);
        assert_eq!(provisioned(&bed, "t", 1).await, Ok((1, String::new())));
        bed.lease(ask("l1", t(), 0)).await.unwrap();
        bed.release("l1").await.unwrap();
        let reported: Vec<AgentCommand> =
            bed.world.with(|script| script.reported.values().flatten().cloned().collect());
        assert!(!reported.contains(&AgentCommand::Withdraw), "{reported:?}");
    });
}

// Invariant: a hold is changed and ended by who asked for it, its group and admins alone.

fn by(principal: &str, group: Option<&str>) -> By {
    By { principal: principal.into(), group: group.map(str::to_owned), all: false }
}

fn of_key(key: &str) -> Hold {
    Hold { span_ms: 3_600_000, public_key: key.into(), owner: None }
}

/// Lets somebody hold an agent, or none; says whether it is refused as another's.
async fn forbidden(bed: &Bed, agent: &AgentId, hold: Option<&str>, by: &By) -> bool {
    let hold = hold.map(|key| Box::new(of_key(key)));
    let (reply, answer) = Reply::channel();
    bed.herd.do_send(HerdCommand::Hold { agent: agent.clone(), hold, by: by.clone(), reply });
    let answer = answer.await.unwrap();
    assert!(matches!(answer, Ok(()) | Err(Refusal::Forbidden(_))), "{answer:?}");
    answer.is_err()
}

async fn retiring_is_forbidden(bed: &Bed, agent: &AgentId, by: &By) -> bool {
    let (agent, by, (reply, answer)) = (agent.clone(), by.clone(), Reply::channel());
    bed.herd.do_send(HerdCommand::Retire { agent, reason: Reason::Asked, by, reply });
    matches!(answer.await.unwrap(), Err(Refusal::Forbidden(_)))
}

/// The keys of the holds that an agent knows.
fn let_in(bed: &Bed, agent: &AgentId) -> Vec<String> {
    let reported = bed.on(agent.as_str()).into_iter();
    let keys = reported.filter_map(|command| {
        let AgentCommand::Hold(hold) = command else { return None };
        Some(hold.map(|hold| hold.public_key).unwrap_or_default())
    });
    keys.collect()
}

#[test]
fn a_held_agent_is_neither_taken_over_nor_released_nor_retired_by_another_tenant() {
    on_paused_system(|| async {
        let (bed, agent) = with_one_agent().await;
        let (ann, mate) = (by("ann", Some("build")), by("bob", Some("build")));
        assert!(!forbidden(&bed, &agent, Some("ann's"), &ann).await);
        pass(seconds(1)).await;
        assert_eq!(bed.roster.get(&agent).unwrap().status.phase, AgentPhase::Held);
        for foreign in [by("eve", None), by("eve", Some("test"))] {
            assert!(forbidden(&bed, &agent, Some("eve's"), &foreign).await, "{foreign:?}");
            assert!(forbidden(&bed, &agent, None, &foreign).await, "{foreign:?}");
            assert!(retiring_is_forbidden(&bed, &agent, &foreign).await, "{foreign:?}");
        }
        for theirs in [&ann, &mate, &By::admin("root")] {
            assert!(!forbidden(&bed, &agent, Some(&theirs.principal), theirs).await, "{theirs:?}");
        }
        assert!(forbidden(&bed, &agent, None, &ann).await, "an admin took it over");
        assert!(!forbidden(&bed, &agent, None, &By::admin("root")).await);
        assert_eq!(let_in(&bed, &agent), ["ann's", "ann", "bob", "root", ""]);
        let written = bed.world.with(|script| {
            let owner = |body: &Body| {
                let Body::HoldSet { hold, .. } = body else { return None };
                hold.as_ref()?.owner.clone()
            };
            script.bodies.iter().filter_map(owner).collect::<Vec<_>>()
        });
        let owners = [&ann, &ann, &mate, &By::admin("root")].map(By::owner);
        assert_eq!(written, owners);
    });
}

#[test]
fn of_two_holds_at_one_moment_the_first_ones_owner_has_it() {
    on_paused_system(|| async {
        let (bed, agent) = with_one_agent().await;
        let (ann, eve) = (by("ann", None), by("eve", None));
        let both = (
            forbidden(&bed, &agent, Some("ann's"), &ann),
            forbidden(&bed, &agent, Some("eve's"), &eve),
        );
        assert_eq!(tokio::join!(both.0, both.1), (false, true));
        pass(seconds(1)).await;
        assert_eq!(let_in(&bed, &agent), ["ann's"]);
    });
}

#[test]
fn a_hold_is_its_owners_after_a_start_and_the_admins_where_the_journal_says_none() {
    on_paused_system(|| async {
        let (ann, eve) = (by("ann", None), by("eve", None));
        for owner in [Some(ann.owner()), None] {
            let mut journal_state = JournalState::default();
            let mut held = entry("a1", 101, template("c/t", &["x"]), AgentPhase::Held);
            held.commands.hold = Some(Hold { owner: owner.clone(), ..of_key("ann's") });
            let agent = AgentId::new("a1");
            journal_state.agents.insert(agent.clone(), held);
            let spec = herd(vec![cloud("c", None)], vec![template("c/t", &["x"])]);
            let bed = Bed::start(World::new(&["c"]), spec, journal_state);
            pass(seconds(30)).await;
            assert!(forbidden(&bed, &agent, Some("eve's"), &eve).await, "{owner:?}");
            assert!(retiring_is_forbidden(&bed, &agent, &eve).await, "{owner:?}");
            let kept = forbidden(&bed, &agent, Some("ann's"), &ann).await;
            assert_eq!(kept, owner.is_none());
            assert!(!forbidden(&bed, &agent, Some("root's"), &By::admin("root")).await);
        }
    });
}

/// Lets somebody hold the next failure of a template, or none; says whether it is refused as another's.
async fn next_forbidden(bed: &Bed, hold: Option<&str>, by: &By) -> bool {
    let hold = hold.map(|key| Box::new(of_key(key)));
    let (reply, answer) = Reply::channel();
    bed.herd.do_send(HerdCommand::HoldNext { template: "t".into(), hold, by: by.clone(), reply });
    let answer = answer.await.unwrap();
    assert!(matches!(answer, Ok(_) | Err(Refusal::Forbidden(_))), "{answer:?}");
    answer.is_err()
}

#[test]
fn a_hold_on_the_next_failure_is_neither_replaced_nor_taken_back_by_another_tenant() {
    on_paused_system(|| async {
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![template("c/t", &["x"])]));
        let (ann, mate, eve) =
            (by("ann", Some("build")), by("bob", Some("build")), by("eve", None));
        let both =
            (next_forbidden(&bed, Some("ann's"), &ann), next_forbidden(&bed, Some("eve's"), &eve));
        assert_eq!(tokio::join!(both.0, both.1), (false, true));
        assert!(next_forbidden(&bed, None, &eve).await);
        assert!(!next_forbidden(&bed, Some("bob's"), &mate).await);
        assert!(!next_forbidden(&bed, None, &By::admin("root")).await);
        assert!(!next_forbidden(&bed, Some("eve's"), &eve).await);
    });
}

#[test]
fn the_hold_of_a_next_failure_is_whose_it_was_before() {
    let holds = Shared::<HoldNext, role::Agent>::default();
    let (template, agent) = (template("c/t", &[]).id, AgentId::new("a1"));
    let hold = Hold { owner: Some(by("ann", None).owner()), ..of_key("ann's") };
    holds.playing::<role::Herd>().set(&template, Some(hold.clone()));
    holds.take(&template, &agent);
    assert_eq!((holds.of(&template), holds.on(&agent)), (None, Some(hold)));
}
