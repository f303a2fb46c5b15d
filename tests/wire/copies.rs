//! A machine that was worked on, cloned by the command line: over HTTPS to the cluster, and SSH into
//! both machines.

use std::path::Path;
use std::process::Command;

use drover_ssh::PrivateKey;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::api::{call, ready, release};
use crate::harness::{Events, Service, world};

/// Runs a command on a machine, and gives what it printed.
fn ssh(ssh: &Value, key: &Path, command: &str) -> String {
    let (host, port) = (ssh["host"].as_str().unwrap(), &ssh["port"]);
    let out = Command::new("ssh")
        .args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"])
        .args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-p", &port.to_string(), "-i"])
        .arg(key)
        .args([&format!("debian@{host}"), command])
        .output()
        .unwrap();
    assert!(out.status.success(), "{command}: {out:?}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

// Invariant: a clone has what was done on the machine, is a machine of its own, survives a kill of the
// service on its way, and goes with its hold.

#[test]
fn a_leased_machine_is_cloned_with_what_was_done_on_it() {
    let (_dir, sim, site) = world();
    let mut service = Service::start(&site);
    let key = PrivateKey::from_seed(&[5; 32], "holder");
    site.write_secret("holder", key.to_openssh().unwrap().expose_secret());
    let body = json!({
        "template": "linux", "owner": "ann", "ttlSeconds": 3600, "sshPublicKey": key.public_line(""),
    });
    let (status, lease) = call(&site, "POST", "/v1/leases", Some(&body));
    assert_eq!(status, 201, "{lease}");
    let lease = lease["id"].as_str().unwrap().to_owned();
    let source = ready(&site, &lease);
    ssh(&source["ssh"], &site.dir.path().join("holder"), "echo debugged > found; sync");

    let out = site.cli(&["--json", "machine", "clone", &lease, "--for", "1h"]);
    assert!(out.status.success(), "{out:?}");
    let copy: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&copy["of"], &copy["seconds"]), (&source["agent"], &json!(3600)));
    let agent = copy["agent"].as_str().unwrap().to_owned();
    site.write_secret("clone", copy["privateKey"].as_str().unwrap());
    let mut events = Events::follow(&site);
    events.until("agent", |fact| fact["agent"]["id"] == *agent && fact["agent"]["vmid"].is_u64());
    service.child.signal("KILL");
    service.child.wait();
    let _service = Service::start(&site);

    let mut events = Events::follow(&site);
    let open = |fact: &Value| {
        fact["agent"]["id"] == *agent && fact["agent"]["detail"] == "the login is open"
    };
    let shown = events.until("agent", open)["agent"].clone();
    assert_eq!(shown["state"], "Held");
    let clone = site.dir.path().join("clone");
    assert_eq!(ssh(&shown["ssh"], &clone, "cat found"), "debugged\n");
    assert_ne!(shown["ssh"]["host"], source["ssh"]["host"], "a machine of its own");
    ssh(&shown["ssh"], &clone, "echo other > found");
    let unchanged = ssh(&source["ssh"], &site.dir.path().join("holder"), "cat found");
    assert_eq!(unchanged, "debugged\n");
    assert_eq!(call(&site, "GET", &format!("/v1/leases/{lease}"), None).1["state"], "ready");
    assert_eq!(sim.guests().len(), 2);
    assert!(site.cli(&["release-hold", &agent]).status.success());
    events.until("agentGone", |fact| fact["agent"]["id"] == *agent);
    release(&site, &lease);
    assert!(site.cli(&["reap", "--all"]).status.success());
    site.until_empty();
    assert_eq!(sim.guests(), Vec::<u64>::new());
}
