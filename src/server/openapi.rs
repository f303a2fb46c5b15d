//! `/openapi.json`: the API described from its handlers and shapes.

use actix_web::HttpResponse;
use actix_web::http::header::ContentType;
use actix_web::http::{Method, StatusCode};
use bytes::Bytes;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa::{Modify, OpenApi};

use super::gate::Access;
use super::place::Place;
use super::problem::CONTENT_TYPE;
use super::{
    addresses, agents, audit, black_box, breakers, call_in, clusters, control, copies, declared,
    demand, events, health, history, holds, hooks, images, leases, machines, members, metrics,
    nodes, notify, overrides, sync, templates, terminal_calls, values, whoami,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "drover", description = "Leases of throw-away CI machines on Proxmox VE."),
    paths(
        leases::list, leases::create, leases::show, leases::renew, leases::release,
        agents::list, agents::show, agents::limit, agents::retire, holds::hold, holds::release,
        holds::hold_next, holds::hold_none, agents::clouds,
        agents::status, addresses::list, audit::list, values::list, history::trace, history::usage, black_box::show, call_in::call, hooks::hear, templates::list, templates::provision, events::stream, control::reap, control::resync, control::plan_resync,
        control::reload,
        images::list, images::builds, images::cancel, images::build, images::prune, images::import,
        declared::list, declared::show, declared::delete, declared::forget, declared::adopt,
        machines::show, machines::power, machines::reconfigure, machines::snapshots, machines::take,
        machines::delete, machines::revert, machines::order_end::of_agent, machines::leased::show,
        machines::leased::power, machines::leased::reconfigure, machines::leased::snapshots,
        machines::leased::take, machines::leased::delete, machines::leased::revert,
        machines::order_end::of_lease,
        copies::of_agent, copies::of_lease,
        overrides::template, overrides::cloud, sync::show, sync::sync, sync::test, sync::plan, control::log_level, clusters::confirm, breakers::list, breakers::reset, nodes::list, nodes::cordon, nodes::drain, nodes::why, demand::list, demand::why, health::healthz, health::readyz, health::leaderz, members::list, members::transfer, members::forget, metrics::show, notify::test, terminal_calls::open, terminal_calls::list, terminal_calls::show, terminal_calls::keys, terminal_calls::size, terminal_calls::close, whoami::show, show,
    ),
    modifiers(&Bearer),
    security(("bearer" = [])),
)]
struct Api;

/// Adds the bearer scheme; over the Unix socket no token is needed.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        api.components.get_or_insert_default().add_security_scheme("bearer", scheme);
    }
}

/// Gives each operation an id that is its own, says what its caller needs, by its route, and how it
/// is refused.
struct Routed<'a>(&'a [Place]);

impl Modify for Routed<'_> {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        for (path, item) in &mut api.paths.paths {
            let methods = [
                (Method::GET, &mut item.get),
                (Method::POST, &mut item.post),
                (Method::PUT, &mut item.put),
                (Method::PATCH, &mut item.patch),
                (Method::DELETE, &mut item.delete),
            ];
            for (method, operation) in methods {
                let Some(operation) = operation else { continue };
                operation.operation_id = Some(operation_id(&method, path));
                for (status, response) in &mut operation.responses.responses {
                    if let RefOr::T(response) = response {
                        describe(status, response);
                        name_problems(response);
                    }
                }
                let responses = &mut operation.responses.responses;
                for kind in ["4XX", "5XX"] {
                    responses.entry(kind.to_owned()).or_insert_with(|| RefOr::T(any_refusal()));
                }
                let place = self.0.iter().find(|place| place.path == path);
                match place.and_then(|place| place.access_to(&method)) {
                    Some(Access::Open) => {
                        operation.security = Some(vec![SecurityRequirement::default()]);
                    }
                    Some(Access::Least(role)) => {
                        let role = [("x-role", role.to_string())].into_iter().collect();
                        operation.extensions.get_or_insert_default().merge(role);
                    }
                    None => {}
                }
            }
        }
    }
}

/// Answers what is refused for a reason that an operation does not name, such as its caller, or that
/// too much is under way.
fn any_refusal() -> Response {
    let mut refusal = Response::new("any other refusal");
    let problem = Content::new(Some(Ref::from_schema_name("Problem")));
    refusal.content.insert(CONTENT_TYPE.to_owned(), RefOr::T(problem));
    refusal
}

/// Describes a response by its status where nothing else does: OpenAPI 3.1 wants a description of each.
fn describe(status: &str, response: &mut Response) {
    if response.description.is_empty() {
        let code = StatusCode::from_bytes(status.as_bytes()).ok();
        let reason = code.and_then(|code| code.canonical_reason());
        response.description = reason.unwrap_or(status).to_owned();
    }
}

/// Gives refusals the type that they are sent with.
fn name_problems(response: &mut Response) {
    let is_problem = |content: &RefOr<Content>| match content {
        RefOr::T(Content { schema: Some(RefOr::Ref(to)), .. }) => {
            to.ref_location.ends_with("/Problem")
        }
        RefOr::T(_) | RefOr::Ref(_) => false,
    };
    let contents = std::mem::take(&mut response.content);
    let named = contents.into_iter().map(|(kind, content)| {
        let kind = if is_problem(&content) { CONTENT_TYPE.to_owned() } else { kind };
        (kind, content)
    });
    response.content = named.collect();
}

/// Spells method and path in camel case: `POST /v1/leases/{id}/renew` is `postLeasesByIdRenew`.
fn operation_id(method: &Method, path: &str) -> String {
    let mut id = method.as_str().to_lowercase();
    for segment in path.strip_prefix("/v1").unwrap_or(path).split('/') {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let words = name.map(|name| ["by", name]).unwrap_or([segment, ""]);
        for word in words.iter().flat_map(|words| words.split(['-', '.'])) {
            let mut letters = word.chars();
            id.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            id.push_str(letters.as_str());
        }
    }
    id
}

/// The document of the API with these paths, as JSON.
pub(super) fn document(places: &[Place]) -> Bytes {
    let mut api = Api::openapi();
    Routed(places).modify(&mut api);
    Bytes::from(serde_json::to_vec(&api).unwrap_or_default())
}

#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "this document")))]
pub(super) async fn show(document: &'static Bytes) -> HttpResponse {
    HttpResponse::Ok().content_type(ContentType::json()).body(document.clone())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::collections::BTreeSet;

    use reqwest::Method;
    use serde_json::{Value, json};

    use super::super::routes::places;
    use crate::testing::Served;

    /// Every method and path that is served.
    fn served_routes() -> BTreeSet<String> {
        let routes = places().into_iter().flat_map(|place| {
            let path = place.path;
            let name = move |method: &actix_web::http::Method| {
                format!("{} {path}", method.as_str().to_lowercase())
            };
            place.methods.into_iter().map(move |(method, _)| name(&method))
        });
        routes.collect()
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
        let served = Served::default();
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
        let served = Served::default();
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
                // Each says who may use it.
                let open = operation["security"] == json!([{}]);
                assert_ne!(open, operation["x-role"].is_string(), "{operation}");
                // And how each is refused.
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let description = response["description"].as_str();
                    assert!(
                        description.is_some_and(|text| !text.is_empty()),
                        "{status} {operation}"
                    );
                    let content = response["content"].as_object();
                    let kinds: Vec<&str> =
                        content.into_iter().flatten().map(|(kind, _)| &**kind).collect();
                    if status.starts_with(['4', '5']) {
                        assert_eq!(kinds, ["application/problem+json"], "{status} {operation}");
                    }
                }
                for kind in ["4XX", "5XX"] {
                    assert!(operation["responses"][kind].is_object(), "{operation}");
                }
            }
        }
        assert_eq!(document["paths"]["/v1/reload"]["post"]["x-role"], "admin");
        let fields = &document["components"]["schemas"]["LeaseIn"]["properties"];
        assert!(fields["ttlSeconds"].is_object());
        served.stop().await;
    }

    // Invariant: requests and answers change only where somebody sees it: one line for each operation
    // and each type.

    #[test]
    fn the_document_is_the_golden_one() {
        let document: Value = serde_json::from_slice(&super::document(&places())).unwrap();
        let paths = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations.map(move |(method, operation)| format!("{method} {path} {operation}"))
        });
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let schemas = schemas.iter().map(|(name, schema)| format!("{name} {schema}"));
        let lines: Vec<String> = paths.chain(schemas).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    // Invariant: a client made from the document has a name of its own for each operation.

    #[tokio::test]
    async fn no_two_operations_have_one_id() {
        let served = Served::default();
        let document = document(&served).await;
        let items = document["paths"].as_object().unwrap().values();
        let operations = items.flat_map(|item| item.as_object().unwrap().values());
        let ids: Vec<&str> = operations.map(|one| one["operationId"].as_str().unwrap()).collect();
        let distinct: BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{ids:?}");
        for id in ["getLeasesById", "postLeasesByIdRenew", "getAddressPools", "getOpenapiJson"] {
            assert!(ids.contains(&id), "{ids:?}");
        }
        served.stop().await;
    }
}
