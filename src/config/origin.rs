//! What a template's agents are cloned from and where to: keys of which one of several is given, and
//! the templates that stand in for it.

use std::collections::BTreeMap;

use drover_model::id::TemplateId;
use drover_model::template_image::Sought;
use serde_yaml::Value as Yaml;

use super::fault::Fault;
use super::layer::Layer;
use super::network;
use super::placement;
use super::template::CheckedTemplate;
use drover_api::nearest;

/// By what a template is found.
const SOUGHT: [&str; 4] = ["templateVmId", "templateName", "templateNamePattern", "templateTag"];
/// Says which of them alone counts.
const MODE: &str = "templateSelectionMode";
/// What says by what a template is found, in one way or another.
const FOUND_BY: [&str; 5] = [SOUGHT[0], SOUGHT[1], SOUGHT[2], SOUGHT[3], MODE];
/// Where its agents are to be.
const NODES: [&str; 2] = ["node", "nodes"];
/// What full clones are written to.
const STORAGES: [&str; 2] = ["targetStorage", "targetStorages"];

/// Texts for cloud-init, here or in a file.
const TEXTS: [[&str; 2]; 3] = [
    ["userData", "userDataFile"],
    ["metaData", "metaDataFile"],
    ["networkConfig", "networkConfigFile"],
];

const GROUPS: [&[&str]; 6] = [&SOUGHT, &NODES, &STORAGES, &TEXTS[0], &TEXTS[1], &TEXTS[2]];

/// Lays a layer over another; of keys that say the same in several ways, the ones above replace all
/// of those below.
pub(super) fn over(lower: &Layer, upper: &Layer) -> Layer {
    let mut lower = lower.clone();
    placement::forget_storages(&mut lower, upper);
    if !upper.nested("networks").is_empty() {
        network::REPLACED.iter().for_each(|key| lower.forget(key));
    } else if network::REPLACED.iter().any(|key| upper.has(key)) {
        lower.forget("networks");
    }
    for group in GROUPS.into_iter().filter(|group| group.iter().any(|key| upper.has(key))) {
        group.iter().for_each(|key| lower.forget(key));
    }
    lower.under(upper)
}

/// The key that alone counts, where that is said.
fn counted(layer: &Layer) -> Option<&'static str> {
    match layer.text(MODE)? {
        "STATIC_ID" => Some("templateVmId"),
        "NAME_REGEX" => Some("templateNamePattern"),
        "TAG" => Some("templateTag"),
        _ => None,
    }
}

/// Where it is said which key counts, leaves that one alone, as the first of `layers` that gives it
/// does: those of the other modes may stand anywhere, as in files of the Jenkins plugin.
pub(super) fn select<'a>(mut laid: Layer, mut layers: impl Iterator<Item = &'a Layer>) -> Layer {
    let Some(key) = counted(&laid) else { return laid };
    SOUGHT.iter().for_each(|key| laid.forget(key));
    if let Some(giver) = layers.find(|layer| layer.has(key)) {
        laid.take(key, giver);
    }
    laid
}

/// Warns of keys of a template's own that do not count.
pub(super) fn ignored(own: &Layer, layer: &Layer, warnings: &mut Vec<Fault>) {
    let Some(counted) = counted(layer) else { return };
    for key in SOUGHT.into_iter().filter(|key| *key != counted && own.has(key)) {
        let mode = layer.text(MODE).unwrap_or_default();
        let fault = own.fault(key, format!("{MODE} is {mode}, which ignores it"));
        warnings.push(fault.help(format!("take it out, or change {MODE}")));
    }
}

/// Keys that say the same as this one in another way.
pub(super) fn instead_of(key: &str) -> &'static [&'static str] {
    if SOUGHT.contains(&key) {
        return &FOUND_BY;
    }
    GROUPS.into_iter().find(|group| group.contains(&key)).unwrap_or_default()
}

/// By what the template is found, when that is not its VMID; and what contradicts or is missing.
pub(super) fn search(layer: &Layer, faults: &mut Vec<Fault>) -> Option<Sought> {
    for group in GROUPS {
        let given: Vec<&str> = group.iter().copied().filter(|key| layer.has(key)).collect();
        if let [_, second, ..] = given[..] {
            let message = format!("{} contradict", given.join(" and "));
            faults.push(layer.fault(second, message).help("keep one of them"));
        }
    }
    if let Some(key) = counted(layer).filter(|key| !layer.has(key)) {
        let mode = layer.text(MODE).unwrap_or_default();
        let key = if key == "templateNamePattern" { "templateNameRegex" } else { key };
        let fault = layer.fault(MODE, format!("{mode} needs `{key}`, which is missing"));
        faults.push(fault.help(format!("add `{key}:`, or take {MODE} out")));
    } else if !SOUGHT.iter().any(|key| layer.has(key)) {
        let fault = layer.fault(SOUGHT[0], "`templateVmId` is missing");
        faults.push(fault.help(
            "add `templateVmId:`, VMID of the template; or templateName, templateNamePattern or \
             templateTag, by which it is looked up",
        ));
    }
    let text = |key: &str| layer.text(key).map(str::to_owned);
    let by_name = text("templateName").map(Sought::Name);
    let by_pattern = || text("templateNamePattern").map(Sought::Pattern);
    let by_tag = || text("templateTag").map(|tag| Sought::Tag(tag.to_ascii_lowercase()));
    by_name.or_else(by_pattern).or_else(by_tag)
}

/// Gives each template those that stand in for it, on the clouds that both are on.
pub(super) fn fallbacks(
    templates: &mut BTreeMap<String, CheckedTemplate>,
    faults: &mut Vec<Fault>,
) {
    const KEY: &str = "fallbackTemplates";
    let on: BTreeMap<String, Vec<TemplateId>> = templates
        .iter()
        .map(|(name, one)| (name.clone(), one.specs.iter().map(|spec| spec.id.clone()).collect()))
        .collect();
    for (own, template) in templates.iter_mut() {
        let listed = template.layer.get(KEY).and_then(Yaml::as_sequence).cloned();
        let names = listed.into_iter().flatten();
        let names: Vec<String> =
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        for (at, name) in names.iter().enumerate() {
            let fault = |message: String| template.layer.item_fault(KEY, at, message);
            let Some(ids) = on.get(name) else {
                let known = on.keys().filter(|other| *other != own).map(String::as_str);
                let unknown = fault(format!("no template is called `{name}`"));
                faults.push(match nearest(name, known) {
                    Some(near) => unknown.help(format!("did you mean `{near}`?")),
                    None => unknown.help("name a key of agentConfigurations"),
                });
                continue;
            };
            if name == own || names[..at].contains(name) {
                let why = if name == own { "is the template itself" } else { "is listed twice" };
                faults.push(fault(format!("`{name}` {why}")).help("take it out"));
                continue;
            }
            let mut shared = false;
            for spec in &mut template.specs {
                let there = ids.iter().find(|id| id.cloud == spec.id.cloud);
                shared |= there.is_some();
                spec.fallbacks.extend(there.cloned());
            }
            if !shared && !template.specs.is_empty() && !ids.is_empty() {
                let alone = fault(format!("`{name}` is on none of this template's clouds"));
                faults.push(alone.help("add one of them to its cloudIds"));
            }
        }
    }
}
