//! A Jenkins of the tests' own whose builds run on agents of the simulated cluster.

mod door;
mod fake;
mod launch;
mod signs;
mod tree;
mod windows;
mod xml;

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Events, Service, Sim, Site, WAIT_LIMIT, world};
use door::{PASSWORD, TOKEN};
use fake::{Build, Fake};

/// A simulated cluster, a Jenkins and a site between both.
struct Scene {
    jenkins: Fake,
    sim: Sim,
    site: Site,
    _dir: tempfile::TempDir,
}

/// More lines of a template, more keys of the source, and how drover logs in.
fn scene(template: &str, source: &str, login: &str) -> Scene {
    let (dir, sim, site) = world();
    let jenkins = Fake::start();
    site.write_secret("jenkins", login);
    *jenkins.shared().key.lock().unwrap() = Some(site.dir.path().join("key"));
    let dir_of_site = site.dir.path().display();
    let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/jenkins/agent.py");
    let credential = format!(
        "credentials:\n  ci: {{kind: apiLogin, username: drover, secretFile: \"{dir_of_site}/jenkins\"}}\n"
    );
    let upload = format!("upload: {{from: \"{agent}\", to: agent.py, mode: \"0755\"}}");
    let yaml = site.yaml(&sim, "").replace("credentials:\n", &credential);
    site.write_yaml(&format!(
        "{yaml}    prepare: [{{{upload}}}]\n    javaPath: /home/debian/agent.py\n{template}demand:\n  ci:\n    {{kind: jenkins, \
         url: \"{}\", credentialsId: ci, pollSeconds: 1, {source}}}\n",
        jenkins.url
    ));
    Scene { jenkins, sim, site, _dir: dir }
}

impl Scene {
    /// Waits until nothing is left of drover's: no node, no runner on record.
    fn is_over(&self) {
        self.jenkins.wait("the end of all nodes", |state| {
            state.nodes.keys().all(|name| name == "drover-labels").then_some(())
        });
        let end = Instant::now() + WAIT_LIMIT;
        let runners = || self.site.json(&["status"])["sources"][0]["runners"].clone();
        while runners() != 0 {
            assert!(Instant::now() < end, "{} runners are on record still", runners());
        }
    }

    fn start(&self) -> (Service, Events) {
        let service = Service::start(&self.site);
        service.drain();
        let events = Events::follow(&self.site);
        (service, events)
    }
}

fn ended(builds: &[Build]) -> Vec<(&str, Option<i64>)> {
    let each = builds.iter().map(|build| (build.name.as_str(), build.exit.flatten()));
    let mut all: Vec<_> = each.collect();
    all.sort_unstable();
    all
}

fn nodes_of(builds: &[Build]) -> Vec<&str> {
    let mut nodes: Vec<&str> = builds.iter().map(|build| build.node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

// Invariant: each build runs on an agent of its own, whose node is gone with it.

#[test]
fn builds_run_on_agents_of_their_own_that_connect_and_leave_nothing_behind() {
    let scene = scene("    jvmOptions: -Xmx64m\n", "", TOKEN);
    let (_service, mut events) = scene.start();
    for (name, label) in [("a", "linux"), ("b", "linux && (x64 || arm)"), ("c", "x64")] {
        scene.jenkins.queue(name, label, "wait");
    }
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        let node = scene.jenkins.running(name);
        scene.jenkins.wait("its node to be shut", |state| {
            let off = state.nodes.get(&node)?.off.as_deref()?;
            off.contains("drover: takes no further build").then_some(())
        });
        nodes.push(node);
        scene.jenkins.go(name);
    }
    let builds = scene.jenkins.over(3);
    assert_eq!(ended(&builds), [("a", Some(0)), ("b", Some(0)), ("c", Some(0))]);
    assert_eq!(nodes_of(&builds).len(), 3, "each its own: {builds:?}");
    let mut gone: Vec<Value> = Vec::new();
    while gone.len() < 3 {
        gone.push(events.until("agentGone", |_| true)["agent"]["reason"].clone());
    }
    assert_eq!(gone, ["used-up"; 3]);
    scene.is_over();
    assert_eq!(scene.sim.guests(), Vec::<u64>::new());
    let started = scene
        .jenkins
        .wait("what agents were started with", |state| state.hellos.get(&nodes[0]).cloned());
    let words: Vec<&str> = started.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let url = scene.jenkins.url.as_str();
    let expected = [
        "-Xmx64m",
        "-jar",
        "agent.jar",
        "-url",
        url,
        "-secret",
        "-name",
        &nodes[0],
        "-webSocket",
        "-noReconnect",
        "-workDir",
        "/home/debian/agent",
    ];
    assert_eq!(words, expected);
    assert_eq!(scene.site.json(&["status"])["lostJobs"], json!([]));
}

#[test]
fn jenkins_starts_agents_itself_by_ssh_where_that_is_wanted() {
    let keys = "launch: ssh, launchCredentialsId: agents-of-drover";
    let scene = scene("    jvmOptions: -Xmx64m\n", keys, TOKEN);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "echo built in $(pwd)");
    let builds = scene.jenkins.over(1);
    assert_eq!(ended(&builds), [("a", Some(0))]);
    assert_eq!(builds[0].said, "built in /home/debian/agent\n");
    let node = &builds[0].node;
    let words = scene.jenkins.wait("its start", |state| state.hellos.get(node).cloned());
    assert_eq!(words[0], "-Xmx64m");
    // One so short may have been seen by nobody: then the next one uses it up.
    if scene.jenkins.nodes() == [node.clone()] {
        scene.jenkins.queue("b", "linux", "wait");
        scene.jenkins.running("b");
        scene.jenkins.looked();
        scene.jenkins.go("b");
    }
    events.until("agentGone", |_| true);
    scene.is_over();
}

#[test]
fn jenkins_starts_agents_itself_by_ssh_also_where_nodes_are_made_by_form() {
    let keys = "launch: ssh, launchCredentialsId: agents-of-drover";
    let scene = scene("    jvmOptions: -Xmx64m\n", keys, TOKEN);
    scene.jenkins.change(|state| state.old = true);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let node = scene.jenkins.running("a");
    let words = scene.jenkins.wait("its start", |state| state.hellos.get(&node).cloned());
    assert_eq!(words[0], "-Xmx64m");
    scene.jenkins.looked();
    scene.jenkins.go("a");
    events.until("agentGone", |_| true);
    scene.is_over();
}

// Invariant: a Jenkins whose agents cannot connect is reported with what repairs it, and has no node made.

#[test]
fn a_jenkins_whose_agent_does_not_know_drovers_options_is_reported_and_has_no_node_made() {
    let scene = scene("", "", TOKEN);
    scene.jenkins.change(|state| (state.old, state.ancient) = (true, true));
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "true");
    let reported = events.until("source", |fact| fact["source"]["refusal"].is_string());
    let text = reported["source"]["refusal"].as_str().unwrap();
    let remedy = "update Jenkins to 2.429 or LTS 2.440.1 or later, or set `launch: ssh`";
    assert!(text.contains("Jenkins 2.426.3") && text.ends_with(remedy), "{text}");
    scene.jenkins.looked();
    assert_eq!(scene.jenkins.nodes(), Vec::<String>::new());
    assert_eq!(scene.sim.guests(), Vec::<u64>::new(), "no machine is started for it");
}

// Invariant: a node takes as many builds as its template's uses, on all its executors, and no more
// once it was seen with the last of them.

#[test]
fn a_node_takes_three_builds_where_its_template_has_three_uses() {
    let scene = scene("    maxTotalUses: 3\n", "", TOKEN);
    let (_service, mut events) = scene.start();
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        scene.jenkins.pipeline(name, "linux", "wait");
        nodes.push(scene.jenkins.running(name));
        scene.jenkins.looked();
        let off = scene.jenkins.change(|state| state.nodes[&nodes[0]].off.is_some());
        assert_eq!(off, name == "c", "{name}");
        if name != "c" {
            scene.jenkins.go(name);
        }
    }
    assert!(nodes.iter().all(|node| *node == nodes[0]), "{nodes:?}");
    scene.jenkins.queue("d", "linux", "wait");
    let other = scene.jenkins.running("d");
    assert_ne!(other, nodes[0]);
    scene.jenkins.go("c");
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    scene
        .jenkins
        .wait("its node to go", |state| (!state.nodes.contains_key(&nodes[0])).then_some(()));
    scene.jenkins.go("d");
    assert_eq!(scene.jenkins.over(4).len(), 4);
}

#[test]
fn two_executors_take_two_builds_at_once_on_one_agent() {
    let scene = scene("    numExecutors: 2\n    mode: NORMAL\n", "", TOKEN);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    scene.jenkins.queue("b", "", "wait");
    let nodes = [scene.jenkins.running("a"), scene.jenkins.running("b")];
    assert_eq!(nodes[0], nodes[1]);
    let node = nodes[0].clone();
    scene.jenkins.wait("it to be shut", |state| state.nodes[&node].off.clone());
    assert_eq!(scene.jenkins.change(|state| state.made.clone()), ["drover-labels", &node]);
    scene.jenkins.go("a");
    scene.jenkins.go("b");
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    scene.is_over();
}

#[test]
fn very_short_builds_are_all_built_and_their_agents_go() {
    let scene = scene("", "idleTimeoutSec: 5", TOKEN);
    let (_service, _events) = scene.start();
    let names: Vec<String> = (0..6).map(|n| format!("b{n}")).collect();
    for name in &names {
        scene.jenkins.queue(name, "linux", "true");
    }
    let builds = scene.jenkins.over(names.len());
    let expected: Vec<(&str, Option<i64>)> =
        names.iter().map(|name| (name.as_str(), Some(0))).collect();
    assert_eq!(ended(&builds), expected);
    scene.is_over();
}

// Invariant: builds that no template offers begin nothing and are counted.

#[test]
fn builds_that_nobody_offers_are_left_alone_and_counted() {
    let scene = scene("    instanceMin: 1\n", "", TOKEN);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "windows", "true");
    scene.jenkins.queue("b", "", "true");
    scene.jenkins.queue("c", "linux && !x64", "true");
    let reported = events.until("source", |fact| fact["source"]["unoffered"] == 3);
    assert_eq!(reported["source"]["waiting"], 0, "{reported}");
    // A warm agent is a node only once a build wants it.
    assert_eq!(scene.jenkins.nodes(), Vec::<String>::new());
    scene.jenkins.queue("d", "linux", "wait");
    scene.jenkins.running("d");
    assert_eq!(scene.jenkins.nodes().len(), 1);
    scene.jenkins.go("d");
}

// Invariant: a controller that starts again costs nobody else anything, and is served when it is back.

#[test]
fn a_controller_that_is_starting_is_waited_for_and_others_are_served() {
    let scene = scene("", "", TOKEN);
    let (_service, mut events) = scene.start();
    scene.jenkins.looked();
    scene.jenkins.change(|state| state.starts = true);
    events.until("source", |fact| fact["source"]["silentSince"].is_string());
    let status = scene.site.json(&["status"])["sources"][0].to_string();
    assert!(status.contains("not ready"), "{status}");
    let lease = scene.site.cli(&["lease", "--labels", "linux", "--", "true"]);
    assert!(lease.status.success(), "{lease:?}");
    scene.jenkins.change(|state| state.starts = false);
    scene.jenkins.queue("a", "linux", "wait");
    scene.jenkins.running("a");
    scene.jenkins.go("a");
    assert_eq!(ended(&scene.jenkins.over(1)), [("a", Some(0))]);
}

#[test]
fn a_password_does_with_crumbs_also_on_older_controllers_and_where_answers_are_lost() {
    let scene = scene("", "", PASSWORD);
    scene.jenkins.change(|state| (state.old, state.loses) = (true, 1));
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    scene.jenkins.running("a");
    scene.jenkins.looked();
    scene.jenkins.go("a");
    events.until("agentGone", |_| true);
    scene.is_over();
    let calls = scene.jenkins.change(|state| state.calls.clone());
    let crumbs = calls.iter().filter(|call| call.contains("crumbIssuer")).count();
    assert_eq!(crumbs, 1, "{calls:?}");
    assert_eq!(ended(&scene.jenkins.over(1)), [("a", Some(0))]);
}

// Invariant: nodes that were left, or that somebody took, are cleared up by their exact names.

#[test]
fn a_node_that_was_made_when_drover_was_killed_is_replaced_for_the_same_guest() {
    let scene = scene("", "", TOKEN);
    scene.jenkins.change(|state| state.nodes.insert("drover-1".into(), fake::Node::default()));
    scene.jenkins.change(|state| state.holds = true);
    let (mut service, events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let name = scene.jenkins.wait("a node", |state| state.made.first().cloned());
    service.child.signal("KILL");
    service.child.wait();
    drop((events, service));
    scene.jenkins.change(|state| state.holds = false);
    let (_service, mut events) = scene.start();
    assert_eq!(scene.jenkins.running("a"), name);
    scene.jenkins.looked();
    scene.jenkins.go("a");
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    let made = scene.jenkins.wait("its node to go", |state| {
        (!state.nodes.contains_key(&name)).then(|| state.made.clone())
    });
    assert_eq!(made, [name.clone(), name], "of the same name, for the same guest");
    assert_eq!(scene.jenkins.nodes(), ["drover-1"], "another's is not touched");
}

#[test]
fn a_node_whose_machine_went_while_drover_was_down_is_removed_and_its_build_reported() {
    let scene = scene("", "", TOKEN);
    let (mut service, events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let node = scene.jenkins.running("a");
    scene.jenkins.looked();
    service.child.signal("KILL");
    service.child.wait();
    drop((events, service));
    let vmid = scene.sim.guests()[0];
    let path = format!("/nodes/{}/qemu/{vmid}", scene.sim.fact("node"));
    scene.sim.call("POST", &format!("{path}/status/stop"));
    let (_service, mut events) = scene.start();
    scene.jenkins.wait("its node to go", |state| (!state.nodes.contains_key(&node)).then_some(()));
    events.until("source", |fact| fact["source"]["runners"] == 0);
    assert_eq!(scene.jenkins.over(1)[0].exit, Some(None));
}

#[test]
fn a_node_that_somebody_deleted_takes_its_agent_with_it() {
    let scene = scene("", "", TOKEN);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let node = scene.jenkins.running("a");
    scene.jenkins.looked();
    assert!(scene.jenkins.change(|state| state.remove(&node)));
    let gone = events.until("agentGone", |_| true);
    assert_eq!(gone["agent"]["reason"], "used-up", "{gone}");
    scene.is_over();
    assert_eq!(scene.jenkins.change(|state| state.made.len()), 2, "the sign, and one node");
}

#[test]
fn a_node_that_a_person_took_off_is_left_to_them() {
    let scene = scene("    maxTotalUses: 3\n", "idleTimeoutSec: 5", TOKEN);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let node = scene.jenkins.running("a");
    scene.jenkins.looked();
    let off = "Disconnected by ann : looking at it".to_owned();
    scene.jenkins.change(|state| {
        state.nodes.get_mut(&node).unwrap().off = Some(off.clone());
    });
    scene.jenkins.go("a");
    scene.jenkins.queue("b", "linux", "wait");
    let other = scene.jenkins.running("b");
    assert_ne!(other, node, "no build for it");
    scene.jenkins.looked();
    scene.jenkins.go("b");
    // The other one has been idle for its time; this one is there still.
    events.until("agentGone", |_| true);
    scene
        .jenkins
        .wait("the other node to go", |state| (!state.nodes.contains_key(&other)).then_some(()));
    assert_eq!(scene.jenkins.change(|state| state.nodes[&node].off.clone()), Some(off));
    scene.jenkins.change(|state| state.nodes.get_mut(&node).unwrap().off = None);
    events.until("agentGone", |_| true);
    scene.is_over();
}
