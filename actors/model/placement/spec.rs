//! What a template and its cloud say about where agents are put.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::term::Term;
use crate::id::NodeName;

/// How one of several nodes is chosen (`placement`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Strategy {
    /// The one nearest to the best and farthest from the worst in free memory and processors.
    #[default]
    Topsis,
    /// The one with the fewest agents, then the most free memory.
    Spread,
    /// The fullest that has room.
    Pack,
    /// The first that can be used, in the order written.
    Fixed,
}

/// What free memory and free processors count for `TOPSIS` (`placementWeights`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Weights {
    /// Of free memory.
    pub memory: u32,
    /// Of free processors.
    pub cpu: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { memory: 60, cpu: 40 }
    }
}

/// What must stay free on every node and storage of a cloud (`headroom`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Headroom {
    /// Memory of each node, in MiB.
    pub memory_mb: u64,
    /// Memory of each node, of a hundred parts.
    pub memory_percent: u64,
    /// Processors of each node, of a hundred parts.
    pub cpu_percent: u64,
    /// Space of each storage, in GiB.
    pub disk_gb: u64,
    /// Space of each storage, of a hundred parts.
    pub disk_percent: u64,
    /// Memory that may be promised, of a hundred parts of a node's (`memoryOvercommitPercent`).
    pub overcommit_percent: u64,
}

impl Default for Headroom {
    fn default() -> Self {
        Self {
            memory_mb: 0,
            memory_percent: 0,
            cpu_percent: 0,
            disk_gb: 0,
            disk_percent: 0,
            overcommit_percent: 100,
        }
    }
}

/// Whether volumes take their whole size at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Thickness {
    /// They grow as they are written.
    Thin,
    /// They take all of it when they are made.
    Thick,
}

impl Thickness {
    /// The word of the YAML.
    pub fn word(self) -> &'static str {
        match self {
            Self::Thin => "thin",
            Self::Thick => "thick",
        }
    }
}

/// Everything that is said about where a template's agents are put on one cloud.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementSpec {
    /// How one of several nodes is chosen.
    pub strategy: Strategy,
    /// What counts for `TOPSIS`.
    pub weights: Weights,
    /// Whether every node of the cluster will do, where none is named.
    pub anywhere: bool,
    /// Nodes that are taken first while they have room, in the order written (`preferredNodes`).
    pub preferred: Vec<NodeName>,
    /// Labels that a node must carry (`nodeSelector`).
    pub selector: BTreeSet<String>,
    /// Of the labels above, those that each node carries (`nodeLabels` of its cloud).
    pub labels: BTreeMap<NodeName, BTreeSet<String>>,
    /// For each of these a guest that matches it must be on the node.
    pub affinity: Vec<Term>,
    /// No guest that matches any of these may be on the node.
    pub anti_affinity: Vec<Term>,
    /// The most guests on a node, those of others included; none for no limit (`maxVmsPerNode`).
    pub max_guests: Option<u32>,
    /// Memory that must stay free on a node, in MiB (`minFreeMemory`).
    pub min_free_mb: u64,
    /// What must stay free on every node and storage.
    pub headroom: Headroom,
    /// Of which kind the storage of full clones must be (`storageClass`).
    pub thickness: Option<Thickness>,
}

impl PlacementSpec {
    /// Whether a node is taken before others while it has room.
    pub fn prefers(&self, node: &NodeName) -> bool {
        self.preferred.contains(node)
    }

    /// The place of a node among the preferred ones; all other nodes share the one behind them.
    pub fn preference(&self, node: &NodeName) -> usize {
        let at = self.preferred.iter().position(|one| one == node);
        at.unwrap_or(self.preferred.len())
    }
}
