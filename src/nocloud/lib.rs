//! What cloud-init reads from a disc image (its data source `NoCloud`). This package knows nothing
//! of drover.
//!
//! - [`iso`] writes the image, and reads it back for simulated guests.
//! - [`placeholder`] fills in `${name}` in the operator's texts before they go onto the disc.
//!
//! In come texts and values; out come bytes. Pure: no I/O.
//!
//! Failures: a placeholder without a value is an error that quotes it
//! ([`placeholder::PlaceholderError`]). A damaged image reads as none, or as one with fewer files,
//! and never panics.

#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod iso;
pub mod placeholder;

pub use iso::{CloudInitTexts, Disc, LABEL, read};
