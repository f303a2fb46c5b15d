//! The arguments of QEMU for a guest's configuration: the devices that Proxmox gives it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::accelerator::Accelerator;
use super::firmware::{EFI_DISK, Uefi, is_q35};
use crate::conf::{self, Config, Nic};
use crate::guest::GuestBoot;

/// QEMU's cache of translated code. Without a limit it grows to a GiB for each guest.
const TRANSLATED_CODE_MIB: u32 = 128;
/// The format of an image that a guest writes to. Nothing of a guest outlives this computer's crash, so
/// nothing waits for the disk.
const DISK: &str = "driver=qcow2,discard=unmap,cache.no-flush=on,file.cache.no-flush=on";
/// The format of an image that it only reads.
const DISC: &str = "driver=raw,read-only=on";
/// How many network devices a machine can have.
const NICS_MAX: u32 = 32;

/// The files that a guest runs on.
pub(super) struct GuestFiles<'a> {
    /// The image of each disk, by drive.
    pub disks: &'a BTreeMap<String, PathBuf>,
    /// The image of each disc, by drive.
    pub discs: &'a BTreeMap<String, PathBuf>,
    pub qmp_socket: &'a Path,
    pub agent_socket: &'a Path,
    /// What the guest writes to its serial port.
    pub console: &'a Path,
    /// The internal snapshot of the disks whose memory the guest goes on with.
    pub resume_from: Option<&'a str>,
}

/// The name of a disk's block node.
pub(super) fn node_name(drive: &str) -> String {
    format!("drive-{drive}")
}

/// The node of the firmware's code.
const CODE_NODE: &str = "firmware";

/// The arguments of a guest.
pub(super) fn arguments(
    boot: &GuestBoot,
    files: &GuestFiles<'_>,
    accelerator: Accelerator,
) -> Vec<OsString> {
    let config = &boot.config;
    let is_q35 = is_q35(config);
    let uefi = Uefi::of(config);
    let (accelerated, cpu) = match accelerator {
        Accelerator::Emulation => (format!("tcg,tb-size={TRANSLATED_CODE_MIB}"), "max"),
        // Some nested hosts show this feature and then refuse it.
        Accelerator::Kvm => ("kvm".to_owned(), "host,arch-capabilities=off"),
    };
    let mut line = CommandLine::default();
    line.add(["-name", &format!("drover-sim-{}", boot.vmid)]);
    line.add(["-nodefaults", "-no-user-config", "-display", "none"]);
    let mut machine = if is_q35 { "q35" } else { "pc" }.to_owned();
    if let Some(uefi) = &uefi {
        machine += &format!(",pflash0={CODE_NODE},pflash1={}", node_name(EFI_DISK));
        line.add_uefi(uefi, files);
        machine += if uefi.is_guarded { ",smm=on" } else { "" };
    }
    line.add(["-machine", &machine, "-accel", &accelerated, "-cpu", cpu]);
    line.add(["-smp", &conf::cpus(config).max(1).to_string()]);
    line.add(["-m", &format!("{}M", conf::memory_bytes(config) >> 20)]);
    line.add_path("-qmp", "unix:", files.qmp_socket, ",server=on,wait=off");
    line.add_path("-serial", "file:", files.console, "");
    line.add(["-device", "virtio-rng-pci"]);
    if conf::agent_enabled(config) {
        line.add_path(
            "-chardev",
            "socket,id=agent,path=",
            files.agent_socket,
            ",server=on,wait=off",
        );
        line.add(["-device", "virtio-serial-pci", "-device"]);
        line.add(["virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]);
    }
    line.add_nics(config);
    line.add_drives(config, files);
    if let Some(snapshot) = files.resume_from {
        line.add(["-loadvm", snapshot]);
    }
    line.words
}

#[derive(Default)]
struct CommandLine {
    words: Vec<OsString>,
}

impl CommandLine {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.words.extend(words.map(OsString::from));
    }

    /// An option with a path inside; a comma in a path is doubled.
    fn add_path(&mut self, option: &str, before: &str, path: &Path, after: &str) {
        let path = path.to_string_lossy().replace(',', ",,");
        self.add([option, &format!("{before}{path}{after}")]);
    }

    /// Each device has a network of its own, with QEMU's own DHCP. Only the first one reaches this
    /// computer.
    fn add_nics(&mut self, config: &Config) {
        let nics =
            (0..NICS_MAX).filter_map(|n| Some((n, Nic::parse(config.get(&format!("net{n}"))?)?)));
        for (n, nic) in nics {
            let restrict = if n == 0 { "off" } else { "on" };
            let model = match nic.model.as_str() {
                "virtio" => "virtio-net-pci",
                other => other,
            };
            let mac = nic.mac.map(|mac| format!(",mac={mac}")).unwrap_or_default();
            self.add(["-netdev", &format!("user,id=net{n},ipv6=off,restrict={restrict}")]);
            // Without its ROM the device cannot boot, and the BIOS is faster.
            self.add(["-device", &format!("{model},netdev=net{n}{mac},romfile=")]);
        }
    }

    fn add_block(&mut self, node: &str, path: &Path, format: &str) {
        let before = format!("{format},node-name={node},file.driver=file,file.filename=");
        self.add_path("-blockdev", &before, path, "");
    }

    /// The code of a UEFI and its variables, which are no drive of the guest.
    fn add_uefi(&mut self, uefi: &Uefi, files: &GuestFiles<'_>) {
        self.add_block(CODE_NODE, &uefi.code, DISC);
        if let Some(variables) = files.disks.get(EFI_DISK) {
            self.add_block(&node_name(EFI_DISK), variables, DISK);
        }
        if uefi.is_guarded {
            self.add(["-global", "driver=cfi.pflash01,property=secure,value=on"]);
        }
    }

    fn add_drives(&mut self, config: &Config, files: &GuestFiles<'_>) {
        let order = conf::boot_order(config);
        let images = files.disks.iter().map(|image| (image, false));
        let images: Vec<_> = images.chain(files.discs.iter().map(|image| (image, true))).collect();
        let has =
            |interface: &str| images.iter().any(|((drive, _), _)| drive.starts_with(interface));
        if has("scsi") {
            self.add(["-device", "virtio-scsi-pci,id=scsihw0"]);
        }
        if has("sata") {
            self.add(["-device", "ahci,id=ahci0"]);
        }
        for ((drive, path), is_disc) in images {
            let node = node_name(drive);
            let Some(device) = device(drive, is_disc) else { continue };
            self.add_block(&node, path, if is_disc { DISC } else { DISK });
            let index = order.iter().position(|key| key == drive);
            let index = index.map(|index| format!(",bootindex={index}")).unwrap_or_default();
            self.add(["-device", &format!("{device},drive={node},id={drive}{index}")]);
        }
    }
}

/// The device of a drive, on the bus that Proxmox puts it on.
fn device(drive: &str, is_disc: bool) -> Option<String> {
    let kind = if is_disc { "cd" } else { "hd" };
    let number = |interface: &str| conf::numbered(drive, interface)?.parse::<u32>().ok();
    if let Some(n) = number("scsi") {
        return Some(format!("scsi-{kind},bus=scsihw0.0,channel=0,scsi-id=0,lun={n}"));
    }
    if number("virtio").is_some() {
        return Some("virtio-blk-pci".to_owned());
    }
    if let Some(n) = number("sata") {
        return Some(format!("ide-{kind},bus=ahci0.{n}"));
    }
    let n = number("ide")?;
    // The buses of a q35 take one drive each: QEMU refuses the second one, on Proxmox too.
    Some(format!("ide-{kind},bus=ide.{},unit={}", n / 2, n % 2))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn boot(config: &[(&str, &str)]) -> GuestBoot {
        GuestBoot {
            vmid: 101,
            node: "pve1".to_owned(),
            hostname: "agent".to_owned(),
            config: config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            mac: None,
            boot: 1,
            resumed: false,
            config_from_disc: false,
            discs: Vec::new(),
        }
    }

    fn of(config: &[(&str, &str)], resume_from: Option<&str>) -> String {
        let paths = |drives: &[&str]| {
            let path = |drive: &&str| ((*drive).to_owned(), PathBuf::from(format!("/d/{drive}")));
            drives.iter().map(path).collect::<BTreeMap<_, _>>()
        };
        let files = GuestFiles {
            disks: &paths(&["efidisk0", "scsi0", "virtio1"]),
            discs: &paths(&["ide2"]),
            qmp_socket: Path::new("/r/qmp"),
            agent_socket: Path::new("/r/agent"),
            console: Path::new("/r/console"),
            resume_from,
        };
        let words = arguments(&boot(config), &files, Accelerator::Emulation);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    // Invariant: a guest gets the hardware of its configuration.

    #[test]
    fn the_hardware_is_that_of_the_configuration() {
        let line = of(
            &[
                ("cores", "2"),
                ("sockets", "2"),
                ("memory", "768"),
                ("agent", "1"),
                ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
                ("net1", "e1000=BC:24:11:00:00:02,bridge=vmbr1"),
                ("scsi0", "local-lvm:vm-101-disk-0,size=10G"),
                ("virtio1", "local-lvm:vm-101-disk-1,size=1G"),
                ("ide2", "local-lvm:vm-101-cloudinit,media=cdrom"),
                ("boot", "order=ide2;scsi0"),
            ],
            None,
        );
        for part in [
            "-smp 4 -m 768M",
            "-machine pc -accel tcg,",
            "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
            "-netdev user,id=net0,ipv6=off,restrict=off -device virtio-net-pci,netdev=net0,mac=BC:24:11:00:00:01",
            "-netdev user,id=net1,ipv6=off,restrict=on -device e1000,netdev=net1,mac=BC:24:11:00:00:02",
            "node-name=drive-scsi0,file.driver=file,file.filename=/d/scsi0 -device \
             scsi-hd,bus=scsihw0.0,channel=0,scsi-id=0,lun=0,drive=drive-scsi0,id=scsi0,bootindex=1",
            "-device virtio-blk-pci,drive=drive-virtio1,id=virtio1 ",
            "driver=raw,read-only=on,node-name=drive-ide2,file.driver=file,file.filename=/d/ide2 \
             -device ide-cd,bus=ide.1,unit=0,drive=drive-ide2,id=ide2,bootindex=0",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("loadvm"));
    }

    #[test]
    fn a_guest_without_an_agent_has_no_port_for_it_and_saved_memory_is_loaded() {
        let line = of(&[("machine", "q35"), ("agent", "0")], Some("clean"));
        assert!(line.contains("-machine q35") && line.ends_with("-loadvm clean"), "{line}");
        assert!(!line.contains("virtserialport") && line.contains("ide-cd,bus=ide.1,unit=0"));
    }

    #[test]
    fn a_guest_with_uefi_has_its_code_and_the_variables_of_its_efi_disk() {
        let disk = ("efidisk0", "local-lvm:vm-101-disk-2,efitype=4m,size=528K");
        let line = of(&[("bios", "ovmf"), ("machine", "q35"), disk], None);
        for part in [
            "-machine q35,pflash0=firmware,pflash1=drive-efidisk0,smm=on ",
            "driver=raw,read-only=on,node-name=firmware,file.driver=file,\
             file.filename=/usr/share/OVMF/OVMF_CODE_4M.secboot.fd ",
            "node-name=drive-efidisk0,file.driver=file,file.filename=/d/efidisk0 ",
            "-global driver=cfi.pflash01,property=secure,value=on ",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert!(!line.contains("id=efidisk0"), "it is no drive: {line}");
    }
}
