//! Nodes and what they have room for: how agents are placed, what a fleet has, why a node takes none.

pub mod fleet;
pub mod refusal;
pub mod report;
pub mod sizes;
pub mod spec;
pub mod term;

pub use fleet::{
    Fleet, GuestObservation, NEARLY_FULL_PERCENT, NodeFigures, NodeObservation, StorageObservation,
};
pub use refusal::Refusal;
pub use sizes::Sizes;
pub use spec::{Headroom, PlacementSpec, Strategy, Thickness, Weights};
pub use term::{Operator, Term};
