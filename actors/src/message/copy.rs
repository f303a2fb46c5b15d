//! Copies of machines, and what agents are started for where no demand is.

use std::sync::Arc;

use drover_model::id::{AgentId, TemplateId};
use drover_model::record::Hold;
use drover_model::spec::TemplateSpec;
use drover_model::tenant::By;
use drover_runtime::reply::Reply;

use super::{Refusal, Target};

/// The command `HerdCommand::Copy`.
#[derive(Debug)]
pub struct CopyAsk {
    pub target: Target,
    /// The hold that the copy is for, from the moment it is ready.
    pub hold: Box<Hold>,
    pub by: By,
    /// Receives the copy once its hold is durable, or a refusal.
    pub reply: Reply<Result<Copied, Refusal>>,
}

/// The result of `HerdCommand::Copy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The agent that is the copy.
    pub agent: AgentId,
    /// The agent whose machine is copied.
    pub of: AgentId,
    pub template: TemplateId,
}

/// What agents are started for, where no demand is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// They are handed out as any other.
    Use,
    /// They are never handed out, and retire soon after they are ready.
    Trial,
    /// One copy of a machine, with this spec.
    Copy(Arc<TemplateSpec>),
}
