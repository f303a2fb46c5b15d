//! What an operator says of a cluster: that it is the same one, with a root authority made again.

use actix_web::web;
use drover_actors::message::HerdCommand;
use drover_api::{ConfirmIn, ConfirmOut, Problem};
use drover_model::id::CloudId;

use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::state::State;

/// Confirms that a cloud leads to the same cluster as before, whose root CA was made again. The marks
/// of drover's guests there must prove it.
#[utoipa::path(
    post, path = "/v1/clouds/{id}/confirm", request_body = ConfirmIn,
    params(("id" = String, Path, description = "the cloud")),
    responses(
        (status = 200, body = ConfirmOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "there is nothing to confirm, or it is not proven"),
    )
)]
pub(super) async fn confirm(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<ConfirmOut>, Rejection> {
    let mut fields = Fields::<ConfirmIn>::parse(body)?;
    fields.flag("noGuests");
    let ConfirmIn { no_guests } = fields.finish()?;
    let cloud = CloudId::new(id.into_inner());
    let command = |reply| HerdCommand::ConfirmCluster { cloud, no_guests, reply };
    let done = state.ask(state.limits.resync, command).await?.map_err(Rejection::refused)?;
    state.report_order(&caller, format!("confirmed the cluster of cloud {}", done.cloud));
    Ok(web::Json(ConfirmOut {
        cloud: done.cloud.to_string(),
        cluster: done.cluster.to_string(),
        fingerprint: done.now.to_string(),
        guests: done.guests,
    }))
}
