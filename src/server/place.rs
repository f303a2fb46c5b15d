//! One path of the API: the methods it takes, and the guard of each.
//!
//! A method is added to a path together with its [`Access`], so no route can lack one, and the
//! check is part of the route that the router matched.

use actix_web::body::BoxBody;
use actix_web::dev::{Handler, ServiceRequest};
use actix_web::guard;
use actix_web::http::Method;
use actix_web::middleware::{Next, from_fn};
use actix_web::{FromRequest, HttpRequest, Resource, Responder, Route, web};
use drover_api::Role;

use super::gate::{self, Access, First, Guard};
use super::house::BODY_LIMIT;
use super::problem;

/// A path with the methods it takes.
pub(super) struct Place {
    pub path: &'static str,
    /// In the order of their names.
    pub methods: Vec<(Method, Access)>,
    resource: Resource,
    pub(super) body_limit: usize,
    takes_any_kind: bool,
    takes_query: Option<Method>,
    first: Option<First>,
    is_page: bool,
    is_part: bool,
}

impl Place {
    pub(super) fn at(path: &'static str) -> Self {
        let (methods, resource) = (Vec::new(), web::resource(path));
        let body_limit = BODY_LIMIT;
        let (takes_any_kind, takes_query) = (false, None);
        Self {
            path,
            methods,
            resource,
            body_limit,
            takes_any_kind,
            takes_query,
            first: None,
            is_page: false,
            is_part: false,
        }
    }

    /// Leaves it to the handler of GET which query it takes.
    pub(super) fn query(self) -> Self {
        self.query_of(Method::GET)
    }

    /// Leaves it to the handler of this method alone which query it takes.
    pub(super) fn query_of(mut self, method: Method) -> Self {
        self.takes_query = Some(method);
        self
    }

    /// Takes bodies of at most so many bytes by the methods that follow.
    pub(super) fn body_limit(mut self, bytes: usize) -> Self {
        self.resource = self.resource.app_data(web::PayloadConfig::new(bytes));
        self.body_limit = bytes;
        self
    }

    /// Leaves it to the handlers of the methods that follow what a body is.
    pub(super) fn any_kind(mut self) -> Self {
        self.takes_any_kind = true;
        self
    }

    /// Answers people in a browser by the methods that follow.
    pub(super) fn page(mut self) -> Self {
        self.is_page = true;
        self
    }

    /// Has the methods that follow be parts of something whose beginning and end the audit log has: what they do
    /// is in no log by itself.
    pub(super) fn part(mut self) -> Self {
        self.is_part = true;
        self
    }

    /// Asks this of the head first, by the methods that follow.
    pub(super) fn first(mut self, first: First) -> Self {
        self.first = Some(first);
        self
    }

    /// Takes a method, for callers with this access.
    pub(super) fn on<F, Args>(mut self, method: Method, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        // HEAD is answered like GET; its answer ends with the head (`seat.rs`).
        let route = if method == Method::GET {
            web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
        } else {
            web::method(method.clone())
        };
        let route = route.to(handler);
        let (first, body_limit, takes_any_kind) =
            (self.first, self.body_limit, self.takes_any_kind);
        let takes_query = self.takes_query.as_ref() == Some(&method);
        let (is_page, is_part) = (self.is_page, self.is_part);
        let guard =
            Guard { access, first, body_limit, takes_any_kind, takes_query, is_page, is_part };
        self.resource = self.resource.route(guarded(route, guard));
        self.methods.push((method, access));
        self.methods.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
        self
    }

    pub(super) fn get<F, Args>(self, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.on(Method::GET, access, handler)
    }

    pub(super) fn post<F, Args>(self, access: Access, handler: F) -> Self
    where
        F: Handler<Args>,
        Args: FromRequest + 'static,
        F::Output: Responder + 'static,
    {
        self.on(Method::POST, access, handler)
    }

    pub(super) fn delete<F, Args>(self, access: Access, handler: F) -> Self
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
        let is_open = self.methods.iter().any(|(_, access)| *access == Access::Open);
        if is_open { Access::Open } else { Access::Least(Role::Viewer) }
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

    /// The path as the router takes it, with the answer to methods that it does not take.
    pub(super) fn service(self) -> Resource {
        let (allow, access) = (self.allow(), self.access_to_refusal());
        let refuse = move |request: HttpRequest| {
            std::future::ready(problem::method_not_allowed(&request, &allow))
        };
        self.resource.default_service(guarded(web::route().to(refuse), Guard::of(access)))
    }
}

/// A route that nobody without the access reaches.
pub(super) fn guarded(route: Route, guard: Guard) -> Route {
    let gate = move |request: ServiceRequest, next: Next<BoxBody>| gate::pass(guard, request, next);
    route.wrap(from_fn(gate))
}
