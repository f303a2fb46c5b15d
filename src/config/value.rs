//! Checks of single texts: URLs, pins, CIDRs, ids, paths.
//!
//! A check knows no key and no place; [`super::layer`] joins its complaint with them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr as _;

use drover_git::RepoUrl;
use drover_hypervisor::is_mac;
use drover_hypervisor::name_pattern;
use drover_model::addresses::AddressRange;
use drover_model::addresses::range::width;
use drover_model::hardware::HotPlug;
use drover_model::marks::SLUG_MAX;
use drover_openid::CALLBACK;
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

/// A check of one text.
pub(super) type Check = fn(&str) -> Checked;
pub(super) type Checked = Result<(), Complaint>;

pub(super) fn complain(message: impl Into<String>, help: &'static str) -> Complaint {
    Complaint { message: message.into(), help }
}

/// Passes a sound text; else says what it is not, and how to write it.
pub(super) fn must(is_sound: bool, text: &str, be: &str, help: &'static str) -> Checked {
    if is_sound { Ok(()) } else { Err(complain(format!("`{text}` is not {be}"), help)) }
}

/// Whether a text is made of ASCII letters, digits and `marks`.
pub(super) fn made_of(text: &str, marks: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || marks.contains(c))
}

pub(super) fn begins_alphanumeric(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Checks an endpoint by the client's own reading.
pub(super) fn endpoint(text: &str) -> Checked {
    const FORM: &str = "for a certificate of the cluster's own CA, add caFile or pinSha256";
    text.parse::<Endpoint>().map(drop).map_err(|error| complain(error.to_string(), FORM))
}

/// Checks a pin by the client's own reading.
pub(super) fn pin(text: &str) -> Checked {
    const FORM: &str = "give the SHA-256 fingerprint that Proxmox shows under Node, System, \
                        Certificates: 32 pairs of hexadecimal digits";
    parse_pin(text).map(drop).map_err(|error| complain(error.to_string(), FORM))
}

/// Checks a network, written as `address/prefix`.
pub(super) fn cidr(text: &str) -> Checked {
    const FORM: &str = "write it as `10.1.0.0/16` or `fd00::/8`";
    let Some((address, prefix)) = text.split_once('/') else {
        return Err(complain(format!("`{text}` has no prefix length"), FORM));
    };
    let address: IpAddr =
        address.parse().map_err(|_| complain(format!("`{address}` is not an IP address"), FORM))?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    match prefix.parse::<u32>() {
        Ok(length) if length <= longest => Ok(()),
        _ => Err(complain(format!("the prefix length must be a number from 0 to {longest}"), FORM)),
    }
}

/// Reads a price, in millionths: digits, and up to six after a point.
pub(super) fn price_of(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || whole.len() > 6 || part.len() > 6 {
        return None;
    }
    let millionths: u64 = format!("{part:0<6}").parse().ok()?;
    Some(whole.parse::<u64>().ok()? * 1_000_000 + millionths)
}

/// Checks a price.
pub(super) fn price(text: &str) -> Checked {
    const HELP: &str = "write it as \"0.012\", with up to six digits before the point and after it";
    must(price_of(text).is_some(), text, "a price", HELP)
}

/// Checks the name of a currency.
pub(super) fn currency(text: &str) -> Checked {
    let is_short = (1..=8).contains(&text.chars().count());
    let is_plain = is_short && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    must(is_plain, text, "the name of a currency", "write it as `EUR`, with up to 8 characters")
}

/// Checks one IP address.
pub(super) fn address(text: &str) -> Checked {
    const HELP: &str = "write it as `10.20.0.1` or `fd00::1`";
    must(text.parse::<IpAddr>().is_ok(), text, "an IP address", HELP)
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
pub(super) fn address_range(text: &str) -> Checked {
    const HELP: &str = "write it as `10.20.0.50-10.20.0.99`, `10.20.0.50` or `10.20.0.64/26`";
    must(range_of(text).is_some(), text, "a range of addresses", HELP)
}

/// The http or https URL of a server, without a login; `of` says what server, `login` where logins
/// go.
pub(super) fn web_url(
    text: &str,
    of: &str,
    form: &'static str,
    login: &'static str,
) -> Result<Url, Complaint> {
    let url: Url = text.parse().map_err(|_| complain(format!("`{text}` is not a URL"), form))?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    must(is_web, text, of, form)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(complain("the URL contains a login", login));
    }
    Ok(url)
}

/// Checks the URL of a CI system.
pub(super) fn url(text: &str) -> Checked {
    const FORM: &str = "write it as `https://git.lan`, with port and path if needed";
    let url = web_url(text, "the URL of a web server", FORM, "use credentialsId for it")?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(complain(format!("`{text}` has a query"), FORM));
    }
    Ok(())
}

/// Checks the address to which a provider of OpenID Connect sends people back.
pub(super) fn callback(text: &str) -> Checked {
    const FORM: &str = "write it as `https://drover.example.com/login/openid/callback`";
    url(text).map_err(|complaint| complain(complaint.message, FORM))?;
    let is_ours = text.parse::<Url>().is_ok_and(|url| url.path() == CALLBACK);
    must(is_ours, text, "the address of drover's /login/openid/callback", FORM)
}

/// Checks the URL of a proxy, or `none`.
pub(super) fn proxy(text: &str) -> Checked {
    const FORM: &str = "write it as `http://proxy.lan:3128`, or `none`";
    const LOGIN: &str = "remove `proxy` and set HTTPS_PROXY, which may contain a login";
    if text == "none" {
        return Ok(());
    }
    web_url(text, "the URL of a proxy", FORM, LOGIN).map(drop)
}

/// Checks a cron pattern.
pub(super) fn cron(text: &str) -> Checked {
    const FORM: &str = "write it as `0 8 * * mon-fri`: minute, hour, day of the month, month, day of \
                        the week";
    let wrong = |why| complain(format!("`{text}` is not a cron pattern: {why}"), FORM);
    calendar::pattern(text).map(drop).map_err(wrong)
}

/// Checks the address of a git repository.
pub(super) fn git_repository(text: &str) -> Checked {
    const FORM: &str = "give `https://HOST/PATH`, `ssh://git@HOST/PATH`, `git@HOST:PATH`, or \
                        `file:///PATH`";
    RepoUrl::from_str(text).map(drop).map_err(|why| complain(why.to_string(), FORM))
}

/// Checks the name of a branch.
pub(super) fn branch(text: &str) -> Checked {
    drover_git::check_branch(text)
        .map_err(|why| complain(why.to_string(), "give a name such as `main`"))
}

/// Checks a path in a repository.
pub(super) fn path_in_git(text: &str) -> Checked {
    const FORM: &str = "give a path such as `ci/proxmox-cloud.yaml`";
    // `conf.d/` is how people write a folder.
    drover_git::check_path(text.strip_suffix('/').unwrap_or(text))
        .map_err(|why| complain(why.to_string(), FORM))
}

/// Checks an IANA time zone's name.
pub(super) fn time_zone(text: &str) -> Checked {
    const FORM: &str = "give an IANA name, such as `Europe/Berlin` or `UTC`";
    calendar::zone(text).map(drop).map_err(|message| complain(message, FORM))
}

/// Checks that there is a text at all.
pub(super) fn filled(text: &str) -> Checked {
    if text.trim().is_empty() {
        return Err(complain("the text is blank", "remove the key if it has no value"));
    }
    Ok(())
}

/// Checks a kind of drift that drover may put right.
pub(super) fn correction(text: &str) -> Checked {
    let sound = matches!(text, "POWER" | "SIZE" | "CREATE");
    must(sound, text, "a difference that drover corrects", "use POWER, SIZE or CREATE")
}

/// Checks the name of a region or zone: it is part of a label; blank is fine.
pub(super) fn place(text: &str) -> Checked {
    if made_of(text, "_.-") {
        return Ok(());
    }
    let message = format!("`{text}` cannot be part of a label");
    Err(complain(message, "use letters, digits, `-`, `_`, `.`"))
}

/// Checks the key of a label `key=value`.
pub(super) fn size_label(text: &str) -> Checked {
    let sound = !text.is_empty() && made_of(text, "_.-");
    must(sound, text, "the key of a label", "use letters, digits, `-`, `_`, `.`, such as `cpu`")
}

/// Checks one label; blanks separate labels elsewhere.
pub(super) fn label(text: &str) -> Checked {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    let (sound, shown) = (!text.is_empty() && !text.contains(odd), text.escape_debug().to_string());
    must(sound, &shown, "a label", "write one word for each item, such as `ssd`")
}

/// Checks a regular expression over templates' names.
pub(super) fn pattern(text: &str) -> Checked {
    const FORM: &str = "it must match whole names; write it as `debian-13-\\d+`";
    filled(text)?;
    let wrong = |why| complain(format!("`{text}` is not a regular expression: {why}"), FORM);
    name_pattern(text).map(drop).map_err(wrong)
}

/// Checks a tag by Proxmox's rules; drover's own tags are reserved.
pub(super) fn tag(text: &str) -> Checked {
    tag_shown(text, text)
}

/// Checks the tag of a template, in whichever case it is written.
pub(super) fn template_tag(text: &str) -> Checked {
    tag_shown(&text.to_ascii_lowercase(), text)
}

fn tag_shown(text: &str, shown: &str) -> Checked {
    const FORM: &str =
        "begin with a lower-case letter, a digit or `_`; `-`, `+` and `.` may follow";
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let sound = text.starts_with(first) && text.chars().all(|c| first(c) || "-+.".contains(c));
    must(sound, shown, "a tag of Proxmox", FORM)?;
    if text == "drover" || text.starts_with("drover-") {
        let message = format!("`{shown}` is reserved for drover's own tags");
        return Err(complain(message, "choose a tag that does not begin with `drover-`"));
    }
    Ok(())
}

/// A setting of cloud-init's `ipconfig0`, such as `gw`.
pub(super) fn ip_setting<'t>(text: &'t str, wanted: &str) -> Option<&'t str> {
    let mut parts = text.split(',').filter_map(|part| part.trim().split_once('='));
    parts.find(|(name, _)| *name == wanted).map(|(_, setting)| setting)
}

/// Checks cloud-init's `ipconfig0`.
pub(super) fn ip_config(text: &str) -> Checked {
    const FORM: &str = "write it as `ip=dhcp`, or `ip=10.0.0.50/24,gw=10.0.0.1`";
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let Some((name, setting)) = part.trim().split_once('=') else {
            return Err(complain(format!("`{part}` is not `name=value`"), FORM));
        };
        let sound = match name {
            "ip" => setting == "dhcp" || cidr(setting).is_ok(),
            "ip6" => matches!(setting, "dhcp" | "auto") || cidr(setting).is_ok(),
            "gw" | "gw6" => setting.parse::<IpAddr>().is_ok(),
            _ => return Err(complain(format!("`{name}` is not ip, gw, ip6 or gw6"), FORM)),
        };
        if !sound {
            return Err(complain(format!("`{setting}` is not a value for `{name}`"), FORM));
        }
    }
    for (own, way) in [("ip", "gw"), ("ip6", "gw6")] {
        let gateway = ip_setting(text, way).and_then(|way| way.parse().ok());
        let Some(gateway) = gateway else { continue };
        let Some(own) = ip_setting(text, own).filter(|own| own.contains('/')) else {
            let what = format!("`{way}` is a gateway without an address");
            return Err(complain(what, FORM));
        };
        if let Some(what) = misses(own, gateway) {
            return Err(complain(what, GATEWAY));
        }
    }
    Ok(())
}

/// The help for a gateway outside the network of the address.
pub(super) const GATEWAY: &str = "correct the gateway, or the address and its prefix";

/// Why an `address/prefix` does not reach a gateway. A link-local gateway (`fe80::/10`) is in every
/// network, and an address that is a whole network (`/32`) may have any gateway.
pub(super) fn misses(own: &str, gateway: IpAddr) -> Option<String> {
    let (address, prefix) = own.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    if address == gateway {
        return Some(format!("the gateway, {gateway}, is also the agent's address"));
    }
    let network = AddressRange::network(address, prefix)?;
    let any = prefix == width(address) && address.is_ipv4() == gateway.is_ipv4();
    let reached = any || network.contains(gateway) || (address.is_ipv6() && is_link_local(gateway));
    let shown = || format!("{}/{prefix}, the network of the address", network.first());
    (!reached).then(|| format!("the gateway, {gateway}, is not in {}", shown()))
}

/// Whether an address is valid on one link only.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Checks a storage's name as Proxmox takes it (its format `pve-storage-id`).
pub(super) fn storage(text: &str) -> Checked {
    const FORM: &str = "give it as Proxmox shows it, such as `local-lvm`: a letter, then letters, \
                        digits, `-`, `_`, `.`, and no mark at the end";
    let sound = text.len() > 1
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && made_of(text, "-_.");
    must(sound, text, "the name of a storage", FORM)
}

/// Checks a storage's name; blank is fine.
pub(super) fn storage_or_none(text: &str) -> Checked {
    if text.trim().is_empty() { Ok(()) } else { storage(text) }
}

/// Checks the beginning of guests' names, which are DNS names in Proxmox; blank is fine.
pub(super) fn name_prefix(text: &str) -> Checked {
    const FORM: &str =
        "use at most 36 letters, digits, `-` and `.`, and begin with a letter or digit";
    let sound = begins_alphanumeric(text) && text.len() <= SLUG_MAX && made_of(text, "-.");
    if text.is_empty() || sound {
        return Ok(());
    }
    Err(complain(format!("a guest's name cannot begin with `{text}`"), FORM))
}

/// Checks the name of a step, which is shown in one line.
pub(super) fn step_name(text: &str) -> Checked {
    let (blank, length) = (text.trim().is_empty(), text.chars().count());
    let sound = !blank && length <= 40 && !text.contains(char::is_control);
    let shown = text.escape_debug().to_string();
    must(sound, &shown, "the name of a step", "give one line of at most 40 characters")
}

/// Checks a package's name, with a version in the form of any package manager.
pub(super) fn package(text: &str) -> Checked {
    let sound = begins_alphanumeric(text) && made_of(text, "+-._:=~@/^*");
    must(sound, text, "the name of a package", "write one package for each item, such as `git`")
}

/// Checks the path of a file in a guest.
pub(super) fn guest_file(text: &str) -> Checked {
    const FORM: &str = "write it as `/etc/ci.conf`, or `ci.conf` for the login user's home";
    let bad = text.trim().is_empty() || text.ends_with('/') || text.contains(char::is_control);
    must(!bad, &text.escape_debug().to_string(), "the path of a file", FORM)?;
    if text.starts_with('~') { Err(complain("guests do not expand `~`", FORM)) } else { Ok(()) }
}

/// Checks the URL of a package repository, for a shell in the guest; blank is fine.
pub(super) fn repository(text: &str) -> Checked {
    const FORM: &str = "write it as `https://mirror.example.com/corretto`";
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_graphic() && !"\"'`\\$<>".contains(c);
    let sound = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    let sound = text.is_empty() || (sound && text.chars().all(plain));
    must(sound, text, "an http or https URL", FORM)
}

/// Checks the URL of a disk image, in which `${name}` may stand.
pub(super) fn download(text: &str) -> Checked {
    const FORM: &str = "write it as `https://cloud.debian.org/images/cloud/…/disk.qcow2`";
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let plain = |c: char| c.is_ascii_graphic() && !"\"'`\\<>".contains(c);
    let sound = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    must(sound && text.chars().all(plain), text, "an http or https URL", FORM)
}

/// Checks where an ISO image is: a URL, or a volume.
pub(super) fn iso(text: &str) -> Checked {
    const FORM: &str =
        "write it as `https://mirror.example/installer.iso` or `local:iso/installer.iso`";
    if text.starts_with("https://") || text.starts_with("http://") {
        return download(text);
    }
    let name = text.split_once(":iso/").filter(|(name, _)| storage(name).is_ok());
    let file = name.and_then(|(_, file)| file.strip_suffix(".iso"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-+${}".contains(c);
    let sound = file.is_some_and(|file| !file.is_empty() && file.chars().all(plain));
    must(sound, text, "an ISO image", FORM)
}

/// Checks an ISO image that is on a storage already.
pub(super) fn iso_volume(text: &str) -> Checked {
    let sound = !text.contains("://") && !text.contains("${") && iso(text).is_ok();
    must(sound, text, "an ISO image on a storage", "write it as `local:iso/installer.iso`")
}

/// Checks a bridge's name as Proxmox takes it; blank is fine.
pub(super) fn bridge(text: &str) -> Checked {
    let sound = made_of(text, "_.-") && text.len() <= 15;
    must(sound, text, "the name of a bridge", "give it as the node shows it, such as `vmbr0`")
}

/// Checks a bridge's name, perhaps with a VLAN behind a dot.
pub(super) fn network(text: &str) -> Checked {
    filled(text)?;
    let name = text.rsplit_once('.').filter(|(_, vlan)| vlan.bytes().all(|b| b.is_ascii_digit()));
    if let Some((_, vlan)) = name {
        let sound = vlan.parse().is_ok_and(|vlan: u16| (1..=4094).contains(&vlan));
        must(sound, vlan, "a VLAN", "use a number from 1 to 4094")?;
    }
    bridge(name.map_or(text, |(name, _)| name))
}

/// Checks the MAC address of a card, which must not be a multicast address.
pub(super) fn mac(text: &str) -> Checked {
    let first = text.get(..2).and_then(|byte| u8::from_str_radix(byte, 16).ok());
    let sound = is_mac(text) && first.is_some_and(|byte| byte & 1 == 0);
    must(sound, text, "the MAC address of a card", "write it as `BC:24:11:00:00:01`")
}

/// Checks a card's IPv4 settings.
pub(super) fn ip4(text: &str) -> Checked {
    let sound = matches!(text, "dhcp" | "none") || (!text.contains(':') && cidr(text).is_ok());
    must(sound, text, "an IPv4 setting", "write it as `dhcp`, `none` or `10.0.0.50/24`")
}

/// Checks a card's IPv6 settings.
pub(super) fn ip6(text: &str) -> Checked {
    let sound = matches!(text, "dhcp" | "auto") || (text.contains(':') && cidr(text).is_ok());
    must(sound, text, "an IPv6 setting", "write it as `dhcp`, `auto` or `fd00::50/64`")
}

/// Checks the volume of a snippet.
pub(super) fn snippet(text: &str) -> Checked {
    const FORM: &str = "put the file into the storage's `snippets` folder on the node, and name it as \
                        `local:snippets/ci.yaml`: the API cannot upload snippets; for a local file \
                        use userDataFile";
    let plain = |part: &str| !part.is_empty() && made_of(part, "_.-");
    let parts = text.split_once(":snippets/");
    let sound = parts.is_some_and(|(storage, name)| plain(storage) && plain(name));
    must(sound, text, "a snippet on a storage", FORM)
}

/// Checks the volume of a container template.
pub(super) fn os_template(text: &str) -> Checked {
    const FORM: &str = "write it as `local:vztmpl/debian-13-standard_13.1-2_amd64.tar.zst`: a storage \
                        and a file, as `pveam list STORAGE` shows it";
    const ENDS: [&str; 5] = [".tar", ".tar.gz", ".tar.xz", ".tar.zst", ".tar.bz2"];
    let plain = |part: &str, more: &str| !part.is_empty() && made_of(part, more);
    let parts = text.split_once(":vztmpl/");
    let sound = parts.is_some_and(|(storage, name)| {
        plain(storage, "_.-") && plain(name, "_.+-") && ENDS.iter().any(|end| name.ends_with(end))
    });
    must(sound, text, "a container template on a storage", FORM)
}

/// Checks DNS servers: addresses separated by blanks or commas.
pub(super) fn nameserver(text: &str) -> Checked {
    let mut servers = text.split([' ', ',', ';']).filter(|server| !server.is_empty());
    let bad = servers.find(|server| server.parse::<IpAddr>().is_err());
    must(bad.is_none(), bad.unwrap_or_default(), "an IP address", "give IP addresses, not names")
}

/// Checks an absolute directory in a guest, in Windows with its drive; blank is fine.
pub(super) fn directory(text: &str) -> Checked {
    let sound = text.is_empty() || text.starts_with('/') || has_drive(text);
    must(sound, text, "an absolute path", "begin it with `/`")
}

/// Checks an API token's id.
pub(super) fn token_id(text: &str) -> Checked {
    if text.contains('=') {
        // Proxmox shows id and secret joined by `=`, so the message does not repeat the text.
        let help = "give the secret by a key of its own";
        return Err(complain("the id contains the secret, behind `=`", help));
    }
    let parts = text.split_once('!').and_then(|(user, token)| Some((user.split_once('@')?, token)));
    let sound = parts.is_some_and(|((user, realm), token)| ![user, realm, token].contains(&""));
    let help = "write it as `user@realm!token`, as `pveum user token add` prints it";
    must(sound, text, "a token id", help)
}

/// Checks a Proxmox user's id.
pub(super) fn user_id(text: &str) -> Checked {
    match text.split_once('@') {
        Some((user, realm)) if !user.is_empty() && !realm.is_empty() => Ok(()),
        _ => Err(complain(
            format!("`{text}` has no realm"),
            "write it as `user@realm`, such as `drover@pve`",
        )),
    }
}

/// Checks an address with port to listen on.
pub(super) fn listen(text: &str) -> Checked {
    let help = "write it as `127.0.0.1:8080` or `[::]:8080`";
    must(text.parse::<SocketAddr>().is_ok(), text, "an IP address with port", help)
}

/// The most bytes of a Unix socket's path: `sun_path` of unix(7), less the zero at its end.
pub const SOCKET_PATH_MAX: usize = 107;

/// How the address of a gRPC server is written.
pub(super) const GRPC_FORM: &str = "write host and port, such as `ci.lan:9000`";

/// Checks the address of a gRPC server.
pub(super) fn grpc_server(text: &str) -> Checked {
    filled(text)?;
    let sound = text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains('/')
            && !host.contains(char::is_whitespace)
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    must(sound, text, "the address of a gRPC server", GRPC_FORM)
}

/// Checks a log level or filter; blank is fine.
pub(super) fn log_level(text: &str) -> Checked {
    let help = "use error, warn, info, debug, trace, or pairs such as `info,proxmox_client=debug`";
    must(text.is_empty() || level::is_level(text), text, "a log level", help)
}

/// Checks a file mode in octal digits.
pub(super) fn octal_mode(text: &str) -> Checked {
    let sound = u32::from_str_radix(text, 8).is_ok_and(|mode| mode <= 0o777);
    must(sound, text, "a file mode", "write it as `0660`")
}

/// Checks one word of Proxmox's hardware, such as a machine type.
pub(super) fn proxmox_word(text: &str) -> Checked {
    let sound = begins_alphanumeric(text) && made_of(text, "+-._");
    must(sound, text, "one word", "write it as Proxmox does, such as `q35`")
}

/// Checks a CPU type with its options, such as `host,flags=+aes`.
pub(super) fn proxmox_words(text: &str) -> Checked {
    let sound = begins_alphanumeric(text) && made_of(text, "+-._,;=");
    must(sound, text, "a CPU type", "write it as Proxmox does, such as `host`")
}

/// Checks a list of processors, such as `0-3,8`.
pub(super) fn cpu_list(text: &str) -> Checked {
    let number = |text: &str| text.parse::<u32>().ok();
    let sound = text.split(',').all(|part| match part.split_once('-') {
        Some((first, last)) => {
            number(first).zip(number(last)).is_some_and(|(first, last)| first <= last)
        }
        None => number(part).is_some(),
    });
    must(sound, text, "a list of processors", "write it as `0-3,8`")
}

/// Checks a kind of hardware that Proxmox changes while a guest runs.
pub(super) fn hot_plug(text: &str) -> Checked {
    let known = HotPlug::ALL.into_iter().any(|kind| kind.word() == text);
    must(known, text, "a kind of hot-plug", "write network, disk, usb, cpu or memory")
}

/// Checks the id of a resource mapping, as Proxmox takes it.
pub(super) fn mapping_id(text: &str) -> Checked {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let sound = begins && text.len() > 1 && made_of(text, "_-");
    const HELP: &str = "give the id that Proxmox shows under Datacenter, Resource Mappings";
    must(sound, text, "the id of a resource mapping", HELP)
}
