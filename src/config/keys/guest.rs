//! Keys of a template about what its guests are told: network cards, and cloud-init beyond Proxmox's
//! own keys.

use super::{Key, Kind, Preset, Shape, key, text, value, whole};

pub(super) const NETWORKS: Key = key(
    "networks",
    Kind::Mappings(&NIC),
    Preset::Empty,
    "all network cards, for bridge, vlan, ipConfig and ipConfigs; empty: the template's",
);

pub(super) const USER_DATA: Key = text(
    "userData",
    Preset::Unset,
    "cloud-init user data, for ciUser's and the rest of Proxmox's own; never write a secret here",
);
pub(super) const USER_DATA_FILE: Key =
    text("userDataFile", Preset::Unset, "a file with it beside this one, for userData");
pub(super) const META_DATA: Key =
    text("metaData", Preset::Unset, "cloud-init meta data, a YAML mapping; unset: id and name");
pub(super) const META_DATA_FILE: Key =
    text("metaDataFile", Preset::Unset, "a file with it beside this one, for metaData");
pub(super) const NETWORK_CONFIG: Key =
    text("networkConfig", Preset::Unset, "cloud-init network config; unset: as networks say");
pub(super) const NETWORK_CONFIG_FILE: Key =
    text("networkConfigFile", Preset::Unset, "a file with it beside this one, for networkConfig");
pub(super) const VALUES: Key = key(
    "userDataValues",
    Kind::Names,
    Preset::Empty,
    "values of ${name} in these texts, beside drover's own; never write a secret here",
);
pub(super) const ISO_STORAGE: Key = text(
    "cloudInitIsoStorage",
    Preset::Unset,
    "storage of the ISO images that these texts go to guests in; unset: the cloud's",
)
.checked(value::storage_or_none);
pub(super) const CUSTOM: Key = key(
    "cloudInitCustom",
    Kind::Mapping(&SNIPPETS),
    Preset::Unset,
    "snippets that lie on a storage already, for userData; the API can not upload them",
);

/// Keys of each entry of `networks`.
pub(crate) static NIC: Shape = Shape {
    one_of: &[],
    keys: &[
        text("name", Preset::Unset, "a network of the cloud's networkNames, or only for people"),
        text("bridge", Preset::Unset, "its bridge, also `vmbr0.100` for VLAN 100; unset: by name")
            .checked(value::network),
        whole("vlan", 0, 4094, 0, "its VLAN tag; 0: none"),
        text("mac", Preset::Unset, "its MAC address; unset: of its own").checked(value::mac),
        text("ip", Preset::Unset, "dhcp, none, or address/prefix; unset: dhcp, or addressPool's")
            .checked(value::ip4),
        text("gateway", Preset::Unset, "the way out of that network; unset: none")
            .checked(value::address),
        text("ip6", Preset::Unset, "dhcp, auto, or address/prefix; unset: none")
            .checked(value::ip6),
        text("gateway6", Preset::Unset, "the way out of that network; unset: none")
            .checked(value::address),
        key(
            "dns",
            Kind::Texts,
            Preset::Empty,
            "DNS servers; where cards differ in them they are told by an ISO image",
        )
        .checked(value::address),
        text("searchDomain", Preset::Text(""), "DNS domains to search, separated by blanks"),
        key("firewall", Kind::Flag, Preset::Unset, "true: behind Proxmox's firewall"),
        key(
            "model",
            Kind::Choice(&["virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"]),
            Preset::Unset,
            "kind of card; unset: the template's, else virtio",
        ),
    ],
};

/// Keys of `cloudInitCustom`.
pub(crate) static SNIPPETS: Shape = Shape {
    one_of: &[],
    keys: &[
        text("user", Preset::Unset, "user data: a volume such as `local:snippets/ci.yaml`")
            .checked(value::snippet),
        text("meta", Preset::Unset, "meta data").checked(value::snippet),
        text("network", Preset::Unset, "network config").checked(value::snippet),
        text("vendor", Preset::Unset, "vendor data").checked(value::snippet),
    ],
};
