//! Clusters, nodes and logins that do not do what drover needs, and sources and files beside them.

use crate::api::{ask, call, ready, release};
use crate::rights;

use super::stage::Stage;

/// A stage on which a lease was ready, so that all that drover needs is read, and another waits.
fn seen(mut stage: Stage) -> Stage {
    stage.start();
    let lease = ask(&stage.site, "linux", "ci");
    ready(&stage.site, &lease);
    stage
}

/// Asks for leases until one waits for what keeps all agents back: what is known of nodes may be ten
/// seconds old, and an agent that starts meanwhile is used and goes.
fn kept_back(stage: &Stage) -> String {
    loop {
        let lease = ask(&stage.site, "linux", "ci");
        loop {
            let text = stage.said(&["why", "leases"]);
            if text.contains("pauses") || text.contains("no agent starts") {
                return text;
            }
            let stands = stage.said(&["why", &lease]);
            if stands.contains(": ready") {
                release(&stage.site, &lease);
                break;
            }
        }
    }
}

/// All nodes answer on addresses of their own, and drover knows them.
fn of_three() -> Stage {
    let stage = Stage::new(&["--all-nodes"]);
    let urls = ["pve1", "pve2", "pve3"].map(|node| stage.sim.facts["urls"][node].to_string());
    let one = format!("apiUrl: \"{}\"", stage.sim.fact("url"));
    let all = format!("apiUrls: [{}]", urls.join(", "));
    stage.configure("    maxTotalUses: 1\n", |yaml| yaml.replace(&one, &all));
    stage
}

/// A cluster whose login is drover's own user.
fn of_own_user() -> Stage {
    let mut stage = Stage::new(&[]);
    stage.site = rights::site(&stage.sim, "");
    let (code, text) = rights::setup(&stage.site, &[]);
    assert_eq!(code, 0, "{text}");
    stage
}

// Invariant: an answer names its cause once, one a line, with the command that helps, promises nothing
// that does not come, and the journal alone says the same.

#[test]
fn one_endpoint_is_down_of_one() {
    let stage = seen(Stage::new(&[]));
    stage.sim.order("node-down pve1");
    ask(&stage.site, "linux", "ci");
    // A call that was on its way then may have failed in words of its own.
    let text = stage.until(&["why", "leases"], "cloud lab: no usable endpoint");
    stage.ends(
        "one_endpoint_down_of_one",
        &text,
        &[&["cloud=lab", "degraded", "no usable endpoint"]],
    );
}

#[test]
fn one_endpoint_is_down_of_three() {
    let stage = seen(of_three());
    stage.sim.order("node-down pve1");
    kept_back(&stage);
    // The first try is refused; by the next one the list of nodes says why.
    let text = stage.until(&["why", "leases"], "no agent starts");
    stage.ends("one_endpoint_down_of_three", &text, &[&["pve1", "offline"]]);
}

#[test]
fn the_login_is_disabled() {
    let stage = seen(of_own_user());
    stage.sim.admin("PUT", "/access/users/drover@pve", &[("enable", "0")]);
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "when: once");
    stage.ends("user_disabled", &text, &[&["cloud=lab", "drover@pve!ci", "refused"]]);
}

#[test]
fn a_privilege_is_gone() {
    let stage = seen(of_own_user());
    let roles = stage.sim.admin("GET", "/access/roles", &[])["data"].clone();
    for role in roles.as_array().unwrap() {
        let name = role["roleid"].as_str().unwrap();
        let privileges = role["privs"].as_str().unwrap_or_default();
        if role["special"].as_u64() != Some(1) && privileges.contains("VM.Clone") {
            let rest: Vec<&str> = privileges.split(',').filter(|one| *one != "VM.Clone").collect();
            stage.sim.admin("PUT", &format!("/access/roles/{name}"), &[("privs", &rest.join(","))]);
        }
    }
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "breaker");
    stage.ends("privilege_gone", &text, &[&["VM.Clone"]]);
}

#[test]
fn all_nodes_are_drained() {
    let stage = seen(Stage::new(&[]));
    for node in ["pve1", "pve2", "pve3"] {
        stage.said(&["node", "drain", node]);
    }
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "drained");
    stage.ends("all_drained", &text, &[&["pve1", "drained"]]);
}

#[test]
fn the_cluster_has_no_quorum() {
    let stage = seen(Stage::new(&[]));
    for node in ["pve1", "pve2", "pve3"] {
        stage.sim.order(&format!("isolate {node}"));
    }
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "quorum");
    stage.ends("no_quorum", &text, &[&["quorum"]]);
}

#[test]
fn the_certificate_changed() {
    let stage = seen(of_three());
    stage.sim.order("renew-authority");
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "once cloud lab");
    stage.ends("certificate_changed", &text, &[&["cloud=lab", "certificate"]]);
}

#[test]
fn a_node_is_in_maintenance() {
    let stage = Stage::new(&[]);
    stage.configure("    maxTotalUses: 1\n", |yaml| yaml);
    let stage = seen(stage);
    stage.sim.order("maintenance pve1 on");
    let text = kept_back(&stage);
    stage.ends("node_maintenance", &text, &[&["pve1", "maintenance"]]);
}

#[test]
fn the_cloud_is_gone_at_a_resync() {
    let stage = seen(Stage::new(&[]));
    stage.sim.order("node-down pve1");
    let text = stage.until(&["resync"], "nothing is started since");
    let journal: [&[&str]; 2] =
        [&["cloud=lab", "degraded", "no usable endpoint"], &["cluster=", "could not be read"]];
    stage.ends("cloud_gone_at_resync", &text, &journal);
    assert_eq!(stage.site.cli(&["resync"]).status.code(), Some(1));
}

#[test]
fn gitea_is_silent() {
    let mut stage = Stage::new(&[]);
    let port = crate::open::free_port();
    let secret = stage.secret("gitea", "a token");
    stage.configure("", |yaml| {
        let kind = "kind: apiToken";
        yaml.replace(
            "credentials:\n",
            &format!("credentials:\n  gitea: {{{kind}, secretFile: \"{secret}\"}}\n"),
        ) + &format!(
            "demand:\n  git: {{kind: gitea, url: \"http://127.0.0.1:{port}\", credentialsId: gitea, \
             labels: [linux]}}\n"
        )
    });
    stage.start();
    let text = stage.until(&["why", "git"], "since");
    stage.ends("gitea_silent", &text, &[&["source=git", "refused"]]);
}

#[test]
fn the_configuration_is_broken() {
    let stage = seen(Stage::new(&[]));
    stage.configure("    instanceCap: many\n", |yaml| yaml.replace("    instanceCap: 4\n", ""));
    let text = stage.until(&["status"], "instanceCap");
    let text = text.split("\nCLOUDS").next().unwrap();
    let line = ["ERROR", "configuration refused", "drover.yaml:32", "instanceCap"];
    stage.ends("configuration_broken", text, &[&line]);
    let journal = stage.journal();
    assert_eq!(journal.lines().filter(|line| line.contains("ERROR")).count(), 1, "{journal}");
}

#[test]
fn the_machine_is_lost_under_its_job() {
    let mut stage = Stage::new(&[]);
    stage.configure("", |yaml| {
        yaml.replace("node: pve1", "node: pve2")
            .replace("templateVmId: 9000", "templateVmId: 9001")
            .replace("startVmId: 10000", "startVmId: 10000\n    nodeGracePeriodSeconds: 0")
    });
    stage.start();
    let lease = ask(&stage.site, "linux", "ci");
    ready(&stage.site, &lease);
    stage.sim.order("node-down pve2");
    assert_eq!(call(&stage.site, "POST", "/v1/resync", None).0, 200);
    let text = stage.until(&["why", &lease], "lost");
    stage.ends("machine_lost_under_its_job", &text, &[&["lease=", "lost", "pve2"]]);
}
