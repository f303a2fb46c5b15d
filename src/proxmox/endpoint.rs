//! Addresses of Proxmox nodes, as people write them. `route.rs` chooses which of several is used.

use std::fmt;
use std::str::FromStr;

/// The port of the Proxmox API.
pub const DEFAULT_PORT: u16 = 8006;

/// The address of one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// An endpoint that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The address asks for plain HTTP.
    #[error(
        "`{0}` asks for plain HTTP, which would show the login to the network, and Proxmox serves \
         its API over TLS only: write `https://`"
    )]
    Plain(String),
    /// The address contains a user or password.
    #[error("an endpoint holds a user or password before `@{0}`: name a credential for the login")]
    UserInfo(String),
    /// The address has a path that is not Proxmox's.
    #[error("`{0}` has a path other than `/api2` or `/api2/json`: leave the path away")]
    Path(String),
    /// The text is not an address at all.
    #[error("`{0}` is not an endpoint: write it like `https://pve1.example.com:8006`")]
    Malformed(String),
}

impl Endpoint {
    /// The endpoint at a host and port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The host: a name, an IPv4 address, or an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL below which calls go: `https://host:port/api2/json`.
    pub fn base(&self) -> String {
        format!("{self}/api2/json")
    }
}

impl Default for Endpoint {
    /// Proxmox on the same machine.
    fn default() -> Self {
        Self::new("localhost", DEFAULT_PORT)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "https://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "https://{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    /// Reads `[https://]host[:port][/api2[/json]]`; the default port is 8006.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let text = text.trim();
        let malformed = || EndpointError::Malformed(text.to_owned());
        let lower = text.to_ascii_lowercase();
        if lower.starts_with("http://") {
            return Err(EndpointError::Plain(text.to_owned()));
        }
        let rest = if lower.starts_with("https://") { &text["https://".len()..] } else { text };
        if rest.contains("://") || rest.contains(['?', '#', '\\']) {
            return Err(malformed());
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if let Some((_, host)) = authority.rsplit_once('@') {
            return Err(EndpointError::UserInfo(host.to_owned()));
        }
        if !matches!(path.trim_end_matches('/'), "" | "api2" | "api2/json") {
            return Err(EndpointError::Path(text.to_owned()));
        }
        let (host, port) = split_port(authority).ok_or_else(malformed)?;
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(malformed)?,
        };
        Ok(Self::new(host, port))
    }
}

/// Splits an authority into its host and the text of its port.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        let port = if tail.is_empty() { None } else { Some(tail.strip_prefix(':')?) };
        return Some((host, port));
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let fine = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '.' | '-' | '_');
    (!host.is_empty() && host.chars().all(fine)).then_some((host, port))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        match text.parse::<Endpoint>() {
            Ok(endpoint) => endpoint.to_string(),
            Err(error) => format!("{error}"),
        }
    }

    // Invariant: every spelling that people use gives the same endpoint, and any other text is
    // refused with a reason.

    #[test]
    fn bare_and_with_paths_mean_the_same() {
        for text in [
            "pve1",
            "pve1:8006",
            "https://pve1",
            "https://pve1:8006/",
            "https://pve1:8006/api2",
            "HTTPS://pve1/api2/json/",
        ] {
            assert_eq!(read(text), "https://pve1:8006", "{text}");
        }
        assert_eq!(read("https://[fd00::1]/api2"), "https://[fd00::1]:8006");
        assert_eq!(read("proxy.example.com:443"), "https://proxy.example.com:443");
        assert_eq!(Endpoint::default().base(), "https://localhost:8006/api2/json");
        assert_eq!("[::1]:1".parse::<Endpoint>().unwrap().host(), "::1");
    }

    #[test]
    fn others_are_refused_with_what_to_write() {
        let bad = [
            "http://pve1:8006",
            "https://root:pw@pve1",
            "https://pve1/pve/api2/json",
            "ftp://pve1",
            "pve1:port",
            "pve 1",
            "pve1:0",
            "[::1",
            "",
        ];
        let text = bad.map(read).join("\n");
        insta::assert_snapshot!(text, @r"
        `http://pve1:8006` asks for plain HTTP, which would show the login to the network, and Proxmox serves its API over TLS only: write `https://`
        an endpoint holds a user or password before `@pve1`: name a credential for the login
        `https://pve1/pve/api2/json` has a path other than `/api2` or `/api2/json`: leave the path away
        `ftp://pve1` is not an endpoint: write it like `https://pve1.example.com:8006`
        `pve1:port` is not an endpoint: write it like `https://pve1.example.com:8006`
        `pve 1` is not an endpoint: write it like `https://pve1.example.com:8006`
        `pve1:0` is not an endpoint: write it like `https://pve1.example.com:8006`
        `[::1` is not an endpoint: write it like `https://pve1.example.com:8006`
        `` is not an endpoint: write it like `https://pve1.example.com:8006`
        ");
    }
}
