//! The list of agents.

use askama::Template;
use drover_api::{AgentOut, AgentsOut, GoneOut};

use crate::filter::Filter;
use crate::frame::Frame;

/// Rows of one page.
const ROWS: usize = 200;
const COLUMNS: [&str; 6] = ["id", "state", "template", "node", "vmid", "detail"];

/// The list of agents.
#[derive(Template)]
#[template(path = "agents.html")]
pub struct AgentsPage {
    frame: Frame,
    query: String,
    all: usize,
    found: usize,
    agents: Vec<AgentOut>,
    gone: Vec<GoneOut>,
}

impl AgentsPage {
    /// Those that a filter finds; the ones that are gone, the last first.
    pub fn new(frame: Frame, out: AgentsOut, query: &str) -> Self {
        let filter = Filter::of(query, &COLUMNS);
        let all = out.agents.len();
        let mut agents = out.agents;
        agents.retain(|one| {
            let vmid = one.vmid.map(|vmid| vmid.to_string()).unwrap_or_default();
            filter.has(&[
                ("id", &one.id),
                ("state", one.state.name()),
                ("template", &one.template),
                ("node", one.node.as_deref().unwrap_or_default()),
                ("vmid", &vmid),
                ("detail", &one.detail),
            ])
        });
        let found = agents.len();
        agents.truncate(ROWS);
        let mut gone = out.gone;
        gone.reverse();
        gone.retain(|one| {
            filter.has(&[
                ("id", &one.id),
                ("state", "Gone"),
                ("template", &one.template),
                ("detail", &one.detail),
            ])
        });
        gone.truncate(ROWS);
        Self { frame, query: query.to_owned(), all, found, agents, gone }
    }
}
