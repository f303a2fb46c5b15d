//! Messages about what is wrong, to people who do not look at drover: by webhook, mail and ntfy.
//!
//! In comes one list, again and again: what is wrong now ([`Trouble`]). Out go messages, each for all that changed
//! within some seconds. drover decides nothing by it, and nothing waits for it.
//!
//! ```text
//! what is wrong now ──▶ mind of a channel ──Keep──▶ vault: what this channel was sent
//!        each second        ▲      │
//!                           │      └───Send──▶ carrier ──▶ webhook, mail server, ntfy
//!                           └── sent, or why not ◀──┘
//! ```
//!
//! - **No queue.** A channel compares what is wrong with what it sent. What changes while the other side does
//!   not answer is in the next message, so memory has a bound and a storm is one message.
//! - **Life of a trouble on a channel.** new → sent → (again, each `repeat`) → gone for `recovery` → recovery
//!   sent. What is gone before it was sent is never sent. What comes back within `recovery` was never gone.
//! - **At least once.** What is about to be sent is kept first, and so is that it was. A death between the
//!   other side's answer and that write repeats one message, with the same id. Where nothing can be kept,
//!   drover sends all the same.
//! - **One sender.** Only the member that leads sends. Its successor reads what was sent.
//! - **Trouble of a channel** is an entry of the same list of what is wrong, for all other channels.
//! - **Clocks.** A time that lies ahead of the clock counts as now: a clock that is set back delays nothing.
//!
//! Files: `kind.rs` (kinds and their severity), `mind.rs` (decides, pure), `message.rs` (what is sent),
//! `words.rs` (its texts), `settings.rs`, `run.rs` (carries out), `keep.rs` (what was sent, in the vault),
//! `carry.rs` (ports: `webhook.rs`, `mail.rs`, `ntfy.rs`).

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod carry;
mod keep;
mod kind;
mod mail;
mod message;
mod mind;
mod ntfy;
mod run;
mod settings;
mod webhook;
mod words;

pub use carry::{Carrier, Delivered, Failure, Network, probe};
pub use kind::{Kind, Severity};
pub use mail::{MailAddress, is_address};
pub use message::{Item, Message};
pub use mind::{Effect, Event, Mind, State};
pub use run::{ChannelTrouble, Notifier, Ports, Tested};
pub use settings::{
    Channel, Format, Mail, MailTls, Ntfy, Secret, Settings, Via, Wanted, Webhook, is_name,
};
pub use words::subject;

use drover_model::time::WallTime;

/// Something that is wrong now, and that people may want to know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The same for the same trouble at each look, and different from all others.
    pub key: String,
    pub kind: Kind,
    /// What it is about, such as `cloud lab`.
    pub about: String,
    /// What is wrong.
    pub text: String,
    /// What to run; empty where the text says what to do.
    pub command: String,
    /// Since when, where that is known.
    pub since: Option<WallTime>,
    /// Where the page has it, from its root.
    pub path: String,
}
