//! Where agents are put and how big they are: what clouds and templates say together.

use drover_model::id::NodeName;
use drover_model::placement::Thickness;
use insta::assert_snapshot;

use super::*;

fn spec(checked: &Checked) -> TemplateSpec {
    template(checked, "a").clone()
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
                let reported = |line: &&str| {
                    line.contains("size") || line.contains("help") || line.contains("cpu")
                };
                faults.lines().filter(reported).collect::<Vec<_>>().join("\n")
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
    for agent in [
        "node: pve1\nnodeSelector: [ssd]",
        "nodes: [pve1]",
        "preferredNodes: [pve1]",
        "placement: SPREAD",
    ] {
        assert!(!anywhere(agent), "{agent}");
    }
    let thin = spec(&scene.good(&with_agent("storageClass: thin"))).placement.thickness;
    assert_eq!(thin, Some(Thickness::Thin));
}

// Invariant: preferred nodes go beyond the nodes of the template where no node is named, and there
// alone.

#[test]
fn preferred_nodes_open_others_only_where_no_node_is_named() {
    let scene = Scene::new();
    let preferred = "preferredNodes: [pve2]";
    let roams = |agent: &str| spec(&scene.good(&with_agent(agent))).roams();
    assert!(roams(preferred) && roams("nodes: [\"*\"]"));
    for agent in ["node: pve1", "nodes: [pve1, pve2]"] {
        assert!(!roams(&format!("{preferred}\n{agent}")), "{agent}");
    }
    assert!(!roams("preferredNodes: []"));
}

// Invariant: unused weights are a warning, except those for other templates.

#[test]
fn weights_that_the_placement_does_not_use_are_warned_about() {
    let scene = Scene::new();
    let warnings = |agent: &str, defaults: &str| {
        let text = with_agent(agent);
        let text = text.replace("agentDefaults:\n", &format!("agentDefaults:\n{defaults}"));
        scene.good(&text).rendered_warnings()
    };
    assert_snapshot!(warnings("placement: SPREAD\nplacementWeights: {memory: 70}", ""));
    let both = "  placement: PACK\n  placementWeights: {cpu: 1}\n";
    let reported = "agentDefaults.placementWeights: placement PACK does not use them";
    assert!(warnings("cores: 1", both).contains(reported));
    let reported = "a.placementWeights: placement FIXED does not use them";
    assert!(warnings("placementWeights: {cpu: 1}", "  placement: FIXED\n").contains(reported));
    for (agent, defaults) in [
        ("placementWeights: {memory: 70}", ""),
        ("placement: TOPSIS", both),
        ("placement: SPREAD", "  placementWeights: {cpu: 1}\n"),
        ("placement: SPREAD", ""),
    ] {
        assert_eq!(warnings(agent, defaults), "", "{agent} {defaults}");
    }
}

// Invariant: memory is MiB, or what its unit says; what is neither is refused with what is allowed.

#[test]
fn memory_that_must_stay_free_is_read_as_kubernetes_writes_it() {
    let scene = Scene::new();
    let free = |written: &str| format!("minFreeMemory: {written}");
    for (written, mebibytes) in [
        ("4096", 4096),
        ("\"4Gi\"", 4096),
        ("4Gi", 4096),
        ("512Mi", 512),
        ("4194304Ki", 4096),
        ("1Ki", 1),
        ("64Ti", 67_108_864),
        ("0Gi", 0),
    ] {
        let checked = scene.good(&with_agent(&free(written)));
        assert_eq!(spec(&checked).placement.min_free_mb, mebibytes, "{written}");
    }
    for wrong in ["4G", "4GiB", "4 Gi", "-4Gi", "1.5Gi", "Gi", "\"4096\"", "true"] {
        let reported = scene.faults(&with_agent(&free(wrong)));
        assert!(reported.contains("` is not an amount of memory"), "{wrong}: {reported}");
        assert!(reported.contains("with Ki, Mi, Gi or Ti, such as `4Gi`"), "{wrong}: {reported}");
    }
    let huge = format!("{}Ti", u128::MAX);
    for outside in ["65Ti", "67108865", "-1", huge.as_str()] {
        let reported = scene.faults(&with_agent(&free(outside)));
        assert!(reported.contains(&format!("`{outside}` is out of range")), "{reported}");
    }
}
