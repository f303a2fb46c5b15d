//! What hits the tap: which call of which state is meant, and what becomes of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drover_model::fact::What;
use drover_model::id::AgentId;
use drover_model::phase::AgentPhase;
use drover_model::record::Body;
use drover_model::status::AgentStatus;
use pve_sim::spec::GuestSpec;
use pve_sim::world::WorldControl;

use crate::world::World;
use crate::world::notes::Notes;
use crate::world::tap::{Hit, Knock};

/// What happens on the cluster just before a call arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Nothing,
    /// An administrator removes the guest with all its volumes.
    Remove,
    /// Somebody writes over the guest's description.
    Deface,
    /// Somebody puts the description back as it was.
    Restore,
    /// Somebody else's guest takes the id, in the place of what is there.
    Replace,
}

/// What becomes of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// What happens just before it.
    pub deed: Deed,
    /// What becomes of it.
    pub hit: Hit,
    /// Whether this is the answer the transition is about.
    pub answers: bool,
}

impl Turn {
    /// A blow that is not the answer itself.
    pub fn blow(hit: Hit) -> Self {
        Self { deed: Deed::Nothing, hit, answers: false }
    }
}

/// Which call is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Such a call in a state.
    Call {
        /// The state the agent is in.
        state: AgentPhase,
        /// The port's method.
        call: &'static str,
        /// The call after which it is counted.
        after: Option<&'static str>,
        /// The first of these that is meant, from 1.
        nth: usize,
    },
    /// The next call of an agent, whichever.
    AnyCall,
    /// The next call or append of an agent.
    Anything,
}

/// A call on the way to the one that is meant, and what becomes of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Prelude {
    /// The state the agent is in, where that matters.
    pub state: Option<AgentPhase>,
    /// The port's method.
    pub call: &'static str,
    /// What becomes of it.
    pub turn: Turn,
}

/// What to do at which call.
#[derive(Debug, Clone)]
pub struct Plan {
    /// On the way: the first such calls, one after the other.
    pub preludes: VecDeque<Prelude>,
    /// The call that is meant.
    pub target: Target,
    /// What becomes of it and its likes, in order; the rest passes.
    pub turns: VecDeque<Turn>,
    /// Whether the power goes at the first sign of life after the answer.
    pub cut_after: bool,
    /// Calls of the first agent in this state are carried out and never answered.
    pub hush: Option<AgentPhase>,
}

/// A call or an append after the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Later {
    pub call: &'static str,
    /// How many facts were reported before it.
    pub reported: usize,
}

#[derive(Default)]
struct Seen {
    plan: Option<Plan>,
    /// Such calls since the one before them, once that was made.
    since: Option<usize>,
    hits: usize,
    /// Whose calls are not answered, and whether that is over.
    hushed: Option<(AgentId, bool)>,
    hold_next: Hold,
    /// Where the log of facts was when the answer was given, and whose it was.
    answered: Option<(usize, AgentId)>,
    /// Calls and appends of agents after the answer.
    later: Vec<Later>,
    descriptions: BTreeMap<u32, String>,
    strangers: BTreeMap<u32, BTreeMap<String, String>>,
    wrongs: Vec<String>,
}

impl Seen {
    /// Notices that the agent that was hushed has left the state.
    fn hush_over(&mut self, state: Option<AgentPhase>, log: &Notes) {
        if let Some((agent, over)) = &mut self.hushed {
            let now = living(log).get(agent).map(|status| status.phase);
            *over |= now != state;
        }
    }

    /// Whether this is the first agent that was hushed and never left that state, or nobody was yet.
    fn hushes(&mut self, knocker: Option<&AgentStatus>) -> bool {
        let Some(knocker) = knocker else { return false };
        let hushed = self.hushed.get_or_insert_with(|| (knocker.agent.clone(), false));
        hushed.0 == knocker.agent && !hushed.1
    }

    /// Whether this is the call that is meant, or one of its likes after it.
    fn fits(&mut self, target: &Target, knock: &str, knocker: Option<&AgentStatus>) -> bool {
        match target {
            Target::Call { state, call, after, nth } => {
                if after.is_none() || *after == Some(knock) {
                    self.since.get_or_insert(0);
                }
                if *after == Some(knock) {
                    self.since = Some(0);
                }
                let Some(since) = &mut self.since else { return false };
                let here = knocker.is_some_and(|status| status.phase == *state);
                let fits = here && *call == knock;
                *since += usize::from(fits);
                fits && *since >= *nth
            }
            Target::AnyCall => knock != "append",
            Target::Anything => true,
        }
    }
}

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(7 * 86_400);

/// What is held next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hold {
    #[default]
    Nothing,
    /// The next call or append.
    Any,
    /// The next append.
    Append,
}

/// The hand at the tap; it outlives crashes.
#[derive(Clone)]
pub struct Script {
    seen: Arc<Mutex<Seen>>,
    notes: Notes,
    side: WorldControl,
}

/// Whether it is an agent that knocks, about its guest or its records.
fn is_agents(knock: &Knock) -> bool {
    match knock.call {
        "append" => knock
            .records
            .iter()
            .any(|body| matches!(body, Body::LeaseEnded { .. }) || agent_of(body).is_some()),
        "identify" | "survey" | "locate" | "provide" | "fleet" | "devices" | "id_taken"
        | "observe" | "now" | "draw" | "look_at_jobs" | "obstacle" | "quiet" | "deregister" => {
            false
        }
        _ => true,
    }
}

/// Whom a record is about.
fn agent_of(body: &Body) -> Option<&AgentId> {
    match body {
        Body::CloneIntended { marks, .. } | Body::OrphanTaken { marks, .. } => Some(&marks.agent),
        Body::TaskAccepted { agent, .. }
        | Body::CloneSettled { agent, .. }
        | Body::AddressAssigned { agent, .. }
        | Body::GuestCalled { agent, .. }
        | Body::IsoIntended { agent, .. }
        | Body::VolumesKnown { agent, .. }
        | Body::HostKeyPinned { agent, .. }
        | Body::Phase { agent, .. }
        | Body::LeaseGranted { agent, .. }
        | Body::LeaseReady { agent, .. }
        | Body::LeaseReturned { agent, .. }
        | Body::RunnerIntended { agent, .. }
        | Body::KeyRemoved { agent, .. }
        | Body::SnapshotTaken { agent }
        | Body::OrderEnded { agent, .. }
        | Body::ResetIntended { agent }
        | Body::RetireIntended { agent, .. }
        | Body::Stranded { agent, .. }
        | Body::Gone { agent, .. } => Some(agent),
        Body::Takeover { .. }
        | Body::ClusterPinned { .. }
        | Body::ClusterContinued { .. }
        | Body::MachineBound { .. }
        | Body::LeaseAsked(_)
        | Body::LeaseRenewed { .. }
        | Body::LeaseEnded { .. }
        | Body::RunnerWorked { .. }
        | Body::RowsNumbered { .. }
        | Body::RowGone { .. }
        | Body::BreakerMoved { .. }
        | Body::CanaryMoved { .. }
        | Body::IdBurned { .. }
        | Body::IdCleared { .. }
        | Body::AheadConfirmed { .. }
        | Body::ClockSet { .. }
        | Body::TroubleSince { .. }
        | Body::NodeDrained { .. }
        | Body::ImageIntended { .. }
        | Body::ImageSealed { .. }
        | Body::ImageFailed { .. }
        | Body::ImageBuilt { .. }
        | Body::ImagePruned { .. }
        | Body::ImageGone { .. }
        | Body::DeclaredIntended { .. }
        | Body::DeclaredMade { .. }
        | Body::DeclaredChanged { .. }
        | Body::DeclaredCorrecting { .. }
        | Body::DeclaredRemoving { .. }
        | Body::DeclaredGone { .. }
        | Body::OverrideSet { .. }
        | Body::TemplateOverridden { .. }
        | Body::CloudOverridden { .. }
        | Body::MachineOrdered { .. }
        | Body::HoldSet { .. }
        | Body::HoldNextSet { .. }
        | Body::MarksAhead { .. } => None,
    }
}

impl Script {
    /// A script that hits nothing yet.
    pub fn new(world: &World) -> Self {
        Self { seen: Arc::default(), notes: world.notes.clone(), side: world.side.clone() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Takes the tap, with this plan from here on.
    pub fn take(&self, world: &World, plan: Plan) {
        let mut seen = self.seen();
        seen.plan = Some(plan);
        seen.since = None;
        seen.hits = 0;
        seen.hold_next = Hold::Nothing;
        drop(seen);
        let script = self.clone();
        world.tap.watch(move |knock| script.judge(knock));
    }

    /// Hits nothing more.
    pub fn rest(&self, world: &World) {
        world.tap.release();
        self.seen().plan = None;
    }

    /// What was still to be done.
    pub fn remaining(&self) -> VecDeque<Turn> {
        self.seen().plan.as_ref().map(|plan| plan.turns.clone()).unwrap_or_default()
    }

    /// Whether the call that is meant was ever made in the state that is meant.
    pub fn reached(&self) -> bool {
        self.seen().hits > 0
    }

    /// Whether the answer of the transition was given.
    pub fn answered(&self) -> Option<(usize, AgentId)> {
        self.seen().answered.clone()
    }

    /// Calls and appends of agents since the answer.
    pub fn later(&self) -> Vec<Later> {
        self.seen().later.clone()
    }

    /// What went wrong at the tap itself.
    pub fn wrongs(&self) -> Vec<String> {
        self.seen().wrongs.clone()
    }

    /// From here on what an agent says or asks comes after the transition.
    pub fn mark(&self, agent: AgentId) {
        let count = reported(&self.notes);
        let mut seen = self.seen();
        seen.answered = Some((count, agent));
        seen.later.clear();
    }

    /// Guests of others that were planted, with their configuration.
    pub fn strangers(&self) -> BTreeMap<u32, BTreeMap<String, String>> {
        self.seen().strangers.clone()
    }

    /// The last statuses of agents that live.
    fn living(&self) -> BTreeMap<AgentId, Arc<AgentStatus>> {
        living(&self.notes)
    }

    /// The agent that knocks: the one whose guest it is, or any that is in the state that is meant.
    fn knocker(&self, knock: &Knock, state: Option<AgentPhase>) -> Option<Arc<AgentStatus>> {
        let living = self.living();
        let of_guest =
            |status: &&Arc<AgentStatus>| knock.vmid.is_some() && status.vmid == knock.vmid;
        let in_state =
            |status: &&Arc<AgentStatus>| knock.vmid.is_none() && Some(status.phase) == state;
        let mut all = living.values();
        let found = all.clone().find(of_guest).or_else(|| all.find(in_state));
        found.or_else(|| living.values().last()).cloned()
    }

    fn judge(&self, knock: &Knock) -> Hit {
        let Some(plan) = self.seen().plan.clone() else { return Hit::Pass };
        let prelude = plan.preludes.front();
        let meant = match (prelude.and_then(|prelude| prelude.state), &plan.target) {
            (Some(state), _) | (None, &Target::Call { state, .. }) => Some(state),
            (None, Target::AnyCall | Target::Anything) => plan.hush,
        };
        let knocker = self.knocker(knock, meant);
        let here = |state| knocker.as_ref().is_some_and(|seen| seen.phase == state);
        let begins =
            |prelude: &&Prelude| prelude.call == knock.call && prelude.state.is_none_or(here);
        if let Some(prelude) = prelude.filter(begins) {
            if let Some(plan) = &mut self.seen().plan {
                plan.preludes.pop_front();
            }
            return self.carry_out(prelude.turn.clone(), knocker);
        }
        let about = knocker.as_ref().is_some_and(|status| status.vmid == knock.vmid);
        if !(is_agents(knock) || knock.call == "id_taken" && about) {
            return Hit::Pass;
        }
        let mut seen = self.seen();
        let written = knock.records.iter().find_map(agent_of);
        // Of some calls nobody knows whose they are where there are two.
        let known = knock.vmid.is_some() || self.living().len() == 1;
        let who = written.or(knocker.as_ref().filter(|_| known).map(|status| &status.agent));
        let mine = seen.answered.as_ref().is_none_or(|(_, agent)| Some(agent) == who);
        if seen.answered.is_some() && mine {
            let reported = reported(&self.notes);
            seen.later.push(Later { call: knock.call, reported });
        }
        let held = match seen.hold_next {
            Hold::Nothing => false,
            Hold::Any => mine,
            Hold::Append => mine && knock.call == "append",
        };
        if held {
            seen.hold_next = Hold::Nothing;
            return Hit::Hold;
        }
        let state = knocker.as_ref().map(|status| status.phase);
        seen.hush_over(plan.hush, &self.notes);
        if plan.hush.is_some() && plan.hush == state && seen.hushes(knocker.as_deref()) {
            let passes = knock.call == "append";
            return if passes { Hit::Pass } else { Hit::Lose { done: true, after: NEVER } };
        }
        let ahead = plan.preludes.iter().any(|prelude| prelude.state.is_some());
        if ahead || !seen.fits(&plan.target, knock.call, knocker.as_deref()) {
            return Hit::Pass;
        }
        seen.hits += 1;
        let turn = seen.plan.as_mut().and_then(|plan| plan.turns.pop_front());
        let Some(turn) = turn else { return Hit::Pass };
        if turn.answers && seen.answered.is_none() {
            let count = reported(&self.notes);
            seen.answered = knocker.as_ref().map(|status| (count, status.agent.clone()));
            if plan.cut_after {
                seen.hold_next = Hold::Any;
            }
        } else if plan.cut_after {
            seen.hold_next = Hold::Append;
        }
        drop(seen);
        self.carry_out(turn, knocker)
    }

    fn carry_out(&self, turn: Turn, knocker: Option<Arc<AgentStatus>>) -> Hit {
        let vmid = knocker.and_then(|status| status.vmid).map(|vmid| vmid.0);
        match (turn.deed, vmid) {
            (Deed::Nothing, _) => {}
            (_, None) => self.seen().wrongs.push("a deed without a guest".into()),
            (Deed::Remove, Some(vmid)) => self.remove(vmid),
            (Deed::Deface, Some(vmid)) => {
                let config = self.side.config(vmid);
                let text = config.as_ref().and_then(|config| config.get("description"));
                if let Some(text) = text {
                    self.seen().descriptions.insert(vmid, text.to_owned());
                }
                self.side.set_config(vmid, "description", Some("mine from here on"));
            }
            (Deed::Restore, Some(vmid)) => {
                let text = self.seen().descriptions.get(&vmid).cloned();
                self.side.set_config(vmid, "description", text.as_deref());
            }
            (Deed::Replace, Some(vmid)) => {
                self.remove(vmid);
                self.plant(vmid);
            }
        }
        turn.hit
    }

    /// What an administrator does to be rid of a guest.
    pub fn remove(&self, vmid: u32) {
        self.side.remove_guest(vmid);
        let mine = format!("vm-{vmid}-");
        for node in ["pve1", "pve2", "pve3"] {
            for storage in ["local", "local-lvm", "shared"] {
                for volid in self.side.volumes(node, storage) {
                    if volid.contains(&mine) {
                        self.side.remove_volume(node, &volid);
                    }
                }
            }
        }
    }

    fn plant(&self, vmid: u32) {
        let config = [("name", "db"), ("memory", "512"), ("scsi0", "none")];
        let config = config.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let node = "pve1".to_owned();
        let spec = GuestSpec { vmid, node, template: false, running: false, pool: None, config };
        assert!(self.side.add_guest(&spec), "the id is free");
        let config = self.side.config(vmid).unwrap().into_iter().collect();
        self.seen().strangers.insert(vmid, config);
    }
}

/// How many facts were reported so far.
fn reported(notes: &Notes) -> usize {
    notes.facts(|_| Some(())).len()
}

/// The last statuses of agents that are not gone.
pub fn living(notes: &Notes) -> BTreeMap<AgentId, Arc<AgentStatus>> {
    let mut all = BTreeMap::new();
    let statuses = notes.facts(|what| match what {
        What::Agent(status) => Some(Ok(Arc::clone(status))),
        What::AgentGone { agent, .. } => Some(Err(agent.clone())),
        _ => None,
    });
    for status in statuses {
        match status {
            Ok(status) => {
                all.insert(status.agent.clone(), status);
            }
            Err(agent) => {
                all.remove(&agent);
            }
        }
    }
    all
}
