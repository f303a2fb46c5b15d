//! Pools of addresses: what they have.

use actix_web::web;
use drover_model::fact::AddressPoolStatus;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::State;
use super::shapes::rfc3339;

/// A pool of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolOut {
    /// Its key in `addressPools`.
    pub id: String,
    /// What it gives.
    pub ranges: Vec<String>,
    /// How many addresses that are.
    pub size: u64,
    /// Those that agents have, or that are kept back for them.
    pub used: u64,
    /// Those that rest after use.
    pub resting: u64,
    /// Those that the next agents can have.
    pub free: u64,
    /// When the next of those that rest is free (RFC 3339); null when none rests.
    pub next_free_at: Option<String>,
}

/// Pools of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPoolsOut {
    /// The configured pools.
    pub address_pools: Vec<AddressPoolOut>,
}

impl From<&AddressPoolStatus> for AddressPoolOut {
    fn from(pool: &AddressPoolStatus) -> Self {
        Self {
            id: pool.pool.to_string(),
            ranges: pool.ranges.clone(),
            size: pool.size,
            used: pool.used,
            resting: pool.resting,
            free: pool.free,
            next_free_at: pool.next_free.map(rfc3339),
        }
    }
}

#[utoipa::path(get, path = "/v1/address-pools", responses((status = 200, body = AddressPoolsOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<AddressPoolsOut> {
    let address_pools = state.doors.view.address_pools().iter().map(Into::into).collect();
    web::Json(AddressPoolsOut { address_pools })
}
