//! The template image, nodes and storages of a template, for which several keys exist, and its
//! fallback templates.
//!
//! One key of several ways in an upper layer replaces all of them below; two in one layer are a fault
//! (`Table::ways`). `templateSelectionMode` is the exception: it says which key counts, and the
//! others may stand anywhere, as in files of the Jenkins plugin.

use std::collections::BTreeMap;

use drover_model::id::TemplateId;
use drover_model::template_image::Sought;
use serde_yaml::Value as Yaml;

use super::container;
use super::fault::Fault;
use super::keys::{AGENT, SELECTION, SOUGHT};
use super::layer::Layer;
use super::network;
use super::placement;
use super::template::CheckedTemplate;

/// The key that says which of them counts.
const MODE: &str = "templateSelectionMode";
/// All keys about it.
const FOUND_BY: [&str; 7] =
    [SOUGHT[0], SOUGHT[1], SOUGHT[2], SOUGHT[3], SOUGHT[4], SOUGHT[5], MODE];

/// Merges two layers. Beside the ways of the table, cards and classes of storages in the upper one
/// replace other keys below.
pub(super) fn overlaid(lower: &Layer, upper: &Layer) -> Layer {
    let mut lower = lower.clone();
    placement::forget_storages(&mut lower, upper);
    if !upper.nested("networks").is_empty() {
        network::REPLACED.iter().for_each(|key| lower.forget(key));
    } else if network::REPLACED.iter().any(|key| upper.has(key)) {
        lower.forget("networks");
    }
    lower.overlaid(upper)
}

/// The key that counts by `templateSelectionMode`.
fn counted(layer: &Layer) -> Option<&'static str> {
    let mode = layer.text(MODE)?;
    SELECTION.iter().find(|(word, _)| *word == mode).map(|(_, key)| *key)
}

/// With a `templateSelectionMode`, keeps only the key that counts, from the first of `layers` that
/// has it.
pub(super) fn select<'a>(mut merged: Layer, mut layers: impl Iterator<Item = &'a Layer>) -> Layer {
    let Some(key) = counted(&merged) else { return merged };
    SOUGHT.iter().for_each(|key| merged.forget(key));
    if let Some(giver) = layers.find(|layer| layer.has(key)) {
        merged.take(key, giver);
    }
    merged
}

/// Warns of the template's own keys that do not count.
pub(super) fn warn_ignored(own: &Layer, layer: &Layer, warnings: &mut Vec<Fault>) {
    let Some(counted) = counted(layer) else { return };
    for key in SOUGHT.into_iter().filter(|key| *key != counted && own.has(key)) {
        let mode = layer.text(MODE).unwrap_or_default();
        let fault = own.fault(key, format!("{MODE} is {mode}, which ignores it"));
        warnings.push(fault.help(format!("remove it, or change {MODE}")));
    }
}

/// The keys that one key replaces.
pub(super) fn group_of(key: &str) -> &'static [&'static str] {
    if SOUGHT.contains(&key) {
        return &FOUND_BY;
    }
    AGENT.ways.iter().find(|ways| ways.contains(&key)).copied().unwrap_or_default()
}

/// How the template image is found, when not by its VMID; a fault of missing keys.
pub(super) fn search(layer: &Layer, faults: &mut Vec<Fault>) -> Option<Sought> {
    if let Some(key) = counted(layer).filter(|key| !layer.has(key)) {
        let mode = layer.text(MODE).unwrap_or_default();
        let key = if key == "templateNamePattern" { "templateNameRegex" } else { key };
        let fault = layer.fault(MODE, format!("{mode} needs `{key}`, which is missing"));
        faults.push(fault.help(format!("add `{key}:`, or remove {MODE}")));
    } else if !SOUGHT.iter().any(|key| layer.has(key)) {
        let fault = layer.fault(SOUGHT[0], "`templateVmId` is missing");
        faults.push(fault.help(if container::is_container(layer) {
            "add `templateVmId:`, the VMID of a container's template; or templateName, \
             templateNamePattern, templateTag or osTemplate"
        } else {
            "add `templateVmId:`, the VMID of the template image; or templateName, \
             templateNamePattern, templateTag or image"
        }));
    }
    let text = |key: &str| layer.text(key).map(str::to_owned);
    let by_name = text("templateName").map(Sought::Name);
    let by_pattern = || text("templateNamePattern").map(Sought::Pattern);
    let by_tag = || text("templateTag").map(|tag| Sought::Tag(tag.to_ascii_lowercase()));
    let by_image = || text("image").map(Sought::Image);
    by_name.or_else(by_pattern).or_else(by_tag).or_else(by_image)
}

/// Gives each template its fallback templates, on the clouds that both are on.
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
                let help = "name a key of agentConfigurations";
                faults.push(fault(format!("unknown template `{name}`")).nearest(name, known, help));
                continue;
            };
            if name == own || names[..at].contains(name) {
                let why = if name == own { "is the template itself" } else { "is listed twice" };
                faults.push(fault(format!("`{name}` {why}")).help("remove it"));
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
