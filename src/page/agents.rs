//! The list of agents.

use askama::Template;
use drover_api::{AgentOut, GoneOut};
use drover_model::phase::AgentPhase;

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

/// What of an agent a filter reads.
#[derive(Debug, Clone, Copy)]
pub struct AgentWords<'a> {
    pub id: &'a str,
    pub state: &'a str,
    pub template: &'a str,
    pub node: &'a str,
    pub vmid: &'a str,
    pub detail: &'a str,
}

/// Which agents the list shows.
#[derive(Debug, Clone)]
pub struct AgentFilter {
    query: String,
    filter: Filter,
}

impl AgentFilter {
    /// The most agents that are shown.
    pub const MOST: usize = ROWS;

    pub fn new(query: &str) -> Self {
        Self { query: query.to_owned(), filter: Filter::of(query, &COLUMNS) }
    }

    pub fn has(&self, words: AgentWords<'_>) -> bool {
        let AgentWords { id, state, template, node, vmid, detail } = words;
        self.filter.has(&[
            ("id", id),
            ("state", state),
            ("template", template),
            ("node", node),
            ("vmid", vmid),
            ("detail", detail),
        ])
    }
}

impl AgentsPage {
    /// The first that a filter found, how many it found and how many there are; and all that are gone, the
    /// oldest first.
    pub fn new(
        frame: Frame,
        filter: &AgentFilter,
        agents: Vec<AgentOut>,
        (found, all): (usize, usize),
        mut gone: Vec<GoneOut>,
    ) -> Self {
        gone.reverse();
        gone.retain(|one| {
            filter.has(AgentWords {
                id: &one.id,
                state: AgentPhase::Gone.name(),
                template: &one.template,
                node: "",
                vmid: "",
                detail: &one.detail,
            })
        });
        gone.truncate(ROWS);
        Self { frame, query: filter.query.clone(), all, found, agents, gone }
    }
}
