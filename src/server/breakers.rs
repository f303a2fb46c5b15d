//! Breakers of templates, nodes, storages and clouds: those that do not flow, and how an operator
//! resets one.

use std::collections::BTreeSet;

use actix_web::web;
use drover_actors::message::HerdCommand;
use drover_api::{BreakerOut, BreakersOut, Problem, ResetOut};

use super::problem::Rejection;
use super::shapes::{Shown, rfc3339};
use super::state::State;
use crate::view::{BreakerStatus, View};
use drover_model::phase::BreakerPhase;

impl Shown<BreakerOut> for BreakerStatus {
    fn shown(&self) -> BreakerOut {
        let (retry_at, cause) = self.tripped.clone().unzip();
        BreakerOut {
            id: self.id.clone(),
            state: self.breaker,
            retry_at: retry_at.map(rfc3339),
            cause,
            template: self.template.to_string(),
        }
    }
}

/// Spells all that do not flow, those of templates first.
pub fn breakers(view: &View) -> Vec<BreakerOut> {
    let templates = view.templates().into_iter().map(|one| BreakerStatus {
        id: one.template.to_string(),
        breaker: one.breaker,
        tripped: one.tripped,
        template: one.template,
    });
    let all = templates.chain(view.places()).filter(|one| one.breaker != BreakerPhase::Closed);
    all.map(|one| one.shown()).collect()
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
    id: web::Path<String>,
) -> Result<web::Json<ResetOut>, Rejection> {
    let name = id.into_inner();
    let shut: BTreeSet<String> =
        breakers(&state.doors.view).into_iter().map(|one| one.id).collect();
    let command = |reply| HerdCommand::ResetBreaker { name, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let out = |id| ResetOut { flowed: !shut.contains(&id), id };
    answer.map(|id| web::Json(out(id))).map_err(Rejection::refused)
}
