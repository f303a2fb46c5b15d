//! A virtual IP address in front of drover: keepalived, and the firewall rule that lets its members
//! hear each other.
//!
//! One drover serves a cluster. So a second machine is refused, unless its drover is a member of a store:
//! members elect a leader, and the address is the leader's alone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::dhcp::{InterfaceAddress, parse_addresses};
use super::machine::FileToWrite;
use super::step::Step;

const FILE_HEADER: &str = "# made by drover setup vip";
const READY_MARK: &str = "ready";

/// The path of keepalived's configuration.
pub const KEEPALIVED_CONFIG: &str = "/etc/keepalived/keepalived.conf";
/// The path of the script that checks whether drover is ready.
pub const CHECK_SCRIPT: &str = "/etc/keepalived/drover-ready";
/// The systemd unit of keepalived's package.
pub const KEEPALIVED_UNIT: &str = "keepalived.service";

/// The longest VRRP password, in characters.
pub const VRRP_PASSWORD_MAX: usize = 8;

/// The options of `drover setup vip`.
#[derive(Clone, PartialEq, Eq)]
pub struct VipSpec {
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

impl std::fmt::Debug for VipSpec {
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

impl VipSpec {
    /// The commands that read the machine's state before anything changes, by name.
    pub fn state_commands(&self) -> Vec<(&'static str, String)> {
        let Self { address, ready, .. } = self;
        // The host in the URL stays, for certificates; only the connection goes to the address.
        let to = format!("--noproxy '*' --connect-to '::{address}:' '{ready}'");
        vec![
            ("holder", format!("curl -fsSg -m 3 -o /dev/null {to} && echo {READY_MARK}")),
            // A member that stands by answers 503, and says so.
            ("leads", format!("curl -sSg -m 3 --noproxy '*' '{}'", self.leader_url())),
            ("user", "id -u".to_owned()),
            ("addresses", "ip -o -4 addr show".to_owned()),
            ("config", format!("cat {KEEPALIVED_CONFIG}")),
            ("check", format!("cat {CHECK_SCRIPT}")),
            ("state", format!("systemctl is-active {KEEPALIVED_UNIT}")),
            ("programs", "command -v keepalived; command -v curl".to_owned()),
        ]
    }

    /// Where the drover of this machine says whether it leads.
    fn leader_url(&self) -> String {
        self.ready
            .strip_suffix("/readyz")
            .map_or(self.ready.clone(), |base| format!("{base}/leaderz"))
    }

    /// Whether the drover of this machine is a member of a store, whose members elect a leader.
    pub fn is_member(said: &BTreeMap<String, String>) -> bool {
        let leads = said.get("leads").map(String::as_str).unwrap_or_default();
        [r#""alone":false"#, "urn:drover:problem:standby"].iter().any(|sign| leads.contains(sign))
    }

    /// Checks the machine's state; returns the interface whose network contains the virtual
    /// address.
    ///
    /// # Errors
    /// What does not fit, and what exists instead.
    pub fn check(&self, said: &BTreeMap<String, String>) -> Result<InterfaceAddress, String> {
        let text = |name: &str| said.get(name).map(|text| text.trim()).unwrap_or_default();
        // This machine may hold the virtual address now.
        let all: Vec<InterfaceAddress> = parse_addresses(text("addresses"))
            .into_iter()
            .filter(|interface_address| {
                interface_address.address != self.address && interface_address.name != "lo"
            })
            .collect();
        let known: Vec<String> =
            all.iter().map(|one| format!("{} {}/{}", one.name, one.address, one.prefix)).collect();
        let known = known.join(", ");
        let named = |interface_address: &&InterfaceAddress| {
            self.interface.as_ref().is_none_or(|name| interface_address.name == *name)
        };
        let mut fitting = all
            .iter()
            .filter(named)
            .filter(|interface_address| interface_address.reaches(self.address));
        let Some(interface_address) = fitting.next() else {
            return Err(match &self.interface {
                Some(name) => {
                    format!(
                        "{} is not on the network of {name}; the networks are {known}",
                        self.address
                    )
                }
                None => format!(
                    "{} is on no network of this machine; its networks are {known}",
                    self.address
                ),
            });
        };
        if let Some(other) = fitting.find(|other| other.name != interface_address.name) {
            return Err(format!(
                "{} is on the networks of {} and {}: choose one with --interface",
                self.address, interface_address.name, other.name
            ));
        }
        if let Some(peer) = self.peers.iter().find(|peer| !interface_address.reaches(**peer)) {
            let name = &interface_address.name;
            return Err(format!("peer {peer} is not on the network of {name}"));
        }
        let own = parse_addresses(text("addresses"));
        let is_own = |address: Ipv4Addr| {
            own.iter().any(|interface_address| interface_address.address == address)
        };
        let alone = !Self::is_member(said);
        let twice = "two drovers on one cluster would serve its jobs twice, and no member of a store \
                     answers on this machine (`drover help members.md`)";
        if let Some(peer) = self.peers.iter().find(|peer| alone && !is_own(**peer)) {
            return Err(format!(
                "peer {peer} is another machine: {twice}; leave --peers out, and run drover on \
                 one machine"
            ));
        }
        if alone && text("holder") == READY_MARK && !is_own(self.address) {
            return Err(format!(
                "another drover is ready behind {}: {twice}; stop that one first, on its machine: \
                 systemctl disable --now drover",
                self.address
            ));
        }
        for (name, path) in [("config", KEEPALIVED_CONFIG), ("check", CHECK_SCRIPT)] {
            if !text(name).is_empty() && !text(name).contains(FILE_HEADER) {
                return Err(format!(
                    "{path} exists and drover did not make it; remove it, or replace its content by \
                     what --dry-run prints"
                ));
            }
        }
        Ok(interface_address.clone())
    }

    /// The network of the members.
    pub fn network(interface_address: &InterfaceAddress) -> String {
        let network =
            Ipv4Addr::from(u32::from(interface_address.address) & interface_address.mask());
        format!("{network}/{}", interface_address.prefix)
    }

    /// keepalived's configuration and the script that checks drover: whether it is ready, and where it is a
    /// member, whether it leads.
    pub fn files(&self, interface_address: &InterfaceAddress, is_member: bool) -> [FileToWrite; 2] {
        let Self { address, router, priority, .. } = self;
        let (asked, what) = if is_member {
            (self.leader_url(), "does not lead")
        } else {
            (self.ready.clone(), "is not ready")
        };
        let interface = &interface_address.name;
        let prefix = self.prefix.unwrap_or(interface_address.prefix);
        let mut more = String::new();
        let others = self.peers.iter().filter(|peer| **peer != interface_address.address);
        let others: Vec<String> = others.map(|peer| format!("        {peer}\n")).collect();
        if !others.is_empty() {
            let (own, others) = (interface_address.address, others.concat());
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
            "{FILE_HEADER}\n\
             global_defs {{\n    enable_script_security\n    script_user nobody\n}}\n\n\
             vrrp_script drover_ready {{\n    script \"{CHECK_SCRIPT}\"\n    interval 2\n    timeout 3\n    \
             fall 2\n    rise 2\n}}\n\n\
             vrrp_instance drover {{\n    state BACKUP\n    interface {interface}\n    \
             virtual_router_id {router}\n    priority {priority}\n    advert_int 1\n{more}    \
             virtual_ipaddress {{\n        {address}/{prefix} dev {interface}\n    }}\n    \
             track_script {{\n        drover_ready\n    }}\n}}\n"
        );
        let check = format!(
            "#!/bin/sh\n{FILE_HEADER}\n# A machine whose drover {what} gives up the address.\n\
             exec curl -fsS -m 2 -o /dev/null {asked}\n"
        );
        [
            FileToWrite { path: KEEPALIVED_CONFIG.into(), text: config, mode: 0o600 },
            FileToWrite { path: CHECK_SCRIPT.into(), text: check, mode: 0o755 },
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
