//! What operators say of single agents and templates, over real sockets.

use serde_json::json;

use crate::api::call;
use crate::harness::{Events, Service, world};

// Invariant: what an operator begins is there without demand, under the caps.

#[test]
fn agents_are_begun_at_once_and_an_unknown_template_is_answered_with_the_nearest() {
    let (_dir, sim, site) = world();
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = site.cli(&["provision", "linux", "--count", "2"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && said.starts_with("2 agents of lab/linux begun\n"), "{said}");
    events.until("template", |fact| fact["template"]["states"]["Ready"] == 2);
    assert_eq!(sim.guests().len(), 2);

    let path = "/v1/templates/lab%2Flinux/provision";
    let (status, more) = call(&site, "POST", path, Some(&json!({"count": 5})));
    assert_eq!(status, 202, "{more}");
    assert_eq!(more["agents"].as_array().unwrap().len(), 2);
    assert_eq!(more["short"], "lab/linux is full: 4 of 4");

    let (status, problem) = call(&site, "POST", "/v1/templates/linus/provision", None);
    assert_eq!(status, 404, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("`linux`"), "{detail}");
}
