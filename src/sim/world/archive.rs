//! The content of a backup: the guest's configuration, the sizes of its disks, and the id under
//! which the guest host keeps the data of its disk.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::Cluster;
use super::conf::Config;
use super::context::CallContext;
use super::state::{GuestType, State};
use super::storage::volume_name;
use crate::call::ApiError;

/// The first id for the disks of backups; it is above every VMID.
const FIRST_ARCHIVED_DISK_ID: u32 = 1_000_000_000;

/// The content of a backup file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Archive {
    /// `qemu` or `lxc`.
    pub(crate) kind: String,
    /// The guest's configuration.
    pub(crate) config: Config,
    /// Bytes of each volume, by configuration key.
    pub(crate) sizes: BTreeMap<String, u64>,
    /// The notes of the backup.
    pub(crate) notes: Option<String>,
    /// The id under which the guest host keeps the data of the guest's disk.
    pub(crate) disk: u32,
}

impl Archive {
    /// Serializes the archive to the content of its file.
    pub(crate) fn to_bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Parses a file; none if the simulator did not write it.
    pub(crate) fn parse(file: &Bytes) -> Option<Self> {
        serde_json::from_slice(file).ok()
    }
}

/// The file name of a backup (pve-manager, VZDump.pm:949).
pub(crate) fn file_name(kind: GuestType, vmid: u32, now: u64, extension: &str) -> String {
    let seconds = i64::try_from(now).unwrap_or_default();
    let time = Timestamp::from_second(seconds).unwrap_or_default().to_zoned(TimeZone::UTC);
    let stamp = time.strftime("%Y_%m_%d-%H_%M_%S");
    let kind_extension = if kind == GuestType::Vm { ".vma" } else { ".tar" };
    format!("vzdump-{}-{vmid}-{stamp}{kind_extension}{extension}", kind.api_name())
}

/// The format of a backup: everything after the first dot of its name.
pub(crate) fn format_of(volid: &str) -> String {
    volume_name(volid).split_once('.').map_or("vma", |(_, extension)| extension).to_owned()
}

/// The type and the VMID in the name of a backup.
pub(crate) fn guest_in_name(volid: &str) -> Option<(&str, u32)> {
    let mut parts = volume_name(volid).strip_prefix("vzdump-")?.split('-');
    let kind = parts.next()?;
    Some((kind, parts.next()?.parse().ok()?))
}

impl State {
    /// Returns an unused id for the disk of a backup.
    pub(crate) fn next_archived_disk_id(&mut self) -> u32 {
        self.archived_disks += 1;
        FIRST_ARCHIVED_DISK_ID + self.archived_disks
    }
}

impl Cluster {
    /// Reads a backup.
    ///
    /// # Errors
    /// The volume does not exist, or the simulator did not write it.
    pub(super) fn read_archive(&self, node: &str, volid: &str) -> Result<Archive, String> {
        let state = self.state();
        let storage = state.storage_of(volid)?;
        if storage.volume(node, volid).is_none() {
            return Err(format!("volume '{volid}' does not exist"));
        }
        let read = storage.file(node, volid).and_then(Archive::parse);
        read.ok_or_else(|| format!("cannot read '{volid}': drover sim did not create it"))
    }

    /// Drops the disk data of a deleted backup.
    pub(super) fn drop_archived_disk(&self, archive: Option<Archive>) {
        if let Some(archive) = archive {
            self.guest_host.forget(archive.disk);
        }
    }
}

impl CallContext {
    /// Checks that the caller may read a backup (pve-storage, Storage.pm, check_volume_access).
    ///
    /// # Errors
    /// 403 without the privilege, 500 if the volume is not a backup.
    pub(super) fn check_may_use_backup(&self, volid: &str) -> Result<(), ApiError> {
        let Some(storage) = super::conf::storage_name(volid) else {
            return self.check_may_use_volume(volid);
        };
        if super::checks::content_of(volid) != "backup" {
            let text = format!("unable to use volume {volid} - content type needs to be 'backup'");
            return Err(ApiError::failed(text));
        }
        let path = format!("/storage/{storage}");
        let owner = guest_in_name(volid).map(|(_, vmid)| vmid);
        if self.has(&path, "Datastore.Allocate") || owner == Some(self.vmid) {
            return Ok(());
        }
        let Some(owner) = owner else {
            return Err(ApiError::failed(format!("missing privileges to access {volid}")));
        };
        self.check(&path, &["Datastore.AllocateSpace"])?;
        self.check(&format!("/vms/{owner}"), &["VM.Backup"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_named_after_its_guest_and_its_time() {
        let made = file_name(GuestType::Vm, 101, 1_795_251_074, ".zst");
        assert_eq!(made, "vzdump-qemu-101-2026_11_21-08_51_14.vma.zst");
        let volid = format!("local:backup/{made}");
        assert_eq!(
            (guest_in_name(&volid), format_of(&volid).as_str()),
            (Some(("qemu", 101)), "vma.zst")
        );
    }
}
