//! Machines switched, resized and put back by the command line, over HTTPS to the cluster and SSH into
//! the guests; a kill in the middle of an order; requests that nobody should send.

use serde_json::{Value, json};

use crate::api::{ask, call, ready, release};
use crate::harness::{Service, Site, world};

/// What a command of `drover machine` answers, with its code.
pub(super) fn machine(site: &Site, words: &[&str]) -> (Option<i32>, Value) {
    let words: Vec<&str> = ["--json", "machine"].iter().chain(words).copied().collect();
    let out = site.cli(&words);
    let said = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| {
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        json!({ "error": error })
    });
    (out.status.code(), said)
}

pub(super) fn done(site: &Site, words: &[&str]) -> Value {
    let (code, said) = machine(site, words);
    assert_eq!((code, &said["state"]), (Some(0), &json!("done")), "{words:?}: {said}");
    said
}

fn state(site: &Site, target: &str) -> String {
    let (code, said) = machine(site, &["show", target]);
    assert_eq!(code, Some(0), "{said}");
    said["state"].as_str().unwrap().to_owned()
}

/// What a command says on a lease of one's own.
fn leased(site: &Site) -> (String, String) {
    let lease = ask(site, "linux", "ann");
    let agent = ready(site, &lease)["agent"].as_str().unwrap().to_owned();
    (lease, agent)
}

// Invariant: each verb does on the cluster what it says, the lease goes on, and the machine is reached
// again once it runs.

#[test]
fn a_leased_machine_is_switched_resized_and_put_back_from_the_command_line() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let (lease, agent) = leased(&site);
    let (_, shown) = machine(&site, &["show", &lease]);
    assert_eq!((&shown["agent"], &shown["state"]), (&json!(agent), &json!("running")), "{shown}");
    let (_, reported) = call(&site, "GET", &format!("/v1/leases/{lease}"), None);
    assert_eq!(shown["addresses"], json!([reported["ssh"]["host"]]), "{shown}");
    let console = shown["consoleUrl"].as_str().unwrap();
    assert!(console.starts_with("https://") && console.contains("console=kvm"), "{console}");
    let steps = [
        ("suspend", "suspended"),
        ("resume", "running"),
        ("reset", "running"),
        ("reboot", "running"),
        ("shutdown", "stopped"),
        ("start", "running"),
        ("stop", "stopped"),
    ];
    for (verb, after) in steps {
        done(&site, &[verb, &lease]);
        assert_eq!(state(&site, &agent), after, "{verb}");
    }
    // Stopped as ordered: a restart of the service takes nothing for a loss.
    service.child.signal("KILL");
    service.child.wait();
    let _service = Service::start(&site);
    let (status, reported) =
        call(&site, "GET", &format!("/v1/leases/{lease}?waitSeconds=60&until=ready"), None);
    assert_eq!((status, &reported["state"]), (200, &json!("ready")), "{reported}");
    done(&site, &["start", &lease]);
    done(&site, &["snapshot", "create", &lease, "before", "--description", "two words"]);
    done(&site, &["snapshot", "create", &lease, "with-ram", "--ram"]);
    let (_, listed) = machine(&site, &["snapshot", "list", &lease]);
    let rows = listed["snapshots"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["before", "with-ram"]);
    assert_eq!(
        (&rows[0]["description"], &rows[1]["parent"]),
        (&json!("two words"), &json!("before"))
    );
    done(&site, &["snapshot", "revert", &lease, "before"]);
    done(&site, &["snapshot", "revert", &lease, "with-ram"]);
    done(&site, &["snapshot", "delete", &lease, "with-ram"]);
    let (code, failed) = machine(&site, &["snapshot", "revert", &lease, "with-ram"]);
    assert_eq!((code, &failed["state"]), (Some(1), &json!("failed")), "{failed}");
    assert!(failed["detail"].as_str().unwrap().contains("has no snapshot `with-ram`"), "{failed}");
    let resized = done(&site, &["resize", &lease, "--cores", "3"]);
    assert!(resized["detail"].as_str().unwrap().contains("pending until"), "{resized}");
    let human = site.cli(&["machine", "show", &agent]);
    let human = String::from_utf8_lossy(&human.stdout).into_owned();
    assert!(human.contains("1 of these wait for a restart"), "{human}");
    done(&site, &["reboot", &lease]);
    let vmid = sim.guests()[0];
    assert_eq!(sim.config(sim.fact("node"), vmid)["cores"], json!(3));
    release(&site, &lease);
    site.until_empty();
    assert_eq!(sim.guests(), Vec::<u64>::new(), "it goes with its snapshots");
}

#[test]
fn cores_memory_and_disk_of_a_running_machine_grow_at_once_where_they_can_be_plugged() {
    let (_dir, sim, site) = world();
    site.write_yaml(&site.yaml(
        &sim,
        "    cores: 2\n    memoryMb: 2048\n    hardware:\n      hotplug: [network, disk, usb, cpu, memory]\n      \
         numa: true\n      maxCores: 4\n",
    ));
    let _service = Service::start(&site);
    let (lease, _) = leased(&site);
    let vmid = sim.guests()[0];
    let sizes = ["resize", &lease, "--cores", "4", "--memory", "4g", "--disk", "60g"];
    let resized = done(&site, &sizes);
    let said = "4 cores: applied; 4096 MiB: applied; 60 GiB of disk: applied";
    assert_eq!(resized["detail"], said, "{resized}");
    let config = sim.config(sim.fact("node"), vmid);
    assert_eq!((&config["vcpus"], config["memory"].as_str()), (&json!(4), Some("4096")));
    assert!(config["scsi0"].as_str().unwrap().contains("size=60G"), "{config}");
    let waits = done(&site, &["resize", &lease, "--cores", "6"]);
    let said = "6 cores: pending until the machine restarts, 4 until then";
    assert_eq!(waits["detail"], said, "{waits}");
    assert_eq!(state(&site, &lease), "running");
    release(&site, &lease);
    assert!(site.cli(&["reap", "--all"]).status.success());
    site.until_empty();
}

// Invariant: a kill in the middle of an order costs neither the lease nor the order.

#[test]
fn an_order_goes_on_after_a_kill_of_the_service() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let (lease, _) = leased(&site);
    for verb in ["suspend", "resume", "stop", "start"] {
        let (code, order) = machine(&site, &[verb, &lease, "--no-wait"]);
        assert_eq!((code, &order["state"]), (Some(0), &json!("running")), "{order}");
        service.child.signal("KILL");
        service.child.wait();
        service = Service::start(&site);
        let id = order["id"].as_str().unwrap();
        let path = format!("/v1/leases/{lease}/orders/{id}?waitSeconds=120");
        let (status, ended) = call(&site, "GET", &path, None);
        assert_eq!((status, &ended["state"]), (200, &json!("done")), "{verb}: {ended}");
    }
    assert_eq!(state(&site, &lease), "running");
    release(&site, &lease);
    assert!(site.cli(&["reap", "--all"]).status.success());
    site.until_empty();
}

// Invariant: nothing of what a caller writes reaches the cluster unchecked.

#[test]
fn wrong_names_sizes_and_verbs_are_refused_with_the_field_that_is_wrong() {
    let (_dir, _sim, site) = world();
    let _service = Service::start(&site);
    let (lease, agent) = leased(&site);
    let long = "x".repeat(501);
    let wrong = [
        ("power", json!({"action": "explode"}), "`action` must be start"),
        ("power", json!({}), "`action`"),
        ("power", json!({"action": "stop", "force": true}), "`force` is not known"),
        ("snapshots", json!({"name": "a b"}), "`name` must be 2 to 40 letters"),
        ("snapshots", json!({"name": "../../etc"}), "`name` must be 2 to 40 letters"),
        ("snapshots", json!({"name": "drover-clean"}), "`name` must not begin with `drover`"),
        ("snapshots", json!({"name": "current"}), "`name` must not be `current`"),
        ("snapshots", json!({"name": "ok", "description": long}), "`description`"),
        ("snapshots", json!({"name": "ok", "memory": "yes"}), "`memory` must be true or false"),
        ("reconfigure", json!({}), "`cores` or `memoryMb` or `diskSizeGb` must be given"),
        ("reconfigure", json!({"cores": 0}), "`cores` must be a whole number"),
        ("reconfigure", json!({"memoryMb": 1}), "`memoryMb` must be a whole number from 16"),
        ("reconfigure", json!({"diskSizeGb": -5}), "`diskSizeGb` must be a whole number"),
        ("snapshots/drover-clean/revert", json!({}), "must not begin with `drover`"),
        ("snapshots/%2e%2e/revert", json!({}), "must be 2 to 40 letters"),
    ];
    for (route, body, text) in wrong {
        for of in [format!("agents/{agent}"), format!("leases/{lease}")] {
            let (status, problem) = call(&site, "POST", &format!("/v1/{of}/{route}"), Some(&body));
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert!(status == 400 && detail.contains(text), "{route} {body}: {problem}");
        }
    }
    let path = format!("/v1/agents/{agent}/snapshots/drover-clean");
    assert_eq!(call(&site, "DELETE", &path, None).0, 400);
    for path in ["/v1/agents/nobody/machine", "/v1/leases/lease-none/machine"] {
        assert_eq!(call(&site, "GET", path, None).0, 404, "{path}");
    }
    let path = format!("/v1/agents/{agent}/orders/order-none");
    assert_eq!(call(&site, "GET", &path, None).0, 404);
    let small = json!({"diskSizeGb": 1});
    let (status, problem) =
        call(&site, "POST", &format!("/v1/agents/{agent}/reconfigure"), Some(&small));
    assert!(status == 409 && problem["detail"].as_str().unwrap().contains("shrink"), "{problem}");
    let key = json!({"action": "suspend", "idempotencyKey": "k"});
    let path = format!("/v1/leases/{lease}/power");
    let (first, again) =
        (call(&site, "POST", &path, Some(&key)), call(&site, "POST", &path, Some(&key)));
    assert_eq!((first.0, &first.1["id"]), (202, &again.1["id"]), "{again:?}");
    let other = json!({"action": "stop", "idempotencyKey": "k"});
    assert_eq!(call(&site, "POST", &path, Some(&other)).0, 409);
    let id = first.1["id"].as_str().unwrap();
    for of in [format!("agents/{agent}"), format!("leases/{lease}")] {
        let (status, end) =
            call(&site, "GET", &format!("/v1/{of}/orders/{id}?waitSeconds=60"), None);
        assert_eq!((status, &end["state"]), (200, &json!("done")), "{of}: {end}");
    }
    let path = format!("/v1/leases/{lease}/snapshots/none?idempotencyKey=d");
    let (first, again) = (call(&site, "DELETE", &path, None), call(&site, "DELETE", &path, None));
    assert_eq!((first.0, &first.1["id"]), (202, &again.1["id"]), "{again:?}");
    release(&site, &lease);
    site.until_empty();
}
