//! The table of what the reference systems do (`parity.txt`), and what its tests share.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::api::{ask, ready};
use crate::harness::{Sim, Site, WAIT_LIMIT};

/// A YAML for the simulator: keys of its cloud, and templates with keys of theirs beside the usual.
pub fn yaml(site: &Site, sim: &Sim, cloud: &[&str], templates: &[(&str, &str)]) -> String {
    let plain = site.yaml(sim, "");
    let (head, _) = plain.split_once("agentConfigurations:").unwrap();
    let cloud: String = cloud.iter().map(|key| format!("\n    {key}")).collect();
    let head = head.replace("startVmId: 10000", &format!("startVmId: 10000{cloud}"));
    let templates = templates.iter().map(|(name, keys)| format!("  {name}: {{{keys}}}\n"));
    format!(
        "{head}agentDefaults: {{cloudIds: [lab], node: pve1, templateVmId: 9000, cloneStrategy: \
         LINKED, credentialsId: agents, sshPort: 2222, guestNetworks: [127.77.0.0/16]}}\n\
         agentConfigurations:\n{}",
        templates.collect::<String>()
    )
}

/// A simulator with process guests whose work takes these times.
pub fn slow(dir: &Path, latency: &str, more: &[&str]) -> Sim {
    let file = dir.join("latency.yaml");
    std::fs::write(&file, latency).unwrap();
    let options = ["--guests", "process", "--latency", file.to_str().unwrap()];
    Sim::start_with(dir, &[&options[..], more].concat())
}

/// Asks until it is so: what other people do to a cluster has no event.
pub fn until(what: &str, mut wanted: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !wanted() {
        assert!(Instant::now() < deadline, "not in time: {what}");
    }
}

/// Switches a guest off and takes it away, as an administrator does.
pub fn take_away(sim: &Sim, node: &str, vmid: u64) {
    switch_off(sim, node, vmid);
    let gone = sim.call("DELETE", &format!("/nodes/{node}/qemu/{vmid}"));
    assert!(gone["data"].is_string(), "{gone}");
    until("a guest taken away", || !sim.guests().contains(&vmid));
}

/// Waits until the cluster's list, which lags behind, knows this of a guest.
pub fn listed(sim: &Sim, vmid: u64, key: &str, value: &str) {
    until("the list", || {
        let all = sim.call("GET", "/cluster/resources?type=vm")["data"].clone();
        all.as_array().unwrap().iter().any(|one| one["vmid"] == vmid && one[key] == value)
    });
}

/// Switches a guest off; the list knows it later.
pub fn switch_off(sim: &Sim, node: &str, vmid: u64) {
    let path = format!("/nodes/{node}/qemu/{vmid}/status");
    sim.call("POST", &format!("{path}/stop"));
    let status = || sim.call("GET", &format!("{path}/current"))["data"]["status"].clone();
    until("a guest switched off", || status() == "stopped");
}

/// What `drover check` says of a YAML, and its exit status.
pub fn checked(site: &Site, yaml: &str) -> (Option<i32>, String) {
    site.write_yaml(yaml);
    let out = crate::harness::drover().arg("--config").arg(site.config()).arg("check").output();
    let out = out.unwrap();
    let said = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// Live agents of a template.
pub fn agents(site: &Site, template: &str) -> Vec<Value> {
    let id = format!("lab/{template}");
    let all = site.json(&["agents"])["agents"].as_array().cloned().unwrap();
    all.into_iter().filter(|agent| agent["template"] == *id).collect()
}

/// Leases an agent of each of these templates, all at once: the leases, with the agents as the API reports
/// them.
pub fn leased<const COUNT: usize>(
    site: &Site,
    templates: [&str; COUNT],
) -> [(String, Value); COUNT] {
    let leases = templates.map(|template| (ask(site, template, "wire"), template));
    leases.map(|(lease, template)| {
        let id = ready(site, &lease)["agent"].clone();
        let agent = agents(site, template).into_iter().find(|one| one["id"] == id).unwrap();
        (lease, agent)
    })
}

/// The configuration of an agent's guest.
pub fn guest_of(sim: &Sim, agent: &Value) -> Value {
    sim.config(agent["node"].as_str().unwrap(), agent["vmid"].as_u64().unwrap())
}

/// A setting of a guest as text, blank where there is none.
pub fn setting(guest: &Value, key: &str) -> String {
    let value = &guest[key];
    if value.is_null() {
        return String::new();
    }
    value.to_string().trim_matches('"').to_owned()
}

// Invariant: every behaviour of the table is tested on the wire, by a test that is there.

#[test]
fn every_row_of_the_table_names_a_test_of_this_tier() {
    let own = std::env::current_exe().unwrap();
    let listed = Command::new(own).arg("--list").output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let tests: BTreeSet<&str> =
        listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    assert!(tests.contains("parity::every_row_of_the_table_names_a_test_of_this_tier"));
    let rows = include_str!("parity.txt").lines();
    let rows: Vec<&str> =
        rows.filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect();
    assert!(rows.len() > 80, "{}", rows.len());
    let mut behaviours = BTreeSet::new();
    for row in rows {
        let Some((behaviour, named)) = row.split_once(" | ") else { panic!("no `|`: {row}") };
        assert!(behaviours.insert(behaviour), "twice: {behaviour}");
        for name in named.split(", ") {
            assert!(tests.contains(name), "`{behaviour}` names no test: {name}");
        }
    }
}
