//! What cloud-init reads from a disc image (its data source `NoCloud`), with no knowledge of drover.
//!
//! [`iso`] writes and reads the image; [`placeholder`] fills the operator's texts in that go into it.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod iso;
pub mod placeholder;

pub use iso::{Disc, LABEL, SeedTexts, read};
