//! One template: its agents, what it is cloned from, and what keeps it from beginning more.

use drover_api::{AgentOut, CloudOut, Counts, TemplateOut, WhyOut};

use askama::Template;
use drover_model::phase::BreakerPhase;

use crate::frame::Frame;
use crate::show;
use crate::why::Held;

/// One template with its agents.
#[derive(Template)]
#[template(path = "template.html")]
pub struct TemplatePage {
    frame: Frame,
    template: TemplateOut,
    agents: Vec<AgentOut>,
    count: String,
    kept_idle: u32,
    breaker: &'static str,
    is_closed: bool,
    /// Why the caps let it begin no agent now; blank where they do not.
    is_full: String,
    /// Whether its next failure leaves a guest in which something can be seen.
    may_hold_next: bool,
    /// What keeps it from each node; none for callers that may not ask, and where it cannot be known.
    why: Option<Held>,
}

impl TemplatePage {
    /// With its living agents, and its cloud.
    pub fn new(
        frame: Frame,
        mut template: TemplateOut,
        cloud: Option<&CloudOut>,
        agents: Vec<AgentOut>,
        why: Option<WhyOut>,
    ) -> Self {
        let is_let_go = |one: &&AgentOut| drover_api::is_let_go(one.state, !one.leases.is_empty());
        let let_go = u32::try_from(agents.iter().filter(is_let_go).count()).unwrap_or(u32::MAX);
        let counts = Counts::of(&template.states, let_go, cloud.map(|cloud| cloud.health));
        let is_full = full(&template, counts, cloud);
        let is_held_back = !is_full.is_empty()
            || template.cause.is_some()
            || template.paused.is_some()
            || template.lack.is_some();
        let mut why = why.map(|out| Held::new(out, is_held_back));
        // The same reason is said once.
        let is_said =
            |said: &Option<String>, why: &str| said.as_ref().is_some_and(|said| said.contains(why));
        if let Some(held) = &mut why {
            let refused = &mut held.refused;
            refused.take_if(|why| is_said(&template.cause, why) || is_said(&template.paused, why));
        }
        template.paused.take_if(|paused| is_said(&template.cause, paused));
        Self {
            frame,
            count: show::of_most(counts.all(), template.cap),
            kept_idle: counts.kept_idle(&template),
            breaker: show::breaker(template.breaker),
            is_closed: template.breaker == BreakerPhase::Closed,
            may_hold_next: template.hold_next_seconds.is_none()
                && template.cause.as_ref().is_none_or(|cause| shows_in_guest(cause)),
            is_full,
            template,
            agents,
            why,
        }
    }
}

/// Why no agent may begin by the caps.
fn full(template: &TemplateOut, counts: Counts, cloud: Option<&CloudOut>) -> String {
    let is_of = |count: u32, cap: &u32| count >= *cap;
    // Those that need somebody, or are on a node that is offline, count against no cap.
    let live = counts.all() - counts.stranded;
    if let Some(cap) = template.cap.filter(|cap| is_of(live, cap)) {
        return format!("It is full: {live} of {cap} (instanceCap).");
    }
    let cloud = cloud.and_then(|cloud| Some((cloud, cloud.cap?)));
    match cloud.filter(|(cloud, cap)| is_of(cloud.agents, cap)) {
        Some((cloud, cap)) => {
            format!("Cloud {} is full: {} of {cap} (instanceCap).", cloud.id, cloud.agents)
        }
        None => String::new(),
    }
}

/// Whether a failure shows in the guest alone, and somebody who logs in there may see it.
fn shows_in_guest(cause: &str) -> bool {
    cause.contains("drover hold-next") && !cause.contains("guestNetworks")
}

#[cfg(test)]
mod tests {
    use drover_model::phase::CloudHealth;
    use serde_json::json;

    use super::*;
    use crate::testing::out;

    // Invariant: what cannot help is not offered, and why is said.

    #[test]
    fn a_full_template_begins_nothing_and_says_of_what_it_is_full() {
        let template = |cap: u32| -> TemplateOut {
            out(json!({ "id": "lab/linux", "labels": [], "states": { "Leased": 1 }, "cap": cap,
                        "minimum": 0, "idleMinimum": 0, "breaker": "flowing", "retryAt": null, "cause": null }))
        };
        let cloud = |cap: u32| -> CloudOut {
            out(
                json!({ "id": "lab", "cluster": null, "health": "well", "version": null, "detail": "",
                        "agents": 3, "cap": cap, "toldAt": "2026-11-29T02:00:00Z" }),
            )
        };
        let of = |cap, cloud: &CloudOut| {
            let counts = Counts::of(&template(cap).states, 0, Some(CloudHealth::Well));
            full(&template(cap), counts, Some(cloud))
        };
        assert_eq!(of(1, &cloud(9)), "It is full: 1 of 1 (instanceCap).");
        assert_eq!(of(2, &cloud(3)), "Cloud lab is full: 3 of 3 (instanceCap).");
        assert_eq!(of(2, &cloud(9)), "");
    }

    #[test]
    fn a_failure_is_held_where_its_guest_shows_it() {
        assert!(shows_in_guest("no sshd; `drover hold-next lab/linux` keeps the next"));
        assert!(!shows_in_guest(
            "set `guestNetworks`; `drover hold-next lab/linux` keeps the next"
        ));
        assert!(!shows_in_guest("task `qmclone` failed: no space"));
    }
}
