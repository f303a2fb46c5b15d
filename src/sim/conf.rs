//! The configuration of a guest: keys and values as in Proxmox's files.
//!
//! A value is text, often a property string (`local-lvm:vm-100-disk-0,size=10G`). This file parses
//! and prints drives and network devices, sizes, boot orders and tags, and converts values to the
//! JSON types of answers. It knows no state and makes no checks.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use crate::section_keys::digest;

/// Keys and values as in the file.
pub(crate) type Config = BTreeMap<String, String>;

/// Keys with integer or boolean values; answers carry them as JSON numbers.
const NUMERIC_KEYS: &[&str] = &[
    "acpi",
    "allow-ksm",
    "autostart",
    "balloon",
    "ciupgrade",
    "cores",
    "cpuunits",
    "freeze",
    "keephugepages",
    "kvm",
    "localtime",
    "migrate_speed",
    "numa",
    "onboot",
    "protection",
    "reboot",
    "shares",
    "smp",
    "snaptime",
    "sockets",
    "tablet",
    "tdf",
    "template",
    "vcpus",
];

/// The parts of a property string. Blank parts are skipped, so a trailing or doubled comma is
/// harmless (pve-common, JSONSchema.pm, parse_property_string).
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.trim().is_empty())
}

/// Drive interfaces in Proxmox's order, and the number of drives of each.
const DRIVE_INTERFACES: &[(&str, u32)] =
    &[("ide", 4), ("scsi", 31), ("virtio", 16), ("sata", 6), ("efidisk", 1), ("tpmstate", 1)];

/// The number of a key that consists of `name` and a number, such as `net0`.
pub(crate) fn numbered<'a>(key: &'a str, name: &str) -> Option<&'a str> {
    let number = key.strip_prefix(name)?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

pub(crate) fn is_drive(key: &str) -> bool {
    DRIVE_INTERFACES.iter().any(|(name, count)| {
        numbered(key, name).and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n < *count)
    })
}

/// The drives of a configuration, in Proxmox's order.
pub(crate) fn drives(config: &Config) -> Vec<(String, Drive)> {
    DRIVE_INTERFACES
        .iter()
        .flat_map(|(name, count)| (0..*count).map(move |n| format!("{name}{n}")))
        .filter_map(|key| config.get(&key).map(|value| (key, Drive::parse(value))))
        .collect()
}

/// A drive as a property string: an optional leading value, then `key=value` pairs. Also used for
/// mount points and network devices of containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Drive {
    /// The volume, a path, `none` or `cdrom`.
    pub(crate) file: String,
    /// The `key=value` pairs.
    pub(crate) options: BTreeMap<String, String>,
}

impl Drive {
    pub(crate) fn parse(text: &str) -> Self {
        let mut drive = Self::default();
        for part in parts(text) {
            match part.split_once('=') {
                Some(("file" | "volume", file)) => drive.file = file.to_owned(),
                Some((key, value)) => {
                    drive.options.insert(key.to_owned(), value.to_owned());
                }
                None => drive.file = part.to_owned(),
            }
        }
        drive
    }

    /// The drive as text for the file.
    pub(crate) fn print(&self) -> String {
        let mut text = self.file.clone();
        for (key, value) in &self.options {
            text.push_str(&format!(",{key}={value}"));
        }
        text
    }

    /// Whether the drive is a CD-ROM; a cloud-init drive is one, too.
    pub(crate) fn is_cdrom(&self) -> bool {
        self.options.get("media").is_some_and(|media| media == "cdrom")
    }

    pub(crate) fn is_cloudinit(&self) -> bool {
        self.file.ends_with(":cloudinit") || self.file.contains("-cloudinit")
    }

    /// The storage of the volume; none for `none`, `cdrom` and paths.
    pub(crate) fn storage(&self) -> Option<&str> {
        storage_name(&self.file)
    }

    /// The `size` option in bytes; 0 without it.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.options.get("size").and_then(|size| parse_size(size)).unwrap_or(0)
    }
}

/// The name of the storage in a volume id; none for a path.
pub(crate) fn storage_name(volid: &str) -> Option<&str> {
    if volid.starts_with('/') {
        return None;
    }
    volid.split_once(':').map(|(storage, _)| storage)
}

/// Converts a size such as `10G` to bytes; a number without a unit is bytes.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().last()? {
        (at, 'K' | 'k') => (&text[..at], 1u64 << 10),
        (at, 'M' | 'm') => (&text[..at], 1 << 20),
        (at, 'G' | 'g') => (&text[..at], 1 << 30),
        (at, 'T' | 't') => (&text[..at], 1 << 40),
        _ => (text, 1),
    };
    let number: f64 = number.parse().ok()?;
    (number >= 0.0).then_some((number * unit as f64) as u64)
}

/// A size in the largest unit that divides it, as Proxmox writes it; zero is `0T`.
pub(crate) fn print_size(bytes: u64) -> String {
    let mut size = bytes;
    for unit in ["", "K", "M", "G"] {
        if !size.is_multiple_of(1024) {
            return format!("{size}{unit}");
        }
        size /= 1024;
    }
    format!("{size}T")
}

/// A network device of a VM: model, MAC address and options. The options are printed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nic {
    /// The model, such as `virtio`.
    pub(crate) model: String,
    pub(crate) mac: Option<String>,
    pub(crate) options: BTreeMap<String, String>,
}

impl Nic {
    /// Parses a network device; none without a model.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut nic = Self { model: String::new(), mac: None, options: BTreeMap::new() };
        for part in parts(text) {
            match part.split_once('=') {
                Some(("model", model)) => nic.model = model.to_owned(),
                Some(("macaddr", mac)) => nic.mac = Some(mac.to_uppercase()),
                Some((model, mac)) if looks_like_mac(mac) => {
                    nic.model = model.to_owned();
                    nic.mac = Some(mac.to_uppercase());
                }
                Some((key, value)) => {
                    nic.options.insert(key.to_owned(), value.to_owned());
                }
                None => nic.model = part.to_owned(),
            }
        }
        (!nic.model.is_empty()).then_some(nic)
    }

    /// The device as text for the file.
    pub(crate) fn print(&self) -> String {
        let mut text = self.model.clone();
        if let Some(mac) = &self.mac {
            text.push_str(&format!("={mac}"));
        }
        for (key, value) in &self.options {
            text.push_str(&format!(",{key}={value}"));
        }
        text
    }
}

fn looks_like_mac(text: &str) -> bool {
    text.len() == 17 && text.split(':').count() == 6
}

/// A value in the JSON type that answers have; the password is masked.
pub(crate) fn json_value(key: &str, value: &str) -> Value {
    if key == "cipassword" {
        return "**********".into();
    }
    if NUMERIC_KEYS.contains(&key)
        && let Ok(number) = value.parse::<i64>()
    {
        return number.into();
    }
    value.into()
}

/// A configuration in the JSON types that answers have.
pub(crate) fn json_fields(config: &Config) -> Map<String, Value> {
    config.iter().map(|(key, value)| (key.clone(), json_value(key, value))).collect()
}

/// The value of a numeric key.
pub(crate) fn number(config: &Config, key: &str) -> Option<u64> {
    config.get(key)?.trim().parse().ok()
}

/// Whether a boolean key is set.
pub(crate) fn flag(config: &Config, key: &str) -> bool {
    config.get(key).is_some_and(|value| value == "1")
}

pub(crate) fn agent_enabled(config: &Config) -> bool {
    let Some(agent) = config.get("agent") else { return false };
    let first = parts(agent).find_map(|part| match part.split_once('=') {
        Some(("enabled", value)) => Some(value),
        Some(_) => None,
        None => Some(part),
    });
    first.is_some_and(|value| matches!(value, "1" | "on" | "yes" | "true"))
}

/// The memory; 512 MiB by default.
pub(crate) fn memory_bytes(config: &Config) -> u64 {
    let text = config.get("memory").and_then(|memory| parts(memory).next()).unwrap_or("512");
    let text = text.strip_prefix("current=").unwrap_or(text);
    text.parse::<u64>().unwrap_or(512) << 20
}

/// The number of virtual processors.
pub(crate) fn cpus(config: &Config) -> u64 {
    let all = number(config, "cores").unwrap_or(1) * number(config, "sockets").unwrap_or(1);
    number(config, "vcpus").map_or(all, |vcpus| vcpus.min(all))
}

pub(crate) fn boot_order(config: &Config) -> Vec<String> {
    let Some(boot) = config.get("boot") else { return default_boot(config) };
    let order = boot.split(',').find_map(|part| part.strip_prefix("order="));
    let order = order.map(|order| order.split(';').map(str::to_owned).collect());
    order.unwrap_or_default()
}

/// The boot order that Proxmox derives: the first disk, CD-ROM and network device.
pub(crate) fn default_boot(config: &Config) -> Vec<String> {
    let drives = drives(config);
    let bootable = |key: &str| !key.starts_with("efidisk") && !key.starts_with("tpmstate");
    let disk = drives.iter().find(|(key, drive)| bootable(key) && !drive.is_cdrom());
    let cdrom = drives.iter().find(|(_, drive)| drive.is_cdrom());
    let net = (0..32).map(|n| format!("net{n}")).find(|key| config.contains_key(key));
    disk.into_iter().chain(cdrom).map(|(key, _)| key.clone()).chain(net).collect()
}

/// The size of the boot disk; 0 without one.
pub(crate) fn boot_disk_bytes(config: &Config) -> u64 {
    let order = boot_order(config);
    let mut disks = order.iter().filter(|key| is_drive(key)).filter_map(|key| config.get(key));
    disks
        .find_map(|value| {
            let drive = Drive::parse(value);
            (!drive.is_cdrom()).then(|| drive.size_bytes())
        })
        .unwrap_or(0)
}

/// A description as the file of a VM returns it: trailing blanks are lost (qemu-server,
/// QemuServer.pm, parse_vm_config).
pub(crate) fn stored_description(text: &str) -> &str {
    text.trim_end()
}

/// Tags as PUT and POST config store them: lower case, unique, sorted (book: proxmox, section 11).
pub(crate) fn normalise_tags(tags: &str) -> String {
    let mut list: Vec<String> = tags
        .split([';', ',', ' ', '\t', '\n', '\0'])
        .filter(|tag| !tag.is_empty())
        .map(str::to_lowercase)
        .collect();
    list.sort();
    list.dedup();
    list.join(";")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Config {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn sizes_are_written_as_recorded() {
        let written = [0, 1 << 30, 4608 << 20, 3_758_096_385].map(print_size);
        assert_eq!(written, ["0T", "1G", "4608M", "3758096385"]);
        assert_eq!(parse_size("4.5G"), Some(4_831_838_208));
    }

    #[test]
    fn the_boot_order_is_worked_out_as_recorded() {
        let full = config(&[("ide2", "s:cloudinit,media=cdrom"), ("scsi0", "s:1"), ("net0", "x")]);
        assert_eq!(default_boot(&full), ["scsi0", "ide2", "net0"]);
        assert!(default_boot(&Config::new()).is_empty());
    }

    #[test]
    fn tags_become_a_sorted_set_in_lower_case() {
        let cases = [("B;b;A", "a;b"), ("x;;y", "x;y"), ("b a", "a;b"), (" lead", "lead")];
        for (sent, stored) in cases {
            assert_eq!(normalise_tags(sent), stored);
        }
    }

    #[test]
    fn a_network_device_keeps_its_mac_and_sorts_its_options() {
        let nic = Nic::parse("virtio=bc:24:11:00:00:01,firewall=1,bridge=vmbr0").unwrap();
        assert_eq!(nic.print(), "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1");
    }

    #[test]
    fn a_trailing_or_doubled_comma_changes_no_drive() {
        let cases = [
            ("file=s:cloudinit,", "s:cloudinit"),
            ("s:1,,discard=on", "s:1,discard=on"),
            (",s:1, ,discard=on,", "s:1,discard=on"),
            ("volume=s:vm-1-disk-0,", "s:vm-1-disk-0"),
        ];
        for (text, drive) in cases {
            assert_eq!(Drive::parse(text).print(), drive, "{text}");
        }
    }

    #[test]
    fn a_trailing_or_doubled_comma_changes_no_network_device() {
        let mac = "virtio=BC:24:11:00:00:01";
        for text in ["virtio,bridge=vmbr0,", ",model=virtio,,bridge=vmbr0"] {
            assert_eq!(Nic::parse(text).unwrap().print(), "virtio,bridge=vmbr0", "{text}");
        }
        let nic = Nic::parse(&format!(",{mac},,bridge=vmbr0,")).unwrap();
        assert_eq!(nic.print(), format!("{mac},bridge=vmbr0"));
    }

    #[test]
    fn a_comma_too_many_hides_neither_agent_nor_memory() {
        let config = config(&[("agent", ",enabled=1,"), ("memory", ",current=2048,")]);
        assert!(agent_enabled(&config));
        assert_eq!(memory_bytes(&config), 2048 << 20);
    }

    #[test]
    fn types_of_answers_are_as_recorded() {
        assert_eq!(json_value("cores", "2"), 2);
        assert_eq!(json_value("memory", "64"), "64");
        assert_eq!(
            (json_value("migrate_speed", "32"), json_value("keephugepages", "1")),
            (32.into(), 1.into())
        );
        assert_eq!(json_value("cipassword", "secret"), "**********");
    }

    #[test]
    fn the_agent_counts_as_enabled_in_all_its_spellings() {
        for (text, enabled) in
            [("1", true), ("enabled=1", true), ("1,type=isa", true), ("0", false)]
        {
            assert_eq!(agent_enabled(&config(&[("agent", text)])), enabled, "{text}");
        }
    }
}
