//! A Jenkins that makes no nodes, and the node by which it names the labels that builds wait for.

use serde_json::Value;

use super::door::TOKEN;
use super::fake::{Fake, Node};
use super::{Scene, ended, scene};

/// The node by which it names labels.
const SIGN: &str = "drover-labels";

/// What is reported why no runner can be made.
fn refusal(fact: &Value) -> &str {
    fact["source"]["refusal"].as_str().unwrap_or_default()
}

// Invariant: a Jenkins that makes no nodes is reported with why, costs no machine, and is served as soon as it
// makes some.

#[test]
fn a_jenkins_that_makes_no_nodes_is_reported_with_why_and_is_served_once_it_does() {
    let scene = scene("", "", TOKEN);
    scene.jenkins.change(|state| state.denies = true);
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "wait");
    let lacks = "403: the login needs `Agent/Create`";
    let reported = events.until("source", |fact| refusal(fact).ends_with(lacks));
    assert!(reported["source"]["refusedSince"].is_string(), "{reported}");
    let said = |args: &[&str]| String::from_utf8(scene.site.cli(args).stdout).unwrap();
    for args in [&["status"][..], &["why", "ci"][..]] {
        let said = said(args);
        assert!(said.contains("may not register runners since ") && said.contains(lacks), "{said}");
    }
    // The build itself says so, too.
    for (args, state) in [(&["jobs"][..], " unread "), (&["why", "a"][..], "it is unread: ")] {
        let said = said(args);
        let cause = "cannot make node `drover-labels`, without which Jenkins does";
        let has = |text: &str| said.contains(text);
        assert!(has(state) && has(cause) && has(lacks), "{said}");
    }
    scene.jenkins.looked();
    assert_eq!(scene.sim.guests(), Vec::<u64>::new(), "no machine is started for it");
    scene.jenkins.change(|state| state.denies = false);
    events.until("source", |fact| refusal(fact).is_empty());
    scene.jenkins.running("a");
    scene.jenkins.go("a");
    assert_eq!(ended(&scene.jenkins.over(1)), [("a", Some(0))]);
}

#[test]
fn a_jenkins_that_is_too_old_to_make_nodes_is_reported_with_its_version_and_the_least_one() {
    let scene = scene("", "", TOKEN);
    scene.jenkins.change(|state| (state.old, state.formless) = (true, true));
    let (_service, mut events) = scene.start();
    scene.jenkins.queue("a", "linux", "true");
    let reported = events.until("source", |fact| !refusal(fact).is_empty());
    let text = refusal(&reported);
    assert!(text.contains("this is Jenkins 2.528.3"), "{text}");
    assert!(text.ends_with("update it to 2.539 or LTS 2.541.1 or later"), "{text}");
}

#[test]
fn doctor_says_whether_nodes_can_be_made_and_makes_none() {
    let scene = scene("", "", TOKEN);
    scene.jenkins.queue("a", "linux", "true");
    let config = scene.site.config().display().to_string();
    let doctored = || {
        let out = scene.site.cli(&["--config", &config, "doctor", "--source", "ci"]);
        (String::from_utf8(out.stdout).unwrap(), out.status.success())
    };
    let (text, is_well) = doctored();
    assert!(is_well && text.contains("ok    version: Jenkins 2.579\n"), "{text}");
    assert!(text.contains("ok    making nodes: the login may\n"), "{text}");
    scene.jenkins.change(|state| (state.old, state.denies) = (true, true));
    let (text, is_well) = doctored();
    assert!(!is_well && text.contains("warn  version: Jenkins 2.528.3 cannot"), "{text}");
    let lacks = "fail  making nodes: the login may not: it lacks Agent/Create\n";
    assert!(text.contains(lacks), "{text}");
    let calls = scene.jenkins.change(|state| state.calls.clone());
    assert!(calls.iter().all(|call| call.starts_with("GET ")), "nothing is changed: {calls:?}");
}

/// The YAML without sources, and the sources.
fn parts(scene: &Scene) -> (String, String) {
    let yaml = std::fs::read_to_string(scene.site.config()).unwrap();
    let (rest, sources) = yaml.split_once("demand:\n").unwrap();
    (rest.to_owned(), sources.to_owned())
}

fn configure(scene: &Scene, yaml: &str) {
    scene.site.write_yaml(yaml);
    let out = scene.site.cli(&["reload"]);
    assert!(out.status.success(), "{out:?}");
}

fn has_sign(jenkins: &Fake) -> bool {
    jenkins.change(|state| state.nodes.contains_key(SIGN))
}

fn waits_for_sign(jenkins: &Fake) {
    jenkins.wait("the sign", |state| state.nodes.contains_key(SIGN).then_some(()));
}

fn waits_for_its_end(jenkins: &Fake) {
    jenkins.wait("the end of the sign", |state| (!state.nodes.contains_key(SIGN)).then_some(()));
}

// Invariant: the sign goes with the last source of its Jenkins, whichever start of drover made it.

#[test]
fn the_sign_stays_while_another_source_is_at_its_jenkins_and_goes_with_the_last_one() {
    let scene = scene("", "", TOKEN);
    let (_service, mut events) = scene.start();
    let (rest, first) = parts(&scene);
    let second = first.replace("  ci:\n", "  also:\n");
    configure(&scene, &format!("{rest}demand:\n{first}{second}"));
    scene.jenkins.queue("a", "windows", "true");
    waits_for_sign(&scene.jenkins);
    configure(&scene, &format!("{rest}demand:\n{first}"));
    events.until("sourceGone", |fact| fact["source"] == "also");
    scene.jenkins.looked();
    let calls = scene.jenkins.change(|state| state.calls.clone());
    let removals = calls.iter().filter(|call| call.ends_with("/drover-labels/doDelete")).count();
    assert!(has_sign(&scene.jenkins) && removals == 0, "it is the other's, too: {calls:?}");
    configure(&scene, &rest);
    waits_for_its_end(&scene.jenkins);
}

#[test]
fn a_sign_that_an_earlier_start_made_goes_with_its_source() {
    let scene = scene("", "", TOKEN);
    scene.jenkins.change(|state| state.nodes.insert(SIGN.into(), Node::default()));
    let (_service, _events) = scene.start();
    scene.jenkins.looked();
    assert!(has_sign(&scene.jenkins), "its source is there");
    configure(&scene, &parts(&scene).0);
    waits_for_its_end(&scene.jenkins);
}

#[test]
fn the_sign_goes_when_its_source_moves_to_another_jenkins() {
    let scene = scene("", "", TOKEN);
    let (_service, _events) = scene.start();
    scene.jenkins.queue("a", "windows", "true");
    waits_for_sign(&scene.jenkins);
    let other = Fake::start();
    let (rest, sources) = parts(&scene);
    let moved = sources.replace(&scene.jenkins.url, &other.url);
    configure(&scene, &format!("{rest}demand:\n{moved}"));
    waits_for_its_end(&scene.jenkins);
}
