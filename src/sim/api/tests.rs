//! The whole API in front of a world that records the calls to it.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Mutex;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::clock::WallClock;
use crate::interfaces::AccessControl;
use crate::spec::{AclSpec, TokenSpec, UserSpec};

/// A world of two nodes that keeps the calls to it and answers with numbers.
#[derive(Default)]
pub(super) struct Listener {
    calls: Mutex<Vec<Call>>,
    hops: Mutex<Vec<String>>,
}

impl Backend for Listener {
    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        if call.route.ends_with("/agent/exec") && call.params.text("vmid").unwrap() == "666" {
            let quoted = ApiError::failed("Agent error: no \u{201c}program\u{201d}");
            return Box::pin(async { Err(quoted) });
        }
        if call.params.flag("download") {
            return Box::pin(async { Ok(Answer::new("one\ntwo\n".into())) });
        }
        self.calls.lock().unwrap().push(call);
        Box::pin(async { Ok(Answer::new(json!([1, 2, 3, 4, 5, 6, 7, 8, "9", "x"]))) })
    }

    fn nodes(&self) -> Vec<(String, bool)> {
        vec![("pve1".into(), true), ("pve2".into(), false)]
    }

    fn hop(&self, node: &str) -> BoxFuture<'static, Result<(), ApiError>> {
        self.hops.lock().unwrap().push(node.to_owned());
        Box::pin(async { Err(ApiError::with_status(595, "No route to host")) })
    }

    fn reset(&self, method: &str, route: &str, _node: Option<&str>) -> Option<ConnectionReset> {
        match (method, route) {
            ("DELETE", "/nodes/{node}/qemu/{vmid}") => Some(ConnectionReset::AfterCall),
            ("POST", "/nodes/{node}/qemu") => Some(ConnectionReset::BeforeCall),
            _ => None,
        }
    }

    fn pool_members(&self, _vmids: &[u32]) -> Vec<Value> {
        Vec::new()
    }

    fn guest_exists(&self, _vmid: u32) -> bool {
        true
    }
}

const ROOT: &str = "root@pam!full=secret";
const USER: &str = "ci@pve!limited=other";

pub(super) fn spec() -> ClusterSpec {
    let token = |name: &str, secret: &str, privsep| TokenSpec {
        name: name.into(),
        secret: secret.into(),
        privsep,
        expire: 0,
    };
    let user = UserSpec {
        userid: "ci@pve".into(),
        password: Some("password".into()),
        enabled: true,
        second_factor: false,
        tokens: vec![token("limited", "other", true)],
    };
    ClusterSpec {
        root_password: "rootpass".into(),
        root_tokens: vec![token("full", "secret", false)],
        users: vec![user],
        ..ClusterSpec::default()
    }
}

struct Bench {
    api: Arc<Api>,
    access: Arc<Access>,
    world: Arc<Listener>,
}

fn bench(spec: &ClusterSpec, version: PveVersion) -> Bench {
    let access = Access::new(spec, version, WallClock::starting_at(1_800_000_000));
    let world = Arc::new(Listener::default());
    let api = Api::new(spec, version, 7, Arc::clone(&access), Arc::clone(&world) as _, None);
    Bench { api, access, world }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Request {
        method: method.into(),
        target: format!("/api2/json{path}"),
        headers: headers.iter().map(own).collect(),
        body: bytes::Bytes::copy_from_slice(body.as_bytes()),
        node: "pve1".into(),
    }
}

impl Bench {
    async fn as_token(&self, token: &str, method: &str, path: &str, body: &str) -> Response {
        let header = format!("PVEAPIToken={token}");
        self.api.serve(request(method, path, &[("Authorization", &header)], body)).await
    }

    async fn root(&self, method: &str, path: &str, body: &str) -> Response {
        self.as_token(ROOT, method, path, body).await
    }

    async fn log_in(&self, user: &str, password: &str) -> Response {
        let form = format!("username={user}&password={password}");
        self.api.serve(request("POST", "/access/ticket", &[], &form)).await
    }
}

fn body(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

// Invariant: a refused login comes late and without a body (book: proxmox, section 23, item 5).
#[tokio::test(start_paused = true)]
async fn a_refused_login_comes_three_seconds_late_and_empty() {
    let bench = bench(&spec(), PveVersion::V8_4);
    for headers in [
        vec![],
        vec![("Authorization", "PVEAPIToken=root@pam!full=wrong")],
        vec![("Authorization", "pveapitoken=root@pam!full=secret")],
        vec![("Authorization", "PVEAPIToken=root@pam!full=secret"), ("Cookie", "PVEAuthCookie=x")],
    ] {
        let start = Instant::now();
        let response = bench.api.serve(request("GET", "/version", &headers, "")).await;
        assert_eq!((response.status, response.body.len(), response.close), (401, 0, true));
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_blank_also_separates_the_scheme_from_the_token() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let headers = [("Authorization", "PVEAPIToken root@pam!full=secret")];
    let response = bench.api.serve(request("GET", "/version", &headers, "")).await;
    assert_eq!(body(&response)["data"]["release"], "8.4");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_gets_a_body_and_waits_too() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let start = Instant::now();
    let response = bench.log_in("ci@pve", "wrong").await;
    assert_eq!(body(&response)["message"], "authentication failure\n");
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_reads_writes_with_its_csrf_token_and_can_be_renewed() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let login = body(&bench.log_in("root@pam", "rootpass").await);
    let ticket = login["data"]["ticket"].as_str().unwrap();
    let csrf = login["data"]["CSRFPreventionToken"].as_str().unwrap();
    let cookie = format!("PVEAuthCookie={ticket}");
    let read = bench.api.serve(request("GET", "/pools", &[("Cookie", &cookie)], "")).await;
    assert_eq!(read.status, 200);
    let write =
        |headers: &[(&str, &str)]| bench.api.serve(request("POST", "/pools", headers, "poolid=p"));
    assert_eq!(
        write(&[("Cookie", &cookie)]).await.reason,
        "Permission denied - invalid csrf token"
    );
    let headers = [("Cookie", cookie.as_str()), ("CSRFPreventionToken", csrf)];
    assert_eq!(write(&headers).await.status, 200);
    let encoded: String =
        percent_encoding::utf8_percent_encode(ticket, percent_encoding::NON_ALPHANUMERIC).collect();
    tokio::time::advance(Duration::from_secs(7_000)).await;
    assert_eq!(bench.log_in("root%40pam", &encoded).await.status, 200);
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(bench.log_in("root%40pam", &encoded).await.status, 401);
}

// Invariant: permission is checked before parameters and existence
// (book: proxmox, section 23, item 5).
#[tokio::test(start_paused = true)]
async fn a_missing_privilege_is_reported_before_wrong_parameters() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let path = "/nodes/pve1/qemu/abc/config";
    let response = bench.as_token(USER, "GET", path, "").await;
    assert_eq!(response.reason, "Permission check failed (/vms/abc, VM.Audit)");
    assert_eq!(bench.root("GET", path, "").await.status, 400);
    assert!(bench.world.calls.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn some_calls_are_refused_to_api_tokens() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let response = bench.root("POST", "/access/ticket", "username=a&password=b").await;
    assert_eq!(
        body(&response)["message"],
        "Permission check failed (URI '/access/ticket' not available with API token, \
         need proper ticket.\n)\n"
    );
    assert!(response.reason.ends_with("need proper ticket."));
}

#[tokio::test(start_paused = true)]
async fn a_clone_needs_the_new_guest_or_the_pool_by_name() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let grant = |path: &str, role: &str| {
        let form = format!("path={path}&roles={role}&users=ci@pve&tokens=ci@pve!limited");
        let bench = &bench;
        async move { assert_eq!(bench.root("PUT", "/access/acl", &form).await.status, 200) }
    };
    bench.root("POST", "/pools", "poolid=ci").await;
    grant("/vms/100", "PVETemplateUser").await;
    grant("/pool/ci", "PVEVMAdmin").await;
    let path = "/nodes/pve1/qemu/100/clone";
    let without = bench.as_token(USER, "POST", path, "newid=101").await;
    assert_eq!(without.reason, "Permission check failed");
    assert_eq!(bench.as_token(USER, "POST", path, "newid=101&pool=ci").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn calls_reach_the_world_typed_and_with_the_real_node() {
    let bench = bench(&spec(), PveVersion::V8_4);
    bench.root("POST", "/nodes/localhost/qemu/100/agent/exec", "command=ls&command=-l").await;
    let calls = bench.world.calls.lock().unwrap();
    assert_eq!(calls[0].route, "/nodes/{node}/qemu/{vmid}/agent/exec");
    assert_eq!(calls[0].node.as_deref(), Some("pve1"));
    assert_eq!(calls[0].params.0["command"], json!(["ls", "-l"]));
    assert_eq!(calls[0].params.int("vmid"), Some(100));
    assert_eq!(calls[0].caller.full_id(), "root@pam!full");
}

#[tokio::test(start_paused = true)]
async fn an_agent_command_in_a_parameter_goes_to_its_own_route() {
    let bench = bench(&spec(), PveVersion::V8_4);
    bench.root("POST", "/nodes/pve1/qemu/100/agent", "command=get-osinfo").await;
    let calls = bench.world.calls.lock().unwrap();
    let expected = ("GET", "/nodes/{node}/qemu/{vmid}/agent/get-osinfo");
    assert_eq!((calls[0].method, calls[0].route), expected);
}

// Invariant: a message that cannot be written breaks the connection
// (book: proxmox, section 23, item 8).
#[tokio::test(start_paused = true)]
async fn typographic_quotes_in_an_error_break_the_connection_after_five_seconds() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let start = Instant::now();
    let response = bench.root("POST", "/nodes/pve1/qemu/666/agent/exec", "command=program").await;
    assert_eq!((response.status, response.reason.as_str()), (596, "Broken pipe"));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_connection_may_break_before_a_call_or_after_it() {
    let bench = bench(&spec(), PveVersion::V8_4);
    assert!(bench.root("POST", "/nodes/pve1/qemu", "vmid=100").await.reset);
    assert!(bench.world.calls.lock().unwrap().is_empty());
    assert!(bench.root("DELETE", "/nodes/pve1/qemu/100", "").await.reset);
    assert_eq!(bench.world.calls.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_downloaded_task_log_is_plain_text() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let response = bench.root("GET", "/nodes/pve1/tasks/UPID:x:/log?download=1", "").await;
    assert_eq!(response.body, b"one\ntwo\n");
    assert!(response.headers.contains(&("Content-Type".into(), "text/plain".into())));
}

#[tokio::test(start_paused = true)]
async fn a_parameter_in_path_and_body_must_be_the_same() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let path = "/nodes/pve1/qemu/100/config";
    assert_eq!(bench.root("PUT", path, "vmid=100&name=x").await.status, 200);
    let errors = body(&bench.root("PUT", path, "vmid=101").await)["errors"].clone();
    let text = "duplicate parameter (already defined in URI) with conflicting values!";
    assert_eq!(errors["vmid"], text);
}

#[tokio::test(start_paused = true)]
async fn calls_to_other_nodes_are_forwarded_and_those_to_unknown_nodes_refused() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let far = bench.root("GET", "/nodes/pve2/qemu", "").await;
    assert_eq!((far.status, far.reason.as_str()), (595, "No route to host"));
    assert_eq!(*bench.world.hops.lock().unwrap(), ["pve2"]);
    let unknown = bench.root("GET", "/nodes/nope/qemu", "").await;
    assert!(unknown.reason.starts_with("hostname lookup 'nope' failed - "));
    assert_eq!(bench.root("GET", "/nodes/pve2", "").await.status, 200);
}

// Invariant: old nodes give the text in the reason phrase only (book: proxmox, section 23, item 5).
#[tokio::test(start_paused = true)]
async fn old_nodes_leave_the_message_out() {
    let spec = ClusterSpec { old_errors: true, ..spec() };
    let response = bench(&spec, PveVersion::V8_4).root("GET", "/nope", "").await;
    assert_eq!(response.reason, "Method 'GET /nope' not implemented");
    assert_eq!(body(&response), json!({"data": null}));
}

// Invariant: loose types depend on the seed, and leave alone what was JSON before
// (book: proxmox, section 23, item 11).
#[tokio::test(start_paused = true)]
async fn the_types_of_answers_vary_where_the_description_says_so() {
    let spec = ClusterSpec { loose_types: true, ..spec() };
    let ask = |path: &'static str| {
        let spec = spec.clone();
        async move {
            let bench = bench(&spec, PveVersion::V8_4);
            body(&bench.root("GET", path, "").await)["data"].to_string()
        }
    };
    let exact = json!([1, 2, 3, 4, 5, 6, 7, 8, "9", "x"]).to_string();
    let loose = ask("/nodes/pve1/qemu").await;
    assert_ne!(loose, exact);
    assert_eq!(loose, ask("/nodes/pve1/qemu").await);
    assert_eq!(ask("/nodes/pve1/qemu/100/agent/get-osinfo").await, exact);
}

// Invariant: the privileges for the guest agent differ by version
// (book: proxmox, section 23, item 12).
#[tokio::test(start_paused = true)]
async fn agent_calls_need_the_monitor_on_8_and_their_own_privileges_on_9() {
    let refusal = |version| async move {
        let bench = bench(&spec(), version);
        bench.as_token(USER, "POST", "/nodes/pve1/qemu/100/agent/ping", "").await.reason
    };
    assert_eq!(refusal(PveVersion::V8_4).await, "Permission check failed (/vms/100, VM.Monitor)");
    assert_eq!(
        refusal(PveVersion::V9_2).await,
        "Permission check failed (/vms/100, VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted)"
    );
}

// Invariant: a role cannot have a privilege that the version lacks
// (book: proxmox, section 23, item 12).
#[tokio::test(start_paused = true)]
async fn a_role_with_the_monitor_is_refused_by_9() {
    let form = "roleid=R&privs=VM.Audit,VM.Monitor";
    let eight = bench(&spec(), PveVersion::V8_4).root("POST", "/access/roles", form).await;
    assert_eq!(eight.status, 200);
    let nine = bench(&spec(), PveVersion::V9_2).root("POST", "/access/roles", form).await;
    let text = "invalid format - invalid privilege 'VM.Monitor'\n";
    assert_eq!(body(&nine)["errors"]["privs"], text);
}

#[tokio::test(start_paused = true)]
async fn a_new_token_works_until_it_expires_or_its_user_is_disabled() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let path = "/access/users/ci@pve/token/new";
    let made = body(&bench.root("POST", path, "expire=1800000100").await);
    let token = format!("ci@pve!new={}", made["data"]["value"].as_str().unwrap());
    assert_eq!(made["data"]["full-tokenid"], "ci@pve!new");
    assert_eq!(bench.as_token(&token, "GET", "/version", "").await.status, 200);
    bench.root("PUT", "/access/users/ci@pve", "enable=0").await;
    assert_eq!(bench.as_token(&token, "GET", "/version", "").await.status, 401);
    bench.root("PUT", "/access/users/ci@pve", "enable=1").await;
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(bench.as_token(&token, "GET", "/version", "").await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn only_the_comment_of_a_token_can_be_deleted() {
    let bench = bench(&spec(), PveVersion::V9_2);
    let path = "/access/users/ci@pve/token/limited";
    assert_eq!(bench.root("PUT", path, "comment=mine").await.status, 200);
    let refused = body(&bench.root("PUT", path, "delete=expire").await);
    let text = "updating token info failed: 400 Parameter verification failed.\n\
                delete: unknown option 'expire'\n";
    assert_eq!(refused["message"], text);
    assert_eq!(body(&bench.root("GET", path, "").await)["data"]["comment"], "mine");
    let changed = body(&bench.root("PUT", path, "delete=comment").await);
    assert_eq!((changed["data"].is_object(), changed["data"].get("comment")), (true, None));
}

#[tokio::test(start_paused = true)]
async fn a_realm_is_stored_as_given_without_its_password() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let data = async |path: &str| body(&bench.root("GET", path, "").await)["data"].clone();
    let message = async |method: &str, path: &str, form: &str| {
        let answer = body(&bench.root(method, path, form).await);
        answer["message"].as_str().unwrap_or_default().trim_end().to_owned()
    };
    let realms = "/access/domains";
    let form = "realm=lab&type=ldap&server1=ldap.lab&base_dn=dc%3Dlab&user_attr=uid&port=636\
                &password=secret&default=1&comment=us";
    assert_eq!(message("POST", realms, form).await, "");
    let text = "add auth server failed: domain 'lab' already exists";
    assert_eq!(message("POST", realms, form).await, text);
    let lab = data("/access/domains/lab").await;
    assert_eq!((&lab["port"], &lab["default"]), (&json!(636), &json!(1)));
    assert_eq!((&lab["base_dn"], lab.get("password")), (&json!("dc=lab"), None));
    let line = json!({ "realm": "lab", "type": "ldap", "comment": "us", "default": 1 });
    assert!(data(realms).await.as_array().unwrap().contains(&line));
    for (method, path, form, text) in [
        (
            "POST",
            realms,
            "realm=two&type=ad&domain=lab",
            "add auth server failed: missing value for required option 'server1'",
        ),
        (
            "POST",
            realms,
            "realm=two&type=pve",
            "add auth server failed: unable to create builtin type 'pve'",
        ),
        (
            "PUT",
            "/access/domains/lab",
            "client-id=x",
            "update auth server failed: unexpected property 'client-id'",
        ),
        ("PUT", "/access/domains/lab", "", "update auth server failed: no options specified"),
        (
            "PUT",
            "/access/domains/lab",
            "check-connection=1",
            "drover sim does not serve 'check-connection' of PUT /access/domains/{realm}",
        ),
        (
            "POST",
            "/access/users",
            "userid=eve@lab&password=long-enough",
            "create user failed: can't set password on auth type 'ldap'",
        ),
        (
            "POST",
            "/access/users",
            "userid=eve@far",
            "create user failed: domain 'far' does not exist",
        ),
    ] {
        assert_eq!(message(method, path, form).await, text);
    }
    assert_eq!(message("POST", "/access/users", "userid=eve@lab").await, "");
    let users = data("/access/users").await;
    let eve = users.as_array().unwrap().iter().find(|user| user["userid"] == "eve@lab");
    assert_eq!(eve.unwrap()["realm-type"], "ldap");
    assert_eq!(message("PUT", "/access/domains/pve", "default=1&comment=own").await, "");
    assert_eq!(data("/access/domains/lab").await.get("default"), None);
    assert_eq!(message("DELETE", "/access/domains/lab", "").await, "");
    let text = "delete auth server failed: authentication domain 'lab' does not exist";
    assert_eq!(message("DELETE", "/access/domains/lab", "").await, text);
    // A deleted built-in realm has its defaults again.
    assert_eq!(message("DELETE", "/access/domains/pve", "").await, "");
    let comment = data("/access/domains/pve").await["comment"].clone();
    assert_eq!(comment, "Proxmox VE authentication server");
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_in_one_pool_and_only_empty_pools_can_be_deleted() {
    let bench = bench(&spec(), PveVersion::V8_4);
    for pool in ["a", "b"] {
        bench.root("POST", "/pools", &format!("poolid={pool}")).await;
    }
    assert_eq!(bench.root("PUT", "/pools/a", "vms=100,101").await.status, 200);
    assert_eq!(
        bench.root("PUT", "/pools/b", "vms=100").await.reason,
        "update pools failed: VM 100 belongs already to pool 'a' and 'allow-move' is not set"
    );
    assert_eq!(bench.root("PUT", "/pools/b", "vms=100&allow-move=1").await.status, 200);
    assert_eq!(bench.access.pool_of(100).as_deref(), Some("b"));
    assert_eq!(
        bench.root("DELETE", "/pools/a", "").await.reason,
        "delete pool failed: pool 'a' is not empty (contains VM 101)"
    );
    bench.access.forget_guest(101);
    assert_eq!(bench.root("DELETE", "/pools/a", "").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn an_auditor_sees_entries_and_others_only_those_they_may_change() {
    let entry = AclSpec {
        path: "/".into(),
        who: "ci@pve".into(),
        role: "PVEAuditor".into(),
        propagate: true,
    };
    let spec = ClusterSpec { acl: vec![entry], ..spec() };
    let bench = bench(&spec, PveVersion::V8_4);
    let seen = body(&bench.root("GET", "/access/acl", "").await);
    assert_eq!(seen["data"][0]["ugid"], "ci@pve");
    let seen = body(&bench.as_token(USER, "GET", "/access/acl", "").await);
    assert_eq!(seen["data"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_in_the_authorization_header_is_accepted() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let login = body(&bench.log_in("root@pam", "rootpass").await);
    let ticket = format!("PVEAuthCookie={}", login["data"]["ticket"].as_str().unwrap());
    let token = login["data"]["CSRFPreventionToken"].as_str().unwrap();
    let read = [("Authorization", ticket.as_str())];
    let response = bench.api.serve(request("GET", "/version", &read, "")).await;
    assert_eq!(response.status, 200);
    let pool = |headers| bench.api.serve(request("POST", "/pools", headers, "poolid=x"));
    assert_eq!(pool(&read).await.status, 401);
    let write = [("Authorization", ticket.as_str()), ("CSRFPreventionToken", token)];
    assert_eq!(pool(&write).await.status, 200);
    let bad = [("Authorization", "PVEAuthCookie=PVE:root@pam:0::x")];
    let response = bench.api.serve(request("GET", "/version", &bad, "")).await;
    assert_eq!((response.status, response.reason.as_str()), (401, "Authentication failed!"));
}

#[tokio::test(start_paused = true)]
async fn a_member_of_an_ip_set_is_found_with_a_plain_or_encoded_slash() {
    for member in ["10.0.0.0/8", "10.0.0.0%2F8"] {
        let bench = bench(&spec(), PveVersion::V8_4);
        let path = format!("/cluster/firewall/ipset/lan/{member}");
        assert_eq!(bench.root("DELETE", &path, "").await.status, 200, "{member}");
        let calls = bench.world.calls.lock().unwrap();
        assert_eq!(calls[0].params.text("cidr").unwrap(), "10.0.0.0/8", "{member}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_start_page_lists_the_served_calls_without_login() {
    let bench = bench(&spec(), PveVersion::V9_2);
    let at = |method: &str, target: &str| {
        let request = Request { target: target.into(), ..request(method, "", &[], "") };
        bench.api.serve(request)
    };
    let root = at("GET", "/").await;
    assert_eq!(root.status, 200);
    assert!(root.headers.contains(&("Content-Type".into(), "text/html;charset=UTF-8".into())));
    let page = String::from_utf8(root.body).unwrap();
    for line in served_routes(PveVersion::V9_2) {
        assert!(page.contains(&format!("\n{line}\n")), "{line}");
    }
    assert_eq!(at("GET", "/?console=shell").await.status, 200);
    assert_eq!(at("GET", "/nope").await.reason, "no such file '/nope'");
    assert_eq!(at("POST", "/").await.reason, "no such file '/'");
}

#[tokio::test(start_paused = true)]
async fn the_501_for_an_unserved_path_has_the_form_of_errors() {
    let bench = bench(&spec(), PveVersion::V8_4);
    let response = bench.root("GET", "/cluster/acme/plugins", "").await;
    let text = "drover sim does not serve GET /cluster/acme/plugins";
    assert_eq!((response.status, response.reason.as_str()), (501, text));
    assert_eq!(body(&response)["message"], text);
}
