//! What can happen to a cloud, and what it can want done.

use std::sync::Arc;
use std::time::Duration;

use drover_model::fault::Fault;
use drover_model::id::{ClusterId, TemplateId};
use drover_model::ports::ClusterObservation;
use drover_model::size::Size;
use drover_model::spec::CloudSpec;
use drover_model::state_machine::Timed;
use drover_model::status::Standing;

/// What can happen to a cloud.
#[derive(Debug, Clone)]
pub enum Event {
    /// A spec comes into force; none when the cloud left the configuration.
    Applied(Option<Arc<CloudSpec>>),
    /// The service stops: nothing is started any more.
    Stopped,
    /// Somebody must know at once who it is.
    Ask,
    /// The pause after a question is over. Counts only if nothing was asked since.
    AskDue { stamp: u64 },
    /// It said who it is, or failed to.
    Identified { stamp: u64, observation: Result<ClusterObservation, Fault> },
    /// The pin is durable, or could not be made so.
    PinWritten { stamp: u64, cluster: ClusterId, written: Result<(), String> },
    /// An answer that came through it speaks against it.
    Suspected(Fault),
    /// An agent lives: found when this actor was started again, ahead of its template's news.
    Found { template: TemplateId, standing: Standing },
    /// A template's agents changed; `over` when it has none left and is not configured.
    News { template: TemplateId, live: u32, released: u32, over: bool },
    /// A template's warm pool lacks so many agents.
    WarmNeed { template: TemplateId, count: u32 },
    /// The herd wants agents for demand.
    Wanted { template: TemplateId, size: Size, count: u32 },
    /// An operator wants agents.
    Provisioned { template: TemplateId, count: u32 },
    /// All messages that waited are handled: warm pools get what room there is.
    Settle,
}

impl Timed for Event {
    fn needs_time(&self) -> bool {
        match self {
            Self::Identified { .. } | Self::PinWritten { .. } | Self::Suspected(_) => true,
            Self::Applied(_)
            | Self::Stopped
            | Self::Ask
            | Self::AskDue { .. }
            | Self::Found { .. }
            | Self::News { .. }
            | Self::WarmNeed { .. }
            | Self::Wanted { .. }
            | Self::Provisioned { .. }
            | Self::Settle => false,
        }
    }
}

/// What the body is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Record which cluster the cloud leads to, and say when it is durable.
    Pin(ClusterId),
    /// The cloud leads to this cluster and works.
    Leads(ClusterId),
    /// The cloud leads to this cluster, and not to its own.
    Elsewhere(ClusterId),
    /// Ask the cloud who it is.
    Ask,
    /// Ask after this time.
    AskIn(Duration),
    /// It was tried: say what came of it, and ask again after about this time.
    AskAgain(Duration),
    /// Have a template start agents in so many reserved slots; for its warm pool where none of any size
    /// are `asked` for.
    Begin { template: TemplateId, reserved: u32, asked: Option<(Size, u32)> },
    /// Have a template start what an operator wants. `short` says why it is fewer.
    Provision { template: TemplateId, reserved: u32, short: Option<String> },
    /// Nothing that the herd wants is started: there is no room.
    Refuse,
}
