//! Routes: each path, the methods it takes, and what the caller of each needs.
//!
//! A method is added to a path together with its [`Access`], so no route can lack one, and the
//! check is part of the route that the router matched. The spelling of a path decides which route
//! answers, and the route alone decides who may use it. A path that no route has needs a known
//! caller and is answered 404; a method that a path does not take is answered 405 with `Allow`.
//! HEAD is answered wherever GET is.

use actix_web::body::BoxBody;
use actix_web::dev::{Handler, ServiceRequest};
use actix_web::guard;
use actix_web::http::Method;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, ServiceConfig};
use actix_web::{FromRequest, HttpRequest, Resource, Responder, Route};

use super::intake::Sender;
use super::problem::Rejection;
use super::state::{BODY_LIMIT, State};
use super::{
    addresses, agents, auth, breakers, call_in, clusters, control, demand, events, health, holds,
    hooks, images, leases, metrics, nodes, openapi, problem, templates,
};
use drover_api::Role;

/// What the caller of a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: the route is open, or proves its callers by other means.
    Open,
    /// At least this role.
    Least(Role),
}

/// What is asked of a request before its body is read.
#[derive(Clone, Copy)]
pub(super) struct Guard {
    pub access: Access,
    /// The route's own question where it is open: who proves nothing by the head alone is refused.
    pub first: Option<First>,
    /// The most bytes of a body.
    pub body_limit: usize,
    /// Whether the handler decides what kind of body it takes, and not the head.
    pub takes_any_kind: bool,
}

/// Refuses a request by its head, or says whose body it has.
pub(super) type First = fn(&State, &ServiceRequest) -> Result<Sender, Rejection>;

const OPEN: Access = Access::Open;
const VIEWER: Access = Access::Least(Role::Viewer);
const OPERATOR: Access = Access::Least(Role::Operator);
const ADMIN: Access = Access::Least(Role::Admin);

/// The role that a reload needs, also as a part of something else.
pub(super) const RELOAD: Role = Role::Admin;

/// A path with the methods it takes.
pub(super) struct Place {
    pub path: &'static str,
    /// In the order of their names.
    pub methods: Vec<(Method, Access)>,
    resource: Resource,
    body_limit: usize,
    takes_any_kind: bool,
    first: Option<First>,
}

impl Place {
    fn at(path: &'static str) -> Self {
        let (methods, resource) = (Vec::new(), web::resource(path));
        let body_limit = BODY_LIMIT;
        Self { path, methods, resource, body_limit, takes_any_kind: false, first: None }
    }

    /// Takes bodies of at most so many bytes by the methods that follow.
    fn body_limit(mut self, bytes: usize) -> Self {
        self.resource = self.resource.app_data(web::PayloadConfig::new(bytes));
        self.body_limit = bytes;
        self
    }

    /// Leaves it to the handlers of the methods that follow what a body is.
    fn any_kind(mut self) -> Self {
        self.takes_any_kind = true;
        self
    }

    /// Asks this of the head first, by the methods that follow.
    fn first(mut self, first: First) -> Self {
        self.first = Some(first);
        self
    }

    fn on<F, Args>(mut self, method: Method, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        // HEAD is answered like GET; its answer ends with the head (`line.rs`).
        let route = if method == Method::GET {
            web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
        } else {
            web::method(method.clone())
        };
        let route = route.to(handler);
        let (first, body_limit, takes_any_kind) =
            (self.first, self.body_limit, self.takes_any_kind);
        let guard = Guard { access, first, body_limit, takes_any_kind };
        self.resource = self.resource.route(guarded(route, guard));
        self.methods.push((method, access));
        self.methods.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
        self
    }

    fn get<F, Args>(self, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.on(Method::GET, access, handler)
    }

    fn post<F, Args>(self, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.on(Method::POST, access, handler)
    }

    fn delete<F, Args>(self, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.on(Method::DELETE, access, handler)
    }

    /// What a caller needs to learn that the path does not take a method: any role, and nothing
    /// where one of its methods needs nothing.
    pub(super) fn access_to_refusal(&self) -> Access {
        if self.methods.iter().any(|(_, access)| *access == OPEN) { OPEN } else { VIEWER }
    }

    /// What the caller of a method needs; none where the path does not take it. HEAD is taken where
    /// GET is.
    pub(super) fn access_to(&self, method: &Method) -> Option<Access> {
        let method = if *method == Method::HEAD { Method::GET } else { method.clone() };
        self.methods.iter().find(|(known, _)| *known == method).map(|(_, access)| *access)
    }

    /// The value of `Allow`.
    pub(super) fn allow(&self) -> String {
        let mut methods: Vec<_> = self.methods.iter().map(|(method, _)| method.as_str()).collect();
        if self.access_to(&Method::HEAD).is_some() {
            methods.push(Method::HEAD.as_str());
        }
        methods.sort_unstable();
        methods.join(", ")
    }

    fn service(self) -> Resource {
        let (allow, access) = (self.allow(), self.access_to_refusal());
        let refuse = move |request: HttpRequest| {
            std::future::ready(problem::method_not_allowed(&request, &allow))
        };
        self.resource.default_service(guarded(web::route().to(refuse), Guard::of(access)))
    }
}

impl Guard {
    /// Of what takes no body.
    fn of(access: Access) -> Self {
        Self { access, first: None, body_limit: 0, takes_any_kind: true }
    }
}

/// A route that nobody without the access reaches.
fn guarded(route: Route, guard: Guard) -> Route {
    let gate = move |request: ServiceRequest, next: Next<BoxBody>| auth::gate(guard, request, next);
    route.wrap(from_fn(gate))
}

pub(super) fn places() -> Vec<Place> {
    vec![
        Place::at("/v1/leases")
            .body_limit(leases::LEASE_LIMIT)
            .get(VIEWER, leases::list)
            .post(OPERATOR, leases::create),
        Place::at("/v1/leases/{id}").get(VIEWER, leases::show).delete(OPERATOR, leases::release),
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
        Place::at("/v1/agents/{id}/retire").post(OPERATOR, agents::retire),
        Place::at("/v1/templates").get(VIEWER, templates::list),
        Place::at("/v1/templates/{id}/provision").post(OPERATOR, templates::provision),
        Place::at("/v1/templates/{id}/hold-next")
            .post(ADMIN, holds::hold_next)
            .delete(ADMIN, holds::hold_none),
        Place::at("/v1/clouds/{id}/confirm").post(ADMIN, clusters::confirm),
        Place::at("/v1/breakers").get(VIEWER, breakers::list),
        Place::at("/v1/breakers/{id}/reset").post(ADMIN, breakers::reset),
        // These ask the clusters, as a reconciliation does.
        Place::at("/v1/templates/{id}/why").get(OPERATOR, nodes::why),
        Place::at("/v1/why").get(OPERATOR, demand::why),
        Place::at("/v1/nodes").get(OPERATOR, nodes::list),
        Place::at("/v1/resync").get(OPERATOR, control::plan_resync).post(OPERATOR, control::resync),
        Place::at("/v1/images").get(OPERATOR, images::list),
        Place::at("/v1/images/builds").get(VIEWER, images::builds),
        Place::at("/v1/images/prune").post(ADMIN, images::prune),
        Place::at("/v1/images/{id}/build").post(ADMIN, images::build),
        Place::at("/v1/images/{id}/import").post(ADMIN, images::import),
        Place::at("/v1/jobs").get(VIEWER, demand::list),
        Place::at("/v1/nodes/{node}/drain").post(ADMIN, nodes::drain),
        Place::at("/v1/address-pools").get(VIEWER, addresses::list),
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
        Place::at("/v1/events").get(VIEWER, events::stream),
        Place::at("/v1/reap").post(ADMIN, control::reap),
        Place::at("/v1/reload").post(Access::Least(RELOAD), control::reload),
        Place::at("/v1/log-level").on(Method::PUT, ADMIN, control::log_level),
        Place::at("/healthz").get(OPEN, health::healthz),
        Place::at("/readyz").get(OPEN, health::readyz),
        Place::at("/metrics").get(VIEWER, metrics::show),
        Place::at("/openapi.json").get(OPEN, openapi::show),
    ]
}

/// Registers every route, and what answers where none does.
pub(super) fn register(config: &mut ServiceConfig) {
    config.app_data(web::PayloadConfig::new(BODY_LIMIT)).app_data(
        web::PathConfig::default().error_handler(|fault, _| {
            Rejection::not_found(format!("no such name: {fault}")).into()
        }),
    );
    for place in places() {
        config.service(place.service());
    }
    config.default_service(guarded(web::route().to(problem::no_such_route), Guard::of(VIEWER)));
}
