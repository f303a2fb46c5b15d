//! The named scalar formats of the schema, and the texts of their refusals
//! (book: proxmox, section 2).
//!
//! `validate` checks property strings. The texts here end in a newline, as those of Perl's `die`.

mod cluster;

use std::net::{Ipv4Addr, Ipv6Addr};

use super::access::roles;
use crate::spec::PveVersion;

/// Splits a `…-list` value at commas, semicolons, blanks and NULs.
pub(crate) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| letter.is_whitespace() || ",;\0".contains(letter))
        .filter(|item| !item.is_empty())
}

/// Checks a value against a named format; all values are valid for an unknown format.
///
/// # Errors
/// The text after `invalid format - `.
pub(crate) fn check(name: &str, text: &str, version: PveVersion) -> Result<(), String> {
    if let Some(item) = name.strip_suffix("-list") {
        return split_list(text).try_for_each(|part| check(item, part, version));
    }
    if name == "pve-priv" {
        let known = roles::is_privilege(text, version);
        return known.then_some(()).ok_or_else(|| format!("invalid privilege '{text}'\n"));
    }
    match refusal(name, text) {
        Some(refusal) => Err(format!("{refusal}\n")),
        None => Ok(()),
    }
}

fn refusal(name: &str, text: &str) -> Option<String> {
    let (good, refusal) = match name {
        "pve-vmid" => (is_vmid(text), "value does not look like a valid VM ID".to_owned()),
        "pve-node" => (is_label(text), "value does not look like a valid node name".into()),
        "dns-name" => (is_dns_name(text), "value does not look like a valid DNS name".into()),
        "address" => (
            is_address(text) || is_dns_name(text),
            "value does not look like a valid IP address or DNS name".into(),
        ),
        "ipv4" => (
            text.parse::<Ipv4Addr>().is_ok(),
            "value does not look like a valid IPv4 address".into(),
        ),
        "ipv6" => (
            text.parse::<Ipv6Addr>().is_ok(),
            "value does not look like a valid IPv6 address".into(),
        ),
        "CIDR" => (
            is_cidr::<Ipv4Addr>(text, 32) || is_cidr::<Ipv6Addr>(text, 128),
            "value does not look like a valid CIDR network".into(),
        ),
        "pve-ipv4-config" => (
            text == "dhcp" || is_cidr::<Ipv4Addr>(text, 32),
            "value does not look like a valid ipv4 network configuration".into(),
        ),
        "pve-ipv6-config" => (
            text == "dhcp" || text == "auto" || is_cidr::<Ipv6Addr>(text, 128),
            "value does not look like a valid ipv6 network configuration".into(),
        ),
        "mac-addr" => (is_mac(text), "value does not look like a valid unicast MAC address".into()),
        "pve-configid" => (is_configid(text), format!("invalid configuration ID '{text}'")),
        "pve-storage-id" => {
            (is_storage_id(text), format!("storage ID '{text}' contains illegal characters"))
        }
        "pve-poolid" => (is_pool(text), format!("pool name '{text}' contains invalid characters")),
        "pve-userid" => {
            (is_userid(text), format!("value '{text}' does not look like a valid user name"))
        }
        "pve-tokenid" => (
            text.split_once('!').is_some_and(|(user, token)| is_userid(user) && is_realm(token)),
            format!("value '{text}' does not look like a valid token ID"),
        ),
        "pve-roleid" => (is_word(text), format!("role name '{text}' contains invalid characters")),
        "pve-groupid" => {
            (is_word(text), format!("group name '{text}' contains invalid characters"))
        }
        "pve-realm" => (is_realm(text), "value does not look like a valid realm".into()),
        "pve-tag" => (is_tag(text), "invalid characters in tag".into()),
        "pve-bridge-id" => (is_word(text), format!("invalid bridge ID '{text}'")),
        "urlencoded" => (is_urlencoded(text), format!("invalid urlencoded string: {text}")),
        "disk-size" => (is_disk_size(text), "value does not look like a valid disk size".into()),
        "email-opt" => (
            text.is_empty() || text.contains('@'),
            "value does not look like a valid email address".into(),
        ),
        "pve-hotplug-features" => return hotplug_refusal(text),
        "pve-startup-order" => (is_startup(text), "unable to parse startup options".into()),
        "pve-storage-content" => (
            ["images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"]
                .contains(&text),
            format!("invalid content type '{text}'"),
        ),
        "pve-task-status-type" => (
            ["ok", "error", "warning", "unknown"].contains(&text),
            format!("invalid task status type '{text}'"),
        ),
        "pve-qm-bootdev" => (is_boot_device(text), format!("invalid boot device '{text}'")),
        "pve-qm-bootdisk" => (is_boot_device(text), format!("invalid boot disk '{text}'")),
        "pve-cpuset" => (
            !text.is_empty() && text.chars().all(|one| one.is_ascii_digit() || ",-".contains(one)),
            format!("'{text}' is not a valid cpuset"),
        ),
        "pve-volume-id" => (is_volume(text), format!("unable to parse volume ID '{text}'")),
        "pve-volume-id-or-absolute-path" => (
            text.starts_with('/') || is_volume(text),
            format!("unable to parse volume ID '{text}'"),
        ),
        "pve-volume-id-or-qm-path" => (
            text == "none"
                || text == "cdrom"
                || text.starts_with('/')
                || is_volume(text)
                || is_size(text),
            format!("unable to parse volume ID '{text}'"),
        ),
        _ => return cluster::refusal(name, text),
    };
    (!good).then_some(refusal)
}

fn is_vmid(text: &str) -> bool {
    (3..=9).contains(&text.len())
        && !text.starts_with('0')
        && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_dns_name(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_address(text: &str) -> bool {
    text.parse::<std::net::IpAddr>().is_ok()
}

fn is_cidr<T: std::str::FromStr>(text: &str, most: u8) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    address.parse::<T>().is_ok() && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_mac(text: &str) -> bool {
    let bytes: Vec<&str> = text.split(':').collect();
    let unicast = |byte: &str| u8::from_str_radix(byte, 16).is_ok_and(|byte| byte & 1 == 0);
    bytes.len() == 6
        && bytes.iter().all(|byte| byte.len() == 2 && u8::from_str_radix(byte, 16).is_ok())
        && unicast(bytes[0])
}

/// A letter, then at least one more character that `passes` accepts.
fn is_name(text: &str, passes: impl Fn(char) -> bool) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic())
        && text.len() > 1
        && letters.all(passes)
}

fn is_configid(text: &str) -> bool {
    is_name(text, |letter| letter.is_ascii_alphanumeric() || "_-".contains(letter))
}

fn is_realm(text: &str) -> bool {
    is_name(text, |letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
}

fn is_storage_id(text: &str) -> bool {
    is_realm(text) && text.ends_with(|letter: char| letter.is_ascii_alphanumeric())
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
}

fn is_pool(text: &str) -> bool {
    text.split('/').count() <= 3 && text.split('/').all(is_word)
}

fn is_userid(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(user, realm)| {
        !user.is_empty()
            && !user.contains(|letter: char| letter.is_whitespace() || ":/".contains(letter))
            && is_realm(realm)
    })
}

fn is_tag(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphanumeric() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || "_-+.".contains(letter))
}

fn is_urlencoded(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-%_.!~*'()".contains(letter))
}

fn is_size(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

fn is_disk_size(text: &str) -> bool {
    is_size(text.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(text))
}

fn hotplug_refusal(text: &str) -> Option<String> {
    if text == "0" || text == "1" {
        return None;
    }
    let known = ["network", "disk", "cpu", "memory", "usb", "cloudinit"];
    let unknown = split_list(text).find(|feature| !known.contains(feature))?;
    Some(format!("invalid hotplug feature '{unknown}'"))
}

fn is_startup(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split(',').all(|part| match part.split_once('=') {
        Some((key, value)) => ["order", "up", "down"].contains(&key) && number(value),
        None => number(part),
    })
}

fn is_boot_device(text: &str) -> bool {
    let stem = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
    stem.len() < text.len()
        && ["ide", "sata", "scsi", "virtio", "net", "usb", "hostpci"].contains(&stem)
}

fn is_volume(text: &str) -> bool {
    text.split_once(':').is_some_and(|(storage, rest)| is_storage_id(storage) && !rest.is_empty())
}

/// Checks the name of a CPU model: a built-in one, or one with the prefix of custom models.
///
/// # Errors
/// The text after `invalid format - `.
pub(crate) fn cpu_model(model: &str) -> Result<(), String> {
    let stems = [
        "486",
        "Broadwell",
        "Cascadelake-Server",
        "Conroe",
        "Cooperlake",
        "EPYC",
        "GraniteRapids",
        "Haswell",
        "Icelake-Client",
        "Icelake-Server",
        "IvyBridge",
        "KnightsMill",
        "Nehalem",
        "Opteron_G1",
        "Opteron_G2",
        "Opteron_G3",
        "Opteron_G4",
        "Opteron_G5",
        "Penryn",
        "SandyBridge",
        "SapphireRapids",
        "Skylake-Client",
        "Skylake-Server",
        "Westmere",
        "athlon",
        "core2duo",
        "coreduo",
        "host",
        "kvm32",
        "kvm64",
        "max",
        "pentium",
        "pentium2",
        "pentium3",
        "phenom",
        "qemu32",
        "qemu64",
        "x86-64-v2",
        "x86-64-v2-AES",
        "x86-64-v3",
        "x86-64-v4",
    ];
    let variant = |rest: &str| rest.is_empty() || rest.starts_with('-');
    let known = |stem: &&str| model.strip_prefix(*stem).is_some_and(variant);
    if model.starts_with("custom-") || stems.iter().any(known) {
        return Ok(());
    }
    Err(format!("Built-in cputype '{model}' is not defined (missing 'custom-' prefix?)\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(name: &str, text: &str) -> bool {
        check(name, text, PveVersion::V8_4).is_ok()
    }

    #[test]
    fn names_follow_their_grammars() {
        assert!(good("dns-name", "UPPER.lower-1") && !good("dns-name", "a..b"));
        assert!(!good("dns-name", "bad_name") && !good("dns-name", ""));
        assert!(good("pve-configid", "s1") && !good("pve-configid", "1x"));
        assert!(good("pve-poolid", "a/b/c") && !good("pve-poolid", "a/b/c/d"));
        assert!(good("mac-addr", "BC:24:11:B0:79:AD") && !good("mac-addr", "01:00:00:00:00:00"));
        assert!(good("pve-vmid", "999999999") && !good("pve-vmid", "0100"));
    }

    // Invariant: `sshkeys` contains no plus sign and no blank (book: proxmox, section 23, item 10).
    #[test]
    fn keys_must_be_percent_encoded_once_more() {
        assert!(good("urlencoded", "ssh-rsa%20AAAA%2Bx%3D%3D"));
        let refusal = check("urlencoded", "ssh-rsa AAAA", PveVersion::V8_4);
        assert_eq!(refusal, Err("invalid urlencoded string: ssh-rsa AAAA\n".into()));
        assert!(!good("urlencoded", "AAAA+x"));
    }

    #[test]
    fn lists_are_checked_item_by_item() {
        assert!(good("pve-tag-list", "a b;c,d") && good("pve-tag-list", ""));
        assert!(!good("pve-tag-list", "a;-b"));
        assert_eq!(
            check("pve-configid-list", "ok,x", PveVersion::V8_4),
            Err("invalid configuration ID 'x'\n".into())
        );
    }

    #[test]
    fn cpu_models_are_built_in_or_custom() {
        assert!(cpu_model("host").is_ok() && cpu_model("Haswell-noTSX").is_ok());
        assert!(cpu_model("custom-mine").is_ok());
        assert!(cpu_model("nope").is_err());
    }
}
