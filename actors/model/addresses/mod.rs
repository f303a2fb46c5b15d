//! Addresses that agents are given: pools, and which one an agent has.

pub mod pool;
pub mod range;

pub use pool::{AddressPoolSpec, AddressSource, AssignedAddress, report};
pub use range::AddressRange;

/// What a pool without a free address is reported with.
pub const POOL_USED_UP: &str = "is used up";
