//! Checks that Proxmox makes in code: privileges by configuration key, the storages and bridges
//! that a configuration names, and SSH keys.
//!
//! The API front end checks what the schema says; these checks need the state of the cluster.

use base64::Engine as _;
use percent_encoding::percent_decode_str;

use super::conf::{self, Config, Drive, Nic, numbered};
use super::context::CallContext;
use super::create::DriveRequest;
use super::mapping;
use super::storage::owner_in_name;
use crate::call::ApiError;

/// Parameters of calls that are not configuration keys.
const NON_CONFIG_PARAMETERS: &[&str] = &[
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

const HARDWARE_KEYS: &[&str] = &[
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
const CPU_KEYS: &[&str] =
    &["cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus", "allow-ksm"];
const MEMORY_KEYS: &[&str] = &["memory", "balloon", "shares"];
const DISK_KEYS: &[&str] = &["boot", "bootdisk", "vmstatestorage"];
const OPTION_KEYS: &[&str] = &[
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
/// Keys that become part of the cloud-init image.
pub(super) const CLOUDINIT_KEYS: &[&str] = &[
    "cicustom",
    "cipassword",
    "citype",
    "ciupgrade",
    "ciuser",
    "nameserver",
    "searchdomain",
    "sshkeys",
];

impl CallContext {
    /// The configuration keys among the parameters; empty values as Proxmox stores them.
    pub(crate) fn requested_config(&self) -> Config {
        let keys =
            self.params().0.keys().filter(|key| !NON_CONFIG_PARAMETERS.contains(&key.as_str()));
        let values = keys.filter_map(|key| Some((key.clone(), self.text(key)?)));
        values
            .filter(|(key, value)| key != "sshkeys" || !value.is_empty())
            .map(|(key, value)| match (key.as_str(), value.as_str()) {
                ("description", text) if !text.trim().is_empty() => {
                    let text = conf::stored_description(text).to_owned();
                    (key, text)
                }
                (_, "") => (key, " ".into()),
                _ => (key, value),
            })
            .collect()
    }

    pub(crate) fn check_on_guest(
        &self,
        pool: Option<&str>,
        privileges: &[&str],
    ) -> Result<(), ApiError> {
        if let Some(pool) = pool {
            let path = format!("/pool/{pool}");
            if privileges.iter().all(|privilege| self.has(&path, privilege)) {
                return Ok(());
            }
        }
        self.check(&format!("/vms/{}", self.vmid), privileges)
    }

    /// Checks the privileges to set and to delete these keys.
    ///
    /// # Errors
    /// 403 for a missing privilege, 500 for keys that only root may change.
    pub(crate) fn check_may_change(
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
            self.check_may_change_key(pool, key, None, old.get(key).map(String::as_str))?;
        }
        for (key, value) in set {
            self.check_may_change_key(pool, key, Some(value), old.get(key).map(String::as_str))?;
        }
        Ok(())
    }

    fn check_may_change_key(
        &self,
        pool: Option<&str>,
        key: &str,
        value: Option<&str>,
        old: Option<&str>,
    ) -> Result<(), ApiError> {
        let text = value.or(old).unwrap_or_default();
        let one = |privilege: &str| self.check_on_guest(pool, &[privilege]);
        if conf::is_drive(key) {
            // The call needs the privileges for the old and for the new content of the drive.
            let held = [old, value].into_iter().flatten();
            let mut wanted = held.flat_map(drive_privileges);
            return wanted.try_for_each(|privilege| one(privilege));
        }
        if numbered(key, "unused").is_some() || DISK_KEYS.contains(&key) {
            return one("VM.Config.Disk");
        }
        if CLOUDINIT_KEYS.contains(&key) || numbered(key, "ipconfig").is_some() {
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
        self.check_may_use_mapping(key, text)?;
        let device = ["serial", "usb", "hostpci"].iter().any(|n| numbered(key, n).is_some());
        if device || HARDWARE_KEYS.contains(&key) {
            return one("VM.Config.HWType");
        }
        if CPU_KEYS.contains(&key) {
            return one("VM.Config.CPU");
        }
        if MEMORY_KEYS.contains(&key) {
            return one("VM.Config.Memory");
        }
        if key == "startup" {
            self.check("/", &["Sys.Modify"])?;
        }
        if OPTION_KEYS.contains(&key) {
            return one("VM.Config.Options");
        }
        Err(only_root(key, "set", ""))
    }

    /// Checks that the caller may use the resource mapping that a device names
    /// (qemu-server, API2/Qemu.pm).
    fn check_may_use_mapping(&self, key: &str, text: &str) -> Result<(), ApiError> {
        match mapping::named(key, text) {
            Some((kind, id)) => self.check(&format!("/mapping/{kind}/{id}"), &["Mapping.Use"]),
            None => Ok(()),
        }
    }

    /// Checks that the caller may use the storages and volumes that new drives name.
    ///
    /// # Errors
    /// 403, or the error of the storage or volume.
    pub(crate) fn check_may_use_storages(&self, set: &Config) -> Result<(), ApiError> {
        for volid in set.iter().filter(|(key, _)| numbered(key, "unused").is_some()) {
            self.check_may_use_volume(volid.1)?;
        }
        for (key, drive) in conf::drives(set) {
            match DriveRequest::of(&drive) {
                DriveRequest::NoVolume => {}
                DriveRequest::NewDisk { storage, .. } | DriveRequest::Cloudinit { storage } => {
                    self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
                    self.check_accepts_images(&storage)?;
                }
                DriveRequest::Import { storage, source } => {
                    self.check(&format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
                    self.check_accepts_images(&storage)?;
                    self.check_may_import(&key, &source)?;
                }
                DriveRequest::Existing(volid) => self.check_may_use_volume(&volid)?,
            }
        }
        Ok(())
    }

    fn check_accepts_images(&self, storage: &str) -> Result<(), ApiError> {
        let state = self.cluster.state();
        let found = state.storage(storage).map_err(ApiError::failed)?;
        if found.accepts("images") {
            return Ok(());
        }
        let text = format!("storage '{storage}' does not support vm images");
        Err(ApiError::parameter("storage", text))
    }

    fn check_may_import(&self, key: &str, source: &str) -> Result<(), ApiError> {
        let kind = content_of(source);
        if !matches!(kind, "images" | "import") {
            let text =
                format!("{source} has wrong type '{kind}' - needs to be 'images' or 'import'");
            return Err(ApiError::parameter(key, text));
        }
        self.check_may_use_volume(source)
    }

    pub(crate) fn check_may_use_volume(&self, volid: &str) -> Result<(), ApiError> {
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
            return self.check_may_use_backup(volid);
        }
        {
            let state = self.cluster.state();
            let storage = state.storage_of(volid).map_err(ApiError::failed)?;
            let inner = volid.split_once(':').map_or("", |(_, inner)| inner);
            if storage.is_file_based() && !inner.contains('/') {
                let text = format!("unable to parse directory volume name '{inner}'");
                return Err(ApiError::failed(text));
            }
        }
        let path = format!("/storage/{}", conf::storage_name(volid).unwrap_or_default());
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

    /// Checks that the caller may use the bridges that network devices name.
    ///
    /// # Errors
    /// 403, or 500 if a device names none.
    pub(crate) fn check_may_use_bridges(&self, set: &Config) -> Result<(), ApiError> {
        let nics = set.iter().filter(|(key, _)| numbered(key, "net").is_some());
        for nic in nics.filter_map(|(_, value)| Nic::parse(value)) {
            let Some(bridge) = nic.options.get("bridge") else {
                return Err(ApiError::failed("no sdn vnet ID specified"));
            };
            self.check_may_use_bridge(bridge, nic.options.get("tag").map(String::as_str))?;
        }
        Ok(())
    }

    /// Checks that the caller may use one bridge or VNet.
    ///
    /// # Errors
    /// 403 without `SDN.Use`.
    pub(crate) fn check_may_use_bridge(
        &self,
        bridge: &str,
        tag: Option<&str>,
    ) -> Result<(), ApiError> {
        let zone = self.cluster.state().sdn.zone_of(bridge);
        let tag = tag.map(|tag| format!("/{tag}")).unwrap_or_default();
        self.check(&format!("/sdn/zones/{zone}/{bridge}{tag}"), &["SDN.Use"])
    }
}

/// The privileges that a change of a drive with this value needs.
fn drive_privileges(text: &str) -> &'static [&'static str] {
    let drive = Drive::parse(text);
    if drive.is_cloudinit() {
        &["VM.Config.Cloudinit", "VM.Config.CDROM"]
    } else if drive.is_cdrom() {
        &["VM.Config.CDROM"]
    } else {
        &["VM.Config.Disk"]
    }
}

/// The content type in the name of a volume.
pub(crate) fn content_of(volid: &str) -> &'static str {
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

/// Checks that `sshkeys` is percent-encoded and contains OpenSSH public keys.
///
/// # Errors
/// 400 for the encoding, 500 for the keys (book: proxmox, section 12).
pub(crate) fn check_ssh_keys(config: &Config) -> Result<(), ApiError> {
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

/// Whether a line consists of a type, a base64 blob that starts with the type, and an optional
/// comment.
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
        check_ssh_keys(&Config::from([("sshkeys".to_owned(), text.to_owned())]))
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
