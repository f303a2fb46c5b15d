//! What counts as another version of something after an edit, and what does not.

use std::sync::Arc;

use drover_model::id::{Generation, SourceId};
use drover_model::spec::HerdSpec;

use super::*;

// Invariant: a reload leaves what did not change untouched, generation included.

#[test]
fn only_what_changed_looks_new_after_a_reload() {
    let scene = Scene::new();
    let text = |cores: u32| with("agentConfigurations", &format!("b: {{cores: {cores}}}"));
    let mut first = scene.good(&text(2));
    first.follow(&HerdSpec::default(), Generation(1));
    let mut second = scene.good(&text(3));
    second.follow(&first.herd, Generation(2));
    let same = |name: &str| {
        let id = TemplateId::new(CloudId::new("c"), name);
        Arc::ptr_eq(&first.herd.templates[&id], &second.herd.templates[&id])
    };
    assert_eq!(second.herd.generation, Generation(2));
    assert!(same("a") && !same("b"));
    assert_eq!(template(&second, "a").generation, Generation(1));
    assert_eq!(template(&second, "b").generation, Generation(2));
    let cloud = CloudId::new("c");
    assert!(Arc::ptr_eq(&first.herd.clouds[&cloud], &second.herd.clouds[&cloud]));
}

#[test]
fn another_secret_changes_the_connection_of_its_cloud() {
    let scene = Scene::new();
    let number =
        |scene: &Scene| scene.good(&with_cloud("{}")).herd.clouds[&CloudId::new("c")].connection;
    let before = number(&scene);
    assert_eq!(before, number(&scene));
    scene.put("token", 0o600, "another");
    assert_ne!(before, number(&scene));
}

// Invariant: where a source is changes with its URL and scope, and with nothing else.

#[test]
fn another_url_or_scope_is_another_place_and_another_login_is_not() {
    let scene = Scene::new();
    let source = |keys: &str| {
        let lan = format!("lan: {{kind: gitea, credentialsId: git, {keys}}}");
        scene.good(&with("demand", &lan)).herd.sources[&SourceId::new("lan")].as_ref().clone()
    };
    let place = |keys: &str| source(keys).place;
    let here = place("url: \"https://git.lan/ci\"");
    assert_ne!(here, place("url: \"https://git2.lan/ci\""));
    assert_ne!(here, place("url: \"https://git.lan/ci\", scope: org/o"));
    assert_eq!(here, place("url: \"https://git.lan/ci/\", pollSeconds: 3, ignoreSslErrors: true"));
    let [one, two] =
        ["ci", "other"].map(|path| source(&format!("url: \"https://git.lan/{path}\"")));
    assert_ne!(one.connection, two.connection);
    scene.put("git", 0o600, "another token\n");
    assert_eq!(here, place("url: \"https://git.lan/ci\""));
}

// Invariant: the system is part of what makes another version of a template.

#[test]
fn another_system_is_another_version() {
    let scene = Scene::new();
    let version = |lines: &str| {
        let windows = format!("osType: WINDOWS\nremoteFs: 'C:\\ci'\n{lines}");
        template(&scene.good(&with_agent(&windows)), "a").version()
    };
    assert_ne!(version("cores: 1"), version("windowsLoginShell: CMD\ncores: 1"));
}

// Invariant: preferred nodes go beyond the nodes of the template where no node is named, and there
// alone.

#[test]
fn preferred_nodes_open_others_only_where_no_node_is_named() {
    let scene = Scene::new();
    let preferred = "preferredNodes: [pve2]";
    let roams = |agent: &str| template(&scene.good(&with_agent(agent)), "a").roams();
    assert!(roams(preferred) && roams("nodes: [\"*\"]"));
    for agent in ["node: pve1", "nodes: [pve1, pve2]"] {
        assert!(!roams(&format!("{preferred}\n{agent}")), "{agent}");
    }
    assert!(!roams("preferredNodes: []"));
}

// Invariant: a file for guests is known by its hash alone.

#[test]
fn another_content_of_an_upload_is_another_hash_and_nothing_else_shows_it() {
    let scene = Scene::new();
    let read = |content: &str| {
        scene.put("ci.conf", 0o644, content);
        scene.good(&with_agent("prepare: [{upload: {from: ci.conf, to: /etc/ci.conf}}]"))
    };
    let checked = read("retries = 3\n");
    // As `sha256sum` says.
    let hash = "40f64227c4531d0bf37c3fdcfcdf871fc6a7504aec05115bd6428ea9528bb621";
    let contents: Vec<(&str, &[u8])> =
        checked.uploads.iter().map(|(sha256, bytes)| (sha256, bytes.as_ref())).collect();
    assert_eq!(contents, [(hash, b"retries = 3\n".as_slice())]);
    let written = serde_json::to_string(template(&checked, "a")).unwrap();
    for shown in [format!("{checked:?}"), written] {
        assert!(!shown.contains("retries") && shown.contains(hash), "{shown}");
    }
    assert!(!read("retries = 4\n").uploads.iter().any(|(sha256, _)| sha256 == hash));
}
