//! Messages between a cloud and the herd.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::Message;
use drover_model::fault::Fault;
use drover_model::id::{CloudId, ClusterId, NodeName, TemplateId};
use drover_model::record::Reason;
use drover_model::size::Size;
use drover_model::spec::{CloudSpec, TemplateSpec};
use tokio::sync::mpsc::UnboundedSender;

use crate::birth::{Adoption, Lanes};
use crate::message::{ProvisionReply, Purpose};
use crate::template::TemplateNews;

/// To a cloud, from the herd.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum CloudCommand {
    /// A spec and its templates come into force; no spec when the cloud left the configuration.
    Apply {
        /// The cloud's own spec.
        spec: Option<Arc<CloudSpec>>,
        templates: BTreeMap<TemplateId, Arc<TemplateSpec>>,
        /// Agents to take over before anything is started.
        adopt: Vec<Adoption>,
    },
    /// The ways to its cluster.
    Lanes(Lanes),
    /// Take over an orphan.
    Adopt(Adoption),
    /// Start agents for demand.
    Provision {
        /// Of which template.
        template: TemplateId,
        /// Beside the size of the template.
        size: Size,
        count: u32,
    },
    /// Start agents because an operator says so.
    Begin {
        /// Of which template.
        template: TemplateId,
        count: u32,
        purpose: Purpose,
        /// Filled with what came of it.
        reply: ProvisionReply,
    },
    /// Let idle agents go.
    Reap {
        /// Whether the warm minimum goes too.
        all: bool,
        reason: Reason,
        /// Gets a number from each template.
        tally: Option<UnboundedSender<u32>>,
    },
    /// An answer that came through it speaks against it: ask at once whether it still works.
    Suspect(Fault),
    /// What is known of its cluster has changed: ask at once who it is.
    AskAgain,
    /// An operator says that a template works again.
    ResetBreaker(TemplateId),
    /// An image has a new version: templates that wait for one look at once.
    VersionBuilt(TemplateId),
    /// A node of its cluster is used again: templates that found no place try at once.
    NodeOpened(NodeName),
    /// The service stops: start nothing.
    Stop,
    /// The actor is not needed any more.
    Leave,
}

/// From a cloud to the herd.
#[derive(Debug, Clone, PartialEq, Message)]
#[rtype(result = "()")]
pub enum CloudReport {
    /// How many agents it has room for.
    Room { cloud: CloudId, room: u32 },
    /// A template's news.
    News(Box<TemplateNews>),
    /// Starts that did not reach the template: there was no room.
    NotStarted { template: TemplateId, size: Size, count: u32 },
    /// Its cluster could not learn from it whether an id is free.
    Silent(CloudId),
    /// It works, and leads to this cluster.
    Leads { cloud: CloudId, cluster: ClusterId },
    /// It leads to this cluster, and not to its own: nothing is done there.
    Elsewhere {
        cloud: CloudId,
        /// The cluster it leads to now.
        cluster: ClusterId,
    },
    /// It was tried: its version, or why it cannot be worked with.
    Tried { cloud: CloudId, outcome: Result<String, String> },
    /// It is not configured, and its last agent is gone.
    Empty(CloudId),
}
