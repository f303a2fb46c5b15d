//! The facts that the history has a use for.

use drover_model::fact::What;
use drover_model::id::{AgentId, CloudId, SourceId, TemplateId};
use drover_model::record::Reason;
use drover_model::status::{AgentStatus, CloudStatus, LeaseStatus};

/// A fact of which a record is made.
pub(super) enum OfUse<'a> {
    Agent(&'a AgentStatus),
    AgentGone {
        agent: &'a AgentId,
        template: &'a TemplateId,
        reason: &'a Reason,
        phases: &'a [(String, u64)],
    },
    Lease(&'a LeaseStatus),
    JobLost {
        source: &'a SourceId,
        job: Option<&'a str>,
    },
    SourceGone(&'a SourceId),
    Cloud(&'a CloudStatus),
    CloudGone(&'a CloudId),
    TemplateGone(&'a TemplateId),
}

/// Whether the history has a use for a fact: others need not be sent to it.
pub fn takes(what: &What) -> bool {
    OfUse::of(what).is_some()
}

impl<'a> OfUse<'a> {
    pub(super) fn of(what: &'a What) -> Option<Self> {
        Some(match what {
            What::Agent(status) => Self::Agent(status),
            What::AgentGone { agent, template, reason, phases } => {
                Self::AgentGone { agent, template, reason, phases }
            }
            What::Lease(status) => Self::Lease(status),
            What::JobLost { source, job, .. } => Self::JobLost { source, job: job.as_deref() },
            What::SourceGone { source } => Self::SourceGone(source),
            What::Cloud(status) => Self::Cloud(status),
            What::CloudGone { cloud } => Self::CloudGone(cloud),
            What::TemplateGone { template } => Self::TemplateGone(template),
            What::ConfigApplied { .. }
            | What::ConfigRefused { .. }
            | What::ConfigSynced { .. }
            | What::ConfigNotSynced { .. }
            | What::Ordered { .. }
            | What::Step { .. }
            | What::Alarm { .. }
            | What::OtherDrover { .. }
            | What::Source(_)
            | What::Template(_)
            | What::Breaker(_)
            | What::Resets { .. }
            | What::HoldNext { .. }
            | What::AddressPools { .. }
            | What::Image(_)
            | What::Declared(_)
            | What::Reconciled { .. }
            | What::Restarted { .. } => return None,
        })
    }
}
