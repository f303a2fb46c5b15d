//! The same for the machine of a lease: the holder of the lease needs no id of an agent.

use actix_web::{HttpResponse, web};
use drover_actors::message::Target;
use drover_api::{
    MachineOut, OrderIn, OrderOut, PowerIn, Problem, ResizeIn, SnapshotIn, SnapshotsOut,
};
use drover_model::id::LeaseId;

use super::{
    Body, Caught, Keyed, listed, ordered, read_delete, read_power, read_resize, read_revert,
    read_snapshot, shown,
};
use crate::problem::Rejection;
use crate::query::Query;
use crate::state::State;

fn of_lease(id: &str) -> Target {
    Target::Lease(LeaseId::new(id))
}

/// Looks at the machine of a lease.
#[utoipa::path(
    get, path = "/v1/leases/{id}/machine", params(("id" = String, Path, description = "the lease")),
    responses(
        (status = 200, body = MachineOut),
        (status = 403, body = Problem, description = "it is somebody else's"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the lease waits or is over"),
        (status = 503, body = Problem, description = "its cluster cannot be asked"),
    )
)]
pub(crate) async fn show(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
) -> Result<web::Json<MachineOut>, Rejection> {
    shown(&state, &caller, of_lease(&id)).await
}

/// Switches the machine of a lease.
#[utoipa::path(
    post, path = "/v1/leases/{id}/power", request_body = PowerIn,
    params(("id" = String, Path, description = "the lease")),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "it is somebody else's"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "the lease waits or is over, or an order runs"),
    )
)]
pub(crate) async fn power(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    ordered(&state, &caller, of_lease(&id), read_power(body)?).await
}

/// Gives the machine of a lease other sizes.
#[utoipa::path(
    post, path = "/v1/leases/{id}/reconfigure", request_body = ResizeIn,
    params(("id" = String, Path, description = "the lease")),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "somebody else's, or beyond a quota"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "a smaller disk, no room on its node, or an order runs"),
    )
)]
pub(crate) async fn reconfigure(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    ordered(&state, &caller, of_lease(&id), read_resize(body)?).await
}

/// Lists the snapshots of the machine of a lease.
#[utoipa::path(
    get, path = "/v1/leases/{id}/snapshots", params(("id" = String, Path, description = "the lease")),
    responses(
        (status = 200, body = SnapshotsOut),
        (status = 403, body = Problem), (status = 404, body = Problem),
    )
)]
pub(crate) async fn snapshots(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
) -> Result<web::Json<SnapshotsOut>, Rejection> {
    listed(&state, &caller, of_lease(&id)).await
}

/// Takes a snapshot of the machine of a lease.
#[utoipa::path(
    post, path = "/v1/leases/{id}/snapshots", request_body = SnapshotIn,
    params(("id" = String, Path, description = "the lease")),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(crate) async fn take(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    ordered(&state, &caller, of_lease(&id), read_snapshot(body)?).await
}

/// Deletes a snapshot of the machine of a lease.
#[utoipa::path(
    delete, path = "/v1/leases/{id}/snapshots/{name}",
    params(
        ("id" = String, Path, description = "the lease"),
        ("name" = String, Path, description = "the snapshot"),
        ("idempotencyKey" = Option<String>, Query, description = "the same key and order answer the same order"),
    ),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(crate) async fn delete(
    state: web::Data<State>,
    caller: Caught,
    path: web::Path<(String, String)>,
    Query(keyed): Query<Keyed>,
) -> Result<HttpResponse, Rejection> {
    let (id, name) = path.into_inner();
    ordered(&state, &caller, of_lease(&id), read_delete(name, keyed)?).await
}

/// Puts the machine of a lease back to a snapshot; it runs afterwards.
#[utoipa::path(
    post, path = "/v1/leases/{id}/snapshots/{name}/revert", request_body = OrderIn,
    params(
        ("id" = String, Path, description = "the lease"),
        ("name" = String, Path, description = "the snapshot"),
    ),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(crate) async fn revert(
    state: web::Data<State>,
    caller: Caught,
    path: web::Path<(String, String)>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    let (id, name) = path.into_inner();
    ordered(&state, &caller, of_lease(&id), read_revert(name, body)?).await
}
