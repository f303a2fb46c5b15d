//! A new version of an image that fails, over real HTTPS and SSH.

use serde_json::json;

use crate::harness::Service;
use crate::images::{says, until_templates, world};

/// What is printed by a machine that was leased.
const WORD: [&str; 7] = ["lease", "--template", "linux", "--owner", "ann", "--", "cat ~/built"];

// Invariant: a version whose agents fail is given up, people hear why and what to do, and leases are
// served by the last good one.

#[test]
fn a_version_that_fails_is_not_used_until_an_operator_has_it_tried_again() {
    let (_dir, sim, site) = world();
    let keys = "image: debian\n    canary: true\n    singleUse: true\n    prepare:\n      \
                - {name: word, run: \"grep one ~/built\"}";
    let yaml = std::fs::read_to_string(site.config()).unwrap().replace("image: debian", keys);
    site.write_yaml(&yaml);
    let service = Service::start(&site);
    says(&site, &["image", "build", "debian"]);
    assert_eq!(says(&site, &WORD), "one\n");
    says(&site, &["image", "build", "debian", "--var", "word=two"]);
    until_templates(&site, &sim, &[9000, 9001]);
    // What it proved is in the journal.
    drop(service);
    let _service = Service::start(&site);
    assert_eq!(says(&site, &WORD), "one\n", "after three agents with the other word");
    let template = site.json(&["templates"])["templates"][0].clone();
    let given_up = &template["canary"]["givenUp"];
    assert_eq!((&given_up[0]["failures"], &template["breaker"]), (&json!(3), &json!("flowing")));
    let status = says(&site, &["status"]);
    assert!(status.contains(" is not used, 3 of its agents failed: "), "{status}");
    assert!(status.contains("drover breakers reset lab/linux"), "{status}");
    let why = says(&site, &["why", "linux"]);
    assert!(why.contains("(VMID 9001) is not used"), "{why}");
    let pruned = says(&site, &["image", "prune", "--dry-run"]);
    assert!(pruned.contains("no newer version is proven for template `lab/linux`"), "{pruned}");

    site.write_yaml(&yaml.replace("grep one", "grep ."));
    says(&site, &["reload"]);
    says(&site, &["breakers", "reset", "linux"]);
    assert_eq!(says(&site, &WORD), "two\n");
    let template = site.json(&["templates"])["templates"][0].clone();
    assert_eq!(template["canary"]["givenUp"], json!([]));
}
