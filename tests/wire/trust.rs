//! Certificates that change under a running service.

use serde_json::Value;

use crate::api::{Board, ask, ready, release};
use crate::harness::{Service, Sim, Site, world};

/// A lease from its asking to its end, on an agent of its own.
fn works(site: &Site) {
    let lease = ask(site, "linux", "trust");
    ready(site, &lease);
    release(site, &lease);
}

/// A service with a lease that is held through all of it, and with nothing ready to be leased.
fn started(sim: &Sim, site: &Site) -> (Service, Board, String) {
    site.write_yaml(&site.yaml(sim, "    maxTotalUses: 1\n"));
    let service = Service::start(site);
    let board = Board::open(site);
    let held = ask(site, "linux", "held");
    ready(site, &held);
    (service, board, held)
}

/// As an administrator does it: the file that the YAML names is replaced, nothing else.
fn put_in_place(site: &Site, reported: &Value) {
    let fresh = site.dir.path().join("ca.pem.new");
    std::fs::copy(reported["caFile"].as_str().unwrap(), &fresh).unwrap();
    std::fs::rename(fresh, site.dir.path().join("ca.pem")).unwrap();
}

// Invariant: whom the YAML trusts is served on, without a restart; whom it does not is refused with
// what was seen, and nothing is lost meanwhile.

#[test]
fn a_renewed_certificate_of_the_same_authority_is_taken_as_it_comes() {
    let (_dir, sim, site) = world();
    let (_service, mut board, held) = started(&sim, &site);
    for _ in 0..2 {
        sim.order("renew-certificate");
        works(&site);
    }
    board.look(&site);
    assert_eq!(board.cloud("lab").0, "well", "{}", board.cloud("lab").1);
    ready(&site, &held);
}

#[test]
fn another_authority_is_refused_until_its_file_is_put_in_place() {
    let (_dir, sim, site) = world();
    let (_service, mut board, held) = started(&sim, &site);
    // Their tasks are awaited all the while.
    let caught = [ask(&site, "linux", "caught"), ask(&site, "linux", "caught too")];
    board.until(&site, "clones under way", |board| board.in_state("Cloning") > 0);
    let reported = sim.order("replace-certificate");
    let waiting = ask(&site, "linux", "waiting");
    board.until(&site, "the cloud degraded", |board| board.cloud("lab").0 == "degraded");
    let (_, said) = board.cloud("lab");
    let seen = reported["fingerprint"].as_str().unwrap();
    assert!(said.contains("not trusted") && said.contains(seen), "{said}");
    ready(&site, &held);

    put_in_place(&site, &reported);
    board.until(&site, "the cloud well", |board| board.cloud("lab").0 == "well");
    for lease in caught {
        ready(&site, &lease);
        release(&site, &lease);
    }
    ready(&site, &waiting);
    ready(&site, &held);
    release(&site, &waiting);
    works(&site);
}

#[test]
fn a_pin_is_kept_until_the_yaml_names_another() {
    let (_dir, sim, site) = world();
    let ca = format!("    caFile: \"{}/ca.pem\"\n", site.dir.path().display());
    let pinned = |pin: &str| {
        let pin = format!("    pinSha256: [\"{pin}\"]\n");
        site.yaml(&sim, "    maxTotalUses: 1\n").replace(&ca, &pin)
    };
    site.write_yaml(&pinned(sim.fact("fingerprint")));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    ready(&site, &held);
    let reported = sim.order("renew-certificate");
    let seen = reported["fingerprint"].as_str().unwrap();
    let waiting = ask(&site, "linux", "waiting");
    board.until(&site, "the cloud degraded", |board| board.cloud("lab").0 == "degraded");
    let (_, said) = board.cloud("lab");
    assert!(said.contains("not a pinned one") && said.contains(seen), "{said}");
    site.write_yaml(&pinned(seen));
    board.until(&site, "the cloud well", |board| board.cloud("lab").0 == "well");
    ready(&site, &waiting);
    ready(&site, &held);
}

// Invariant: a cluster with a new root is another one until an operator has said that it is not, and its
// guests prove it.

#[test]
fn a_cluster_with_a_new_root_serves_on_once_an_operator_has_confirmed_it() {
    let (_dir, sim, site) = world();
    let (_service, mut board, held) = started(&sim, &site);
    let reported = sim.order("renew-authority");
    board.until(&site, "the cloud degraded", |board| board.cloud("lab").0 == "degraded");
    put_in_place(&site, &reported);
    let advice = "drover cluster confirm lab";
    board.until(&site, "what to do", |board| board.cloud("lab").1.contains(advice));
    let waiting = ask(&site, "linux", "waiting");
    let alone = site.cli(&["cluster", "confirm", "lab", "--no-guests"]);
    assert_eq!(alone.status.code(), Some(1), "a guest is there: {alone:?}");
    let done = site.cli(&["cluster", "confirm", "lab"]);
    assert!(done.status.success(), "{done:?}");
    board.until(&site, "the cloud well", |board| board.cloud("lab").0 == "well");
    ready(&site, &held);
    ready(&site, &waiting);
    release(&site, &waiting);
    release(&site, &held);
    works(&site);
    assert_eq!(site.cli(&["cluster", "confirm", "lab"]).status.code(), Some(1), "once is enough");
}
