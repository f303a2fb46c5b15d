//! Addresses over real sockets: a pool whose guests have them, and guests that call.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Events, Service, Sim, Site, WAIT_LIMIT, world};
use crate::open::free_port;

/// The first three bytes of loopback addresses that no other run of tests on this machine has.
pub(super) fn network() -> String {
    let run = std::process::id();
    format!("127.{}.{}", 78 + run % 100, run / 100 % 250)
}

/// Where the agents of a service are, by the API.
fn hosts(site: &Site) -> BTreeSet<String> {
    let agents = site.json(&["agents"])["agents"].clone();
    let agents = agents.as_array().unwrap().iter();
    agents.filter_map(|agent| agent["ssh"]["host"].as_str().map(str::to_owned)).collect()
}

fn is_ready(count: u64) -> impl Fn(&Value) -> bool {
    move |fact| fact["template"]["states"]["Ready"] == count
}

// Invariant: over real HTTP and SSH agents have the addresses of their pool, one each, over a kill
// too, and the next ones have them after a rest.

#[test]
fn agents_of_a_pool_are_where_it_says_over_a_kill_and_after_a_rest() {
    let (_dir, sim, site) = world();
    let net = network();
    let pool = format!(
        "addressPools:\n  lab: {{ranges: [{net}.2-{net}.3], prefix: 29, cooldownSeconds: 2}}\n"
    );
    let yaml = site.yaml(&sim, &pool).replace("ipConfig: \"ip=dhcp\"", "addressPool: lab");
    site.write_yaml(&yaml);
    let both: BTreeSet<String> = [format!("{net}.2"), format!("{net}.3")].into();
    let service = Service::start(&site);
    let mut events = Events::follow(&site);
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(hosts(&site), [format!("{net}.2")].into());

    let out = site.cli(&["provision", "linux", "--count", "3"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("address pool `lab` is used up: 2 in use"), "{said}");
    events.until("template", is_ready(2));
    assert_eq!(hosts(&site), both);
    for vmid in sim.guests() {
        let config = sim.config(sim.fact("node"), vmid);
        assert!(config["ipconfig0"].as_str().unwrap().starts_with(&format!("ip={net}.")));
    }

    service.child.signal("KILL");
    drop((service, events));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    assert_eq!(hosts(&site), both, "nobody moved");
    let table = String::from_utf8_lossy(&site.cli(&["address-pools"]).stdout).into_owned();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["lab", "2", "2", "0", "0"], "{table}");

    assert!(site.cli(&["reap", "--all"]).status.success());
    for _ in 0..2 {
        events.until("agentGone", |_| true);
    }
    events.until("addressPools", |fact| fact["addressPools"][0]["used"] == 0);
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(both.is_superset(&hosts(&site)), "{:?}", hosts(&site));
}

// Invariant: a guest without a guest agent says where it is, once, by the secret in its firmware.

/// What its guest agent says of a guest's address, once it is up: the test knows it by that alone.
fn place_of(sim: &Sim, node: &str, vmid: u64) -> String {
    let path = format!("/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces");
    let end = Instant::now() + WAIT_LIMIT;
    while Instant::now() < end {
        let answer = sim.call("GET", &path);
        let interfaces = answer["data"]["result"].as_array().cloned().unwrap_or_default();
        let mut all = interfaces.iter().filter_map(|one| one["ip-addresses"].as_array()).flatten();
        let found = all.find_map(|one| {
            one["ip-address"].as_str().filter(|ip| ip.starts_with("127.77.")).map(str::to_owned)
        });
        if let Some(found) = found {
            return found;
        }
    }
    panic!("guest {vmid} never had an address")
}

/// Calls as the guest at an address does; the status and the body of the answer.
fn call(port: u16, place: &str, body: &Value) -> (String, Value) {
    let url = format!("http://127.0.0.1:{port}/v1/call-in");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--interface", place, "-w", "\n%{http_code}", "-d", &body.to_string(), &url]);
    let out = curl.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (answer, status) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{out:?}"));
    (status.to_owned(), serde_json::from_str(answer).unwrap())
}

#[test]
fn a_guest_calls_by_its_serial_number_and_is_reached_where_it_called_from() {
    let (_dir, sim, site) = world();
    let port = free_port();
    let yaml = site.yaml(&sim, "    addressFrom: call\n    startupWaitSeconds: 120\n");
    let listen = format!("service:\n  listen: \"127.0.0.1:{port}\"\n");
    site.write_yaml(&yaml.replace("service:\n", &listen));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let mut lease = site.command(["lease", "--labels", "linux", "--", "hostname"]);
    let mut lease = lease.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let waits = |fact: &Value| fact["agent"]["detail"] == "waits for the guest's call";
    let agent = events.until("agent", waits)["agent"].clone();
    let (node, vmid) = (agent["node"].as_str().unwrap(), agent["vmid"].as_u64().unwrap());
    let smbios = sim.config(node, vmid)["smbios1"].as_str().unwrap().to_owned();
    assert!(smbios.starts_with("uuid="), "{smbios}");
    let token = smbios.split(',').find_map(|part| part.strip_prefix("serial=")).unwrap();
    let place = place_of(&sim, node, vmid);

    let wrong = format!("{}0000", &token[..token.len() - 4]);
    assert_eq!(call(port, &place, &json!({"token": wrong})).0, "401");
    let (status, answer) = call(port, &place, &json!({"token": token}));
    assert_eq!((status.as_str(), &answer["address"]), ("200", &json!(place)));
    assert!(lease.wait().unwrap().success());
    assert_eq!(hosts(&site), [place.clone()].into());
    let (status, _) = call(port, "127.77.0.1", &json!({"token": token}));
    assert_eq!(status, "409", "it was good for one call");
    let journal = std::fs::read(site.dir.path().join("state/journal.redb")).unwrap();
    let secret = &token.as_bytes()[16..];
    assert!(
        !journal.windows(secret.len()).any(|part| part == secret),
        "the secret is written down"
    );
}
