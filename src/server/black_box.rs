//! What drover kept of an agent that failed.

use actix_web::web;
use drover_api::{BlackBoxOut, Problem};
use drover_model::id::AgentId;

use super::problem::{Rejection, printable};
use super::state::State;
use drover_actors::message::Refusal;

#[utoipa::path(
    get, path = "/v1/agents/{id}/blackbox", params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 200, body = BlackBoxOut),
        (status = 404, body = Problem, description = "the agent lives, or nothing is kept of it"),
    )
)]
pub(super) async fn show(
    state: web::Data<State>,
    id: web::Path<String>,
) -> Result<web::Json<BlackBoxOut>, Rejection> {
    let shown = printable(&id);
    if state.doors.view.agent(&AgentId::new(&**id)).is_some() {
        let text = format!("agent `{shown}` lives; drover keeps something of it when it fails");
        return Err(Rejection::not_found(text));
    }
    kept(&state, &id).await?.map(web::Json).ok_or_else(|| {
        Rejection::not_found(format!(
            "nothing is kept of an agent `{shown}`: it did not fail, or that is too long ago \
             (`service.blackBox`)"
        ))
    })
}

/// What is kept of an agent; none where nothing is.
pub(super) async fn kept(state: &State, id: &str) -> Result<Option<BlackBoxOut>, Rejection> {
    let (read, name) = (std::sync::Arc::clone(&state.doors.black_box), id.to_owned());
    let unread = |why: String| {
        let text = format!("the black box of agent `{}` cannot be read: {why}", printable(id));
        Rejection::refused(Refusal::Unavailable(text))
    };
    let kept = web::block(move || read(&name)).await.map_err(|error| unread(error.to_string()))?;
    kept.map_err(|error| unread(error.to_string()))
}
