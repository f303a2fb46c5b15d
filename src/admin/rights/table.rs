//! The table of rights: each call that drover makes, the privilege that it needs, the kind of path,
//! the feature, and what happens without the privilege.

use drover_model::addresses::AddressSource;
use drover_model::image::{Downloader, ImageSource, ImageSpec};
use drover_model::spec::TemplateSpec;

/// A release of Proxmox VE whose privileges differ from the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 8: every call to a guest agent needs `VM.Monitor`. 7 counts as 8.
    V8,
    /// 9 and later: calls to a guest agent need `VM.GuestAgent.*`.
    V9,
}

impl Release {
    /// The release of a version such as `8.4.21`.
    pub fn of(version: &str) -> Self {
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_some_and(|major| major <= 8) { Self::V8 } else { Self::V9 }
    }
}

/// The kind of path that a privilege is needed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    Root,
    Access,
    /// `/nodes`: every node.
    Nodes,
    /// `/vms`: every guest, not only drover's.
    AllGuests,
    /// `/pool/{targetPool}`, or `/vms` where a template names no pool: the agents' guests.
    Guests,
    Template,
    /// `/storage/{storage}`, for each storage of the clones' disks.
    Storage,
    /// `/storage/{cloudInitIsoStorage}`, for the cloud-init images.
    DiscStorage,
    /// `/storage/{importStorage}`, for disk images that nodes download.
    ImportStorage,
    /// `/mapping/{kind}/{id}`, for each resource mapping of the agents' devices.
    Mapping,
    /// `/storage/{storage}`, for the storage of an `osTemplate`.
    OsTemplateStorage,
    /// `/sdn/zones/{zone}/{bridge}` with its VLAN tag, for each bridge of the clones.
    Bridge,
}

/// The feature that needs a privilege; variants named after a key apply where the key is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Feature {
    /// Everything that drover does on a cluster.
    Cluster,
    /// Clone, boot, destroy.
    Life,
    /// Addresses that the guest agent reports.
    AgentAddress,
    /// SSH host keys that the guest agent reports.
    HostKeys,
    Cores,
    Memory,
    DiskSize,
    /// `bridge`, `vlan`.
    Network,
    Networks,
    /// `hardware.machine`.
    Machine,
    /// `hardware.cpu`, `sockets`, `numa`, `maxCores`.
    Processors,
    /// `hardware.disks`.
    Disks,
    /// `hardware.pciDevices`, `usbDevices`.
    Devices,
    /// `userData`, `metaData`, `networkConfig`: cloud-init images.
    Discs,
    Snippets,
    /// The memory and processors of nodes, for the placement of agents.
    Placement,
    /// `addressFrom: call`.
    CallIn,
    Reset,
    /// Removing volumes that a destroy left behind.
    Leftovers,
    /// Snapshots, copies and other sizes of machines (`drover machine`).
    Orders,
    Pool,
    /// `images` with `source.url` or `source.iso`: guests made of disk images, or installed.
    Images,
    /// The source of such an image is downloaded by a node.
    Downloads,
    /// `downloadBy: DROVER`: drover uploads the source of such an image.
    Uploads,
    /// `guestType: CONTAINER`.
    Containers,
    /// `osTemplate`: containers that are not cloned, and an archive that nodes may download.
    OsTemplates,
    /// `osTemplateUrl`.
    OsTemplateUrls,
    /// What only `drover doctor` reads.
    Doctor,
}

impl Feature {
    pub const ALL: [Self; 28] = [
        Self::Cluster,
        Self::Life,
        Self::AgentAddress,
        Self::HostKeys,
        Self::Cores,
        Self::Memory,
        Self::DiskSize,
        Self::Network,
        Self::Networks,
        Self::Machine,
        Self::Processors,
        Self::Disks,
        Self::Devices,
        Self::Discs,
        Self::Snippets,
        Self::Placement,
        Self::CallIn,
        Self::Reset,
        Self::Leftovers,
        Self::Orders,
        Self::Pool,
        Self::Images,
        Self::Downloads,
        Self::Uploads,
        Self::Containers,
        Self::OsTemplates,
        Self::OsTemplateUrls,
        Self::Doctor,
    ];

    /// Whether a template uses the feature.
    pub fn used(self, spec: &TemplateSpec) -> bool {
        match self {
            Self::HostKeys => spec.guest().is_vm(),
            Self::Containers => spec.guest().is_container(),
            Self::OsTemplates => spec.create().is_some(),
            Self::OsTemplateUrls => {
                spec.create().is_some_and(|create| create.template.download.is_some())
            }
            Self::Cluster
            | Self::Life
            | Self::Placement
            | Self::Leftovers
            | Self::Orders
            | Self::Doctor => true,
            Self::AgentAddress => spec.address == AddressSource::GuestAgent && spec.guest().is_vm(),
            Self::Cores => spec.cores.is_some() || spec.size_labels.cores.is_some(),
            Self::Memory => {
                let swap = spec.container.as_ref().and_then(|container| container.swap_mb);
                spec.memory_mb.is_some() || spec.size_labels.memory.is_some() || swap.is_some()
            }
            Self::DiskSize => spec.disk_gb.is_some() || spec.size_labels.disk.is_some(),
            Self::Network => spec.network.bridge.is_some() || spec.network.vlan.is_some(),
            Self::Networks => !spec.nics.is_empty(),
            Self::Machine => spec.hardware.machine.is_some(),
            Self::Processors => {
                let hardware = &spec.hardware;
                let processors = hardware.cpu.is_some() || hardware.sockets.is_some();
                processors || hardware.numa.is_some() || hardware.max_cores.is_some()
            }
            Self::Disks => !spec.hardware.disks.is_empty(),
            Self::Devices => !spec.hardware.devices().is_empty(),
            Self::Discs => spec.cloud_init.seed.is_some(),
            Self::Snippets => spec.cloud_init.custom.is_some(),
            Self::CallIn => spec.address == AddressSource::Call,
            Self::Reset => spec.reset.is_some(),
            Self::Pool => spec.target_pool.is_some(),
            Self::Images | Self::Downloads | Self::Uploads => false,
        }
    }

    /// Whether an image uses the feature, to be built or as a template. One without a source is only
    /// given its marks, and destroyed when it is old.
    pub fn builds(self, image: &ImageSpec) -> bool {
        match (&image.source, self) {
            (Some(ImageSource::Url { .. } | ImageSource::Iso { .. }), Self::Images) => true,
            (Some(source), Self::Downloads) => {
                source.is_brought() && image.downloader == Downloader::Node
            }
            (Some(source), Self::Uploads) => {
                source.is_brought() && image.downloader != Downloader::Node
            }
            (Some(_), feature) => feature.used(&image.machine),
            (None, feature) => feature == Self::Life,
        }
    }

    /// Whether drover works as documented without it, so that it is granted on request only.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::Leftovers | Self::Orders)
    }

    /// Whether nobody misses it who does not use it: the doctor does not speak of it.
    pub fn is_quiet(self) -> bool {
        self == Self::Orders
    }

    /// The name for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Life => "agents",
            Self::AgentAddress => "addresses by guest agent",
            Self::HostKeys => "host keys by guest agent",
            Self::Cores => "cores",
            Self::Memory => "memoryMb",
            Self::DiskSize => "diskSizeGb",
            Self::Network => "bridge, vlan",
            Self::Networks => "networks",
            Self::Machine => "hardware: machine",
            Self::Processors => "hardware: cpu, sockets, numa, maxCores",
            Self::Disks => "hardware: disks",
            Self::Devices => "hardware: devices",
            Self::Discs => "userData, images",
            Self::Snippets => "cloudInitCustom",
            Self::Placement => "placement",
            Self::CallIn => "addressFrom: call",
            Self::Reset => "reset",
            Self::Leftovers => "left volumes",
            Self::Orders => "drover machine",
            Self::Pool => "targetPool",
            Self::Images => "images",
            Self::Downloads => "images, downloads",
            Self::Uploads => "images, downloadBy",
            Self::Containers => "guestType: CONTAINER",
            Self::OsTemplates => "osTemplate",
            Self::OsTemplateUrls => "osTemplateUrl",
            Self::Doctor => "doctor",
        }
    }
}

/// What happens to a feature without the privilege.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// The call fails with a 403 of Proxmox.
    Fails,
    /// drover continues, with this effect.
    Degrades(&'static str),
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The calls, for people.
    pub calls: &'static str,
    /// The privileges on Proxmox VE 8; any one is enough, and the first is granted.
    pub eight: &'static [&'static str],
    /// The same on 9.
    pub nine: &'static [&'static str],
    pub at: At,
    pub feature: Feature,
    pub without: Without,
}

impl Row {
    /// The privileges of which any one is enough on a release.
    pub fn any_of(&self, release: Release) -> &'static [&'static str] {
        match release {
            Release::V8 => self.eight,
            Release::V9 => self.nine,
        }
    }
}

const fn fails(feature: Feature, at: At, any: &'static [&'static str], calls: &'static str) -> Row {
    Row { calls, eight: any, nine: any, at, feature, without: Without::Fails }
}

const fn degrades(
    feature: Feature,
    at: At,
    any: &'static [&'static str],
    calls: &'static str,
    effect: &'static str,
) -> Row {
    Row { calls, eight: any, nine: any, at, feature, without: Without::Degrades(effect) }
}

/// Everything that drover needs. Snippets themselves need no privilege up to Proxmox VE 9.2. A call
/// in no line needs none either: `GET /version`, `/cluster/nextid`,
/// `/nodes/localhost/certificates/info`, `/access/permissions`, and status and log of drover's own
/// tasks.
pub static TABLE: &[Row] = &[
    fails(
        Feature::Cluster,
        At::Root,
        &["Sys.Audit"],
        "GET /cluster/status, /cluster/tasks, /nodes/{node}/tasks",
    ),
    degrades(
        Feature::Cluster,
        At::AllGuests,
        &["VM.Audit"],
        "GET /cluster/resources",
        "drover sees no copies of agents and no guests outside the pool, and reports none",
    ),
    fails(Feature::Life, At::Template, &["VM.Audit"], "GET template's config"),
    fails(Feature::Life, At::Template, &["VM.Clone"], "POST clone"),
    fails(Feature::Life, At::Guests, &["VM.Allocate"], "POST clone, DELETE guest"),
    fails(Feature::Life, At::Guests, &["VM.Audit"], "GET config, status/current, list"),
    fails(
        Feature::Life,
        At::Guests,
        &["VM.Config.Cloudinit", "VM.Config.Network"],
        "PUT config: ciuser, sshkeys, ipconfigN, nameserver, searchdomain, ciupgrade",
    ),
    fails(
        Feature::Life,
        At::Guests,
        &["VM.Config.Options"],
        "PUT config: tags, onboot, agent, protection, bios",
    ),
    fails(
        Feature::Life,
        At::Guests,
        &["VM.PowerMgmt"],
        "POST status/start, shutdown, stop, reboot, reset, suspend, resume",
    ),
    fails(Feature::Life, At::Storage, &["Datastore.AllocateSpace"], "POST clone: its disks"),
    fails(Feature::Life, At::Bridge, &["SDN.Use"], "POST clone, PUT config: netN"),
    Row {
        calls: "GET agent/network-get-interfaces",
        eight: &["VM.Monitor"],
        nine: &["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"],
        at: At::Guests,
        feature: Feature::AgentAddress,
        without: Without::Fails,
    },
    Row {
        calls: "GET agent/file-read: host keys",
        eight: &["VM.Monitor"],
        nine: &["VM.GuestAgent.FileRead", "VM.GuestAgent.Unrestricted"],
        at: At::Guests,
        feature: Feature::HostKeys,
        without: Without::Degrades(
            "drover trusts an SSH host key on first use instead of reading it by the guest agent",
        ),
    },
    fails(Feature::Cores, At::Guests, &["VM.Config.CPU"], "PUT config: cores"),
    fails(Feature::Memory, At::Guests, &["VM.Config.Memory"], "PUT config: memory, balloon"),
    fails(Feature::DiskSize, At::Guests, &["VM.Config.Disk"], "PUT resize"),
    fails(Feature::Network, At::Guests, &["VM.Config.Network"], "PUT config: netN"),
    fails(Feature::Networks, At::Guests, &["VM.Config.Network"], "PUT config: every netN"),
    fails(Feature::Machine, At::Guests, &["VM.Config.HWType"], "PUT config: machine"),
    fails(
        Feature::Processors,
        At::Guests,
        &["VM.Config.CPU"],
        "PUT config: cpu, sockets, numa, vcpus",
    ),
    fails(Feature::Disks, At::Guests, &["VM.Config.Disk"], "PUT config: scsiN"),
    fails(Feature::Devices, At::Guests, &["VM.Config.HWType"], "PUT config: hostpciN, usbN"),
    fails(
        Feature::Devices,
        At::Mapping,
        &["Mapping.Use"],
        "GET /cluster/mapping, PUT config: hostpciN, usbN",
    ),
    fails(Feature::Discs, At::Guests, &["VM.Config.CDROM"], "PUT config: the drive of the image"),
    fails(
        Feature::Discs,
        At::Guests,
        &["VM.Config.Cloudinit"],
        "PUT config: Proxmox's own image that is removed from it",
    ),
    fails(Feature::Discs, At::DiscStorage, &["Datastore.AllocateTemplate"], "POST upload"),
    fails(Feature::Discs, At::DiscStorage, &["Datastore.Allocate"], "DELETE content: the image"),
    degrades(
        Feature::Discs,
        At::DiscStorage,
        &["Datastore.Audit", "Datastore.AllocateSpace"],
        "GET content: images",
        "drover does not find images that a lost answer left behind",
    ),
    fails(
        Feature::Snippets,
        At::Guests,
        &["VM.Config.Cloudinit", "VM.Config.Network"],
        "PUT config: cicustom",
    ),
    degrades(
        Feature::Placement,
        At::Nodes,
        &["Sys.Audit"],
        "GET /cluster/resources: memory and processors of nodes",
        "drover does not know the room on nodes and places agents without it",
    ),
    fails(Feature::CallIn, At::Guests, &["VM.Config.HWType"], "PUT config: smbios1"),
    degrades(
        Feature::Reset,
        At::Guests,
        &["VM.Snapshot"],
        "POST snapshot, rollback",
        "agents are destroyed after their lease instead of being reset",
    ),
    degrades(
        Feature::Leftovers,
        At::Storage,
        &["Datastore.Allocate"],
        "GET and DELETE storage content",
        "drover neither sees nor removes volumes that a destroy left behind, and does not report them",
    ),
    degrades(
        Feature::Orders,
        At::Guests,
        &["VM.Snapshot"],
        "POST snapshot, rollback, DELETE snapshot",
        "orders for snapshots fail",
    ),
    degrades(
        Feature::Orders,
        At::Guests,
        &["VM.Clone"],
        "POST clone: a machine",
        "copies of machines fail",
    ),
    degrades(
        Feature::Orders,
        At::Guests,
        &["VM.Config.CPU"],
        "PUT config: cores",
        "orders for other cores fail",
    ),
    degrades(
        Feature::Orders,
        At::Guests,
        &["VM.Config.Memory"],
        "PUT config: memory, balloon",
        "orders for other memory fail",
    ),
    degrades(
        Feature::Orders,
        At::Guests,
        &["VM.Config.Disk"],
        "PUT resize",
        "orders for larger disks fail",
    ),
    degrades(
        Feature::Pool,
        At::Guests,
        &["Pool.Audit"],
        "GET /pools, pools in /cluster/resources",
        "drover notices a missing pool only when it clones into it",
    ),
    fails(Feature::Downloads, At::Nodes, &["Sys.AccessNetwork"], "POST download-url"),
    fails(
        Feature::Downloads,
        At::ImportStorage,
        &["Datastore.AllocateTemplate"],
        "POST download-url: its file",
    ),
    fails(
        Feature::Uploads,
        At::ImportStorage,
        &["Datastore.AllocateTemplate"],
        "POST upload: its file",
    ),
    fails(
        Feature::Images,
        At::ImportStorage,
        &["Datastore.Audit", "Datastore.AllocateSpace"],
        "POST guest: import-from",
    ),
    fails(
        Feature::Images,
        At::Guests,
        &["VM.Config.HWType"],
        "POST guest: machine, scsihw, vga, serial0",
    ),
    fails(Feature::Images, At::Guests, &["VM.Config.CPU"], "POST guest: cpu, cores"),
    fails(Feature::Images, At::Guests, &["VM.Config.Disk"], "POST guest: scsi0, efidisk0, boot"),
    fails(Feature::Images, At::Guests, &["VM.Config.Network"], "POST guest: net0"),
    fails(
        Feature::Containers,
        At::Guests,
        &["VM.Config.Network"],
        "PUT config of a container: netN, nameserver, searchdomain",
    ),
    fails(Feature::OsTemplates, At::Guests, &["VM.Config.Disk"], "POST container: rootfs"),
    fails(
        Feature::OsTemplates,
        At::OsTemplateStorage,
        &["Datastore.Audit", "Datastore.AllocateSpace"],
        "GET content: vztmpl, POST container: ostemplate",
    ),
    fails(
        Feature::OsTemplates,
        At::OsTemplateStorage,
        &["Datastore.AllocateTemplate"],
        "POST aplinfo, download-url: an archive that is missing",
    ),
    fails(
        Feature::OsTemplateUrls,
        At::Nodes,
        &["Sys.AccessNetwork"],
        "POST download-url: a template",
    ),
    degrades(
        Feature::Doctor,
        At::Access,
        &["Sys.Audit"],
        "GET /access/users",
        "doctor cannot see when the token expires, nor whether its privileges are separate",
    ),
    degrades(
        Feature::Doctor,
        At::Root,
        &["Datastore.Audit"],
        "GET /nodes/{node}/storage",
        "doctor does not see storages on which drover may allocate nothing",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use pve_sim::api::access::roles;
    use pve_sim::spec::PveVersion;

    // Invariant: every privilege of the table exists in its release, and every feature has a line.

    #[test]
    fn privileges_exist_in_the_release_they_are_needed_on() {
        for row in TABLE {
            for (release, version) in
                [(Release::V8, PveVersion::V8_4), (Release::V9, PveVersion::V9_2)]
            {
                assert!(!row.any_of(release).is_empty());
                for name in row.any_of(release) {
                    assert!(roles::is_privilege(name, version), "{name} on {version:?}");
                }
            }
        }
        for feature in Feature::ALL {
            assert!(TABLE.iter().any(|row| row.feature == feature), "{feature:?}");
        }
    }

    #[test]
    fn versions_before_nine_are_taken_for_eight() {
        let of = |version: &str| Release::of(version);
        assert_eq!([of("7.4-1"), of("8.4.21")], [Release::V8; 2]);
        assert_eq!([of("9.2.11"), of("10.0")], [Release::V9; 2]);
    }
}
