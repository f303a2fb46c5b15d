//! `sizeLabels` of a template: the labels that give its agents another size, with their limits.

use drover_model::size::{Part, SizeLabel, SizeLabels};

use super::context::Context;
use super::keys::{RawAgent, RawCoresLabel, RawDiskLabel, RawMemoryLabel};
use super::layer::Layer;

const KEY: &str = "sizeLabels";

/// Reads the labels of size of a template.
pub(super) fn size_labels(raw: &RawAgent, layer: &Layer, cx: &mut Context<'_>) -> SizeLabels {
    let Some(given) = layer.nested(KEY).first() else { return SizeLabels::default() };
    let label = |label: String, min: u32, max: u32| SizeLabel { label, min, max };
    let cores = given.inner::<RawCoresLabel>(Part::Cores.key(), &mut cx.faults);
    let memory = given.inner::<RawMemoryLabel>(Part::Memory.key(), &mut cx.faults);
    let disk = given.inner::<RawDiskLabel>(Part::Disk.key(), &mut cx.faults);
    let sizes = SizeLabels {
        cores: cores.map(|raw| label(raw.label, raw.min, raw.max)),
        memory: memory.map(|raw| label(raw.label, raw.min, raw.max)),
        disk: disk.map(|raw| label(raw.label, raw.min, raw.max)),
    };
    check_labels(&sizes, raw, given, cx);
    if let Some(disk) = sizes.disk.as_ref().filter(|disk| disk.max < raw.disk_size_gb) {
        let message = format!("max, {}, is below diskSizeGb, {}", disk.max, raw.disk_size_gb);
        let fault = given.fault(Part::Disk.key(), message);
        cx.faults.push(fault.help("raise max, or remove the key: disks only grow"));
    }
    sizes
}

/// A label gives one part its size, and says nothing else of the template.
fn check_labels(sizes: &SizeLabels, raw: &RawAgent, given: &Layer, cx: &mut Context<'_>) {
    for (part, one) in sizes.each() {
        let (key, label) = (part.key(), &one.label);
        let mut before = sizes.each().take_while(|(other, _)| *other != part);
        if let Some((other, _)) = before.find(|(_, other)| other.label == *label) {
            let message = format!("its label is `{label}`, which {} has too", other.key());
            cx.faults.push(given.fault(key, message).help("give each a label of its own"));
        }
        let mut own = raw.label_string.split_whitespace();
        let key_of = |text: &str| text.split_once('=').is_some_and(|(key, _)| key == label);
        if let Some(own) = own.find(|text| key_of(text)) {
            let message = format!("labelString has `{own}`, which `{label}=` would change");
            cx.faults.push(given.fault(key, message).help("remove one of the two"));
        }
    }
}
