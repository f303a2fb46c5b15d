//! The history that drover has seen, as lines of JSON: what was wanted, which agents served it, and
//! which configurations were in force.
//!
//! ```text
//! {"trace":{"format":1,"drover":"0.1.0","from":1764230000000,"to":1764316400000,"names":false,"leftOut":[]}}
//! {"configuration":{"at":1764230000000,"generation":3,"digest":"9f2c…"}}
//! {"demand":{"id":"l-7","kind":"lease","wants":{"labels":["linux"]},"arrived":1764230001000,…}}
//! {"agent":{"id":"01h…","template":"lab/linux","madeFor":"demand","made":1764230001020,…}}
//! {"end":{"lines":3}}
//! ```
//!
//! - **Times** are milliseconds since the Unix epoch, as in the journal.
//! - **Order.** A line is written once what it is about is over. Lines are in order of that moment; what
//!   was not over at the trace's end comes last, in order of its start. [`Trace::read`] sorts by start.
//! - **Whole.** The first line is the header, the last one says how many lines are between: a trace whose
//!   end is missing was cut off, and a reader says so.
//! - **Range.** A record is in a trace where any moment of it is in the range: it may have started before.
//! - **Private.** Owners, groups, names and ids of jobs are hashed with a salt that is made for each trace
//!   and kept nowhere, unless the header says `names`. Equal names of one trace have equal hashes.
//! - **Format.** A number in the header. Fields that a reader does not know are ignored; a change of
//!   meaning has another number.
//!
//! Nothing here does I/O of its own: the files of the state directory are in `src/app/history`.
//!
//! Files: `line.rs` has the types, `read.rs` reads a trace from outside, `write.rs` writes one. `fold.rs`
//! makes records of facts, `range.rs` cuts them to a range, `names.rs` hashes names, `usage.rs` adds up.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod fold;
mod line;
mod names;
mod range;
mod read;
mod usage;
mod write;

pub use fold::{Fold, Kept, Use, takes};
pub use line::{
    Agent, Configuration, Demand, DemandKind, End, Header, How, Line, MadeFor, NodeSize, Part,
    Peaks, Service, ServiceChange, unread_note,
};
pub use names::Salt;
pub use range::Range;
pub use read::{Limits, Reader, Trace, TraceFault, Untimely};
pub use usage::{By, LEASES, NOT_SERVED, OTHERS, PriceList, Prices, ROWS_MAX, Row, Tally, UNUSED};
pub use write::Writer;

/// The format that this drover writes and reads.
pub const FORMAT: u32 = 1;
