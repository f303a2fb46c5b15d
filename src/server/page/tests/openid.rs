//! Logins at a made-up provider over real sockets: who comes in, for how long, and everybody who does not.
//! A real provider is logged in at in the tier `wire`.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::Arc;
use std::time::Duration;

use drover_api::Role;
use drover_audit::{Audit, Options};
use drover_model::fact::What;
use drover_model::phase::AgentPhase;
use drover_openid::testing::{Fake, SigningKey};
use reqwest::header::{LOCATION, SET_COOKIE};
use reqwest::{Method, Response, Url};
use serde_json::{Value, json};

use super::{Browser, headed};
use crate::auth::Auth;
use crate::house::{Limits, now};
use crate::openid::{GroupGrant, OpenId};
use crate::server::{Listen, Running, bind};
use crate::standby::StandbyDoors;
use crate::testing::{Served, agent, auth, members, members_key, reported};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn grant(name: &str, role: Role, group: Option<&str>) -> GroupGrant {
    GroupGrant { name: name.to_owned(), role, group: group.map(str::to_owned) }
}

/// Who comes in by the provider, beside the tokens.
fn with(fake: &Fake, served: &Served, grants: Vec<GroupGrant>) -> Auth {
    let settings = fake.settings(&served.base);
    auth().with_openid(Some(OpenId::new("Keycloak".into(), settings, grants, HOUR)))
}

async fn served() -> (Fake, Served) {
    let (fake, served) = (Fake::start().await, Served::default());
    let grants =
        vec![grant("/build", Role::Operator, Some("build")), grant("/ops", Role::Admin, None)];
    served.running.replace_auth(with(&fake, &served, grants));
    (fake, served)
}

/// A login that began: the browser with its cookie, and what it was sent to the provider with.
async fn started(served: &Served, next: &str) -> (Browser, Url) {
    started_by(Browser::new(served), next).await
}

async fn started_by(mut browser: Browser, next: &str) -> (Browser, Url) {
    let answer = browser.get(&format!("/login/openid?next={next}")).await;
    assert_eq!(answer.status(), 303, "{:?}", answer.text().await);
    headed(&answer, "the way to the provider");
    let cookie = answer.headers()[SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.contains("; Path=/login/openid; HttpOnly; SameSite=Lax; Max-Age=600"),
        "{cookie}"
    );
    browser.cookie = Some(cookie.split(';').next().unwrap().to_owned());
    (browser, answer.headers()[LOCATION].to_str().unwrap().parse().unwrap())
}

fn asked(place: &Url, name: &str) -> String {
    place.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
}

/// Lets the provider say this of a person who logs in.
fn says(fake: &Fake, key: &SigningKey, place: &Url, more: &Value) {
    let mut claims = fake.claims(&asked(place, "nonce"), now().0 / 1000);
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    fake.gives(&key.token(&claims));
}

async fn back(browser: &Browser, place: &Url) -> Response {
    let state = asked(place, "state");
    browser.get(&format!("/login/openid/callback?code=c0de&state={state}&session_state=x")).await
}

fn cookies(answer: &Response) -> Vec<&str> {
    answer.headers().get_all(SET_COOKIE).iter().map(|one| one.to_str().unwrap()).collect()
}

/// Logs a person with these groups in.
async fn logged_in(fake: &Fake, served: &Served, groups: &Value) -> Browser {
    logged_in_by(Browser::new(served), fake, groups).await
}

async fn logged_in_by(browser: Browser, fake: &Fake, groups: &Value) -> Browser {
    let (mut browser, place) = started_by(browser, "%2Fagents").await;
    says(fake, &fake.key, &place, &json!({ "preferred_username": "ann", "groups": groups }));
    let answer = back(&browser, &place).await;
    assert_eq!(answer.status(), 303, "{:?}", answer.text().await);
    assert_eq!(answer.headers()[LOCATION], "/agents");
    let [session, login] = cookies(&answer)[..] else { panic!("{:?}", answer.headers()) };
    assert!(session.starts_with("drover_session=") && session.contains("; HttpOnly; SameSite=Lax"));
    assert!(session.contains("; Max-Age=3600"), "{session}");
    assert!(login.starts_with("drover_login=; ") && login.contains("Max-Age=0"), "{login}");
    browser.cookie = Some(session.split(';').next().unwrap().to_owned());
    browser
}

/// The member `b` behind this leader.
fn standing_by(leader: &Served) -> Running {
    let known = Some(("a".to_owned(), leader.base.clone()));
    let audit = Audit::open(&leader.directory.path().join("b"), Options::default()).unwrap();
    let doors = StandbyDoors {
        leader: tokio::sync::watch::channel(known).1,
        members: Arc::new(members),
        key: members_key(),
        member: "b".to_owned(),
        why: Arc::new(|| "no member leads at the moment".to_owned()),
        audit,
    };
    let bound = bind(vec![Listen::Tcp("127.0.0.1:0".parse().unwrap())], &auth()).unwrap();
    bound.stand_by(doors, auth(), Limits::default()).unwrap()
}

/// Who a browser is to drover; none for nobody.
async fn who(browser: &Browser) -> Option<Value> {
    let answer = browser.get("/v1/whoami").await;
    if answer.status() == 401 { None } else { answer.json().await.ok() }
}

/// The text of the fault on a page with the form.
async fn fault(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    headed(&answer, "a login that failed");
    assert!(!cookies(&answer).iter().any(|one| one.starts_with("drover_session")));
    let page = answer.text().await.unwrap();
    let (_, text) = page.split_once("id=\"fault\">").unwrap_or_else(|| panic!("{page}"));
    let text = text.split("</p>").next().unwrap();
    (status, text.replace("&#96;", "`").replace("&#39;", "'").replace("&#38;", "&"))
}

// Invariant: somebody whose group is listed comes in, with what the configuration says of that group now.

#[tokio::test]
async fn a_person_of_a_listed_group_comes_in_and_is_who_the_configuration_says_now() {
    let (fake, served) = served().await;
    let browser = logged_in(&fake, &served, &json!(["x", "/build"])).await;
    let who_is = who(&browser).await.unwrap();
    assert_eq!(who_is["principal"], "openid:ann");
    assert_eq!((&who_is["role"], &who_is["group"]), (&json!("operator"), &json!("build")));
    let page = browser.get("/").await.text().await.unwrap();
    assert!(page.contains("openid:ann") && page.contains("Your role is operator"));
    assert!(page.contains("Log out"));

    // The next request already sees another role.
    served.running.replace_auth(with(&fake, &served, vec![grant("x", Role::Viewer, None)]));
    let who_is = who(&browser).await.unwrap();
    assert_eq!((&who_is["role"], &who_is["group"]), (&json!("viewer"), &json!(null)));
    served.running.replace_auth(with(&fake, &served, vec![grant("y", Role::Admin, None)]));
    assert_eq!(who(&browser).await, None, "no group of theirs is listed");
    served.running.replace_auth(auth());
    assert_eq!(who(&browser).await, None, "there is no provider");
    assert_eq!(browser.get("/").await.status(), 303);
    let mut other = fake.settings(&served.base);
    other.client_id = "other".to_owned();
    let grants = vec![grant("x", Role::Viewer, None)];
    let other = OpenId::new("Keycloak".into(), other, grants, HOUR);
    served.running.replace_auth(auth().with_openid(Some(other)));
    assert_eq!(who(&browser).await, None, "it is another client");
    served.stop().await;
}

#[tokio::test]
async fn a_session_of_the_provider_changes_nothing_without_the_header_of_the_page() {
    let (fake, served) = served().await;
    let browser = logged_in(&fake, &served, &json!("/ops")).await;
    let without = browser.ask(Method::POST, "/v1/reap", None).await;
    assert_eq!(without.status(), 403);
    let page = browser.get("/").await.text().await.unwrap();
    let (_, rest) = page.split_once("name=\"csrf\" content=\"").unwrap();
    let csrf = rest.split('"').next().unwrap();
    let left = browser.ask(Method::POST, "/logout", Some(csrf)).await;
    assert_eq!(left.status(), 204);
    assert!(cookies(&left)[0].starts_with("drover_session=; Path=/; HttpOnly"));
    served.stop().await;
}

// Invariant: a logout ends the session of drover in any case, and leads to the provider where that is configured.

#[tokio::test]
async fn a_logout_leads_on_to_the_provider_where_the_configuration_wants_that() {
    for (ends, status) in [(true, 200), (false, 204)] {
        let (fake, served) = served().await;
        let mut document = fake.document();
        document["end_session_endpoint"] = json!(format!("{}/end", fake.issuer));
        fake.answer("/.well-known/openid-configuration", 200, &document);
        let grants = vec![grant("/ops", Role::Operator, None)];
        let openid = OpenId::new("Id".into(), fake.settings(&served.base), grants, HOUR);
        let openid = openid.ending_sessions(ends);
        served.running.replace_auth(auth().with_openid(Some(openid)));
        let browser = logged_in(&fake, &served, &json!("/ops")).await;
        let page = browser.get("/").await.text().await.unwrap();
        let (_, rest) = page.split_once("name=\"csrf\" content=\"").unwrap();
        let csrf = rest.split('"').next().unwrap();
        let left = browser.ask(Method::POST, "/logout", Some(csrf)).await;
        assert_eq!(left.status(), status);
        assert!(cookies(&left)[0].starts_with("drover_session=; Path=/; HttpOnly"));
        let body = left.text().await.unwrap();
        let leads = format!("{}/end?client_id=drover&post_logout_redirect_uri=", fake.issuer);
        assert_eq!(body.contains(&leads), ends, "{body}");
        served.stop().await;
    }
}

#[tokio::test]
async fn a_standby_takes_logins_too_and_the_session_counts_at_every_member() {
    let (fake, leader) = (Fake::start().await, Served::leading());
    let standby = standing_by(&leader);
    let base = format!("http://{}", standby.addrs[0]);
    let at_standby = Browser { base: base.clone(), ..Browser::new(&leader) };
    let settings = fake.settings(&base);
    let grants = vec![grant("/ops", Role::Admin, None)];
    let openid = OpenId::new("Keycloak".into(), settings, grants, HOUR);
    leader.running.replace_auth(auth().with_openid(Some(openid)));
    let browser = logged_in_by(at_standby, &fake, &json!(["/ops"])).await;
    assert_eq!(who(&browser).await.unwrap()["principal"], "openid:ann");
    let at_leader = Browser { base: leader.base.clone(), ..browser };
    assert_eq!(who(&at_leader).await.unwrap()["role"], "admin");
    let records = leader.admin(Method::GET, "/v1/audit", "").await.body.to_string();
    assert!(records.contains(r#""member":"b""#), "{records}");
    standby.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_form_is_judged_by_the_member_that_the_browser_reached() {
    let leader = Served::leading();
    let standby = standing_by(&leader);
    let base = format!("http://{}", standby.addrs[0]);
    let http = Browser::new(&leader).http;
    let form = |origin: String| {
        let request = http.post(format!("{base}/login")).header("origin", origin);
        let kind = "application/x-www-form-urlencoded";
        request.header("content-type", kind).body("token=admin-token&next=%2F").send()
    };
    let own = form(base.clone()).await.unwrap();
    assert_eq!(own.status(), 303, "{:?}", own.text().await);
    let other = form("http://evil.test".to_owned()).await.unwrap();
    assert_eq!(other.status(), 403);
    standby.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_terminal_ends_once_the_session_of_its_person_may_do_less() {
    let (fake, served) = served().await;
    reported(&served.view, What::Agent(Arc::new(agent("a1", AgentPhase::Held))));
    let browser = logged_in(&fake, &served, &json!(["/ops"])).await;
    let page = browser.get("/").await.text().await.unwrap();
    let (_, rest) = page.split_once("name=\"csrf\" content=\"").unwrap();
    let csrf = rest.split('"').next().unwrap();
    let opened = browser.ask(Method::POST, "/v1/agents/a1/terminals", Some(csrf)).await;
    assert_eq!(opened.status(), 201);
    let opened: Value = opened.json().await.unwrap();
    let screens = browser.get(&format!("/v1/terminals/{}", opened["id"].as_str().unwrap())).await;
    assert_eq!(screens.status(), 200);
    let lower = vec![grant("/ops", Role::Operator, None)];
    served.running.replace_auth(with(&fake, &served, lower));
    let text = screens.text().await.unwrap();
    assert!(text.contains("the session of its owner ended, or may do less"), "{text}");
    served.stop().await;
}

#[tokio::test]
async fn somebody_of_many_groups_comes_in_by_the_one_that_counts() {
    let (fake, served) = served().await;
    let mut groups: Vec<String> =
        (0..500).map(|one| format!("/a/group/of/some/length/{one}")).collect();
    groups.push("/ops".to_owned());
    let browser = logged_in(&fake, &served, &json!(groups)).await;
    assert!(browser.cookie.as_ref().unwrap().len() < 4000);
    assert_eq!(who(&browser).await.unwrap()["role"], "admin");
    served.stop().await;
}

// Invariant: nobody comes in whom the provider did not send, for this login, in this browser, once.

#[tokio::test]
async fn a_login_that_is_not_this_browsers_or_is_over_brings_nobody_in() {
    let (fake, served) = served().await;
    let (browser, place) = started(&served, "%2F").await;
    says(&fake, &fake.key, &place, &json!({ "preferred_username": "ann", "groups": ["/ops"] }));
    let (status, text) = fault(back(&Browser::new(&served), &place).await).await;
    assert!(status == 400 && text.starts_with("This browser began no login"), "{text}");
    let (other, other_place) = started(&served, "%2F").await;
    let (status, text) = fault(back(&browser, &other_place).await).await;
    assert!(status == 400 && text.contains("answers another login"), "{text}");
    // A cookie that somebody changed is none.
    let mut changed = Browser::new(&served);
    changed.cookie =
        other.cookie.map(|cookie| cookie.replace("drover_login=ey", "drover_login=eY"));
    assert_eq!(fault(back(&changed, &other_place).await).await.0, 400);
    // A session is no login, and a login is no session.
    let mut confused = Browser::new(&served);
    confused.cookie =
        browser.cookie.clone().map(|one| one.replace("drover_login", "drover_session"));
    assert_eq!(who(&confused).await, None);
    assert_eq!(fake.calls("/token").len(), 0, "the provider was not asked");

    assert_eq!(back(&browser, &place).await.status(), 303);
    let (status, text) = fault(back(&browser, &place).await).await;
    assert!(status == 400 && text.starts_with("This login is over already."), "{text}");
    assert_eq!(fake.calls("/token").len(), 1);
    served.stop().await;
}

#[tokio::test]
async fn each_fault_of_a_login_is_said_with_what_to_do() {
    let (fake, served) = served().await;
    let after = async |more: Value, change: &dyn Fn(&Url)| {
        let (browser, place) = started(&served, "%2F").await;
        let mut claims = json!({ "preferred_username": "ann", "groups": ["/ops"] });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        says(&fake, &fake.key, &place, &claims);
        change(&place);
        let (status, text) = fault(back(&browser, &place).await).await;
        (status, text.replace(&fake.issuer, "http://id"))
    };
    let nothing = |_: &Url| {};
    let (status, text) = after(json!({ "groups": ["a", "b"] }), &nothing).await;
    assert_eq!(status, 403);
    insta::assert_snapshot!(text, @"ann may not log in: the provider names `a`, `b` (claim `groups`), and no such group is in `service.openId.groups` of drover's configuration. Ask an administrator of drover to list one.");
    let (_, text) = after(json!({ "groups": [] }), &nothing).await;
    assert!(text.starts_with("ann may not log in: the provider names no groups"), "{text}");
    fake.answer("/me", 200, &json!({ "sub": "1" }));
    let (_, text) = after(json!({ "groups": null }), &nothing).await;
    assert!(text.contains("the provider said nothing of groups (claim `groups`)"), "{text}");
    let (status, text) = after(json!({ "exp": 1000 }), &nothing).await;
    assert!(status == 403 && text.contains("it expired"), "{text}");
    assert!(text.contains("Compare the clocks"), "{text}");
    let (status, text) = after(json!({ "aud": "other" }), &nothing).await;
    assert!(status == 403 && text.contains("it is for `other`, and not for this client"), "{text}");
    let (_, text) = after(json!({ "nonce": "other" }), &nothing).await;
    assert!(text.contains("made for another login (`nonce`)"), "{text}");
    let stranger = SigningKey::new("first");
    let by_stranger = |place: &Url| {
        says(&fake, &stranger, place, &json!({ "preferred_username": "ann", "groups": ["/ops"] }));
    };
    let (status, text) = after(json!({}), &by_stranger).await;
    assert!(status == 403 && text.contains("its signature is not that of"), "{text}");
    let refuses = |_: &Url| fake.answer("/token", 401, &json!({ "error": "invalid_client" }));
    let (_, text) = after(json!({}), &refuses).await;
    assert!(text.contains("Compare `service.openId.clientId` and its secret"), "{text}");
    let breaks = |_: &Url| fake.answer("/token", 500, &json!({}));
    let (status, text) = after(json!({}), &breaks).await;
    assert_eq!(status, 502);
    insta::assert_snapshot!(text, @"The provider answered http://id/token with status 500. Check `service.openId.issuer` with `drover doctor`, and the log of the provider.");

    // The person said no, over there.
    let (browser, place) = started(&served, "%2F").await;
    let state = asked(&place, "state");
    let query = format!("error=access_denied&error_description=%3Cb%3Eno&state={state}");
    let answer = browser.get(&format!("/login/openid/callback?{query}")).await;
    let (status, text) = fault(answer).await;
    assert!(status == 403 && text.contains("access_denied: &#60;b&#62;no"), "{text}");
    served.stop().await;
}

#[tokio::test]
async fn a_provider_that_is_away_is_said_at_the_button() {
    let served = Served::default();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let issuer = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let settings = drover_openid::testing::settings(&issuer, &served.base);
    let openid = OpenId::new("Keycloak".into(), settings, Vec::new(), HOUR);
    served.running.replace_auth(auth().with_openid(Some(openid)));
    let (status, text) = fault(Browser::new(&served).get("/login/openid").await).await;
    assert_eq!(status, 502);
    let wanted = format!("The provider did not answer {issuer}/.well-known/openid-configuration: ");
    assert!(text.starts_with(&wanted), "{text}");
    assert!(text.ends_with("`drover doctor` asks the provider and says what fails."), "{text}");
    served.stop().await;
}

// Invariant: the routes of a login take what a provider sends and nothing else, and lead nowhere but here.

#[tokio::test]
async fn what_is_malformed_or_too_large_is_refused_and_no_login_leads_elsewhere() {
    let (fake, served) = served().await;
    let (browser, place) = started(&served, "%2F%2Fevil.org").await;
    says(&fake, &fake.key, &place, &json!({ "preferred_username": "ann", "groups": ["/ops"] }));
    assert_eq!(back(&browser, &place).await.headers()[LOCATION], "/");
    let (_, place) = started(&served, &format!("%2F{}", "x".repeat(5000))).await;
    assert!(place.as_str().starts_with(&fake.issuer));

    let stranger = Browser::new(&served);
    let large = format!("/login/openid/callback?code={}", "x".repeat(9000));
    for path in ["/login/openid/callback", "/login/openid/callback?code=a&code=b", &large] {
        assert_eq!(fault(stranger.get(path).await).await.0, 400, "{}", path.len());
    }
    let huge = format!("/login/openid/callback?code={}", "x".repeat(40_000));
    assert_eq!(stranger.get(&huge).await.status(), 431);
    let unknown = stranger.get("/login/openid?nonsense=1").await;
    assert_eq!(unknown.status(), 400);
    for path in ["/login/openid", "/login/openid/callback"] {
        let posted = stranger.ask(Method::POST, path, None).await;
        assert_eq!(posted.status(), 405, "{path}");
    }
    served.stop().await;
}

#[tokio::test]
async fn codes_cannot_be_tried_without_end() {
    let (fake, served) = served().await;
    let mut last = 0;
    for _ in 0..25 {
        let (browser, place) = started(&served, "%2F").await;
        last = back(&browser, &place).await.status().as_u16();
    }
    assert_eq!(last, 429);
    assert_eq!(fake.calls("/token").len(), 20);
    served.stop().await;
}

// Invariant: each login that came back is in the audit log, with who it was.

#[tokio::test]
async fn the_audit_log_has_who_logged_in_and_who_was_refused() {
    let (fake, served) = served().await;
    logged_in(&fake, &served, &json!(["/build"])).await;
    let (browser, place) = started(&served, "%2F").await;
    says(&fake, &fake.key, &place, &json!({ "preferred_username": "eve", "groups": ["x"] }));
    assert_eq!(back(&browser, &place).await.status(), 403);
    fault(Browser::new(&served).get("/login/openid/callback").await).await;
    let records = served.admin(Method::GET, "/v1/audit", "").await.body.to_string();
    for wanted in [
        r#""principal":"openid:ann""#,
        r#""role":"operator""#,
        r#""status":303"#,
        r#""principal":"openid:eve""#,
        r#""status":403"#,
        r#""route":"/login/openid/callback""#,
        r#""status":400"#,
    ] {
        assert!(records.contains(wanted), "{wanted} in {records}");
    }
    served.stop().await;
}

// Invariant: people find the provider at the login, and the token where one is configured.

#[tokio::test]
async fn the_login_has_a_button_with_the_providers_name() {
    let (fake, served) = served().await;
    let page = Browser::new(&served).get("/login?next=%2Fagents%3Fq%3Da%26b").await;
    let page = page.text().await.unwrap();
    let main = page.split("</h1>").nth(1).unwrap().split("</main>").next().unwrap();
    insta::assert_snapshot!(main.trim(), @r#"
    <p class="login"><a class="button" id="provider" href="/login/openid?next=%2Fagents%3Fq%3Da%26b">Log in with Keycloak</a></p>
    <form method="post" action="/login" class="login">
    <input type="hidden" name="next" value="/agents?q=a&#38;b">
    <input type="text" name="username" value="drover" autocomplete="username" hidden>
    <label for="token">Token</label>
    <input id="token" name="token" type="password" autocomplete="current-password" required>
    <button>Log in</button>
    </form>
    <p class="quiet">A token of <code>service.tokens</code> in drover's configuration.</p>
    "#);
    let alone = OpenId::new("<Id>".into(), fake.settings(&served.base), Vec::new(), HOUR);
    served.running.replace_auth(Auth::default().with_openid(Some(alone)));
    let page = Browser::new(&served).get("/login").await.text().await.unwrap();
    assert!(page.contains("Log in with &#60;Id&#62;") && !page.contains("id=\"token\""), "{page}");
    served.stop().await;
}
