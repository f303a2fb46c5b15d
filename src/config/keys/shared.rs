//! Keys of each entry of `labelMappings` and `addressPools`, and names that several tables share.

use std::net::IpAddr;

use super::{Key, LONG, Raw, Table, text, texts, value, whole};

/// The ways to say which certificates of a server are accepted.
pub(crate) const TRUST: [&str; 4] = ["caFile", "caPem", "pinSha256", "ignoreSslErrors"];

table! {
    /// Keys of each entry of `labelMappings`.
    MAPPING => RawMapping {
        "labels" => labels: String,
            text().required().eg(r#""linux docker""#).filled(
                "no label is given",
                "give at least one; mappings do not serve jobs without labels",
            ),
            "labels of the mapping, separated by blanks";
        "priority" => priority: i64, whole(0..=1_000_000).or(0),
            "of several mappings with the labels of a job, the highest priority wins";
        "templates" => templates: Vec<String>,
            texts().required().eg(r#"["linux-builder"]"#)
                .filled("no template is listed", "list at least one key of agentConfigurations"),
            "keys of agentConfigurations, or cloud/key; drover tries the first one first";
    }
}

table! {
    /// Keys of each entry of `addressPools`.
    ADDRESS_POOL => RawPool {
        "ranges" => ranges: Vec<String>,
            texts().required().check(value::address_range).eg(r#"["10.20.0.50-10.20.0.99"]"#)
                .filled("no range is listed", "list at least one, such as `10.20.0.50-10.20.0.99`"),
            "addresses for agents: `first-last`, one address, or a CIDR without its first and last";
        "prefix" => prefix: u8, whole(1..=128).required().eg("24"),
            "prefix length of the network of these addresses, in bits";
        "gateway" => gateway: Option<IpAddr>, text().check(value::address).eg("10.20.0.1"),
            "gateway of the network; unset: none";
        "cooldownSeconds" => cooldown_seconds: u64, whole(0..=LONG).or(600),
            "seconds until an address is used again after its agent is gone; 0: at once";
        "nameserver" => nameserver: String, text().or_text("").check(value::nameserver),
            "DNS servers of the network; a template's own nameserver wins; blank: none";
    }
}
