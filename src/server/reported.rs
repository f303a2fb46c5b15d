//! Facts as events of the API.

use super::shapes::{self, Shown, rfc3339};
use drover_api::{
    AddressPoolOut, AlarmOut, BreakerOut, DeclaredMachineOut, GoneOut, ImageBuildOut, LostJobOut,
    SourceOut,
};
use drover_model::fact::{Fact, What};
use drover_model::tenant::By;
use serde_json::{Value, json};

use crate::view::{GoneAgent, LostJob, TemplateAsides, View};

/// Spells a fact as an event, as far as these may see it: its kind, and `{at, kind, …}`.
pub fn event_out(view: &View, fact: &Fact, by: &By) -> (&'static str, Value) {
    let at = fact.at;
    let (kind, body) = match &fact.what {
        What::ConfigApplied { generation, .. } => {
            ("configApplied", json!({ "generation": generation.0 }))
        }
        What::ConfigRefused { text, .. } => ("configRefused", json!({ "text": text })),
        What::Agent(agent) => ("agent", json!({ "agent": shapes::agent(view, agent, by) })),
        What::Step { agent, template, step, ms, exit, log } => (
            "step",
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
            ("agentGone", json!({ "agent": Shown::<GoneOut>::shown(&gone) }))
        }
        What::Alarm { agent, text, command } => (
            "alarm",
            json!({ "alarm": AlarmOut {
                agent: agent.to_string(),
                text: text.clone(),
                command: command.clone(),
                since: rfc3339(at),
            }}),
        ),
        What::Lease(lease) => ("lease", json!({ "lease": shapes::lease(view, lease, by) })),
        What::Template(template) => {
            // What others report of it has events of its own.
            let asides = TemplateAsides::default();
            ("template", json!({ "template": shapes::template(template, asides) }))
        }
        What::Breaker(breaker) => {
            ("breaker", json!({ "breaker": Shown::<BreakerOut>::shown(&**breaker) }))
        }
        What::Resets { template, resets } => {
            ("resets", json!({ "template": template.to_string(), "resets": resets }))
        }
        What::HoldNext { template, seconds } => {
            ("holdNext", json!({ "template": template.to_string(), "seconds": seconds }))
        }
        What::TemplateGone { template } => {
            ("templateGone", json!({ "template": template.to_string() }))
        }
        What::Cloud(cloud) => ("cloud", json!({ "cloud": shapes::cloud(cloud, at) })),
        What::CloudGone { cloud } => ("cloudGone", json!({ "cloud": cloud })),
        What::Source(source) => {
            ("source", json!({ "source": Shown::<SourceOut>::shown(&**source) }))
        }
        What::SourceGone { source } => ("sourceGone", json!({ "source": source })),
        What::JobLost { source, runner, agent, job } => {
            let lost = LostJob {
                source: source.clone(),
                runner: runner.clone(),
                agent: agent.clone(),
                job: job.clone(),
                at,
            };
            ("jobLost", json!({ "job": Shown::<LostJobOut>::shown(&lost) }))
        }
        What::OtherDrover { why } => ("otherDrover", json!({ "why": why })),
        What::AddressPools { pools } => {
            let pools: Vec<AddressPoolOut> = pools.iter().map(Shown::shown).collect();
            ("addressPools", json!({ "addressPools": pools }))
        }
        What::Image(status) => {
            ("image", json!({ "image": Shown::<ImageBuildOut>::shown(&**status) }))
        }
        What::Declared(status) => {
            ("machine", json!({ "machine": Shown::<DeclaredMachineOut>::shown(&**status) }))
        }
        What::Reconciled { cluster, findings, unread } => {
            let reported = json!({ "cluster": cluster, "findings": findings, "unread": unread });
            ("reconciled", reported)
        }
        What::Restarted { actor, count, gave_up } => {
            ("restarted", json!({ "actor": actor, "count": count, "gaveUp": gave_up }))
        }
    };
    let mut event = json!({ "at": rfc3339(at), "kind": kind });
    if let (Value::Object(event), Value::Object(body)) = (&mut event, body) {
        event.extend(body);
    }
    (kind, event)
}
