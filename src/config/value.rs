//! What single texts must look like: endpoints, pins, CIDRs, ids, paths.
//!
//! Knows nothing of keys and places; [`super::layer`] joins a complaint with them.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;

/// What is wrong with a text, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    pub message: String,
    pub help: &'static str,
}

fn complain(message: impl Into<String>, help: &'static str) -> Complaint {
    Complaint { message: message.into(), help }
}

/// Checks an endpoint; see [`base_of`].
pub(super) fn endpoint(text: &str) -> Result<(), Complaint> {
    base_of(text).map(drop)
}

/// The base of an endpoint, such as `https://pve:8006`: without `/api2`, `/api2/json` or a slash.
pub(super) fn base_of(text: &str) -> Result<String, Complaint> {
    const FORM: &str = "write it as `https://HOST:8006`; `/api2` or `/api2/json` may follow";
    if text.trim().is_empty() {
        return Err(complain("the endpoint is blank", FORM));
    }
    if text.starts_with("http://") {
        return Err(complain(
            "`http://` is refused: the credentials would cross the network readable by anyone",
            "use `https://`; for a certificate of the cluster's own CA give caFile or pinSha256",
        ));
    }
    if !text.starts_with("https://") {
        return Err(complain("the endpoint does not begin with `https://`", FORM));
    }
    let url = Url::parse(text).map_err(|error| complain(format!("no valid URL: {error}"), FORM))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(complain(
            "an endpoint carries no login",
            "put the login into `credentials` and name it by credentialsId",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(complain("an endpoint has no `?` and no `#`", FORM));
    }
    if !matches!(url.path().trim_end_matches('/'), "" | "/api2" | "/api2/json") {
        return Err(complain(format!("the path `{}` is not Proxmox's API", url.path()), FORM));
    }
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("https://{host}{port}"))
}

/// Checks a pin; see [`pin_bytes`].
pub(super) fn pin(text: &str) -> Result<(), Complaint> {
    pin_bytes(text).map(drop)
}

/// The 32 bytes of a SHA-256 fingerprint: 64 hexadecimal digits, colons allowed.
pub(super) fn pin_bytes(text: &str) -> Result<[u8; 32], Complaint> {
    const FORM: &str = "give the SHA-256 fingerprint that Proxmox shows under Node, System, \
                        Certificates: 32 pairs of hexadecimal digits";
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let found = digits.chars().count();
        let reason = if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            format!("a SHA-256 fingerprint has 64 hexadecimal digits, this has {found}")
        } else {
            "a SHA-256 fingerprint has hexadecimal digits and colons only".to_owned()
        };
        return Err(complain(reason, FORM));
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[at * 2..at * 2 + 2], 16).unwrap_or_default();
    }
    Ok(bytes)
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

/// Checks a tag as Proxmox takes it, and that it is not one of drover's own.
pub(super) fn tag(text: &str) -> Result<(), Complaint> {
    let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let sound = text.starts_with(first) && text.chars().all(|c| first(c) || "-+.".contains(c));
    if !sound {
        return Err(complain(
            format!("`{text}` is no tag Proxmox takes"),
            "use lower-case letters, digits and `_`, then also `-`, `+` and `.`",
        ));
    }
    if text == "drover" || text.starts_with("drover-") {
        return Err(complain(
            format!("`{text}` is one of drover's own tags"),
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
    Ok(())
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

/// Checks an absolute directory in a guest; blank is fine.
pub(super) fn directory(text: &str) -> Result<(), Complaint> {
    if text.is_empty() || text.starts_with('/') {
        return Ok(());
    }
    Err(complain(format!("`{text}` is not an absolute path"), "begin it with `/`"))
}

/// Checks an API token's id.
pub(super) fn token_id(text: &str) -> Result<(), Complaint> {
    const FORM: &str = "write it as `user@realm!token`, as `pveum user token add` prints it";
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

/// Checks a file mode in octal digits.
pub(super) fn octal_mode(text: &str) -> Result<(), Complaint> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(()),
        _ => Err(complain(format!("`{text}` is no file mode"), "write it as `0660`")),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: what is accepted means one thing, and what is refused says why.

    #[test]
    fn an_endpoint_may_be_bare_or_end_in_the_api() {
        for text in [
            "https://pve:8006",
            "https://pve:8006/",
            "https://pve:8006/api2",
            "https://pve:8006/api2/json",
            "https://pve:8006/api2/json/",
        ] {
            assert_eq!(base_of(text).unwrap(), "https://pve:8006");
        }
        assert_eq!(base_of("https://[fd00::1]:8006").unwrap(), "https://[fd00::1]:8006");
        assert_eq!(base_of("https://pve.example.com").unwrap(), "https://pve.example.com");
        for text in ["", "pve:8006", "ftp://pve", "https://", "https://a:b@pve", "https://pve/ui"] {
            assert!(base_of(text).is_err(), "{text}");
        }
        assert!(base_of("http://pve:8006").unwrap_err().message.contains("readable by anyone"));
    }

    #[test]
    fn a_pin_is_32_bytes_with_or_without_colons() {
        let plain = "ab".repeat(32);
        let colons = vec!["AB"; 32].join(":");
        assert_eq!(pin_bytes(&plain).unwrap(), [0xab; 32]);
        assert_eq!(pin_bytes(&colons).unwrap(), [0xab; 32]);
        assert!(pin_bytes("abc").is_err());
        assert!(pin_bytes(&"zz".repeat(32)).is_err());
        assert!(pin_bytes(&"ä".repeat(32)).is_err());
    }

    #[test]
    fn single_texts_are_told_right_from_wrong() {
        type Check = fn(&str) -> Result<(), Complaint>;
        let cases: [(Check, &[&str], &[&str]); 9] = [
            (cidr, &["10.0.0.0/8", "fd00::/8"], &["10.0.0.0", "10.0.0.0/33", "x/8", "::/129"]),
            (tag, &["linux", "a.b-c"], &["", "-a", "Über", "drover", "drover-7k2m9qxw"]),
            (ip_config, &["", "ip=dhcp", "ip=10.0.0.5/24,gw=10.0.0.1"], &["dhcp", "ip=x", "a=b"]),
            (nameserver, &["", "1.1.1.1 8.8.8.8", "1.1.1.1,::1"], &["dns.example.com"]),
            (directory, &["", "/home/ci"], &["agent", "~/agent"]),
            (token_id, &["root@pam!ci"], &["root@pam", "root!ci", "@pam!ci", "root@pam!"]),
            (user_id, &["root@pam"], &["root", "@pam"]),
            (listen, &["127.0.0.1:80", "[::1]:80"], &["localhost:80", "80"]),
            (octal_mode, &["0660", "600"], &["888", "rw", "7777"]),
        ];
        for (check, right, wrong) in cases {
            right.iter().for_each(|text| assert!(check(text).is_ok(), "{text}"));
            wrong.iter().for_each(|text| assert!(check(text).is_err(), "{text}"));
        }
    }
}
