//! Routes: each path, the methods it takes, and what the caller of each needs.
//!
//! Each route has its [`Access`] (`place.rs`), and the gate before it asks for that (`gate.rs`). The
//! spelling of a path decides which route answers, and the route alone decides who may use it. A path
//! that no route has needs a known caller and is answered 404; a method that a path does not take is
//! answered 405 with `Allow`. HEAD is answered wherever GET is.

use std::sync::LazyLock;

use actix_web::http::Method;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use drover_api::Role;

use super::gate::{Access, Guard};
use super::house::BODY_LIMIT;
use super::place::{Place, guarded};
use super::problem::Rejection;
use super::{
    addresses, agents, answers, audit, black_box, breakers, call_in, clusters, control, copies,
    declared, demand, events, health, history, holds, hooks, images, leases, machines, members,
    metrics, nodes, notify, openapi, overrides, page, problem, sync, templates, terminal_calls,
    values, whoami,
};

const OPEN: Access = Access::Open;
const VIEWER: Access = Access::Least(Role::Viewer);
const OPERATOR: Access = Access::Least(Role::Operator);
const ADMIN: Access = Access::Least(Role::Admin);

/// The description of all routes as JSON, made once: anyone who asks has its bytes without a copy of them.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi::document(&places()));

pub(super) fn places() -> Vec<Place> {
    vec![
        Place::at("/v1/leases")
            .body_limit(leases::LEASE_LIMIT)
            .query()
            .get(VIEWER, leases::list)
            .post(OPERATOR, leases::create),
        Place::at("/v1/leases/{id}")
            .query()
            .get(VIEWER, leases::show)
            .delete(OPERATOR, leases::release),
        Place::at("/v1/leases/{id}/renew").post(OPERATOR, leases::renew),
        Place::at("/v1/agents").get(VIEWER, agents::list),
        Place::at("/v1/agents/{id}").get(VIEWER, agents::show).on(
            Method::PATCH,
            OPERATOR,
            agents::limit,
        ),
        Place::at("/v1/agents/{id}/hold")
            .post(OPERATOR, holds::hold)
            .delete(OPERATOR, holds::release),
        Place::at("/v1/agents/{id}/blackbox").get(OPERATOR, black_box::show),
        // A look at a machine asks its cluster.
        Place::at("/v1/agents/{id}/machine").get(OPERATOR, machines::show),
        Place::at("/v1/agents/{id}/power").post(OPERATOR, machines::power),
        Place::at("/v1/agents/{id}/reconfigure").post(OPERATOR, machines::reconfigure),
        Place::at("/v1/agents/{id}/snapshots")
            .get(OPERATOR, machines::snapshots)
            .post(OPERATOR, machines::take),
        Place::at("/v1/agents/{id}/snapshots/{name}")
            .query_of(Method::DELETE)
            .delete(OPERATOR, machines::delete),
        Place::at("/v1/agents/{id}/snapshots/{name}/revert").post(OPERATOR, machines::revert),
        Place::at("/v1/agents/{id}/clone").post(OPERATOR, copies::of_agent),
        Place::at("/v1/leases/{id}/clone").post(OPERATOR, copies::of_lease),
        Place::at("/v1/agents/{id}/orders/{order}")
            .query()
            .get(OPERATOR, machines::order_end::of_agent),
        Place::at("/v1/leases/{id}/machine").get(OPERATOR, machines::leased::show),
        Place::at("/v1/leases/{id}/power").post(OPERATOR, machines::leased::power),
        Place::at("/v1/leases/{id}/reconfigure").post(OPERATOR, machines::leased::reconfigure),
        Place::at("/v1/leases/{id}/snapshots")
            .get(OPERATOR, machines::leased::snapshots)
            .post(OPERATOR, machines::leased::take),
        Place::at("/v1/leases/{id}/snapshots/{name}")
            .query_of(Method::DELETE)
            .delete(OPERATOR, machines::leased::delete),
        Place::at("/v1/leases/{id}/orders/{order}")
            .query()
            .get(OPERATOR, machines::order_end::of_lease),
        Place::at("/v1/leases/{id}/snapshots/{name}/revert")
            .post(OPERATOR, machines::leased::revert),
        Place::at("/v1/agents/{id}/terminals").post(OPERATOR, terminal_calls::open),
        Place::at("/v1/terminals").get(OPERATOR, terminal_calls::list),
        Place::at("/v1/terminals/{id}")
            .get(OPERATOR, terminal_calls::show)
            .delete(OPERATOR, terminal_calls::close),
        Place::at("/v1/terminals/{id}/keys")
            .body_limit(terminal_calls::KEYS_LIMIT)
            .part()
            .post(OPERATOR, terminal_calls::keys),
        Place::at("/v1/terminals/{id}/size").part().post(OPERATOR, terminal_calls::size),
        Place::at("/v1/agents/{id}/retire").post(OPERATOR, agents::retire),
        Place::at("/v1/templates").get(VIEWER, templates::list),
        Place::at("/v1/templates/{id}").on(Method::PATCH, ADMIN, overrides::template),
        Place::at("/v1/templates/{id}/provision").post(OPERATOR, templates::provision),
        Place::at("/v1/templates/{id}/hold-next")
            .post(ADMIN, holds::hold_next)
            .delete(ADMIN, holds::hold_none),
        Place::at("/v1/clouds/{id}").on(Method::PATCH, ADMIN, overrides::cloud),
        Place::at("/v1/clouds/{id}/confirm").post(ADMIN, clusters::confirm),
        Place::at("/v1/breakers").get(VIEWER, breakers::list),
        Place::at("/v1/breakers/{id}/reset").post(ADMIN, breakers::reset),
        // These ask the clusters, as a reconciliation does.
        Place::at("/v1/templates/{id}/why").get(OPERATOR, nodes::why),
        Place::at("/v1/why").query().get(OPERATOR, demand::why),
        Place::at("/v1/nodes").get(OPERATOR, nodes::list),
        Place::at("/v1/resync").get(OPERATOR, control::plan_resync).post(OPERATOR, control::resync),
        Place::at("/v1/images").get(OPERATOR, images::list),
        Place::at("/v1/images/builds").get(VIEWER, images::builds),
        Place::at("/v1/images/builds/{id}/cancel").post(ADMIN, images::cancel),
        Place::at("/v1/images/prune").post(ADMIN, images::prune),
        Place::at("/v1/images/{id}/build").post(ADMIN, images::build),
        Place::at("/v1/images/{id}/import").post(ADMIN, images::import),
        Place::at("/v1/machines").get(VIEWER, declared::list),
        Place::at("/v1/machines/{name}")
            .get(VIEWER, declared::show)
            .delete(ADMIN, declared::delete),
        Place::at("/v1/machines/{name}/forget").post(ADMIN, declared::forget),
        Place::at("/v1/machines/{name}/adopt").post(ADMIN, declared::adopt),
        Place::at("/v1/jobs").get(VIEWER, demand::list),
        Place::at("/v1/nodes/{node}/cordon").post(ADMIN, nodes::cordon),
        Place::at("/v1/nodes/{node}/drain").post(ADMIN, nodes::drain),
        Place::at("/v1/address-pools").get(VIEWER, addresses::list),
        Place::at("/v1/configuration/values").get(OPERATOR, values::list),
        Place::at("/v1/audit").query().get(ADMIN, audit::list),
        Place::at("/v1/trace").query().get(OPERATOR, history::trace),
        Place::at("/v1/usage").query().get(OPERATOR, history::usage),
        // Guests show a token of their own.
        Place::at("/v1/call-in").first(call_in::first).post(OPEN, call_in::call),
        // CI systems sign what they send.
        Place::at("/v1/hooks/{source}")
            .body_limit(hooks::HOOK_LIMIT)
            .any_kind()
            .first(hooks::first)
            .post(OPEN, hooks::hear),
        Place::at("/v1/clouds").get(VIEWER, agents::clouds),
        Place::at("/v1/status").get(VIEWER, agents::status),
        Place::at("/v1/whoami").get(VIEWER, whoami::show),
        Place::at("/v1/events").get(VIEWER, events::stream),
        Place::at("/v1/reap").post(ADMIN, control::reap),
        Place::at("/v1/reload").post(Access::Least(control::RELOAD), control::reload),
        Place::at("/v1/sync").get(VIEWER, sync::show).post(ADMIN, sync::sync),
        Place::at("/v1/plan").body_limit(sync::PLAN_LIMIT).post(VIEWER, sync::plan),
        Place::at("/v1/sync/test").post(OPERATOR, sync::test),
        Place::at("/v1/notify/test").post(OPERATOR, notify::test),
        Place::at("/v1/log-level").on(Method::PUT, ADMIN, control::log_level),
        Place::at("/v1/members").get(VIEWER, members::list),
        Place::at("/v1/members/transfer").post(ADMIN, members::transfer),
        Place::at("/v1/members/{name}").delete(ADMIN, members::forget),
        Place::at("/healthz").get(OPEN, health::healthz),
        Place::at("/readyz").get(OPEN, health::readyz),
        Place::at("/leaderz").get(OPEN, health::leaderz),
        Place::at("/metrics").get(VIEWER, metrics::show),
        Place::at("/openapi.json").get(OPEN, || openapi::show(&DOCUMENT)),
    ]
}

/// Registers every route, and what answers where none does.
pub(super) fn register(config: &mut ServiceConfig) {
    config.app_data(web::PayloadConfig::new(BODY_LIMIT)).app_data(
        web::PathConfig::default().error_handler(|fault, _| {
            Rejection::not_found(format!("no such name: {fault}")).into()
        }),
    );
    for place in places().into_iter().chain(page::places()) {
        config.service(place.service());
    }
    config.default_service(guarded(web::route().to(nothing), Guard::of(VIEWER)));
}

/// What answers where no route does: a page for people in a browser.
async fn nothing(request: HttpRequest) -> HttpResponse {
    let problem = problem::no_such_route(request.clone()).await;
    answers::for_whom(&request, &problem)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use insta::assert_snapshot;

    use super::*;

    // Invariant: what each call needs is decided here, and a change of it is seen.

    #[test]
    fn each_place_asks_for_its_role() {
        let mut text = String::new();
        for place in places().into_iter().chain(page::places()) {
            for (method, access) in &place.methods {
                let role = match access {
                    Access::Open => "anybody".to_owned(),
                    Access::Least(role) => role.to_string(),
                };
                writeln!(text, "{role:8} {method:6} {}", place.path).ok();
            }
        }
        assert_snapshot!(text);
    }
}
