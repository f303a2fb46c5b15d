//! Containers as agents on real sockets: from the YAML over HTTPS to a command by SSH, cloned and
//! made of an OS template that a node downloads.

use crate::harness::{Service, Sim, world};
use crate::parity::{until, yaml};

const DEBIAN: &str = "debian-13-standard_13.1-2_amd64.tar.zst";
const UBUNTU: &str = "ubuntu-24.04-standard_24.04-2_amd64.tar.zst";

/// Starts a task and waits for its end.
fn wait(sim: &Sim, path: &str, params: &[(&str, &str)]) {
    let upid = sim.send("POST", path, params);
    let upid = upid["data"].as_str().unwrap_or_else(|| panic!("{path}: {upid}")).to_owned();
    let status = || sim.call("GET", &format!("/nodes/pve1/tasks/{upid}/status"))["data"].clone();
    until("the end of a task", || status()["status"] == "stopped");
    assert_eq!(status()["exitstatus"], "OK", "{path}");
}

/// Makes a container's template whose root accepts drover's key, as the book describes.
fn make_template(sim: &Sim) {
    let key = drover_ssh::PrivateKey::from_seed(&[7; 32], "drover-test");
    wait(sim, "/nodes/pve1/aplinfo", &[("storage", "local"), ("template", DEBIAN)]);
    let how = [
        ("vmid", "9100"),
        ("hostname", "debian-ct"),
        ("ostemplate", &*format!("local:vztmpl/{DEBIAN}")),
        ("rootfs", "local-lvm:4"),
        ("unprivileged", "1"),
        ("net0", "name=eth0,bridge=vmbr0,ip=dhcp"),
        ("ssh-public-keys", &*key.public_line("drover")),
    ];
    wait(sim, "/nodes/pve1/lxc", &how);
    // Unlike that of a virtual machine it is no task.
    sim.send("POST", "/nodes/pve1/lxc/9100/template", &[]);
}

// Invariant: a job runs in a container, whichever way it was made, and nothing is left of it.

#[test]
fn a_command_runs_in_a_container_that_was_cloned_and_in_one_that_was_made() {
    let (_dir, sim, site) = world();
    make_template(&sim);
    let made = format!(
        "guestType: CONTAINER, osTemplate: 'local:vztmpl/{UBUNTU}', targetStorage: local-lvm, \
         bridge: vmbr0, cloneStrategy: FULL, nesting: true, credentialsId: root"
    );
    let cloned = "guestType: CONTAINER, templateVmId: 9100, credentialsId: root, memoryMb: 256";
    let text = yaml(&site, &sim, &[], &[("cloned", cloned), ("made", &made)]);
    let dir = site.dir.path().display();
    let root = format!("  root: {{kind: sshKey, username: root, privateKeyFile: \"{dir}/key\"}}\n");
    site.write_yaml(&text.replace("  agents: {", &format!("{root}  agents: {{")));
    let _service = Service::start(&site);
    for template in ["cloned", "made"] {
        let out =
            site.cli(&["lease", "--template", template, "--", "sh", "-c", "echo on $(hostname)"]);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && text.contains(&format!("on {template}-")), "{out:?}");
    }
    let there = sim.call("GET", "/nodes/pve1/storage/local/content?content=vztmpl")["data"].clone();
    assert!(there.to_string().contains(UBUNTU), "the node downloaded it: {there}");
    let rows = sim.call("GET", "/cluster/resources?type=vm")["data"].clone();
    let agents = rows.as_array().unwrap().iter().filter(|row| row["template"].as_u64() != Some(1));
    let kinds: Vec<&str> = agents.map(|row| row["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["lxc"; 2], "{rows}");
    let shown = site.json(&["agents"]);
    assert_eq!(shown["agents"].as_array().map(Vec::len), Some(2), "{shown}");
    let config = site.config().display().to_string();
    let doctor = site.cli(&["--config", &config, "doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("a container, unprivileged, on local-lvm"), "{doctor}");
    assert!(doctor.contains(UBUNTU) && doctor.contains("is there"), "{doctor}");
    assert!(site.cli(&["reap", "--all"]).status.success());
    site.until_empty();
    assert_eq!(sim.guests(), Vec::<u64>::new());
}
