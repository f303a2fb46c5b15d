//! The audit log: every change that somebody asked for, and who asked.
//!
//! In come [`Entry`]s. Out goes one line of JSON for each, in files of the state directory, and a copy to
//! the log of the process under the target `audit`. Nothing is decided by the audit log.
//!
//! ```text
//! audit/000000000001.jsonl   the name of a file is the number of its first record
//! {"seq":1,"at":"…","prev":"000…","entry":{"kind":"started",…},"hash":"4f1c…"}
//! {"seq":2,"at":"…","prev":"4f1c…","entry":{"kind":"call",…},"hash":"90ab…"}
//! ```
//!
//! - **Chain.** `hash` is the SHA-256 of the line without it, and `prev` is the hash of the record before,
//!   also where that one is in another file. A changed, missing, added or moved record breaks the chain
//!   (`verify.rs`). Records that are cut off at the end break nothing: compare the last hash with the copy
//!   in the system's journal.
//! - **Disk.** Records that came together are written and synced together (`fdatasync`), before the
//!   calls that they are about are answered.
//! - **Death.** Only a whole line counts. A piece of one stays where it is, and the next record says how
//!   long it is and its SHA-256 ([`Entry::TornLine`]).
//! - **Bounds.** A file has [`FILE_BYTES_MAX`] bytes. The oldest files go where all of them have more
//!   than [`Options::keep_bytes`], and a record says so ([`Entry::Removed`]). Callers whose
//!   calls change nothing can fill no files ([`Entry::LeftOut`]).
//! - **Trouble.** Where a record cannot be written, or a write does not end, the service raises an alarm
//!   ([`Trouble`]), and the next record that can says how many are missing ([`Entry::Lost`]).
//!
//! Files: `entry.rs` (what is recorded), `record.rs` (a line), `folder.rs` (the files), `log.rs`
//! (appends), `writer.rs` (the thread that writes), `left_out.rs` (calls without a change), `verify.rs`, `find.rs`.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod entry;
mod find;
mod folder;
mod left_out;
mod log;
mod record;
mod verify;
mod writer;

pub use entry::{Call, Cause, Entry, Sync, Terminal};
pub use find::{Wanted, find};
pub use log::FILE_BYTES_MAX;
pub use record::Record;
pub use verify::{Broken, How, Seen, VerifyError, verify, verify_with};
pub use writer::{Audit, OnFailure, Options, Trouble};

/// The folder of the audit log in the state directory.
pub const FOLDER: &str = "audit";
