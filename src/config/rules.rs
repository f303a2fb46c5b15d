//! The rules of a table's keys that hold in a whole mapping, once its layers are merged: which keys
//! apply, must be given, must be filled, contradict, or limit another one.

use serde_yaml::Value as Yaml;

use super::fault::Fault;
use super::keys::{Key, Preset, Table};
use super::layer::Layer;

/// Checks every rule of the table.
pub(super) fn check(layer: &Layer, table: &'static Table, faults: &mut Vec<Fault>) {
    let kind = layer.text("kind");
    for key in table.iter() {
        if !key.applies(kind) {
            faults.extend(kind.and_then(|kind| misplaced(layer, key, kind)));
            continue;
        }
        if key.preset == Preset::Required && !layer.is_sound(key.name) && !layer.is_faulty(key.name)
        {
            faults.push(missing(layer, key));
        }
        if let Some((empty, help)) = key.filled.filter(|_| is_empty(layer.get(key.name))) {
            faults.push(layer.fault(key.name, empty).help(help));
        }
        if let Some(limit) = key.at_most.and_then(|other| table.find(other)) {
            faults.extend(excess(layer, key, limit));
        }
    }
    faults.extend(table.ways.iter().filter_map(|ways| layer.one_of(ways).err()));
}

/// A key that sources of this kind do not have.
fn misplaced(layer: &Layer, key: &Key, kind: &str) -> Option<Fault> {
    let fault = || layer.fault(key.name, format!("`{}` does not apply to {kind}", key.name));
    layer.has(key.name).then(|| fault().help("remove it"))
}

fn missing(layer: &Layer, key: &Key) -> Fault {
    let fault = layer.missing_fault(key.name, format!("`{}` is missing", key.name));
    fault.help(format!("add `{}:`, {}", key.name, key.help))
}

fn is_empty(value: Option<&Yaml>) -> bool {
    match value {
        Some(Yaml::String(text)) => text.trim().is_empty(),
        Some(Yaml::Sequence(items)) => items.is_empty(),
        Some(_) | None => false,
    }
}

/// A number above that of another key; 0 is no limit.
fn excess(layer: &Layer, key: &Key, other: &Key) -> Option<Fault> {
    let number = |key: &Key| layer.get(key.name).cloned().or_else(|| key.default())?.as_u64();
    let (number, limit) = (number(key)?, number(other)?);
    let message = format!("`{number}` exceeds {}, {limit}", other.name);
    let fault =
        || layer.fault(key.name, message).help(format!("lower it, or raise {}", other.name));
    (limit > 0 && number > limit).then(fault)
}
