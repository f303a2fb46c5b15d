//! Images: what template images are built from, which version a recipe makes, and what is known of
//! builds and versions.
//!
//! ```text
//! ImageSpec (the YAML) ── values of variables ──▶ Recipe ── hash ──▶ version
//! ```
//!
//! A version is named after the hash of its recipe, so that the same recipe builds nothing. Its
//! guest carries marks of [`Kind::Image`](crate::marks::Kind::Image), whose agent is the version.

mod recipe;
mod spec;
mod version;

pub use recipe::{Recipe, VariableError, unfilled_variable};
pub use spec::{Bios, Downloader, Hardware, ImageLimits, ImageSource, ImageSpec, IsoImage, Route};
pub use version::{ImagePlan, ImageVersion, PlannedPrune, PrunePlan};
