//! One agent: the mind that decides ([`state`]) and the thin actix body that carries it out.

mod adopt;
mod doubt;
pub mod event;
mod hear;
pub mod picture;
mod provision;
mod retire;
mod serve;
pub mod state;

pub use event::{Answer, Call, Effect, Event, Guest};
pub use state::{Mind, State, step};
