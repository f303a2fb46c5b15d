//! One image as it is configured (an entry of `images`, on one of its clouds).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{NodeName, TemplateId, VmId};
use crate::spec::TemplateSpec;
use crate::template_image::Sought;

/// What an image begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// A disk image that the node downloads.
    Url {
        url: String,
        /// The checksum, in hexadecimal digits.
        checksum: String,
        /// Such as `sha256`, as Proxmox names it.
        algorithm: String,
    },
    /// A template image that is copied in full.
    Template(Sought),
    /// An ISO image whose installer installs the guest without questions.
    Iso {
        iso: IsoImage,
        /// The size of the disk that it installs to, in GiB.
        disk_gb: u32,
    },
}

/// Where an ISO image with an installer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsoImage {
    /// On a storage already: Proxmox's volume id.
    Volume(String),
    /// At a URL, with its checksum as that of a disk image.
    Url { url: String, checksum: String, algorithm: String },
}

impl ImageSource {
    /// Whether it is brought to a storage from a URL.
    pub fn is_brought(&self) -> bool {
        match self {
            Self::Url { .. } | Self::Iso { iso: IsoImage::Url { .. }, .. } => true,
            Self::Iso { iso: IsoImage::Volume(_), .. } | Self::Template(_) => false,
        }
    }
}

/// The way from drover's machine to the web.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Route {
    /// Through the proxy that the environment names, else directly.
    #[default]
    Environment,
    Direct,
    /// Through the proxy at this URL.
    Proxy(String),
}

/// Who downloads the source of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Downloader {
    /// The node that has the storage.
    Node,
    /// drover, which uploads it then.
    Drover(Route),
}

/// The firmware of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bios {
    /// UEFI, with an EFI disk.
    Ovmf,
    Seabios,
}

impl Bios {
    /// The word of Proxmox.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ovmf => "ovmf",
            Self::Seabios => "seabios",
        }
    }
}

/// The virtual hardware of a guest that is made new: of a disk image, or by an installer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Proxmox's `machine`, such as `q35`.
    pub machine: String,
    pub bios: Bios,
    /// Proxmox's `cpu`, such as `host`.
    pub cpu: String,
    /// The controller of disks, Proxmox's `scsihw`.
    pub scsi: String,
    /// Whether its screen is a serial console.
    pub serial: bool,
    /// The operating system as Proxmox knows it, its `ostype`.
    pub os_type: String,
    /// The bridge of its network card.
    pub bridge: String,
    /// The VLAN tag of its network card; none for untagged.
    pub vlan: Option<u16>,
}

/// How long the parts of a build may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLimits {
    /// Bringing the source to the node.
    pub pull: Duration,
    /// Waiting while another build brings the same source to the same place.
    pub lock: Duration,
    /// All of a build, waits included.
    pub build: Duration,
}

/// One image on one cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSpec {
    /// Its cloud and its key in `images`, written `cloud/image`.
    pub id: TemplateId,
    /// What it begins with; none where versions are only imported.
    pub source: Option<ImageSource>,
    pub hardware: Hardware,
    /// How the guest that is built is configured, logged in to and prepared.
    pub machine: TemplateSpec,
    /// Values of `${name}` in its commands, where nobody gives others.
    pub variables: BTreeMap<String, String>,
    /// What removes from the guest that which no clone may have; run as the last of its steps.
    pub clean: String,
    /// The nodes that get a version each; empty for one that drover chooses.
    pub nodes: Vec<NodeName>,
    /// The storage of its disks.
    pub storage: String,
    /// The storage that its source is brought to.
    pub import_storage: String,
    /// Who brings it there.
    pub downloader: Downloader,
    /// The lowest VMID of a version.
    pub vmid_floor: VmId,
    /// Versions that are kept beside the newest.
    pub keep: u32,
    /// After how many days the same recipe makes another version; never where none is named.
    pub rebuild_days: Option<u32>,
    /// Whether drover builds it by itself where a template waits for its first version.
    pub build_missing: bool,
    pub limits: ImageLimits,
}

impl TemplateSpec {
    /// The image that its agents are made of, where it names one.
    pub fn image(&self) -> Option<TemplateId> {
        let Sought::Image(name) = self.search.as_ref()? else { return None };
        Some(TemplateId::new(self.id.cloud.clone(), name))
    }
}
