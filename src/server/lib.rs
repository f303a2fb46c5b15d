//! The lease API and the status routes: HTTP over a Unix socket and TCP.
//!
//! Runs on threads of its own and owns no state of the herd: commands go to the herd as messages
//! and come back through one-shot channels, everything shown is read from the view.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod addresses;
mod agents;
mod alarms;
mod answers;
mod audit;
mod audited;
mod auth;
mod black_box;
mod body;
mod breakers;
mod call_in;
mod clusters;
mod control;
mod copies;
mod crowd;
mod declared;
mod demand;
mod drift;
mod events;
mod forwarded;
mod gate;
mod health;
mod hex;
mod hints;
mod history;
mod holds;
mod hooks;
mod house;
mod images;
mod intake;
mod leases;
mod line;
mod looks;
mod machines;
mod malformed;
mod members;
mod meter;
mod metric_table;
mod metrics;
mod nodes;
mod notify;
mod openapi;
mod openid;
mod overrides;
mod page;
mod pass;
mod peer;
mod place;
mod planned;
mod problem;
mod query;
mod reported;
mod routes;
mod seat;
mod serve;
mod server;
mod session;
mod shapes;
mod share;
mod sources;
mod standby;
mod state;
mod status;
mod strict_json;
mod subjects;
mod sync;
mod taken;
mod templates;
mod terminal_calls;
mod terminals;
mod troubles;
mod unread;
mod values;
pub mod view;
mod whoami;
mod wire;

pub use auth::{Auth, Caller, PeerGrant, TokenGrant};
pub use crowd::Room;
pub use house::{BODY_LIMIT, Limits};
pub use leases::{LONGEST_QUEUE_SECONDS, check_public_key};
pub use openid::{GroupGrant, OpenId};
pub use planned::plan_out;
pub use problem::Rejection;
pub use server::{Bound, Listen, Running, StartError, bind};
pub use session::SessionKey;
pub use standby::StandbyDoors;
pub use state::{
    BlackBoxDoor, Doors, ForgetDoor, HistoryDoor, HistorySeen, MembersDoor, NotForgotten,
    NotReloaded, NotSynced, NotifyDoor, PlanDoor, ReadHistory, Reload, SetLogLevel, SyncDoor,
    TerminalDoor, TestSyncDoor, TransferDoor, WhoCalls,
};
pub use troubles::troubles;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
