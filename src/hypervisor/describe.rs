//! One look at one guest for people: its state, load, addresses, hardware and snapshots.
//!
//! The guest's marks must name the agent and the installation that are asked about. A guest agent that
//! does not answer costs the addresses and nothing else. What a guest says of itself is bounded.

use std::net::IpAddr;

use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::{AgentId, Installation, NodeName, VmId};
use drover_model::marks::Reading;
use drover_model::order::{ConfigValue, MachineView, SnapshotView, unmarked_description};
use drover_model::phase::Power;
use drover_model::ports::{AddressObservation, VmRef};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proxmox_client::PveError;
use proxmox_client::refusal::bounded;
use proxmox_client::types::{Current, GuestInterface, PendingRow, SnapshotRow, VmConfig};

use crate::client::{Client, Failure};
use crate::configure::{decode_keys, has_agent, is_drive, primary_disk, reading, size_of};
use crate::guest::{is_plain, not_yet};
use crate::observe;

/// The most addresses of one guest that are shown.
const ADDRESSES_MAX: usize = 64;

/// The most characters of one value that is compared and not shown.
const GIVEN_MAX: usize = 16_384;

/// The keys of a configuration that are hardware; drives and network cards beside them.
const HARDWARE: [&str; 16] = [
    "agent", "balloon", "bios", "boot", "cores", "cpu", "cpulimit", "hotplug", "machine", "memory",
    "name", "numa", "onboot", "ostype", "sockets", "vcpus",
];

/// The state of a guest's process, in drover's word and in Proxmox's.
pub(crate) fn power_of(current: &Current) -> (Power, &str) {
    let word = match current.qmp_status.as_deref() {
        Some(word) if current.status == "running" => word,
        Some(_) | None => current.status.as_str(),
    };
    let kept_on_disk = word == "stopped" && current.lock.as_deref() == Some("suspended");
    (if kept_on_disk { Power::Suspended } else { Power::of(word) }, word)
}

/// Looks at a guest: five calls, four where it does not run.
pub(crate) async fn describe(
    client: &Client,
    vm: &VmRef,
    (installation, agent): (&Installation, &AgentId),
) -> Result<MachineView, Failure> {
    let vmid = vm.vmid;
    let Some((VmRef { node, .. }, config)) = observe::read_config(client, vm).await? else {
        let text = format!("guest `{vmid}` could not be read on node `{}`: try again", vm.node);
        return Err(Fault::new(FaultKind::Contention, Culprit::Guest, text).into());
    };
    let theirs = match reading(&config) {
        Reading::Marked(marks) => {
            marks.agent == *agent && marks.installation == *installation && marks.vmid == vmid
        }
        Reading::Unmarked | Reading::Damaged(_) => false,
    };
    if !theirs {
        let text = format!("guest `{vmid}` does not belong to agent `{agent}`: it is not shown");
        return Err(Fault::new(FaultKind::Foreign, Culprit::Guest, text).into());
    }
    let current = client.guest_status(node.as_str(), vmid.0).await?;
    let pending = client.pending(node.as_str(), vmid.0).await?;
    let rows = client.snapshots(node.as_str(), vmid.0).await?;
    let (power, word) = power_of(&current);
    let (addresses, no_address) = match power {
        Power::Running if has_agent(&config) => addresses(client, &node, vmid).await?,
        Power::Running => (Vec::new(), Some("its guest agent is not enabled".to_owned())),
        Power::Stopped | Power::Suspended | Power::Unknown => {
            (Vec::new(), Some("it does not run".to_owned()))
        }
    };
    let parent = rows.iter().find(|row| row.name == "current").and_then(|row| row.parent.clone());
    Ok(MachineView {
        console_url: console(client, &node, vmid, &config),
        power,
        word: bounded(word),
        lock: current.lock.as_deref().or(config.lock()).map(bounded),
        uptime_secs: current.uptime.unwrap_or(0.0) as u64,
        cpu: current.cpu,
        cpus: current.cpus,
        memory_used: current.mem,
        memory: current.max_mem,
        addresses,
        no_address,
        config: pending.iter().filter_map(hardware).collect(),
        given: pending.iter().filter_map(given).collect(),
        disk: primary_disk(&config).and_then(|disk| size_of(config.get(disk)?)),
        snapshots: rows.iter().filter(|row| row.name != "current").map(snapshot).collect(),
        parent: parent.as_deref().map(bounded),
        node,
        vmid,
    })
}

/// The addresses that a guest reports, or why there are none.
async fn addresses(
    client: &Client,
    node: &NodeName,
    vmid: VmId,
) -> Result<(Vec<IpAddr>, Option<String>), PveError> {
    let interfaces = match client.interfaces(node.as_str(), vmid.0).await {
        Ok(Ok(interfaces)) => interfaces,
        Ok(Err(text)) => {
            return Ok((Vec::new(), Some(format!("its guest agent answered: {text}"))));
        }
        Err(error) => {
            let denied = matches!(client.fault(&error).kind, FaultKind::Denied { .. });
            let text = client.fault(&error).text;
            return match not_yet(error) {
                Ok(AddressObservation::NotYet(text)) => Ok((Vec::new(), Some(text))),
                Ok(AddressObservation::At(address)) => Ok((vec![address], None)),
                Err(_) if denied => Ok((Vec::new(), Some(text))),
                Err(error) => Err(error),
            };
        }
    };
    let found = plain(&interfaces);
    let none = found.is_empty().then(|| "its guest agent reports no address yet".to_owned());
    Ok((found, none))
}

/// All addresses of a guest but loopback and link-local ones, IPv4 first.
fn plain(interfaces: &[GuestInterface]) -> Vec<IpAddr> {
    let all = interfaces.iter().flat_map(|interface| &interface.ip_addresses);
    let mut found: Vec<IpAddr> = Vec::new();
    for address in all.filter_map(|address| address.ip_address.parse::<IpAddr>().ok()) {
        if is_plain(address) && !found.contains(&address) && found.len() < ADDRESSES_MAX {
            found.push(address);
        }
    }
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// A row of the configuration, where it is hardware.
fn hardware(row: &PendingRow) -> Option<ConfigValue> {
    let digits = row.key.trim_start_matches(|ch: char| ch.is_ascii_alphabetic());
    let card = row.key.starts_with("net") && !digits.is_empty();
    let shown = HARDWARE.contains(&row.key.as_str()) || is_drive(&row.key) || card;
    shown.then(|| ConfigValue {
        key: bounded(&row.key),
        value: row.value.as_deref().map(bounded),
        pending: row.pending.as_deref().map(bounded),
        deleted: row.delete.is_some_and(|delete| delete > 0),
    })
}

/// A row of the configuration that somebody declares beside hardware.
fn given(row: &PendingRow) -> Option<ConfigValue> {
    let key = row.key.as_str();
    let address = key.strip_prefix("ipconfig").is_some_and(|n| n.parse::<u16>().is_ok());
    if !address && !["ciuser", "sshkeys", "nameserver", "searchdomain", "tags"].contains(&key) {
        return None;
    }
    let read = |text: &String| -> String {
        let text = if key == "sshkeys" { decode_keys(text) } else { text.clone() };
        text.chars().take(GIVEN_MAX).collect()
    };
    Some(ConfigValue {
        key: key.to_owned(),
        value: row.value.as_ref().map(read),
        pending: row.pending.as_ref().map(read),
        deleted: row.delete.is_some_and(|delete| delete > 0),
    })
}

fn snapshot(row: &SnapshotRow) -> SnapshotView {
    SnapshotView {
        name: bounded(&row.name),
        description: bounded(unmarked_description(row.description.as_deref().unwrap_or_default())),
        taken: row.snaptime,
        memory: row.vmstate,
        parent: row.parent.as_deref().map(bounded),
        unfinished: row.snapstate.as_deref().map(bounded),
    }
}

/// The page of Proxmox that shows a guest's screen, at the endpoint that takes the next call.
fn console(client: &Client, node: &NodeName, vmid: VmId, config: &VmConfig) -> String {
    let index = client.route().order().first().copied().unwrap_or(0);
    let part = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (base, node) = (client.endpoint(index), part(node.as_str()));
    let name = part(config.get("name").unwrap_or_default());
    format!("{base}/?console=kvm&novnc=1&vmid={vmid}&vmname={name}&node={node}&resize=off")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::{from_value, json};

    use super::*;

    // Invariant: the word is QEMU's where there is a process, and drover's word follows from it.

    #[test]
    fn a_paused_machine_is_suspended_and_one_of_unknown_state_is_unknown() {
        let of = |value| {
            let current: Current = from_value(value).unwrap();
            let (power, word) = power_of(&current);
            format!("{power} {word}")
        };
        assert_eq!(of(json!({"status": "running", "qmpstatus": "running"})), "running running");
        assert_eq!(of(json!({"status": "running", "qmpstatus": "paused"})), "suspended paused");
        assert_eq!(of(json!({"status": "running", "qmpstatus": "io-error"})), "unknown io-error");
        assert_eq!(of(json!({"status": "stopped", "qmpstatus": "stopped"})), "stopped stopped");
        assert_eq!(of(json!({"status": "stopped"})), "stopped stopped");
        assert_eq!(of(json!({"status": "stopped", "lock": "suspended"})), "suspended stopped");
        assert_eq!(of(json!({"status": "running"})), "running running");
    }

    // Invariant: only addresses that somebody could connect to are shown, each once, IPv4 first.

    #[test]
    fn loopback_and_link_local_addresses_are_left_out() {
        let interfaces: Vec<GuestInterface> = from_value(json!([
            {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1"}, {"ip-address": "::1"}]},
            {"name": "eth0", "ip-addresses": [
                {"ip-address": "fe80::1"}, {"ip-address": "fd00::5"}, {"ip-address": "10.0.0.5"},
                {"ip-address": "169.254.7.7"}, {"ip-address": "no address"}]},
            {"name": "eth1", "ip-addresses": [{"ip-address": "10.0.0.5"}]},
        ]))
        .unwrap();
        let shown: Vec<String> = plain(&interfaces).iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.5", "fd00::5"]);
    }

    #[test]
    fn secrets_and_texts_of_a_configuration_are_not_shown() {
        let row = |key: &str| {
            let row = from_value(json!({"key": key, "value": "x", "pending": "y"})).unwrap();
            hardware(&row).is_some()
        };
        assert!(["cores", "scsi0", "net1", "memory"].into_iter().all(row));
        assert!(!["cipassword", "sshkeys", "description", "args", "digest"].into_iter().any(row));
    }
}
