//! A declared machine over real HTTPS: from the YAML to a guest that runs, what a hand does to it, and what
//! drover shows and corrects.

use serde_json::{Value, json};

use crate::api::call;
use crate::harness::{Events, Service, Sim, Site, world};

/// The site's YAML with the machine `gitea` and these keys.
fn declare(site: &Site, sim: &Sim, keys: &str) {
    let node = sim.fact("node");
    let machines = format!(
        "machines:\n  gitea: {{cloud: lab, node: {node}, templateVmId: 9000, credentialsId: agents, \
         cores: 2, memoryMb: 1024, {keys}}}\n"
    );
    site.write_yaml(&format!("{}{machines}", site.yaml(sim, "")));
}

fn machine(site: &Site) -> Value {
    site.json(&["machine", "list"])["machines"][0].clone()
}

/// Has drover look at once, until the machine is as wanted.
fn until(site: &Site, events: &mut Events, wanted: impl Fn(&Value) -> bool) -> Value {
    loop {
        let now = machine(site);
        if wanted(&now) {
            return now;
        }
        site.cli(&["resync"]);
        events.until("reconciled", |_| true);
    }
}

fn is_right(machine: &Value) -> bool {
    machine["state"] == "kept" && machine["power"] == "running" && machine["drift"] == json!([])
}

fn kinds(machine: &Value) -> Vec<String> {
    let drift = machine["drift"].as_array().unwrap();
    drift.iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
}

// Invariant: a machine of the YAML comes to be, a hand's changes are shown, and corrected where the YAML
// allows it.

#[test]
fn a_machine_of_the_yaml_runs_drifts_by_a_hand_and_is_corrected_once_that_is_allowed() {
    let (_dir, sim, site) = world();
    declare(&site, &sim, "");
    let mut service = Service::start(&site);
    let mut events = Events::follow(&site);
    let made = until(&site, &mut events, is_right);
    let vmid = made["vmid"].as_u64().unwrap();
    let config = sim.config(sim.fact("node"), vmid);
    assert!(config["name"].as_str().unwrap().starts_with("gitea-"), "{config}");
    assert_eq!(config["cores"], 2, "{config}");

    // Somebody stops it in the web interface.
    let node = sim.fact("node").to_owned();
    sim.call("POST", &format!("/nodes/{node}/qemu/{vmid}/status/stop"));
    let drifted = until(&site, &mut events, |machine| machine["power"] == "stopped");
    assert_eq!((kinds(&drifted), &drifted["state"]), (vec!["POWER".to_owned()], &json!("kept")));
    assert_eq!(drifted["drift"][0]["stays"], "`correct` does not name it", "{drifted}");
    let shown =
        String::from_utf8_lossy(&site.cli(&["machine", "show", "gitea"]).stdout).into_owned();
    assert!(shown.contains("power is stopped, declared running"), "{shown}");
    for list in [&["machine", "list"][..], &["status"]] {
        let shown = String::from_utf8_lossy(&site.cli(list).stdout).into_owned();
        let line = shown.lines().find(|line| line.starts_with("gitea")).unwrap_or(&shown);
        assert!(line.contains("kept, with drift") && line.contains("stopped"), "{shown}");
    }

    // A kill of the service changes nothing of it, and the next YAML allows to correct it.
    service.child.signal("KILL");
    service.child.wait();
    declare(&site, &sim, "correct: [POWER]");
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let right = until(&site, &mut events, is_right);
    assert_eq!((&right["vmid"], &right["corrected"]), (&json!(vmid), &json!("start")));
    assert_eq!(sim.guests(), [vmid], "there is one");

    // It is no agent, and no command takes it while it is declared.
    assert_eq!(site.json(&["agents"])["agents"], json!([]));
    assert!(site.cli(&["reap", "--all"]).status.success());
    let (status, problem) = call(&site, "DELETE", "/v1/machines/gitea", None);
    assert_eq!(status, 409, "{problem}");
    assert_eq!(sim.guests(), [vmid]);

    // It leaves the YAML, stays, and goes by its name.
    site.write_yaml(&site.yaml(&sim, ""));
    until(&site, &mut events, |machine| machine["state"] == "left");
    assert_eq!(sim.guests(), [vmid]);
    assert!(site.cli(&["machine", "delete", "gitea"]).status.success());
    until(&site, &mut events, Value::is_null);
    let (status, _) = call(&site, "GET", "/v1/machines/gitea", None);
    assert_eq!(status, 404);
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: a guest of the same name that drover did not make is left alone, and the machine says so.

#[test]
fn a_guest_of_the_same_name_is_left_alone_and_named_in_the_list() {
    let (_dir, sim, site) = world();
    let node = sim.fact("node").to_owned();
    let made = sim.send(
        "POST",
        &format!("/nodes/{node}/qemu"),
        &[("vmid", "300"), ("name", "gitea"), ("memory", "256")],
    );
    assert!(made["data"].is_string(), "{made}");
    let before = sim.config(&node, 300);
    declare(&site, &sim, "correct: [CREATE, POWER, SIZE], onRemoval: DELETE");
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let blocked = until(&site, &mut events, |machine| machine["state"] == "blocked");
    let detail = blocked["detail"].as_str().unwrap();
    assert!(detail.starts_with("guest 300 on "), "{detail}");
    assert_eq!(sim.guests(), [300]);
    assert_eq!(sim.config(&node, 300), before);
}

// Invariant: a machine that was forgotten has a way back, and the commands of agents say what it is.

#[test]
fn a_forgotten_machine_is_adopted_again_by_a_command() {
    let (_dir, sim, site) = world();
    declare(&site, &sim, "");
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let vmid = until(&site, &mut events, is_right)["vmid"].as_u64().unwrap();
    let stop = site.cli(&["machine", "stop", "gitea"]);
    let said = String::from_utf8_lossy(&stop.stderr).into_owned();
    assert!(said.contains("is a declared machine and no agent"), "{said}");

    site.write_yaml(&site.yaml(&sim, ""));
    until(&site, &mut events, |machine| machine["state"] == "left");
    assert!(site.cli(&["machine", "forget", "gitea"]).status.success());
    until(&site, &mut events, Value::is_null);
    declare(&site, &sim, "");
    let blocked = until(&site, &mut events, |machine| machine["state"] == "blocked");
    let detail = blocked["detail"].as_str().unwrap();
    assert!(detail.contains("`drover machine adopt gitea` takes it over"), "{detail}");

    let path = "/v1/machines/gitea/adopt";
    let (status, out) = call(&site, "POST", path, Some(&json!({"dryRun": true})));
    assert_eq!((status, &out["vmid"], &out["proven"]), (200, &json!(vmid), &json!(true)), "{out}");
    assert_eq!(machine(&site)["state"], "blocked", "a look changes nothing");
    let adopted = site.cli(&["machine", "adopt", "gitea"]);
    let said = String::from_utf8_lossy(&adopted.stdout).into_owned();
    assert!(said.starts_with(&format!("machine gitea adopts guest {vmid} (gitea-")), "{said}");
    until(&site, &mut events, is_right);
    assert_eq!(sim.guests(), [vmid]);
    let (status, problem) = call(&site, "POST", path, Some(&json!({})));
    assert_eq!(status, 409, "{problem}");
}
