//! The nodes: what is free on them, and which agents are there.

use askama::Template;
use drover_api::{
    AgentOut, CloudOut, CordonIn, DrainIn, NodeOut, NodesOut, SpaceOut, StorageOut, UnreadOut,
    count,
};

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
    storages: Vec<Storage>,
    agents: Vec<AgentOut>,
    /// What its buttons send: a cloud of its cluster, as several clusters may have such a node.
    keep_out: String,
    use_again: String,
    /// How many guests there are, in words.
    guests: String,
}

/// A storage as a bar.
struct Storage {
    name: String,
    /// What there is and of which kind, in words.
    is: String,
    share: i64,
    is_bad: bool,
}

/// The memory of a node as a bar.
struct Room {
    others: i64,
    own: i64,
    free: String,
    all: String,
    cpus: String,
    /// What is in use of both at this moment, in words and as parts of the bar.
    used: String,
    used_share: i64,
    busy: String,
    busy_share: i64,
}

fn storage(out: &StorageOut) -> Storage {
    let shared = if out.shared { ", shared" } else { "" };
    let gib = |mebibytes: u64| show::gib(i64::try_from(mebibytes).unwrap_or(i64::MAX));
    let is = match out.space {
        Some(space) => format!(
            "{} of {} free ({}{shared})",
            gib(space.free_mb()),
            gib(space.size_mb),
            out.kind
        ),
        None if out.reached => format!("its size is not known ({}{shared})", out.kind),
        None => format!("cannot be reached from here ({}{shared})", out.kind),
    };
    Storage {
        name: out.storage.clone(),
        is,
        share: out.space.map_or(0, |space| share(space.percent() as f64 / 100.0)),
        is_bad: !out.reached || out.space.is_some_and(SpaceOut::is_nearly_full),
    }
}

/// A part of one as a part of the bar.
fn share(part: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "it is at most the bar")]
    let share = (part.clamp(0.0, 1.0) * BAR as f64) as i64;
    share
}

impl NodesPage {
    /// With the agents that are known to be on each; the clouds say which cluster an agent is in.
    pub fn new(frame: Frame, out: NodesOut, agents: &[AgentOut], clouds: &[CloudOut]) -> Self {
        let nodes = out.nodes.into_iter().map(|node| {
            let leads_here = |cloud: &&CloudOut| cloud.cluster.as_ref() == Some(&node.cluster);
            let of_cluster = |one: &&AgentOut| {
                let cloud = one.template.split('/').next();
                clouds.iter().filter(leads_here).any(|known| Some(known.id.as_str()) == cloud)
            };
            let is_here = |one: &&AgentOut| one.node.as_ref() == Some(&node.node);
            let here = agents.iter().filter(is_here).filter(of_cluster).cloned();
            let cloud = clouds.iter().find(leads_here).map(|cloud| cloud.id.clone());
            let keep_out = CordonIn { cloud: cloud.clone() };
            let use_again = DrainIn { cloud, undrain: true };
            let memory = node.room.as_ref().map(|room| {
                let all = i64::try_from(room.memory_mb).unwrap_or(i64::MAX).max(1);
                let part = |mebibytes: u64| {
                    i64::try_from(mebibytes).unwrap_or(i64::MAX).saturating_mul(BAR) / all
                };
                let busy = room.busy_cpus / room.cpus.max(1.0);
                let others = part(room.others_mb).min(BAR);
                Room {
                    others,
                    own: part(room.reserved_mb).min(BAR - others),
                    free: show::gib(room.free_mb),
                    all: show::gib(all),
                    cpus: format!("{:.1} of {:.0}", room.free_cpus, room.cpus),
                    used: show::gib(i64::try_from(room.used_mb).unwrap_or(i64::MAX)),
                    used_share: part(room.used_mb).min(BAR),
                    busy: format!("{:.1} of {:.0}", room.busy_cpus, room.cpus),
                    busy_share: share(busy),
                }
            });
            Node {
                is_well: node.state == "online",
                is_kept_out: ["cordoned", "drained"].contains(&node.state.as_str()),
                memory,
                storages: node.storages.iter().map(storage).collect(),
                agents: here.collect(),
                keep_out: serde_json::to_string(&keep_out).unwrap_or_default(),
                use_again: serde_json::to_string(&use_again).unwrap_or_default(),
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
