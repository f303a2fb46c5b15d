//! How an order to a machine ends, for those who may give it orders: `…/orders/{order}`.

use std::time::Duration;

use actix_web::web;
use drover_actors::message::{HerdCommand, Target};
use drover_api::{OrderOut, Problem};
use drover_model::id::{AgentId, LeaseId};
use drover_model::phase::OrderPhase;
use serde::Deserialize;
use tokio::time::Instant;

use super::Caught;
use crate::auth::Caller;
use crate::events::one_of;
use crate::leases::LONGEST_WAIT_SECONDS;
use crate::problem::{Rejection, printable};
use crate::query::{Keys, Query};
use crate::shapes;
use crate::state::State;

/// How long to wait for the end of an order.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Wait {
    #[serde(default)]
    wait_seconds: u64,
}

impl Keys for Wait {
    const TAKEN: &'static str = "`waitSeconds` is taken";
}

/// What became of an order to the machine of an agent.
#[utoipa::path(
    get, path = "/v1/agents/{id}/orders/{order}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("order" = String, Path, description = "the order"),
        ("waitSeconds" = Option<u64>, Query, description = "wait until it is over, at most 300"),
    ),
    responses(
        (status = 200, body = OrderOut),
        (status = 403, body = Problem, description = "a lease or hold of somebody else is on it"),
        (status = 404, body = Problem, description = "no such order, or its agent is gone"),
    )
)]
pub(crate) async fn of_agent(
    state: web::Data<State>,
    caller: Caught,
    path: web::Path<(String, String)>,
    Query(wait): Query<Wait>,
) -> Result<web::Json<OrderOut>, Rejection> {
    let (agent, order) = path.into_inner();
    end(&state, &caller, Target::Agent(AgentId::new(agent)), &order, &wait).await
}

/// What became of an order to the machine of a lease.
#[utoipa::path(
    get, path = "/v1/leases/{id}/orders/{order}",
    params(
        ("id" = String, Path, description = "the lease"),
        ("order" = String, Path, description = "the order"),
        ("waitSeconds" = Option<u64>, Query, description = "wait until it is over, at most 300"),
    ),
    responses(
        (status = 200, body = OrderOut),
        (status = 403, body = Problem, description = "it is somebody else's"),
        (status = 404, body = Problem, description = "no such lease or order"),
        (status = 409, body = Problem, description = "the lease waits or is over"),
    )
)]
pub(crate) async fn of_lease(
    state: web::Data<State>,
    caller: Caught,
    path: web::Path<(String, String)>,
    Query(wait): Query<Wait>,
) -> Result<web::Json<OrderOut>, Rejection> {
    let (lease, order) = path.into_inner();
    end(&state, &caller, Target::Lease(LeaseId::new(lease)), &order, &wait).await
}

async fn end(
    state: &State,
    caller: &Caller,
    target: Target,
    id: &str,
    wait: &Wait,
) -> Result<web::Json<OrderOut>, Rejection> {
    if wait.wait_seconds > LONGEST_WAIT_SECONDS {
        return Err(Rejection::invalid(format!(
            "`waitSeconds` must be at most {LONGEST_WAIT_SECONDS}, and is {}; ask again after it",
            wait.wait_seconds
        )));
    }
    let deadline = Instant::now() + Duration::from_secs(wait.wait_seconds);
    let _place = match wait.wait_seconds {
        0 => None,
        _ => Some(one_of(&state.waits, &caller.principal)?),
    };
    let by = caller.by();
    let command = |reply| HerdCommand::MachineOf { target, by, reply };
    let agent = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let view = &state.doors.view;
    // From before the first look, so that no change is missed.
    let mut changes = view.events(None);
    loop {
        let all = view.agent(&agent).map(|status| status.machine.all()).unwrap_or_default();
        let found = all.into_iter().find(|status| status.order.id.as_str() == id);
        let is_over = found.as_ref().is_some_and(|found| found.phase != OrderPhase::Running);
        let is_gone = found.is_none() && view.agent(&agent).is_none();
        let settled = is_over || is_gone;
        let moved = !settled
            && tokio::select! {
                () = state.stopping() => false,
                moved = tokio::time::timeout_at(deadline, changes.next()) => moved.is_ok(),
            };
        if !moved {
            let found = found.ok_or_else(|| {
                let (agent, id) = (printable(agent.as_str()), printable(id));
                Rejection::not_found(format!("agent `{agent}` knows no order `{id}`, or is gone"))
            })?;
            return Ok(web::Json(shapes::order(&agent, &found)));
        }
    }
}
