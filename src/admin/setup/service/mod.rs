//! The container or virtual machine that runs drover itself.
//!
//! In: the options of `drover setup service` ([`GuestSpec`]) and an administrator's login.
//! [`read_cluster`] reads the cluster, [`plan`] works out the calls, [`reach`] logs in to the
//! guest, and [`install`] puts the files of a [`Bundle`] into it and starts the service.
//!
//! The guest is recognised by marks in its description ([`Marks`]): its name, its VMID and its
//! cluster. A copy has another VMID, so no copy is taken for drover's guest.

mod bundle;
mod cluster_state;
mod install;
mod plan;

use drover_model::id::ClusterId;

pub use bundle::{Bundle, GuestFile};
pub use cluster_state::{ClusterState, OwnGuest, read_cluster};
pub use install::{Installed, MissingParts, Target, install, reach};
pub use plan::plan;

/// The default name of the guest.
pub const DEFAULT_HOSTNAME: &str = "drover-1";
/// The range from which a free VMID is chosen.
pub const VMID_RANGE: std::ops::Range<u32> = 300..1000;
/// The tag of guests that run drover.
pub const TAG: &str = "drover-service";

const MARKS_FENCE: &str = "```drover-service-1";

/// What the guest is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstallMethod {
    /// A container of this appliance template.
    Container {
        /// The file, such as `debian-12-standard_12.2-1_amd64.tar.zst`.
        template: String,
        /// The storage that has the file or receives it; none for any storage that takes templates.
        storage: Option<String>,
    },
    /// A virtual machine: a full clone of the template with this VMID or name.
    Machine(String),
}

/// The options of `drover setup service`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSpec {
    /// What the guest is made from.
    pub source: InstallMethod,
    /// The VMID; none for the first free one.
    pub vmid: Option<u32>,
    /// The guest's name, by which it is found again.
    pub hostname: String,
    /// The node; none for the first that fits.
    pub node: Option<String>,
    /// The storage of its disk.
    pub storage: String,
    /// Its bridge or VNet; `vmbr0.100` for VLAN 100.
    pub bridge: String,
    pub cores: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Disk in GiB.
    pub disk: u32,
    /// `dhcp`, or an address with its prefix length.
    pub ip: String,
    /// The gateway of a fixed address.
    pub gateway: Option<String>,
    /// The pool that the guest joins.
    pub pool: Option<String>,
    /// Whether Proxmox's high availability manages the guest.
    pub ha: bool,
    /// The SSH key that may log in as root.
    pub public_key: String,
}

impl GuestSpec {
    /// The bridge without its VLAN, and the VLAN.
    pub fn bridge(&self) -> (&str, Option<&str>) {
        match self.bridge.split_once('.') {
            Some((bridge, tag)) => (bridge, Some(tag)),
            None => (&self.bridge, None),
        }
    }

    pub fn is_container(&self) -> bool {
        matches!(self.source, InstallMethod::Container { .. })
    }
}

/// The marks of a guest that runs drover: which guest it is, and that it is no copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    pub name: String,
    pub vmid: u32,
    pub cluster: ClusterId,
}

impl Marks {
    /// The description of a guest with these marks.
    pub fn describe(&self) -> String {
        let Self { name, vmid, cluster } = self;
        format!(
            "drover runs here; made by drover setup service\n\n\
             {MARKS_FENCE}\nname {name}\nvmid {vmid}\ncluster {cluster}\n```\n"
        )
    }

    /// Whether a description contains exactly these marks, once.
    pub fn are_in(&self, description: &str) -> bool {
        let mut blocks = description.split(MARKS_FENCE).skip(1);
        let (Some(block), None) = (blocks.next(), blocks.next()) else { return false };
        let Self { name, vmid, cluster } = self;
        let lines = [format!("name {name}"), format!("vmid {vmid}"), format!("cluster {cluster}")];
        let there = block.split("```").next().unwrap_or_default();
        there.trim().lines().map(str::trim).eq(lines.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a guest is drover's own by its name, its VMID and its cluster together.

    #[test]
    fn marks_are_read_as_they_were_written_and_no_copy_has_them() {
        let cluster = ClusterId::new("9f31c0aa52e7d410");
        let marks = Marks { name: "drover-1".into(), vmid: 300, cluster };
        let text = marks.describe();
        insta::assert_snapshot!(text);
        assert!(marks.are_in(&text));
        // Proxmox returns a description with line ends of its own.
        assert!(marks.are_in(&text.replace('\n', "\r\n")));
        assert!(!Marks { vmid: 301, ..marks.clone() }.are_in(&text), "a copy");
        assert!(!Marks { name: "drover-2".into(), ..marks.clone() }.are_in(&text));
        assert!(!Marks { cluster: ClusterId::new("0"), ..marks.clone() }.are_in(&text));
        assert!(!marks.are_in(&format!("{text}{text}")), "marks that are there twice");
        assert!(!marks.are_in("drover-1"));
    }
}
