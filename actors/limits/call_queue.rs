//! The queue of API calls: how many run at once through each endpoint and on each node of a
//! cluster. Pure: time is an argument.
//!
//! A node has three workers of pveproxy and three of pvedaemon, and each handles one call at a time
//! (book: proxmox, section 1). More calls at once do not come back sooner: they time out. So calls
//! wait here. A call that waits was not sent, and giving it up is not a timeout of Proxmox.
//!
//! ```text
//! enqueue ──> queue of its node ──admit──> runs: counts on its endpoint and its node ──end──> gone
//!                │                                                                      │
//!                └── end: given up, nothing was sent                 limits learn <─────┘
//! ```
//!
//! Limits start low. A limit grows by one while calls press against it and take no longer than
//! calls on a nearly idle place. It shrinks by one when calls take much longer, and halves at a
//! timeout or an answer of 596 to 599.
//!
//! Nodes are served in turn. On each node changes come before reads and reads before questions to
//! guest agents, and each purpose gets its share. Vital calls (health, lists, ends of tasks) have
//! places of their own beside the limits. At most two questions to guest agents run on a node: each
//! holds a worker for 3 s while the agent is silent, and one of the node's three workers stays
//! free.

mod limit;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use drover_model::id::NodeName;
use drover_model::time::Moment;

use self::limit::{CallLimit, LimitRange};

/// The limit of calls through one endpoint.
const ENDPOINT_LIMITS: LimitRange = LimitRange { first: 6, most: 48 };
/// The limit of calls on one node.
const NODE_LIMITS: LimitRange = LimitRange { first: 3, most: 12 };
/// The number of vital calls at once through one endpoint, beside its limit.
const VITAL_CALLS_MAX: u32 = 3;
/// The number of questions to guest agents at once on one node.
const AGENT_CALLS_MAX: u32 = 2;
/// The number of calls that may wait for one endpoint.
const WAITING_CALLS_MAX: usize = 4096;
/// The number of a node's turns in a cycle. One of them starts with questions to guest agents, two
/// with reads, the others with changes.
const TURNS_PER_CYCLE: u32 = 8;

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallPurpose {
    /// Health, lists of the whole cluster, ends of tasks: everything else depends on these.
    Vital,
    /// A change, or a read that a change waits for.
    Change,
    /// Any other read.
    Read,
    /// A question to a guest agent.
    Agent,
}

/// A call that waits to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallRequest {
    /// The endpoint that it is sent to.
    pub endpoint: String,
    /// The node that does its work; none if the endpoint answers it itself.
    pub node: Option<NodeName>,
    pub purpose: CallPurpose,
    /// Names calls that take equally long.
    pub class: String,
}

/// A call that waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallTicket(u64);

/// How a call ended, as far as it says something about the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// It was answered.
    Answered,
    /// The node that does the work did not answer its own front end in time.
    NodeBusy,
    /// The endpoint did not answer in time.
    Silent,
    /// Its end says nothing: it broke, found no connection, or was never sent.
    Inconclusive,
}

/// How many calls run and wait at an endpoint or node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallLoad {
    /// The name of the endpoint or node.
    pub place: String,
    pub is_endpoint: bool,
    /// Calls that run.
    pub running: u32,
    /// Calls that wait.
    pub waiting: u32,
    /// Calls that may run at once.
    pub limit: u32,
}

/// The calls of one cluster that wait and run.
#[derive(Debug, Default)]
pub struct CallQueue {
    endpoints: BTreeMap<String, Endpoint>,
    nodes: BTreeMap<NodeName, Node>,
    calls: BTreeMap<CallTicket, Call>,
    last: u64,
}

#[derive(Debug)]
struct Call {
    request: CallRequest,
    /// When it started, and the load of its endpoint and node at that time; none while it waits.
    started: Option<Started>,
}

#[derive(Debug, Clone, Copy)]
struct Started {
    at: Moment,
    endpoint: limit::Load,
    node: Option<limit::Load>,
}

#[derive(Debug)]
struct Endpoint {
    limit: CallLimit,
    /// Vital calls that run.
    vital: u32,
    urgent: VecDeque<CallTicket>,
    queues: BTreeMap<Option<NodeName>, Queue>,
    /// The node that was served last.
    served: Option<Option<NodeName>>,
    waiting: usize,
}

impl Default for Endpoint {
    fn default() -> Self {
        Self {
            limit: CallLimit::new(ENDPOINT_LIMITS),
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
    limit: CallLimit,
    /// Questions to guest agents that run.
    agents: u32,
}

impl Default for Node {
    fn default() -> Self {
        Self { limit: CallLimit::new(NODE_LIMITS), agents: 0 }
    }
}

/// Calls that wait for one node.
#[derive(Debug, Default)]
struct Queue {
    changes: VecDeque<CallTicket>,
    reads: VecDeque<CallTicket>,
    agents: VecDeque<CallTicket>,
    turn: u32,
}

impl Queue {
    fn of(&mut self, purpose: CallPurpose) -> &mut VecDeque<CallTicket> {
        match purpose {
            CallPurpose::Vital | CallPurpose::Change => &mut self.changes,
            CallPurpose::Read => &mut self.reads,
            CallPurpose::Agent => &mut self.agents,
        }
    }

    fn len(&self) -> usize {
        self.changes.len() + self.reads.len() + self.agents.len()
    }

    /// The next call; a question to a guest agent only when one more may run.
    fn next(&mut self, agent_fits: bool) -> Option<CallTicket> {
        let order = match self.turn % TURNS_PER_CYCLE {
            2 | 5 => [CallPurpose::Read, CallPurpose::Change, CallPurpose::Agent],
            7 => [CallPurpose::Agent, CallPurpose::Change, CallPurpose::Read],
            _ => [CallPurpose::Change, CallPurpose::Read, CallPurpose::Agent],
        };
        let kinds =
            order.into_iter().filter(|purpose| *purpose != CallPurpose::Agent || agent_fits);
        let ticket = kinds.into_iter().find_map(|purpose| self.of(purpose).pop_front())?;
        self.turn = self.turn.wrapping_add(1);
        Some(ticket)
    }
}

impl CallQueue {
    /// Puts a call into the queue; none when too many wait already.
    pub fn enqueue(&mut self, request: CallRequest) -> Option<CallTicket> {
        let endpoint = self.endpoints.entry(request.endpoint.clone()).or_default();
        let waiting = match request.purpose {
            CallPurpose::Vital => endpoint.urgent.len(),
            CallPurpose::Change | CallPurpose::Read | CallPurpose::Agent => endpoint.waiting,
        };
        if waiting >= WAITING_CALLS_MAX {
            return None;
        }
        self.last += 1;
        let ticket = CallTicket(self.last);
        endpoint.waiting += 1;
        match request.purpose {
            CallPurpose::Vital => endpoint.urgent.push_back(ticket),
            purpose @ (CallPurpose::Change | CallPurpose::Read | CallPurpose::Agent) => {
                endpoint
                    .queues
                    .entry(request.node.clone())
                    .or_default()
                    .of(purpose)
                    .push_back(ticket);
            }
        }
        self.calls.insert(ticket, Call { request, started: None });
        Some(ticket)
    }

    /// Starts the calls that have room now, and returns them.
    pub fn admit(&mut self, now: Moment) -> Vec<CallTicket> {
        let mut admitted = Vec::new();
        for endpoint in self.endpoints.values_mut().filter(|endpoint| endpoint.waiting > 0) {
            while let Some(ticket) = endpoint.next(&self.nodes, now) {
                let Some(call) = self.calls.get_mut(&ticket) else { continue };
                endpoint.waiting = endpoint.waiting.saturating_sub(1);
                let more = endpoint.waiting > 0;
                let node = call.request.node.as_ref().map(|name| {
                    let node = self.nodes.entry(name.clone()).or_default();
                    node.agents += u32::from(call.request.purpose == CallPurpose::Agent);
                    node.limit.begin(more, now)
                });
                let load = match call.request.purpose {
                    CallPurpose::Vital => {
                        endpoint.vital += 1;
                        limit::Load::default()
                    }
                    CallPurpose::Change | CallPurpose::Read | CallPurpose::Agent => {
                        endpoint.limit.begin(more, now)
                    }
                };
                call.started = Some(Started { at: now, endpoint: load, node });
                admitted.push(ticket);
            }
        }
        admitted
    }

    /// Removes a call that has ended, or was given up before it ran.
    pub fn end(&mut self, ticket: CallTicket, end: CallEnd, now: Moment) {
        let Some(Call { request, started }) = self.calls.remove(&ticket) else { return };
        let Some(endpoint) = self.endpoints.get_mut(&request.endpoint) else { return };
        let Some(started) = started else {
            endpoint.leave(ticket, &request);
            return;
        };
        // Only the duration of a read shows how fast its node is: a change waits for locks, a
        // question for its guest.
        let took = (end == CallEnd::Answered && request.purpose == CallPurpose::Read)
            .then(|| now - started.at);
        if request.purpose == CallPurpose::Vital {
            endpoint.vital = endpoint.vital.saturating_sub(1);
        } else {
            endpoint.limit.end(took.map(|took| (request.class.as_str(), took, started.endpoint)));
        }
        if end == CallEnd::Silent || (end == CallEnd::NodeBusy && request.node.is_none()) {
            endpoint.limit.narrow(now);
        }
        let node = request.node.as_ref().and_then(|name| self.nodes.get_mut(name));
        if let (Some(node), Some(load)) = (node, started.node) {
            node.agents =
                node.agents.saturating_sub(u32::from(request.purpose == CallPurpose::Agent));
            node.limit.end(took.map(|took| (request.class.as_str(), took, load)));
            if matches!(end, CallEnd::NodeBusy | CallEnd::Silent) {
                node.limit.narrow(now);
            }
        }
    }

    /// How many calls wait for the endpoint of this call, itself included.
    pub fn waiting_with(&self, ticket: CallTicket) -> usize {
        let endpoint = self.calls.get(&ticket).map(|call| call.request.endpoint.as_str());
        endpoint.and_then(|name| self.endpoints.get(name)).map_or(0, |endpoint| endpoint.waiting)
    }

    /// The load of every endpoint and node.
    pub fn loads(&self, now: Moment) -> Vec<CallLoad> {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let endpoints = self.endpoints.iter().map(|(name, endpoint)| CallLoad {
            place: name.clone(),
            is_endpoint: true,
            running: endpoint.limit.running() + endpoint.vital,
            waiting: count(endpoint.waiting),
            limit: endpoint.limit.allowed(now),
        });
        let nodes = self.nodes.iter().map(|(name, node)| {
            let queues = self.endpoints.values().filter_map(|e| e.queues.get(&Some(name.clone())));
            CallLoad {
                place: name.to_string(),
                is_endpoint: false,
                running: node.limit.running(),
                waiting: count(queues.map(Queue::len).sum()),
                limit: node.limit.allowed(now),
            }
        });
        endpoints.chain(nodes).collect()
    }
}

impl Endpoint {
    /// The next call that has room.
    fn next(&mut self, nodes: &BTreeMap<NodeName, Node>, now: Moment) -> Option<CallTicket> {
        if self.vital < VITAL_CALLS_MAX
            && let Some(ticket) = self.urgent.pop_front()
        {
            return Some(ticket);
        }
        if self.limit.running() >= self.limit.allowed(now) {
            return None;
        }
        let after =
            |served: &Option<NodeName>| self.served.as_ref().is_none_or(|last| served > last);
        let later = self.queues.keys().filter(|name| after(name)).cloned();
        let earlier = self.queues.keys().filter(|name| !after(name)).cloned();
        let order: Vec<Option<NodeName>> = later.chain(earlier).collect();
        for name in order {
            let node = name.as_ref().and_then(|name| nodes.get(name));
            let full = node.is_some_and(|node| node.limit.running() >= node.limit.allowed(now));
            let agent_fits = node.is_none_or(|node| node.agents < AGENT_CALLS_MAX);
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

    /// Removes a call that waits.
    fn leave(&mut self, ticket: CallTicket, request: &CallRequest) {
        self.waiting = self.waiting.saturating_sub(1);
        if request.purpose == CallPurpose::Vital {
            return self.urgent.retain(|other| *other != ticket);
        }
        let Some(queue) = self.queues.get_mut(&request.node) else { return };
        queue.of(request.purpose).retain(|other| *other != ticket);
        if queue.len() == 0 {
            self.queues.remove(&request.node);
        }
    }
}
