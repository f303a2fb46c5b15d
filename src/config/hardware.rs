//! A template's virtual hardware beside its sizes and network cards (`hardware`).

use drover_model::hardware::{DiskSpec, HardwareSpec, HotPlug, PLUGGED_MEMORY_MB};
use drover_model::image::Bios;

use super::fault::Fault;
use super::keys::{RawAgent, RawAgentHardware, RawDisk, Reset};
use super::layer::Layer;

/// The disks that a template may add: the unit numbers of Proxmox's virtio-scsi beside a boot disk,
/// of which template images use some.
const MOST_DISKS: usize = 16;
/// Proxmox gives a guest hostpci0 to hostpci15.
const MOST_PCI: usize = 16;
/// Proxmox gives a guest usb0 to usb13.
const MOST_USB: usize = 14;

/// Reads a template's `hardware`.
pub(super) fn hardware(agent: &RawAgent, layer: &Layer, faults: &mut Vec<Fault>) -> HardwareSpec {
    let Some(inner) = layer.nested("hardware").first() else { return HardwareSpec::default() };
    let Some(raw) = inner.typed::<RawAgentHardware>(faults) else {
        return HardwareSpec::default();
    };
    let reset = agent.reset;
    check_hot_plug(agent, &raw, inner, faults);
    let disks: Vec<RawDisk> =
        inner.nested("disks").iter().filter_map(|disk| disk.typed(faults)).collect();
    for (key, count, most) in [
        ("disks", disks.len(), MOST_DISKS),
        ("pciDevices", raw.pci_devices.len(), MOST_PCI),
        ("usbDevices", raw.usb_devices.len(), MOST_USB),
    ] {
        if count > most {
            let message = format!("{count} items exceed the maximum of {most}");
            faults.push(inner.fault(key, message).help("remove some: a guest takes no more"));
        }
    }
    let devices = [("pciDevices", &raw.pci_devices), ("usbDevices", &raw.usb_devices)];
    for (key, _) in devices.iter().filter(|(_, ids)| reset == Reset::Memory && !ids.is_empty()) {
        // Proxmox saves no state of a device that it does not emulate.
        let message = "Proxmox saves no memory of a guest with devices of its node".to_owned();
        faults.push(inner.fault(key, message).help("set reset to DISK or NONE, or remove them"));
    }
    let disks =
        disks.into_iter().map(|raw| DiskSpec { storage: raw.storage, size_gb: raw.size_gb });
    HardwareSpec {
        machine: raw.machine,
        bios: raw.bios.map(|word| if word == "OVMF" { Bios::Ovmf } else { Bios::Seabios }),
        cpu: raw.cpu,
        sockets: raw.sockets,
        numa: raw.numa,
        hotplug: raw.hotplug.as_deref().map(hot_plug),
        max_cores: raw.max_cores,
        affinity: raw.affinity,
        disks: disks.collect(),
        pci: raw.pci_devices,
        usb: raw.usb_devices,
    }
}

/// The kinds that these words name, in Proxmox's order.
fn hot_plug(words: &[String]) -> Vec<HotPlug> {
    HotPlug::ALL.into_iter().filter(|kind| words.iter().any(|word| word == kind.word())).collect()
}

/// What Proxmox would refuse only at the start of a clone.
fn check_hot_plug(
    agent: &RawAgent,
    raw: &RawAgentHardware,
    inner: &Layer,
    faults: &mut Vec<Fault>,
) {
    let plugs = raw.hotplug.as_deref().map(hot_plug).unwrap_or_default();
    if plugs.contains(&HotPlug::Memory) {
        if raw.numa != Some(true) {
            let message =
                "Proxmox starts no guest with memory hot-plug and without NUMA".to_owned();
            faults
                .push(inner.fault("hotplug", message).help("add `numa: true`, or remove `memory`"));
        }
        // 0 means that of the template image, as for cores.
        if (1..PLUGGED_MEMORY_MB).contains(&agent.memory_mb) {
            let message =
                format!("a guest with memory hot-plug has at least {PLUGGED_MEMORY_MB} MiB");
            let help = "raise `memoryMb` of the template, or remove `memory`";
            faults.push(inner.fault("hotplug", message).help(help));
        }
    }
    let Some(most) = raw.max_cores else { return };
    if !plugs.contains(&HotPlug::Cpu) {
        let message = "without `cpu` in `hotplug` no core is added to a running guest".to_owned();
        faults.push(inner.fault("maxCores", message).help("add `cpu` to `hotplug`"));
    }
    let cores = agent.cores;
    if cores == 0 {
        let message = "a template without `cores` has no number to start with".to_owned();
        faults.push(inner.fault("maxCores", message).help("set `cores` of the template"));
    } else if cores > most {
        let message = format!("{most} is less than the {cores} `cores` of the template");
        faults.push(inner.fault("maxCores", message).help("raise it to `cores` at least"));
    }
}
