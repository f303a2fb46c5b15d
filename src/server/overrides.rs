//! What operators say of templates and clouds against the configuration: durable, and undone by the next
//! sync where git manages them.

use actix_web::web;
use drover_actors::message::HerdCommand;
use drover_api::{
    CloudOverridesIn, CloudOverridesOut, Problem, TemplateOverridesIn, TemplateOverridesOut,
};
use drover_model::id::CloudId;
use drover_model::overridden::TemplateChange;

use super::agents::change_to;
use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::state::State;
use super::templates::named;

/// The most agents or uses that a value names.
const MOST: u32 = 1_000_000;
/// The most minutes that a value names.
const MOST_MINUTES: u32 = 5_000_000;

type Body = Result<web::Bytes, actix_web::Error>;

/// Sets values of one template against the configuration; null takes one back, what is absent stays.
#[utoipa::path(
    patch, path = "/v1/templates/{id}", request_body = TemplateOverridesOut,
    params(("id" = String, Path, description = "the template, its bare name or `cloud%2Ftemplate`")),
    responses(
        (status = 200, body = TemplateOverridesOut, description = "all its values; null is the configuration's"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "git manages it and no changes are allowed, or the bare name is on several clouds"),
    )
)]
pub(super) async fn template(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Body,
) -> Result<web::Json<TemplateOverridesOut>, Rejection> {
    let mut fields = Fields::<TemplateOverridesIn>::parse(body)?;
    let numbers = [
        ("instanceCap", MOST),
        ("instanceMin", MOST),
        ("idleMin", MOST),
        ("idleTerminationMinutes", MOST_MINUTES),
        ("maxTotalUses", MOST),
    ];
    let given = numbers.iter().filter(|(field, most)| fields.change(field, *most)).count();
    let pauses = fields.flag_given("rolloutPaused");
    if given == 0 && !pauses {
        fields.fault("instanceCap", "or another value must be given");
    }
    let asked: TemplateOverridesIn = fields.finish()?;
    let change = TemplateChange {
        cap: change_to(asked.instance_cap),
        minimum: change_to(asked.instance_min),
        idle_minimum: change_to(asked.idle_min),
        idle_minutes: change_to(asked.idle_termination_minutes),
        max_uses: change_to(asked.max_total_uses),
        rollout_paused: asked.rollout_paused,
    };
    let name = id.into_inner();
    let template = name.clone();
    let command = |reply| HerdCommand::OverrideTemplate { template, change, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let (template, overrides) = answer.map_err(|refusal| named(&state, &name, refusal))?;
    let now = if overrides.is_empty() { "as configured".to_owned() } else { overrides.to_string() };
    state.report_order(&caller, format!("set template {template}: {now}"));
    Ok(web::Json(overrides.into()))
}

/// Sets values of one cloud against the configuration; null takes one back, what is absent stays.
#[utoipa::path(
    patch, path = "/v1/clouds/{id}", request_body = CloudOverridesOut,
    params(("id" = String, Path, description = "the cloud")),
    responses(
        (status = 200, body = CloudOverridesOut, description = "all its values; null is the configuration's"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "git manages it and no changes are allowed"),
    )
)]
pub(super) async fn cloud(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Body,
) -> Result<web::Json<CloudOverridesOut>, Rejection> {
    let mut fields = Fields::<CloudOverridesIn>::parse(body)?;
    if !fields.change("instanceCap", MOST) {
        fields.fault("instanceCap", "is missing");
    }
    let asked: CloudOverridesIn = fields.finish()?;
    let (cloud, cap) = (CloudId::new(&*id), change_to(asked.instance_cap));
    let named = cloud.clone();
    let command = |reply| HerdCommand::OverrideCloud { cloud, cap, reply };
    let overrides = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let now = if overrides.is_empty() { "as configured".to_owned() } else { overrides.to_string() };
    state.report_order(&caller, format!("set cloud {named}: {now}"));
    Ok(web::Json(overrides.into()))
}
