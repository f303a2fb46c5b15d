//! A guest's virtual hardware, as its template wants it (`hardware`).

use drover_model::hardware::HardwareSpec;
use proxmox_client::Params;
use proxmox_client::types::VmConfig;

/// The drives of a virtio-scsi controller: scsi0 to scsi30.
const SCSI_DRIVES: usize = 31;

/// The settings that differ from the wanted hardware.
///
/// A disk of drover's carries a serial number, so a write that is repeated after a crash adds none
/// twice.
pub(super) fn changes(config: &VmConfig, wanted: &HardwareSpec) -> Params {
    let mut changes = Params::new();
    let mut set = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| config.get(key) != Some(value.as_str())) {
            changes.push((key.to_owned(), value));
        }
    };
    set("machine", wanted.machine.clone());
    set("bios", wanted.bios.map(|bios| bios.name().to_owned()));
    set("cpu", wanted.cpu.clone());
    set("sockets", wanted.sockets.map(|sockets| sockets.to_string()));
    set("numa", wanted.numa.map(|numa| u8::from(numa).to_string()));
    set("affinity", wanted.affinity.clone());
    let machine = wanted.machine.as_deref().or_else(|| config.get("machine")).unwrap_or_default();
    for (at, id) in wanted.pci.iter().enumerate() {
        let key = format!("hostpci{at}");
        // Proxmox refuses `pcie` for the older machine type.
        let port = if machine.contains("q35") { ",pcie=1" } else { "" };
        let value = (!names(config.get(&key), id)).then(|| format!("mapping={id}{port}"));
        set(&key, value);
    }
    for (at, id) in wanted.usb.iter().enumerate() {
        let key = format!("usb{at}");
        let value = (!names(config.get(&key), id)).then(|| format!("mapping={id}"));
        set(&key, value);
    }
    changes.extend(disks(config, wanted));
    changes
}

/// Whether a device's setting names this mapping.
fn names(now: Option<&str>, id: &str) -> bool {
    now.into_iter()
        .flat_map(|now| now.split(','))
        .any(|part| part.strip_prefix("mapping=") == Some(id))
}

/// The disks that are missing, on free drives of the SCSI controller.
fn disks(config: &VmConfig, wanted: &HardwareSpec) -> Params {
    let is_there =
        |serial: &str| config.iter().any(|(_, value)| value.split(',').any(|part| part == serial));
    let mut free =
        (0..SCSI_DRIVES).map(|at| format!("scsi{at}")).filter(|key| config.get(key).is_none());
    let missing = wanted.disks.iter().zip(1..).filter_map(|(disk, number)| {
        let serial = format!("serial=drover-disk-{number}");
        (!is_there(&serial)).then(|| format!("{}:{},{serial}", disk.storage, disk.size_gb))
    });
    // Proxmox itself refuses a disk for which no drive is left: all are in one write.
    missing
        .map(|disk| (free.next().unwrap_or_else(|| format!("scsi{SCSI_DRIVES}")), disk))
        .collect()
}

#[cfg(test)]
mod tests {
    use drover_model::hardware::DiskSpec;
    use drover_model::image::Bios;

    use super::*;

    fn wanted() -> HardwareSpec {
        HardwareSpec {
            machine: Some("q35".into()),
            bios: Some(Bios::Ovmf),
            cpu: Some("host".into()),
            sockets: Some(2),
            numa: Some(true),
            affinity: Some("0-3".into()),
            disks: vec![
                DiskSpec { storage: "fast".into(), size_gb: 50 },
                DiskSpec { storage: "slow".into(), size_gb: 200 },
            ],
            pci: vec!["gpu".into()],
            usb: vec!["dongle".into()],
        }
    }

    // Invariant: what differs is written once, and nothing else.

    #[test]
    fn a_clone_gets_the_hardware_that_differs() {
        let config = VmConfig::new([
            ("scsi0", "store:vm-101-disk-0,size=10G"),
            ("scsi2", "store:vm-101-disk-1,size=1G"),
            ("cpu", "host"),
        ]);
        let changes: Vec<String> = changes(&config, &wanted())
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        insta::assert_snapshot!(changes.join("\n"), @r"
        machine=q35
        bios=ovmf
        sockets=2
        numa=1
        affinity=0-3
        hostpci0=mapping=gpu,pcie=1
        usb0=mapping=dongle
        scsi1=fast:50,serial=drover-disk-1
        scsi3=slow:200,serial=drover-disk-2
        ");
    }

    #[test]
    fn a_guest_with_the_hardware_is_left_alone() {
        let config = VmConfig::new([
            ("machine", "q35"),
            ("bios", "ovmf"),
            ("cpu", "host"),
            ("sockets", "2"),
            ("numa", "1"),
            ("affinity", "0-3"),
            ("hostpci0", "pcie=1,mapping=gpu"),
            ("usb0", "mapping=dongle"),
            ("scsi1", "fast:vm-101-disk-1,serial=drover-disk-1,size=50G"),
            ("scsi3", "slow:vm-101-disk-2,serial=drover-disk-2,size=200G"),
        ]);
        assert_eq!(changes(&config, &wanted()), Params::new());
    }

    #[test]
    fn an_older_machine_type_gets_its_device_without_a_pcie_port() {
        let wanted = HardwareSpec { pci: vec!["gpu".into()], ..HardwareSpec::default() };
        let of = |machine: &str| changes(&VmConfig::new([("machine", machine)]), &wanted);
        assert_eq!(of("pc-i440fx-9.0"), [("hostpci0".to_owned(), "mapping=gpu".to_owned())]);
        assert_eq!(of("pc-q35-9.0"), [("hostpci0".to_owned(), "mapping=gpu,pcie=1".to_owned())]);
    }
}
