//! The nodes: what is free on them, and which agents are there.

use askama::Template;
use drover_api::{AgentOut, NodeOut, NodesOut, UnreadOut, count};

use crate::frame::Frame;
use crate::show;

/// The width of a bar, in units of the drawing.
const BAR: i64 = 1000;

/// The map of nodes.
#[derive(Template)]
#[template(path = "nodes.html")]
pub struct NodesPage {
    frame: Frame,
    nodes: Vec<Node>,
    unread: Vec<UnreadOut>,
}

struct Node {
    out: NodeOut,
    /// Whether it takes agents.
    is_well: bool,
    is_kept_out: bool,
    memory: Option<Room>,
    agents: Vec<AgentOut>,
    /// How many guests there are, in words.
    guests: String,
}

/// The memory of a node as a bar.
struct Room {
    others: i64,
    own: i64,
    free: String,
    all: String,
    cpus: String,
}

impl NodesPage {
    /// With the agents that are known to be on each.
    pub fn new(frame: Frame, out: NodesOut, agents: &[AgentOut]) -> Self {
        let nodes = out.nodes.into_iter().map(|node| {
            let here = agents.iter().filter(|one| one.node.as_ref() == Some(&node.node)).cloned();
            let memory = node.room.as_ref().map(|room| {
                let all = i64::try_from(room.memory_mb).unwrap_or(i64::MAX).max(1);
                let part = |mebibytes: u64| {
                    i64::try_from(mebibytes).unwrap_or(i64::MAX).saturating_mul(BAR) / all
                };
                let others = part(room.others_mb).min(BAR);
                Room {
                    others,
                    own: part(room.reserved_mb).min(BAR - others),
                    free: show::gib(room.free_mb),
                    all: show::gib(all),
                    cpus: format!("{:.1} of {:.0}", room.free_cpus, room.cpus),
                }
            });
            Node {
                is_well: node.state == "online",
                is_kept_out: ["cordoned", "drained"].contains(&node.state.as_str()),
                memory,
                agents: here.collect(),
                guests: format!(
                    "{} of drover, {} of others",
                    count(node.agents, "agent"),
                    count(node.guests, "guest")
                ),
                out: node,
            }
        });
        Self { frame, nodes: nodes.collect(), unread: out.unread }
    }
}
