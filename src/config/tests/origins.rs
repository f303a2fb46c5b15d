//! What templates are cloned from: one of several keys, layers above those below, and stand-ins.

use drover_actors::id::{CloudId, TemplateId};
use drover_actors::source::Sought;
use insta::assert_snapshot;

use super::*;

fn spec(checked: &Checked, name: &str) -> drover_actors::spec::TemplateSpec {
    (*checked.herd.templates[&TemplateId::new(CloudId::new("c"), name)]).clone()
}

// Invariant: what a layer says replaces every other way to say it below; in one layer they contradict.

#[test]
fn a_layer_above_replaces_all_ways_to_say_it() {
    let scene = Scene::new();
    let text = with_agent("templateTag: golden\nnodes: [pve1, pve2]\ntargetStorages: [nfs]")
        .replace("agentDefaults:\n", "agentDefaults:\n  node: pve9\n  targetStorage: lvm\n");
    let spec = spec(&scene.good(&text), "a");
    assert_eq!(spec.sought(), Sought::Tag("golden".into()));
    assert_eq!((spec.node, spec.nodes.len()), (None, 2));
    assert_eq!((spec.target_storage, spec.storages), (None, vec!["nfs".to_owned()]));
}

#[test]
fn ways_that_contradict_are_shown() {
    let keys = "templateVmId: 9001\ntemplateName: debian\nnode: pve1\nnodes: [pve2]\n\
                targetStorage: lvm\ntargetStorages: [nfs]";
    assert_snapshot!(Scene::new().faults(&with_agent(keys)));
}

#[test]
fn patterns_and_names_that_can_not_be_are_shown() {
    let keys = "templateNamePattern: \"debian-(\"";
    let text = Scene::new().faults(&with_agent(keys));
    assert!(text.contains("`debian-(` is no regular expression"), "{text}");
    assert!(text.contains("it must match whole names"), "{text}");
    let blank = Scene::new().faults(&with_agent("templateName: \" \""));
    assert!(blank.contains("the text is blank"), "{blank}");
}

// Invariant: who stands in is another template of the same cloud.

#[test]
fn stand_ins_are_other_templates_of_the_same_cloud() {
    let scene = Scene::new();
    let text = with_agent("fallbackTemplates: [b]")
        .replace("agentConfigurations:\n", "agentConfigurations:\n  b: {labelString: other}\n");
    let stands_in = TemplateId::new(CloudId::new("c"), "b");
    assert_eq!(spec(&scene.good(&text), "a").fallbacks, [stands_in]);
    let wrong = text.replace("[b]", "[a, b, b, bb]");
    assert_snapshot!(scene.faults(&wrong));
}
