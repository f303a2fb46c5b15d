//! A guest's configuration: keys and values as in Proxmox's files, drives and network devices as
//! property strings, and the typed form that answers carry.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub(crate) use crate::section_keys::digest;

/// Keys and values as they stand in the file.
pub type Config = BTreeMap<String, String>;

/// Keys whose values are integers or booleans, and come as JSON numbers.
const NUMERIC: &[&str] = &[
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

/// The parts of a property string: blank ones are skipped, so a comma may trail or be doubled
/// (pve-common, JSONSchema.pm, parse_property_string).
pub fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.trim().is_empty())
}

/// Drive interfaces in the order in which Proxmox goes through them, and how many each has.
const INTERFACES: &[(&str, u32)] =
    &[("ide", 4), ("scsi", 31), ("virtio", 16), ("sata", 6), ("efidisk", 1), ("tpmstate", 1)];

/// A key that is a name and a number, such as `net0`.
pub fn numbered<'a>(key: &'a str, name: &str) -> Option<&'a str> {
    let number = key.strip_prefix(name)?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(number)
}

/// Whether a key names a drive.
pub fn is_drive(key: &str) -> bool {
    INTERFACES.iter().any(|(name, count)| {
        numbered(key, name).and_then(|n| n.parse::<u32>().ok()).is_some_and(|n| n < *count)
    })
}

/// The drives of a configuration in Proxmox's order.
pub fn drives(config: &Config) -> Vec<(String, Drive)> {
    INTERFACES
        .iter()
        .flat_map(|(name, count)| (0..*count).map(move |n| format!("{name}{n}")))
        .filter_map(|key| config.get(&key).map(|value| (key, Drive::parse(value))))
        .collect()
}

/// A property string: an optional leading value, then `key=value` pairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drive {
    /// The volume, a path, `none` or `cdrom`.
    pub file: String,
    /// Everything after it.
    pub options: BTreeMap<String, String>,
}

impl Drive {
    /// Parses a drive.
    pub fn parse(text: &str) -> Self {
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

    /// The drive as it is written to the file.
    pub fn print(&self) -> String {
        let mut text = self.file.clone();
        for (key, value) in &self.options {
            text.push_str(&format!(",{key}={value}"));
        }
        text
    }

    /// Whether it is a CD-ROM, cloud-init drives included.
    pub fn is_cdrom(&self) -> bool {
        self.options.get("media").is_some_and(|media| media == "cdrom")
    }

    /// Whether it is a cloud-init drive.
    pub fn is_cloudinit(&self) -> bool {
        self.file.ends_with(":cloudinit") || self.file.contains("-cloudinit")
    }

    /// The storage its volume is on; none for `none`, `cdrom` and paths.
    pub fn storage(&self) -> Option<&str> {
        storage_of(&self.file)
    }

    /// Its size in bytes as written.
    pub fn size(&self) -> u64 {
        self.options.get("size").and_then(|size| parse_size(size)).unwrap_or(0)
    }
}

/// The storage of a volume id.
pub fn storage_of(volid: &str) -> Option<&str> {
    if volid.starts_with('/') {
        return None;
    }
    volid.split_once(':').map(|(storage, _)| storage)
}

/// Bytes of a size such as `10G`; a bare number is bytes.
pub fn parse_size(text: &str) -> Option<u64> {
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

/// A size in the largest unit that divides it, zero as `0T`, as Proxmox writes it.
pub fn print_size(bytes: u64) -> String {
    let mut size = bytes;
    for unit in ["", "K", "M", "G"] {
        if !size.is_multiple_of(1024) {
            return format!("{size}{unit}");
        }
        size /= 1024;
    }
    format!("{size}T")
}

/// A network device: model, MAC address and options, printed with the options sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The model, such as `virtio`.
    pub model: String,
    /// Its MAC address, if one is set.
    pub mac: Option<String>,
    /// Everything else.
    pub options: BTreeMap<String, String>,
}

impl Nic {
    /// Parses a network device; none without a model.
    pub fn parse(text: &str) -> Option<Self> {
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

    /// The device as it is written to the file.
    pub fn print(&self) -> String {
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

/// A value as answers carry it.
pub fn typed(key: &str, value: &str) -> Value {
    if key == "cipassword" {
        return "**********".into();
    }
    if NUMERIC.contains(&key)
        && let Ok(number) = value.parse::<i64>()
    {
        return number.into();
    }
    value.into()
}

/// A configuration as answers carry it.
pub fn typed_all(config: &Config) -> Map<String, Value> {
    config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect()
}

/// A number of a configuration.
pub fn number(config: &Config, key: &str) -> Option<u64> {
    config.get(key)?.trim().parse().ok()
}

/// Whether a boolean of a configuration is set.
pub fn flag(config: &Config, key: &str) -> bool {
    config.get(key).is_some_and(|value| value == "1")
}

/// Whether the guest agent is enabled.
pub fn agent_enabled(config: &Config) -> bool {
    let Some(agent) = config.get("agent") else { return false };
    let first = parts(agent).find_map(|part| match part.split_once('=') {
        Some(("enabled", value)) => Some(value),
        Some(_) => None,
        None => Some(part),
    });
    first.is_some_and(|value| matches!(value, "1" | "on" | "yes" | "true"))
}

/// Memory in bytes; 512 MiB when nothing is said.
pub fn memory(config: &Config) -> u64 {
    let text = config.get("memory").and_then(|memory| parts(memory).next()).unwrap_or("512");
    let text = text.strip_prefix("current=").unwrap_or(text);
    text.parse::<u64>().unwrap_or(512) << 20
}

/// Virtual processors.
pub fn cpus(config: &Config) -> u64 {
    let all = number(config, "cores").unwrap_or(1) * number(config, "sockets").unwrap_or(1);
    number(config, "vcpus").map_or(all, |vcpus| vcpus.min(all))
}

/// The boot order as device names.
pub fn boot_order(config: &Config) -> Vec<String> {
    let Some(boot) = config.get("boot") else { return default_boot(config) };
    let order = boot.split(',').find_map(|part| part.strip_prefix("order="));
    let order = order.map(|order| order.split(';').map(str::to_owned).collect());
    order.unwrap_or_default()
}

/// The boot order Proxmox works out: the first disk, CD-ROM and network device.
pub fn default_boot(config: &Config) -> Vec<String> {
    let drives = drives(config);
    let bootable = |key: &str| !key.starts_with("efidisk") && !key.starts_with("tpmstate");
    let disk = drives.iter().find(|(key, drive)| bootable(key) && !drive.is_cdrom());
    let cdrom = drives.iter().find(|(_, drive)| drive.is_cdrom());
    let net = (0..32).map(|n| format!("net{n}")).find(|key| config.contains_key(key));
    disk.into_iter().chain(cdrom).map(|(key, _)| key.clone()).chain(net).collect()
}

/// The size of the disk the guest boots from; 0 when there is none.
pub fn boot_disk_size(config: &Config) -> u64 {
    let order = boot_order(config);
    let mut disks = order.iter().filter(|key| is_drive(key)).filter_map(|key| config.get(key));
    disks
        .find_map(|value| {
            let drive = Drive::parse(value);
            (!drive.is_cdrom()).then(|| drive.size())
        })
        .unwrap_or(0)
}

/// A description as a virtual machine's file gives it back: blanks at its end are lost
/// (qemu-server, QemuServer.pm, parse_vm_config).
pub fn description(text: &str) -> &str {
    text.trim_end()
}

/// Tags as PUT and POST config store them: lower case, once each, sorted (behaviour section 11).
pub fn normalise_tags(tags: &str) -> String {
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
        assert_eq!(memory(&config), 2048 << 20);
    }

    #[test]
    fn types_of_answers_are_as_recorded() {
        assert_eq!(typed("cores", "2"), 2);
        assert_eq!(typed("memory", "64"), "64");
        assert_eq!(
            (typed("migrate_speed", "32"), typed("keephugepages", "1")),
            (32.into(), 1.into())
        );
        assert_eq!(typed("cipassword", "secret"), "**********");
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
