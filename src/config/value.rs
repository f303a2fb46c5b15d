//! What single texts must look like: endpoints, pins, CIDRs, ids, paths.
//!
//! Knows nothing of keys and places; [`super::layer`] joins a complaint with them.

use std::net::{IpAddr, SocketAddr};

use drover_hypervisor::is_mac;
use drover_hypervisor::name_pattern;
use drover_model::addresses::AddressRange;
use drover_model::addresses::range::width;
use drover_model::marks::SLUG_MAX;
use drover_scripts::windows::has_drive;
use proxmox_client::{Endpoint, parse_pin};
use reqwest::Url;

use crate::calendar;
use crate::level;

/// What is wrong with a text, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    pub message: String,
    pub help: &'static str,
}

/// Looks closer at a text.
pub(super) type Check = fn(&str) -> Result<(), Complaint>;

fn complain(message: impl Into<String>, help: &'static str) -> Complaint {
    Complaint { message: message.into(), help }
}

/// Checks an endpoint by the client's own reading.
pub(super) fn endpoint(text: &str) -> Result<(), Complaint> {
    const FORM: &str =
        "for a certificate of the cluster's own CA give caFile or pinSha256 beside it";
    text.parse::<Endpoint>().map(drop).map_err(|error| complain(error.to_string(), FORM))
}

/// Checks a pin by the client's own reading.
pub(super) fn pin(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "give the SHA-256 fingerprint that Proxmox shows under Node, System, \
                        Certificates: 32 pairs of hexadecimal digits";
    parse_pin(text).map(drop).map_err(|error| complain(error.to_string(), FORM))
}

/// Checks `address/prefix`.
pub(super) fn cidr(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `10.1.0.0/16` or `fd00::/8`";
    let Some((address, prefix)) = text.split_once('/') else {
        return Err(complain(format!("`{text}` has no prefix length"), FORM));
    };
    let address: IpAddr =
        address.parse().map_err(|_| complain(format!("`{address}` is no IP address"), FORM))?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    match prefix.parse::<u32>() {
        Ok(length) if length <= longest => Ok(()),
        _ => Err(complain(format!("the prefix length is a number from 0 to {longest}"), FORM)),
    }
}

/// Checks one IP address.
pub(super) fn address(text: &str) -> Result<(), Complaint> {
    text.parse::<IpAddr>().map(drop).map_err(|_| {
        complain(format!("`{text}` is no IP address"), "write it as `10.20.0.1` or `fd00::1`")
    })
}

/// Reads a range of addresses: `first-last`, one alone, or a CIDR.
pub(super) fn range_of(text: &str) -> Option<AddressRange> {
    let text = text.trim();
    if let Some((first, last)) = text.split_once('-') {
        return AddressRange::new(first.trim().parse().ok()?, last.trim().parse().ok()?);
    }
    if let Some((base, prefix)) = text.split_once('/') {
        return AddressRange::network(base.parse().ok()?, prefix.parse().ok()?);
    }
    let alone = text.parse().ok()?;
    AddressRange::new(alone, alone)
}

/// Checks a range of addresses.
pub(super) fn address_range(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `10.20.0.50-10.20.0.99`, `10.20.0.50` or `10.20.0.64/26`";
    match range_of(text) {
        Some(_) => Ok(()),
        None => Err(complain(format!("`{text}` is no range of addresses"), FORM)),
    }
}

/// Checks the URL of a CI system.
pub(super) fn url(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `https://git.lan`, with its port and path where it has such";
    let url: Url = text.parse().map_err(|_| complain(format!("`{text}` is no URL"), FORM))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(complain(format!("`{text}` is no URL of a web server"), FORM));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(complain("a login stands in the URL", "give it by credentialsId"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(complain(format!("`{text}` has a query"), FORM));
    }
    Ok(())
}

/// Checks the URL of a proxy, or `none`.
pub(super) fn proxy(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `http://proxy.lan:3128`, or `none`";
    if text == "none" {
        return Ok(());
    }
    let url: Url = text.parse().map_err(|_| complain(format!("`{text}` is no URL"), FORM))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(complain(format!("`{text}` is no URL of a proxy"), FORM));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let help = "leave `proxy` out and set HTTPS_PROXY, which may hold a login";
        return Err(complain("a login stands in the URL", help));
    }
    Ok(())
}

/// Checks a cron pattern.
pub(super) fn cron(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `0 8 * * mon-fri`: minute, hour, day of the month, month, day of \
                        the week";
    let wrong = |why| complain(format!("`{text}` is no cron pattern: {why}"), FORM);
    calendar::pattern(text).map(drop).map_err(wrong)
}

/// Checks an IANA time zone's name.
pub(super) fn time_zone(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "give an IANA name, such as `Europe/Berlin` or `UTC`";
    calendar::zone(text).map(drop).map_err(|message| complain(message, FORM))
}

/// Checks that there is a text at all.
pub(super) fn filled(text: &str) -> Result<(), Complaint> {
    if text.trim().is_empty() {
        return Err(complain("the text is blank", "leave the key out where nothing is meant"));
    }
    Ok(())
}

/// Checks the name of a region or zone: it is part of a label; blank is fine.
pub(super) fn place(text: &str) -> Result<(), Complaint> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if text.chars().all(sound) {
        return Ok(());
    }
    Err(complain(
        format!("`{text}` can not stand in a label"),
        "use letters, digits, `-`, `_`, `.`",
    ))
}

/// Checks a label, which stands alone: blanks separate labels elsewhere.
pub(super) fn label(text: &str) -> Result<(), Complaint> {
    if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        let message = format!("`{}` is no label", text.escape_debug());
        return Err(complain(message, "give one word an item, such as `ssd`"));
    }
    Ok(())
}

/// Checks a regular expression over templates' names.
pub(super) fn pattern(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "it must match whole names; write it as `debian-13-\\d+`";
    filled(text)?;
    let wrong = |why| complain(format!("`{text}` is no regular expression: {why}"), FORM);
    name_pattern(text).map(drop).map_err(wrong)
}

/// Checks a tag as Proxmox takes it, and that it is not one of drover's own.
pub(super) fn tag(text: &str) -> Result<(), Complaint> {
    tag_shown(text, text)
}

/// Checks the tag of a template, in whichever case it is written.
pub(super) fn template_tag(text: &str) -> Result<(), Complaint> {
    tag_shown(&text.to_ascii_lowercase(), text)
}

fn tag_shown(text: &str, shown: &str) -> Result<(), Complaint> {
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let sound = text.starts_with(first) && text.chars().all(|c| first(c) || "-+.".contains(c));
    if !sound {
        return Err(complain(
            format!("`{shown}` is no tag Proxmox takes"),
            "use lower-case letters, digits and `_`, then also `-`, `+` and `.`",
        ));
    }
    if text == "drover" || text.starts_with("drover-") {
        return Err(complain(
            format!("`{shown}` is one of drover's own tags"),
            "choose a tag that does not begin with `drover-`",
        ));
    }
    Ok(())
}

/// Checks cloud-init's `ipconfig0`.
pub(super) fn ip_config(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `ip=dhcp`, or `ip=10.0.0.50/24,gw=10.0.0.1`";
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let Some((name, setting)) = part.trim().split_once('=') else {
            return Err(complain(format!("`{part}` is no `name=value`"), FORM));
        };
        let sound = match name {
            "ip" => setting == "dhcp" || cidr(setting).is_ok(),
            "ip6" => matches!(setting, "dhcp" | "auto") || cidr(setting).is_ok(),
            "gw" | "gw6" => setting.parse::<IpAddr>().is_ok(),
            _ => return Err(complain(format!("`{name}` is not ip, gw, ip6 or gw6"), FORM)),
        };
        if !sound {
            return Err(complain(format!("`{setting}` is no value for `{name}`"), FORM));
        }
    }
    let setting = |wanted: &str| {
        let mut parts = text.split(',').filter_map(|part| part.trim().split_once('='));
        parts.find(|(name, _)| *name == wanted).map(|(_, setting)| setting)
    };
    for (own, way) in [("ip", "gw"), ("ip6", "gw6")] {
        let Some(gateway) = setting(way).and_then(|way| way.parse().ok()) else { continue };
        let Some(own) = setting(own).filter(|own| own.contains('/')) else {
            let what = format!("there is no address that `{way}` is the way out for");
            return Err(complain(what, FORM));
        };
        if let Some(what) = misses(own, gateway) {
            return Err(complain(what, GATEWAY));
        }
    }
    Ok(())
}

/// What to do about a gateway that an address does not reach.
pub(super) const GATEWAY: &str = "correct the gateway, or the address and its prefix";

/// Why an `address/prefix` does not reach a gateway. One of the link alone (`fe80::/10`) lies in every
/// network, and an address that is a whole network (`/32`) may have any.
pub(super) fn misses(own: &str, gateway: IpAddr) -> Option<String> {
    let (address, prefix) = own.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    if address == gateway {
        return Some(format!("the gateway, {gateway}, is the agent's own address"));
    }
    let network = AddressRange::network(address, prefix)?;
    let any = prefix == width(address) && address.is_ipv4() == gateway.is_ipv4();
    let reached = any || network.contains(gateway) || (address.is_ipv6() && of_link(gateway));
    let shown = || format!("{}/{prefix}, the address's network", network.first());
    (!reached).then(|| format!("the gateway, {gateway}, is not within {}", shown()))
}

/// Whether an address holds on one link alone.
pub(super) fn of_link(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Checks a storage's name as Proxmox takes it (its format `pve-storage-id`).
pub(super) fn storage(text: &str) -> Result<(), Complaint> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let sound = text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(plain);
    if sound {
        return Ok(());
    }
    Err(complain(
        format!("`{text}` is no name of a storage"),
        "give it as Proxmox shows it, such as `local-lvm`: a letter, then letters, digits, `-`, `_`, \
         `.`, and no mark at the end",
    ))
}

/// Checks a storage's name; blank is fine.
pub(super) fn storage_or_none(text: &str) -> Result<(), Complaint> {
    if text.trim().is_empty() { Ok(()) } else { storage(text) }
}

/// Checks what stands before the names of guests, which Proxmox takes as DNS names; blank is fine.
pub(super) fn name_prefix(text: &str) -> Result<(), Complaint> {
    const FORM: &str =
        "use at most 36 letters, digits, `-` and `.`, and begin with a letter or digit";
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if text.is_empty() || (begins && text.len() <= SLUG_MAX && text.chars().all(plain)) {
        return Ok(());
    }
    Err(complain(format!("`{text}` can not begin the name of a guest"), FORM))
}

/// Checks the name of a step: it is shown in one line.
pub(super) fn step_name(text: &str) -> Result<(), Complaint> {
    let blank = text.trim().is_empty();
    if blank || text.chars().count() > 40 || text.contains(char::is_control) {
        return Err(complain(
            format!("`{}` is no name of a step", text.escape_debug()),
            "give one line of at most 40 characters",
        ));
    }
    Ok(())
}

/// Checks a package's name, with a version in the way of any package manager.
pub(super) fn package(text: &str) -> Result<(), Complaint> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-._:=~@/^*".contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(plain) {
        return Ok(());
    }
    Err(complain(
        format!("`{text}` is no name of a package"),
        "give one package an item, such as `git`",
    ))
}

/// Checks where a file goes in a guest.
pub(super) fn guest_file(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `/etc/ci.conf`, or `ci.conf` for the login user's home";
    if text.trim().is_empty() || text.ends_with('/') || text.contains(char::is_control) {
        return Err(complain(format!("`{}` is no path of a file", text.escape_debug()), FORM));
    }
    if text.starts_with('~') {
        return Err(complain("`~` is not known in guests", FORM));
    }
    Ok(())
}

/// Checks the URL of a package repository, as guests ask for it; blank is fine.
pub(super) fn repository(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `https://mirror.example.com/corretto`";
    if text.is_empty() {
        return Ok(());
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_graphic() && !"\"'`\\$<>".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') && text.chars().all(plain) => {
            Ok(())
        }
        _ => Err(complain(format!("`{text}` is no URL of http or https"), FORM)),
    }
}

/// Checks a bridge's name as Proxmox takes it; blank is fine.
pub(super) fn bridge(text: &str) -> Result<(), Complaint> {
    let sound = text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    if sound && text.len() <= 15 {
        return Ok(());
    }
    Err(complain(
        format!("`{text}` is no name of a bridge"),
        "give it as the node shows it, such as `vmbr0`",
    ))
}

/// Checks a bridge's name, perhaps with a VLAN behind a dot.
pub(super) fn network(text: &str) -> Result<(), Complaint> {
    filled(text)?;
    let name = text.rsplit_once('.').filter(|(_, vlan)| vlan.bytes().all(|b| b.is_ascii_digit()));
    if let Some((_, vlan)) = name
        && !vlan.parse().is_ok_and(|vlan: u16| (1..=4094).contains(&vlan))
    {
        let what = format!("`{vlan}` is no VLAN");
        return Err(complain(what, "VLANs have numbers from 1 to 4094"));
    }
    bridge(name.map_or(text, |(name, _)| name))
}

/// Checks the MAC address of a card: one card's own, not that of a group.
pub(super) fn mac(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `BC:24:11:00:00:01`";
    let group = text.get(..2).and_then(|byte| u8::from_str_radix(byte, 16).ok());
    if !is_mac(text) || group.is_none_or(|byte| byte & 1 == 1) {
        return Err(complain(format!("`{text}` is no MAC address of a card"), FORM));
    }
    Ok(())
}

/// Checks a card's IPv4 settings.
pub(super) fn ip4(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `dhcp`, `none` or `10.0.0.50/24`";
    let of_it = !text.contains(':') && cidr(text).is_ok();
    let sound = matches!(text, "dhcp" | "none") || of_it;
    if sound { Ok(()) } else { Err(complain(format!("`{text}` is no IPv4 setting"), FORM)) }
}

/// Checks a card's IPv6 settings.
pub(super) fn ip6(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `dhcp`, `auto` or `fd00::50/64`";
    let of_it = text.contains(':') && cidr(text).is_ok();
    let sound = matches!(text, "dhcp" | "auto") || of_it;
    if sound { Ok(()) } else { Err(complain(format!("`{text}` is no IPv6 setting"), FORM)) }
}

/// Checks the volume of a snippet.
pub(super) fn snippet(text: &str) -> Result<(), Complaint> {
    let parts = text.split_once(":snippets/");
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    match parts {
        Some((storage, name))
            if !storage.is_empty()
                && !name.is_empty()
                && (storage.to_owned() + name).chars().all(plain) =>
        {
            Ok(())
        }
        Some(_) | None => Err(complain(
            format!("`{text}` is no snippet on a storage"),
            "put the file into the storage's `snippets` folder on the node, and name it as \
             `local:snippets/ci.yaml`: the API can not upload snippets; a file here goes by userDataFile",
        )),
    }
}

/// Checks DNS servers: addresses separated by blanks or commas.
pub(super) fn nameserver(text: &str) -> Result<(), Complaint> {
    let mut servers = text.split([' ', ',', ';']).filter(|server| !server.is_empty());
    match servers.find(|server| server.parse::<IpAddr>().is_err()) {
        Some(bad) => {
            Err(complain(format!("`{bad}` is no IP address"), "give IP addresses, not names"))
        }
        None => Ok(()),
    }
}

/// Checks an absolute directory in a guest, one of Windows with its drive; blank is fine.
pub(super) fn directory(text: &str) -> Result<(), Complaint> {
    if text.is_empty() || text.starts_with('/') || has_drive(text) {
        return Ok(());
    }
    Err(complain(format!("`{text}` is not an absolute path"), "begin it with `/`"))
}

/// Checks an API token's id.
pub(super) fn token_id(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `user@realm!token`, as `pveum user token add` prints it";
    if text.contains('=') {
        // Proxmox shows id and secret joined by `=`; the text is not repeated here for that reason.
        return Err(complain("the id holds the secret too, behind `=`", "give the secret apart"));
    }
    let parts = text.split_once('!').and_then(|(user, token)| Some((user.split_once('@')?, token)));
    match parts {
        Some(((user, realm), token)) if ![user, realm, token].contains(&"") => Ok(()),
        _ => Err(complain(format!("`{text}` is no token id"), FORM)),
    }
}

/// Checks a Proxmox user's id.
pub(super) fn user_id(text: &str) -> Result<(), Complaint> {
    match text.split_once('@') {
        Some((user, realm)) if !user.is_empty() && !realm.is_empty() => Ok(()),
        _ => Err(complain(
            format!("`{text}` has no realm"),
            "write it as `user@realm`, such as `drover@pve`",
        )),
    }
}

/// Checks an address with port to listen on.
pub(super) fn listen(text: &str) -> Result<(), Complaint> {
    text.parse::<SocketAddr>().map(drop).map_err(|_| {
        complain(
            format!("`{text}` is no IP address with port"),
            "write it as `127.0.0.1:8080` or `[::]:8080`",
        )
    })
}

/// Checks a log level or filter; blank is fine.
pub(super) fn log_level(text: &str) -> Result<(), Complaint> {
    if text.is_empty() || level::is_level(text) {
        return Ok(());
    }
    Err(complain(
        format!("`{text}` is no log level"),
        "use error, warn, info, debug, trace, or pairs such as `info,proxmox_client=debug`",
    ))
}

/// Checks a file mode in octal digits.
pub(super) fn octal_mode(text: &str) -> Result<(), Complaint> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(()),
        _ => Err(complain(format!("`{text}` is no file mode"), "write it as `0660`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what is accepted means one thing, and what is refused says why.

    #[test]
    fn single_texts_are_told_right_from_wrong() {
        let cases: [(Check, &[&str], &[&str]); 24] = [
            (bridge, &["", "vmbr0", "dmz.7"], &["vmbr0,firewall=0", "a b", "sixteen-letters-x"]),
            (cidr, &["10.0.0.0/8", "fd00::/8"], &["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"]),
            (step_name, &["docker", "the cache"], &["", " ", "a\nb", &"x".repeat(41)]),
            (
                package,
                &["git", "g++", "openjdk-21-jre", "git=1:2.3-4~x", "docker.io"],
                &["", "-y", "git jq", "$(id)", "a;b"],
            ),
            (guest_file, &["ci.conf", "/etc/ci.conf", "a b"], &["", "/etc/", "~/x", "a\0b"]),
            (
                repository,
                &["", "https://apt.corretto.aws", "http://127.0.0.1:80/a?b=c"],
                &[
                    "apt.corretto.aws",
                    "ftp://a",
                    "https://",
                    "https:///x",
                    "https://a b",
                    "http://$(id)",
                ],
            ),
            (tag, &["linux", "a.b-c"], &["", "-a", "Über", "drover", "drover-7k2m9qxw"]),
            (
                ip_config,
                &[
                    "",
                    "ip=dhcp",
                    "ip=10.0.0.5/24,gw=10.0.0.1",
                    "gw=10.0.0.1,ip=10.0.0.5/24",
                    "ip=10.0.0.5/32,gw=192.0.2.1",
                    "ip6=fd00::5/64,gw6=fe80::1",
                    "ip=dhcp,ip6=fd00::5/64,gw6=fd00::1",
                ],
                &[
                    "dhcp",
                    "ip=x",
                    "a=b",
                    "gw=10.0.0.1",
                    "ip=dhcp,gw=10.0.0.1",
                    "ip=10.0.0.5/24,gw=10.0.1.1",
                    "ip=10.0.0.5/24,gw=10.0.0.5",
                    "ip=10.0.0.5/24,gw=fe80::1",
                    "ip=10.0.0.5/32,gw=fd00::1",
                    "ip6=fd00::5/64,gw6=fd00:1::1",
                ],
            ),
            (storage, &["local", "local-lvm", "a.b_C9"], &["", "a", "a b", "9fs", "nfs-", "x:y"]),
            (storage_or_none, &["", " ", "nfs"], &["a b"]),
            (
                name_prefix,
                &["", "ci", "energy-", "a.b", &"x".repeat(36)],
                &["-ci", "ci_", "a b", "Ü", &"x".repeat(37)],
            ),
            (nameserver, &["", "1.1.1.1 8.8.8.8", "1.1.1.1,::1"], &["dns.example.com"]),
            (network, &["vmbr0", "vmbr0.100"], &["", "a b", "vmbr0,tag=5"]),
            (mac, &["bc:24:11:00:00:01"], &["", "bc:24:11:00:00", "01:00:5e:00:00:01", "é1"]),
            (ip4, &["dhcp", "none", "10.0.0.5/24"], &["", "auto", "10.0.0.5", "fd00::5/64"]),
            (ip6, &["dhcp", "auto", "fd00::5/64"], &["", "none", "10.0.0.5/24"]),
            (
                snippet,
                &["local:snippets/a.yaml"],
                &["", "a.yaml", "local:iso/a.iso", ":snippets/a"],
            ),
            (directory, &["", "/home/ci", "C:\\ci", "d:/ci"], &["agent", "~/agent", "C:ci"]),
            (template_tag, &["Golden", "a.b-c"], &["", "-A", "Über", "Drover"]),
            (
                token_id,
                &["root@pam!ci"],
                &["root@pam!ci=x", "root@pam", "root!ci", "@pam!ci", "root@pam!"],
            ),
            (user_id, &["root@pam"], &["root", "@pam"]),
            (log_level, &["debug", "info,proxmox_client=trace", ""], &["loud", "a=b=c"]),
            (listen, &["127.0.0.1:80", "[::1]:80"], &["localhost:80", "80"]),
            (octal_mode, &["0660", "600"], &["888", "rw", "7777"]),
        ];
        for (check, right, wrong) in cases {
            right.iter().for_each(|text| assert!(check(text).is_ok(), "{text}"));
            wrong.iter().for_each(|text| assert!(check(text).is_err(), "{text}"));
        }
    }
}
