//! Storages and their volumes: naming, formats, what can be linked or become a base, and space.
//!
//! Who may do what with them, and how long it takes, is not here.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::conf::Config;
use crate::spec::StorageSpec;

/// Size of a cloud-init image.
pub const CLOUDINIT_SIZE: u64 = 4 << 20;

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its virtual size in bytes.
    pub size: u64,
    /// The guest it belongs to.
    pub vmid: Option<u32>,
    /// `raw`, `qcow2`, `iso` …
    pub format: String,
    /// Its content type.
    pub content: String,
    /// Unix seconds of its making.
    pub ctime: u64,
    /// The base volume it is linked to.
    pub base: Option<String>,
    /// Why freeing it fails, when it does.
    pub stuck: Option<String>,
    /// Snapshots of it.
    pub snapshots: BTreeSet<String>,
}

/// What a new volume is for, which gives it its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A disk with the next free number.
    Disk,
    /// The cloud-init image.
    Cloudinit,
    /// The root of a container.
    Root,
    /// The memory of a snapshot.
    State(String),
}

/// A new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The guest it is for.
    pub vmid: u32,
    /// What it is for.
    pub purpose: Purpose,
    /// The format, or the storage's default.
    pub format: Option<String>,
    /// Bytes.
    pub size: u64,
}

/// A storage.
#[derive(Debug, Clone)]
pub struct Storage {
    /// Its definition.
    pub spec: StorageSpec,
    /// Whether nodes can reach it.
    pub reachable: bool,
    /// Options of its definition that the description has no field for.
    pub options: Config,
    volumes: BTreeMap<String, BTreeMap<String, Volume>>,
    /// What is in files that were uploaded, by place and id.
    files: BTreeMap<(String, String), Bytes>,
}

impl Storage {
    /// An empty storage.
    pub fn new(spec: StorageSpec) -> Self {
        Self {
            spec,
            reachable: true,
            options: Config::new(),
            volumes: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Whether a node has it.
    pub fn on(&self, node: &str) -> bool {
        self.spec.nodes.is_empty() || self.spec.nodes.iter().any(|name| name == node)
    }

    /// Whether it takes a content type.
    pub fn takes(&self, content: &str) -> bool {
        self.spec.content.iter().any(|own| own == content)
    }

    /// Whether volumes are files in a directory.
    pub fn is_files(&self) -> bool {
        matches!(self.spec.kind.as_str(), "dir" | "nfs" | "cifs" | "glusterfs" | "btrfs")
    }

    /// Whether volumes can become bases of linked clones.
    pub fn makes_bases(&self) -> bool {
        !matches!(self.spec.kind.as_str(), "lvm" | "iscsi" | "iscsidirect")
    }

    /// Whether a volume can be snapshotted.
    pub fn snapshots(&self, format: &str) -> bool {
        match self.spec.kind.as_str() {
            "lvmthin" | "zfspool" | "rbd" | "btrfs" => true,
            _ => self.is_files() && format == "qcow2",
        }
    }

    /// Whether a volume can be linked to: bases, and on some types snapshots.
    pub fn links(&self, volid: &str, snapshot: bool) -> bool {
        if snapshot {
            return matches!(self.spec.kind.as_str(), "rbd" | "lvmthin");
        }
        self.makes_bases() && is_base(volid)
    }

    /// The format of a new volume when none is asked for.
    pub fn default_format(&self, purpose: &Purpose) -> &'static str {
        match purpose {
            Purpose::Cloudinit if self.is_files() => "qcow2",
            Purpose::Root if self.has_subvolumes() => "subvol",
            Purpose::Disk | Purpose::Cloudinit | Purpose::Root | Purpose::State(_) => "raw",
        }
    }

    /// Whether a container's root is a file system of its own rather than an image.
    pub fn has_subvolumes(&self) -> bool {
        matches!(self.spec.kind.as_str(), "zfspool" | "btrfs")
    }

    /// Whether volumes can have this format.
    pub fn has_format(&self, format: &str) -> bool {
        format == "raw" || (self.is_files() && matches!(format, "qcow2" | "vmdk"))
    }

    /// The volumes a node sees.
    pub fn volumes(&self, node: &str) -> impl Iterator<Item = (&String, &Volume)> {
        self.volumes.get(self.place(node)).into_iter().flatten()
    }

    /// Ids of the volumes of all nodes.
    pub fn everywhere(&self) -> impl Iterator<Item = &String> {
        self.volumes.values().flat_map(BTreeMap::keys)
    }

    /// One volume.
    pub fn volume(&self, node: &str, volid: &str) -> Option<&Volume> {
        self.volumes.get(self.place(node))?.get(volid)
    }

    /// One volume, to be changed.
    pub fn volume_mut(&mut self, node: &str, volid: &str) -> Option<&mut Volume> {
        let place = self.place(node).to_owned();
        self.volumes.get_mut(&place)?.get_mut(volid)
    }

    /// Enters a volume under a name that is already made.
    pub fn put(&mut self, node: &str, volid: &str, volume: Volume) {
        let place = self.place(node).to_owned();
        self.volumes.entry(place).or_default().insert(volid.to_owned(), volume);
    }

    /// Takes a volume away without any question.
    pub fn take(&mut self, node: &str, volid: &str) -> Option<Volume> {
        let place = self.place(node).to_owned();
        let taken = self.volumes.get_mut(&place)?.remove(volid);
        self.files.remove(&(place, volid.to_owned()));
        taken
    }

    /// Enters an uploaded file over what was there.
    ///
    /// # Errors
    /// When the storage is not there, or full.
    pub fn write_file(
        &mut self,
        node: &str,
        volid: &str,
        content: &str,
        file: Bytes,
        now: u64,
    ) -> Result<(), String> {
        self.ready(node)?;
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
            stuck: None,
            snapshots: BTreeSet::new(),
        };
        self.put(node, volid, volume);
        self.files.insert((self.place(node).to_owned(), volid.to_owned()), file);
        Ok(())
    }

    /// Enters a backup with what is in it.
    ///
    /// # Errors
    /// When the storage is not there, or full.
    pub fn put_archive(
        &mut self,
        node: &str,
        volid: &str,
        volume: Volume,
        file: Bytes,
    ) -> Result<(), String> {
        self.ready(node)?;
        if volume.size > self.spec.size_bytes.saturating_sub(self.used(node)) {
            return Err(format!("writing '{}' failed: No space left on device", self.path(volid)));
        }
        self.put(node, volid, volume);
        self.files.insert((self.place(node).to_owned(), volid.to_owned()), file);
        Ok(())
    }

    /// Gives a volume to another guest under a name of that guest's; its new id.
    ///
    /// # Errors
    /// When the volume is gone.
    pub fn rename(&mut self, node: &str, volid: &str, vmid: u32) -> Result<String, String> {
        let Some(volume) = self.take(node, volid) else {
            return Err(format!("volume '{volid}' does not exist"));
        };
        let name = self.new_name(node, vmid, &Purpose::Disk);
        let mut renamed = self.volid(vmid, &name, &volume.format);
        if let (Some(base), Some((_, inner))) = (&volume.base, renamed.split_once(':')) {
            renamed = format!("{base}/{inner}");
        }
        self.put(node, &renamed, Volume { vmid: Some(vmid), ..volume });
        Ok(renamed)
    }

    /// What is in a file that was uploaded.
    pub fn file(&self, node: &str, volid: &str) -> Option<&Bytes> {
        self.files.get(&(self.place(node).to_owned(), volid.to_owned()))
    }

    /// Bytes in use on a node.
    pub fn used(&self, node: &str) -> u64 {
        let images = self.volumes(node).map(|(_, volume)| self.occupied(volume));
        images.sum::<u64>().min(self.spec.size_bytes)
    }

    /// Bytes a volume takes: thin ones next to nothing.
    pub fn occupied(&self, volume: &Volume) -> u64 {
        if self.spec.kind == "lvm" || !matches!(volume.content.as_str(), "images" | "rootdir") {
            volume.size
        } else {
            volume.size / 16
        }
    }

    /// Makes a volume; its id, and the line the tools print.
    ///
    /// # Errors
    /// When the storage is not there, does not take images, or is full.
    pub fn allocate(
        &mut self,
        node: &str,
        order: &Order,
        now: u64,
    ) -> Result<(String, String), String> {
        self.ready(node)?;
        let format = match order.format.as_deref() {
            Some(format) if self.has_format(format) => format.to_owned(),
            Some(format) if self.is_files() => {
                return Err(format!("unsupported format '{format}'"));
            }
            Some(format) if format != "raw" => {
                return Err(format!("unsupported format '{format}'"));
            }
            _ => self.default_format(&order.purpose).to_owned(),
        };
        self.space_for(node, order.size)?;
        let name = self.new_name(node, order.vmid, &order.purpose);
        let volid = self.volid(order.vmid, &name, &format);
        let line = self.made_line(&volid, &name, &format, order.size);
        let content = if order.purpose == Purpose::Root { "rootdir" } else { "images" };
        self.put(
            node,
            &volid,
            Volume {
                size: order.size,
                vmid: Some(order.vmid),
                format,
                content: content.into(),
                ctime: now,
                base: None,
                stuck: None,
                snapshots: BTreeSet::new(),
            },
        );
        Ok((volid, line))
    }

    /// Links a new volume to a base; its id, and the lines the tools print.
    ///
    /// # Errors
    /// When the base is gone or the storage is not there.
    pub fn link(
        &mut self,
        node: &str,
        base: &str,
        vmid: u32,
        now: u64,
    ) -> Result<(String, Vec<String>), String> {
        self.ready(node)?;
        let Some(source) = self.volume(node, base).cloned() else {
            return Err(format!("volume '{base}' does not exist"));
        };
        let name = self.new_name(node, vmid, &Purpose::Disk);
        let storage = self.spec.name.clone();
        let (volid, lines) = if self.is_files() {
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
            let inner = name_of(base);
            (
                format!("{storage}:{inner}/{name}"),
                vec![format!("clone {inner}: {name} to {name} (base={inner})")],
            )
        };
        // LVM-thin does not show where a volume came from.
        let origin = (self.spec.kind != "lvmthin").then(|| base.to_owned());
        let format = if self.is_files() { "qcow2".into() } else { "raw".to_owned() };
        self.put(
            node,
            &volid,
            Volume {
                vmid: Some(vmid),
                format,
                ctime: now,
                base: origin,
                stuck: None,
                snapshots: BTreeSet::new(),
                ..source
            },
        );
        Ok((volid, lines))
    }

    /// Whether linked clones need this volume.
    pub fn is_base_in_use(&self, node: &str, volid: &str) -> bool {
        self.volumes(node).any(|(_, volume)| volume.base.as_deref() == Some(volid))
    }

    /// Frees a volume; the line the tools print, if any.
    ///
    /// # Errors
    /// When it is a base in use, or stuck.
    pub fn free(&mut self, node: &str, volid: &str) -> Result<Option<String>, String> {
        self.ready(node)?;
        if self.is_base_in_use(node, volid) {
            return Err(format!("base volume '{volid}' is still in use by linked clones"));
        }
        match self.volume(node, volid) {
            None if self.is_files() => {
                return Ok(Some(format!("disk image '{}' does not exist", self.path(volid))));
            }
            None => return Err(format!("no such logical volume pve/{}", name_of(volid))),
            Some(Volume { stuck: Some(reason), .. }) => return Err(reason.clone()),
            Some(_) => {}
        }
        self.take(node, volid);
        let line = format!("  Logical volume \"{}\" successfully removed.", name_of(volid));
        Ok((!self.is_files() && self.spec.kind != "rbd").then_some(line))
    }

    /// Makes a guest's volume a base: its new id.
    pub fn make_base(&mut self, node: &str, volid: &str) -> Option<String> {
        if !self.makes_bases() || is_base(volid) {
            return None;
        }
        let name = name_of(volid);
        let renamed = match name.strip_prefix("subvol-") {
            Some(rest) => format!("basevol-{rest}"),
            None => name.replacen("vm-", "base-", 1),
        };
        let renamed = volid.replacen(name, &renamed, 1);
        // A linked clone that becomes a template keeps its own base behind it.
        let volume = self.take(node, volid)?;
        self.put(node, &renamed, volume);
        Some(renamed)
    }

    /// Where a file volume lies.
    pub fn path(&self, volid: &str) -> String {
        let inner = volid.split_once(':').map_or(volid, |(_, inner)| inner);
        let root = self.root();
        if let Some(iso) = inner.strip_prefix("iso/") {
            return format!("{root}/template/iso/{iso}");
        }
        if let Some(template) = inner.strip_prefix("vztmpl/") {
            return format!("{root}/template/cache/{template}");
        }
        if let Some(backup) = inner.strip_prefix("backup/") {
            return format!("{root}/dump/{backup}");
        }
        if inner.starts_with("snippets/") || inner.starts_with("import/") {
            return format!("{root}/{inner}");
        }
        let mut own = inner.rsplitn(3, '/');
        match (own.next(), own.next()) {
            (Some(file), Some(vmid)) => format!("{root}/images/{vmid}/{file}"),
            _ => format!("{root}/images/{inner}"),
        }
    }

    /// The directory of a file storage.
    pub fn root(&self) -> String {
        if let Some(path) = self.options.get("path") {
            return path.clone();
        }
        match (self.spec.kind.as_str(), self.spec.name.as_str()) {
            ("dir", "local") => "/var/lib/vz".into(),
            ("dir" | "btrfs", name) => format!("/var/lib/{name}"),
            (_, name) => format!("/mnt/pve/{name}"),
        }
    }

    fn place<'a>(&self, node: &'a str) -> &'a str {
        if self.spec.shared { "" } else { node }
    }

    fn ready(&self, node: &str) -> Result<(), String> {
        let name = &self.spec.name;
        if !self.on(node) {
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

    fn space_for(&self, node: &str, size: u64) -> Result<(), String> {
        let free = self.spec.size_bytes.saturating_sub(self.used(node));
        if self.spec.kind == "lvm" && size > free {
            let (have, want) = (free >> 22, size >> 22);
            let name = &self.spec.name;
            return Err(format!(
                "lvcreate '{name}/vm-disk' error:   Volume group \"{name}\" has insufficient free \
                 space ({have} extents): {want} required."
            ));
        }
        if self.is_files() && free == 0 {
            return Err("unable to create image: No space left on device".into());
        }
        Ok(())
    }

    fn new_name(&self, node: &str, vmid: u32, purpose: &Purpose) -> String {
        match purpose {
            Purpose::Cloudinit => format!("vm-{vmid}-cloudinit"),
            Purpose::State(snapshot) => format!("vm-{vmid}-state-{snapshot}"),
            Purpose::Disk | Purpose::Root => {
                let taken: BTreeSet<u32> = self
                    .volumes(node)
                    .filter(|(_, volume)| volume.vmid == Some(vmid))
                    .filter_map(|(volid, _)| disk_number(volid))
                    .collect();
                let free = (0..).find(|n| !taken.contains(n)).unwrap_or(0);
                let subvolume = *purpose == Purpose::Root && self.has_subvolumes();
                let stem = if subvolume { "subvol" } else { "vm" };
                format!("{stem}-{vmid}-disk-{free}")
            }
        }
    }

    fn volid(&self, vmid: u32, name: &str, format: &str) -> String {
        let storage = &self.spec.name;
        if self.is_files() {
            format!("{storage}:{vmid}/{name}.{format}")
        } else {
            format!("{storage}:{name}")
        }
    }

    fn made_line(&self, volid: &str, name: &str, format: &str, size: u64) -> String {
        let file = self.path(volid);
        match (self.is_files(), format) {
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

/// The last part of a volume id, which names the volume itself.
pub fn name_of(volid: &str) -> &str {
    volid.rsplit([':', '/']).next().unwrap_or(volid)
}

/// The guest whose id stands in a volume's name.
pub fn owner_in_name(volid: &str) -> Option<u32> {
    let name = name_of(volid);
    let rest =
        ["vm-", "base-", "subvol-", "basevol-"].iter().find_map(|stem| name.strip_prefix(stem))?;
    rest.split('-').next()?.parse().ok()
}

/// Whether linked clones can hang on a volume of this name.
fn is_base(volid: &str) -> bool {
    ["base-", "basevol-"].iter().any(|stem| name_of(volid).starts_with(stem))
}

fn disk_number(volid: &str) -> Option<u32> {
    let (_, tail) = name_of(volid).rsplit_once("-disk-")?;
    tail.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests;
