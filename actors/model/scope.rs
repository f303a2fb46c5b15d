//! What breakers stand before, beside templates.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::{Culprit, Fault, FaultKind};
use crate::id::{CloudId, ClusterId, NodeName};
use crate::place::Place;
use crate::template_image::Origin;

/// What a breaker stands before, beside templates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Scope {
    /// A node of a cluster.
    Node(ClusterId, NodeName),
    /// A storage of a cluster, or of one of its nodes where it is not shared.
    Storage(ClusterId, Option<NodeName>, String),
    Cloud(CloudId),
}

impl Scope {
    /// Its name without the cluster, which does wherever it is unique.
    pub fn short(&self) -> String {
        match self {
            Self::Node(_, node) => format!("node:{node}"),
            Self::Storage(_, None, storage) => format!("storage:{storage}"),
            Self::Storage(_, Some(node), storage) => format!("storage:{node}/{storage}"),
            Self::Cloud(cloud) => format!("cloud:{cloud}"),
        }
    }

    /// Whether this name means it.
    pub fn answers_to(&self, name: &str) -> bool {
        self.to_string() == name || self.short() == name
    }

    /// Who a fault is charged to, when that is neither a guest nor a template.
    ///
    /// That a node cannot be reached is charged to the node, although nobody is to blame for it:
    /// what else could be started is started on another one.
    /// A storage is taken for a shared one while nobody has looked: the next failure is charged to
    /// what it is.
    pub fn charged(fault: &Fault, cluster: &ClusterId, place: Option<&Place>) -> Option<Self> {
        let counts = fault.kind.counts_against_breaker();
        let silent = matches!(fault.kind, FaultKind::Contention | FaultKind::Unreachable);
        match &fault.culprit {
            Culprit::Node(node) if counts || silent => {
                Some(Self::Node(cluster.clone(), node.clone()))
            }
            Culprit::Storage(storage) if counts => {
                let origin = place.and_then(|place| place.origin.as_ref());
                Some(Self::storage(cluster, storage, origin))
            }
            Culprit::Cloud(cloud) if counts => Some(Self::Cloud(cloud.clone())),
            Culprit::Guest
            | Culprit::Template
            | Culprit::Node(_)
            | Culprit::Storage(_)
            | Culprit::Cloud(_)
            | Culprit::Source(_) => None,
        }
    }

    /// Whether a fault is charged to such a place, whatever its cluster.
    pub fn is_charged(fault: &Fault) -> bool {
        Self::charged(fault, &ClusterId::new(""), None).is_some()
    }

    /// A storage that a clone of this origin makes use of.
    fn storage(cluster: &ClusterId, storage: &str, origin: Option<&Origin>) -> Self {
        let own = origin.filter(|origin| origin.local.contains(storage));
        let own = own.map(|origin| origin.home.clone());
        Self::Storage(cluster.clone(), own, storage.to_owned())
    }

    /// Everything that an agent in this place makes use of.
    pub fn used(place: &Place, cloud: &CloudId) -> Vec<Self> {
        Self::of(&place.cluster, &place.node, place.origin.as_ref(), cloud)
    }

    /// Everything that a clone of this origin makes use of that runs on a node.
    pub fn of(
        cluster: &ClusterId,
        node: &NodeName,
        origin: Option<&Origin>,
        cloud: &CloudId,
    ) -> Vec<Self> {
        let home = origin.map(|origin| &origin.home);
        let nodes: BTreeSet<&NodeName> = home.into_iter().chain([node]).collect();
        let storages = origin.into_iter().flat_map(|origin| &origin.storages);
        let nodes = nodes.into_iter().map(|node| Self::Node(cluster.clone(), node.clone()));
        let storages = storages.map(|name| Self::storage(cluster, name, origin));
        nodes.chain(storages).chain([Self::Cloud(cloud.clone())]).collect()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(cluster, node) => write!(f, "node:{cluster}/{node}"),
            Self::Storage(cluster, None, storage) => write!(f, "storage:{cluster}/{storage}"),
            Self::Storage(cluster, Some(node), storage) => {
                write!(f, "storage:{cluster}/{node}/{storage}")
            }
            Self::Cloud(cloud) => write!(f, "cloud:{cloud}"),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> Self {
        scope.to_string()
    }
}

impl TryFrom<String> for Scope {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no node, storage or cloud");
        let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
        let parts = || name.split_once('/').ok_or_else(wrong);
        match kind {
            "node" => parts()
                .map(|(cluster, node)| Self::Node(ClusterId::new(cluster), NodeName::new(node))),
            "storage" => parts().map(|(cluster, storage)| {
                let (node, storage) = match storage.split_once('/') {
                    Some((node, storage)) => (Some(NodeName::new(node)), storage),
                    None => (None, storage),
                };
                Self::Storage(ClusterId::new(cluster), node, storage.to_owned())
            }),
            "cloud" => Ok(Self::Cloud(CloudId::new(name))),
            _ => Err(wrong()),
        }
    }
}
