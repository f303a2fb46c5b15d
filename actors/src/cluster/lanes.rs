//! How many clones run at once on each storage and each node of a cluster; who waits is served
//! in the order of asking, past those that wait for another storage or node.

use std::collections::{BTreeMap, VecDeque};

use crate::id::{AgentId, NodeName};
use crate::spec::TemplateSpec;

/// What a clone keeps busy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// The storage it writes to; one name for each template's own storage.
    pub storage: String,
    /// The node it runs on.
    pub node: NodeName,
}

impl Track {
    /// What a clone of this template keeps busy when the template is on this node.
    pub fn of(spec: &TemplateSpec, node: NodeName) -> Self {
        let own = || format!("the storage of template {}", spec.source);
        Self { storage: spec.target_storage.clone().unwrap_or_else(own), node }
    }
}

/// How many at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    /// Clones at once per storage.
    pub per_storage: u32,
    /// Clones at once per node.
    pub per_node: u32,
}

/// Who runs and who waits.
#[derive(Debug, Clone, Default)]
pub struct Lanes {
    running: BTreeMap<AgentId, Track>,
    waiting: VecDeque<(AgentId, Track)>,
}

impl Lanes {
    /// Counts a clone that is under way already, whatever the widths.
    pub fn hold(&mut self, agent: AgentId, track: Track) {
        self.running.insert(agent, track);
    }

    /// Who runs.
    pub fn running(&self) -> impl Iterator<Item = &AgentId> {
        self.running.keys()
    }

    /// Lines an agent up; a second ask changes nothing.
    pub fn ask(&mut self, agent: AgentId, track: Track) {
        let waits = self.waiting.iter().any(|(other, _)| *other == agent);
        if !waits && !self.running.contains_key(&agent) {
            self.waiting.push_back((agent, track));
        }
    }

    /// Takes an agent's place away, running or waiting.
    pub fn free(&mut self, agent: &AgentId) {
        self.running.remove(agent);
        self.waiting.retain(|(other, _)| other != agent);
    }

    /// Lets run whoever may. A width of zero counts as one: nothing could ever run otherwise.
    pub fn admit(&mut self, width: Width) -> Vec<(AgentId, Track)> {
        let mut storages: BTreeMap<String, u32> = BTreeMap::new();
        let mut nodes: BTreeMap<NodeName, u32> = BTreeMap::new();
        for track in self.running.values() {
            *storages.entry(track.storage.clone()).or_default() += 1;
            *nodes.entry(track.node.clone()).or_default() += 1;
        }
        let mut admitted = Vec::new();
        let mut left = VecDeque::new();
        for (agent, track) in std::mem::take(&mut self.waiting) {
            let storage = storages.entry(track.storage.clone()).or_default();
            let node = nodes.entry(track.node.clone()).or_default();
            if *storage < width.per_storage.max(1) && *node < width.per_node.max(1) {
                *storage += 1;
                *node += 1;
                self.running.insert(agent.clone(), track.clone());
                admitted.push((agent, track));
            } else {
                left.push_back((agent, track));
            }
        }
        self.waiting = left;
        admitted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIDTH: Width = Width { per_storage: 2, per_node: 1 };

    fn agent(n: usize) -> AgentId {
        AgentId::new(format!("a{n}"))
    }

    fn track(storage: &str, node: &str) -> Track {
        Track { storage: storage.into(), node: NodeName::new(node) }
    }

    fn names(admitted: Vec<(AgentId, Track)>) -> Vec<String> {
        admitted.into_iter().map(|(agent, _)| agent.to_string()).collect()
    }

    // Invariant: never more at once than the widths, first come first served.

    #[test]
    fn a_busy_node_makes_the_next_wait_and_another_node_does_not() {
        let mut lanes = Lanes::default();
        lanes.ask(agent(1), track("nfs", "pve1"));
        lanes.ask(agent(2), track("nfs", "pve1"));
        lanes.ask(agent(3), track("nfs", "pve2"));
        assert_eq!(names(lanes.admit(WIDTH)), ["a1", "a3"]);
        lanes.free(&agent(1));
        assert_eq!(names(lanes.admit(WIDTH)), ["a2"]);
    }

    #[test]
    fn a_busy_storage_holds_all_its_nodes_back() {
        let mut lanes = Lanes::default();
        for n in 1..4 {
            lanes.ask(agent(n), track("nfs", &format!("pve{n}")));
        }
        assert_eq!(names(lanes.admit(WIDTH)), ["a1", "a2"]);
        lanes.free(&agent(3));
        lanes.free(&agent(1));
        assert!(lanes.admit(WIDTH).is_empty());
    }

    #[test]
    fn asking_twice_takes_one_place() {
        let mut lanes = Lanes::default();
        lanes.ask(agent(1), track("nfs", "pve1"));
        lanes.ask(agent(1), track("nfs", "pve1"));
        assert_eq!(names(lanes.admit(WIDTH)), ["a1"]);
        lanes.ask(agent(1), track("nfs", "pve1"));
        lanes.free(&agent(1));
        assert!(lanes.admit(WIDTH).is_empty());
    }

    proptest! {
        #[test]
        fn the_widths_hold_under_any_order(
            steps in prop::collection::vec((0usize..12, 0u8..3, 0u8..3, any::<bool>()), 1..120)
        ) {
            let mut lanes = Lanes::default();
            for (n, storage, node, free) in steps {
                if free {
                    lanes.free(&agent(n));
                } else {
                    lanes.ask(agent(n), track(&format!("s{storage}"), &format!("n{node}")));
                }
                lanes.admit(WIDTH);
                for name in 0..3 {
                    let on = |storage: &str| {
                        lanes.running.values().filter(|t| t.storage == storage).count()
                    };
                    let writing = on(&format!("s{name}"));
                    prop_assert!(writing <= 2);
                    let node = NodeName::new(format!("n{name}"));
                    let cloning = lanes.running.values().filter(|t| t.node == node).count();
                    prop_assert!(cloning <= 1);
                }
            }
        }
    }
}
