//! Label mappings: labels that a list of templates serves, in its order.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{CloudId, TemplateId};
use drover_model::spec::LabelMapping;

use super::context::Context;
use super::keys::RawMapping;
use super::layer::Layer;
use super::template::CheckedTemplate;
use super::top::{ONE_HALF, other_half};

/// Makes one mapping; a template's bare name stands for it on each of its clouds.
pub(super) fn mapping(
    layer: &Layer,
    templates: &BTreeMap<String, CheckedTemplate>,
    cx: &mut Context<'_>,
) -> Option<LabelMapping> {
    let raw: RawMapping = layer.typed(&mut cx.faults)?;
    let labels: BTreeSet<String> = raw.labels.split_whitespace().map(str::to_owned).collect();
    let mut listed = Vec::new();
    for (at, name) in raw.templates.iter().enumerate() {
        let ids = named(name, templates);
        if ids.is_empty() {
            let known = templates.keys().map(String::as_str);
            let fault = layer.item_fault("templates", at, format!("unknown template `{name}`"));
            cx.faults.push(fault.known_in("agentConfigurations", name, known));
        } else if ids.iter().any(|id| listed.contains(id)) {
            let fault = layer.item_fault("templates", at, format!("`{name}` is listed twice"));
            cx.faults.push(fault.help("keep one of them"));
        } else if let Some(why) = of_other_half(layer, name, templates, cx) {
            cx.faults.push(layer.item_fault("templates", at, why).help(ONE_HALF));
        } else {
            listed.extend(ids);
        }
    }
    Some(LabelMapping { labels, priority: raw.priority, templates: listed })
}

/// Why the template of a name cannot be listed: it is in the other half of the configuration.
fn of_other_half(
    layer: &Layer,
    name: &str,
    templates: &BTreeMap<String, CheckedTemplate>,
    cx: &Context<'_>,
) -> Option<String> {
    let bare = name.rsplit('/').next().unwrap_or(name);
    let template = templates.get(bare)?;
    other_half(layer, &format!("template `{bare}`"), template.layer.place, cx)
}

/// The templates of a name: `cloud/template` is one, `template` is one on each of its clouds.
fn named(name: &str, templates: &BTreeMap<String, CheckedTemplate>) -> Vec<TemplateId> {
    let (cloud, bare) = match name.split_once('/') {
        Some((cloud, bare)) => (Some(CloudId::new(cloud)), bare),
        None => (None, name),
    };
    let specs = templates.get(bare).map(|template| template.specs.as_slice()).unwrap_or_default();
    let ids = specs.iter().map(|spec| &spec.id);
    ids.filter(|id| cloud.as_ref().is_none_or(|cloud| id.cloud == *cloud)).cloned().collect()
}
