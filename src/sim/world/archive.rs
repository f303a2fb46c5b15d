//! What is in a backup: the guest's configuration, the sizes of its disks, and what stood on them.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::Cluster;
use super::ask::Ask;
use super::conf::Config;
use super::state::{Kind, State};
use super::storage::name_of;
use crate::call::ApiError;

/// Ids of disks that backups keep begin here, above all ids that guests can have.
const KEPT_DISKS: u32 = 1_000_000_000;

/// The content of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// `qemu` or `lxc`.
    pub kind: String,
    /// The guest's configuration.
    pub config: Config,
    /// Bytes of each volume in it, by the configuration's key.
    pub sizes: BTreeMap<String, u64>,
    /// What is noted about it.
    pub notes: Option<String>,
    /// Under which id the guest host keeps what stood on the guest's disk.
    pub disk: u32,
}

impl Archive {
    /// The archive as the bytes of its file.
    pub fn text(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// Reads an archive; none where the file is no backup made here.
    pub fn of(file: &Bytes) -> Option<Self> {
        serde_json::from_slice(file).ok()
    }
}

/// The file name of a backup (pve-manager, VZDump.pm:949).
pub fn name(kind: Kind, vmid: u32, now: u64, ending: &str) -> String {
    let seconds = i64::try_from(now).unwrap_or_default();
    let time = Timestamp::from_second(seconds).unwrap_or_default().to_zoned(TimeZone::UTC);
    let stamp = time.strftime("%Y_%m_%d-%H_%M_%S");
    let kind_ending = if kind == Kind::Vm { ".vma" } else { ".tar" };
    format!("vzdump-{}-{vmid}-{stamp}{kind_ending}{ending}", kind.name())
}

/// The format of a backup: all endings of its name.
pub fn format(volid: &str) -> String {
    name_of(volid).split_once('.').map_or("vma", |(_, ending)| ending).to_owned()
}

/// The kind and the guest that stand in a backup's name.
pub fn owner(volid: &str) -> Option<(&str, u32)> {
    let mut parts = name_of(volid).strip_prefix("vzdump-")?.split('-');
    let kind = parts.next()?;
    Some((kind, parts.next()?.parse().ok()?))
}

impl State {
    /// A fresh id for a disk that a backup keeps.
    pub fn next_kept_disk(&mut self) -> u32 {
        self.kept_disks += 1;
        KEPT_DISKS + self.kept_disks
    }
}

impl Cluster {
    /// Reads a backup.
    ///
    /// # Errors
    /// When the volume does not exist, or holds no backup that was made here.
    pub(super) fn archive(&self, node: &str, volid: &str) -> Result<Archive, String> {
        let state = self.state();
        let storage = state.storage_of(volid)?;
        if storage.volume(node, volid).is_none() {
            return Err(format!("volume '{volid}' does not exist"));
        }
        let read = storage.file(node, volid).and_then(Archive::of);
        read.ok_or_else(|| format!("drover sim has not made '{volid}' and cannot read it"))
    }

    /// Drops what stood on the disks of backups that are gone.
    pub(super) fn forget_archive(&self, archive: Option<Archive>) {
        if let Some(archive) = archive {
            self.guests.forget(archive.disk);
        }
    }
}

impl Ask {
    /// Requires that the caller may read a backup (pve-storage, Storage.pm, check_volume_access).
    ///
    /// # Errors
    /// 403, or 500 where the volume is no backup.
    pub(super) fn may_use_backup(&self, volid: &str) -> Result<(), ApiError> {
        let Some(storage) = super::conf::storage_of(volid) else {
            return self.may_use_volume(volid);
        };
        if super::checks::content_of(volid) != "backup" {
            let text = format!("unable to use volume {volid} - content type needs to be 'backup'");
            return Err(ApiError::failed(text));
        }
        let path = format!("/storage/{storage}");
        let owner = owner(volid).map(|(_, vmid)| vmid);
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
        let made = name(Kind::Vm, 101, 1_795_251_074, ".zst");
        assert_eq!(made, "vzdump-qemu-101-2026_11_21-08_51_14.vma.zst");
        let volid = format!("local:backup/{made}");
        assert_eq!((owner(&volid), format(&volid).as_str()), (Some(("qemu", 101)), "vma.zst"));
    }
}
