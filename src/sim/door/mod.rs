//! The simulator's door: HTTP, schema, access control.
//!
//! Order of checks, as in Proxmox (behaviour section 2): transport, login, route, token allowed,
//! permission, forward to the owning node, parameters, code. The door answers `/version`,
//! `/access`, `/pools` and index routes itself; the world answers the rest.

pub mod access;
mod answer;
mod body;
pub mod certificates;
mod connections;
mod format;
pub mod http;
mod index;
mod multipart;
mod permission;
mod schema;
mod unserved;
mod validate;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::call::{Answer, ApiError, Call, Caller, Outcome, Params};
use super::record::{Asked, Record};
use super::rights::{Reset, Routes};
use super::spec::{ClusterSpec, PveVersion};

use access::Access;
pub use connections::{Connections, Seat};
use http::{Place, Request, Response};
use permission::{Check, Permission};
use schema::{Kind, Route, SCHEMA};
pub use unserved::{refusal, served};
use validate::Input;
pub use validate::object;

/// How late every 401 comes.
const REFUSAL_DELAY: Duration = Duration::from_secs(3);

/// Stands for the status of a call whose connection broke.
const NO_ANSWER: u16 = 0;

/// How long the hop to a dying daemon takes to break.
const BROKEN_PIPE_DELAY: Duration = Duration::from_secs(5);

/// The API of a simulated cluster, beneath both faces.
pub struct Door {
    access: Arc<Access>,
    world: Arc<dyn Routes>,
    version: PveVersion,
    old_errors: bool,
    loose: Option<u64>,
    served: AtomicU64,
    record: Option<Arc<Record>>,
    connections: Connections,
}

impl Door {
    /// A door to a world; `seed` decides the loose types of answers, where the spec asks for them.
    /// Requests go into the record, where there is one.
    pub fn new(
        spec: &ClusterSpec,
        version: PveVersion,
        seed: u64,
        rights: Arc<Access>,
        world: Arc<dyn Routes>,
        record: Option<Arc<Record>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            access: rights,
            world,
            version,
            old_errors: spec.old_errors,
            loose: spec.loose_types.then_some(seed),
            served: AtomicU64::new(0),
            record,
            connections: Connections::new(spec),
        })
    }

    /// The connections its nodes have.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether a node takes connections; one that is not known does, as `localhost` would.
    pub fn answers_on(&self, node: &str) -> bool {
        self.world.nodes().iter().all(|(name, up)| name != node || *up)
    }

    /// Answers one request, after whatever delay the real thing would take.
    pub async fn serve(&self, request: Request) -> Response {
        if let Some(refusal) = http::refuse_head(&request) {
            return refusal;
        }
        let place = match http::place(&request) {
            Ok(place) => place,
            Err(_) if http::is_root(&request) => {
                let page = unserved::page(self.version).into_bytes();
                return Response::new(200, "OK").with_body("text/html;charset=UTF-8", page);
            }
            Err(response) => return response,
        };
        let caller = match self.log_in(&request, &place) {
            Ok(caller) => caller,
            Err(text) => {
                tokio::time::sleep(REFUSAL_DELAY).await;
                return Response::new(401, text);
            }
        };
        if place.format != "json" && place.format != "extjs" {
            let text = format!("no formatter for uri {}, {}", place.path, place.format);
            return Response::plain(501, &text);
        }
        if let Some(refusal) = http::refuse_body(&request, &place.path) {
            return refusal;
        }
        let (inputs, file) = if http::is_upload(&request.method, &place.path) {
            match multipart::parts(&request) {
                Ok(form) => (form.inputs, Some(form.file)),
                Err(refusal) => return refusal,
            }
        } else {
            match body::inputs(&request, &place.query) {
                Ok(inputs) => (inputs, None),
                Err(text) => return Response::plain(500, &text),
            }
        };
        let asked = self.record.as_ref().map(|_| self.asked(&request, &place.path, &inputs));
        let outcome = self.call(&request, &place.path, caller, (inputs, file)).await;
        if let (Some(record), Some(asked)) = (&self.record, &asked) {
            record.call(asked, &outcome);
        }
        if outcome.as_ref().is_err_and(|error| error.status == NO_ANSWER) {
            return Response::reset();
        }
        if outcome.as_ref().is_err_and(|error| error.status == 401) {
            tokio::time::sleep(REFUSAL_DELAY).await;
        }
        // A task's log asked for as a download comes as it is.
        if let (Ok(Answer { data: serde_json::Value::String(text), .. }), true) =
            (&outcome, place.path.ends_with("/log"))
        {
            let text = text.clone().into_bytes();
            return Response::new(200, "OK").with_body("text/plain", text);
        }
        if place.format == "extjs" {
            answer::extjs(outcome)
        } else {
            answer::json(outcome, self.old_errors)
        }
    }

    /// What the record says of a request.
    fn asked(&self, request: &Request, path: &str, inputs: &BTreeMap<String, Input>) -> Asked {
        let found = SCHEMA.find(&request.method, path, self.version);
        let (route, in_path) = match found {
            Some((route, in_path)) => (route.path.clone(), in_path),
            None => (path.to_owned(), BTreeMap::new()),
        };
        let given = inputs.get("newid").or_else(|| inputs.get("vmid")).map(Input::text);
        let guest = given.or_else(|| in_path.get("vmid").cloned());
        let node = in_path.get("node").filter(|node| *node != "localhost");
        Asked {
            method: request.method.clone(),
            route,
            node: node.unwrap_or(&request.node).clone(),
            guest: guest.and_then(|id| id.parse().ok()),
            at: tokio::time::Instant::now(),
        }
    }

    /// Finds out who calls; none where no login is needed and none was tried by token.
    fn log_in(&self, request: &Request, place: &Place) -> Result<Option<Caller>, &'static str> {
        let open = match place.path.as_str() {
            "/access/domains" => request.method == "GET",
            "/access/ticket" => request.method == "GET" || request.method == "POST",
            _ => false,
        };
        let refused = "Authentication failed!";
        let ticket = cookie(request).or_else(|| header_ticket(request));
        let token = request.header("authorization").and_then(token_value);
        if let (Some(ticket), false) = (&ticket, open) {
            let caller = self.access.ticket_caller(ticket).ok_or(refused)?;
            let csrf = request.header("csrfpreventiontoken").unwrap_or_default();
            if request.method != "GET" && !self.access.csrf_is_good(csrf, &caller.userid) {
                return Err("Permission denied - invalid csrf token");
            }
            return Ok(Some(caller));
        }
        match token {
            Some(token) => self.access.token_caller(&token).map(Some).ok_or(refused),
            None if open => Ok(None),
            None => Err("No ticket"),
        }
    }

    async fn call(
        &self,
        request: &Request,
        path: &str,
        caller: Option<Caller>,
        (mut inputs, file): (BTreeMap<String, Input>, Option<Bytes>),
    ) -> Outcome {
        let found = SCHEMA.find(&request.method, path, self.version);
        let Some((route, in_path)) = found else {
            return Err(refusal(&request.method, path, self.version));
        };
        for (name, text) in &in_path {
            let given = inputs.insert(name.clone(), Input::Text(text.clone()));
            if given.is_some_and(|given| given.text() != *text) {
                let refusal =
                    "duplicate parameter (already defined in URI) with conflicting values!";
                return Err(ApiError::parameter(name, refusal));
            }
        }
        let caller = caller.unwrap_or_else(|| Caller { userid: String::new(), token: None });
        self.permit(route, path, &caller, &inputs)?;
        let node = self.forward(request, route, &in_path).await?;
        let mut params = validate::params(route, self.version, &inputs).map_err(|errors| {
            ApiError { status: 400, message: "Parameter verification failed.".into(), errors }
        })?;
        if let Some(node) = &node {
            params.0.insert("node".into(), node.clone().into());
        }
        let reset = self.world.reset(&route.method, &route.path, node.as_deref());
        if reset == Some(Reset::Before) {
            return Err(ApiError::hop(NO_ANSWER, ""));
        }
        let owner = node.clone().filter(|_| route.proxy);
        let call = |(method, route, protected)| Call {
            caller,
            at: request.node.clone(),
            on: owner.unwrap_or_else(|| request.node.clone()),
            protected,
            method,
            route,
            node,
            params,
            file,
        };
        let outcome = writable(self.run(route, call).await).await;
        if reset == Some(Reset::After) {
            return Err(ApiError::hop(NO_ANSWER, ""));
        }
        match (self.loose, outcome) {
            // Answers of the guest agent were JSON before: their types are kept.
            (Some(seed), Ok(answer)) if !route.path.contains("/agent") => {
                let turn = self.served.fetch_add(1, Ordering::Relaxed);
                let total = answer.total;
                let data = answer::loosen(answer.value(), seed.wrapping_add(turn));
                Ok(Answer { total, ..Answer::new(data) })
            }
            (_, outcome) => outcome,
        }
    }

    fn permit(
        &self,
        route: &Route,
        path: &str,
        caller: &Caller,
        inputs: &BTreeMap<String, Input>,
    ) -> Result<(), ApiError> {
        if route.no_token && caller.token.is_some() {
            let text = format!(
                "Permission check failed (URI '{path}' not available with API token, \
                 need proper ticket.\n)"
            );
            return Err(ApiError { status: 403, message: text, errors: BTreeMap::new() });
        }
        if caller.is_root() {
            return Ok(());
        }
        let texts: BTreeMap<String, String> =
            inputs.iter().map(|(name, input)| (name.clone(), input.text())).collect();
        match &route.permissions {
            Permission::World | Permission::Everyone => Ok(()),
            Permission::RootOnly => Err(ApiError::denied("user != root@pam")),
            Permission::Check(check) => {
                let monitor = Check::Perm {
                    path: "/vms/{vmid}".into(),
                    privileges: vec!["VM.Monitor".into()],
                    any: false,
                    needs: None,
                };
                let old_agent =
                    self.version != PveVersion::V9_2 && route.path.contains("/{vmid}/agent");
                let check = if old_agent { &monitor } else { check };
                check.judge(&self.access, caller, &texts)
            }
        }
    }

    /// The node that owns the call, reached over the inner hop where it is another one.
    async fn forward(
        &self,
        request: &Request,
        route: &Route,
        in_path: &BTreeMap<String, String>,
    ) -> Result<Option<String>, ApiError> {
        let Some(node) = in_path.get("node") else { return Ok(None) };
        if node == "localhost" {
            return Ok(Some(request.node.clone()));
        }
        if !route.proxy || *node == request.node {
            return Ok(Some(node.clone()));
        }
        if !self.world.nodes().iter().any(|(name, _)| name == node) {
            return Err(ApiError::failed(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: \
                 Name or service not known"
            )));
        }
        self.world.hop(node).await?;
        Ok(Some(node.clone()))
    }

    async fn run(
        &self,
        route: &'static Route,
        call: impl FnOnce((&'static str, &'static str, bool)) -> Call,
    ) -> Outcome {
        if route.method == "GET"
            && let Some(list) = index::list(&route.path)
        {
            return Ok(Answer::new(list));
        }
        if route.path == "/version" || route.path == "/nodes/{node}/version" {
            return Ok(Answer::new(version(self.version)));
        }
        let mut call = call((&route.method, &route.path, route.protected));
        if let Some(route) = agent_command(route, &call.params) {
            (call.method, call.route) = (&route.method, &route.path);
        }
        if call.route.starts_with("/access") || call.route.starts_with("/pools") {
            return self.access.serve(&call, self.world.as_ref());
        }
        // A caller that goes away does not stop what it began.
        let world = Arc::clone(&self.world);
        match tokio::spawn(async move { world.call(call).await }).await {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(ApiError::failed("got interrupted")),
            },
        }
    }
}

fn version(version: PveVersion) -> serde_json::Value {
    let (release, version, repoid) = version.facts();
    json!({"release": release, "version": version, "repoid": repoid})
}

/// The daemon dies on a message with letters beyond Latin-1, and the hop to it breaks.
async fn writable(outcome: Outcome) -> Outcome {
    match outcome {
        Err(error) if error.message.chars().any(|letter| letter > '\u{ff}') => {
            tokio::time::sleep(BROKEN_PIPE_DELAY).await;
            Err(ApiError::hop(596, "Broken pipe"))
        }
        outcome => outcome,
    }
}

/// `POST …/agent` names its command in a parameter; the world knows the command's own route.
fn agent_command(route: &Route, params: &Params) -> Option<&'static Route> {
    if !route.path.ends_with("/agent") {
        return None;
    }
    SCHEMA.by_template(&format!("{}/{}", route.path, params.text("command")?))
}

/// Whether a name is a key of the configuration that this path writes.
pub fn is_setting(path: &str, name: &str, version: PveVersion) -> bool {
    SCHEMA.is_setting(path, name, version)
}

/// Whether a call takes a parameter of this name.
pub fn is_parameter(method: &str, path: &str, name: &str, version: PveVersion) -> bool {
    SCHEMA.is_parameter(method, path, name, version)
}

/// A value as answers carry it: what the schema of these routes calls a number or a boolean is a
/// number, and a list is one (pve-common, SectionConfig.pm:1209, check_value).
pub fn typed(is_of: impl Fn(&str) -> bool, key: &str, text: &str) -> serde_json::Value {
    match SCHEMA.kind_of(is_of, key) {
        Some(Kind::Boolean | Kind::Integer | Kind::Number) => {
            text.parse::<i64>().map_or_else(|_| text.into(), serde_json::Value::from)
        }
        Some(Kind::Array) => text.lines().collect(),
        Some(Kind::String) | None => text.into(),
    }
}

/// The ticket in the cookie, decoded.
fn cookie(request: &Request) -> Option<String> {
    let cookies = request.header("cookie")?.split(';');
    let mut values = cookies.filter_map(|cookie| cookie.trim().strip_prefix("PVEAuthCookie="));
    decoded(values.next()?)
}

/// The ticket in an Authorization header, which is read as a cookie where there is none
/// (pve-http-server, AnyEvent.pm:1583).
fn header_ticket(request: &Request) -> Option<String> {
    let value = request.header("authorization")?.strip_prefix("PVEAuthCookie")?;
    decoded(value.strip_prefix(['=', ' '])?.split(';').next()?)
}

/// The token in an Authorization header, decoded; `=` and a blank both part it from the scheme.
fn token_value(header: &str) -> Option<String> {
    decoded(header.strip_prefix("PVEAPIToken")?.strip_prefix(['=', ' '])?)
}

fn decoded(value: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod served_tests;
#[cfg(test)]
mod tests;
