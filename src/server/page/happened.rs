//! Events as the page shows them.

use drover_api::sentence;
use drover_model::fact::{Fact, What};
use drover_model::id::AgentId;
use drover_model::tenant::By;
use drover_page::EventRow;
use serde_json::Value;

use crate::reported::event_out;
use crate::shapes::rfc3339;
use crate::view::View;

/// The events that are kept, the last first; those of one agent alone where it is given.
pub(super) fn rows(view: &View, by: &By, agent: Option<&AgentId>) -> Vec<EventRow> {
    let events = view.kept_events();
    let wanted = events
        .iter()
        .rev()
        .filter(|event| agent.is_none_or(|agent| concerns(&event.fact.what, agent)));
    wanted.map(|event| row(view, by, event.id.to_string(), &event.fact)).collect()
}

fn row(view: &View, by: &By, id: String, fact: &Fact) -> EventRow {
    let (kind, value) = event_out(view, fact, by);
    let log = value.pointer("/step/log").and_then(Value::as_str).filter(|log| !log.is_empty());
    // What a step printed is shown apart.
    let text = match log {
        Some(_) => {
            let mut short = value.clone();
            short["step"]["log"] = Value::from("");
            sentence(kind.name(), &short)
        }
        None => sentence(kind.name(), &value),
    };
    EventRow { id, at: rfc3339(fact.at), kind: kind.name(), text, log: log.map(str::to_owned) }
}

/// Whether a fact is about an agent.
fn concerns(what: &What, wanted: &AgentId) -> bool {
    match what {
        What::Agent(status) => status.agent == *wanted,
        What::Step { agent, .. }
        | What::AgentGone { agent, .. }
        | What::Alarm { agent, .. }
        | What::JobLost { agent, .. } => agent == wanted,
        What::Lease(status) => status.agent.as_ref() == Some(wanted),
        What::Ordered { order, .. } => order.contains(wanted.as_str()),
        What::ConfigApplied { .. }
        | What::ConfigRefused { .. }
        | What::ConfigSynced { .. }
        | What::ConfigNotSynced { .. }
        | What::Breaker(_)
        | What::Source(_)
        | What::SourceGone { .. }
        | What::Reconciled { .. }
        | What::Restarted { .. }
        | What::Resets { .. }
        | What::HoldNext { .. }
        | What::OtherDrover { .. }
        | What::AddressPools { .. }
        | What::Image(_)
        | What::Declared(_)
        | What::Template(_)
        | What::TemplateGone { .. }
        | What::Cloud(_)
        | What::CloudGone { .. } => false,
    }
}
