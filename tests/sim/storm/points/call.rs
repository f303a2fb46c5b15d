//! Transitions by the answer of a call: the call is hit, and answered so as soon as it is made
//! again.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use drover_model::fact::What;
use drover_model::id::AgentId;
use drover_model::phase::AgentPhase;

use super::answers::{SILENCE, Way, method, way};
use super::script::{Plan, Prelude, Script, Target, Turn};
use super::table::{Cause, Transition};
use super::{Blow, Stage, aftermath, setup};
use crate::world::World;
use crate::world::tap::Hit;

/// How long a hold lasts: longer than anything is waited for.
const HELD: Duration = Duration::from_secs(7200);
/// How long the service is away after the power went.
const AWAY: Duration = Duration::from_secs(30);
/// How long something that is to come is waited for.
const SOON: Duration = Duration::from_secs(3600);

/// Plays one transition with one blow.
pub async fn play(transition: &Transition, blow: Blow) -> Result<(), String> {
    let Cause::Answered { call, after, nth, answer } = &transition.cause else {
        return Err("not an answer".into());
    };
    let unknown = || format!("no driver reaches this transition: {transition:?}");
    let method_of = method(call).ok_or_else(unknown)?;
    let Way { prelude, faults, turn } =
        way(transition.state, call, after.as_deref(), answer).ok_or_else(unknown)?;
    let before = match after {
        Some(after) => Some(method(after).ok_or_else(unknown)?),
        None => None,
    };
    let target =
        Target::Call { state: transition.state, call: method_of, after: before, nth: *nth };
    let preludes: VecDeque<Prelude> =
        prelude.map(|(call, turn)| Prelude { state: None, call, turn }).into_iter().collect();
    let plan = Plan {
        preludes: preludes.clone(),
        target: target.clone(),
        turns: turns(blow, &turn),
        cut_after: blow == Blow::DoneAndNotJournalled,
        hush: None,
    };
    let natural = answer == "ok";
    let plan = match blow {
        // What succeeds is itself carried out twice.
        Blow::RunTwice if natural => {
            Plan { turns: [Turn { hit: Hit::Twice, ..turn.clone() }].into(), ..plan }
        }
        _ => plan,
    };

    let mut setup = setup(transition);
    // The first question for the address finds the guest up.
    setup.guests.boot = Duration::from_millis(300)..Duration::from_millis(400);
    setup.guests.address_delay = Duration::ZERO..Duration::from_millis(1);
    let mut world = World::started(setup).await;
    // What is wrong is this function's answer.
    world.judged = true;
    world.faults(faults);
    let script = Script::new(&world);
    script.take(&world, plan);
    let lease = world.lease("linux").await;
    if transition.state == AgentPhase::Resetting {
        world.ready(&lease).await;
        world.release(&lease).await;
    }
    if transition.state == AgentPhase::Held {
        world.ready(&lease).await;
        world.release(&lease).await;
        let agent = world.until_state(AgentPhase::Ready).await.agent.clone();
        world.hold(&agent, HELD).await;
    }
    if [AgentPhase::Retiring, AgentPhase::Stranded].contains(&transition.state) {
        world.ready(&lease).await;
        world.release(&lease).await;
        world.reap(true).await;
    }
    world
        .until("the call that is meant is made", |view| {
            let leases = view.leases();
            assert!(!leases.is_empty());
            script.reached()
        })
        .await;
    if blow.cuts() {
        world.until_sprung().await;
        if blow != Blow::NotSent {
            world.pass(SILENCE / 2).await;
        }
        let turns = script.remaining();
        world.crash();
        tokio::time::sleep(AWAY).await;
        // The steps of a guest are run again, so the one that failed fails again.
        let preludes = if call == "Report" { preludes } else { VecDeque::new() };
        let plan = Plan { preludes, target, turns, cut_after: false, hush: None };
        script.take(&world, plan);
        world.start().await;
    } else if blow == Blow::None {
        follow(&world, &script, transition).await?;
    }
    let clones_twice = call == "Clone" && blow == Blow::RunTwice;
    aftermath::settle(Stage { world, lease }, &script, transition, clones_twice).await
}

/// What becomes of the call and of its likes after it.
pub fn turns(blow: Blow, turn: &Turn) -> VecDeque<Turn> {
    let answer = turn.clone();
    match blow {
        Blow::None | Blow::DoneAndNotJournalled => [answer].into(),
        Blow::NotSent | Blow::SentAndLostAndCut => [Turn::blow(Hit::Hold), answer].into(),
        Blow::SentAndLost => [Turn::blow(Hit::Lose { done: false, after: SILENCE }), answer].into(),
        Blow::DoneAndAnswerLost => {
            [Turn::blow(Hit::Lose { done: true, after: SILENCE }), answer].into()
        }
        Blow::DoneAndAnswerLostAndCut => [Turn::blow(Hit::HoldAnswer), answer].into(),
        Blow::RunTwice => [answer, Turn::blow(Hit::Twice)].into(),
    }
}

/// After the answer the agent does what the table says.
async fn follow(world: &World, script: &Script, transition: &Transition) -> Result<(), String> {
    let Some((mark, agent)) = script.answered() else {
        return Err("the answer was never given".into());
    };
    let deadline = tokio::time::Instant::now() + SOON;
    world
        .until("something follows", |view| {
            let gone = !view.agents().iter().any(|seen| seen.agent == agent);
            gone || !script.later().is_empty() || tokio::time::Instant::now() > deadline
        })
        .await;
    // By the first thing that is done after it, the state is the next one.
    let end = script.later().first().map_or(usize::MAX, |later| later.reported);
    let moved = next_state(world, mark..end, &agent, transition.state);
    let moved = moved.unwrap_or(transition.state);
    if moved != transition.target() {
        let tail = world.notes.tail();
        let (later, target) = (script.later(), transition.target());
        return Err(format!("it went to {moved}, not to {target}; then {later:?}\n{tail}"));
    }
    if let Some(then) = transition.outcome.strip_prefix("stay, then ") {
        let next = script.later().into_iter().map(|later| later.call).find(|c| *c != "append");
        let meant = method(then).ok_or_else(|| format!("nobody knows the call {then}"))?;
        if next != Some(meant) {
            return Err(format!("it asked {next:?} next, not {meant}"));
        }
    }
    Ok(())
}

/// The first other state an agent was in between so many facts.
pub fn next_state(
    world: &World,
    facts: Range<usize>,
    agent: &AgentId,
    state: AgentPhase,
) -> Option<AgentPhase> {
    let states = world.notes.facts(|what| {
        Some(match what {
            What::Agent(status) if status.agent == *agent => Some(status.phase),
            What::AgentGone { agent: gone, .. } if gone == agent => Some(AgentPhase::Gone),
            _ => None,
        })
    });
    let span = facts.end.saturating_sub(facts.start);
    states.into_iter().skip(facts.start).take(span).flatten().find(|seen| *seen != state)
}
