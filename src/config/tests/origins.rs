//! What templates are cloned from: one of several keys, layers above those below, and stand-ins.

use drover_model::id::{CloudId, TemplateId, VmId};
use drover_model::template_image::Sought;
use insta::assert_snapshot;

use super::*;

// Invariant: what a layer says replaces every other way to say it below; in one layer they
// contradict.

#[test]
fn a_layer_above_replaces_all_ways_to_say_it() {
    let scene = Scene::new();
    let text = with_agent("templateTag: golden\nnodes: [pve1, pve2]\ntargetStorages: [nfs]")
        .replace("agentDefaults:\n", "agentDefaults:\n  node: pve9\n  targetStorage: lvm\n");
    let spec = template(&scene.good(&text), "a").clone();
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
fn patterns_and_names_that_cannot_be_are_shown() {
    let keys = "templateNamePattern: \"debian-(\"";
    let text = Scene::new().faults(&with_agent(keys));
    assert!(text.contains("`debian-(` is not a regular expression"), "{text}");
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
    assert_eq!(template(&scene.good(&text), "a").fallbacks, [stands_in]);
    let wrong = text.replace("[b]", "[a, b, b, bb]");
    assert_snapshot!(scene.faults(&wrong));
}

// Invariant: `templateSelectionMode` means what it means to the Jenkins plugin "Proxmox Cloud": its
// own key counts, wherever that is given, and those of the other modes are ignored
// (jenkinsci/proxmox-cloud-plugin b1ee0117, `config/ProxmoxConfigLoader.java`).

#[test]
fn the_plugins_selection_mode_says_which_key_counts() {
    let scene = Scene::new();
    let sought = |keys: &str, defaults: &str| {
        let text = with_agent(keys)
            .replace("agentDefaults:\n", &format!("agentDefaults:\n  {defaults}\n"));
        template(&scene.good(&text), "a").sought()
    };
    let regex = "templateNameRegex: 'agent-.*'";
    let mode = |mode: &str, more: &str| format!("templateSelectionMode: {mode}\n{more}");
    assert_eq!(sought(&mode("STATIC_ID", regex), "vlan: 0"), Sought::Id(VmId(9000)));
    assert_eq!(sought(&mode("NAME_REGEX", regex), "vlan: 0"), Sought::Pattern("agent-.*".into()));
    // What an upper layer says beside it takes nothing away from a lower one.
    let tag = mode("TAG", "templateNamePattern: x");
    assert_eq!(sought(&tag, "templateTag: Golden"), Sought::Tag("golden".into()));
    let inherited = "templateSelectionMode: TAG\n  templateTag: golden";
    assert_eq!(sought("templateVmId: 9001", inherited), Sought::Tag("golden".into()));
    let without = with_agent("templateSelectionMode:").replace("templateVmId: 9000", "vlan: 0");
    assert!(scene.faults(&without).contains("`templateVmId` is missing"));
}

#[test]
fn a_mode_without_its_key_and_keys_that_it_ignores_are_reported() {
    let scene = Scene::new();
    let lacks = scene.faults(&with_agent("templateSelectionMode: NAME_REGEX\ntemplateTag: golden"));
    assert!(lacks.contains("NAME_REGEX needs `templateNameRegex`, which is missing"), "{lacks}");
    assert!(!lacks.contains("contradict"), "{lacks}");
    let both = with_agent("templateSelectionMode: TAG\ntemplateTag: golden\ntemplateVmId: 9001");
    let warnings = scene.good(&both).rendered_warnings();
    assert!(warnings.contains("templateSelectionMode is TAG, which ignores it"), "{warnings}");
    assert_eq!(warnings.matches("which ignores it").count(), 1, "the defaults are for others too");
    let twice = with_agent("templateNameRegex: a\ntemplateNamePattern: b");
    let text = scene.faults(&twice);
    assert!(text.contains("is already given as `templateNameRegex`"), "{text}");
}

#[test]
fn the_plugins_bridge_is_the_bridge_of_the_first_card() {
    let scene = Scene::new();
    let given = template(&scene.good(&with_agent("networkBridge: vmbr7")), "a").clone();
    assert_eq!(given.network.bridge.as_deref(), Some("vmbr7"));
    let blank = template(&scene.good(&with_agent("networkBridge: \"\"")), "a").clone();
    assert_eq!(blank.network.bridge, None);
}
