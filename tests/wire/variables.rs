//! A service whose YAML names no cluster: where it is, who drover is there, and what is cloned come from
//! variables of its environment.

use serde_json::{Value, json};

use crate::harness::{Service, Sim, Site, world};
use crate::parity::{guest_of, setting};

/// The site's YAML without the cluster, its login, the node and the template image.
fn bare(site: &Site, sim: &Sim, template: &str) -> String {
    let text = site.yaml(sim, template);
    let without =
        ["proxmox:", "credentialsId: proxmox", "apiUrl:", "caFile:", "node:", "templateVmId:"];
    let kept = text.lines().filter(|line| {
        let key = line.trim_start();
        !without.iter().any(|other| key.starts_with(other)) && key != "cloudDefaults:"
    });
    kept.map(|line| format!("{line}\n")).collect()
}

/// Starts a service with this environment alone, and has it serve a lease with a command: what the command
/// said, the agent, and its guest.
fn serve(sim: &Sim, site: &Site, environment: &[(&str, &str)]) -> (String, Value, Value) {
    let mut service = Service::spawn_with(site, &["--strict"], environment);
    service.hear("READY=1");
    let out = site.cli(&["lease", "--labels", "linux", "--", "hostname"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let agent = site.json(&["agents"])["agents"][0].clone();
    let guest = guest_of(sim, &agent);
    (said, agent, guest)
}

// Invariant: a service finds its cluster by the variables that programs for Proxmox share, and what it
// makes there is what the variables say.

#[test]
fn a_service_finds_its_cluster_and_its_template_by_the_variables_of_dispatchers() {
    let (_dir, sim, site) = world();
    // Without a file of user data the variable names one that is there.
    let user_data = "#cloud-config\nhostname: by-variable\nuser: ${user}\n\
                     ssh_authorized_keys:\n  - ${sshPublicKey}\n";
    std::fs::write(site.dir.path().join("user-data.pkrtpl"), user_data).unwrap();
    site.write_yaml(&bare(&site, &sim, ""));
    let (ca, template) = (site.dir.path().join("ca.pem"), site.dir.path().join("user-data.pkrtpl"));
    let environment = [
        ("PROXMOX_URL", sim.fact("url")),
        ("PVE_ENDPOINT", "https://127.0.0.1:1"),
        ("PROXMOX_TOKEN_ID", sim.fact("tokenId")),
        ("PROXMOX_TOKEN_SECRET", sim.fact("tokenSecret")),
        ("PVE_CA_BUNDLE", ca.to_str().unwrap()),
        ("PROXMOX_NODE", "pve2"),
        ("PROXMOX_STORAGE", "shared"),
        ("TEMPLATE_NAME", "debian-12"),
        ("RUNNER_NAME_PREFIX", "runner"),
        ("USER_DATA_TEMPLATE", template.to_str().unwrap()),
    ];
    let (said, agent, guest) = serve(&sim, &site, &environment);
    assert_eq!((said.as_str(), &agent["node"]), ("by-variable\n", &json!("pve2")));
    assert!(setting(&guest, "name").starts_with("runner-linux-"), "{guest}");
    assert!(setting(&guest, "ide2").starts_with("shared:iso/drover-"), "{guest}");
    // pve2 has its own template of that name.
    let clones = sim.call("GET", "/nodes/pve2/tasks?typefilter=qmclone")["data"].clone();
    assert_eq!(clones.as_array().unwrap().len(), 1, "{clones}");
}

#[test]
fn a_service_logs_in_by_password_with_the_authority_in_a_variable() {
    let (_dir, sim, site) = world();
    let keys = "    nodes: [\"*\"]\n    templateName: debian-12\n";
    site.write_yaml(&bare(&site, &sim, keys));
    let pem = std::fs::read_to_string(site.dir.path().join("ca.pem")).unwrap();
    std::fs::remove_file(site.dir.path().join("ca.pem")).unwrap();
    let environment = [
        ("PVE_ENDPOINT", sim.fact("url")),
        ("PVE_USERNAME", sim.fact("adminUser")),
        ("PVE_PASSWORD", sim.fact("adminPassword")),
        ("PVE_CA_BUNDLE", pem.as_str()),
        ("PVE_NODE_SELECTOR", "pve3"),
    ];
    let (_, agent, guest) = serve(&sim, &site, &environment);
    assert_eq!(agent["node"], "pve3");
    assert!(setting(&guest, "sshkeys").contains("ssh-ed25519"), "{guest}");
    let started = sim.call("GET", "/nodes/pve3/tasks?typefilter=qmstart")["data"].clone();
    assert_eq!(started[0]["user"], sim.fact("adminUser"), "{started}");

    // Without the authority nobody is believed, and half a login is none.
    let refused = |environment: &[(&str, &str)]| {
        let mut command = crate::harness::drover();
        command.arg("--config").arg(site.config()).args(["run", "--strict"]);
        let out = command.envs(environment.iter().copied()).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, said) = refused(&environment[..3]);
    assert!(code == Some(1) && said.contains("certificate"), "{code:?} {said}");
    let (code, said) = refused(&environment[..2]);
    assert!(code == Some(2) && said.contains("`PVE_PASSWORD` is not set"), "{code:?} {said}");
}
