//! What operators say of single agents and templates, over a scripted world.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use tokio::sync::oneshot;

use super::tests::{Bed, t};
use crate::id::AgentId;
use crate::message::{AgentCommand, HerdCommand, Refusal};
use crate::overrides::{Change, OverrideChange, Overrides};
use crate::record::Body;
use crate::testbed::{ask, cloud, herd, on_paused_system, pass, seconds, template};

// Invariant: what an operator sets for one agent is durable before it holds, and is not lost.

async fn limited(bed: &Bed, agent: &str, max_uses: Change) -> Result<Overrides, Refusal> {
    let change = OverrideChange { max_uses, ..OverrideChange::default() };
    let (reply, answer) = oneshot::channel();
    bed.herd.do_send(HerdCommand::Override { agent: AgentId::new(agent), change, reply });
    answer.await.unwrap()
}

#[test]
fn limits_of_one_agent_are_written_then_told_and_others_are_left_alone() {
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
        let told = |agent| {
            let told = bed.on(agent).into_iter();
            told.filter(|command| matches!(command, AgentCommand::Override(_))).count()
        };
        assert_eq!((told(agent), told(agents[1].as_str())), (2, 0));
        assert_eq!(limited(&bed, agent, Change::TakeBack).await, own(None));
        let unknown = Refusal::Unknown("no agent `nobody` lives".into());
        assert_eq!(limited(&bed, "nobody", Change::Set(1)).await, Err(unknown));
    });
}

#[test]
fn of_several_wishes_at_one_moment_the_last_one_holds_as_in_the_journal() {
    on_paused_system(|| async {
        let mut spec = template("c/t", &["x"]);
        spec.minimum = 1;
        let bed = Bed::new(herd(vec![cloud("c", None)], vec![spec]));
        pass(seconds(30)).await;
        let agent = bed.roster.select(|_| true).into_keys().next().unwrap();
        for uses in 1..6 {
            let change = OverrideChange { max_uses: Change::Set(uses), ..Default::default() };
            let (reply, _) = oneshot::channel();
            bed.herd.do_send(HerdCommand::Override { agent: agent.clone(), change, reply });
        }
        pass(seconds(1)).await;
        let told = bed.on(agent.as_str()).into_iter().filter_map(|command| {
            if let AgentCommand::Override(change) = command { Some(change.max_uses) } else { None }
        });
        let sent: Vec<Change> = (1..6).map(Change::Set).collect();
        assert_eq!(told.collect::<Vec<_>>(), sent);
        assert_eq!(bed.roster.get(&agent).unwrap().overrides.max_uses, Some(5));
    });
}

// Invariant: agents that an operator wants are begun at once, within the caps, and stay.

async fn provisioned(bed: &Bed, template: &str, count: u32) -> Result<(usize, String), Refusal> {
    let (reply, answer) = oneshot::channel();
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
        let told = "template `t` is on several clouds: name one of `c/t`, `d/t`";
        assert_eq!(provisioned(&bed, "t", 1).await, Err(Refusal::Conflict(told.into())));
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
        let told: Vec<AgentCommand> =
            bed.world.with(|script| script.told.values().flatten().cloned().collect());
        assert!(!told.contains(&AgentCommand::Withdraw), "{told:?}");
    });
}
