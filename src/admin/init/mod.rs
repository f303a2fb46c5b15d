//! `drover init`: from an administrator's login to the first configuration.
//!
//! In: what the cluster shows ([`ClusterSeen`]), and [`Answers`] of an administrator, of whom some are
//! missing. Out: a [`Proposal`], in which every choice has a reason, or all [`Refusals`] at once; and the
//! text of the YAML. Nothing here writes: the command line shows the proposal, asks, and carries it out.
//!
//! ```text
//! contact ─▶ login ─▶ cluster ─▶ propose(seen, answers) ─▶ Proposal ─▶ summary, YAML ─▶ files, rights, doctor
//! (trust)              (read)     choice: node, storage,               (yaml)            (src/cli/init)
//!                                 bridge, VMIDs, template
//! ```
//!
//! An earlier run's YAML answers what nobody answers now ([`earlier`]), so that a second run proposes
//! the same text, whatever runs on the cluster meanwhile.
//!
//! Failure paths: a node's certificate that nobody vouches for ends the contact; everything else that
//! does not fit is a refusal that names the option which repairs it.

mod choice;
mod cluster;
mod contact;
mod endpoints;
mod proposal;
mod settings;
mod token;
mod yaml;

#[cfg(test)]
mod tests;

pub use choice::{TEMPLATE_MAKE, VmidRange};
pub use cluster::{ClusterSeen, NodeSeen, StorageSeen, TemplateSeen};
pub use contact::{ContactError, Presented, present, recognise, trusts};
pub use endpoints::{NodeWays, ways};
pub use proposal::{Answers, Image, Proposal, Refusals, Source, Trust, propose};
pub use settings::{image_checksum, image_url, wrong_settings};
pub use token::{TakenToken, taken_token};
pub use yaml::{Files, earlier, is_blank, yaml};
