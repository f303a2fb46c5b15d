//! Agents, templates, clouds and the whole at a glance; retiring one agent.

use actix_web::{HttpResponse, web};
use drover_actors::message::HerdCommand;
use drover_api::{
    AgentLimits, AgentOut, AgentsOut, CloudsOut, GoneOut, LimitsIn, Problem, RetireIn, StatusOut,
};
use drover_model::id::AgentId;
use drover_model::overrides::{Change, OverrideChange};
use drover_model::record::Reason;

use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::problem::printable;
use super::shapes::{self, Shown};
use super::state::State;
use super::status;

/// As many minutes as `idleTerminationMinutes` takes.
const MOST_MINUTES: u32 = 100_000_000;
/// As many uses as `maxTotalUses` takes.
const MOST_USES: u32 = 1_000_000_000;

#[utoipa::path(get, path = "/v1/agents", responses((status = 200, body = AgentsOut)))]
pub(super) async fn list(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
) -> web::Json<AgentsOut> {
    let (view, by) = (&state.doors.view, caller.by());
    web::Json(AgentsOut {
        agents: view.agents().iter().map(|agent| shapes::agent(view, agent, &by)).collect(),
        gone: view.gone_agents().iter().map(Shown::shown).collect(),
    })
}

#[utoipa::path(
    get, path = "/v1/agents/{id}", params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 200, body = AgentOut, description = "a live agent; one that is gone has a `reason`"),
        (status = 404, body = Problem),
    )
)]
pub(super) async fn show(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
) -> Result<HttpResponse, Rejection> {
    let view = &state.doors.view;
    let id = AgentId::new(&*id);
    if let Some(agent) = view.agent(&id) {
        return Ok(HttpResponse::Ok().json(shapes::agent(view, &agent, &caller.by())));
    }
    let gone = view.gone_agents().into_iter().rev().find(|gone| gone.agent == id);
    let gone = gone.ok_or_else(|| {
        let id = printable(id.as_str());
        Rejection::not_found(format!("no agent `{id}`; `drover agents` lists them"))
    })?;
    Ok(HttpResponse::Ok().json(Shown::<GoneOut>::shown(&gone)))
}

/// Sets limits of one agent against its template's; null takes one back, what is absent stays.
#[utoipa::path(
    patch, path = "/v1/agents/{id}", params(("id" = String, Path, description = "the agent")),
    request_body = AgentLimits,
    responses(
        (status = 200, body = AgentLimits, description = "all its limits; null is its template's"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
    )
)]
pub(super) async fn limit(
    state: web::Data<State>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<web::Json<AgentLimits>, Rejection> {
    let mut fields = Fields::<LimitsIn>::parse(body)?;
    let has_idle = fields.change("idleTerminationMinutes", MOST_MINUTES);
    let has_uses = fields.change("maxTotalUses", MOST_USES);
    if !has_idle && !has_uses {
        fields.fault("idleTerminationMinutes", "or maxTotalUses must be given");
    }
    let limits = fields.finish()?;
    let change = OverrideChange {
        idle_minutes: change_to(limits.idle_termination_minutes),
        max_uses: change_to(limits.max_total_uses),
    };
    let agent = AgentId::new(&*id);
    let command = |reply| HerdCommand::Override { agent, change, reply };
    let overrides = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    Ok(web::Json(overrides.into()))
}

/// What becomes of a limit that is absent, null or a number.
pub(super) fn change_to(limit: Option<Option<u32>>) -> Change {
    match limit {
        None => Change::Keep,
        Some(None) => Change::TakeBack,
        Some(Some(number)) => Change::Set(number),
    }
}

#[utoipa::path(
    post, path = "/v1/agents/{id}/retire", params(("id" = String, Path, description = "the agent")),
    request_body = RetireIn,
    responses(
        (status = 202, description = "it goes, after its last lease"),
        (status = 403, body = Problem, description = "somebody else holds it"),
        (status = 404, body = Problem),
    )
)]
pub(super) async fn retire(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Result<web::Bytes, actix_web::Error>,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<RetireIn>::parse(body)?;
    fields.flag("trialOver");
    let RetireIn { trial_over } = fields.finish()?;
    let (agent, by) = (AgentId::new(&*id), caller.by());
    let order = format!("retired agent {agent}");
    let on_trial = state.doors.view.agent(&agent).is_some_and(|agent| agent.on_trial);
    let asked = Reason::AskedBy { by: caller.principal.clone() };
    let reason = if trial_over && on_trial { Reason::TrialOver } else { asked };
    let command = |reply| HerdCommand::Retire { agent, reason, by, reply };
    state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    state.report_order(&caller, order);
    Ok(HttpResponse::Accepted().finish())
}

#[utoipa::path(get, path = "/v1/clouds", responses((status = 200, body = CloudsOut)))]
pub(super) async fn clouds(state: web::Data<State>) -> web::Json<CloudsOut> {
    web::Json(CloudsOut { clouds: shapes::clouds(&state.doors.view) })
}

#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = StatusOut)))]
pub(super) async fn status(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
) -> web::Json<StatusOut> {
    let mut out = status::status(&state.doors.view, &caller.by());
    out.config.path = Some(state.doors.configuration.clone());
    out.members = (state.doors.members)();
    web::Json(out)
}
