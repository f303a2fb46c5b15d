//! What surrounds each page: who looks, what they may do, and where they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use drover_api::{EventKind, Role};

use crate::assets;
use crate::hints::Hints;

/// A page of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    Herd,
    Agents,
    Leases,
    Jobs,
    Nodes,
    Configuration,
    Events,
    Usage,
    Audit,
    Docs,
    /// None of them.
    Other,
}

impl Tab {
    /// Those of the navigation: each with its address, its name, and the key behind `g`.
    pub(crate) const ALL: [(Self, &'static str, &'static str, char); 10] = [
        (Self::Herd, "/", "Herd", 'h'),
        (Self::Agents, "/agents", "Agents", 'a'),
        (Self::Leases, "/leases", "Leases", 'l'),
        (Self::Jobs, "/jobs", "Jobs", 'j'),
        (Self::Nodes, "/nodes", "Nodes", 'n'),
        (Self::Configuration, "/configuration", "Configuration", 'c'),
        (Self::Events, "/events", "Events", 'e'),
        (Self::Usage, "/usage", "Usage", 's'),
        (Self::Audit, "/audit", "Audit", 'u'),
        (Self::Docs, "/docs", "Book", 'd'),
    ];
}

/// Clusters by fingerprint, each with its clouds.
pub type Clusters = BTreeMap<String, Vec<String>>;

/// What surrounds a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Where they are.
    pub tab: Tab,
    /// The principal that looks.
    pub principal: String,
    /// What they may do.
    pub role: Role,
    /// What the script sends along where it changes something; blank for callers that no cookie names.
    pub csrf: String,
    /// Whether they can log out.
    pub has_session: bool,
    /// How many things need a look: what the first page lists.
    pub looks: usize,
    /// Clusters, each with its clouds.
    pub clusters: Clusters,
    /// The version of drover.
    pub version: &'static str,
    /// What reasons lead to.
    pub hints: Arc<Hints>,
}

impl Frame {
    /// The links to the pages, those for this role alone.
    pub(crate) fn links(&self) -> Vec<Link> {
        let link =
            |(tab, address, name, key)| Link { address, name, key, is_here: tab == self.tab };
        let is_theirs = |tab: Tab| match tab {
            // They ask the clusters.
            Tab::Nodes => self.may_operate(),
            // Its rows name owners.
            Tab::Usage => self.may_operate(),
            Tab::Audit => self.may_admin(),
            Tab::Herd
            | Tab::Agents
            | Tab::Leases
            | Tab::Jobs
            | Tab::Configuration
            | Tab::Events
            | Tab::Docs
            | Tab::Other => true,
        };
        Tab::ALL.into_iter().filter(|(tab, ..)| is_theirs(*tab)).map(link).collect()
    }

    /// What a cluster is called: its clouds, and its fingerprint where none leads there.
    pub(crate) fn cluster(&self, fingerprint: &str) -> String {
        match self.clusters.get(fingerprint).map(Vec::as_slice) {
            Some([cloud]) => format!("cloud {cloud}"),
            Some(clouds @ [_, _, ..]) => format!("clouds {}", clouds.join(" and ")),
            Some([]) | None => format!("cluster {fingerprint}"),
        }
    }

    /// A text that calls clusters by their clouds.
    pub(crate) fn named(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for fingerprint in self.clusters.keys() {
            let named = format!("the cluster of {}", self.cluster(fingerprint));
            text = text.replace(&format!("cluster `{fingerprint}`"), &named);
            text = text.replace(&format!("cluster {fingerprint}"), &named);
        }
        text
    }

    pub(crate) fn may_operate(&self) -> bool {
        self.role >= Role::Operator
    }

    pub(crate) fn may_admin(&self) -> bool {
        self.role >= Role::Admin
    }

    /// The kinds of events after which a page is looked at again.
    pub(crate) fn kinds(&self) -> String {
        EventKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn style(&self) -> String {
        assets::address("page.css")
    }

    pub(crate) fn script(&self) -> String {
        assets::address("page.js")
    }

    /// The script of terminals.
    pub(crate) fn terminal_script(&self) -> String {
        assets::address("terminal.js")
    }

    pub(crate) fn icon(&self) -> String {
        assets::address("icon.svg")
    }
}

/// A link of the navigation.
pub(crate) struct Link {
    pub(crate) address: &'static str,
    pub(crate) name: &'static str,
    /// The key behind `g` that leads there.
    pub(crate) key: char,
    pub(crate) is_here: bool,
}
