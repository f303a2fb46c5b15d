//! Transitions by a command or a deadline: what the state waits for never comes, then the command comes; the
//! next call or record is hit.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::AgentCommand;
use drover_model::id::{ClusterId, LeaseId, NodeName};
use drover_model::overrides::{Change, OverrideChange};
use drover_model::phase::AgentPhase;
use drover_model::record::{Body, Reason};
use drover_model::status::AgentStatus;

use super::answers::{SILENCE, fault};
use super::call::next_state;
use super::script::{Deed, Plan, Prelude, Script, Target, Turn, living};
use super::table::{Cause, Transition};
use super::{Blow, Stage, aftermath, setup};
use crate::world::World;
use crate::world::tap::Hit;

/// How long a hold lasts.
const HELD: Duration = Duration::from_secs(1200);
/// How long the service is away after the power went.
const AWAY: Duration = Duration::from_secs(30);
/// The call to hit comes within this time or not at all.
const SOON: Duration = Duration::from_secs(600);
/// A deadline that nobody sees passes within this time.
const DEADLINE: Duration = Duration::from_secs(1800);

/// Whether nothing follows.
pub fn is_idle(transition: &Transition) -> bool {
    transition.stays() && !transition.outcome.contains("then")
}

/// Plays one transition with one blow.
pub async fn play(transition: &Transition, blow: Blow) -> Result<(), String> {
    let Cause::Reported(what) = &transition.cause else { return Err("an answer".into()) };
    let mut world = World::started(setup(transition)).await;
    // What is wrong is this function's answer.
    world.judged = true;
    let script = Script::new(&world);
    let stage = Reported { world: &world, script: &script, state: transition.state, what };
    let lease = stage.go().await?;
    let lease = match (transition.state, what.as_str()) {
        // Here the event lies in the past: the blow was planned before it.
        (AgentPhase::Queued, "Granted" | "NotGranted") => {
            script.take(&world, stage.plan(blow));
            world.lease("linux").await
        }
        _ => stage.happen(blow, transition, lease).await?,
    };
    if is_idle(transition) || blow.cuts() {
        if !is_idle(transition) {
            let end = tokio::time::Instant::now() + SOON;
            world
                .until("the trap springs", |_| {
                    world.wire.sprung() || tokio::time::Instant::now() > end
                })
                .await;
        }
        script.rest(&world);
        if blow != Blow::NotSent {
            world.pass(SILENCE / 2).await;
        }
        world.crash();
        tokio::time::sleep(AWAY).await;
        world.start().await;
    }
    let twice = blow == Blow::RunTwice;
    aftermath::settle(Stage { world, lease }, &script, transition, twice).await
}

/// What becomes of the next call, or of the next record.
fn next(blow: Blow) -> (Target, VecDeque<Turn>) {
    let (target, hit) = match blow {
        Blow::None => return (Target::Anything, VecDeque::new()),
        Blow::NotSent => (Target::Anything, Hit::Hold),
        Blow::DoneAndAnswerLostAndCut => (Target::Anything, Hit::HoldAnswer),
        Blow::SentAndLostAndCut => (Target::AnyCall, Hit::Hold),
        Blow::SentAndLost => (Target::AnyCall, Hit::Lose { done: false, after: SILENCE }),
        Blow::DoneAndAnswerLost => (Target::AnyCall, Hit::Lose { done: true, after: SILENCE }),
        Blow::DoneAndNotJournalled => (Target::AnyCall, Hit::Pass),
        Blow::RunTwice => (Target::AnyCall, Hit::Twice),
    };
    (target, [Turn::blow(hit)].into())
}

fn preludes(one: Option<(&'static str, Turn)>) -> VecDeque<Prelude> {
    one.into_iter().map(|(call, turn)| Prelude { state: None, call, turn }).collect()
}

struct Reported<'a> {
    world: &'a World,
    script: &'a Script,
    state: AgentPhase,
    what: &'a str,
}

impl Reported<'_> {
    fn plan(&self, blow: Blow) -> Plan {
        let (target, turns) = next(blow);
        let prelude = match (self.state, self.what) {
            (AgentPhase::Queued, "NotGranted") => {
                let fault = fault("Capacity").expect("a fault");
                Some(("locate", Turn::blow(Hit::Fail(fault))))
            }
            _ => None,
        };
        let cut_after = blow == Blow::DoneAndNotJournalled;
        let hush = (self.what == "deadline").then_some(self.state);
        Plan { preludes: preludes(prelude), target, turns, cut_after, hush }
    }

    /// Brings an agent into the state, where it waits for what never comes.
    async fn go(&self) -> Result<LeaseId, String> {
        let world = self.world;
        let never = |done| Hit::Lose { done, after: Duration::from_secs(86_400) };
        let lose = Hit::Lose { done: true, after: SILENCE };
        let deface = Turn { deed: Deed::Deface, ..Turn::blow(Hit::Pass) };
        let prelude = match (self.state, self.what) {
            (AgentPhase::Queued, "Granted" | "NotGranted") => return Ok(LeaseId::new("")),
            (AgentPhase::Queued, "deadline") => Some(("locate", Turn::blow(never(false)))),
            (AgentPhase::Queued, _) => {
                Some(("locate", Turn::blow(Hit::Lose { done: false, after: SILENCE })))
            }
            (AgentPhase::InDoubt, _) => Some(("clone_vm", Turn::blow(lose))),
            (AgentPhase::Stranded, _) => Some(("fence", deface)),
            _ => None,
        };
        let plan = Plan {
            preludes: preludes(prelude),
            target: Target::Anything,
            turns: VecDeque::new(),
            cut_after: false,
            // The calls of a lease are none of the state's.
            hush: Some(self.state).filter(|state| *state != AgentPhase::Leased),
        };
        self.script.take(world, plan);
        let lease = world.lease("linux").await;
        match self.state {
            AgentPhase::Queued
            | AgentPhase::Cloning
            | AgentPhase::InDoubt
            | AgentPhase::Configuring
            | AgentPhase::Booting
            | AgentPhase::Connecting
            | AgentPhase::Preparing => {}
            AgentPhase::Ready | AgentPhase::Resetting => {
                world.ready(&lease).await;
                world.release(&lease).await;
            }
            AgentPhase::Held => {
                world.ready(&lease).await;
                world.release(&lease).await;
                let agent = world.until_state(AgentPhase::Ready).await.agent.clone();
                world.hold(&agent, HELD).await;
            }
            AgentPhase::Leased | AgentPhase::Draining => {
                world.ready(&lease).await;
                if self.state == AgentPhase::Draining {
                    let agent = world.view().lease(&lease).and_then(|seen| seen.agent);
                    let agent = agent.ok_or("the lease has an agent")?;
                    world.address(&agent).do_send(AgentCommand::Drain(Reason::Asked));
                }
            }
            AgentPhase::Retiring | AgentPhase::Stranded | AgentPhase::Gone => {
                world.ready(&lease).await;
                world.release(&lease).await;
                world.until_state(AgentPhase::Ready).await;
                if self.state == AgentPhase::Gone {
                    self.hold_at_the_end();
                }
                return Ok(lease);
            }
        }
        world.until_state(self.state).await;
        Ok(lease)
    }

    /// The record of its end is held, so that the agent is gone and not yet over.
    fn hold_at_the_end(&self) {
        self.world.tap.watch(|knock| {
            let end = knock.records.iter().any(|body| matches!(body, Body::Gone { .. }));
            if end { Hit::Hold } else { Hit::Pass }
        });
    }

    fn agent(&self) -> Arc<AgentStatus> {
        let living = living(&self.world.notes);
        let here = living.values().find(|status| status.phase == self.state);
        here.or_else(|| living.values().next()).cloned().expect("an agent")
    }

    /// Makes it happen, with what comes next under watch; gives the lease to serve.
    async fn happen(
        &self,
        blow: Blow,
        transition: &Transition,
        lease: LeaseId,
    ) -> Result<LeaseId, String> {
        let world = self.world;
        let before = self.agent();
        let address = world.address(&before.agent);
        match self.state {
            AgentPhase::Retiring | AgentPhase::Stranded => {
                world.reap(true).await;
                world.until_state(self.state).await;
            }
            AgentPhase::Gone => {
                world.reap(true).await;
                world.until_sprung().await;
            }
            _ => {}
        }
        let agent = if self.state == AgentPhase::Gone { before } else { self.agent() };
        let idle = is_idle(transition);
        if !idle {
            self.script.take(world, self.plan(blow));
        }
        self.script.mark(agent.agent.clone());
        let mark = world.notes.facts(|_| Some(())).len();
        let lease = self.event(&agent, &address, lease).await?;
        let wait = if self.what == "deadline" { DEADLINE } else { Duration::from_millis(1) };
        if idle {
            world.pass(wait).await;
            let moved = next_state(world, mark..usize::MAX, &agent.agent, self.state);
            if let Some(moved) = moved {
                return Err(format!("it went to {moved}"));
            }
            if self.what == "deadline" && world.view().alarms().is_empty() {
                return Err("nobody heard".into());
            }
        } else if blow == Blow::None {
            self.follow(mark, &agent, transition).await?;
        }
        Ok(lease)
    }

    async fn event(
        &self,
        agent: &AgentStatus,
        address: &actix::Recipient<AgentCommand>,
        lease: LeaseId,
    ) -> Result<LeaseId, String> {
        let world = self.world;
        let vmid = agent.vmid.map(|vmid| vmid.0);
        let no_fault = || "no such fault".to_owned();
        let command = match (self.what, self.state) {
            ("Lease", AgentPhase::Ready) => return Ok(world.lease("linux").await),
            ("EndLease", AgentPhase::Leased | AgentPhase::Draining) => {
                drop(world.begin_release(&lease));
                return Ok(lease);
            }
            ("deadline", _) => return Ok(lease),
            ("Granted", _) => AgentCommand::Granted {
                vmid: agent.vmid.ok_or("no VMID")?,
                node: NodeName::new("pve1"),
                cluster: ClusterId::new("9f31c0aa52e7d410"),
                spec: None,
            },
            ("NotGranted", _) => AgentCommand::NotGranted(fault("Capacity").ok_or_else(no_fault)?),
            ("Lease", _) => {
                AgentCommand::Lease { ask: world.an_ask("linux", Duration::from_secs(3600)) }
            }
            ("EndLease", _) => AgentCommand::EndLease {
                lease: LeaseId::new("0000000000000000"),
                why: "released".into(),
            },
            ("Override", _) => {
                let max_uses = Change::Set(9);
                AgentCommand::Override(OverrideChange { max_uses, ..OverrideChange::default() })
            }
            ("Hold", AgentPhase::Ready | AgentPhase::Leased | AgentPhase::Draining) => {
                // What holds across a crash is what is written down.
                world.hold(&agent.agent, HELD).await;
                return Ok(lease);
            }
            ("Hold", _) => AgentCommand::Hold(Some(Box::new(World::a_hold(HELD)))),
            ("Release", AgentPhase::Held) => {
                world.release_hold(&agent.agent).await;
                return Ok(lease);
            }
            ("Release", _) => AgentCommand::Hold(None),
            ("Drain", _) => AgentCommand::Drain(Reason::Asked),
            ("Retire", _) => AgentCommand::Retire(Reason::Asked),
            ("Withdraw", _) => AgentCommand::Withdraw,
            ("ForceRetire", _) => AgentCommand::ForceRetire(Reason::Asked),
            // A list is no proof, and may be wrong.
            ("CalledIn", _) => AgentCommand::CalledIn(IpAddr::from([10, 99, 0, 1])),
            ("Moved", _) => AgentCommand::Moved(NodeName::new("pve2")),
            ("Vanished", state) => {
                let proven = ![AgentPhase::Queued, AgentPhase::Cloning, AgentPhase::InDoubt]
                    .contains(&state);
                if let Some(vmid) = vmid.filter(|_| proven) {
                    self.script.remove(vmid);
                }
                AgentCommand::Vanished
            }
            ("SeenStopped", _) => {
                if let Some(vmid) = vmid.filter(|vmid| world.guests.running_vmids().contains(vmid))
                {
                    world.side.kill_guest(vmid).await;
                }
                AgentCommand::SeenStopped
            }
            ("NodeDown", _) => AgentCommand::NodeDown(true),
            (what, _) => return Err(format!("no driver brings about {what}")),
        };
        address.do_send(command);
        Ok(lease)
    }

    /// It goes where the table says.
    async fn follow(
        &self,
        mark: usize,
        agent: &AgentStatus,
        transition: &Transition,
    ) -> Result<(), String> {
        let (world, agent) = (self.world, &agent.agent);
        let moved = || next_state(world, mark..usize::MAX, agent, self.state);
        let then = transition.outcome.strip_prefix("stay, then ");
        let called = || self.script.later().iter().any(|later| later.call != "append");
        let holds = || if then.is_some() { called() } else { moved().is_some() };
        world.until("something follows", |_| holds()).await;
        match then {
            Some(then) => {
                let next = self.script.later().into_iter().find(|later| later.call != "append");
                let meant = super::answers::method(then);
                let asked = next.map(|later| later.call);
                if asked == meant { Ok(()) } else { Err(format!("it asked {asked:?} next")) }
            }
            None => match moved() {
                Some(moved) if moved == transition.target() => Ok(()),
                moved => Err(format!("it went to {moved:?}")),
            },
        }
    }
}
