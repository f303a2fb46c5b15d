//! Calls of guests that have no guest agent.

use serde::{Deserialize, Serialize};

/// A guest's call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallIn {
    /// What the guest was given as its serial number (`/sys/class/dmi/id/product_serial`).
    pub token: String,
    /// Its addresses; needed only where it does not call from one that lies in `guestNetworks`.
    pub addresses: Option<Vec<String>>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CalledIn {
    /// The address that counts.
    pub address: String,
}
