//! Statuses: what the outside may know of each thing, one type per thing.
//!
//! The actor that has the thing makes its status. Others get that status unchanged: levels above in
//! reports, people in a [`fact`](crate::fact). Anyone who needs more keeps it beside the status, not
//! in a copy of its fields.
//!
//! The journal has records, and no statuses: nothing is decided by one that was written down. The file
//! of past events has facts with their statuses, for people alone, and does without a line that it
//! cannot read. What the API shows of them is in the answers of `drover-api`, which say why they are
//! types of their own.
//!
//! Beside this: `agent.rs`, `lease.rs`, `template.rs`, `cloud.rs`, `breaker.rs`, `source.rs`,
//! `addresses.rs`, `declared.rs` and `image.rs`, one thing each.

mod addresses;
mod agent;
mod breaker;
mod cloud;
mod declared;
mod image;
mod lease;
mod source;
mod template;

pub use addresses::AddressPoolStatus;
pub use agent::{AgentStatus, Standing, WayIn};
pub use breaker::BreakerStatus;
pub use cloud::CloudStatus;
pub use declared::DeclaredStatus;
pub use image::{ImageStatus, NextBuild};
pub use lease::{LeaseEnd, LeaseStatus};
pub use source::SourceStatus;
pub use template::{CanaryStatus, ResetStatus, TemplateStatus};
