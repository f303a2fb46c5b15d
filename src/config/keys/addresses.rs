//! Keys of each entry of `addressPools`.

use super::{Key, Kind, LONG, Preset, key, text, value, whole};

pub(crate) static ADDRESS_POOL: &[Key] = &[
    key(
        "ranges",
        Kind::Texts,
        Preset::Required,
        "the addresses it gives, one agent each: `a-b`, one alone, or a CIDR without its ends",
    )
    .checked(value::address_range),
    key("prefix", Kind::Whole(1, 128), Preset::Required, "bits of the network they are in"),
    text("gateway", Preset::Unset, "the network's way out; unset: none").checked(value::address),
    whole(
        "cooldownSeconds",
        0,
        LONG,
        600,
        "seconds an address rests after its agent is gone; 0: none",
    ),
    text("nameserver", Preset::Text(""), "the network's DNS servers; a template's own go before")
        .checked(value::nameserver),
];
