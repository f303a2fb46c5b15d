//! Sources: CI systems whose jobs want agents. One [actor] polls one source.
//!
//! It owns what polls observed of the runners there, and nothing else: agents make runners, and the
//! scheduler decides which agents start.
//!
//! ```text
//! CI system ◀── poll, cordon, deregister ── source ── Wanted, Over ──▶ herd (scheduler)
//! agents ── runners made, ended, refused ──▶ runners.rs ──▶ source
//! agents ◀── AskRunner, FailLease ────────── roster.rs ◀─── source
//! ```
//!
//! A source reports levels: so many jobs of that kind wait. The scheduler turns all levels into
//! starts and hand-outs by weighted fair shares (`share.rs`).
//!
//! Failures: a source that does not answer costs only itself; it is polled less often, and its jobs
//! count for a minute. A panic restarts the actor, which polls again. A runner whose removal fails is
//! removed later, also after a restart: the journal knows it until then.
//!
//! Files: `mind.rs` decides, `actor.rs` carries out, `observed.rs` has what polls showed of one runner,
//! `unknown_runners.rs` those that the journal does not know.

pub mod actor;
pub mod mind;
mod observed;
pub mod share;
pub mod unknown_runners;

use drover_model::record::Want;
use drover_model::time::WallTime;

/// Jobs of one kind that wait at a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// What they want.
    pub want: Want,
    /// Since when each of them waits, the oldest first; empty where they are held back.
    pub since: Vec<WallTime>,
}
