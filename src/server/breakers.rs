//! Breakers of templates, nodes, storages and clouds: those that do not flow, and how an operator
//! resets one.

use std::collections::BTreeSet;

use actix_web::web;
use drover_actors::message::HerdCommand;
use drover_api::{BreakerOut, BreakersOut, Problem, ResetOut};

use super::auth::Caller;
use super::problem::Rejection;
use super::shapes::{Shown, rfc3339};
use super::state::State;
use crate::view::View;
use drover_model::phase::BreakerPhase;
use drover_model::status::{BreakerStatus, TemplateStatus};

impl Shown<BreakerOut> for BreakerStatus {
    fn shown(&self) -> BreakerOut {
        let (retry_at, cause) = self.tripped.clone().unzip();
        BreakerOut {
            id: self.scope.to_string(),
            state: self.breaker,
            retry_at: retry_at.map(rfc3339),
            cause,
            template: self.template.to_string(),
        }
    }
}

/// The breaker of a template itself.
impl Shown<BreakerOut> for TemplateStatus {
    fn shown(&self) -> BreakerOut {
        let (retry_at, cause) = self.tripped.clone().unzip();
        let template = self.template.to_string();
        let retry_at = retry_at.map(rfc3339);
        BreakerOut { id: template.clone(), state: self.breaker, retry_at, cause, template }
    }
}

/// Spells all that do not flow, those of templates first.
pub fn breakers(view: &View) -> Vec<BreakerOut> {
    let (templates, places) = (view.templates(), view.places());
    let all = templates.iter().map(Shown::shown).chain(places.iter().map(Shown::shown));
    all.filter(|one: &BreakerOut| one.state != BreakerPhase::Closed).collect()
}

/// How many those are.
pub(super) fn tripped_count(view: &View) -> usize {
    let of_templates = view.templates().into_iter().map(|one| one.breaker);
    let states = of_templates.chain(view.places().into_iter().map(|one| one.breaker));
    states.filter(|state| *state != BreakerPhase::Closed).count()
}

#[utoipa::path(get, path = "/v1/breakers", responses((status = 200, body = BreakersOut)))]
pub(super) async fn list(state: web::Data<State>) -> web::Json<BreakersOut> {
    web::Json(BreakersOut { breakers: breakers(&state.doors.view) })
}

/// Lets a breaker flow at once.
#[utoipa::path(
    post, path = "/v1/breakers/{id}/reset",
    params(("id" = String, Path, description = "a template, or such as `node:pve1`, `storage:nfs`, `cloud:rack`")),
    responses(
        (status = 200, body = ResetOut),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the name is on several clouds or clusters"),
    )
)]
pub(super) async fn reset(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
) -> Result<web::Json<ResetOut>, Rejection> {
    let name = id.into_inner();
    let view = &state.doors.view;
    // With its breaker, a template has versions of it tried again.
    let tried_again = view
        .templates()
        .into_iter()
        .filter(|one| one.canary.as_ref().is_some_and(|canary| !canary.given_up.is_empty()));
    let tried_again = tried_again.map(|one| one.template.to_string());
    let shut: BTreeSet<String> =
        breakers(view).into_iter().map(|one| one.id).chain(tried_again).collect();
    let command = |reply| HerdCommand::ResetBreaker { name, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let id = answer.map_err(Rejection::refused)?;
    let flowed = !shut.contains(&id);
    if !flowed {
        // The one who closed it looks at once.
        state.looks.forget();
        state.report_order(&caller, format!("closed breaker {id}"));
    }
    Ok(web::Json(ResetOut { flowed, id }))
}
