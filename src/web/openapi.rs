//! `/openapi.json`: the API described from its handlers and shapes.

use actix_web::web;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use super::{agents, control, events, health, leases, metrics};

#[derive(OpenApi)]
#[openapi(
    info(title = "drover", description = "Leases of throw-away CI machines on Proxmox VE."),
    paths(
        leases::list, leases::create, leases::show, leases::renew, leases::release,
        agents::list, agents::show, agents::retire, agents::templates, agents::clouds,
        agents::status, events::stream, control::reap, control::resync, control::reload,
        control::log_level, health::healthz, health::readyz, metrics::show, show,
    ),
    modifiers(&Bearer),
    security(("bearer" = [])),
)]
struct Api;

/// Adds the bearer scheme; over the Unix socket no token is needed.
struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme("bearer", scheme);
    }
}

#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "this document")))]
pub(super) async fn show() -> web::Json<utoipa::openapi::OpenApi> {
    web::Json(Api::openapi())
}
