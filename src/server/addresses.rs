//! Pools of addresses: what they have.

use actix_web::web;
use drover_api::{AddressPoolOut, AddressPoolsOut};
use drover_model::status::AddressPoolStatus;

use super::shapes::{Shown, rfc3339};
use super::state::State;

impl Shown<AddressPoolOut> for AddressPoolStatus {
    fn shown(&self) -> AddressPoolOut {
        AddressPoolOut {
            id: self.pool.to_string(),
            ranges: self.ranges.clone(),
            size: self.size,
            used: self.used,
            resting: self.resting,
            free: self.free,
            next_free_at: self.next_free.map(rfc3339),
        }
    }
}

#[utoipa::path(get, path = "/v1/address-pools", responses((status = 200, body = AddressPoolsOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<AddressPoolsOut> {
    let address_pools = state.doors.view.address_pools().iter().map(Shown::shown).collect();
    web::Json(AddressPoolsOut { address_pools })
}
