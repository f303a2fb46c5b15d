//! The operator's page: HTML of what the API answers.
//!
//! Each module is one page: a type that is made of answers of the API, and its template beside
//! (`templates/`). Nothing here asks, waits or decides; the server (`drover-server`, `page/`) asks, and
//! says who may see what. Templates escape every text by themselves.
//!
//! ```text
//! answers of the API ──> page::Herd, page::Agents, … ──> templates/*.html ──> text
//!                          each within a `Frame`: who looks, and what they may do
//! ```
//!
//! A page works without a script, but for what changes something. `assets/page.js` keeps it up to date:
//! it fetches the same page after each event, and puts in place what differs.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod agent;
mod agents;
mod assets;
mod audit;
mod clauses;
mod configuration;
mod docs;
mod events;
mod fault;
pub mod filter;
mod frame;
mod herd;
mod hints;
mod jobs;
mod leases;
mod login;
mod moments;
mod nodes;
mod plan;
mod said;
mod show;
mod template;
mod terminal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod usage;
mod waterfall;
mod why;

pub use agent::{AgentPage, GonePage};
pub use agents::{AgentFilter, AgentWords, AgentsPage};
pub use assets::{Asset, asset};
pub use audit::AuditPage;
pub use configuration::{ConfigurationPage, ValuesShown};
pub use docs::{DocsPage, DocsTopic};
pub use events::{EventRow, EventsPage};
pub use fault::FaultPage;
pub use frame::{Clusters, Frame, Tab};
pub use herd::{
    HeldAgent, HerdAsides, HerdPage, KeptOutNode, LeaseCounts, NodeDown, NodeOffline,
    standing_alarms,
};
pub use hints::Hints;
pub use jobs::{JobPage, JobsPage};
pub use leases::{LeasePage, LeasesPage};
pub use login::LoginPage;
pub use nodes::NodesPage;
pub use plan::PlanPage;
pub use template::TemplatePage;
pub use terminal::{TerminalEntry, TerminalPage};
pub use usage::UsagePage;

/// A page that can be written.
pub trait Written {
    /// The whole document.
    fn written(&self) -> String;
}

impl<T: askama::Template> Written for T {
    fn written(&self) -> String {
        // A template writes into a text, which takes everything.
        self.render().unwrap_or_default()
    }
}
