//! A template's virtual hardware beside its sizes and network cards (`hardware`).

use drover_model::hardware::{DiskSpec, HardwareSpec};
use drover_model::image::Bios;

use super::fault::Fault;
use super::keys::{RawAgentHardware, RawDisk, Reset};
use super::layer::Layer;

/// The disks that a template may add: the unit numbers of Proxmox's virtio-scsi beside a boot disk,
/// of which template images use some.
const MOST_DISKS: usize = 16;
/// Proxmox gives a guest hostpci0 to hostpci15.
const MOST_PCI: usize = 16;
/// Proxmox gives a guest usb0 to usb13.
const MOST_USB: usize = 14;

/// Reads a template's `hardware`.
pub(super) fn hardware(reset: Reset, layer: &Layer, faults: &mut Vec<Fault>) -> HardwareSpec {
    let Some(inner) = layer.nested("hardware").first() else { return HardwareSpec::default() };
    let Some(raw) = inner.typed::<RawAgentHardware>(faults) else {
        return HardwareSpec::default();
    };
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
        affinity: raw.affinity,
        disks: disks.collect(),
        pci: raw.pci_devices,
        usb: raw.usb_devices,
    }
}
