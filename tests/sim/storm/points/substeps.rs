//! Calls beside the straight way: looks, second readings, what a lease asks of its guest. Which there
//! are and how each is reached is the table that the minds' own tests draw.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use drover_actors::message::AgentCommand;
use drover_model::fault::Fault;
use drover_model::id::LeaseId;
use drover_model::phase::AgentPhase;
use drover_model::ports::{IdStatus, VmObservation};
use drover_model::record::Reason;
use drover_model::status::AgentStatus;
use drover_model::stop::StopPolicy;
use libtest_mimic::{Failed, Trial};
use pve_sim::world::Faults;

use super::answers::{SILENCE, method, way};
use super::call::turns;
use super::script::{Deed, Plan, Prelude, Script, Target, Turn, living};
use super::table::{Cause, Transition, snake, transitions};
use super::{Blow, PREPARE, Stage, aftermath};
use crate::on_paused_clock;
use crate::world::World;
use crate::world::setup::Setup;
use crate::world::tap::{Alteration, Hit};

/// The table as the minds' own tests draw it.
const TABLE: &str = include_str!("../../../../actors/src/agent/calls.txt");
/// How long the service is away after the power went.
const AWAY: Duration = Duration::from_secs(30);

/// By then a guest was put back.
const PUT_BACK: Duration = Duration::from_secs(30);

/// Something on the way to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    /// The state it happens in.
    state: AgentPhase,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// A call comes back with this.
    Answered(String, String),
    /// Somebody says something.
    Reported(String),
    /// The service starts again.
    Restart,
}

/// A call of a state, and the way there.
#[derive(Debug, Clone)]
struct Substep {
    state: AgentPhase,
    call: String,
    way: Vec<Step>,
}

impl Substep {
    /// Where the tests of this call are, as a path of modules.
    fn path(&self) -> String {
        let last = self.way.last();
        let restarted = self.way.iter().any(|step| step.what == What::Restart);
        let adopted = restarted && self.call == "Look";
        let undone = last.is_some_and(|step| {
            step.state == AgentPhase::Cloning && self.state == AgentPhase::Retiring
        });
        let of = match (adopted, undone) {
            (true, _) => "_of_the_adopted",
            (false, true) => "_of_a_clone",
            (false, false) => "",
        };
        format!("{}::{}{of}", snake(self.state.name()), snake(&self.call))
    }
}

fn substeps() -> Vec<Substep> {
    let read = |line: &'static str| {
        let mut words = line.split_whitespace();
        let (state, call) = (words.next().expect("a state"), words.next().expect("a call"));
        let rest = words.collect::<Vec<_>>().join(" ");
        let steps = rest.split(", ").filter(|step| !step.is_empty()).map(step);
        let state = state.parse().expect("a phase");
        Substep { state, call: call.to_owned(), way: steps.collect() }
    };
    TABLE.lines().map(read).collect()
}

fn step(text: &str) -> Step {
    let (state, what) = text.split_once(' ').expect("a state");
    let what = match what.split_once(": ") {
        Some((call, answer)) => What::Answered(call.to_owned(), answer.to_owned()),
        None if what == "restart" => What::Restart,
        None => What::Reported(what.to_owned()),
    };
    Step { state: state.parse().expect("a phase"), what }
}

/// Calls that the transitions hit already: each state's own, reached as they reach it.
fn hit() -> BTreeSet<(AgentPhase, String)> {
    let of = |transition: Transition| match transition.cause {
        Cause::Answered { call, answer, .. } if answer == "ok" => Some((transition.state, call)),
        Cause::Answered { .. } | Cause::Reported(_) => None,
    };
    transitions().into_iter().filter_map(of).collect()
}

/// One trial for each call that is not hit yet, and each blow.
pub fn trials() -> Vec<Trial> {
    let hit = hit();
    let mut all = Vec::new();
    for substep in substeps() {
        let adopted = substep.way.iter().any(|step| step.what == What::Restart);
        if !adopted && hit.contains(&(substep.state, substep.call.clone())) {
            continue;
        }
        for blow in Blow::ALL {
            let substep = substep.clone();
            let name = format!("points::calls::{}::{}", substep.path(), blow.name());
            all.push(Trial::test(name, move || {
                on_paused_clock(play(&substep, blow)).map_err(Failed::from)
            }));
        }
    }
    all
}

/// A herd whose lives make every call there is; those that are reset and those that close their doors
/// make others.
fn setup(substep: &Substep) -> Setup {
    let keys = "instanceCap: 3, idleTerminationMinutes: 30, shutdownTimeoutSec: 30";
    let more = match (substep.state, substep.call.as_str()) {
        (AgentPhase::Resetting, _) | (_, "Snapshot") => "reset: DISK",
        (AgentPhase::Retiring, "Run") => "closeSshBeforeDelete: true",
        _ => "numExecutors: 2",
    };
    let mut setup = Setup::linux(&format!("{keys}, {more}, {PREPARE}"));
    setup.guests.boot = Duration::from_millis(300)..Duration::from_millis(400);
    setup.guests.address_delay = Duration::ZERO..Duration::from_millis(1);
    setup
}

/// What becomes of a call on the way.
fn prelude(state: AgentPhase, call: &str, answer: &str) -> Result<Prelude, String> {
    let unknown = || format!("no driver brings about {state} {call}: {answer}");
    let turn = if (state, call, answer) == (AgentPhase::InDoubt, "Look", "free") {
        let free = Alteration::of(|_: Result<VmObservation, Fault>| {
            let id = IdStatus::Free;
            Ok(VmObservation { id, node: None, marks: None, lock: None, running: None })
        });
        Turn::blow(Hit::Alter(free))
    } else {
        let turn = way(state, call, None, answer).ok_or_else(unknown)?.turn;
        Turn { answers: false, ..turn }
    };
    let call = method(call).ok_or_else(unknown)?;
    Ok(Prelude { state: Some(state), call, turn })
}

/// What goes wrong on the cluster from the start, so that the calls on the way end as they do.
fn faults(steps: &[Step]) -> Faults {
    let all = steps.iter().filter_map(|Step { state, what }| match what {
        What::Answered(call, answer) if *state == AgentPhase::Cloning => {
            way(*state, call, Some("Clone"), answer).map(|way| way.faults)
        }
        What::Answered(..) | What::Reported(_) | What::Restart => None,
    });
    Faults { tasks: all.flat_map(|faults| faults.tasks).collect(), ..Faults::default() }
}

struct Walk {
    world: World,
    script: Script,
    leases: Vec<LeaseId>,
}

impl Walk {
    /// The agent in this state, once there is one.
    async fn agent(&self, state: AgentPhase) -> Arc<AgentStatus> {
        let world = &self.world;
        match state {
            AgentPhase::Leased | AgentPhase::Draining => {
                world.ready(&self.leases[0]).await;
            }
            AgentPhase::Ready => {
                world.ready(&self.leases[0]).await;
                world.release(&self.leases[0]).await;
            }
            _ => {}
        }
        world.until_state(state).await;
        let living = living(&world.notes);
        living.values().find(|seen| seen.phase == state).cloned().expect("an agent")
    }

    fn take(&self, plan: Plan) {
        self.script.take(&self.world, plan);
    }

    /// Somebody says something to the agent; what it asks then is under the next plan.
    async fn report(&mut self, state: AgentPhase, what: &str, then: Plan) -> Result<(), String> {
        let agent = self.agent(state).await;
        if state == AgentPhase::Resetting {
            self.world.pass(PUT_BACK).await;
        }
        let vmid = agent.vmid.ok_or("no guest")?.0;
        let address = self.world.address(&agent.agent);
        self.take(then);
        let command = match what {
            "Lease" => {
                let lease = self.world.lease("linux").await;
                let on = self.world.ready(&lease).await;
                self.leases.push(lease);
                return if on.agent == agent.agent { Ok(()) } else { Err("elsewhere".into()) };
            }
            "EndLease" => {
                drop(self.world.begin_release(&self.leases[0]));
                if self.leases.len() > 1 {
                    self.leases.remove(0);
                }
                return Ok(());
            }
            "Hold" => {
                self.world.hold(&agent.agent, Duration::from_secs(1200)).await;
                return Ok(());
            }
            "Drain" => AgentCommand::Drain(Reason::Asked),
            "Vanished" => {
                self.script.remove(vmid);
                AgentCommand::Vanished
            }
            "SeenStopped" => {
                if self.world.guests.running_vmids().contains(&vmid) {
                    self.world.side.kill_guest(vmid).await;
                }
                AgentCommand::SeenStopped
            }
            what => return Err(format!("no driver brings about {what}")),
        };
        address.do_send(command);
        Ok(())
    }

    /// The service stops in order while the agent is in this state, so that the journal says as much,
    /// and starts again.
    async fn restart(&mut self, state: AgentPhase, then: Plan) -> Result<(), String> {
        self.agent(state).await;
        if !self.world.stop_within(StopPolicy::Keep, AWAY).await {
            return Err("it did not stop".into());
        }
        tokio::time::sleep(AWAY).await;
        self.take(then);
        self.world.start().await;
        Ok(())
    }
}

/// The plan up to the next step that is not an answer: what it answers, and whose calls hang then.
fn plan(way: &[Step], last: &Plan) -> Result<Plan, String> {
    let mut preludes = VecDeque::new();
    for Step { state, what } in way {
        let What::Answered(call, answer) = what else {
            // A guest that is put back stands still meanwhile: only after that it should run.
            if *state == AgentPhase::Resetting && matches!(what, What::Reported(_)) {
                let (state, turn) = (Some(*state), Turn::blow(Hit::Pass));
                preludes.push_back(Prelude { state, call: "rollback", turn });
            }
            // Where leases are, the state itself waits for nothing.
            let used =
                [AgentPhase::Ready, AgentPhase::Leased, AgentPhase::Draining].contains(state);
            let hush = Some(*state).filter(|_| !used);
            let (target, turns) = (Target::Anything, VecDeque::new());
            return Ok(Plan { preludes, target, turns, cut_after: false, hush });
        };
        preludes.push_back(prelude(*state, call, answer)?);
    }
    Ok(Plan { preludes, ..last.clone() })
}

/// Plays one call with one blow.
async fn play(substep: &Substep, blow: Blow) -> Result<(), String> {
    let call = method(&substep.call).ok_or("nobody knows this call")?;
    let natural = Turn { deed: Deed::Nothing, hit: Hit::Pass, answers: true };
    let turns = match blow {
        Blow::RunTwice => [Turn { hit: Hit::Twice, ..natural }].into(),
        blow => turns(blow, &natural),
    };
    let target = Target::Call { state: substep.state, call, after: None, nth: 1 };
    let cut_after = blow == Blow::DoneAndNotJournalled;
    let bare = Plan { preludes: VecDeque::new(), target, turns, cut_after, hush: None };

    let world = World::started(setup(substep)).await;
    world.faults(faults(&substep.way));
    let script = Script::new(&world);
    script.take(&world, plan(&substep.way, &bare)?);
    let leases = vec![world.lease("linux").await];
    let mut walk = Walk { world, script, leases };
    for (place, step) in substep.way.iter().enumerate() {
        let then = plan(&substep.way[place + 1..], &bare)?;
        match &step.what {
            What::Answered(..) => {}
            What::Reported(what) => walk.report(step.state, what, then).await?,
            What::Restart => walk.restart(step.state, then).await?,
        }
    }
    let Walk { mut world, script, leases } = walk;
    world.until("the call that is meant is made", |_| script.reached()).await;
    if blow.cuts() {
        world.until_sprung().await;
        if blow != Blow::NotSent {
            world.pass(SILENCE / 2).await;
        }
        let turns = script.remaining();
        world.crash();
        tokio::time::sleep(AWAY).await;
        script.take(&world, Plan { turns, cut_after: false, ..bare });
        world.start().await;
    }
    let stranded = substep.state == AgentPhase::Stranded;
    let outcome = if stranded { AgentPhase::Stranded.name() } else { "stay" };
    let (state, outcome) = (substep.state, outcome.to_owned());
    let transition = Transition { state, cause: Cause::Reported(substep.call.clone()), outcome };
    let lease = leases.last().cloned().ok_or("a lease")?;
    aftermath::settle(Stage { world, lease }, &script, &transition, false).await
}
