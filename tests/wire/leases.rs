//! Leases that wait: for as long as they may, as many as may be, and seen and ended by those whose
//! they are.

use serde_json::json;

use crate::api::{ask, call, ready, release};
use crate::harness::{Service, world};
use crate::parity::yaml;

// Invariant: whoever waits for a lease hears of its end, and a command ends with a code of its own.

#[test]
fn a_lease_that_waits_too_long_ends_and_is_told_to_all_who_wait() {
    let (_dir, sim, site) = world();
    let limits = "service:\n  leases: {maxWaiting: 3}\n";
    let text = yaml(&site, &sim, &[], &[("linux", "instanceCap: 1")]);
    site.write_yaml(&text.replace("service:\n", limits));
    let mut service = Service::start(&site);
    let held = ask(&site, "linux", "wire");
    ready(&site, &held);
    let waits = |seconds: u32| {
        let body = json!({"template": "linux", "owner": "wire", "maxWaitSeconds": seconds});
        call(&site, "POST", "/v1/leases", Some(&body))
    };
    let (status, short) = waits(2);
    assert_eq!(status, 201, "{short}");
    let path = format!("/v1/leases/{}?waitSeconds=60", short["id"].as_str().unwrap());
    let (_, told) = call(&site, "GET", &path, None);
    assert_eq!((&told["state"], &told["detail"]), (&json!("ended"), &json!("waited-too-long")));
    let out = site.cli(&["lease", "--template", "linux", "--wait", "2s", "--", "true"]);
    assert_eq!(out.status.code(), Some(75), "{out:?}");
    // Its time goes on while the service is away.
    let (_, long) = waits(4);
    service.child.signal("KILL");
    service.child.wait();
    let _service = Service::start(&site);
    let path = format!("/v1/leases/{}?waitSeconds=60", long["id"].as_str().unwrap());
    let (_, told) = call(&site, "GET", &path, None);
    assert_eq!((&told["state"], &told["detail"]), (&json!("ended"), &json!("waited-too-long")));
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let (status, lease) = waits(600);
        assert_eq!(status, 201, "{lease}");
        waiting.push(lease["id"].clone());
    }
    let (status, problem) = waits(600);
    assert_eq!(status, 429, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("3 leases wait, and `service.leases.maxWaiting` is 3"), "{detail}");
    let listed = site.json(&["leases", "--state", "waiting"])["leases"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let out = site.cli(&["leases", "--state", "waiting", "--end"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(site.json(&["leases", "--state", "waiting"])["leases"], json!([]));
    release(&site, &held);
}
