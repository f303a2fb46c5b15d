//! `/openapi.json`: the API described from its handlers and shapes.

use actix_web::web;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};

use super::{
    addresses, agents, breakers, call_in, control, demand, events, health, holds, hooks, leases,
    metrics, nodes, templates,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "drover", description = "Leases of throw-away CI machines on Proxmox VE."),
    paths(
        leases::list, leases::create, leases::show, leases::renew, leases::release,
        agents::list, agents::show, agents::limit, agents::retire, holds::hold, holds::release,
        holds::hold_next, holds::hold_none, agents::clouds,
        agents::status, addresses::list, call_in::call, hooks::hear, templates::list, templates::provision, events::stream, control::reap, control::resync, control::plan_resync,
        control::reload,
        control::log_level, breakers::list, breakers::reset, nodes::list, nodes::drain, nodes::why, demand::list, demand::why, health::healthz, health::readyz, metrics::show, show,
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeSet;

    use reqwest::Method;
    use serde_json::Value;

    use crate::web::testing::Served;

    /// Every method and path that `routes` serves, read from its source: the server itself can not
    /// be asked.
    fn served_routes() -> BTreeSet<String> {
        let source = include_str!("mod.rs");
        let routes = &source[source.find("fn routes(").unwrap()..];
        let mut found = BTreeSet::new();
        for service in routes.split("resource(\"").skip(1) {
            let path = service.split('"').next().unwrap();
            for route in service.split(".route(web::").skip(1) {
                found.insert(format!("{} {path}", route.split('(').next().unwrap()));
            }
        }
        found
    }

    async fn document(served: &Served) -> Value {
        served.call(None, Method::GET, "/openapi.json", "").await.body
    }

    fn documented(document: &Value) -> BTreeSet<String> {
        let paths = document["paths"].as_object().unwrap();
        let methods = paths.iter().flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        });
        methods.collect()
    }

    /// Every `$ref` anywhere in a document.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    // Invariant: what is served is described, and nothing else is.

    #[tokio::test]
    async fn the_api_describes_every_route_it_has() {
        let served = Served::new();
        let document = document(&served).await;
        let described = documented(&document);
        assert_eq!(described, served_routes());
        assert!(described.len() > 18, "{described:?}");
        for route in &described {
            let (method, path) = route.split_once(' ').unwrap();
            // An open stream has no end to wait for.
            if path == "/v1/events" {
                continue;
            }
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = served.admin(method, path, "").await;
            assert_ne!(answer.status, 405, "{route}");
            let detail = answer.body["detail"].as_str().unwrap_or_default();
            assert!(!detail.starts_with("no route"), "{route}");
        }
        served.stop().await;
    }

    #[tokio::test]
    async fn the_document_is_whole() {
        let served = Served::new();
        let document = document(&served).await;
        assert!(document["openapi"].as_str().unwrap().starts_with("3."));
        assert_eq!(document["info"]["title"], "drover");
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 5, "{found:?}");
        for reference in found {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                assert!(!operation["responses"].as_object().unwrap().is_empty());
            }
        }
        let fields = &document["components"]["schemas"]["LeaseIn"]["properties"];
        assert!(fields["ttlSeconds"].is_object());
        served.stop().await;
    }
}
