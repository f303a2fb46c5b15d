//! The identity of a process guest, read from its configuration: user, names, addresses, special
//! properties.

use std::net::Ipv4Addr;

use super::windows::LoginShell;
use crate::guest::GuestBoot;

/// The names, addresses and special properties of a guest.
#[derive(Debug, Clone)]
pub(super) struct GuestIdentity {
    pub vmid: u32,
    pub hostname: String,
    pub user: String,
    pub home: String,
    pub mac: Option<String>,
    pub address: Ipv4Addr,
    /// Special properties: `x` for each tag `guest-x`.
    pub traits: Vec<String>,
}

/// The package managers that a guest can have alone.
const PACKAGE_FAMILIES: [&str; 4] = ["apt", "dnf", "zypper", "apk"];

impl GuestIdentity {
    /// Reads the configuration of a boot.
    ///
    /// # Errors
    /// Why the configuration is not valid for a process guest.
    pub(super) fn new(boot: &GuestBoot, address: Ipv4Addr) -> Result<Self, String> {
        let user = boot.config.get("ciuser").map_or("debian", String::as_str).to_owned();
        let plain = |word: &str| {
            let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            (1..=63).contains(&word.len())
                && word.chars().all(good)
                && !word.starts_with(['-', '.'])
        };
        if !plain(&user) {
            return Err(format!("ciuser `{user}` cannot be a user of a process guest"));
        }
        if !plain(&boot.hostname) {
            return Err(format!("`{}` cannot be the name of a process guest", boot.hostname));
        }
        let home = if user == "root" { "/root".to_owned() } else { format!("/home/{user}") };
        let (vmid, hostname, mac) = (boot.vmid, boot.hostname.clone(), boot.mac.clone());
        let tags = boot.config.get("tags").map(String::as_str).unwrap_or_default();
        let traits = tags.split([';', ',', ' ']).filter_map(|tag| tag.strip_prefix("guest-"));
        let traits = traits.filter(|word| plain(word)).map(str::to_owned).collect();
        Ok(Self { vmid, hostname, user, home, mac, address, traits })
    }

    /// The only package manager of a guest that looks like a machine of one family: it lacks the
    /// host's Java, and has its own `/usr/local`.
    pub(super) fn package_family(&self) -> Option<&str> {
        self.traits.iter().map(String::as_str).find(|word| PACKAGE_FAMILIES.contains(word))
    }

    /// The login shell of a Windows guest; none for other guests.
    pub(super) fn windows(&self) -> Option<LoginShell> {
        self.traits.iter().find_map(|word| match word.as_str() {
            "windows" => Some(LoginShell::Cmd),
            "windows-powershell" => Some(LoginShell::Powershell),
            _ => None,
        })
    }

    /// The user's file of authorized keys, below the disk's folder.
    pub(super) fn authorized_keys(&self) -> String {
        format!("{}/.ssh/authorized_keys", &self.home[1..])
    }
}
