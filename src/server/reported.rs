//! Facts as events of the API.

use super::alarms::of_agent;
use super::shapes::{self, Shown, rfc3339};
use drover_api::{
    AddressPoolOut, BreakerOut, DeclaredMachineOut, EventKind, GoneOut, ImageBuildOut, LostJobOut,
    SourceOut,
};
use drover_model::fact::{Fact, What};
use drover_model::tenant::By;
use serde_json::{Value, json};

use crate::view::{AlarmStatus, GoneAgent, LostJob, TemplateAsides, View};

/// Spells a fact as an event, as far as these may see it: its kind, and `{at, kind, …}`.
pub fn event_out(view: &View, fact: &Fact, by: &By) -> (EventKind, Value) {
    let at = fact.at;
    let (kind, body) = match &fact.what {
        What::ConfigApplied { generation, .. } => {
            (EventKind::ConfigApplied, json!({ "generation": generation.0 }))
        }
        What::ConfigRefused { text, .. } => (EventKind::ConfigRefused, json!({ "text": text })),
        What::ConfigSynced { commit, subject } => {
            (EventKind::ConfigSynced, json!({ "commit": commit, "subject": subject }))
        }
        What::ConfigNotSynced { text } => (EventKind::ConfigNotSynced, json!({ "text": text })),
        What::Ordered { by, order } => (EventKind::Ordered, json!({ "by": by, "order": order })),
        What::Agent(agent) => {
            (EventKind::Agent, json!({ "agent": shapes::agent(view, agent, by) }))
        }
        What::Step { agent, template, step, ms, exit, log } => (
            EventKind::Step,
            json!({ "step": {
                "agent": agent, "template": template.to_string(), "name": step, "ms": ms,
                "exit": exit, "log": log,
            }}),
        ),
        What::AgentGone { agent, template, reason, phases } => {
            let gone = GoneAgent {
                agent: agent.clone(),
                template: template.clone(),
                reason: reason.clone(),
                phases: phases.clone(),
                at,
            };
            (EventKind::AgentGone, json!({ "agent": Shown::<GoneOut>::shown(&gone) }))
        }
        What::Alarm { agent, text, command } => {
            let (agent, text, command) = (agent.clone(), text.clone(), command.clone());
            (
                EventKind::Alarm,
                json!({ "alarm": of_agent(&AlarmStatus { agent, text, command, at }) }),
            )
        }
        What::Lease(lease) => {
            (EventKind::Lease, json!({ "lease": shapes::lease(view, lease, by) }))
        }
        What::Template(template) => {
            // What others report of it has events of its own.
            let asides = TemplateAsides::default();
            let managed_by = view.managed_by(&template.template.cloud);
            let shown = shapes::template(template, asides, managed_by);
            (EventKind::Template, json!({ "template": shown }))
        }
        What::Breaker(breaker) => {
            (EventKind::Breaker, json!({ "breaker": Shown::<BreakerOut>::shown(&**breaker) }))
        }
        What::Resets { template, resets } => {
            (EventKind::Resets, json!({ "template": template.to_string(), "resets": resets }))
        }
        What::HoldNext { template, seconds } => {
            (EventKind::HoldNext, json!({ "template": template.to_string(), "seconds": seconds }))
        }
        What::TemplateGone { template } => {
            (EventKind::TemplateGone, json!({ "template": template.to_string() }))
        }
        What::Cloud(cloud) => {
            let shown = shapes::cloud(cloud, at, view.managed_by(&cloud.cloud));
            (EventKind::Cloud, json!({ "cloud": shown }))
        }
        What::CloudGone { cloud } => (EventKind::CloudGone, json!({ "cloud": cloud })),
        What::Source(source) => {
            (EventKind::Source, json!({ "source": Shown::<SourceOut>::shown(&**source) }))
        }
        What::SourceGone { source } => (EventKind::SourceGone, json!({ "source": source })),
        What::JobLost { source, runner, agent, job } => {
            let lost = LostJob {
                source: source.clone(),
                runner: runner.clone(),
                agent: agent.clone(),
                job: job.clone(),
                at,
            };
            (EventKind::JobLost, json!({ "job": Shown::<LostJobOut>::shown(&lost) }))
        }
        What::OtherDrover { why } => (EventKind::OtherDrover, json!({ "why": why })),
        What::AddressPools { pools } => {
            let pools: Vec<AddressPoolOut> = pools.iter().map(Shown::shown).collect();
            (EventKind::AddressPools, json!({ "addressPools": pools }))
        }
        What::Image(status) => {
            (EventKind::Image, json!({ "image": Shown::<ImageBuildOut>::shown(&**status) }))
        }
        What::Declared(status) => (
            EventKind::Machine,
            json!({ "machine": Shown::<DeclaredMachineOut>::shown(&**status) }),
        ),
        What::Reconciled { cluster, findings, unread } => {
            let reported = json!({ "cluster": cluster, "findings": findings, "unread": unread });
            (EventKind::Reconciled, reported)
        }
        What::Restarted { actor, count, gave_up } => {
            (EventKind::Restarted, json!({ "actor": actor, "count": count, "gaveUp": gave_up }))
        }
    };
    let mut event = json!({ "at": rfc3339(at), "kind": kind.name() });
    if let (Value::Object(event), Value::Object(body)) = (&mut event, body) {
        event.extend(body);
    }
    (kind, event)
}
