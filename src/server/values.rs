//! The values of the configuration in force.

use std::sync::Arc;

use actix_web::web;
use drover_api::{ConfigOut, ValueOut, ValuesOut};

use super::problem::Rejection;
use super::shapes::Shown as _;
use super::state::State;

#[utoipa::path(
    get, path = "/v1/configuration/values",
    responses((status = 200, body = ValuesOut))
)]
pub(super) async fn list(state: web::Data<State>) -> Result<web::Json<ValuesOut>, Rejection> {
    let values = in_force(&state).await?.to_vec();
    let config: ConfigOut = state.doors.view.config().shown();
    Ok(web::Json(ValuesOut { generation: config.generation, values }))
}

/// The values with their origins, worked out away from the threads that answer.
pub(super) async fn in_force(state: &State) -> Result<Arc<[ValueOut]>, Rejection> {
    let values = Arc::clone(&state.doors.values);
    let values = web::block(move || values()).await;
    values.map_err(|_| Rejection::busy())
}
