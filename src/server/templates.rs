//! Templates: what they hold, and agents of one started at once.

use actix_web::{HttpResponse, web};
use drover_actors::message::{HerdCommand, Refusal};
use drover_api::{Problem, ProvisionIn, ProvisionOut, TemplatesOut, nearest};

use super::body::Fields;
use super::problem::Rejection;
use super::problem::printable;
use super::shapes;
use super::state::State;

/// The most agents that are started by one request.
const AT_ONCE: u64 = 10_000;

#[utoipa::path(get, path = "/v1/templates", responses((status = 200, body = TemplatesOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<TemplatesOut> {
    web::Json(TemplatesOut { templates: shapes::templates(&state.doors.view) })
}

/// Begins agents at once, without demand, as far as the caps go.
#[utoipa::path(
    post, path = "/v1/templates/{id}/provision", request_body = ProvisionIn,
    params(("id" = String, Path, description = "the template, its bare name or `cloud%2Ftemplate`")),
    responses(
        (status = 202, body = ProvisionOut, description = "so many were started, and why not more"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the bare name is on several clouds"),
    )
)]
pub(super) async fn provision(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<ProvisionIn>::parse(body)?;
    fields.count_or("count", AT_ONCE, 1);
    fields.flag("trial");
    let ProvisionIn { count: wanted, trial } = fields.finish()?;
    let template = id.into_inner();
    let name = template.clone();
    let command = |reply| HerdCommand::Provision { template: name, count: wanted, trial, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let done = answer.map_err(|refusal| named(&state, &template, refusal))?;
    Ok(HttpResponse::Accepted().json(ProvisionOut {
        template: done.template.to_string(),
        wanted,
        agents: done.agents.iter().map(ToString::to_string).collect(),
        short: done.short,
        paused: state.doors.view.template(&done.template).and_then(|template| template.paused),
    }))
}

/// What the herd refused about a template; an unknown one with the nearest that is known.
pub(super) fn named(state: &State, name: &str, refusal: Refusal) -> Rejection {
    if !matches!(refusal, Refusal::Unknown(_)) {
        return Rejection::refused(refusal);
    }
    let ids: Vec<_> = state.doors.view.templates().into_iter().map(|one| one.template).collect();
    let whole: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let known = ids.iter().map(|id| &*id.name).chain(whole.iter().map(String::as_str));
    let near = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if whole.is_empty() => "none is configured".to_owned(),
        None => format!("known are {}", whole.join(", ")),
    };
    Rejection::not_found(format!("no template is called `{}`; {near}", printable(name)))
}
