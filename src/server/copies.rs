//! Copies of machines: another agent, cloned from the machine of a leased or held one, and held for who
//! asked. The answer comes once its hold is durable; the clone goes on after it.

use actix_web::{HttpResponse, web};
use drover_actors::message::{CopyAsk, HerdCommand, Target};
use drover_api::{CloneOut, HoldIn, Problem};
use drover_model::id::{AgentId, LeaseId};

use super::auth::Caller;
use super::holds::{Terms, reported_once};
use super::problem::Rejection;
use super::state::State;

type Body = Result<web::Bytes, actix_web::Error>;

/// Makes another agent whose machine is a full clone of this agent's, and holds it. Asked twice, it
/// makes two.
#[utoipa::path(
    post, path = "/v1/agents/{id}/clone", params(("id" = String, Path, description = "the agent")),
    request_body = HoldIn,
    responses(
        (status = 202, body = CloneOut, description = "the copy is started and its hold written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "somebody else's, or beyond a quota"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it is neither leased nor held, runs a job of a CI system, is a container, or has an order"),
        (status = 429, body = Problem, description = "no place is free under the caps, or a breaker is open"),
    )
)]
pub(super) async fn of_agent(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    let target = Target::Agent(AgentId::new(&*id));
    copied(&state, &caller, target, Terms::read(body, &id)?).await
}

/// Makes another agent whose machine is a full clone of that of a lease, and holds it. Asked twice, it
/// makes two.
#[utoipa::path(
    post, path = "/v1/leases/{id}/clone", params(("id" = String, Path, description = "the lease")),
    request_body = HoldIn,
    responses(
        (status = 202, body = CloneOut, description = "the copy is started and its hold written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "somebody else's, or beyond a quota"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the lease waits or is over, or an order runs"),
        (status = 429, body = Problem, description = "no place is free under the caps, or a breaker is open"),
    )
)]
pub(super) async fn of_lease(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    let target = Target::Lease(LeaseId::new(&*id));
    copied(&state, &caller, target, Terms::read(body, &id)?).await
}

async fn copied(
    state: &State,
    caller: &Caller,
    target: Target,
    terms: Terms,
) -> Result<HttpResponse, Rejection> {
    let (hold, by) = (terms.hold(), caller.by());
    let command = |reply| HerdCommand::Copy(CopyAsk { target, hold, by, reply });
    let copied = state.ask(state.limits.reply, command).await?.map_err(Rejection::refused)?;
    let Terms { seconds, public_key, private_key } = terms;
    Ok(reported_once(CloneOut {
        agent: copied.agent.to_string(),
        of: copied.of.to_string(),
        template: copied.template.to_string(),
        seconds,
        ssh_public_key: public_key,
        private_key,
    }))
}
