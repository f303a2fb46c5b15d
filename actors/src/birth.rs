//! How actors come to life: what an agent needs at its birth, who lives, and the one seam
//! through which every child is started, so that supervision can be put around all of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, Context, Recipient, Supervised};
use drover_model::fact::Fact;
use drover_model::id::{AgentId, ClusterId, Generation, Installation, LeaseId, TemplateId};
use drover_model::ledger::AgentEntry;
use drover_model::overrides::Overrides;
use drover_model::place::Place;
use drover_model::ports::Ports;
use drover_model::record::Owner;
use drover_model::scope::Scope;
use drover_model::spec::TemplateSpec;
use drover_model::time::WallTime;

use crate::addresses::Addresses;
use crate::agent::boots::Boots;
use crate::agent::hold_next::HoldNext;
use crate::agent::lessons::Resets;
use crate::board::Board;
use crate::demand::runners::Runners;
use crate::doubts::Doubts;
use crate::message::{AgentCommand, AgentReport, IdBack, LaneAsk, LaneFree, Standing};
use crate::placement::Sites;
use crate::records::Records;
use crate::restraint::Restraint;
use crate::troubles::Troubles;
use crate::ways::Ways;
use drover_runtime::supervise::{Census, GivenUp, RestartLimit, SupervisionOptions, supervise};

/// How an agent's actor begins.
#[derive(Debug, Clone)]
pub enum Start {
    /// A new agent, to be cloned.
    Fresh,
    /// An agent that lived before this start of the service, or an orphan to be retired.
    Adopted {
        /// What the journal knows of it.
        entry: Box<AgentEntry>,
        /// How long the service was down, credited to its leases.
        down: Duration,
    },
}

/// The ways from an agent to its cluster.
#[derive(Debug, Clone)]
pub struct Lanes {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Asks for a place and a VMID.
    pub ask: Recipient<LaneAsk>,
    /// Gives the place back.
    pub free: Recipient<LaneFree>,
    /// Gives the VMID back.
    pub id_back: Recipient<IdBack>,
}

/// An agent to be taken over.
#[derive(Debug, Clone)]
pub struct Adoption {
    /// What is known of it.
    pub entry: Box<AgentEntry>,
    /// The ways to its cluster.
    pub lanes: Lanes,
    /// How long the service was down, credited to its leases.
    pub down: Duration,
}

/// Everything an agent is born with.
#[derive(Clone)]
pub struct AgentBirth {
    /// Its id.
    pub id: AgentId,
    /// The spec it keeps for life.
    pub spec: Arc<TemplateSpec>,
    /// New or adopted.
    pub start: Start,
    /// This installation, for its marks.
    pub installation: Installation,
    /// This start of the service, for the stamps of its effects.
    pub epoch: u64,
    /// Where its reports go.
    pub report: Recipient<AgentReport>,
    /// The ways to its cluster.
    pub lanes: Lanes,
    /// The ways out.
    pub ports: Ports,
    /// Where it is counted while it lives.
    pub census: Census,
    /// Through which cloud its guest is reached.
    pub ways: Ways,
    /// What keeps clones back.
    pub doubts: Doubts,
    /// Which agents are not destroyed.
    pub restraint: Restraint,
    /// What the boots of its template teach.
    pub boots: Boots,
    /// What the resets of each template teach.
    pub resets: Resets,
    /// Which templates' next failures are held.
    pub hold_next: HoldNext,
    /// Whose each address is.
    pub addresses: Addresses,
    /// Runners that may be at their sources.
    pub runners: Runners,
}

/// Starts an agent's actor and gives its address.
pub type AgentSpawner = Arc<dyn Fn(AgentBirth) -> Recipient<AgentCommand> + Send + Sync>;

/// What every actor of the herd is given.
#[derive(Clone)]
pub struct Common {
    /// The ways out.
    pub ports: Ports,
    /// What must be written although the journal fails.
    pub records: Records,
    /// Who lives.
    pub roster: Roster,
    /// Which actors live.
    pub census: Census,
    /// Through which cloud a guest is reached.
    pub ways: Ways,
    /// What keeps clones back.
    pub doubts: Doubts,
    /// Which agents are not destroyed.
    pub restraint: Restraint,
    /// Since when nodes, clouds and sources are in trouble.
    pub troubles: Troubles,
    /// The breakers that belong to no template.
    pub board: Board,
    /// The nodes of each cluster, and those that are drained.
    pub sites: Sites,
    /// Whose each address is.
    pub addresses: Addresses,
    /// Runners that may be at their sources.
    pub runners: Runners,
    /// Starts agents.
    pub spawner: AgentSpawner,
    /// What the resets of each template teach.
    pub resets: Resets,
    /// Which templates' next failures are held.
    pub hold_next: HoldNext,
    /// This installation.
    pub installation: Installation,
    /// This start of the service.
    pub epoch: u64,
    /// When the journal's last record before it was written.
    pub since: WallTime,
    /// Told when an actor is given up.
    pub give_up: GiveUp,
}

impl Common {
    /// Tells the read side where the breaker of a node, storage or cloud stands.
    pub fn show_breaker(&self, scope: &Scope) {
        if let Some(what) = self.board.picture(scope) {
            let at = self.ports.ambient.now().wall;
            self.ports.observer.observe(Fact { at, what });
        }
    }
}

/// How far a child is from the root, for how often it may be started anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// A template.
    Leaf,
    /// A cloud, a cluster, a reconciler.
    Branch,
}

/// Told of an actor that was started anew too often; the service can not go on then.
pub type GiveUp = Arc<dyn Fn(GivenUp) + Send + Sync>;

/// Starts an actor under its parent; `make` is given the context as [`Actor::create`] does.
///
/// Every actor of the herd but the root and the agents comes to life here. Started anew it keeps
/// its address and mailbox; its futures and timers are dropped.
pub fn spawn_child<A>(
    common: &Common,
    rank: Rank,
    name: &str,
    make: impl FnOnce(&mut Context<A>) -> A,
) -> Addr<A>
where
    A: Actor<Context = Context<A>> + Supervised,
{
    tracing::debug!(actor = name, ?rank, epoch = common.epoch, "actor starts");
    let give_up = Arc::clone(&common.give_up);
    let options = SupervisionOptions {
        name: name.to_owned(),
        restart_limit: match rank {
            Rank::Leaf => RestartLimit::LEAF,
            Rank::Branch => RestartLimit::BRANCH,
        },
        observer: Arc::clone(&common.ports.observer),
        ambient: Arc::clone(&common.ports.ambient),
        census: common.census.clone(),
        on_give_up: Box::new(move |what| give_up(what)),
    };
    supervise(options, make)
}

/// Whether two specs differ in nothing but the generation they came with.
pub fn same_template(one: &TemplateSpec, other: &TemplateSpec) -> bool {
    let aligned = TemplateSpec { generation: Generation::default(), ..one.clone() };
    aligned == TemplateSpec { generation: Generation::default(), ..other.clone() }
}

/// A living agent as others see it.
#[derive(Debug, Clone)]
pub struct Living {
    /// Its template.
    pub template: TemplateId,
    /// The spec it was born with.
    pub spec: Arc<TemplateSpec>,
    /// Its address.
    pub address: Recipient<AgentCommand>,
    /// Its standing by its last report.
    pub standing: Standing,
    /// Its state's name by its last report.
    pub state: String,
    /// Leases on it.
    pub leases: Vec<LeaseId>,
    /// What holds for it instead of what its template says.
    pub overrides: Overrides,
    /// The only one it serves, when it is kept for one.
    pub owner: Option<Owner>,
    /// When it was begun.
    pub born: WallTime,
    /// Where its guest is, once a place was granted.
    pub place: Option<Place>,
}

/// Every agent that is not gone: what permits are derived from, what a restarted actor rebuilds
/// itself from, and what reconciliation compares the cluster with.
///
/// Shared by the actors of one thread; written by the templates (life and reports), the
/// clusters (places) and the herd (overrides).
#[derive(Debug, Clone, Default)]
pub struct Roster(Rc<RefCell<BTreeMap<AgentId, Living>>>, Rc<RefCell<Begun>>);

/// The agents that lived in this start of the service, the last [`BEGUN_MOST`] of them.
#[derive(Debug, Default)]
struct Begun {
    all: BTreeSet<AgentId>,
    order: VecDeque<AgentId>,
}

/// Agents remembered beyond their end.
const BEGUN_MOST: usize = 10_000;

impl Roster {
    /// Enters an agent.
    pub fn enter(&self, agent: AgentId, living: Living) {
        let mut begun = self.1.borrow_mut();
        if begun.all.insert(agent.clone()) {
            begun.order.push_back(agent.clone());
        }
        if begun.order.len() > BEGUN_MOST
            && let Some(oldest) = begun.order.pop_front()
        {
            begun.all.remove(&oldest);
        }
        drop(begun);
        self.0.borrow_mut().insert(agent, living);
    }

    /// Whether an agent lived in this start of the service, as far as is remembered.
    pub fn knew(&self, agent: &AgentId) -> bool {
        self.1.borrow().all.contains(agent)
    }

    /// Strikes an agent out.
    pub fn leave(&self, agent: &AgentId) {
        self.0.borrow_mut().remove(agent);
    }

    /// The agents that are not among these.
    pub fn others(&self, known: &BTreeSet<AgentId>) -> Vec<(AgentId, Living)> {
        let roster = self.0.borrow();
        let others = roster.iter().filter(|(agent, _)| !known.contains(*agent));
        others.map(|(agent, living)| (agent.clone(), living.clone())).collect()
    }

    /// Changes an agent's entry where there is one.
    pub fn update(&self, agent: &AgentId, change: impl FnOnce(&mut Living)) {
        if let Some(living) = self.0.borrow_mut().get_mut(agent) {
            change(living);
        }
    }

    /// An agent's entry.
    pub fn get(&self, agent: &AgentId) -> Option<Living> {
        self.0.borrow().get(agent).cloned()
    }

    /// Sends an agent a command; says whether it lives.
    pub fn send(&self, agent: &AgentId, command: AgentCommand) -> bool {
        let address = self.0.borrow().get(agent).map(|living| living.address.clone());
        address.inspect(|address| address.do_send(command)).is_some()
    }

    /// All agents for which `wanted` holds.
    pub fn select(&self, wanted: impl Fn(&Living) -> bool) -> BTreeMap<AgentId, Living> {
        let all = self.0.borrow();
        all.iter()
            .filter(|(_, living)| wanted(living))
            .map(|(agent, living)| (agent.clone(), living.clone()))
            .collect()
    }

    /// Looks at every agent.
    pub fn each(&self, mut look: impl FnMut(&Living)) {
        self.0.borrow().values().for_each(&mut look);
    }

    /// How many agents there are for which `wanted` holds.
    pub fn count(&self, wanted: impl Fn(&Living) -> bool) -> usize {
        self.0.borrow().values().filter(|living| wanted(living)).count()
    }

    /// How many agents live.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether no agent lives.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
