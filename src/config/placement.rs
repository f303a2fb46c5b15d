//! Placement and size of agents: what templates and clouds say about nodes, storages and resources.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::NodeName;
use drover_model::placement::{
    Headroom, Operator, PlacementSpec, Strategy, Term, Thickness, Weights,
};
use serde_yaml::Value as Yaml;

use super::context::Context;
use super::fault::Fault;
use super::keys::{Kind, RawAgent, RawHeadroom, RawTerm, RawWeights, SIZES, STORAGES, Size};
use super::layer::Layer;

/// What a cloud says about its nodes and storages, beside its spec.
#[derive(Debug, Clone, Default)]
pub(super) struct Region {
    pub region: String,
    pub zone: String,
    pub node_labels: BTreeMap<String, Vec<String>>,
    pub classes: BTreeMap<String, Vec<String>>,
    pub headroom: Headroom,
}

impl Region {
    /// Labels that every template of the cloud carries.
    pub fn labels(&self) -> impl Iterator<Item = String> {
        let all = [("region", &self.region), ("zone", &self.zone)];
        all.into_iter()
            .filter(|(_, name)| !name.is_empty())
            .map(|(of, name)| format!("{of}:{name}"))
    }
}

/// Reads a cloud's `headroom`.
pub(super) fn headroom(layer: &Layer, overcommit: u64, cx: &mut Context<'_>) -> Headroom {
    let raw = layer.inner::<RawHeadroom>("headroom", &mut cx.faults);
    let bare = Headroom { overcommit_percent: overcommit, ..Headroom::default() };
    raw.map_or(bare, |raw| Headroom {
        memory_mb: raw.memory_mb,
        memory_percent: raw.memory_percent,
        cpu_percent: raw.cpu_percent,
        disk_gb: raw.disk_gb,
        disk_percent: raw.disk_percent,
        ..bare
    })
}

/// Faults of storage classes without meaning.
pub(super) fn classes(
    classes: &BTreeMap<String, Vec<String>>,
    layer: &Layer,
    cx: &mut Context<'_>,
) {
    for (name, storages) in classes {
        let (message, help) = if thickness(name).is_some() {
            (format!("`{name}` is a built-in class"), "give the class another name")
        } else if name.trim().is_empty() {
            ("a class has no name".to_owned(), "give it a name")
        } else if storages.is_empty() {
            (format!("class `{name}` lists no storage"), "list at least one, or remove the class")
        } else {
            continue;
        };
        cx.faults.push(layer.fault("storageClasses", message).help(help));
    }
}

/// The sizes of the template image.
const NO_SIZE: Size = Size { cpu: 0, memory: 0, disk: 0 };
/// The key that names a class of storages.
const CLASS: &str = "storageClass";

/// Whether a key has a value that is not blank.
fn names_any(layer: &Layer, key: &str) -> bool {
    match layer.get(key) {
        Some(Yaml::String(text)) => !text.trim().is_empty(),
        Some(Yaml::Sequence(items)) => !items.is_empty(),
        Some(_) | None => false,
    }
}

/// Whether the template's class and this key of [`STORAGES`] both name the storage.
/// `targetStorages` beside thin or thick is fine: of these storages, those of that kind.
fn both_name(layer: &Layer, class: &str, key: &str) -> bool {
    names_any(layer, key) && (key == STORAGES[0] || thickness(class.trim()).is_none())
}

/// Removes from a lower layer the storage keys that the upper one replaces by others.
pub(super) fn forget_storages(lower: &mut Layer, upper: &Layer) {
    if let Some(class) = upper.text(CLASS).filter(|_| names_any(upper, CLASS)) {
        for key in STORAGES {
            if both_name(lower, class, key) {
                lower.forget(key);
            }
        }
    } else if lower.text(CLASS).is_some_and(|class| {
        names_any(lower, CLASS) && STORAGES.into_iter().any(|key| both_name(upper, class, key))
    }) {
        lower.forget(CLASS);
    }
}

/// A fault where two keys name storages; warnings of storages that linked clones never use.
pub(super) fn check_storages(linked: bool, layer: &Layer, cx: &mut Context<'_>) {
    if linked {
        let named = STORAGES.into_iter().chain([CLASS]).filter(|key| names_any(layer, key));
        for key in named {
            let message = "linked clones do not use it: they stay on the template's storage";
            let fault = layer.fault(key, message);
            cx.warnings.push(fault.help("remove it, or set cloneStrategy to FULL"));
        }
        return;
    }
    let Some(class) = layer.text(CLASS).filter(|_| names_any(layer, CLASS)) else { return };
    if let Some(key) = STORAGES.into_iter().find(|key| both_name(layer, class, key)) {
        let fault = layer.fault(CLASS, format!("{key} already names the storage"));
        cx.faults.push(fault.help("remove one of the two"));
    }
}

/// Warns of weights that the placement does not use. Weights of `agentDefaults` may be for other
/// templates, where this one has a placement of its own.
pub(super) fn warn_weights(strategy: Strategy, layer: &Layer, warnings: &mut Vec<Fault>) {
    const KEY: &str = "placementWeights";
    let word = match strategy {
        Strategy::Topsis => return,
        Strategy::Spread => "SPREAD",
        Strategy::Pack => "PACK",
        Strategy::Fixed => "FIXED",
    };
    if layer.has(KEY) && (layer.is_own(KEY) || !layer.is_own("placement")) {
        let fault = layer.fault(KEY, format!("placement {word} does not use them, only TOPSIS"));
        warnings.push(fault.help("remove them, or set placement to TOPSIS"));
    }
}

/// The placement that holds on every cloud. `all`: the template is for every node; `named`: it
/// names nodes.
pub(super) fn common(
    raw: &RawAgent,
    (all, named): (bool, bool),
    layer: &Layer,
    faults: &mut Vec<Fault>,
) -> PlacementSpec {
    let selector: BTreeSet<String> = raw.node_selector.iter().cloned().collect();
    PlacementSpec {
        strategy: raw.placement,
        weights: weights(layer, faults),
        anywhere: all || (!named && !selector.is_empty()),
        preferred: raw.preferred_nodes.iter().map(|node| NodeName::new(node.trim())).collect(),
        selector,
        affinity: terms("affinity", layer, faults),
        anti_affinity: terms("antiAffinity", layer, faults),
        max_guests: (raw.max_vms_per_node > 0).then_some(raw.max_vms_per_node),
        min_free_mb: raw.min_free_memory_mb,
        thickness: thickness(raw.storage_class.trim()),
        ..PlacementSpec::default()
    }
}

fn thickness(class: &str) -> Option<Thickness> {
    [Thickness::Thin, Thickness::Thick].into_iter().find(|kind| kind.word() == class)
}

fn weights(layer: &Layer, faults: &mut Vec<Fault>) -> Weights {
    let raw = layer.inner::<RawWeights>("placementWeights", faults);
    let Some(raw) = raw else { return Weights::default() };
    if raw.memory + raw.cpu == 0 {
        let fault = layer.fault("placementWeights", "both weights are 0");
        faults.push(fault.help("give one of them at least 1"));
    }
    Weights { memory: raw.memory, cpu: raw.cpu }
}

fn terms(key: &str, layer: &Layer, faults: &mut Vec<Fault>) -> Vec<Term> {
    let mut terms = Vec::new();
    for (at, item) in layer.nested(key).iter().enumerate() {
        let Some(raw) = item.typed::<RawTerm>(faults) else { continue };
        let wrong = match raw.operator {
            Operator::In | Operator::NotIn => raw.values.is_empty(),
            Operator::Exists => !raw.values.is_empty(),
        };
        if wrong && !item.is_faulty("values") {
            let (message, help) = match raw.operator {
                Operator::In | Operator::NotIn => ("no value is listed", "give values, or Exists"),
                Operator::Exists => ("Exists takes no values", "remove them, or give In"),
            };
            faults.push(layer.item_fault(key, at, message).help(help));
        }
        terms.push(Term { key: raw.key, operator: raw.operator, values: raw.values });
    }
    terms
}

/// The placement on one cloud, with the storages of the class there.
pub(super) fn on_cloud(
    common: &PlacementSpec,
    class: &str,
    cloud: (&str, &Region),
    layer: &Layer,
    faults: &mut Vec<Fault>,
) -> (PlacementSpec, Option<Vec<String>>) {
    let (id, region) = cloud;
    let carried = region.node_labels.iter().map(|(node, labels)| {
        let selected = labels.iter().filter(|label| common.selector.contains(*label));
        (NodeName::new(node), selected.cloned().collect::<BTreeSet<_>>())
    });
    let labels = carried.filter(|(_, labels)| !labels.is_empty()).collect();
    let placement = PlacementSpec { labels, headroom: region.headroom, ..common.clone() };
    for label in &common.selector {
        if !placement.labels.values().any(|labels| labels.contains(label)) {
            let fault =
                layer.fault("nodeSelector", format!("no node of cloud `{id}` has `{label}`"));
            faults.push(fault.help("add it to the cloud's nodeLabels"));
        }
    }
    if class.is_empty() || common.thickness.is_some() {
        return (placement, None);
    }
    let storages = region.classes.get(class).cloned();
    if storages.is_none() {
        let known = region.classes.keys().map(String::as_str).chain(["thin", "thick"]);
        let message = format!("cloud `{id}` has no storage class `{class}`");
        let help = "add it to the cloud's storageClasses, or give thin or thick";
        faults.push(layer.fault(CLASS, message).nearest(class, known, help));
    }
    (placement, storages)
}

/// The sizes of `sizes` by name.
pub(super) fn sizes(
    entries: &[(String, Layer)],
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, Size> {
    let read = entries.iter().filter_map(|(name, layer)| {
        if name.contains(':') {
            let fault = layer.own_fault(format!("the name `{name}` looks like a size itself"));
            faults.push(fault.help("choose a name without `:`, such as `large`"));
        }
        Some((name.clone(), layer.typed(faults)?))
    });
    read.collect()
}

/// Reads a template's `size`: a name of `sizes`, or the sizes themselves.
pub(super) fn size(
    written: &str,
    sizes: &BTreeMap<String, Size>,
    layer: &Layer,
    faults: &mut Vec<Fault>,
) -> Size {
    const FORM: &str = "write it as `cpu:4,memory:8192,disk:50`, or name one of sizes";
    if written.is_empty() {
        return NO_SIZE;
    }
    if let Some(known) = sizes.get(written) {
        return known.clone();
    }
    let fault = if !written.contains(':') {
        let fault = layer.fault("size", format!("unknown size `{written}`"));
        fault.nearest(written, sizes.keys().map(String::as_str), FORM)
    } else {
        match inline(written) {
            Ok(size) => return size,
            Err(message) => layer.fault("size", message).help(FORM),
        }
    };
    faults.push(fault);
    NO_SIZE
}

/// Reads `cpu:4,memory:8192,disk:50`; each may be left out, and none may be 0.
fn inline(written: &str) -> Result<Size, String> {
    let mut sizes = Layer::empty(None, "", &SIZES);
    for part in written.split(',').map(str::trim) {
        let (name, number) =
            part.split_once(':').ok_or(format!("`{part}` is not `name:number`"))?;
        let wrong = || format!("`{}` is not a number for {name}", number.trim());
        let number: u32 = number.trim().parse().map_err(|_| wrong())?;
        let name = name.trim();
        let key = SIZES.find(name).ok_or(format!("`{name}` is not cpu, memory or disk"))?;
        let outside = || format!("{number} is out of the range of {name}");
        let (Kind::Whole(least, most) | Kind::ZeroOr(least, most)) = key.kind else {
            return Err(outside());
        };
        if number == 0 || !(least..=most).contains(&u64::from(number)) {
            return Err(outside());
        }
        if sizes.has(key.name) {
            return Err(format!("{name} is given twice"));
        }
        sizes.put(key.name, "size", Yaml::from(number));
    }
    Ok(sizes.typed(&mut Vec::new()).unwrap_or(NO_SIZE))
}
