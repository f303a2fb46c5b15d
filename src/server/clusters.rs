//! What an operator says of a cluster: that it is the same one, with a root authority made again.

use actix_web::web;
use drover_actors::message::HerdCommand;
use drover_model::id::CloudId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Fields;
use super::{Problem, State};

/// How a cluster is confirmed.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmIn {
    /// That drover has no guest there whose marks could prove it.
    pub no_guests: bool,
}

/// A cluster that was confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfirmOut {
    /// The cloud.
    pub cloud: String,
    /// The id by which drover knows its cluster, as before.
    pub cluster: String,
    /// What the fingerprint of its root CA says now.
    pub fingerprint: String,
    /// Guests whose marks prove it.
    pub guests: usize,
}

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
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<ConfirmOut>, Problem> {
    let mut fields = Fields::parse(body)?;
    let no_guests = fields.flag("noGuests");
    fields.finish()?;
    let cloud = CloudId::new(id.into_inner());
    let command = |reply| HerdCommand::ConfirmCluster { cloud, no_guests, reply };
    let done = state.ask(state.limits.resync, command).await?.map_err(Problem::refused)?;
    Ok(web::Json(ConfirmOut {
        cloud: done.cloud.to_string(),
        cluster: done.cluster.to_string(),
        fingerprint: done.now.to_string(),
        guests: done.guests,
    }))
}
