//! The API of a simulated cluster: HTTP, login, permissions, parameters.
//!
//! It owns the schema of the served calls, users, roles, ACL and pools (`access`), and the limits
//! on connections. It does not own guests, nodes, storages and tasks: those are the world's.
//!
//! In: a [`Request`] of the HTTPS server or of the transport in memory. Out: a [`Response`], with
//! Proxmox's status, reason phrase and body.
//!
//! Each request passes the checks of Proxmox in their order (book: proxmox, section 2):
//!
//! ```text
//! http        limits of headers; no answer
//! http        method, transfer encoding; 501
//! http        path below /api2; 500
//! access      ticket or token; 401 after 3 s
//! http        formatter, size and type of the body; 501, 506
//! decode      query, form, JSON, multipart; 500
//! schema      route; 501
//! permission  token allowed, privileges; 403
//! world       way to the owning node; 595 to 599
//! validate    parameters; 400 with `errors`
//! world       the call itself; 500 for nearly every failure
//! render      JSON body
//! ```
//!
//! The API itself answers `/version`, `/access`, `/pools` and index routes. The world answers all
//! others through `Backend`. A planned fault of the world can break the connection before or
//! after a call.
//!
//! Files beside this one: `https` (sockets, with `linger`), `connections` (limits), `certificates`, `schema` with
//! `schema*.json` and `format` (what is valid), `coverage` with `paths.txt` (what Proxmox has and
//! the simulator lacks), `index`, `multipart`.

pub mod access;
pub mod certificates;
mod connections;
mod coverage;
mod decode;
mod format;
pub mod http;
pub mod https;
mod index;
mod multipart;
mod permission;
mod render;
mod schema;
mod validate;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::call::{Answer, ApiError, Call, Caller, Outcome, Params};
use super::interfaces::{Backend, ConnectionReset};
use super::recorder::{RecordedRequest, Recorder};
use super::spec::{ClusterSpec, PveVersion};

use access::Access;
pub(crate) use connections::{ConnectionPermit, Connections};
pub(crate) use coverage::not_served;
pub use coverage::served_routes;
use http::{Request, Response, Target};
use permission::{Check, Permission};
use schema::{Kind, Route, SCHEMA};
use validate::Input;
pub(crate) use validate::property_string_object;

/// The delay before each 401.
const UNAUTHORIZED_DELAY: Duration = Duration::from_secs(3);

/// The status of a call whose connection broke; it is not sent.
const CONNECTION_BROKEN: u16 = 0;

/// The time until the connection to a daemon that dies breaks.
const BROKEN_PIPE_DELAY: Duration = Duration::from_secs(5);

/// The API of a simulated cluster, for the HTTPS server and for the transport in memory.
pub struct Api {
    access: Arc<Access>,
    world: Arc<dyn Backend>,
    version: PveVersion,
    old_errors: bool,
    loose_types_seed: Option<u64>,
    answered: AtomicU64,
    record: Option<Arc<Recorder>>,
    connections: Connections,
}

impl Api {
    /// An API in front of a world. `seed` varies the types of answers where the description asks
    /// for it. The recorder writes each request.
    pub fn new(
        spec: &ClusterSpec,
        version: PveVersion,
        seed: u64,
        access: Arc<Access>,
        world: Arc<dyn Backend>,
        record: Option<Arc<Recorder>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            access,
            world,
            version,
            old_errors: spec.old_errors,
            loose_types_seed: spec.loose_types.then_some(seed),
            answered: AtomicU64::new(0),
            record,
            connections: Connections::new(spec),
        })
    }

    /// The limits on connections to the nodes.
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Whether a node accepts connections; true for unknown names, such as `localhost`.
    pub(crate) fn answers_on(&self, node: &str) -> bool {
        self.world.nodes().iter().all(|(name, up)| name != node || *up)
    }

    /// Answers one request, with the delays of a real node.
    pub async fn serve(&self, request: Request) -> Response {
        if http::exceeds_headers(&request) {
            tokio::time::sleep(http::IDLE_TIMEOUT).await;
            return Response::reset();
        }
        if let Some(refusal) = http::refuse_head(&request) {
            return refusal;
        }
        let target = match http::parse_target(&request) {
            Ok(target) => target,
            Err(_) if http::is_start_page(&request) => {
                let page = coverage::page(self.version).into_bytes();
                return Response::new(200, "OK").with_body("text/html;charset=UTF-8", page);
            }
            Err(response) => return response,
        };
        let caller = match self.log_in(&request, &target) {
            Ok(caller) => caller,
            Err(text) => {
                tokio::time::sleep(UNAUTHORIZED_DELAY).await;
                return Response::new(401, text);
            }
        };
        if target.format != "json" && target.format != "extjs" {
            let text = format!("no formatter for uri {}, {}", target.path, target.format);
            return Response::plain(501, &text);
        }
        if let Some(refusal) = http::refuse_body(&request, &target.path) {
            if refusal.reset {
                tokio::time::sleep(http::IDLE_TIMEOUT).await;
            }
            return refusal;
        }
        let (inputs, file) = if http::is_upload(&request.method, &target.path) {
            match multipart::parse_upload(&request) {
                Ok(form) => (form.inputs, Some(form.file)),
                Err(refusal) => return refusal,
            }
        } else {
            match decode::inputs(&request, &target.query) {
                Ok(inputs) => (inputs, None),
                Err(text) => return Response::plain(500, &text),
            }
        };
        let recorded =
            self.record.as_ref().map(|_| self.recorded_request(&request, &target.path, &inputs));
        let outcome = self.call(&request, &target.path, caller, (inputs, file)).await;
        if let (Some(record), Some(recorded)) = (&self.record, &recorded) {
            record.call(recorded, &outcome);
        }
        if outcome.as_ref().is_err_and(|error| error.status == CONNECTION_BROKEN) {
            return Response::reset();
        }
        if outcome.as_ref().is_err_and(|error| error.status == 401) {
            tokio::time::sleep(UNAUTHORIZED_DELAY).await;
        }
        // The log of a task is plain text when it is downloaded.
        if let (Ok(Answer { data: serde_json::Value::String(text), .. }), true) =
            (&outcome, target.path.ends_with("/log"))
        {
            let text = text.clone().into_bytes();
            return Response::new(200, "OK").with_body("text/plain", text);
        }
        if target.format == "extjs" {
            render::extjs(outcome)
        } else {
            render::json(outcome, self.old_errors)
        }
    }

    /// The facts of a request for the recorder.
    fn recorded_request(
        &self,
        request: &Request,
        path: &str,
        inputs: &BTreeMap<String, Input>,
    ) -> RecordedRequest {
        let found = SCHEMA.find(&request.method, path, self.version);
        let (route, in_path) = match found {
            Some((route, in_path)) => (route.path.clone(), in_path),
            None => (path.to_owned(), BTreeMap::new()),
        };
        let given = inputs.get("newid").or_else(|| inputs.get("vmid")).map(Input::text);
        let guest = given.or_else(|| in_path.get("vmid").cloned());
        let node = in_path.get("node").filter(|node| *node != "localhost");
        RecordedRequest {
            method: request.method.clone(),
            route,
            node: node.unwrap_or(&request.node).clone(),
            guest: guest.and_then(|id| id.parse().ok()),
            at: tokio::time::Instant::now(),
        }
    }

    /// Authenticates a request. None for a route that needs no login, when the request carries no
    /// token.
    fn log_in(&self, request: &Request, target: &Target) -> Result<Option<Caller>, &'static str> {
        let open = match target.path.as_str() {
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
            if request.method != "GET" && !self.access.is_csrf_token_valid(csrf, &caller.userid) {
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
            return Err(not_served(&request.method, path, self.version));
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
        if reset == Some(ConnectionReset::BeforeCall) {
            return Err(ApiError::with_status(CONNECTION_BROKEN, ""));
        }
        let owner = node.clone().filter(|_| route.proxy);
        let call = |(method, route, protected)| Call {
            caller,
            received_by: request.node.clone(),
            handled_by: owner.unwrap_or_else(|| request.node.clone()),
            protected,
            method,
            route,
            node,
            params,
            file,
        };
        let outcome = break_on_wide_characters(self.run(route, call).await).await;
        if reset == Some(ConnectionReset::AfterCall) {
            return Err(ApiError::with_status(CONNECTION_BROKEN, ""));
        }
        match (self.loose_types_seed, outcome) {
            // Answers of the guest agent were JSON before Perl read them, so that their types stay.
            (Some(seed), Ok(answer)) if !route.path.contains("/agent") => {
                let count = self.answered.fetch_add(1, Ordering::Relaxed);
                let total = answer.total;
                let data = render::loosen(answer.value(), seed.wrapping_add(count));
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
                let texts: BTreeMap<String, String> =
                    inputs.iter().map(|(name, input)| (name.clone(), input.text())).collect();
                check.evaluate(&self.access, caller, &texts)
            }
        }
    }

    /// Finds the node that owns the call, and waits for the way to it where it is another node.
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
        // A call continues when its client disconnects.
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
    let (release, version, repoid) = version.version_strings();
    json!({"release": release, "version": version, "repoid": repoid})
}

/// A message with characters beyond Latin-1 kills the daemon, so that the connection to it breaks.
async fn break_on_wide_characters(outcome: Outcome) -> Outcome {
    match outcome {
        Err(error) if error.message.chars().any(|letter| letter > '\u{ff}') => {
            tokio::time::sleep(BROKEN_PIPE_DELAY).await;
            Err(ApiError::with_status(596, "Broken pipe"))
        }
        outcome => outcome,
    }
}

/// `POST …/agent` has its command in a parameter; the world serves the command's own route.
fn agent_command(route: &Route, params: &Params) -> Option<&'static Route> {
    if !route.path.ends_with("/agent") {
        return None;
    }
    SCHEMA.by_template(&format!("{}/{}", route.path, params.text("command")?))
}

/// Whether a name is a key of the configuration that this path writes.
pub(crate) fn is_config_key(path: &str, name: &str, version: PveVersion) -> bool {
    SCHEMA.is_config_key(path, name, version)
}

/// Whether a call takes a parameter of this name.
pub(crate) fn is_parameter(method: &str, path: &str, name: &str, version: PveVersion) -> bool {
    SCHEMA.is_parameter(method, path, name, version)
}

/// A value with the type that answers have: numbers and booleans of the schema are numbers, arrays
/// are lists (pve-common, SectionConfig.pm:1209, check_value).
pub(crate) fn typed(is_of: impl Fn(&str) -> bool, key: &str, text: &str) -> serde_json::Value {
    match SCHEMA.kind_of(is_of, key) {
        Some(Kind::Boolean | Kind::Integer | Kind::Number) => {
            text.parse::<i64>().map_or_else(|_| text.into(), serde_json::Value::from)
        }
        Some(Kind::Array) => text.lines().collect(),
        Some(Kind::String) | None => text.into(),
    }
}

/// The decoded ticket in the cookie.
fn cookie(request: &Request) -> Option<String> {
    let cookies = request.header("cookie")?.split(';');
    let mut values = cookies.filter_map(|cookie| cookie.trim().strip_prefix("PVEAuthCookie="));
    decoded(values.next()?)
}

/// The ticket in an Authorization header, which Proxmox reads when there is no cookie
/// (pve-http-server, AnyEvent.pm:1583).
fn header_ticket(request: &Request) -> Option<String> {
    let value = request.header("authorization")?.strip_prefix("PVEAuthCookie")?;
    decoded(value.strip_prefix(['=', ' '])?.split(';').next()?)
}

/// The decoded token in an Authorization header; `=` or a blank separates it from the scheme.
fn token_value(header: &str) -> Option<String> {
    decoded(header.strip_prefix("PVEAPIToken")?.strip_prefix(['=', ' '])?)
}

fn decoded(value: &str) -> Option<String> {
    let text = percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests;
