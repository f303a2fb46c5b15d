//! Where agents are put, and how big they are: what templates and clouds say about it.

use std::collections::{BTreeMap, BTreeSet};

use drover_model::id::NodeName;
use drover_model::placement::{
    Headroom, Operator, PlacementSpec, Strategy, Term, Thickness, Weights,
};
use serde::Deserialize;
use serde_yaml::Value as Yaml;

use super::fault::Fault;
use super::keys::{HEADROOM_KEYS, SIZES, TERM, WEIGHT_KEYS};
use super::layer::Layer;
use drover_api::nearest;

/// What a cloud says, beside its own spec.
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawHeadroom {
    memory_mb: u64,
    memory_percent: u64,
    cpu_percent: u64,
    disk_gb: u64,
    disk_percent: u64,
}

/// Reads a cloud's `headroom`.
pub(super) fn headroom(layer: &Layer, overcommit: u64, faults: &mut Vec<Fault>) -> Headroom {
    let written = layer.nested("headroom").first();
    let raw = written.and_then(|layer| layer.typed::<RawHeadroom>(HEADROOM_KEYS.keys, faults));
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

/// Tells of storage classes that mean nothing.
pub(super) fn classes(
    classes: &BTreeMap<String, Vec<String>>,
    layer: &Layer,
    faults: &mut Vec<Fault>,
) {
    for (name, storages) in classes {
        let (message, help) = if thickness(name).is_some() {
            (format!("`{name}` has a meaning of its own"), "give the class another name")
        } else if name.trim().is_empty() {
            ("a class has no name".to_owned(), "give it one")
        } else if storages.is_empty() {
            (format!("class `{name}` lists no storage"), "list at least one, or take it out")
        } else {
            continue;
        };
        faults.push(layer.fault("storageClasses", message).help(help));
    }
}

/// Keys that name the storage of full clones, beside [`CLASS`].
const STORAGES: [&str; 2] = ["targetStorage", "targetStorages"];
/// The key that wants a kind of storage.
const CLASS: &str = "storageClass";

/// Whether a key names something.
fn names_any(layer: &Layer, key: &str) -> bool {
    match layer.get(key) {
        Some(Yaml::String(text)) => !text.trim().is_empty(),
        Some(Yaml::Sequence(items)) => !items.is_empty(),
        Some(_) | None => false,
    }
}

/// Whether a template's class and this key, of those that name storages, both say where disks go;
/// of several storages those of a thickness may be meant.
fn both_say(layer: &Layer, class: &str, key: &str) -> bool {
    names_any(layer, key) && (key == STORAGES[0] || thickness(class.trim()).is_none())
}

/// Takes out of a lower layer what the upper one says in another way about the storage of disks.
pub(super) fn forget_storages(lower: &mut Layer, upper: &Layer) {
    if let Some(class) = upper.text(CLASS).filter(|_| names_any(upper, CLASS)) {
        for key in STORAGES {
            if both_say(lower, class, key) {
                lower.forget(key);
            }
        }
    } else if lower.text(CLASS).is_some_and(|class| {
        names_any(lower, CLASS) && STORAGES.into_iter().any(|key| both_say(upper, class, key))
    }) {
        lower.forget(CLASS);
    }
}

/// Tells of storages that are named in two ways, and warns of those that linked clones never use.
pub(super) fn storages(
    linked: bool,
    layer: &Layer,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<Fault>,
) {
    if linked {
        let named = STORAGES.into_iter().chain([CLASS]).filter(|key| names_any(layer, key));
        for key in named {
            let fault =
                layer.fault(key, "linked clones do not use it: they stay on the template's");
            warnings.push(fault.help("take it out, or set cloneStrategy to FULL"));
        }
        return;
    }
    let Some(class) = layer.text(CLASS).filter(|_| names_any(layer, CLASS)) else { return };
    if let Some(key) = STORAGES.into_iter().find(|key| both_say(layer, class, key)) {
        let fault = layer.fault(CLASS, format!("{key} says already where disks go"));
        faults.push(fault.help("take one of them out"));
    }
}

/// Warns of weights that are not looked at; where a template has a placement of its own, the weights
/// of `agentDefaults` may be meant for others.
pub(super) fn weighed(strategy: Strategy, layer: &Layer, warnings: &mut Vec<Fault>) {
    const KEY: &str = "placementWeights";
    let word = match strategy {
        Strategy::Topsis => return,
        Strategy::Spread => "SPREAD",
        Strategy::Pack => "PACK",
        Strategy::Fixed => "FIXED",
    };
    let own = |key: &str| layer.fault(key, "").path.starts_with(&layer.path);
    if layer.has(KEY) && (own(KEY) || !own("placement")) {
        let fault = layer.fault(KEY, format!("placement {word} does not use them: TOPSIS does"));
        warnings.push(fault.help("take them out, or set placement to TOPSIS"));
    }
}

/// What a template says about where its agents are put.
pub(super) struct Wanted<'a> {
    pub strategy: Strategy,
    pub preferred: &'a [String],
    pub selector: &'a [String],
    pub max_guests: u32,
    pub min_free_mb: u64,
    pub class: &'a str,
    /// Whether it names its nodes.
    pub named: bool,
    /// Whether every node is named.
    pub all: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWeights {
    memory: u32,
    cpu: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTerm {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// What holds on every cloud; the rest is each cloud's.
pub(super) fn stated(wanted: &Wanted<'_>, layer: &Layer, faults: &mut Vec<Fault>) -> PlacementSpec {
    let selector: BTreeSet<String> = wanted.selector.iter().cloned().collect();
    PlacementSpec {
        strategy: wanted.strategy,
        weights: weights(layer, faults),
        anywhere: wanted.all || (!wanted.named && !selector.is_empty()),
        preferred: wanted.preferred.iter().map(|node| NodeName::new(node.trim())).collect(),
        selector,
        affinity: terms("affinity", layer, faults),
        anti_affinity: terms("antiAffinity", layer, faults),
        max_guests: (wanted.max_guests > 0).then_some(wanted.max_guests),
        min_free_mb: wanted.min_free_mb,
        thickness: thickness(wanted.class),
        ..PlacementSpec::default()
    }
}

fn thickness(class: &str) -> Option<Thickness> {
    [Thickness::Thin, Thickness::Thick].into_iter().find(|kind| kind.word() == class)
}

fn weights(layer: &Layer, faults: &mut Vec<Fault>) -> Weights {
    let Some(written) = layer.nested("placementWeights").first() else { return Weights::default() };
    let Some(raw) = written.typed::<RawWeights>(WEIGHT_KEYS.keys, faults) else {
        return Weights::default();
    };
    if raw.memory + raw.cpu == 0 {
        let fault = layer.fault("placementWeights", "nothing counts: both weights are 0");
        faults.push(fault.help("give one of them at least 1"));
    }
    Weights { memory: raw.memory, cpu: raw.cpu }
}

fn terms(key: &str, layer: &Layer, faults: &mut Vec<Fault>) -> Vec<Term> {
    let mut terms = Vec::new();
    for (at, item) in layer.nested(key).iter().enumerate() {
        let Some(raw) = item.typed::<RawTerm>(TERM.keys, faults) else { continue };
        let wrong = match raw.operator {
            Operator::In | Operator::NotIn => raw.values.is_empty(),
            Operator::Exists => !raw.values.is_empty(),
        };
        if wrong && !item.is_faulty("values") {
            let (message, help) = match raw.operator {
                Operator::In | Operator::NotIn => ("no value is listed", "give values, or Exists"),
                Operator::Exists => ("Exists looks at no values", "take them out, or give In"),
            };
            faults.push(layer.item_fault(key, at, message).help(help));
        }
        terms.push(Term { key: raw.key, operator: raw.operator, values: raw.values });
    }
    terms
}

/// The same on one cloud, with the storages of its class.
pub(super) fn on_cloud(
    stated: &PlacementSpec,
    class: &str,
    cloud: (&str, &Region),
    layer: &Layer,
    faults: &mut Vec<Fault>,
) -> (PlacementSpec, Option<Vec<String>>) {
    let (id, region) = cloud;
    let carried = region.node_labels.iter().map(|(node, labels)| {
        let looked_at = labels.iter().filter(|label| stated.selector.contains(*label));
        (NodeName::new(node), looked_at.cloned().collect::<BTreeSet<_>>())
    });
    let labels = carried.filter(|(_, labels)| !labels.is_empty()).collect();
    let placement = PlacementSpec { labels, headroom: region.headroom, ..stated.clone() };
    for label in &stated.selector {
        if !placement.labels.values().any(|labels| labels.contains(label)) {
            let fault =
                layer.fault("nodeSelector", format!("no node of cloud `{id}` has `{label}`"));
            faults.push(fault.help("add it to the cloud's nodeLabels"));
        }
    }
    if class.is_empty() || stated.thickness.is_some() {
        return (placement, None);
    }
    match region.classes.get(class) {
        Some(storages) => (placement, Some(storages.clone())),
        None => {
            let known = || region.classes.keys().map(String::as_str).chain(["thin", "thick"]);
            let message = format!("no storage class of cloud `{id}` is called `{class}`");
            let fault = layer.fault("storageClass", message);
            faults.push(match nearest(class, known()) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault.help("add it to the cloud's storageClasses, or give thin or thick"),
            });
            (placement, None)
        }
    }
}

/// How big agents are; zero for what is their template's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Size {
    pub cpu: u32,
    pub memory: u32,
    pub disk: u32,
}

/// Reads `sizes`.
pub(super) fn sizes(
    entries: &[(String, Layer)],
    faults: &mut Vec<Fault>,
) -> BTreeMap<String, Size> {
    let read = entries.iter().filter_map(|(name, layer)| {
        if name.contains(':') {
            let mut fault = layer.fault("", format!("`{name}` can not be told from a size itself"));
            fault.path.clone_from(&layer.path);
            faults.push(fault.help("give it a name without `:`, such as `large`"));
        }
        let size = layer.typed::<Size>(SIZES, faults)?;
        Some((name.clone(), size))
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
        return Size::default();
    }
    if let Some(known) = sizes.get(written) {
        return *known;
    }
    if !written.contains(':') {
        let fault = layer.fault("size", format!("no size is called `{written}`"));
        faults.push(match nearest(written, sizes.keys().map(String::as_str)) {
            Some(near) => fault.help(format!("did you mean `{near}`?")),
            None => fault.help(FORM),
        });
        return Size::default();
    }
    inline(written).unwrap_or_else(|message| {
        faults.push(layer.fault("size", message).help(FORM));
        Size::default()
    })
}

/// Reads `cpu:4,memory:8192,disk:50`; each may be left out.
fn inline(written: &str) -> Result<Size, String> {
    let mut size = Size::default();
    let mut seen = BTreeSet::new();
    for part in written.split(',').map(str::trim) {
        let (name, number) = part.split_once(':').ok_or(format!("`{part}` is no `name:number`"))?;
        let wrong = || format!("`{}` is no number for {name}", number.trim());
        let number: u32 = number.trim().parse().map_err(|_| wrong())?;
        let (into, range) = match name.trim() {
            "cpu" => (&mut size.cpu, 1..=8192),
            "memory" => (&mut size.memory, 16..=67_108_864),
            "disk" => (&mut size.disk, 1..=131_072),
            other => return Err(format!("`{other}` is not cpu, memory or disk")),
        };
        if !range.contains(&number) {
            return Err(format!("{number} is out of the range of {name}"));
        }
        if !seen.insert(name.trim().to_owned()) {
            return Err(format!("{name} is given twice"));
        }
        *into = number;
    }
    Ok(size)
}
