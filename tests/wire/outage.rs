//! Clusters that hang, endpoints that are lost, logins that are refused for a while, and a service
//! that is stopped in the middle of it: all of it passes, and nothing is lost or done twice.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Service, Sim, Site, note, world};
use crate::proxy::{Proxy, Way};

/// Longer than a call and a connection may take in these tests.
const OUTAGE: Duration = Duration::from_secs(7);

/// Makes calls give up soon.
fn hasty(yaml: &str) -> String {
    yaml.replace(
        "startVmId: 10000",
        "startVmId: 10000\n    callTimeoutSec: 5\n    connectTimeoutSec: 2\n    operationTimeoutSec: 60",
    )
    .replace("instanceCap: 4", "instanceCap: 8\n    breakerCooldownSec: 1")
}

/// Ends everything and looks for what is left.
fn nothing_is_left(site: &Site, sim: &Sim, board: &mut Board) {
    board.look(site);
    for id in board.leases.keys().cloned().collect::<Vec<_>>() {
        release(site, &id);
    }
    let mut reap = true;
    while !board.agents.values().all(|agent| agent["state"] == "InDoubt") {
        if reap {
            assert_eq!(call(site, "POST", "/v1/reap", Some(&json!({"all": true}))).0, 200);
        }
        reap = board.next(site)["agent"]["state"] == "Ready";
    }
    assert_eq!(sim.guests(), Vec::<u64>::new());
    assert!(board.restarts.is_empty(), "{:?}", board.restarts);
}

/// The agent of each lease, of which no two share one.
fn agents(site: &Site, leases: &[String]) -> Vec<Value> {
    let agents: Vec<Value> = leases.iter().map(|id| ready(site, id)["agent"].clone()).collect();
    let apart: BTreeSet<String> = agents.iter().map(Value::to_string).collect();
    assert_eq!(apart.len(), leases.len(), "two leases of one use each share an agent");
    agents
}

// Invariant: a pause of the service or of the cluster loses no lease and doubles no guest.

#[test]
fn a_service_that_is_stopped_for_a_while_goes_on_where_it_was() {
    let (_dir, sim, site) = world();
    site.write_yaml(&hasty(&site.yaml(&sim, "")));
    let service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    let more: Vec<String> = (0..4).map(|_| ask(&site, "linux", "more")).collect();
    board.until(&site, "clones under way", |board| {
        board.in_state("Cloning") + board.in_state("Configuring") + board.in_state("Booting") > 1
    });
    let short = Some(json!({"ttlSeconds": 5}));
    assert_eq!(call(&site, "POST", &format!("/v1/leases/{held}/renew"), short.as_ref()).0, 200);
    service.child.signal("STOP");
    // As long as a paused machine is: nothing else knows how long that was. The lease runs out
    // meanwhile, and its holder gets back the time in which nobody could have renewed it.
    std::thread::sleep(OUTAGE * 2);
    service.child.signal("CONT");
    let long = Some(json!({"ttlSeconds": 3600}));
    assert_eq!(call(&site, "POST", &format!("/v1/leases/{held}/renew"), long.as_ref()).0, 200);
    let after = ready(&site, &held);
    assert_eq!((&after["agent"], &after["ssh"]), (&before["agent"], &before["ssh"]));
    agents(&site, &more);
    nothing_is_left(&site, &sim, &mut board);
}

#[test]
fn a_cluster_that_hangs_is_waited_for() {
    let (_dir, sim, site) = world();
    let proxy = Proxy::before(sim.fact("url"));
    let way = format!("https://{}", proxy.addr);
    site.write_yaml(&hasty(&site.yaml(&sim, "").replace(sim.fact("url"), &way)));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    let more: Vec<String> = (0..4).map(|_| ask(&site, "linux", "more")).collect();
    board.until(&site, "clones under way", |board| board.in_state("Cloning") > 0);
    let connections = proxy.taken();
    sim.child.signal("STOP");
    std::thread::sleep(OUTAGE);
    sim.child.signal("CONT");
    let tries = proxy.taken() - connections;
    assert!(tries < 100, "{tries} connections to a cluster that hangs");
    note(&format!("a cluster hanging for {} s was connected to {tries} times", OUTAGE.as_secs()));
    assert_eq!(ready(&site, &held)["agent"], before["agent"]);
    agents(&site, &more);
    nothing_is_left(&site, &sim, &mut board);
}

#[test]
fn a_node_that_is_down_is_waited_for_and_its_machines_are_replaced() {
    let (_dir, sim, site) = world();
    // The way in is another node than the machines': calls about them answer 595.
    let yaml = hasty(&site.yaml(&sim, ""))
        .replace("node: pve1", "node: pve2")
        .replace("templateVmId: 9000", "templateVmId: 9001")
        .replace("startVmId: 10000", "startVmId: 10000\n    nodeGracePeriodSeconds: 0");
    site.write_yaml(&yaml);
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    let lost = ready(&site, &held)["agent"].clone();
    sim.order("node-down pve2");
    assert_eq!(call(&site, "POST", "/v1/resync", Some(&json!({}))).0, 200);
    board.until(&site, "the node is missed", |board| {
        board
            .agents
            .values()
            .any(|agent| agent["detail"] == "node pve2 is offline; drover waits for it")
    });
    let more = ask(&site, "linux", "more");
    board.until(&site, "the lease waits for the node", |board| {
        let text = |lease: &Value| lease["detail"].to_string();
        board.leases.get(&more).is_some_and(|lease| text(lease).contains("`pve2`: it is offline"))
    });
    sim.order("node-up pve2");
    assert_ne!(agents(&site, &[more]), [lost]);
    assert_eq!(call(&site, "POST", "/v1/resync", Some(&json!({}))).0, 200);
    board.until(&site, "the lease on the dead machine is lost", |board| {
        let held = &board.leases[&held];
        let detail = held["detail"].as_str().unwrap_or_default();
        held["state"] == "ended" && detail.starts_with("lost: ")
    });
    nothing_is_left(&site, &sim, &mut board);
}

#[test]
fn an_address_that_leads_to_another_cluster_costs_no_guest_of_either() {
    let (_dir, sim, site) = world();
    let other_dir = tempfile::tempdir().unwrap();
    let other = Sim::start_with(other_dir.path(), &["--guests", "none"]);
    // By a slip the cloud is given the address and the secrets of the other cluster.
    let lead_to = |sim: &Sim| {
        std::fs::copy(sim.fact("caFile"), site.dir.path().join("ca.pem")).unwrap();
        site.write_secret("token", sim.fact("tokenSecret"));
        site.write_yaml(&hasty(&site.yaml(sim, "    maxTotalUses: 1\n    instanceMin: 1\n")));
    };
    lead_to(&sim);
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    let leaving = ask(&site, "linux", "leaving");
    ready(&site, &leaving);
    board.until(&site, "one idle", |board| board.in_state("Ready") > 0);
    let all = sim.guests();
    lead_to(&other);
    release(&site, &leaving);
    board.until(&site, "the other cluster reported", |board| {
        let (health, detail) = board.cloud("lab");
        let ways = ["leads to cluster", "start drover with an empty state directory"];
        health == "degraded" && ways.iter().all(|way| detail.contains(way))
    });
    assert_eq!(call(&site, "POST", "/v1/reap", Some(&json!({"all": true}))).0, 200);
    assert_eq!(call(&site, "POST", "/v1/resync", Some(&json!({}))).0, 200);
    board.until(&site, "agents that wait", |board| {
        let waits = |agent: &&Value| agent["detail"].to_string().contains("has said to which");
        board.agents.values().filter(waits).count() >= 1
    });
    assert_eq!((sim.guests().len() <= all.len(), other.guests()), (true, Vec::<u64>::new()));
    lead_to(&sim);
    board.until(&site, "the cloud well", |board| board.cloud("lab").0 == "well");
    assert_eq!(ready(&site, &held)["agent"], before["agent"]);
    // Without the warm minimum, what is left is a leak.
    site.write_yaml(&hasty(&site.yaml(&sim, "    maxTotalUses: 1\n")));
    nothing_is_left(&site, &sim, &mut board);
}

// Invariant: of several endpoints any that works will do, and changing between them doubles nothing.

#[test]
fn lost_silent_and_isolated_endpoints_are_left_for_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::start_with(dir.path(), &["--guests", "process", "--all-nodes"]);
    let site = Site::new(&sim);
    let url = |node: &str| sim.facts["urls"][node].as_str().unwrap().to_owned();
    let proxies = ["pve1", "pve2", "pve3"].map(|node| Proxy::before(&url(node)));
    let urls = proxies.each_ref().map(|proxy| format!("\"https://{}\"", proxy.addr)).join(", ");
    let one = format!("apiUrl: \"{}\"", sim.fact("url"));
    let yaml = hasty(&site.yaml(&sim, "")).replace(&one, &format!("apiUrls: [{urls}]"));
    // The machines are on a node that stays.
    let yaml = yaml
        .replace("node: pve1", "node: pve3")
        .replace("templateVmId: 9000", "templateVmId: 9002");
    site.write_yaml(&yaml);
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let [first, second, third] = &proxies;
    let mut leases = vec![ask(&site, "linux", "before")];
    agents(&site, &leases);

    // The node in use is gone, and so is the next.
    first.set(Way::Cut);
    leases.push(ask(&site, "linux", "first cut"));
    agents(&site, &leases);
    second.set(Way::Cut);
    leases.push(ask(&site, "linux", "second cut"));
    agents(&site, &leases);
    first.set(Way::Open);
    second.set(Way::Open);

    // The node in use takes writes and answers nothing any more.
    leases.extend((0..2).map(|_| ask(&site, "linux", "silent")));
    board.until(&site, "clones under way", |board| board.in_state("Cloning") > 0);
    for proxy in &proxies {
        proxy.set(Way::Silent);
    }
    std::thread::sleep(OUTAGE);
    second.set(Way::Open);
    third.set(Way::Open);
    agents(&site, &leases);
    first.set(Way::Open);

    // The first node has lost the others.
    sim.order("isolate pve1");
    assert!(site.cli(&["resync"]).status.success());
    leases.push(ask(&site, "linux", "isolated"));
    agents(&site, &leases);
    board.look(&site);
    assert_eq!(board.cloud("lab").0, "well", "{}", board.cloud("lab").1);
    sim.order("rejoin pve1");
    leases.push(ask(&site, "linux", "together"));
    agents(&site, &leases);
    // A try whose outcome was not known may be on its way out; what is there is somebody's.
    let guests = sim.guests();
    board.look(&site);
    let known: BTreeSet<u64> =
        board.agents.values().filter_map(|agent| agent["vmid"].as_u64()).collect();
    assert!(guests.iter().all(|vmid| known.contains(vmid)), "{guests:?}, known: {known:?}");
    nothing_is_left(&site, &sim, &mut board);
}

// Invariant: a login that is refused degrades its cloud with the reason, touches no lease, and is
// tried again until it is taken.

#[test]
fn a_token_that_is_revoked_and_restored_costs_nothing_but_time() {
    let (_dir, sim, site) = world();
    site.write_yaml(&hasty(&site.yaml(&sim, "")));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    let token = "/access/users/root@pam/token/drover";
    sim.admin("PUT", token, &[("expire", "1")]);
    let next = ask(&site, "linux", "next");
    board.until(&site, "the cloud degraded", |board| board.cloud("lab").0 == "degraded");
    let (_, said) = board.cloud("lab");
    assert!(said.contains("refused the login `root@pam!drover`"), "{said}");
    assert_eq!(ready(&site, &held)["ssh"], before["ssh"]);
    sim.admin("PUT", token, &[("expire", "0")]);
    board.until(&site, "the cloud well", |board| board.cloud("lab").0 == "well");
    assert_eq!(ready(&site, &held)["agent"], before["agent"]);
    ready(&site, &next);
    nothing_is_left(&site, &sim, &mut board);
}

#[test]
fn an_expired_ticket_is_fetched_again_and_nobody_notices() {
    let (_dir, sim, site) = world();
    site.write_secret("password", sim.fact("adminPassword"));
    let yaml = hasty(&site.yaml(&sim, ""));
    let token = yaml.lines().find(|line| line.contains("kind: proxmoxToken")).unwrap();
    let login = format!(
        "  proxmox: {{kind: proxmoxPassword, username: \"{}\", secretFile: \"{}/password\"}}",
        sim.fact("adminUser"),
        site.dir.path().display()
    );
    site.write_yaml(&yaml.replace(token, &login));
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let mut leases = Vec::new();
    for _ in 0..3 {
        leases.push(ask(&site, "linux", "one"));
        board.until(&site, "a clone", |board| {
            board.in_state("Cloning") + board.in_state("Configuring") + board.in_state("Booting")
                > 0
        });
        sim.order("expire-tickets");
        agents(&site, &leases);
        board.look(&site);
        assert_eq!(board.cloud("lab").0, "well", "{}", board.cloud("lab").1);
    }
    nothing_is_left(&site, &sim, &mut board);
}

#[test]
fn a_privilege_that_is_missing_for_a_while_is_named_and_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = dir.path().join("cluster.yaml");
    std::fs::write(&cluster, include_str!("narrow_cluster.yaml")).unwrap();
    let sim = Sim::start_with(
        dir.path(),
        &["--guests", "process", "--cluster", cluster.to_str().unwrap()],
    );
    let site = Site::new(&sim);
    site.write_secret("token", "11111111-2222-3333-4444-555555555555");
    let token = format!("\"{}\"", sim.fact("tokenId"));
    site.write_yaml(&hasty(&site.yaml(&sim, "")).replace(&token, "\"ci@pve!narrow\""));
    let grant = [("path", "/"), ("users", "ci@pve"), ("roles", "Administrator")];
    let revoke = [&grant[..], &[("delete", "1")]].concat();
    sim.send("PUT", "/access/acl", &grant);
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    sim.send("PUT", "/access/acl", &revoke);
    let next = ask(&site, "linux", "next");
    let cause = loop {
        let event = board.next(&site);
        if let Some(cause) = event["template"]["cause"].as_str() {
            break cause.to_owned();
        }
    };
    assert!(cause.contains("VM.Clone"), "{cause}");
    assert_eq!(ready(&site, &held)["ssh"], before["ssh"]);
    sim.send("PUT", "/access/acl", &grant);
    ready(&site, &next);
    assert_eq!(ready(&site, &held)["agent"], before["agent"]);
    nothing_is_left(&site, &sim, &mut board);
}
