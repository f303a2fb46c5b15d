//! What a template says of its agents' network cards, and what cloud-init hears beyond Proxmox's own
//! keys: texts that go into a disc image of an agent's own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{AgentId, Installation, is_crockford};
use crate::marks::Marks;

/// A network card of an agent (an entry of `networks`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicSpec {
    /// The bridge it is on.
    pub bridge: String,
    /// Its VLAN tag, 1 to 4094; none for untagged.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Its MAC address, upper case; none for one of the guest's own.
    #[serde(default)]
    pub mac: Option<String>,
    /// What kind of card it is; none for the template's, else `virtio`.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether Proxmox's firewall is in its way; none for what the template has.
    #[serde(default)]
    pub firewall: Option<bool>,
    /// `ipconfigN` of it; none where drover leaves it alone, or an address pool says it.
    #[serde(default)]
    pub ip_config: Option<String>,
    /// DNS servers of its own, in order; empty for those of the whole guest.
    #[serde(default)]
    pub dns: Vec<String>,
    /// Domains to search, of its own.
    #[serde(default)]
    pub search: Vec<String>,
}

/// Texts for cloud-init that Proxmox has no keys for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedSpec {
    /// The storage of the disc images (`cloudInitIsoStorage`).
    pub storage: String,
    /// `user-data`, its placeholders not filled in; none for what Proxmox's own drive would say.
    #[serde(default)]
    pub user_data: Option<String>,
    /// `meta-data`; none for drover's own.
    #[serde(default)]
    pub meta_data: Option<String>,
    /// `network-config`; none for what the network cards are to have.
    #[serde(default)]
    pub network_config: Option<String>,
    /// Values of placeholders (`userDataValues`).
    #[serde(default)]
    pub values: BTreeMap<String, String>,
}

/// The directory of ISO images in a volume's id.
const DIRECTORY: &str = "iso/";
/// What every image of drover's begins with.
const PREFIX: &str = "drover-";

/// The file of an agent's disc image: `drover-<installation>-<agent>.iso`.
pub fn file_name(installation: &Installation, agent: &AgentId) -> String {
    format!("{PREFIX}{installation}-{agent}.iso")
}

/// The volume of an agent's disc image.
pub fn volume(storage: &str, marks: &Marks) -> String {
    format!("{storage}:{DIRECTORY}{}", file_name(&marks.installation, &marks.agent))
}

/// Whether a volume is an ISO image.
pub fn is_image(volume: &str) -> bool {
    volume.split_once(':').is_some_and(|(_, path)| path.starts_with(DIRECTORY))
}

/// Whose a disc image is, when its name is exactly one of drover's.
pub fn owner(volume: &str) -> Option<(Installation, AgentId)> {
    let (_, path) = volume.split_once(':')?;
    let ids = path.strip_prefix(DIRECTORY)?.strip_prefix(PREFIX)?.strip_suffix(".iso")?;
    let (installation, agent) = ids.split_once('-')?;
    let exact = is_crockford(installation, 8) && is_crockford(agent, 16);
    exact.then(|| (Installation::new(installation), AgentId::new(agent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: an image is somebody's by its exact name, and by nothing else.

    #[test]
    fn only_exact_names_say_whose_an_image_is() {
        let installation = Installation::new("7k2m9qxw");
        let agent = AgentId::new("4f8z1c3px9t2vkab");
        let name = file_name(&installation, &agent);
        assert_eq!(name, "drover-7k2m9qxw-4f8z1c3px9t2vkab.iso");
        assert_eq!(owner(&format!("local:iso/{name}")), Some((installation, agent)));
        for other in [
            "local:iso/debian.iso",
            "local:iso/drover-7k2m9qxw.iso",
            "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso.bak",
            "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab.img",
            "local:iso/drover-7k2m9qxw-4f8z1c3px9t2vkab-2.iso",
            "local:iso/x/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso",
            "local:iso/Drover-7k2m9qxw-4f8z1c3px9t2vkab.iso",
            "local:iso/drover-7K2M9QXW-4f8z1c3px9t2vkab.iso",
            "local:snippets/drover-7k2m9qxw-4f8z1c3px9t2vkab.iso",
            "drover-7k2m9qxw-4f8z1c3px9t2vkab.iso",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
        assert!(is_image("local:iso/debian.iso") && !is_image("local:101/vm-101-disk-0.qcow2"));
    }
}
