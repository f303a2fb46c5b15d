//! `drover setup dhcp`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use clap::Args;
use drover_hypervisor::Client;
use proxmox_client::Params;
use proxmox_client::PveError;
use proxmox_client::loose::as_text;
use serde_json::Value;

use super::super::error::{CliError, failed, usage};
use super::super::global::Global;
use super::login::{LoginOptions, read};
use super::node::{NodeOptions, as_root};
use super::output::SetupOutput;
use super::steps::carry_out;
use drover_admin::setup::dhcp::{DhcpSpec, Sdn, Zone, lease, range};
use drover_config::Environment;

/// Options of `setup dhcp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
With --bridge dnsmasq is set up on one node: this one, or another with --node-ssh. One node for each \
network: two of these would give the same addresses twice. It refuses where a server listens or \
answers already.

With --sdn Proxmox does it, and nobody needs a shell: a simple zone whose subnet has DHCP. Every \
node needs the package dnsmasq (apt install dnsmasq; systemctl disable --now dnsmasq). Such a VNet \
ends at its node: guests of two nodes do not see each other, and get out by --snat or routes of \
yours. Templates then name the VNet as their bridge.")]
pub struct DhcpOptions {
    #[command(flatten)]
    login: LoginOptions,
    #[command(flatten)]
    node: NodeOptions,
    /// The bridge, which has an address on the network
    #[arg(long, value_name = "BRIDGE", required_unless_present = "sdn", conflicts_with = "sdn")]
    bridge: Option<String>,
    /// The addresses that are given out, 10.0.0.50-10.0.0.99
    #[arg(long, value_name = "FIRST-LAST", value_parser = range)]
    range: (Ipv4Addr, Ipv4Addr),
    /// The router that guests get [default: the bridge's own address]
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<Ipv4Addr>,
    /// DNS servers that guests get, with commas [default: the router]
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    dns: Vec<Ipv4Addr>,
    /// For how long an address is given out
    #[arg(long, value_name = "TIME", default_value = "12h", value_parser = lease)]
    lease: String,
    /// Make a zone of Proxmox's SDN instead
    #[arg(long, value_name = "ZONE", requires_all = ["subnet", "gateway"], conflicts_with = "node_ssh")]
    sdn: Option<String>,
    /// The zone's VNet [default: the zone's name and a 0]
    #[arg(long, value_name = "VNET", requires = "sdn")]
    vnet: Option<String>,
    /// The zone's subnet, 10.9.0.0/24
    #[arg(long, value_name = "CIDR", requires = "sdn")]
    subnet: Option<String>,
    /// Hide the zone's guests behind their node's address
    #[arg(long, requires = "sdn")]
    snat: bool,
    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(
    global: &Global,
    options: &DhcpOptions,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    match (&options.sdn, &options.bridge) {
        (Some(zone), _) => zone_of(global, options, zone, out).await,
        (None, Some(bridge)) => server(options, bridge, out).await,
        (None, None) => Err(usage("name a bridge with --bridge, or a zone with --sdn")),
    }
}

async fn server(
    options: &DhcpOptions,
    bridge: &str,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    if bridge.is_empty() || bridge.len() > 15 || !bridge.chars().all(plain) {
        return Err(usage(format!("`{bridge}` is no name of a bridge")));
    }
    let wanted = DhcpSpec {
        bridge: bridge.to_owned(),
        range: options.range,
        gateway: options.gateway,
        dns: options.dns.clone(),
        lease: options.lease.clone(),
    };
    let machine = options.node.machine(out).await?;
    let said = machine.ask(&wanted.state_commands()).await.map_err(failed)?;
    let face = wanted.check(&said).map_err(failed)?;
    let text = |name: &str| said.get(name).map(|text| text.trim()).unwrap_or_default();
    let program = match text("program") {
        "" => "/usr/sbin/dnsmasq",
        path => path,
    };
    let files = wanted.files(&face, program);
    let same =
        files.iter().zip(["config", "unit"]).all(|(file, name)| file.text.trim() == text(name));
    let running = text("state") == "active";
    if same && running {
        out.idle(format!("{} runs", wanted.unit()))?;
        return Ok(());
    }
    let unit = wanted.unit();
    if options.dry_run {
        for file in &files {
            out.file(file, &file.text)?;
        }
        if text("program").is_empty() {
            out.plan("apt-get install -y --no-install-recommends dnsmasq-base")?;
        }
        out.plan("systemctl daemon-reload")?;
        out.plan(format!("systemctl enable {unit}"))?;
        out.plan(format!("systemctl restart {unit}"))?;
        return Ok(());
    }
    as_root(&said)?;
    if !running {
        match machine.run(&wanted.probe()).await {
            Ok(heard) => wanted.check_probe(&face, &heard).map_err(failed)?,
            Err(why) => {
                let why = why.lines().last().unwrap_or_default();
                out.note(format!("nobody could be asked whether a server answers ({why})"))?;
            }
        }
    }
    if text("program").is_empty() {
        let install = "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y \
                       --no-install-recommends dnsmasq-base";
        machine.run(install).await.map_err(failed)?;
        out.did("installed dnsmasq-base")?;
    }
    for file in &files {
        machine.put(file).await.map_err(failed)?;
        out.did(format!("wrote {}", file.path))?;
    }
    let start = format!(
        "{program} --test --conf-file={} && systemctl daemon-reload && systemctl enable {unit} && \
         systemctl restart {unit} && systemctl is-active {unit}",
        wanted.config()
    );
    machine.run(&start).await.map_err(failed)?;
    let (first, last) = wanted.range;
    out.stands(format!("{unit} gives out {first}-{last} on {bridge}"))?;
    Ok(())
}

type Settings = BTreeMap<String, String>;

/// One row of a list, with what waits to be applied.
fn settings(row: &Value) -> Settings {
    let texts = |row: &Value| -> Settings {
        let all = row.as_object().into_iter().flatten();
        all.filter_map(|(key, value)| Some((key.clone(), as_text(value)?))).collect()
    };
    let mut all = texts(row);
    all.extend(texts(&row["pending"]));
    all
}

async fn now(client: &Client, zone: &Zone) -> Result<Sdn, PveError> {
    let pending = || -> Params { vec![("pending".to_owned(), "1".to_owned())] };
    let list = async |path: &str| client.get::<Vec<Value>>(path, pending()).await;
    let there = |row: &&Value| row["state"] != "deleted";
    let mut now = Sdn::default();
    let zones = list("/cluster/sdn/zones").await?;
    let mine = |key: &'static str, name: String| move |row: &&Value| row[key] == name.as_str();
    let found = zones.iter().filter(there).find(mine("zone", zone.zone.clone()));
    now.zone = found.map(settings);
    now.waiting |= found.is_some_and(|row| row["state"].is_string());
    let vnets = list("/cluster/sdn/vnets").await?;
    let found = vnets.iter().filter(there).find(mine("vnet", zone.vnet.clone()));
    now.vnet = found.map(settings);
    now.waiting |= found.is_some_and(|row| row["state"].is_string());
    if now.vnet.is_some() {
        let path = format!("/cluster/sdn/vnets/{}/subnets", zone.vnet);
        let subnets = list(&path).await?;
        now.waiting |= subnets.iter().any(|row| row["state"].is_string());
        now.subnets = subnets.iter().filter(there).map(settings).collect();
    }
    Ok(now)
}

fn subnet(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| (1..=30).contains(prefix))?;
    Some((address.parse().ok()?, prefix))
}

async fn zone_of(
    global: &Global,
    options: &DhcpOptions,
    name: &str,
    out: &mut SetupOutput<'_>,
) -> Result<(), CliError> {
    let short = |name: &str| {
        (2..=8).contains(&name.len())
            && name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
    };
    let vnet = options.vnet.clone().unwrap_or_else(|| format!("{name}0"));
    for word in [name, &vnet] {
        if !short(word) {
            let text = format!("`{word}` is no name in the SDN: 2 to 8 of a-z and 0-9");
            return Err(usage(text));
        }
    }
    let text = options.subnet.as_deref().unwrap_or_default();
    let Some(subnet) = subnet(text) else {
        return Err(usage(format!("`{text}` is no subnet: write 10.9.0.0/24")));
    };
    let gateway = options.gateway.ok_or_else(|| usage("name the nodes' address with --gateway"))?;
    if options.dns.len() > 1 {
        return Err(usage("a subnet of Proxmox's names one DNS server: give --dns once"));
    }
    let zone = Zone {
        zone: name.to_owned(),
        vnet,
        subnet,
        gateway,
        range: options.range,
        dns: options.dns.first().copied(),
        snat: options.snat,
    };
    let environment = Environment::of_process().without_secrets();
    let (_, checked) = read(global, &environment)?;
    let client = options.login.client(&checked, &environment)?;
    let reported = |error: PveError| failed(client.fault(&error).text);
    let version = client.version().await.map_err(reported)?.version;
    let mut numbers = version.split('.').map(|word| word.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < (8, 1) {
        return Err(failed(format!("this is Proxmox VE {version}: zones have DHCP since 8.1")));
    }
    let now = now(&client, &zone).await.map_err(reported)?;
    let (steps, needed) = zone.plan(&now).map_err(failed)?;
    carry_out(&client, (&steps, &needed), options.dry_run, out).await?;
    let vnet = &zone.vnet;
    if steps.is_empty() {
        out.idle(format!("VNet {vnet} has DHCP"))?;
    } else if !options.dry_run {
        out.stands(format!("VNet {vnet} has DHCP on nodes with the package dnsmasq"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: what waits to be applied counts as there.

    #[test]
    fn pending_settings_count() {
        let row = serde_json::json!({"zone": "ci", "mtu": 1400, "pending": {"dhcp": "dnsmasq"}});
        let read = settings(&row);
        assert_eq!((read["mtu"].as_str(), read["dhcp"].as_str()), ("1400", "dnsmasq"));
        assert_eq!(subnet("10.9.0.0/24").map(|(_, prefix)| prefix), Some(24));
        assert_eq!(subnet("10.9.0.0"), None);
    }
}
