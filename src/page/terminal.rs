//! A terminal in an agent. Its script (`assets/terminal.js`) draws the screen that the service keeps.

use askama::Template;
use drover_api::AgentOut;

use crate::frame::Frame;

/// What the reader may do at the terminal of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEntry {
    Open,
    /// Open it, once the agent is held for the reader.
    Hold,
    /// Nothing, for this reason.
    Refused(String),
}

/// The terminal of a living agent.
#[derive(Template)]
#[template(path = "terminal.html")]
pub struct TerminalPage {
    frame: Frame,
    agent: AgentOut,
    entry: TerminalEntry,
}

impl TerminalPage {
    pub fn new(frame: Frame, agent: AgentOut, entry: TerminalEntry) -> Self {
        Self { frame, agent, entry }
    }

    fn is_free(&self) -> bool {
        self.entry == TerminalEntry::Hold
    }
}
