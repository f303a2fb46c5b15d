//! A virtual IP address in front of drover: keepalived, and the firewall rule that lets its members
//! hear each other.
//!
//! One drover serves a cluster. drover elects no leader, so a second member is refused.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::dhcp::{Face, faces};
use super::machine::Written;
use super::step::Step;

const HEAD: &str = "# made by drover setup vip";
const READY: &str = "ready";

/// The path of keepalived's configuration.
pub const CONFIG: &str = "/etc/keepalived/keepalived.conf";
/// The path of the script that checks whether drover is ready.
pub const CHECK: &str = "/etc/keepalived/drover-ready";
/// The systemd unit of keepalived's package.
pub const UNIT: &str = "keepalived.service";

/// The longest VRRP password, in characters.
pub const PASSWORD_MAX: usize = 8;

/// The options of `drover setup vip`.
#[derive(Clone, PartialEq, Eq)]
pub struct Wanted {
    pub address: Ipv4Addr,
    /// The prefix length; none for that of the interface.
    pub prefix: Option<u8>,
    /// The interface; none for the one whose network contains the address.
    pub interface: Option<String>,
    /// The VRRP router id that all members share.
    pub router: u8,
    /// The member with the highest priority holds the address.
    pub priority: u8,
    /// The addresses of the other members; none for multicast.
    pub peers: Vec<Ipv4Addr>,
    /// The VRRP password, which is sent in clear text.
    pub password: Option<String>,
    /// The URL at which drover says whether it is ready.
    pub ready: String,
}

impl std::fmt::Debug for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Parses `10.0.0.9` or `10.0.0.9/24`.
///
/// # Errors
/// The expected form.
pub fn address(text: &str) -> Result<(Ipv4Addr, Option<u8>), String> {
    let fault = || format!("`{text}` is not an address; write it as 10.0.0.9 or 10.0.0.9/24");
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => {
            let prefix = prefix.parse::<u8>().ok().filter(|prefix| (1..=32).contains(prefix));
            (address, Some(prefix.ok_or_else(fault)?))
        }
        None => (text, None),
    };
    Ok((address.parse().map_err(|_| fault())?, prefix))
}

impl Wanted {
    /// The commands that read the machine's state before anything changes, by name.
    pub fn questions(&self) -> Vec<(&'static str, String)> {
        let Self { address, ready, .. } = self;
        // The host in the URL stays, for certificates; only the connection goes to the address.
        let to = format!("--noproxy '*' --connect-to '::{address}:' '{ready}'");
        vec![
            ("holder", format!("curl -fsSg -m 3 -o /dev/null {to} && echo {READY}")),
            ("user", "id -u".to_owned()),
            ("addresses", "ip -o -4 addr show".to_owned()),
            ("config", format!("cat {CONFIG}")),
            ("check", format!("cat {CHECK}")),
            ("state", format!("systemctl is-active {UNIT}")),
            ("programs", "command -v keepalived; command -v curl".to_owned()),
        ]
    }

    /// Checks the machine's state; returns the interface whose network contains the virtual
    /// address.
    ///
    /// # Errors
    /// What does not fit, and what exists instead.
    pub fn check(&self, said: &BTreeMap<String, String>) -> Result<Face, String> {
        let text = |name: &str| said.get(name).map(|text| text.trim()).unwrap_or_default();
        // This machine may hold the virtual address now.
        let all: Vec<Face> = faces(text("addresses"))
            .into_iter()
            .filter(|face| face.address != self.address && face.name != "lo")
            .collect();
        let known: Vec<String> =
            all.iter().map(|one| format!("{} {}/{}", one.name, one.address, one.prefix)).collect();
        let known = known.join(", ");
        let named = |face: &&Face| self.interface.as_ref().is_none_or(|name| face.name == *name);
        let mut fitting = all.iter().filter(named).filter(|face| face.reaches(self.address));
        let Some(face) = fitting.next() else {
            return Err(match &self.interface {
                Some(name) => {
                    format!("{} is not on the network of {name}; the networks are {known}", self.address)
                }
                None => format!("{} is on no network of this machine; its networks are {known}", self.address),
            });
        };
        if let Some(other) = fitting.find(|other| other.name != face.name) {
            return Err(format!(
                "{} is on the networks of {} and {}: choose one with --interface",
                self.address, face.name, other.name
            ));
        }
        if let Some(peer) = self.peers.iter().find(|peer| !face.reaches(**peer)) {
            let name = &face.name;
            return Err(format!("peer {peer} is not on the network of {name}"));
        }
        let own = faces(text("addresses"));
        let is_own = |address: Ipv4Addr| own.iter().any(|face| face.address == address);
        let twice = "two drovers on one cluster would serve its jobs twice, and drover elects no \
                     leader";
        if let Some(peer) = self.peers.iter().find(|peer| !is_own(**peer)) {
            return Err(format!(
                "peer {peer} is another machine: {twice}; leave --peers out, and run drover on \
                 one machine"
            ));
        }
        if text("holder") == READY && !is_own(self.address) {
            return Err(format!(
                "another drover is ready behind {}: {twice}; stop that one first, on its machine: \
                 systemctl disable --now drover",
                self.address
            ));
        }
        for (name, path) in [("config", CONFIG), ("check", CHECK)] {
            if !text(name).is_empty() && !text(name).contains(HEAD) {
                return Err(format!(
                    "{path} exists and drover did not make it; remove it, or replace its content by \
                     what --dry-run prints"
                ));
            }
        }
        Ok(face.clone())
    }

    /// The network of the members.
    pub fn network(face: &Face) -> String {
        let network = Ipv4Addr::from(u32::from(face.address) & face.mask());
        format!("{network}/{}", face.prefix)
    }

    /// keepalived's configuration and the script that checks drover.
    pub fn files(&self, face: &Face) -> [Written; 2] {
        let Self { address, router, priority, ready, .. } = self;
        let interface = &face.name;
        let prefix = self.prefix.unwrap_or(face.prefix);
        let mut more = String::new();
        let others = self.peers.iter().filter(|peer| **peer != face.address);
        let others: Vec<String> = others.map(|peer| format!("        {peer}\n")).collect();
        if !others.is_empty() {
            let (own, others) = (face.address, others.concat());
            more.push_str(&format!(
                "    unicast_src_ip {own}\n    unicast_peer {{\n{others}    }}\n"
            ));
        }
        if let Some(password) = &self.password {
            more.push_str(&format!(
                "    authentication {{\n        auth_type PASS\n        auth_pass {password}\n    }}\n"
            ));
        }
        let config = format!(
            "{HEAD}\n\
             global_defs {{\n    enable_script_security\n    script_user nobody\n}}\n\n\
             vrrp_script drover_ready {{\n    script \"{CHECK}\"\n    interval 2\n    timeout 3\n    \
             fall 2\n    rise 2\n}}\n\n\
             vrrp_instance drover {{\n    state BACKUP\n    interface {interface}\n    \
             virtual_router_id {router}\n    priority {priority}\n    advert_int 1\n{more}    \
             virtual_ipaddress {{\n        {address}/{prefix} dev {interface}\n    }}\n    \
             track_script {{\n        drover_ready\n    }}\n}}\n"
        );
        let check = format!(
            "#!/bin/sh\n{HEAD}\n# A member whose drover is not ready gives up the address.\n\
             exec curl -fsS -m 2 -o /dev/null {ready}\n"
        );
        [
            Written { path: CONFIG.into(), text: config, mode: 0o600 },
            Written { path: CHECK.into(), text: check, mode: 0o755 },
        ]
    }
}

/// The firewall rule for VRRP, where the cluster's firewall is on and has no such rule.
pub fn rule(network: &str, enabled: bool, rules: &[BTreeMap<String, String>]) -> Option<Step> {
    let has = |rule: &BTreeMap<String, String>| {
        let is = |key: &str, value: &str| rule.get(key).is_some_and(|one| one == value);
        is("type", "in")
            && is("action", "ACCEPT")
            && (is("proto", "vrrp") || is("proto", "112"))
            && !is("enable", "0")
            && rule.get("source").is_none_or(|source| source == network)
    };
    if !enabled || rules.iter().any(has) {
        return None;
    }
    Some(Step::create(
        "/cluster/firewall/rules",
        [
            ("type", "in"),
            ("action", "ACCEPT"),
            ("source", network),
            ("proto", "vrrp"),
            ("enable", "1"),
            ("comment", "made by drover setup vip"),
        ],
    ))
}

#[cfg(test)]
mod tests;
