//! Checks that Proxmox makes in code: privileges by configuration key, storages and bridges that
//! a configuration names, SSH keys.

use base64::Engine as _;
use percent_encoding::percent_decode_str;

use super::ask::Ask;
use super::conf::{self, Config, Drive, Nic, numbered};
use super::create::Wish;
use super::storage::owner_in_name;
use crate::call::ApiError;

/// Parameters of calls that are no configuration keys.
const NOT_KEYS: &[&str] = &[
    "node",
    "vmid",
    "pool",
    "storage",
    "start",
    "archive",
    "force",
    "unique",
    "bwlimit",
    "delete",
    "revert",
    "digest",
    "skiplock",
    "background_delay",
    "live-restore",
    "ha-managed",
    "import-working-storage",
];

const HARDWARE: &[&str] = &[
    "acpi",
    "audio0",
    "hotplug",
    "kvm",
    "machine",
    "rng0",
    "scsihw",
    "smbios1",
    "tablet",
    "vga",
    "watchdog",
    "keephugepages",
    "hugepages",
];
const CPU: &[&str] =
    &["cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus", "allow-ksm"];
const MEMORY: &[&str] = &["memory", "balloon", "shares"];
const DISK: &[&str] = &["boot", "bootdisk", "vmstatestorage"];
const OPTIONS: &[&str] = &[
    "agent",
    "autostart",
    "bios",
    "description",
    "keyboard",
    "localtime",
    "migrate_downtime",
    "migrate_speed",
    "name",
    "onboot",
    "ostype",
    "protection",
    "reboot",
    "spice_enhancements",
    "startdate",
    "startup",
    "tags",
    "tdf",
    "template",
    "freeze",
];
/// Keys that end up in cloud-init's image.
pub(super) const CLOUDINIT: &[&str] = &[
    "cicustom",
    "cipassword",
    "citype",
    "ciupgrade",
    "ciuser",
    "nameserver",
    "searchdomain",
    "sshkeys",
];

impl Ask {
    /// The configuration keys among the parameters, empty ones as Proxmox stores them.
    pub(crate) fn wanted_config(&self) -> Config {
        let keys = self.params().0.keys().filter(|key| !NOT_KEYS.contains(&key.as_str()));
        let values = keys.filter_map(|key| Some((key.clone(), self.text(key)?)));
        values
            .filter(|(key, value)| key != "sshkeys" || !value.is_empty())
            .map(|(key, value)| match (key.as_str(), value.as_str()) {
                ("description", text) if !text.trim().is_empty() => {
                    let text = conf::description(text).to_owned();
                    (key, text)
                }
                (_, "") => (key, " ".into()),
                _ => (key, value),
            })
            .collect()
    }

    pub(crate) fn on_guest(&self, pool: Option<&str>, privileges: &[&str]) -> Result<(), ApiError> {
        if let Some(pool) = pool {
            let path = format!("/pool/{pool}");
            if privileges.iter().all(|privilege| self.has(&path, privilege)) {
                return Ok(());
            }
        }
        self.check(&format!("/vms/{}", self.vmid), privileges)
    }

    /// Requires the privileges to set keys, and to delete others.
    ///
    /// # Errors
    /// 403 for a missing privilege, 500 for keys that are root's.
    pub(crate) fn may_change(
        &self,
        pool: Option<&str>,
        set: &Config,
        delete: &[String],
        old: &Config,
    ) -> Result<(), ApiError> {
        if self.call.caller.is_root() {
            return Ok(());
        }
        for key in delete {
            self.may_change_key(pool, key, None, old.get(key).map(String::as_str))?;
        }
        for (key, value) in set {
            self.may_change_key(pool, key, Some(value), old.get(key).map(String::as_str))?;
        }
        Ok(())
    }

    fn may_change_key(
        &self,
        pool: Option<&str>,
        key: &str,
        value: Option<&str>,
        old: Option<&str>,
    ) -> Result<(), ApiError> {
        let text = value.or(old).unwrap_or_default();
        let one = |privilege: &str| self.on_guest(pool, &[privilege]);
        if conf::is_drive(key) {
            // What is taken out of the drive, and what is put into it.
            let held = [old, value].into_iter().flatten();
            let mut wanted = held.flat_map(of_drive);
            return wanted.try_for_each(|privilege| one(privilege));
        }
        if numbered(key, "unused").is_some() || DISK.contains(&key) {
            return one("VM.Config.Disk");
        }
        if CLOUDINIT.contains(&key) || numbered(key, "ipconfig").is_some() {
            let any = ["VM.Config.Cloudinit", "VM.Config.Network"];
            if any.iter().any(|privilege| one(privilege).is_ok()) {
                return Ok(());
            }
            return self.check_any(&format!("/vms/{}", self.vmid), &any);
        }
        if numbered(key, "net").is_some() {
            return one("VM.Config.Network");
        }
        if numbered(key, "serial").is_some() && text != "socket" {
            return Err(only_root(key, "modify", " for real devices"));
        }
        if numbered(key, "usb").is_some() && !text.contains("spice") && !text.contains("mapping=") {
            return Err(only_root(key, "set", " for real devices"));
        }
        if numbered(key, "hostpci").is_some() && !text.contains("mapping=") {
            return Err(only_root(key, "set", " for non-mapped devices"));
        }
        let device = ["serial", "usb", "hostpci"].iter().any(|n| numbered(key, n).is_some());
        if device || HARDWARE.contains(&key) {
            return one("VM.Config.HWType");
        }
        if CPU.contains(&key) {
            return one("VM.Config.CPU");
        }
        if MEMORY.contains(&key) {
            return one("VM.Config.Memory");
        }
        if key == "startup" {
            self.check("/", &["Sys.Modify"])?;
        }
        if OPTIONS.contains(&key) {
            return one("VM.Config.Options");
        }
        Err(only_root(key, "set", ""))
    }

    /// Requires that the caller may use the storages and volumes that new drives name.
    ///
    /// # Errors
    /// 403, or what is wrong with a storage or volume.
    pub(crate) fn may_use_storages(&self, set: &Config) -> Result<(), ApiError> {
        for volid in set.iter().filter(|(key, _)| numbered(key, "unused").is_some()) {
            self.may_use_volume(volid.1)?;
        }
        for (key, drive) in conf::drives(set) {
            match Wish::of(&drive) {
                Wish::Nothing => {}
                Wish::New { storage, .. } | Wish::Cloudinit { storage } => {
                    self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
                    self.takes_images(&storage)?;
                }
                Wish::Import { storage, source } => {
                    self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
                    self.takes_images(&storage)?;
                    self.may_import(&key, &source)?;
                }
                Wish::Existing(volid) => self.may_use_volume(&volid)?,
            }
        }
        Ok(())
    }

    fn takes_images(&self, storage: &str) -> Result<(), ApiError> {
        let state = self.cluster.state();
        let found = state.storage(storage).map_err(ApiError::failed)?;
        if found.takes("images") {
            return Ok(());
        }
        let text = format!("storage '{storage}' does not support vm images");
        Err(ApiError::parameter("storage", text))
    }

    fn may_import(&self, key: &str, source: &str) -> Result<(), ApiError> {
        let kind = content_of(source);
        if !matches!(kind, "images" | "import") {
            let text =
                format!("{source} has wrong type '{kind}' - needs to be 'images' or 'import'");
            return Err(ApiError::parameter(key, text));
        }
        self.may_use_volume(source)
    }

    pub(crate) fn may_use_volume(&self, volid: &str) -> Result<(), ApiError> {
        if volid.starts_with('/') {
            if self.call.caller.is_root() {
                return Ok(());
            }
            return Err(ApiError::failed(
                "Only root can pass arbitrary filesystem paths. at \
                 /usr/share/perl5/PVE/Storage.pm line 581.",
            ));
        }
        if content_of(volid) == "backup" {
            return self.may_use_backup(volid);
        }
        {
            let state = self.cluster.state();
            let storage = state.storage_of(volid).map_err(ApiError::failed)?;
            let inner = volid.split_once(':').map_or("", |(_, inner)| inner);
            if storage.is_files() && !inner.contains('/') {
                let text = format!("unable to parse directory volume name '{inner}'");
                return Err(ApiError::failed(text));
            }
        }
        let path = format!("/storage/{}", conf::storage_of(volid).unwrap_or_default());
        match content_of(volid) {
            "images" if owner_in_name(volid) == Some(self.vmid) => Ok(()),
            "images" if self.has(&path, "Datastore.Allocate") => Ok(()),
            "images" => match owner_in_name(volid) {
                Some(owner) => self.check(&format!("/vms/{owner}"), &["VM.Config.Disk"]),
                None => self.check(&path, &["Datastore.Allocate"]),
            },
            _ if self.has(&path, "Datastore.Allocate") => Ok(()),
            _ => self.check_any(&path, &["Datastore.Audit", "Datastore.AllocateSpace"]),
        }
    }

    /// Requires that the caller may use the bridges that network devices name.
    ///
    /// # Errors
    /// 403, or 500 when a device names none.
    pub(crate) fn may_use_bridges(&self, set: &Config) -> Result<(), ApiError> {
        let nics = set.iter().filter(|(key, _)| numbered(key, "net").is_some());
        for nic in nics.filter_map(|(_, value)| Nic::parse(value)) {
            let Some(bridge) = nic.options.get("bridge") else {
                return Err(ApiError::failed("no sdn vnet ID specified"));
            };
            self.may_use_bridge(bridge, nic.options.get("tag").map(String::as_str))?;
        }
        Ok(())
    }

    /// Requires that the caller may use one bridge or VNet.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn may_use_bridge(&self, bridge: &str, tag: Option<&str>) -> Result<(), ApiError> {
        let zone = self.cluster.state().sdn.zone_of(bridge);
        let tag = tag.map(|tag| format!("/{tag}")).unwrap_or_default();
        self.check(&format!("/sdn/zones/{zone}/{bridge}{tag}"), &["SDN.Use"])
    }
}

/// What is asked for to change a drive that holds this.
fn of_drive(text: &str) -> &'static [&'static str] {
    let drive = Drive::parse(text);
    if drive.is_cloudinit() {
        &["VM.Config.Cloudinit", "VM.Config.CDROM"]
    } else if drive.is_cdrom() {
        &["VM.Config.CDROM"]
    } else {
        &["VM.Config.Disk"]
    }
}

/// The content type a volume's name says it has.
pub fn content_of(volid: &str) -> &'static str {
    let inner = volid.split_once(':').map_or(volid, |(_, inner)| inner);
    match inner.split_once('/').map(|(directory, _)| directory) {
        Some("iso") => "iso",
        Some("vztmpl") => "vztmpl",
        Some("snippets") => "snippets",
        Some("backup") => "backup",
        Some("import") => "import",
        _ => "images",
    }
}

fn only_root(key: &str, verb: &str, tail: &str) -> ApiError {
    ApiError::failed(format!("only root can {verb} '{key}' config{tail}"))
}

/// Requires that `sshkeys` is percent-encoded and holds OpenSSH public keys.
///
/// # Errors
/// 400 for the encoding, 500 for the keys (behaviour section 12).
pub fn ssh_keys(config: &Config) -> Result<(), ApiError> {
    let Some(encoded) = config.get("sshkeys") else { return Ok(()) };
    let clean = |c: char| c.is_ascii_alphanumeric() || "-%_.!~*'()".contains(c);
    if !encoded.chars().all(clean) {
        let text = format!("invalid format - invalid urlencoded string: {encoded}\n");
        return Err(ApiError::parameter("sshkeys", text));
    }
    let decoded = percent_decode_str(encoded).decode_utf8_lossy().into_owned();
    let mut lines =
        decoded.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    if lines.all(is_public_key) {
        Ok(())
    } else {
        Err(ApiError::failed("SSH public key validation error"))
    }
}

/// A line of type, base64 blob that begins with the type, and perhaps a comment.
fn is_public_key(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let (Some(kind), Some(blob)) = (words.next(), words.next()) else { return false };
    let Ok(blob) = base64::engine::general_purpose::STANDARD.decode(blob) else { return false };
    let Some((length, rest)) = blob.split_first_chunk::<4>() else { return false };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    rest.get(..length).is_some_and(|name| name == kind.as_bytes())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const KEY: &str = "ssh-ed25519%20AAAAC3NzaC1lZDI1NTE5AAAAID2srLHoESGuV7DE9hXq0C%2FgYI8bXKciGrZTuQ0uljLg%20a%2Bb%20c";

    fn keys(text: &str) -> Result<(), ApiError> {
        ssh_keys(&Config::from([("sshkeys".to_owned(), text.to_owned())]))
    }

    #[test]
    fn ssh_keys_are_taken_encoded_and_refused_raw() {
        assert!(keys(KEY).is_ok());
        let raw = keys(&KEY.replace("%20", "+")).unwrap_err();
        assert!(raw.errors["sshkeys"].starts_with("invalid format - invalid urlencoded string: "));
    }

    #[test]
    fn encoded_garbage_is_no_key() {
        for text in ["garbage", "%zz"] {
            assert_eq!(keys(text).unwrap_err().message, "SSH public key validation error");
        }
    }
}
