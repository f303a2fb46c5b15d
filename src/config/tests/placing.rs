//! Where agents are put and how big they are: what clouds and templates say together.

use drover_actors::id::{CloudId, NodeName, TemplateId};
use drover_actors::placement::Thickness;
use insta::assert_snapshot;

use super::*;

fn spec(checked: &Checked) -> drover_actors::spec::TemplateSpec {
    (*checked.herd.templates[&TemplateId::new(CloudId::new("c"), "a")]).clone()
}

/// An agent with these lines on a cloud with these.
fn with_both(cloud: &str, agent: &str) -> String {
    let text = with_agent(agent);
    text.replace(
        "{name: C, credentialsId: api}",
        &format!("{{name: C, credentialsId: api, {cloud}}}"),
    )
}

// Invariant: a size fills what is not said otherwise, named or written out.

#[test]
fn a_size_fills_what_is_left_to_it() {
    let scene = Scene::new();
    let sizes = "sizes: {large: {cpu: 8, memory: 16384}}\n";
    let named = with_agent("size: large\ncores: 2") + sizes;
    let of = |text: &str| {
        let spec = spec(&scene.good(text));
        (spec.cores, spec.memory_mb, spec.disk_gb)
    };
    assert_eq!(of(&named), (Some(2), Some(16_384), None));
    assert_eq!(of(&with_agent("size: \"memory:512, disk:9\"")), (None, Some(512), Some(9)));
    let faults: Vec<String> =
        ["huge", "\"cpu:x\"", "\"gpu:1\"", "\"cpu:1,cpu:2\"", "\"cpu:0\"", "larg"]
            .map(|size| {
                let text = with_agent(&format!("size: {size}")) + sizes;
                let faults = scene.faults(&text);
                let told = |line: &&str| {
                    line.contains("size") || line.contains("help") || line.contains("cpu")
                };
                faults.lines().filter(told).collect::<Vec<_>>().join("\n")
            })
            .into();
    assert_snapshot!(faults.join("\n"));
}

// Invariant: what a template wants of a cloud is there, or is a fault with what is.

#[test]
fn labels_and_classes_are_the_clouds() {
    let scene = Scene::new();
    let cloud =
        "zone: dc2, nodeLabels: {pve1: [ssd, gpu], pve2: [gpu]}, storageClasses: {fast: [nvme]}";
    let spec = spec(&scene.good(&with_both(cloud, "nodeSelector: [ssd]\nstorageClass: fast")));
    assert!(spec.placement.anywhere && spec.labels.contains("zone:dc2"));
    assert_eq!(spec.placement.labels.into_keys().collect::<Vec<_>>(), [NodeName::new("pve1")]);
    assert_eq!((spec.storages, spec.placement.thickness), (vec!["nvme".to_owned()], None));
    let wrong = "nodeSelector: [nvidia]\nstorageClass: fats\nplacementWeights: {memory: 0, cpu: 0}\n\
                 affinity: [{key: a}, {key: b, operator: Exists, values: [c]}]\nnodes: [\"*\", pve1]";
    assert_snapshot!(scene.faults(&with_both(cloud, wrong)));
}

#[test]
fn every_node_is_meant_by_a_star_and_by_a_selector_without_nodes() {
    let scene = Scene::new();
    let cloud = "nodeLabels: {pve1: [ssd]}";
    let anywhere = |agent: &str| spec(&scene.good(&with_both(cloud, agent))).placement.anywhere;
    assert!(anywhere("nodes: [\"*\"]") && anywhere("nodeSelector: [ssd]"));
    for agent in ["node: pve1\nnodeSelector: [ssd]", "nodes: [pve1]", "placement: SPREAD"] {
        assert!(!anywhere(agent), "{agent}");
    }
    let thin = spec(&scene.good(&with_agent("storageClass: thin"))).placement.thickness;
    assert_eq!(thin, Some(Thickness::Thin));
}
