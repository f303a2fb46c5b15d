//! Breakers of templates, nodes, storages and clouds: those that do not flow, and how an operator
//! resets one.

use std::collections::BTreeSet;

use actix_web::web;
use drover_actors::message::HerdCommand;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shapes::rfc3339;
use super::{Problem, State};
use crate::view::{BreakerStatus, View};
use drover_model::phase::BreakerPhase;

/// A breaker that does not flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BreakerOut {
    /// `cloud/template`, or `node:`, `storage:` or `cloud:` and a name.
    pub id: String,
    pub state: BreakerPhase,
    /// When it is tried again (RFC 3339), while it is tripped.
    pub retry_at: Option<String>,
    /// What tripped it.
    pub cause: Option<String>,
    /// The template whose agent moved it last.
    pub template: String,
}

/// Breakers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BreakersOut {
    /// Those that do not flow.
    pub breakers: Vec<BreakerOut>,
}

/// What was reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResetOut {
    /// The breaker.
    pub id: String,
    /// Whether it flowed already.
    #[serde(default)]
    pub flowed: bool,
}

impl From<&BreakerStatus> for BreakerOut {
    fn from(one: &BreakerStatus) -> Self {
        let (retry_at, cause) = one.tripped.clone().unzip();
        Self {
            id: one.id.clone(),
            state: one.breaker,
            retry_at: retry_at.map(rfc3339),
            cause,
            template: one.template.to_string(),
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
    all.map(|one| BreakerOut::from(&one)).collect()
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
) -> Result<web::Json<ResetOut>, Problem> {
    let name = id.into_inner();
    let shut: BTreeSet<String> =
        breakers(&state.doors.view).into_iter().map(|one| one.id).collect();
    let command = |reply| HerdCommand::ResetBreaker { name, reply };
    let answer = state.ask(state.limits.reply, command).await?;
    let out = |id| ResetOut { flowed: !shut.contains(&id), id };
    answer.map(|id| web::Json(out(id))).map_err(Problem::refused)
}
