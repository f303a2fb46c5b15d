//! Templates: what they hold, and agents of one started at once.

use actix_web::{HttpResponse, web};
use drover_actors::message::{HerdCommand, Refusal};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Fields;
use super::problem::printable;
use super::shapes::TemplatesOut;
use super::{Problem, State};
use drover_api::nearest;

/// The most agents that are started by one request.
const AT_ONCE: u64 = 10_000;

/// How many agents to begin.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ProvisionIn {
    /// From 1 to 10000; 1 when it is left out.
    pub count: u32,
    /// Whether they are on trial: handed to nobody, and gone a minute after they are ready.
    pub trial: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProvisionOut {
    /// The template, `cloud/template`.
    pub template: String,
    /// How many agents were wanted.
    pub wanted: u32,
    /// The agents that were started.
    pub agents: Vec<String>,
    /// Why they are fewer than wanted; null when they are not.
    pub short: Option<String>,
}

#[utoipa::path(get, path = "/v1/templates", responses((status = 200, body = TemplatesOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<TemplatesOut> {
    let templates = state.doors.view.templates().iter().map(Into::into).collect();
    web::Json(TemplatesOut { templates })
}

/// Begins agents at once, without demand, as far as the caps go.
#[utoipa::path(
    post, path = "/v1/templates/{id}/provision", request_body = ProvisionIn,
    params(("id" = String, Path, description = "the template, its bare name or `cloud%2Ftemplate`")),
    responses(
        (status = 202, body = ProvisionOut, description = "so many were begun, and why not more"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the bare name is on several clouds"),
    )
)]
pub(super) async fn provision(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Problem> {
    let mut fields = Fields::parse(body)?;
    let count = fields.count("count", AT_ONCE).unwrap_or(1);
    let trial = fields.flag("trial");
    fields.finish()?;
    let wanted = u32::try_from(count).unwrap_or(u32::MAX);
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
    }))
}

/// What the herd refused about a template; an unknown one with the nearest that is known.
pub(super) fn named(state: &State, name: &str, refusal: Refusal) -> Problem {
    if !matches!(refusal, Refusal::Unknown(_)) {
        return Problem::refused(refusal);
    }
    let ids: Vec<_> = state.doors.view.templates().into_iter().map(|one| one.template).collect();
    let whole: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let known = ids.iter().map(|id| &*id.name).chain(whole.iter().map(String::as_str));
    let near = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if whole.is_empty() => "none is configured".to_owned(),
        None => format!("known are {}", whole.join(", ")),
    };
    Problem::not_found(format!("no template is called `{}`; {near}", printable(name)))
}
