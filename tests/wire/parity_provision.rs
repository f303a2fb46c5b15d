//! What a template's keys make of its guests, and who may use them.

use std::process::Output;

use serde_json::{Value, json};

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Events, Service, Sim, drover, world, world_of};
use crate::parity::{agents, checked, yaml};

// Invariant: a file of the Jenkins plugin loads as it is, and each key's default is the plugin's.

/// The keys of clouds and agents that the plugin recognises, with their defaults; null for none
/// (jenkinsci/proxmox-cloud-plugin b1ee0117d9fa, `ProxmoxConfigLoader.java`). Without
/// `templateSelectionMode` the key that is given counts, which for the plugin is `templateVmId` alone.
fn defaults() -> (Value, Value) {
    let cloud = json!({
        "name": null, "apiUrl": "https://localhost:8006", "credentialsId": null,
        "ignoreSslErrors": false, "instanceCap": 0, "operationTimeoutSec": 300, "startVmId": 100,
        "cleanupOrphanedAgents": false, "orphanCleanupPeriodSeconds": 600,
        "orphanCleanupGracePeriodSeconds": 300,
    });
    let agent = json!({
        "node": null, "name": null, "templateVmId": null, "labelString": "", "numExecutors": 1,
        "cloneStrategy": "FULL", "targetStorage": "", "targetPool": "", "cores": 0, "memoryMb": 0,
        "diskSizeGb": 0, "remoteFs": "", "mode": "EXCLUSIVE", "credentialsId": null,
        "javaDistribution": "NONE", "javaMajorVersion": 21, "javaPath": "java", "jvmOptions": "",
        "idleTerminationMinutes": 30, "instanceCap": 0, "instanceMin": 0, "maxTotalUses": 0,
        "namePrefix": "", "startupWaitSeconds": 60, "ciUser": "", "ipConfig": "ip=dhcp",
        "nameserver": "", "searchDomain": "", "templateSelectionMode": null,
        "templateNameRegex": null, "templateTag": null, "networkBridge": "", "osType": "LINUX",
        "windowsLoginShell": "AUTO",
    });
    (cloud, agent)
}

#[test]
fn every_key_of_the_plugin_is_known_with_its_default_and_its_file_loads() {
    let out = drover().arg("schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&out.stdout).unwrap();
    let (cloud, agent) = defaults();
    for (section, keys) in [("cloudDefaults", cloud), ("agentDefaults", agent)] {
        let known = &schema["properties"][section]["properties"];
        for (key, default) in keys.as_object().unwrap() {
            assert!(known[key].is_object(), "{section}.{key} is unknown");
            assert_eq!(known[key]["default"], *default, "{section}.{key}");
        }
    }
    assert_eq!(
        schema["properties"]["cloudDefaults"]["properties"]["orphanCleanupPeriodSeconds"]["minimum"],
        30
    );

    let agent = &schema["properties"]["agentDefaults"]["properties"];
    let breaker =
        ["breakerThreshold", "breakerCooldownSec"].map(|key| agent[key]["default"].clone());
    assert_eq!(breaker, [json!(3), json!(120)], "as Jeballto's");

    // As the plugin's own file stands, with credentials in a second one.
    let out = checked_beside_credentials(include_str!("../../configs/reference.yaml"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("clouds: 2, templates: "), "{said}");
}

/// What `check` says of clouds and agents in one file, and the plugin's credentials in a second one.
fn checked_beside_credentials(clouds: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("clouds.yaml"), clouds).unwrap();
    let key = drover_ssh::PrivateKey::from_seed(&[7; 32], "drover-test").to_openssh().unwrap();
    let key = secrecy::ExposeSecret::expose_secret(&key).replace('\n', "\\n");
    let credentials = format!(
        "credentials:\n  proxmox-api-token: {{kind: proxmoxToken, tokenId: \"jenkins@pve!ci\", \
         secret: 11111111-2222-3333-4444-555555555555}}\n  \
         proxmox-ssh-key: {{kind: sshKey, username: ubuntu, secret: \"{key}\"}}\n"
    );
    std::fs::write(dir.path().join("credentials.yaml"), credentials).unwrap();
    drover().arg("--config").arg(dir.path()).arg("check").output().unwrap()
}

/// The example of the plugin's README, beside credentials; checked.
fn plugins_example(change: impl Fn(&str) -> String) -> (Option<i32>, String) {
    let out = checked_beside_credentials(&change(include_str!("parity_plugin.yaml")));
    let said = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_plugins_rolling_and_windows_templates_load_as_its_readme_has_them() {
    let (code, said) = plugins_example(str::to_owned);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("clouds: 2, templates: "), "{said}");
    // What the plugin refuses is refused here.
    for (line, key) in [
        ("    javaDistribution: NONE ", "javaDistribution"),
        ("    remoteFs: 'C:\\Users\\jenkins\\agent' ", "remoteFs"),
        ("    templateNameRegex: ", "templateNameRegex"),
    ] {
        let (code, said) = plugins_example(|text| {
            assert!(text.contains(line), "{line}");
            text.replace(line, "    # ")
        });
        assert_eq!(code, Some(2), "{key}: {said}");
        assert!(said.contains(key), "{key}: {said}");
    }
}

#[test]
fn an_old_java_and_a_small_disk_for_it_are_warned_about_and_a_minimum_above_the_cap_refused() {
    let (_dir, sim, site) = world();
    let with = |keys: &str| checked(&site, &yaml(&site, &sim, &[], &[("java", keys)]));
    let (code, said) = with("javaDistribution: OPENJDK, javaMajorVersion: 17, diskSizeGb: 9");
    assert_eq!(code, Some(0), "{said}");
    for word in ["javaMajorVersion", "21", "diskSizeGb", "10"] {
        assert!(said.contains(word), "no {word}: {said}");
    }
    let (code, said) = with("javaDistribution: OPENJDK, diskSizeGb: 10, jvmOptions: \"-Xmx512m\"");
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("warning") && !said.contains("help:"), "{said}");
    let (code, said) = with("instanceCap: 2, instanceMin: 3");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("instanceMin"), "{said}");
}

// Invariant: a guest is what its template's keys say, and where they say nothing what its template is.

/// What the last clone's task said.
fn last_clone(sim: &Sim) -> String {
    let tasks = sim.call("GET", "/nodes/pve1/tasks?typefilter=qmclone&limit=500")["data"].clone();
    let last = tasks.as_array().unwrap().iter().max_by_key(|task| task["starttime"].as_u64());
    let path =
        format!("/nodes/pve1/tasks/{}/log?limit=500", last.unwrap()["upid"].as_str().unwrap());
    sim.call("GET", &path)["data"].to_string()
}

#[test]
fn a_guest_is_shaped_by_its_templates_keys() {
    let (_dir, sim, site) = world();
    let shaped = "cloneStrategy: FULL, targetStorage: shared, targetPool: ci, cores: 3, memoryMb: 3072, \
                  diskSizeGb: 12, ciUser: debian, ipConfig: \"ip=dhcp\", nameserver: 10.0.0.53, \
                  searchDomain: ci.example.org, namePrefix: nightly, vlan: 12, tags: [night], \
                  remoteFs: /tmp/agent";
    let templates = [("shaped", shaped), ("plain", ""), ("linked", "cloneStrategy: LINKED")];
    site.write_yaml(&yaml(&site, &sim, &[], &templates).replacen("cloneStrategy: LINKED, ", "", 1));
    let _service = Service::start(&site);
    let config = |template: &str| {
        let agent = ready(&site, &ask(&site, template, "wire"))["agent"].clone();
        let agent = agents(&site, template).into_iter().find(|one| one["id"] == agent).unwrap();
        let vmid = agent["vmid"].as_u64().unwrap();
        (vmid, sim.config("pve1", vmid))
    };
    let (vmid, guest) = config("shaped");
    let text = |guest: &Value, key: &str| guest[key].to_string().trim_matches('"').to_owned();
    for (key, value) in [
        ("cores", "3"),
        ("memory", "3072"),
        ("ciuser", "debian"),
        ("ipconfig0", "ip=dhcp"),
        ("nameserver", "10.0.0.53"),
        ("searchdomain", "ci.example.org"),
    ] {
        assert_eq!(text(&guest, key), value, "{key}");
    }
    for (key, word) in [
        ("scsi0", "shared:"),
        ("scsi0", "size=12G"),
        ("name", "nightly-shaped-"),
        ("net0", "tag=12"),
        ("net0", "bridge=vmbr0"),
        ("tags", "night"),
        ("sshkeys", "ssh-ed25519"),
        ("description", "template shaped"),
    ] {
        assert!(text(&guest, key).contains(word), "{key}: {}", guest[key]);
    }
    let listed = sim.call("GET", "/cluster/resources?type=vm")["data"].clone();
    let listed = listed.as_array().unwrap().iter().find(|one| one["vmid"] == vmid).unwrap().clone();
    assert_eq!(listed["pool"], "ci");
    assert!(last_clone(&sim).contains("create full clone of drive scsi0"));
    let out = site.cli(&["lease", "--template", "shaped", "--", "test -w /tmp/agent"]);
    assert!(out.status.success(), "{out:?}");

    // Without a word about it a clone is full, as in the plugin, and as large as its template.
    let (_, guest) = config("plain");
    assert!(last_clone(&sim).contains("create full clone of drive scsi0"));
    for (key, value) in [("cores", "2"), ("memory", "2048")] {
        assert_eq!(text(&guest, key), value, "{key}");
    }
    assert!(text(&guest, "scsi0").starts_with("local-lvm:"), "{}", guest["scsi0"]);
    assert!(text(&guest, "scsi0").contains("size=10G"), "{}", guest["scsi0"]);
    assert!(guest["nameserver"].is_null() && guest["searchdomain"].is_null(), "{guest}");
    // With the login user's own home in place of a blank remoteFs.
    let out = site.cli(&["lease", "--template", "plain", "--", "test -w \"$HOME/agent\""]);
    assert!(out.status.success(), "{out:?}");
    config("linked");
    assert!(last_clone(&sim).contains("create linked clone of drive scsi0"));
}

/// A cluster with a template whose first disk is on each bus.
fn buses() -> String {
    let mut text = "name: buses\nnodes: [{name: pve1}]\n\
                    storages: [{name: local-lvm, type: lvmthin, content: [images]}]\nguests:\n"
        .to_owned();
    for (number, bus) in ["scsi0", "virtio0", "sata0", "ide0"].iter().enumerate() {
        let vmid = 9000 + number;
        text.push_str(&format!(
            "  - {{vmid: {vmid}, node: pve1, template: true, config: {{name: t, memory: \"512\", \
             cores: \"1\", {bus}: \"local-lvm:base-{vmid}-disk-0,size=4G\", \
             ide2: \"local-lvm:vm-{vmid}-cloudinit,media=cdrom\", boot: \"order={bus};ide2\", \
             net0: \"virtio=BC:24:11:00:00:0{number},bridge=vmbr0\", agent: \"enabled=1\"}}}}\n"
        ));
    }
    text
}

#[test]
fn the_disk_a_guest_boots_from_is_resized_on_every_bus() {
    let (_dir, sim, site) = world_of(&buses());
    let keys: Vec<(&str, String)> = ["scsi", "virtio", "sata", "ide"]
        .into_iter()
        .enumerate()
        .map(|(number, bus)| (bus, format!("templateVmId: {}, diskSizeGb: 9", 9000 + number)))
        .collect();
    let mut templates: Vec<(&str, &str)> =
        keys.iter().map(|(bus, keys)| (*bus, keys.as_str())).collect();
    templates.push(("smaller", "diskSizeGb: 2"));
    site.write_yaml(&yaml(&site, &sim, &[], &templates));
    let _service = Service::start(&site);
    let disk = |template: &str, key: &str| {
        ready(&site, &ask(&site, template, "wire"));
        let vmid = agents(&site, template)[0]["vmid"].as_u64().unwrap();
        sim.config("pve1", vmid)[key].as_str().unwrap().to_owned()
    };
    for bus in ["scsi", "virtio", "sata", "ide"] {
        let drive = disk(bus, &format!("{bus}0"));
        assert!(drive.contains("size=9G"), "{drive}");
    }
    let drive = disk("smaller", "scsi0");
    assert!(drive.contains("size=4G"), "never shrunk: {drive}");
}

// Invariant: NORMAL takes unlabelled demand too, EXCLUSIVE only what asks for its labels.

#[test]
fn unlabelled_demand_goes_to_normal_templates_alone() {
    let (_dir, sim, site) = world();
    let normal = ("any", "mode: NORMAL, labelString: \"linux x64\"");
    let exclusive = ("only", "mode: EXCLUSIVE, labelString: \"linux gpu\"");
    site.write_yaml(&yaml(&site, &sim, &[], &[exclusive, normal]));
    let _service = Service::start(&site);
    let lease = |labels: Value| {
        let body = json!({"labels": labels, "owner": "wire", "ttlSeconds": 3600});
        call(&site, "POST", "/v1/leases", Some(&body))
    };
    let template = |labels: Value| {
        let (status, lease) = lease(labels);
        assert_eq!(status, 201, "{lease}");
        let id = lease["id"].as_str().unwrap().to_owned();
        let agent = ready(&site, &id)["agent"].clone();
        let all = site.json(&["agents"])["agents"].clone();
        let agent = all.as_array().unwrap().iter().find(|one| one["id"] == agent).unwrap().clone();
        release(&site, &id);
        agent["template"].as_str().unwrap().to_owned()
    };
    assert_eq!(template(json!(["gpu"])), "lab/only");
    // An idle agent of the exclusive one is there, and yet another is started.
    assert_eq!(template(json!([])), "lab/any");
    assert_eq!(template(json!(["linux", "x64"])), "lab/any");
    let (status, reported) = lease(json!(["gpu", "x64"]));
    assert!((400..500).contains(&status), "{reported}");
    site.write_yaml(&yaml(&site, &sim, &[], &[exclusive]));
    assert!(site.cli(&["reload"]).status.success());
    let (status, reported) = lease(json!([]));
    assert!((400..500).contains(&status), "nothing takes unlabelled demand now: {reported}");
}

// Invariant: what takes longer than the YAML allows ends the provision, with its name.

#[test]
fn an_operation_and_a_start_have_the_time_of_the_yaml() {
    let (dir, sim, site) = world();
    let faults = dir.path().join("faults.yaml");
    std::fs::write(&faults, "calls: [{route: /config, delay: 12, times: 1}]\n").unwrap();
    let templates = [("slow", ""), ("deaf", "startupWaitSeconds: 2, sshPort: 1")];
    site.write_yaml(&yaml(&site, &sim, &["operationTimeoutSec: 2"], &templates));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    sim.order(&format!("faults {}", faults.display()));
    assert!(site.cli(&["provision", "slow"]).status.success());
    let gone = events.until("agentGone", |fact| fact["agent"]["template"] == "lab/slow");
    let detail = gone["agent"]["detail"].as_str().unwrap();
    assert!(detail.contains("Configuring"), "{gone}");
    assert!(site.cli(&["provision", "deaf"]).status.success());
    let gone = events.until("agentGone", |fact| fact["agent"]["template"] == "lab/deaf");
    let detail = gone["agent"]["detail"].as_str().unwrap();
    assert!(detail.contains("Connecting"), "{gone}");
    assert_eq!(sim.guests(), Vec::<u64>::new());
}

// Invariant: certificates are only left unverified where the YAML says so, with a warning.

#[test]
fn a_self_signed_cluster_is_used_where_errors_of_tls_are_ignored() {
    let (_dir, sim, site) = world();
    let ca = format!("    caFile: \"{}/ca.pem\"\n", site.dir.path().display());
    let text = site.yaml(&sim, "").replace(&ca, "    ignoreSslErrors: true\n");
    let (code, said) = checked(&site, &text);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("drover does not verify certificates"), "{said}");
    let _service = Service::start(&site);
    let mut board = Board::open(&site);
    assert!(site.cli(&["lease", "--labels", "linux", "--", "true"]).status.success());
    board.until(&site, "the cloud well", |board| board.cloud("lab").0 == "well");
}
