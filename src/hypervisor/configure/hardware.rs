//! A guest's virtual hardware, as its template wants it (`hardware`).

use drover_model::hardware::{HardwareSpec, HotPlug};
use drover_model::spec::TemplateSpec;
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
    let words = |kinds: &[HotPlug]| match kinds {
        [] => "0".to_owned(),
        kinds => kinds.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(","),
    };
    set("hotplug", wanted.hotplug.as_deref().map(words));
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

/// A guest's cores of each socket and its `vcpus`. One that takes more cores while it runs is made with
/// the most that it can have, and starts with fewer of them.
pub(super) fn processors(
    config: &VmConfig,
    spec: &TemplateSpec,
) -> (Option<String>, Option<String>) {
    let Some(cores) = spec.cores else { return (None, None) };
    let Some(most) = spec.hardware.max_cores else { return (Some(cores.to_string()), None) };
    let own = config.get("sockets").and_then(|sockets| sockets.parse::<u32>().ok());
    let sockets = spec.hardware.sockets.or(own).unwrap_or(1);
    let vcpus = cores.saturating_mul(sockets);
    (Some(most.max(cores).to_string()), Some(vcpus.to_string()))
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
            hotplug: Some(vec![HotPlug::Disk, HotPlug::Cpu, HotPlug::Memory]),
            max_cores: Some(8),
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
        hotplug=disk,cpu,memory
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
            ("hotplug", "disk,cpu,memory"),
            ("affinity", "0-3"),
            ("hostpci0", "pcie=1,mapping=gpu"),
            ("usb0", "mapping=dongle"),
            ("scsi1", "fast:vm-101-disk-1,serial=drover-disk-1,size=50G"),
            ("scsi3", "slow:vm-101-disk-2,serial=drover-disk-2,size=200G"),
        ]);
        assert_eq!(changes(&config, &wanted()), Params::new());
    }

    #[test]
    fn a_guest_that_takes_more_cores_starts_with_fewer_than_it_is_made_with() {
        let mut spec = crate::testing::spec();
        spec.cores = Some(2);
        let two = VmConfig::new([("sockets", "2")]);
        assert_eq!(processors(&two, &spec), (Some("2".into()), None));
        spec.hardware.max_cores = Some(8);
        assert_eq!(processors(&two, &spec), (Some("8".into()), Some("4".into())));
        // A lease that asks for more than that gets it.
        spec.cores = Some(16);
        spec.hardware.sockets = Some(1);
        assert_eq!(processors(&two, &spec), (Some("16".into()), Some("16".into())));
    }

    #[test]
    fn an_older_machine_type_gets_its_device_without_a_pcie_port() {
        let wanted = HardwareSpec { pci: vec!["gpu".into()], ..HardwareSpec::default() };
        let of = |machine: &str| changes(&VmConfig::new([("machine", machine)]), &wanted);
        assert_eq!(of("pc-i440fx-9.0"), [("hostpci0".to_owned(), "mapping=gpu".to_owned())]);
        assert_eq!(of("pc-q35-9.0"), [("hostpci0".to_owned(), "mapping=gpu,pcie=1".to_owned())]);
    }
}
