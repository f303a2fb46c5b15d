//! Label mappings: labels that a list of templates serves, in its order.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::{CloudId, TemplateId};
use drover_model::spec::LabelMapping;
use serde::Deserialize;

use super::fault::Fault;
use super::keys::MAPPING;
use super::layer::Layer;
use super::template::CheckedTemplate;
use drover_api::nearest;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawMapping {
    labels: String,
    priority: i64,
    templates: Vec<String>,
}

/// Makes one mapping; a template's bare name stands for it on each of its clouds.
pub(super) fn mapping(
    layer: &Layer,
    templates: &BTreeMap<String, CheckedTemplate>,
    faults: &mut Vec<Fault>,
) -> Option<LabelMapping> {
    let raw: RawMapping = layer.typed(MAPPING, faults)?;
    let labels: BTreeSet<String> = raw.labels.split_whitespace().map(str::to_owned).collect();
    if labels.is_empty() && layer.has("labels") && !layer.is_faulty("labels") {
        let fault = layer.fault("labels", "no label is given");
        faults.push(fault.help("give at least one; demand without labels is never mapped"));
    }
    if raw.templates.is_empty() && layer.has("templates") && !layer.is_faulty("templates") {
        let fault = layer.fault("templates", "no template is listed");
        faults.push(fault.help("list at least one key of agentConfigurations"));
    }
    let mut listed = Vec::new();
    for (at, name) in raw.templates.iter().enumerate() {
        let ids = named(name, templates);
        if ids.is_empty() {
            let known = || templates.keys().map(String::as_str);
            let fault =
                layer.item_fault("templates", at, format!("no template is called `{name}`"));
            faults.push(match nearest(name, known()) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => {
                    let all = known().collect::<Vec<_>>().join(", ");
                    fault.help(format!("known in agentConfigurations: {all}"))
                }
            });
        } else if ids.iter().any(|id| listed.contains(id)) {
            let fault = layer.item_fault("templates", at, format!("`{name}` is listed twice"));
            faults.push(fault.help("keep one of them"));
        } else {
            listed.extend(ids);
        }
    }
    Some(LabelMapping { labels, priority: raw.priority, templates: listed })
}

/// The templates a name stands for: `cloud/template` one, `template` each of its clouds in order.
fn named(name: &str, templates: &BTreeMap<String, CheckedTemplate>) -> Vec<TemplateId> {
    let (cloud, bare) = match name.split_once('/') {
        Some((cloud, bare)) => (Some(CloudId::new(cloud)), bare),
        None => (None, name),
    };
    let specs = templates.get(bare).map(|template| template.specs.as_slice()).unwrap_or_default();
    let ids = specs.iter().map(|spec| &spec.id);
    ids.filter(|id| cloud.as_ref().is_none_or(|cloud| id.cloud == *cloud)).cloned().collect()
}
