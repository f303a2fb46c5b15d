//! The operator's page in a real Chromium, on a real service.

use serde_json::json;

use crate::api::{ask, call, ready};
use crate::browser::Browser;
use crate::harness::{Lines, Service, Sim, Site, world};

const TOKEN: &str = "a-token-of-the-page";
/// The token of somebody who only looks.
pub const VIEWER_TOKEN: &str = "a-token-of-a-viewer";

/// A service with a page, and its address.
pub fn paged(sim: &Sim, site: &Site, template: &str) -> ((Service, Lines), String) {
    site.write_secret("page-token", TOKEN);
    site.write_secret("viewer-token", VIEWER_TOKEN);
    let place = |name: &str| site.dir.path().join(name).display().to_string();
    let (ops, viewer) = (place("page-token"), place("viewer-token"));
    let service = format!(
        "service:\n  listen: \"127.0.0.1:0\"\n  tokens:\n    - {{name: ops, role: admin, secretFile: \"{ops}\"}}\n    \
         - {{name: watch, role: viewer, secretFile: \"{viewer}\"}}\n"
    );
    site.write_yaml(&site.yaml(sim, template).replace("service:\n", &service));
    let (service, mut lines) = Service::start_logged(site);
    let line = lines.until(|line| line.contains("API served"));
    let (_, address) = line.split_once("addr=").unwrap();
    let address = address.split_whitespace().next().unwrap().trim_matches('"').to_owned();
    ((service, lines), format!("http://{address}"))
}

pub fn logged_in(base: &str, size: (u32, u32)) -> Browser {
    logged_in_with(base, size, TOKEN)
}

pub fn logged_in_with(base: &str, size: (u32, u32), token: &str) -> Browser {
    let browser = Browser::open(base, size);
    browser.go("/");
    assert_eq!(browser.place(), "/login?next=%2F");
    browser.put("#token", token);
    browser.click("form.login button");
    browser.until_text("#live", "live");
    browser
}

// Invariant: a person can do the day's work from the page alone.

#[test]
fn a_machine_is_started_watched_held_and_released_in_a_browser() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let browser = logged_in(&base, (1280, 900));
    assert_eq!(browser.place(), "/");
    browser.until_text("#clouds", "healthy");
    browser.shoot("herd-empty");

    // It is started, and every phase comes to the page by itself.
    browser.click("#templates a");
    browser.click("main [data-do$='/provision']");
    browser.until_text("#agents", "Ready");
    browser.shoot("template");
    browser.click("#agents a");
    let page = browser.until_text("main", "Connecting");
    assert!(page.contains("Cloning") && page.contains("Booting"), "{page}");
    assert!(browser.text("#events").contains("is Ready"), "{}", browser.text("#events"));
    browser.shoot("agent");

    // It is held, and the key of the login is shown once.
    browser.click("#actions [data-do$='/hold']");
    let key = browser.until_text("#key-text", "PRIVATE KEY");
    assert!(key.contains("OPENSSH"), "{key}");
    browser.click("#key-copy");
    browser.until_text("#notes", "Copied");
    assert_eq!(browser.copied().trim_end(), key.trim_end());
    browser.click("#key-file");
    assert_eq!(browser.saved("drover-key").trim_end(), key.trim_end());
    browser.click("#key-close");
    browser.until_no_text("#key-text", "KEY");
    browser.until_text("h1", "Held");
    browser.until_text("#facts", "login open");
    browser.click("#actions [data-do^='DELETE']");
    browser.until_text("#ask-text", "Release the hold?");
    browser.shoot("ask");
    browser.click("#ask button[value=yes]");
    browser.until_text("h1", "Gone");
    assert_eq!(sim.guests(), Vec::<u64>::new());
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_broken_configuration_is_shown_with_its_place_and_goes_when_it_is_repaired() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let browser = logged_in(&base, (1280, 900));
    browser.until_text("#clouds", "healthy");
    let right = std::fs::read_to_string(site.config()).unwrap();
    site.write_yaml(&right.replace("instanceCap: 4", "instanceCap: four"));
    let shown = browser.until_text("#refused", "instanceCap: four");
    assert!(shown.contains("expected a whole number"), "{shown}");
    browser.shoot("refused");
    browser.press("gc");
    browser.until_text("h1", "Configuration");
    browser.until_text("#refused", "expected a whole number");
    site.write_yaml(&right);
    browser.until_text("main", "The newest configuration is in force.");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_waits_says_why_and_lists_are_filtered_and_walked_by_keys() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let browser = logged_in(&base, (1280, 900));
    let leases: Vec<String> = (0..4).map(|_| ask(&site, "linux", "page")).collect();
    for lease in &leases {
        ready(&site, lease);
    }
    let waiting = ask(&site, "linux", "late");
    browser.press("gl");
    browser.until_text("#leases", &waiting);
    browser.press("/");
    // It holds while one types: no Enter, and no other page.
    browser.run("window.stays = true");
    browser.put("#q", "state:waiting");
    browser.until_no_text("#leases", &leases[0]);
    assert_eq!(browser.place(), "/leases?q=state%3Awaiting");
    browser.press("\u{e003}".repeat("waiting".len()).as_str());
    browser.put("#q", "ready");
    browser.until_text("#leases", &leases[0]);
    browser.until_no_text("#leases", &waiting);
    assert_eq!(browser.place(), "/leases?q=state%3Aready");
    let typed = browser.run("return document.activeElement.value + window.stays");
    assert_eq!(typed, "state:readytrue");
    browser.go("/leases?q=state%3Awaiting");
    browser.until_text("#leases", &waiting);
    browser.press("j\u{e007}");
    let why = browser.until_text("#why", "lab/linux is full: 4 of 4");
    assert!(why.contains("Nothing is served before it."), "{why}");
    browser.shoot("lease");
    let (status, _) = call(&site, "DELETE", &format!("/v1/leases/{}", leases[0]), None);
    assert_eq!(status, 204);
    browser.until_text("h1", "ready");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

// Invariant: everybody can use the page: by keyboard and screen reader, in the dark, on a phone.

#[test]
fn no_page_has_a_barrier_that_axe_finds_in_either_colour_or_size() {
    let (_dir, sim, site) = world();
    let (_service, base) = paged(&sim, &site, "");
    let lease = ask(&site, "linux", "page");
    let agent = ready(&site, &lease)["agent"].as_str().unwrap().to_owned();
    let (status, _) = call(&site, "POST", "/v1/nodes/pve1/cordon", Some(&json!({})));
    assert_eq!(status, 200);
    let pages = [
        ("herd", "/".to_owned()),
        ("agents", "/agents".to_owned()),
        ("agent-leased", format!("/agents/{agent}")),
        ("terminal", format!("/agents/{agent}/terminal")),
        ("leases", "/leases".to_owned()),
        ("jobs", "/jobs".to_owned()),
        ("nodes", "/nodes".to_owned()),
        ("configuration", "/configuration".to_owned()),
        ("plan", "/plan".to_owned()),
        ("events", "/events".to_owned()),
        ("usage", "/usage".to_owned()),
        ("audit", "/audit".to_owned()),
        ("book", "/docs/concepts".to_owned()),
        ("why", "/why?of=lab%2Flinux".to_owned()),
        ("not-found", "/agents/zz".to_owned()),
    ];
    let mut found = Vec::new();
    for (size, name) in [((1280, 900), "wide"), ((500, 900), "phone")] {
        let browser = logged_in(&base, size);
        for scheme in ["light", "dark"] {
            if scheme == "dark" {
                browser.darken();
            }
            for (page, path) in &pages {
                browser.go(path);
                browser.shoot(&format!("{page}-{name}-{scheme}"));
                let barriers = browser.barriers();
                found.extend(
                    barriers.into_iter().map(|one| format!("{page} {name} {scheme}: {one}")),
                );
                let wider = browser.run(
                    "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
                );
                if wider.as_i64() > Some(0) {
                    found
                        .push(format!("{page} {name}: it is {wider} pixels wider than the window"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
