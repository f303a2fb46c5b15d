//! Clusters, nodes and logins that do not do what drover needs, and sources and files beside them.

use crate::api::{ask, call, ready, release};
use crate::rights;

use super::stage::{Stage, Staged};

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
    let yaml = std::fs::read_to_string(stage.site.config()).unwrap();
    stage.write_yaml(&yaml);
    stage
}

pub fn one_endpoint_down_of_one() -> Staged {
    let stage = seen(Stage::new(&[]));
    stage.sim.order("node-down pve1");
    ask(&stage.site, "linux", "ci");
    // A call that was on its way then may have failed in words of its own.
    let text = stage.until(&["why", "leases"], "no endpoint of cloud `lab` answers");
    stage.answers(text)
}

pub fn one_endpoint_down_of_three() -> Staged {
    let stage = seen(of_three());
    stage.sim.order("node-down pve1");
    kept_back(&stage);
    // The first try is refused; by the next one the list of nodes says why.
    let text = stage.until(&["why", "leases"], "no agent starts");
    stage.answers(text)
}

pub fn user_disabled() -> Staged {
    let stage = seen(of_own_user());
    stage.sim.admin("PUT", "/access/users/drover@pve", &[("enable", "0")]);
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "when: once");
    stage.answers(text)
}

pub fn privilege_gone() -> Staged {
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
    stage.answers(text)
}

pub fn all_drained() -> Staged {
    let stage = seen(Stage::new(&[]));
    for node in ["pve1", "pve2", "pve3"] {
        stage.said(&["node", "drain", node]);
    }
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "drained");
    stage.answers(text)
}

pub fn no_quorum() -> Staged {
    let stage = seen(Stage::new(&[]));
    for node in ["pve1", "pve2", "pve3"] {
        stage.sim.order(&format!("isolate {node}"));
    }
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "quorum");
    stage.answers(text)
}

pub fn certificate_changed() -> Staged {
    let stage = seen(of_three());
    stage.sim.order("renew-authority");
    ask(&stage.site, "linux", "ci");
    let text = stage.until(&["why", "leases"], "once cloud lab");
    stage.answers(text)
}

pub fn node_maintenance() -> Staged {
    let stage = Stage::new(&[]);
    stage.configure("    maxTotalUses: 1\n", |yaml| yaml);
    let stage = seen(stage);
    stage.sim.order("maintenance pve1 on");
    let text = kept_back(&stage);
    stage.answers(text)
}

pub fn cloud_gone_at_resync() -> Staged {
    let stage = seen(Stage::new(&[]));
    stage.sim.order("node-down pve1");
    let text = stage.until(&["resync"], "nothing has been started since");
    stage.answers(text)
}

pub fn gitea_silent() -> Staged {
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
    stage.answers(text)
}

pub fn configuration_broken() -> Staged {
    let stage = seen(Stage::new(&[]));
    stage.configure("    instanceCap: many\n", |yaml| yaml.replace("    instanceCap: 4\n", ""));
    let text = stage.until(&["status"], "instanceCap");
    let text = text.split("\nCLOUDS").next().unwrap().to_owned();
    stage.answers(text)
}

pub fn machine_lost_under_its_job() -> Staged {
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
    stage.answers(text)
}

// Invariant: an answer names its cause once, one a line, with the command that helps, promises nothing
// that does not come, and the journal alone says the same.

#[test]
fn one_endpoint_is_down_of_one() {
    one_endpoint_down_of_one()
        .ends("one_endpoint_down_of_one", &[&["cloud=lab", "degraded", "no endpoint of cloud"]]);
}

#[test]
fn one_endpoint_is_down_of_three() {
    one_endpoint_down_of_three().ends("one_endpoint_down_of_three", &[&["pve1", "offline"]]);
}

#[test]
fn the_login_is_disabled() {
    user_disabled().ends("user_disabled", &[&["cloud=lab", "drover@pve!ci", "refused"]]);
}

#[test]
fn a_privilege_is_gone() {
    privilege_gone().ends("privilege_gone", &[&["VM.Clone"]]);
}

#[test]
fn all_nodes_are_drained() {
    let stage = all_drained().ends("all_drained", &[&["pve1", "drained"]]);
    let seat = stage.seat.sits_at(&stage);
    seat.clicks("#kept-out [data-do='POST /v1/nodes/pve1/drain']");
    seat.lacks("main", "What waits");
    assert!(!seat.text("#kept-out").contains("pve1"), "{}", seat.text("#kept-out"));
    seat.clicks("header.top a[href='/leases']");
    seat.lacks("#leases", "waiting");
}

#[test]
fn the_cluster_has_no_quorum() {
    no_quorum().ends("no_quorum", &[&["quorum"]]);
}

#[test]
fn the_certificate_changed() {
    certificate_changed().ends("certificate_changed", &[&["cloud=lab", "certificate"]]);
}

#[test]
fn a_node_is_in_maintenance() {
    node_maintenance().ends("node_maintenance", &[&["pve1", "maintenance"]]);
}

#[test]
fn the_cloud_is_gone_at_a_resync() {
    let journal: [&[&str]; 2] =
        [&["cloud=lab", "degraded", "no endpoint of cloud"], &["cluster=", "could not be read"]];
    let stage = cloud_gone_at_resync().ends("cloud_gone_at_resync", &journal);
    assert_eq!(stage.site.cli(&["resync"]).status.code(), Some(1));
    // Nor does the page say that it was done.
    let seat = stage.seat.sits_at(&stage);
    seat.clicks("main [data-do='POST /v1/resync']");
    seat.clicks("#ask button[value=yes]");
    seat.shows("#notes", "was not read: cloud lab: nothing has been started since");
}

#[test]
fn gitea_is_silent() {
    gitea_silent().ends("gitea_silent", &[&["source=git", "refused"]]);
}

#[test]
fn the_configuration_is_broken() {
    let line = ["ERROR", "configuration refused", "drover.yaml:34", "instanceCap"];
    let stage = configuration_broken().ends("configuration_broken", &[&line]);
    let journal = stage.journal();
    assert_eq!(journal.lines().filter(|line| line.contains("ERROR")).count(), 1, "{journal}");
    // What is repaired comes into force by itself, or at once by the page.
    stage.configure("", |yaml| yaml);
    let seat = stage.seat.sits_at(&stage);
    seat.clicks("header.top a[href='/configuration']");
    seat.clicks("main [data-do='POST /v1/reload']");
    seat.shows("main", "The newest configuration is in force.");
}

#[test]
fn the_machine_is_lost_under_its_job() {
    machine_lost_under_its_job().ends("machine_lost_under_its_job", &[&["lease=", "lost", "pve2"]]);
}
