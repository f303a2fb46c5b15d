//! How many calls of Proxmox's API run at once through each endpoint and on each node. Pure.
//!
//! A node has three workers of pveproxy and three of pvedaemon, each of which handles one call at a
//! time (behaviour section 1): more calls at once do not come back sooner, they time out. Calls
//! wait here for their turn instead. A call that waits was not sent: giving it up is no time-out of
//! Proxmox's.
//!
//! ```text
//! ask ──> queue of its node ──admit──> runs: counts on its endpoint and its node ──end──> gone
//!            │                                                                      │
//!            └── leave: given up, nothing was sent                 limits learn <───┘
//! ```
//!
//! Limits begin small. They grow by one while calls press against them and take no longer than
//! those that found the lane nearly empty, shrink by one when calls take much longer, and halve at
//! a time-out or an answer of 596 to 599. Nodes are served in turn; on each node changes come
//! before reads and reads before questions to guest agents, and each kind gets its share. Vital
//! calls (health, lists, ends of tasks) have places of their own beside the limits. Two questions
//! to guest agents run on a node at a time: each holds a worker for 3 s while the agent is silent, and
//! of the node's three one is left for all else.

mod lane;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use drover_model::id::NodeName;
use drover_model::time::Moment;

use self::lane::{Lane, Size};

/// Through one endpoint.
const ENDPOINT: Size = Size { first: 6, most: 48 };
/// On one node.
const NODE: Size = Size { first: 3, most: 12 };
/// Vital calls at once through one endpoint, beside its limit.
const VITAL: u32 = 3;
/// Questions to guest agents at once on one node.
const AGENTS: u32 = 2;
/// Calls that may wait through one endpoint.
const WAITING: usize = 4096;
/// Of so many turns of a node one begins with the questions to guest agents, and two with reads.
const CYCLE: u32 = 8;

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Health, lists of the whole cluster, ends of tasks: what everything else depends on.
    Vital,
    /// A change, or a read that a change waits for.
    Change,
    /// Any other read.
    Read,
    /// A question to a guest agent.
    Agent,
}

/// A call that wants its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// The endpoint it is sent to.
    pub endpoint: String,
    /// The node that does its work; none for one that the endpoint answers itself.
    pub node: Option<NodeName>,
    /// What it is for.
    pub kind: Kind,
    /// Names calls that take equally long.
    pub class: String,
}

/// Names a call that waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// How a call ended, for those that wait behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// It was answered.
    Answered,
    /// The node that does the work did not answer its own front end in time.
    NodeBusy,
    /// The endpoint did not answer in time.
    Silent,
    /// It says nothing of either: it broke, was refused a connection, or was never sent.
    Void,
}

/// How many calls run and wait at a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level {
    /// An endpoint or a node.
    pub place: String,
    /// Whether it is an endpoint.
    pub is_endpoint: bool,
    /// Calls that run.
    pub running: u32,
    /// Calls that wait.
    pub waiting: u32,
    /// Calls that may run at once.
    pub limit: u32,
}

/// The calls of one cluster.
#[derive(Debug, Default)]
pub struct Traffic {
    endpoints: BTreeMap<String, Endpoint>,
    nodes: BTreeMap<NodeName, Node>,
    calls: BTreeMap<Ticket, Held>,
    last: u64,
}

#[derive(Debug)]
struct Held {
    want: Want,
    /// When it began to run, and how full its lanes were then; none while it waits.
    began: Option<Began>,
}

#[derive(Debug, Clone, Copy)]
struct Began {
    at: Moment,
    endpoint: lane::Crowd,
    node: Option<lane::Crowd>,
}

#[derive(Debug)]
struct Endpoint {
    lane: Lane,
    /// Vital calls that run.
    vital: u32,
    urgent: VecDeque<Ticket>,
    queues: BTreeMap<Option<NodeName>, Queue>,
    /// The node that was served last.
    served: Option<Option<NodeName>>,
    waiting: usize,
}

impl Default for Endpoint {
    fn default() -> Self {
        Self {
            lane: Lane::new(ENDPOINT),
            vital: 0,
            urgent: VecDeque::new(),
            queues: BTreeMap::new(),
            served: None,
            waiting: 0,
        }
    }
}

#[derive(Debug)]
struct Node {
    lane: Lane,
    /// Questions to guest agents that run.
    agents: u32,
}

impl Default for Node {
    fn default() -> Self {
        Self { lane: Lane::new(NODE), agents: 0 }
    }
}

/// Calls that wait for one node.
#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<Ticket>,
    reads: VecDeque<Ticket>,
    agents: VecDeque<Ticket>,
    turn: u32,
}

impl Queue {
    fn of(&mut self, kind: Kind) -> &mut VecDeque<Ticket> {
        match kind {
            Kind::Vital | Kind::Change => &mut self.changes,
            Kind::Read => &mut self.reads,
            Kind::Agent => &mut self.agents,
        }
    }

    fn len(&self) -> usize {
        self.changes.len() + self.reads.len() + self.agents.len()
    }

    /// The next call, questions to guest agents only where one more may run.
    fn next(&mut self, agent_fits: bool) -> Option<Ticket> {
        let order = match self.turn % CYCLE {
            2 | 5 => [Kind::Read, Kind::Change, Kind::Agent],
            7 => [Kind::Agent, Kind::Change, Kind::Read],
            _ => [Kind::Change, Kind::Read, Kind::Agent],
        };
        let kinds = order.into_iter().filter(|kind| *kind != Kind::Agent || agent_fits);
        let ticket = kinds.into_iter().find_map(|kind| self.of(kind).pop_front())?;
        self.turn = self.turn.wrapping_add(1);
        Some(ticket)
    }
}

impl Traffic {
    /// A call wants its turn; none where too many wait already.
    pub fn ask(&mut self, want: Want) -> Option<Ticket> {
        let endpoint = self.endpoints.entry(want.endpoint.clone()).or_default();
        let waiting = match want.kind {
            Kind::Vital => endpoint.urgent.len(),
            Kind::Change | Kind::Read | Kind::Agent => endpoint.waiting,
        };
        if waiting >= WAITING {
            return None;
        }
        self.last += 1;
        let ticket = Ticket(self.last);
        endpoint.waiting += 1;
        match want.kind {
            Kind::Vital => endpoint.urgent.push_back(ticket),
            kind @ (Kind::Change | Kind::Read | Kind::Agent) => {
                endpoint.queues.entry(want.node.clone()).or_default().of(kind).push_back(ticket);
            }
        }
        self.calls.insert(ticket, Held { want, began: None });
        Some(ticket)
    }

    /// Lets calls run for which there is room now.
    pub fn admit(&mut self, now: Moment) -> Vec<Ticket> {
        let mut admitted = Vec::new();
        for endpoint in self.endpoints.values_mut().filter(|endpoint| endpoint.waiting > 0) {
            while let Some(ticket) = endpoint.next(&self.nodes, now) {
                let Some(held) = self.calls.get_mut(&ticket) else { continue };
                endpoint.waiting = endpoint.waiting.saturating_sub(1);
                let more = endpoint.waiting > 0;
                let node = held.want.node.as_ref().map(|name| {
                    let node = self.nodes.entry(name.clone()).or_default();
                    node.agents += u32::from(held.want.kind == Kind::Agent);
                    node.lane.begin(more, now)
                });
                let crowd = match held.want.kind {
                    Kind::Vital => {
                        endpoint.vital += 1;
                        lane::Crowd::default()
                    }
                    Kind::Change | Kind::Read | Kind::Agent => endpoint.lane.begin(more, now),
                };
                held.began = Some(Began { at: now, endpoint: crowd, node });
                admitted.push(ticket);
            }
        }
        admitted
    }

    /// A call has ended, or is given up before it ran.
    pub fn end(&mut self, ticket: Ticket, end: CallEnd, now: Moment) {
        let Some(Held { want, began }) = self.calls.remove(&ticket) else { return };
        let Some(endpoint) = self.endpoints.get_mut(&want.endpoint) else { return };
        let Some(began) = began else {
            endpoint.leave(ticket, &want);
            return;
        };
        // Only reads take as long as their node lets them: a change waits for locks, a question
        // for its guest.
        let took = (end == CallEnd::Answered && want.kind == Kind::Read).then(|| now - began.at);
        if want.kind == Kind::Vital {
            endpoint.vital = endpoint.vital.saturating_sub(1);
        } else {
            endpoint.lane.end(took.map(|took| (want.class.as_str(), took, began.endpoint)));
        }
        if end == CallEnd::Silent || (end == CallEnd::NodeBusy && want.node.is_none()) {
            endpoint.lane.narrow(now);
        }
        let node = want.node.as_ref().and_then(|name| self.nodes.get_mut(name));
        if let (Some(node), Some(crowd)) = (node, began.node) {
            node.agents = node.agents.saturating_sub(u32::from(want.kind == Kind::Agent));
            node.lane.end(took.map(|took| (want.class.as_str(), took, crowd)));
            if matches!(end, CallEnd::NodeBusy | CallEnd::Silent) {
                node.lane.narrow(now);
            }
        }
    }

    /// How many calls wait through the endpoint of a call, itself included.
    pub fn waiting_with(&self, ticket: Ticket) -> usize {
        let endpoint = self.calls.get(&ticket).map(|held| held.want.endpoint.as_str());
        endpoint.and_then(|name| self.endpoints.get(name)).map_or(0, |endpoint| endpoint.waiting)
    }

    /// How all endpoints and nodes stand.
    pub fn levels(&self, now: Moment) -> Vec<Level> {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let endpoints = self.endpoints.iter().map(|(name, endpoint)| Level {
            place: name.clone(),
            is_endpoint: true,
            running: endpoint.lane.running() + endpoint.vital,
            waiting: count(endpoint.waiting),
            limit: endpoint.lane.limit(now),
        });
        let nodes = self.nodes.iter().map(|(name, node)| {
            let queues = self.endpoints.values().filter_map(|e| e.queues.get(&Some(name.clone())));
            Level {
                place: name.to_string(),
                is_endpoint: false,
                running: node.lane.running(),
                waiting: count(queues.map(Queue::len).sum()),
                limit: node.lane.limit(now),
            }
        });
        endpoints.chain(nodes).collect()
    }
}

impl Endpoint {
    /// The next call that has room.
    fn next(&mut self, nodes: &BTreeMap<NodeName, Node>, now: Moment) -> Option<Ticket> {
        if self.vital < VITAL
            && let Some(ticket) = self.urgent.pop_front()
        {
            return Some(ticket);
        }
        if self.lane.running() >= self.lane.limit(now) {
            return None;
        }
        let after =
            |served: &Option<NodeName>| self.served.as_ref().is_none_or(|last| served > last);
        let later = self.queues.keys().filter(|name| after(name)).cloned();
        let earlier = self.queues.keys().filter(|name| !after(name)).cloned();
        let order: Vec<Option<NodeName>> = later.chain(earlier).collect();
        for name in order {
            let node = name.as_ref().and_then(|name| nodes.get(name));
            let full = node.is_some_and(|node| node.lane.running() >= node.lane.limit(now));
            let agent_fits = node.is_none_or(|node| node.agents < AGENTS);
            let Some(queue) = self.queues.get_mut(&name).filter(|_| !full) else { continue };
            if let Some(ticket) = queue.next(agent_fits) {
                if queue.len() == 0 {
                    self.queues.remove(&name);
                }
                self.served = Some(name);
                return Some(ticket);
            }
        }
        None
    }

    /// A call that waits is given up.
    fn leave(&mut self, ticket: Ticket, want: &Want) {
        self.waiting = self.waiting.saturating_sub(1);
        if want.kind == Kind::Vital {
            return self.urgent.retain(|other| *other != ticket);
        }
        let Some(queue) = self.queues.get_mut(&want.node) else { return };
        queue.of(want.kind).retain(|other| *other != ticket);
        if queue.len() == 0 {
            self.queues.remove(&want.node);
        }
    }
}
