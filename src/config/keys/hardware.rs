//! Keys of a template's `hardware`.

use super::{Key, Raw, Table, choice, flag, mappings, text, texts, value, whole};

table! {
    /// Keys of a template's `hardware`.
    AGENT_HARDWARE => RawAgentHardware {
        "machine" => machine: Option<String>, text().check(value::proxmox_word).eg(r#""q35""#),
            "Proxmox's machine type; unset: as in the template image";
        "bios" => bios: Option<String>, choice(&["OVMF", "SEABIOS"]).eg("OVMF"),
            "firmware; OVMF wants a template image with an EFI disk; unset: as in the template image";
        "cpu" => cpu: Option<String>, text().check(value::proxmox_words).eg(r#""host""#),
            "Proxmox's CPU type; unset: as in the template image";
        "sockets" => sockets: Option<u32>, whole(1..=64).eg("2"),
            "processor sockets, each with `cores`; unset: as in the template image";
        "numa" => numa: Option<bool>, flag().eg("true"),
            "true: the guest sees NUMA nodes; unset: as in the template image";
        "hotplug" => hotplug: Option<Vec<String>>,
            texts().check(value::hot_plug).eg(r#"["network", "disk", "usb", "cpu", "memory"]"#),
            "what Proxmox changes while the guest runs; unset: as in the template image";
        "maxCores" => max_cores: Option<u32>, whole(1..=1024).eg("8"),
            "cores of each socket that the guest can have without a restart, with `cpu` in `hotplug`; it starts with `cores`";
        "affinity" => affinity: Option<String>, text().check(value::cpu_list).eg(r#""0-3,8""#),
            "the node's processors that the guest may use; unset: as in the template image";
        "disks", mappings(&DISK), "empty disks beside those of the template image, in order";
        "pciDevices" => pci_devices: Vec<String>,
            texts().or_empty().check(value::mapping_id).eg(r#"["gpu"]"#),
            "PCI devices, by the id of a resource mapping; an agent waits for a free one";
        "usbDevices" => usb_devices: Vec<String>,
            texts().or_empty().check(value::mapping_id).eg(r#"["dongle"]"#),
            "USB devices, by the id of a resource mapping; an agent waits for a free one";
    }
}

table! {
    /// Keys of each item of `disks`.
    DISK => RawDisk {
        "storage" => storage: String, text().required().check(value::storage).eg(r#""local-lvm""#),
            "storage of the disk";
        "sizeGb" => size_gb: u32, whole(1..=131_072).required().eg("50"), "size of the disk in GiB";
    }
}
