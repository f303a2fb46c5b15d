//! The page over a real socket: who sees it, how it is refused, and that nothing from outside becomes a part
//! of it.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod openid;

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::Role;
use drover_model::fact::What;
use drover_model::id::CloudId;
use drover_model::overridden::CloudOverrides;
use drover_model::phase::{AgentPhase, CloudHealth, LeasePhase};
use drover_model::status::{AgentStatus, CloudStatus};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response};

use super::places;
use crate::gate::Access;
use crate::place::Place;
use crate::routes;
use crate::session::CSRF_HEADER;
use crate::testing::{Served, agent, empty_template, lease, reported};

/// What a person looks at the page with.
struct Browser {
    http: Client,
    base: String,
    cookie: Option<String>,
    csrf: String,
}

impl Browser {
    fn new(served: &Served) -> Self {
        let http = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { http, base: served.base.clone(), cookie: None, csrf: String::new() }
    }

    /// One that logged in with this token.
    async fn of(served: &Served, token: &str) -> Self {
        let mut browser = Self::new(served);
        let answer = browser.log_in(token, "/").await;
        assert_eq!(answer.status(), 303, "{:?}", answer.text().await);
        let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
        assert!(cookie.contains("; HttpOnly; SameSite=Lax; "), "{cookie}");
        browser.cookie = Some(cookie.split(';').next().unwrap().to_owned());
        let page = browser.get("/").await.text().await.unwrap();
        let (_, rest) = page.split_once("name=\"csrf\" content=\"").unwrap();
        browser.csrf = rest.split('"').next().unwrap().to_owned();
        browser
    }

    async fn log_in(&self, token: &str, next: &str) -> Response {
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("next", next)
            .finish();
        let request = self.http.post(format!("{}/login", self.base));
        let kind = "application/x-www-form-urlencoded";
        request.header("content-type", kind).body(body).send().await.unwrap()
    }

    async fn ask(&self, method: Method, path: &str, csrf: Option<&str>) -> Response {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(cookie) = &self.cookie {
            request = request.header(COOKIE, cookie);
        }
        if let Some(csrf) = csrf {
            request = request.header(CSRF_HEADER, csrf);
        }
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.ask(Method::GET, path, None).await
    }
}

/// A path whose names are somebody's where they can be.
fn known(path: &str) -> String {
    path.replace("/agents/{id}", "/agents/a1")
        .replace("/leases/{id}", "/leases/l1")
        .replace("{id:.+}", "lab/linux")
        .replace("{topic:.+}", "introduction")
        .replace("{name}", "page.css")
        .replace("/why", "/why?of=lab/linux")
}

fn served() -> Served {
    let served = Served::default();
    reported(&served.view, empty_template());
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Ready))));
    let status = lease("l1", LeasePhase::Ready, Some("a1"), "");
    reported(&served.view, What::Lease(Box::new(status)));
    served
}

/// What each page says to browsers.
fn headed(answer: &Response, about: &str) {
    let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
    let policy = header("content-security-policy").unwrap_or_else(|| panic!("{about}"));
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{about}: {policy}");
    assert!(!policy.contains("unsafe"), "{about}: {policy}");
    assert_eq!(header("x-content-type-options"), Some("nosniff"), "{about}");
    assert_eq!(header("x-frame-options"), Some("DENY"), "{about}");
}

// Invariant: a stranger is led to the login from every page, and each role sees its own.

#[tokio::test]
async fn every_page_knows_who_may_see_it() {
    let served = served();
    let stranger = Browser::new(&served);
    let viewer = Browser::of(&served, "viewer-token").await;
    let admin = Browser::of(&served, "admin-token").await;
    for place in places() {
        let path = known(place.path);
        for (method, access) in
            place.methods.iter().filter(|(method, _)| *method == Method::GET.as_str())
        {
            let about = format!("{method} {path}");
            let (strange, seen, all) =
                (stranger.get(&path).await, viewer.get(&path).await, admin.get(&path).await);
            headed(&all, &about);
            headed(&strange, &about);
            if path.starts_with("/login/openid") {
                // No provider is configured here; `tests/openid.rs` has one.
                assert_eq!(
                    (all.status().as_u16(), strange.status().as_u16()),
                    (404, 404),
                    "{about}"
                );
                continue;
            }
            assert_eq!(all.status(), 200, "{about}");
            match access {
                Access::Open => assert_eq!(strange.status(), 200, "{about}"),
                Access::Least(role) => {
                    let next: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
                    let place = strange.headers()[LOCATION].to_str().unwrap();
                    assert_eq!(
                        (strange.status().as_u16(), place),
                        (303, &*format!("/login?next={next}"))
                    );
                    let wanted = if *role > Role::Viewer { 403 } else { 200 };
                    assert_eq!(seen.status(), wanted, "{about} as viewer");
                    headed(&seen, &about);
                    let kind = seen.headers()["content-type"].to_str().unwrap().to_owned();
                    assert_eq!(kind, "text/html; charset=utf-8", "{about}");
                }
            }
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn what_is_not_there_or_cannot_be_read_is_refused_in_words() {
    let served = served();
    let browser = Browser::of(&served, "viewer-token").await;
    for (path, status, words) in [
        ("/agents/zz", 404, "no agent <code>zz</code> is known"),
        ("/agents/%3Cscript%3E", 404, "&lt;script&gt;"),
        ("/leases/zz", 404, "no lease <code>zz</code> is known"),
        ("/templates/zz", 404, "no template <code>zz</code> is configured"),
        ("/docs/zz", 404, "the book has no page <code>zz</code>"),
        ("/assets/zz", 404, "the page has no such file"),
        ("/agents?nonsense=1", 400, "<code>q</code>, a filter, is taken"),
        ("/nodes", 403, "has the role viewer, and this needs operator"),
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status(), status, "{path}");
        let text = answer.text().await.unwrap();
        assert!(text.contains(words), "{path}: {text}");
        assert!(!text.contains("<script>"), "{path}: {text}");
    }
    served.stop().await;
}

// Invariant: a session changes nothing unless the page itself asks.

#[tokio::test]
async fn a_cookie_alone_changes_nothing_on_any_route() {
    let served = served();
    let browser = Browser::of(&served, "admin-token").await;
    let unsafe_ones = routes::places().into_iter().chain(places()).flat_map(|place| {
        let path = place.path.split('/').map(|one| if one.starts_with('{') { "zz" } else { one });
        let path = path.collect::<Vec<_>>().join("/");
        let methods = place.methods.into_iter().filter(|(_, access)| *access != Access::Open);
        methods.map(move |(method, _)| (method.to_string(), path.clone())).collect::<Vec<_>>()
    });
    let mut count = 0;
    for (method, path) in unsafe_ones.filter(|(method, _)| method != "GET") {
        let verb: Method = method.parse().unwrap();
        for csrf in [None, Some(""), Some("0123456789abcdef0123456789abcdef")] {
            let answer = browser.ask(verb.clone(), &path, csrf).await;
            assert_eq!(answer.status(), 403, "{method} {path} with {csrf:?}");
            assert!(answer.text().await.unwrap().contains(CSRF_HEADER), "{method} {path}");
        }
        count += 1;
    }
    assert!(count > 30, "{count}");
    let csrf = browser.csrf.clone();
    let answer = browser.ask(Method::POST, "/v1/agents/a1/retire", Some(&csrf)).await;
    assert_eq!(answer.status(), 202);
    served.stop().await;
}

// Invariant: each button asks for what there is, and stands only where its reader's role may ask for it.

/// A cloud whose trouble names each command that the page can carry out.
fn cloud_of_all_commands() -> What {
    let commands =
        ["uncordon pve1", "breakers reset lab/linux", "hold-next lab/linux", "release l7"];
    let commands = commands.into_iter().chain(["reload", "resync", "sync"]);
    What::Cloud(Box::new(CloudStatus {
        cloud: CloudId::new("lab"),
        cluster: None,
        health: CloudHealth::Well,
        version: None,
        detail: commands.map(|command| format!("`drover {command}`")).collect::<Vec<_>>().join(" "),
        agents: 1,
        cap: None,
        overrides: CloudOverrides::default(),
    }))
}

/// The method and the pattern of the route that an order such as `POST /v1/reap` comes to, and what it asks for.
fn route_of(order: &str, all: &[Place]) -> Option<(String, Access)> {
    let (method, path) = order.split_once(' ')?;
    let is_of = |pattern: &str| {
        let (wanted, given) = (pattern.split('/'), path.split('/'));
        wanted.clone().count() == given.clone().count()
            && wanted.zip(given).all(|(one, other)| one.starts_with('{') || one == other)
    };
    let place = all.iter().find(|place| is_of(place.path))?;
    let (_, access) = place.methods.iter().find(|(one, _)| *one == method)?;
    Some((format!("{method} {}", place.path), *access))
}

#[tokio::test]
async fn each_button_has_a_route_that_its_reader_may_use() {
    let served = served();
    reported(&served.view, What::Agent(Arc::new(agent("h1", AgentPhase::Held))));
    reported(&served.view, cloud_of_all_commands());
    let all: Vec<Place> = routes::places().into_iter().chain(places()).collect();
    let mut seen = BTreeSet::new();
    for (token, role) in [
        ("viewer-token", Role::Viewer),
        ("operator-token", Role::Operator),
        ("admin-token", Role::Admin),
    ] {
        let browser = Browser::of(&served, token).await;
        for path in [
            "/",
            "/nodes",
            "/plan",
            "/configuration",
            "/agents/a1",
            "/agents/h1",
            "/leases/l1",
            "/templates/lab/linux",
        ] {
            let page = browser.get(path).await.text().await.unwrap();
            for order in page.split("data-do=\"").skip(1) {
                let order = order.split('"').next().unwrap();
                let (route, access) = route_of(order, &all)
                    .unwrap_or_else(|| panic!("{path} as {role}: nothing answers `{order}`"));
                let may = matches!(access, Access::Least(least) if role >= least);
                assert!(may || access == Access::Open, "{path} as {role}: `{order}` is refused");
                seen.insert(route);
            }
        }
    }
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(
        seen,
        [
            "DELETE /v1/agents/{id}/hold",
            "DELETE /v1/leases/{id}",
            "POST /logout",
            "POST /v1/agents/{id}/hold",
            "POST /v1/agents/{id}/retire",
            "POST /v1/breakers/{id}/reset",
            "POST /v1/nodes/{node}/cordon",
            "POST /v1/nodes/{node}/drain",
            "POST /v1/reap",
            "POST /v1/reload",
            "POST /v1/resync",
            "POST /v1/sync",
            "POST /v1/templates/{id}/hold-next",
            "POST /v1/templates/{id}/provision",
        ],
        "every button was seen"
    );
    served.stop().await;
}

#[tokio::test]
async fn a_session_begins_with_a_right_token_and_ends_with_a_logout() {
    let served = served();
    let stranger = Browser::new(&served);
    let wrong = stranger.log_in("viewer-tokem", "/agents").await;
    assert_eq!(wrong.status(), 401);
    assert!(wrong.headers().get(SET_COOKIE).is_none());
    assert!(wrong.text().await.unwrap().contains("No token of the configuration is this one."));
    let right = stranger.log_in("viewer-token", "/agents?q=ready").await;
    assert_eq!(
        (right.status().as_u16(), &right.headers()[LOCATION]),
        (303, &"/agents?q=ready".parse().unwrap())
    );
    let elsewhere = stranger.log_in("viewer-token", "//evil.org/").await;
    assert_eq!(elsewhere.headers()[LOCATION], "/");
    let large = stranger.log_in(&"x".repeat(9000), "/").await;
    assert_eq!(large.status(), 413);

    let browser = Browser::of(&served, "viewer-token").await;
    assert_eq!(browser.get("/v1/whoami").await.status(), 200);
    let csrf = browser.csrf.clone();
    let left = browser.ask(Method::POST, "/logout", Some(&csrf)).await;
    assert_eq!(left.status(), 204);
    assert!(
        left.headers()[SET_COOKIE].to_str().unwrap().contains("drover_session=; Path=/; HttpOnly")
    );
    served.stop().await;
}

#[tokio::test]
async fn tokens_cannot_be_tried_at_the_login_without_end() {
    let served = served();
    let stranger = Browser::new(&served);
    let mut last = 0;
    for number in 0..25 {
        last = stranger.log_in(&format!("guess-{number}"), "/").await.status().as_u16();
    }
    assert_eq!(last, 429);
    served.stop().await;
}

// Invariant: text from outside is text on the page.

#[tokio::test]
async fn names_and_reasons_from_outside_become_no_part_of_the_page() {
    let served = served();
    let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>";
    let status = AgentStatus { detail: evil.into(), ..agent("a2", AgentPhase::Preparing) };
    reported(&served.view, What::Agent(Arc::new(status)));
    let mut status = lease("l2", LeasePhase::Waiting, None, evil);
    status.owner = evil.into();
    reported(&served.view, What::Lease(Box::new(status)));
    let refused = What::ConfigRefused { text: evil.into(), after: Default::default() };
    reported(&served.view, refused);
    let browser = Browser::of(&served, "admin-token").await;
    let query: String = form_urlencoded::byte_serialize(evil.as_bytes()).collect();
    for path in ["/", "/agents", "/agents/a2", "/leases", "/leases/l2", "/configuration", "/events"]
    {
        for path in [path.to_owned(), format!("{path}?q={query}")] {
            let text = browser.get(&path).await.text().await.unwrap();
            assert!(!text.contains("<script>alert") && !text.contains("<img src=x"), "{path}");
        }
    }
    assert!(browser.get("/agents/a2").await.text().await.unwrap().contains("alert(1)"));
    served.stop().await;
}

// Invariant: an operator sees what is in force and from where, and a viewer sees none of it.

#[tokio::test]
async fn values_in_force_are_shown_to_operators_with_their_origins_and_found_by_a_filter() {
    let served = served();
    let keys = |text: &str| -> Vec<String> {
        let rows = text.split("id=\"value-").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned()).collect()
    };
    let operator = Browser::of(&served, "operator-token").await;
    let all = operator.get("/configuration").await.text().await.unwrap();
    let given =
        ["service.logLevel", "agentConfigurations.linux.memoryMb", "credentials.key.passphrase"];
    assert_eq!(keys(&all), given, "without defaults");
    assert!(all.contains("drover.yaml:12") && all.contains("$LOG_LEVEL"), "{all}");
    for (query, found) in [
        ("from:default", &["agentConfigurations.linux.cores"][..]),
        ("key:linux", &["agentConfigurations.linux.memoryMb", "agentConfigurations.linux.cores"]),
        ("nothing", &[]),
    ] {
        let text = operator.get(&format!("/configuration?q={query}")).await.text().await.unwrap();
        assert_eq!(keys(&text), found, "{query}");
    }
    let answer = operator.get("/v1/configuration/values").await.text().await.unwrap();
    assert!(
        answer.contains(r#"{"path":"service.logLevel","value":"debug","origin":"$LOG_LEVEL"}"#)
    );
    let viewer = Browser::of(&served, "viewer-token").await;
    let text = viewer.get("/configuration").await.text().await.unwrap();
    assert_eq!(keys(&text), Vec::<String>::new());
    assert!(!text.contains("drover.yaml:12"));
    assert_eq!(viewer.get("/v1/configuration/values").await.status(), 403);
    served.stop().await;
}
