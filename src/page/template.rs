//! One template: its agents, what it is cloned from, and what keeps it from beginning more.

use askama::Template;
use drover_api::{AgentOut, TemplateOut, WhyOut};
use drover_model::phase::BreakerPhase;

use crate::frame::Frame;
use crate::show;

/// One template with its agents.
#[derive(Template)]
#[template(path = "template.html")]
pub struct TemplatePage {
    frame: Frame,
    template: TemplateOut,
    agents: Vec<AgentOut>,
    count: String,
    breaker: &'static str,
    is_closed: bool,
    /// What keeps it from each node; none for callers that may not ask, and where it cannot be known.
    why: Option<WhyOut>,
}

impl TemplatePage {
    /// With its living agents.
    pub fn new(
        frame: Frame,
        template: TemplateOut,
        agents: Vec<AgentOut>,
        why: Option<WhyOut>,
    ) -> Self {
        let count = u32::try_from(agents.len()).unwrap_or(u32::MAX);
        Self {
            frame,
            count: show::of_most(count, template.cap),
            breaker: show::breaker(template.breaker),
            is_closed: template.breaker == BreakerPhase::Closed,
            template,
            agents,
            why,
        }
    }
}
