//! Keys of a template's network cards and cloud-init snippets.

use super::{Key, Raw, Table, choice, flag, text, texts, value, whole};

table! {
    /// Keys of each item of `networks`.
    NIC => RawNic {
        "name" => name: Option<String>, text().eg(r#""lan""#),
            "a network of the cloud's networkNames; with bridge only a note";
        "bridge" => bridge: Option<String>, text().check(value::network).eg(r#""vmbr0""#),
            "bridge of the card; `vmbr0.100` is VLAN 100 on vmbr0; unset: by name";
        "vlan" => vlan: u16, whole(0..=4094).or(0), "VLAN tag of the card; 0: none";
        "mac" => mac: Option<String>, text().check(value::mac).eg(r#""BC:24:11:00:00:01""#),
            "MAC address; unset: Proxmox chooses one";
        "ip" => ip: Option<String>, text().check(value::ip4).eg(r#""10.20.0.50/24""#),
            "dhcp, none, or address/prefix; unset: the address of addressPool, else dhcp, or none beside ip6";
        "gateway" => gateway: Option<String>, text().check(value::address).eg(r#""10.20.0.1""#),
            "IPv4 gateway; unset: none";
        "ip6" => ip6: Option<String>, text().check(value::ip6).eg("auto"),
            "dhcp, auto, or address/prefix; unset: none";
        "gateway6" => gateway6: Option<String>, text().check(value::address).eg(r#""fd00::1""#),
            "IPv6 gateway; unset: none";
        "dns" => dns: Vec<String>, texts().or_empty().check(value::address).eg(r#"["10.20.0.2"]"#),
            "DNS servers; where they differ between cards, drover writes them to an ISO image";
        "searchDomain" => search_domain: String, text().or_text(""),
            "DNS search domains, separated by blanks";
        "firewall" => firewall: Option<bool>, flag().eg("true"),
            "true: Proxmox's firewall filters the card; unset: as in the template";
        "model" => model: Option<String>,
            choice(&["virtio", "e1000", "e1000e", "rtl8139", "vmxnet3"]).eg("virtio"),
            "model of the card; unset: as in the template, else virtio";
    }
}

table! {
    /// Keys of `cloudInitCustom`.
    SNIPPETS {
        "user", text().check(value::snippet).eg(r#""local:snippets/ci.yaml""#),
            "user data: a volume such as `local:snippets/ci.yaml`";
        "meta", text().check(value::snippet).eg(r#""local:snippets/meta.yaml""#),
            "meta data, likewise";
        "network", text().check(value::snippet).eg(r#""local:snippets/network.yaml""#),
            "network config, likewise";
        "vendor", text().check(value::snippet).eg(r#""local:snippets/vendor.yaml""#),
            "vendor data, likewise";
    }
}
