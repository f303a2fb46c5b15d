//! What agents are cloned from: how it is sought, what was found, and which one was chosen.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ambient::fnv1a;
use crate::container::{GuestType, OsTemplate};
use crate::id::{AgentId, NodeName, VmId};
use crate::marks::parse_name;
use crate::placement::{Fleet, Sizes};

/// What to do where no guest has the VMID of a template: said to those who have it in `templateVmId`.
pub const CHECK_VMID: &str = "check `templateVmId`";

/// By what a template's guest is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sought {
    /// By its VMID (`templateVmId`).
    Id(VmId),
    /// By its name (`templateName`).
    Name(String),
    /// By a regular expression that its whole name matches (`templateNamePattern`).
    Pattern(String),
    /// By a tag (`templateTag`).
    Tag(String),
    /// By the image that it is a version of (`image`).
    Image(String),
    /// No template: the machine of an agent of this installation.
    Agent { agent: AgentId, vmid: VmId },
    /// A container's template, by one of the others.
    Container(Box<Self>),
    /// No guest: an archive that containers are made of (`osTemplate`).
    Os(OsTemplate),
}

impl Sought {
    /// The VMID, where that is what the template is found by.
    #[must_use]
    pub fn vmid(&self) -> Option<VmId> {
        match self {
            Self::Id(vmid) | Self::Agent { vmid, .. } => Some(*vmid),
            Self::Container(by) => by.vmid(),
            Self::Name(_) | Self::Pattern(_) | Self::Tag(_) | Self::Image(_) | Self::Os(_) => None,
        }
    }

    /// The same without the type of guest.
    #[must_use]
    pub fn by(&self) -> &Self {
        match self {
            Self::Container(by) => by,
            Self::Id(_)
            | Self::Name(_)
            | Self::Pattern(_)
            | Self::Tag(_)
            | Self::Image(_)
            | Self::Agent { .. }
            | Self::Os(_) => self,
        }
    }

    /// The type of the guest that is sought.
    #[must_use]
    pub fn guest(&self) -> GuestType {
        GuestType::of_listed(matches!(self, Self::Container(_) | Self::Os(_)))
    }
}

impl fmt::Display for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(vmid) => write!(f, "has VMID {vmid}"),
            Self::Name(name) => write!(f, "is called `{name}`"),
            Self::Pattern(pattern) => write!(f, "has a name that matches `{pattern}`"),
            Self::Tag(tag) => write!(f, "carries the tag `{tag}`"),
            Self::Image(name) => write!(f, "is a version of image `{name}`"),
            Self::Agent { agent, vmid } => write!(f, "is machine {vmid} of agent `{agent}`"),
            Self::Container(by) => write!(f, "is a container and {by}"),
            Self::Os(template) => write!(f, "can be made of `{}`", template.volume()),
        }
    }
}

/// Where a clone comes from, as it was chosen when its place was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The node the template is on; the clone may be meant for another one.
    pub home: NodeName,
    /// Storages that the clone reads or writes.
    pub storages: BTreeSet<String>,
    /// Those of them that are its home's own: other nodes have others of that name.
    #[serde(default)]
    pub local: BTreeSet<String>,
    /// The storage that its disk is on, where that is known.
    #[serde(default)]
    pub target: Option<String>,
    /// How big the clone is, its template's sizes where its spec says nothing.
    #[serde(default)]
    pub sizes: Sizes,
    /// Which version of what is sought it is ([`Candidate::version`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Why this one, for people.
    pub why: String,
}

/// A guest that clones may be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub vmid: VmId,
    /// The node it is on.
    pub node: NodeName,
    pub name: String,
    /// When it was created, in Unix seconds; none when Proxmox does not say (`meta`).
    pub created: Option<u64>,
    /// Storages of its volumes.
    pub storages: BTreeSet<String>,
    /// A digest of its configuration.
    pub digest: String,
    /// How big it is, by its configuration, else by the list.
    pub sizes: Sizes,
}

impl Candidate {
    /// A text that no other guest has that is found for the same template, and that changes with the
    /// guest's configuration. `None` where its configuration could not be read.
    ///
    /// By its VMID a guest is not always read: that is all there is.
    #[must_use]
    pub fn version(&self, sought: &Sought) -> Option<String> {
        match sought.by() {
            Sought::Image(_) => parse_name(&self.name).map(|(_, version)| version.to_string()),
            Sought::Id(vmid) => Some(vmid.to_string()),
            Sought::Os(template) => Some(template.volume()),
            Sought::Agent { .. } => None,
            Sought::Name(_) | Sought::Pattern(_) | Sought::Tag(_) | Sought::Container(_) => {
                (!self.digest.is_empty()).then(|| format!("{}-{}", self.vmid, self.digest))
            }
        }
    }
}

/// What was found for a template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Templates that fit.
    pub candidates: Vec<Candidate>,
    /// What the same read says of the cluster.
    pub fleet: Arc<Fleet>,
    /// Whether every template that fits could be read.
    pub whole: bool,
}

impl Found {
    /// Which version of the templates it is: changes when one comes, goes or is changed; none while
    /// one could not be read.
    pub fn version(&self) -> Option<String> {
        let mut all: Vec<String> =
            self.candidates.iter().map(|one| format!("{} {}", one.vmid, one.digest)).collect();
        all.sort();
        self.whole.then(|| format!("{:016x}", fnv1a(&all.join("\n"))))
    }

    /// Whether all nodes reach these storages; never without one.
    pub fn is_shared(&self, storages: &BTreeSet<String>) -> bool {
        // None are known of one that was not read.
        !storages.is_empty() && storages.iter().all(|one| self.fleet.is_shared(one))
    }
}
