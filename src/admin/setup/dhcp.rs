//! `drover setup dhcp`: a DHCP server for a bridge, in one of two forms.
//!
//! [`DhcpSpec`] describes dnsmasq on one node, bound to the bridge: two files (its configuration
//! and a systemd unit) that are written over SSH. Before that, [`DhcpSpec::check`] and a probe on
//! the bridge make sure that no other server answers there.
//!
//! [`Zone`] describes a simple zone of Proxmox's SDN with Proxmox's own DHCP: a few API calls, of
//! which only the missing ones are made. Objects that exist and differ are refused, not changed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::machine::FileToWrite;
use super::step::{Needed, Step};

const FILE_HEADER: &str = "# made by drover setup dhcp";

/// The options of `drover setup dhcp` for dnsmasq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpSpec {
    pub bridge: String,
    /// The first and the last address of the range.
    pub range: (Ipv4Addr, Ipv4Addr),
    /// The router that clients receive; none for the bridge's own address.
    pub gateway: Option<Ipv4Addr>,
    /// The DNS servers that clients receive; none for the router.
    pub dns: Vec<Ipv4Addr>,
    /// The lease time, such as `12h`.
    pub lease: String,
}

/// Parses a range such as `10.0.0.50-10.0.0.99`.
///
/// # Errors
/// The expected form.
pub fn range(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let fault = || format!("`{text}` is not a range; write it as 10.0.0.50-10.0.0.99");
    let (first, last) = text.split_once('-').ok_or_else(fault)?;
    let read = |word: &str| word.trim().parse::<Ipv4Addr>().map_err(|_| fault());
    let (first, last) = (read(first)?, read(last)?);
    if first > last { Err(fault()) } else { Ok((first, last)) }
}

/// Parses a lease time as dnsmasq writes it.
///
/// # Errors
/// The expected form.
pub fn lease(text: &str) -> Result<String, String> {
    let number = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let good = text.len() <= number.len() + 1 && number.parse::<u32>().is_ok_and(|n| n > 0);
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a time; write it as 30m, 12h or 1d"))
    }
}

/// An IPv4 address of an interface, as `ip -o -4 addr show` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The name of the interface.
    pub name: String,
    pub address: Ipv4Addr,
    pub prefix: u8,
}

impl InterfaceAddress {
    /// The mask of the interface's network.
    pub fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }

    /// Whether an address is on the interface's network.
    pub fn reaches(&self, address: Ipv4Addr) -> bool {
        (u32::from(address) ^ u32::from(self.address)) & self.mask() == 0
    }
}

/// Parses the output of `ip -o -4 addr show`.
pub fn parse_addresses(said: &str) -> Vec<InterfaceAddress> {
    let read = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let name = words.next()?.split('@').next()?.to_owned();
        let (address, prefix) = words.skip_while(|word| *word != "inet").nth(1)?.split_once('/')?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
        Some(InterfaceAddress { name, address: address.parse().ok()?, prefix })
    };
    said.lines().filter_map(read).collect()
}

impl DhcpSpec {
    fn at(&self, folder: &str, end: &str) -> String {
        format!("{folder}/{}{end}", self.bridge)
    }

    /// The name of the systemd unit.
    pub fn unit(&self) -> String {
        format!("drover-dhcp-{}.service", self.bridge)
    }

    /// The path of dnsmasq's configuration.
    pub fn config(&self) -> String {
        self.at("/etc/drover-dhcp", ".conf")
    }

    fn unit_path(&self) -> String {
        format!("/etc/systemd/system/{}", self.unit())
    }

    /// The commands that read the node's state before anything changes, by name.
    pub fn state_commands(&self) -> Vec<(&'static str, String)> {
        vec![
            ("user", "id -u".to_owned()),
            ("addresses", "ip -o -4 addr show".to_owned()),
            ("links", "ls /sys/class/net".to_owned()),
            // One line for each listening socket, with its process.
            ("servers", "ss -Hlnup 'sport = :67'".to_owned()),
            ("config", format!("cat {}", self.config())),
            ("unit", format!("cat {}", self.unit_path())),
            ("state", format!("systemctl is-active {}", self.unit())),
            ("program", "command -v dnsmasq".to_owned()),
        ]
    }

    /// The command that asks on the bridge whether a DHCP server answers; every node has perl.
    pub fn probe(&self) -> String {
        drover_ssh::join(["perl", "-e", include_str!("dhcp-probe.pl"), self.bridge.as_str()])
    }

    /// Checks the node's state; returns the bridge's address on whose network the range is.
    ///
    /// # Errors
    /// What does not fit: the bridge, its network, or a server that exists already.
    pub fn check(&self, said: &BTreeMap<String, String>) -> Result<InterfaceAddress, String> {
        let text = |name: &str| said.get(name).map(|text| text.trim()).unwrap_or_default();
        let bridge = &self.bridge;
        let all = parse_addresses(text("addresses"));
        let own: Vec<&InterfaceAddress> =
            all.iter().filter(|interface_address| interface_address.name == *bridge).collect();
        if own.is_empty() {
            let names: Vec<&str> = text("links").split_whitespace().collect();
            return Err(match names.contains(&bridge.as_str()) {
                true => format!(
                    "{bridge} has no IPv4 address here; dnsmasq needs one on the range's network"
                ),
                false => {
                    format!(
                        "there is no bridge {bridge} here; the interfaces are {}",
                        names.join(", ")
                    )
                }
            });
        }
        let (first, last) = self.range;
        let fits = |interface_address: &&&InterfaceAddress| {
            interface_address.reaches(first) && interface_address.reaches(last)
        };
        let Some(interface_address) = own.iter().find(fits) else {
            let known: Vec<String> = own
                .iter()
                .map(|interface_address| {
                    format!("{}/{}", interface_address.address, interface_address.prefix)
                })
                .collect();
            let known = known.join(", ");
            return Err(format!("{first}-{last} is not on the network of {bridge}: {known}"));
        };
        if (first..=last).contains(&interface_address.address) {
            return Err(format!(
                "the range contains {bridge}'s own address {}",
                interface_address.address
            ));
        }
        if let Some(gateway) = self.gateway
            && (!interface_address.reaches(gateway) || (first..=last).contains(&gateway))
        {
            let text =
                format!("the gateway {gateway} must be on the network and outside the range");
            return Err(text);
        }
        for (name, path) in [("config", self.config()), ("unit", self.unit_path())] {
            if !text(name).is_empty() && !text(name).starts_with(FILE_HEADER) {
                return Err(format!("{path} exists and drover did not make it; remove it first"));
            }
        }
        let running = text("state") == "active";
        let port = |line: &&str| {
            line.split_whitespace().nth(3).is_some_and(|at| {
                let (host, _) = at.rsplit_once(':').unwrap_or((at, ""));
                let (host, link) = host.split_once('%').unwrap_or((host, ""));
                (link.is_empty() || link == bridge)
                    && (matches!(host, "0.0.0.0" | "*")
                        || host == interface_address.address.to_string())
            })
        };
        // Servers of other bridges listen on those alone.
        let server = text("servers").lines().find(port);
        if let Some(server) = server.filter(|_| !running) {
            let server = server.split_whitespace().skip(3).collect::<Vec<_>>().join(" ");
            return Err(format!("a DHCP server is already running here: {server}"));
        }
        Ok((*interface_address).clone())
    }

    /// Checks that no other server answered the probe.
    ///
    /// # Errors
    /// The server that answered.
    pub fn check_probe(
        &self,
        interface_address: &InterfaceAddress,
        probe: &str,
    ) -> Result<(), String> {
        let others = probe.lines().filter_map(|line| line.strip_prefix("offer "));
        let mut others = others.filter(|who| *who != interface_address.address.to_string());
        match others.next() {
            Some(who) => Err(format!("a DHCP server already answers on {}: {who}", self.bridge)),
            None => Ok(()),
        }
    }

    /// dnsmasq's configuration and the systemd unit.
    pub fn files(&self, interface_address: &InterfaceAddress, program: &str) -> [FileToWrite; 2] {
        let Self { bridge, range: (first, last), lease, .. } = self;
        let mask = Ipv4Addr::from(interface_address.mask());
        let router = self.gateway.unwrap_or(interface_address.address);
        let dns = if self.dns.is_empty() { vec![router] } else { self.dns.clone() };
        let dns = dns.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let leases = self.at("/var/lib/drover-dhcp", ".leases");
        let config = format!(
            "{FILE_HEADER}\n\
             # DHCP only, no DNS.\n\
             port=0\n\
             interface={bridge}\n\
             except-interface=lo\n\
             bind-dynamic\n\
             dhcp-range={first},{last},{mask},{lease}\n\
             dhcp-option=option:router,{router}\n\
             dhcp-option=option:dns-server,{dns}\n\
             dhcp-leasefile={leases}\n\
             dhcp-authoritative\n"
        );
        let path = self.config();
        let unit = format!(
            "{FILE_HEADER}\n\
             [Unit]\n\
             Description=DHCP server on {bridge}\n\
             Wants=network-online.target\n\
             After=network-online.target\n\n\
             [Service]\n\
             ExecStart={program} --keep-in-foreground --conf-file={path}\n\
             Restart=on-failure\n\
             RestartSec=5\n\
             StateDirectory=drover-dhcp\n\n\
             [Install]\n\
             WantedBy=multi-user.target\n"
        );
        [
            FileToWrite { path, text: config, mode: 0o644 },
            FileToWrite { path: self.unit_path(), text: unit, mode: 0o644 },
        ]
    }
}

/// A simple zone of Proxmox's SDN that gives out addresses by DHCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    pub zone: String,
    /// The VNet in the zone; agents use it as their bridge.
    pub vnet: String,
    /// The subnet, such as `10.0.0.0/24`.
    pub subnet: (Ipv4Addr, u8),
    /// The nodes' address in the subnet.
    pub gateway: Ipv4Addr,
    /// The first and the last address of the range.
    pub range: (Ipv4Addr, Ipv4Addr),
    /// The DNS server that clients receive.
    pub dns: Option<Ipv4Addr>,
    /// Whether the nodes replace the guests' addresses by their own (source NAT).
    pub snat: bool,
}

/// What exists of a zone: settings by their names.
#[derive(Debug, Clone, Default)]
pub struct Sdn {
    pub zone: Option<BTreeMap<String, String>>,
    pub vnet: Option<BTreeMap<String, String>>,
    /// The VNet's subnets, each with its settings.
    pub subnets: Vec<BTreeMap<String, String>>,
    /// Whether a change of them waits to be applied.
    pub waiting: bool,
}

impl Zone {
    fn cidr(&self) -> String {
        format!("{}/{}", self.subnet.0, self.subnet.1)
    }

    /// The steps to the wanted zone, and the privileges that they need; no step where everything
    /// exists.
    ///
    /// # Errors
    /// An object that exists and differs.
    pub fn plan(&self, now: &Sdn) -> Result<(Vec<Step>, Needed), String> {
        let Self { zone, vnet, gateway, range: (first, last), .. } = self;
        let net =
            InterfaceAddress { name: String::new(), address: self.subnet.0, prefix: self.subnet.1 };
        for address in [*gateway, *first, *last] {
            if !net.reaches(address) {
                return Err(format!("{address} is not in {}", self.cidr()));
            }
        }
        if (first..=last).contains(&gateway) {
            return Err(format!("the range contains the gateway {gateway}"));
        }
        let mut steps = Vec::new();
        match &now.zone {
            None => {
                let all = [("zone", &**zone), ("type", "simple"), ("ipam", "pve")];
                let step = Step::create("/cluster/sdn/zones", all);
                steps.push(step.with("dhcp", Some("dnsmasq")));
            }
            Some(there) => {
                let has = |key: &str, value: &str| there.get(key).is_some_and(|one| one == value);
                if !has("type", "simple") {
                    return Err(format!(
                        "zone {zone} is not a simple zone; only simple zones have DHCP"
                    ));
                }
                if !has("dhcp", "dnsmasq") {
                    let path = format!("/cluster/sdn/zones/{zone}");
                    steps.push(Step::set(path, [("dhcp", "dnsmasq"), ("ipam", "pve")]));
                }
            }
        }
        match &now.vnet {
            None => {
                let all = [("vnet", &**vnet), ("zone", zone)];
                steps.push(Step::create("/cluster/sdn/vnets", all));
            }
            Some(there) if there.get("zone") != Some(zone) => {
                return Err(format!(
                    "VNet {vnet} is in another zone; give the new VNet another name"
                ));
            }
            Some(_) => {}
        }
        let cidr = self.cidr();
        let own = |one: &&BTreeMap<String, String>| one.get("cidr") == Some(&cidr);
        if now.subnets.iter().find(own).is_none() {
            let path = format!("/cluster/sdn/vnets/{vnet}/subnets");
            let given = format!("start-address={first},end-address={last}");
            let gateway = gateway.to_string();
            let all = [
                ("subnet", &*cidr),
                ("type", "subnet"),
                ("gateway", &gateway),
                ("dhcp-range", &given),
            ];
            let dns = self.dns.map(|dns| dns.to_string());
            let step = Step::create(path, all).with("dhcp-dns-server", dns.as_deref());
            steps.push(step.with("snat", self.snat.then_some("1")));
        }
        if !steps.is_empty() || now.waiting {
            steps.push(Step::set("/cluster/sdn", []));
        }
        let zones =
            if now.zone.is_some() { format!("/sdn/zones/{zone}") } else { "/sdn/zones".into() };
        let needed = vec![("/sdn".to_owned(), "SDN.Allocate"), (zones, "SDN.Allocate")];
        Ok((steps, needed))
    }
}

#[cfg(test)]
mod tests;
