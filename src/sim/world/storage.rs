//! Storages and their volumes: names, formats, linked clones, bases and free space.
//!
//! What it owns: the definition of a storage, its volumes, and the content of uploaded files and
//! backups. A local storage has a set of volumes per node, a shared one has a single set.
//!
//! What comes in: `VolumeRequest`s for new volumes, base volumes to link to, volume ids to free.
//! What goes out: volume ids, and the lines that Proxmox's tools print, which tasks write to their
//! logs.
//!
//! The type of a storage decides how a volume is named, whether it can be a base, a linked clone or
//! have snapshots, and which formats it can have.
//!
//! Failure paths: a storage that is disabled, unreachable or not on the node refuses everything; a
//! full LVM or directory storage refuses new volumes; a base with linked clones cannot be freed,
//! except on LVM-thin, which does not know its clones.
//!
//! This file changes data only. Privileges are checked in `checks` and `storage_content`; durations
//! and the storage lock are in `Cluster::with_storage_lock`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::conf::Config;
use crate::spec::StorageSpec;

/// Bytes of a cloud-init image.
pub(crate) const CLOUDINIT_SIZE: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    /// The virtual size in bytes.
    pub(crate) size: u64,
    /// The guest that owns it.
    pub(crate) vmid: Option<u32>,
    /// `raw`, `qcow2`, `iso` …
    pub(crate) format: String,
    /// The content type, such as `images`.
    pub(crate) content: String,
    /// Unix seconds of its creation.
    pub(crate) ctime: u64,
    /// The base of a linked clone.
    pub(crate) base: Option<String>,
    /// The error of freeing it, if a test blocks that.
    pub(crate) free_error: Option<String>,
    pub(crate) snapshots: BTreeSet<String>,
}

/// The purpose of a new volume; it determines the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VolumePurpose {
    /// A disk with the lowest free number.
    Disk,
    /// The cloud-init image.
    Cloudinit,
    /// The root volume of a container.
    Root,
    /// The memory of this snapshot.
    State(String),
}

/// The parameters of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeRequest {
    /// The guest that will own it.
    pub(crate) vmid: u32,
    pub(crate) purpose: VolumePurpose,
    /// The format; none for the default of the storage.
    pub(crate) format: Option<String>,
    pub(crate) size: u64,
}

/// A storage with its volumes.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    /// The definition of the storage.
    pub(crate) spec: StorageSpec,
    /// Whether the nodes can reach it.
    pub(crate) reachable: bool,
    /// Options of its definition for which `spec` has no field.
    pub(crate) options: Config,
    volumes: BTreeMap<String, BTreeMap<String, Volume>>,
    /// The content of uploaded files, by namespace and volume id.
    files: BTreeMap<(String, String), Bytes>,
}

impl Storage {
    pub(crate) fn new(spec: StorageSpec) -> Self {
        Self {
            spec,
            reachable: true,
            options: Config::new(),
            volumes: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Whether a node has this storage.
    pub(crate) fn available_on(&self, node: &str) -> bool {
        self.spec.nodes.is_empty() || self.spec.nodes.iter().any(|name| name == node)
    }

    /// Whether the storage accepts a content type.
    pub(crate) fn accepts(&self, content: &str) -> bool {
        self.spec.content.iter().any(|own| own == content)
    }

    /// Whether volumes are files in a directory.
    pub(crate) fn is_file_based(&self) -> bool {
        matches!(self.spec.kind.as_str(), "dir" | "nfs" | "cifs" | "glusterfs" | "btrfs")
    }

    /// Whether volumes can become bases of linked clones.
    pub(crate) fn supports_bases(&self) -> bool {
        !matches!(self.spec.kind.as_str(), "lvm" | "iscsi" | "iscsidirect")
    }

    /// Whether a volume of this format supports snapshots.
    pub(crate) fn supports_snapshots(&self, format: &str) -> bool {
        match self.spec.kind.as_str() {
            "lvmthin" | "zfspool" | "rbd" | "btrfs" => true,
            _ => self.is_file_based() && format == "qcow2",
        }
    }

    /// Whether a linked clone of a volume is possible: of a base, on some types also of a snapshot.
    pub(crate) fn can_link(&self, volid: &str, snapshot: bool) -> bool {
        if snapshot {
            return matches!(self.spec.kind.as_str(), "rbd" | "lvmthin");
        }
        self.supports_bases() && is_base(volid)
    }

    /// The default format of a new volume.
    pub(crate) fn default_format(&self, purpose: &VolumePurpose) -> &'static str {
        match purpose {
            VolumePurpose::Cloudinit if self.is_file_based() => "qcow2",
            VolumePurpose::Root if self.has_subvolumes() => "subvol",
            VolumePurpose::Disk
            | VolumePurpose::Cloudinit
            | VolumePurpose::Root
            | VolumePurpose::State(_) => "raw",
        }
    }

    /// Whether the root of a container is a file system of its own, not an image.
    pub(crate) fn has_subvolumes(&self) -> bool {
        matches!(self.spec.kind.as_str(), "zfspool" | "btrfs")
    }

    /// Whether a volume can have this format.
    pub(crate) fn has_format(&self, format: &str) -> bool {
        format == "raw" || (self.is_file_based() && matches!(format, "qcow2" | "vmdk"))
    }

    /// The volumes that a node sees.
    pub(crate) fn volumes(&self, node: &str) -> impl Iterator<Item = (&String, &Volume)> {
        self.volumes.get(self.namespace(node)).into_iter().flatten()
    }

    /// Ids of the volumes of all nodes.
    pub(crate) fn all_volume_ids(&self) -> impl Iterator<Item = &String> {
        self.volumes.values().flat_map(BTreeMap::keys)
    }

    pub(crate) fn volume(&self, node: &str, volid: &str) -> Option<&Volume> {
        self.volumes.get(self.namespace(node))?.get(volid)
    }

    pub(crate) fn volume_mut(&mut self, node: &str, volid: &str) -> Option<&mut Volume> {
        let namespace = self.namespace(node).to_owned();
        self.volumes.get_mut(&namespace)?.get_mut(volid)
    }

    /// Adds a volume under this id.
    pub(crate) fn insert_volume(&mut self, node: &str, volid: &str, volume: Volume) {
        let namespace = self.namespace(node).to_owned();
        self.volumes.entry(namespace).or_default().insert(volid.to_owned(), volume);
    }

    /// Removes a volume without any check.
    pub(crate) fn remove_volume(&mut self, node: &str, volid: &str) -> Option<Volume> {
        let namespace = self.namespace(node).to_owned();
        let removed = self.volumes.get_mut(&namespace)?.remove(volid);
        self.files.remove(&(namespace, volid.to_owned()));
        removed
    }

    /// Stores an uploaded file; replaces an existing one.
    ///
    /// # Errors
    /// The storage is not available, or full.
    pub(crate) fn write_file(
        &mut self,
        node: &str,
        volid: &str,
        content: &str,
        file: Bytes,
        now: u64,
    ) -> Result<(), String> {
        self.ensure_ready(node)?;
        let size = file.len() as u64;
        let before = self.volume(node, volid).map_or(0, |old| old.size);
        if size > self.spec.size_bytes.saturating_sub(self.used(node)) + before {
            let path = self.path(volid);
            return Err(format!(
                "import failed: cp: error writing '{path}': No space left on device"
            ));
        }
        let format = volid.rsplit('.').next().unwrap_or_default().to_owned();
        let volume = Volume {
            size,
            vmid: None,
            format,
            content: content.to_owned(),
            ctime: now,
            base: None,
            free_error: None,
            snapshots: BTreeSet::new(),
        };
        self.insert_volume(node, volid, volume);
        self.files.insert((self.namespace(node).to_owned(), volid.to_owned()), file);
        Ok(())
    }

    /// Stores a backup and its content.
    ///
    /// # Errors
    /// The storage is not available, or full.
    pub(crate) fn put_archive(
        &mut self,
        node: &str,
        volid: &str,
        volume: Volume,
        file: Bytes,
    ) -> Result<(), String> {
        self.ensure_ready(node)?;
        if volume.size > self.spec.size_bytes.saturating_sub(self.used(node)) {
            return Err(format!("writing '{}' failed: No space left on device", self.path(volid)));
        }
        self.insert_volume(node, volid, volume);
        self.files.insert((self.namespace(node).to_owned(), volid.to_owned()), file);
        Ok(())
    }

    /// Gives a volume to another guest; returns its new id.
    ///
    /// # Errors
    /// The volume does not exist.
    pub(crate) fn rename(&mut self, node: &str, volid: &str, vmid: u32) -> Result<String, String> {
        let Some(volume) = self.remove_volume(node, volid) else {
            return Err(format!("volume '{volid}' does not exist"));
        };
        let name = self.new_name(node, vmid, &VolumePurpose::Disk);
        let mut renamed = self.volid(vmid, &name, &volume.format);
        if let (Some(base), Some((_, inner))) = (&volume.base, renamed.split_once(':')) {
            renamed = format!("{base}/{inner}");
        }
        self.insert_volume(node, &renamed, Volume { vmid: Some(vmid), ..volume });
        Ok(renamed)
    }

    /// The content of an uploaded file.
    pub(crate) fn file(&self, node: &str, volid: &str) -> Option<&Bytes> {
        self.files.get(&(self.namespace(node).to_owned(), volid.to_owned()))
    }

    /// Used bytes on a node.
    pub(crate) fn used(&self, node: &str) -> u64 {
        let images = self.volumes(node).map(|(_, volume)| self.occupied(volume));
        images.sum::<u64>().min(self.spec.size_bytes)
    }

    /// Bytes that a volume occupies; thin volumes occupy a sixteenth of their size.
    pub(crate) fn occupied(&self, volume: &Volume) -> u64 {
        if self.spec.kind == "lvm" || !matches!(volume.content.as_str(), "images" | "rootdir") {
            volume.size
        } else {
            volume.size / 16
        }
    }

    /// Allocates a volume; returns its id and the output of Proxmox's tools.
    ///
    /// # Errors
    /// The storage is not available or full, or it does not know the format.
    pub(crate) fn allocate(
        &mut self,
        node: &str,
        request: &VolumeRequest,
        now: u64,
    ) -> Result<(String, String), String> {
        self.ensure_ready(node)?;
        let format = match request.format.as_deref() {
            Some(format) if self.has_format(format) => format.to_owned(),
            Some(format) if self.is_file_based() => {
                return Err(format!("unsupported format '{format}'"));
            }
            Some(format) if format != "raw" => {
                return Err(format!("unsupported format '{format}'"));
            }
            _ => self.default_format(&request.purpose).to_owned(),
        };
        self.ensure_space(node, request.size)?;
        let name = self.new_name(node, request.vmid, &request.purpose);
        let volid = self.volid(request.vmid, &name, &format);
        let line = self.creation_line(&volid, &name, &format, request.size);
        let content = if request.purpose == VolumePurpose::Root { "rootdir" } else { "images" };
        self.insert_volume(
            node,
            &volid,
            Volume {
                size: request.size,
                vmid: Some(request.vmid),
                format,
                content: content.into(),
                ctime: now,
                base: None,
                free_error: None,
                snapshots: BTreeSet::new(),
            },
        );
        Ok((volid, line))
    }

    /// Creates a linked clone of a base; returns its id and the output of Proxmox's tools.
    ///
    /// # Errors
    /// The base does not exist, or the storage is not available.
    pub(crate) fn link(
        &mut self,
        node: &str,
        base: &str,
        vmid: u32,
        now: u64,
    ) -> Result<(String, Vec<String>), String> {
        self.ensure_ready(node)?;
        let Some(source) = self.volume(node, base).cloned() else {
            return Err(format!("volume '{base}' does not exist"));
        };
        let name = self.new_name(node, vmid, &VolumePurpose::Disk);
        let storage = self.spec.name.clone();
        let (volid, lines) = if self.is_file_based() {
            let inner = base.split_once(':').map_or(base, |(_, inner)| inner);
            let volid = format!("{storage}:{inner}/{vmid}/{name}.qcow2");
            let file = self.path(&volid);
            let size = source.size;
            let lines = vec![
                format!(
                    "clone {inner}: images, {name}.qcow2, {vmid} to {name}.qcow2 \
                     (base=../{inner})"
                ),
                format!(
                    "Formatting '{file}', fmt=qcow2 cluster_size=65536 extended_l2=off \
                     compression_type=zlib size={size} backing_file=../{inner} \
                     backing_fmt={} lazy_refcounts=off refcount_bits=16",
                    source.format
                ),
            ];
            (volid, lines)
        } else if self.spec.kind == "lvmthin" {
            (format!("{storage}:{name}"), vec![format!("  Logical volume \"{name}\" created.")])
        } else {
            let inner = volume_name(base);
            (
                format!("{storage}:{inner}/{name}"),
                vec![format!("clone {inner}: {name} to {name} (base={inner})")],
            )
        };
        // LVM-thin does not record the base of a volume.
        let origin = (self.spec.kind != "lvmthin").then(|| base.to_owned());
        let format = if self.is_file_based() { "qcow2".into() } else { "raw".to_owned() };
        self.insert_volume(
            node,
            &volid,
            Volume {
                vmid: Some(vmid),
                format,
                ctime: now,
                base: origin,
                free_error: None,
                snapshots: BTreeSet::new(),
                ..source
            },
        );
        Ok((volid, lines))
    }

    /// Whether linked clones depend on this volume.
    pub(crate) fn is_base_in_use(&self, node: &str, volid: &str) -> bool {
        self.volumes(node).any(|(_, volume)| volume.base.as_deref() == Some(volid))
    }

    /// Frees a volume; returns the output of Proxmox's tools, if any.
    ///
    /// # Errors
    /// The volume is a base in use, does not exist, or a test blocks its removal.
    pub(crate) fn free(&mut self, node: &str, volid: &str) -> Result<Option<String>, String> {
        self.ensure_ready(node)?;
        if self.is_base_in_use(node, volid) {
            return Err(format!("base volume '{volid}' is still in use by linked clones"));
        }
        match self.volume(node, volid) {
            None if self.is_file_based() => {
                return Ok(Some(format!("disk image '{}' does not exist", self.path(volid))));
            }
            None => return Err(format!("no such logical volume pve/{}", volume_name(volid))),
            Some(Volume { free_error: Some(reason), .. }) => return Err(reason.clone()),
            Some(_) => {}
        }
        self.remove_volume(node, volid);
        let line = format!("  Logical volume \"{}\" successfully removed.", volume_name(volid));
        Ok((!self.is_file_based() && self.spec.kind != "rbd").then_some(line))
    }

    /// Converts a volume to a base; returns its new id, or none if that is impossible.
    pub(crate) fn make_base(&mut self, node: &str, volid: &str) -> Option<String> {
        if !self.supports_bases() || is_base(volid) {
            return None;
        }
        let name = volume_name(volid);
        let renamed = match name.strip_prefix("subvol-") {
            Some(rest) => format!("basevol-{rest}"),
            None => name.replacen("vm-", "base-", 1),
        };
        let renamed = volid.replacen(name, &renamed, 1);
        // A linked clone that becomes a base keeps its own base.
        let volume = self.remove_volume(node, volid)?;
        self.insert_volume(node, &renamed, volume);
        Some(renamed)
    }

    /// The path of a file volume.
    pub(crate) fn path(&self, volid: &str) -> String {
        let inner = volid.split_once(':').map_or(volid, |(_, inner)| inner);
        let root_dir = self.root_dir();
        if let Some(iso) = inner.strip_prefix("iso/") {
            return format!("{root_dir}/template/iso/{iso}");
        }
        if let Some(template) = inner.strip_prefix("vztmpl/") {
            return format!("{root_dir}/template/cache/{template}");
        }
        if let Some(backup) = inner.strip_prefix("backup/") {
            return format!("{root_dir}/dump/{backup}");
        }
        if inner.starts_with("snippets/") || inner.starts_with("import/") {
            return format!("{root_dir}/{inner}");
        }
        let mut own = inner.rsplitn(3, '/');
        match (own.next(), own.next()) {
            (Some(file), Some(vmid)) => format!("{root_dir}/images/{vmid}/{file}"),
            _ => format!("{root_dir}/images/{inner}"),
        }
    }

    /// The directory of a file storage.
    pub(crate) fn root_dir(&self) -> String {
        if let Some(path) = self.options.get("path") {
            return path.clone();
        }
        match (self.spec.kind.as_str(), self.spec.name.as_str()) {
            ("dir", "local") => "/var/lib/vz".into(),
            ("dir" | "btrfs", name) => format!("/var/lib/{name}"),
            (_, name) => format!("/mnt/pve/{name}"),
        }
    }

    fn namespace<'a>(&self, node: &'a str) -> &'a str {
        if self.spec.shared { "" } else { node }
    }

    fn ensure_ready(&self, node: &str) -> Result<(), String> {
        let name = &self.spec.name;
        if !self.available_on(node) {
            return Err(format!("storage '{name}' is not available on node '{node}'"));
        }
        if self.spec.disabled {
            return Err(format!("storage '{name}' is disabled"));
        }
        if !self.reachable {
            return Err(format!("storage '{name}' is not online"));
        }
        Ok(())
    }

    fn ensure_space(&self, node: &str, size: u64) -> Result<(), String> {
        let free = self.spec.size_bytes.saturating_sub(self.used(node));
        if self.spec.kind == "lvm" && size > free {
            let (have, want) = (free >> 22, size >> 22);
            let name = &self.spec.name;
            return Err(format!(
                "lvcreate '{name}/vm-disk' error:   Volume group \"{name}\" has insufficient free \
                 space ({have} extents): {want} required."
            ));
        }
        if self.is_file_based() && free == 0 {
            return Err("unable to create image: No space left on device".into());
        }
        Ok(())
    }

    fn new_name(&self, node: &str, vmid: u32, purpose: &VolumePurpose) -> String {
        match purpose {
            VolumePurpose::Cloudinit => format!("vm-{vmid}-cloudinit"),
            VolumePurpose::State(snapshot) => format!("vm-{vmid}-state-{snapshot}"),
            VolumePurpose::Disk | VolumePurpose::Root => {
                let taken: BTreeSet<u32> = self
                    .volumes(node)
                    .filter(|(_, volume)| volume.vmid == Some(vmid))
                    .filter_map(|(volid, _)| disk_number(volid))
                    .collect();
                let free = (0..).find(|n| !taken.contains(n)).unwrap_or(0);
                let subvolume = *purpose == VolumePurpose::Root && self.has_subvolumes();
                let stem = if subvolume { "subvol" } else { "vm" };
                format!("{stem}-{vmid}-disk-{free}")
            }
        }
    }

    fn volid(&self, vmid: u32, name: &str, format: &str) -> String {
        let storage = &self.spec.name;
        if self.is_file_based() {
            format!("{storage}:{vmid}/{name}.{format}")
        } else {
            format!("{storage}:{name}")
        }
    }

    fn creation_line(&self, volid: &str, name: &str, format: &str, size: u64) -> String {
        let file = self.path(volid);
        match (self.is_file_based(), format) {
            (true, "qcow2") => format!(
                "Formatting '{file}', fmt=qcow2 cluster_size=65536 extended_l2=off \
                 preallocation=metadata compression_type=zlib size={size} lazy_refcounts=off \
                 refcount_bits=16"
            ),
            (true, format) => {
                format!("Formatting '{file}', fmt={format} size={size} preallocation=off")
            }
            (false, _) => format!("  Logical volume \"{name}\" created."),
        }
    }
}

/// The last part of a volume id: the name of the volume.
pub(crate) fn volume_name(volid: &str) -> &str {
    volid.rsplit([':', '/']).next().unwrap_or(volid)
}

/// The VMID in the name of a volume.
pub(crate) fn owner_in_name(volid: &str) -> Option<u32> {
    let name = volume_name(volid);
    let rest =
        ["vm-", "base-", "subvol-", "basevol-"].iter().find_map(|stem| name.strip_prefix(stem))?;
    rest.split('-').next()?.parse().ok()
}

/// Whether the name is that of a base.
fn is_base(volid: &str) -> bool {
    ["base-", "basevol-"].iter().any(|stem| volume_name(volid).starts_with(stem))
}

fn disk_number(volid: &str) -> Option<u32> {
    let (_, tail) = volume_name(volid).rsplit_once("-disk-")?;
    tail.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
