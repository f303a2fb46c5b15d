//! Logins at a real provider of OpenID Connect, in a real Chromium, on a real service.

use std::process::{Command, Stdio};

use crate::api::call;
use crate::browser::{Browser, tool};
use crate::harness::{Kept, Lines, Site, world};
use crate::page::paged;

/// The provider, and how it calls itself.
fn provider(redirect: &str) -> (Kept, Lines, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/openid_provider.mjs");
    let mut command = Command::new("node");
    command.arg(script).arg(tool("DROVER_TEST_OIDC_PROVIDER")).arg(redirect);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut provider = Kept(command.spawn().unwrap());
    let mut lines = Lines::of("provider", provider.0.stdout.take().unwrap());
    let line = lines.until(|line| line.starts_with("issuer "));
    let issuer = line.trim_start_matches("issuer ").to_owned();
    (provider, lines, issuer)
}

/// Brings a configuration into force in which people log in at the provider with this role.
fn admits(site: &Site, plain: &str, (issuer, redirect): (&str, &str), role: &str) {
    let secret = site.dir.path().join("openid-secret");
    let section = format!(
        "service:\n  openId:\n    issuer: \"{issuer}\"\n    name: The House\n    clientId: drover\n    \
         secretFile: \"{}\"\n    redirectUrl: \"{redirect}\"\n    scopes: [profile, groups]\n    endSession: true\n    groups:\n      \
         - {{name: /ci/operators, role: {role}, group: build}}\n",
        secret.display()
    );
    site.write_yaml(&plain.replace("service:\n", &section));
    let reloaded = site.cli(&["reload"]);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
}

/// Logs in over there.
fn log_in(browser: &Browser, name: &str) {
    browser.click("#provider");
    browser.put("input[name=login]", name);
    browser.put("input[name=password]", "any");
    browser.click("button.login-submit");
    // It asks once whether drover may know who they are.
    browser.until_text("h1", "Authorize");
    browser.click("button.login-submit");
}

// Invariant: somebody whom the provider knows and whose group is listed works with the page as that group may,
// and nobody else comes in.

#[test]
fn a_person_logs_in_at_a_real_provider_works_and_logs_out() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let redirect = format!("{base}/login/openid/callback");
    let (_provider, _lines, issuer) = provider(&redirect);
    site.write_secret("openid-secret", "the secret: of drover");
    let plain = std::fs::read_to_string(site.config()).unwrap();
    admits(&site, &plain, (&issuer, &redirect), "operator");

    let browser = Browser::open(&base, (1280, 900));
    browser.go("/templates/lab/linux");
    assert_eq!(browser.place(), "/login?next=%2Ftemplates%2Flab%2Flinux");
    browser.until_text("#provider", "Log in with The House");
    assert_eq!(browser.barriers(), Vec::<String>::new());
    browser.shoot("login-provider");
    log_in(&browser, "ann");
    browser.until_text("#live", "live");
    assert_eq!(browser.place(), "/templates/lab/linux");
    browser.until_text(".who", "openid:ann");
    let role = "return document.querySelector('.who [title]').title";
    assert_eq!(browser.run(role), "Your role is operator");
    browser.click("main [data-do$='/provision']");
    browser.until_text("#agents", "Ready");
    browser.shoot("logged-in-at-provider");
    // What the provider's own pages lack is no fault of drover's.
    let of_drover = |line: &String| line.contains(&base);
    assert_eq!(browser.complaints().into_iter().find(of_drover), None);

    // Another role counts at once, for the same session.
    admits(&site, &plain, (&issuer, &redirect), "viewer");
    browser.go("/nodes");
    browser.until_text("main", "has the role viewer, and this needs operator");
    browser.go("/");
    assert_eq!(browser.run(role), "Your role is viewer");
    browser.click("[data-do='POST /logout']");
    // The provider asks, ends its own session, and leads back.
    browser.until_text("h1", "Do you want to sign-out");
    browser.click("button[value=yes]");
    browser.until_text("#provider", "Log in with The House");
    browser.click("#provider");
    browser.until_text("h1", "Sign-in");
    browser.go("/agents");
    assert_eq!(browser.place(), "/login?next=%2Fagents");

    let (status, audit) = call(&site, "GET", "/v1/audit", None);
    let audit = audit.to_string();
    assert!(status == 200 && audit.contains("\"principal\":\"openid:ann\""), "{audit}");
}

#[test]
fn a_person_without_a_listed_group_is_refused_and_the_doctor_says_what_of_a_provider_fails() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let redirect = format!("{base}/login/openid/callback");
    let (_provider, _lines, issuer) = provider(&redirect);
    site.write_secret("openid-secret", "the secret: of drover");
    let plain = std::fs::read_to_string(site.config()).unwrap();
    admits(&site, &plain, (&issuer, &redirect), "admin");

    let browser = Browser::open(&base, (500, 900));
    browser.go("/login");
    log_in(&browser, "bob");
    let fault = browser.until_text("#fault", "bob may not log in");
    assert!(fault.contains("the provider names `/staff` (claim `groups`)"), "{fault}");
    assert!(fault.contains("`service.openId.groups`"), "{fault}");
    browser.shoot("login-refused");
    browser.go("/");
    assert_eq!(browser.place(), "/login?next=%2F");
    let (_, audit) = call(&site, "GET", "/v1/audit", None);
    assert!(audit.to_string().contains("\"principal\":\"openid:bob\""), "{audit}");

    let config = site.config().display().to_string();
    let doctor = || String::from_utf8(site.cli(&["--config", &config, "doctor"]).stdout).unwrap();
    let well = doctor();
    let head = format!("login at {issuer}\n  ok    answers: as `{issuer}`\n");
    assert!(well.contains(&head), "{well}");
    assert!(well.contains("ok    keys: 1 that drover can use"), "{well}");
    assert!(well.contains("ok    client: the provider knows `drover`"), "{well}");
    assert!(well.contains(&format!("ok    login: leads back to {redirect}")), "{well}");
    site.write_secret("openid-secret", "another secret");
    let ill = doctor();
    assert!(ill.contains("fail  client: the provider refused the login: invalid_client"), "{ill}");
    admits(&site, &plain, (&issuer, &redirect.replace("127.0.0.1", "localhost")), "admin");
    let ill = doctor();
    assert!(ill.contains("warn  login: the provider shows no login"), "{ill}");
}
