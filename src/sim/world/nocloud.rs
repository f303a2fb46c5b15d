//! The NoCloud disc: cloud-init in a guest reads a disc image with the label `cidata` instead of
//! Proxmox's cloud-init drive.
//!
//! The guest host knows only Proxmox's configuration keys, so this file translates the disc to
//! these keys: host name, user, SSH keys, and the address of the first network device.

use drover_nocloud::iso::{self, Disc, LABEL};
use proxmox_client::transport::encode;
use serde_yaml::Value;

use super::conf::{self, Config};
use super::state::State;
use super::{Cluster, cloudinit};
use crate::guest::GuestDisc;

/// Configuration keys whose values only Proxmox's own drive carries to the guest.
const PROXMOX_DRIVE_KEYS: [&str; 3] = ["ciuser", "sshkeys", "cipassword"];

impl Cluster {
    /// The NoCloud disc in the drives of a guest, if there is one.
    pub(crate) fn nocloud_disc(state: &State, node: &str, config: &Config) -> Option<Disc> {
        let drives = conf::drives(config);
        let discs = drives.iter().filter(|(_, drive)| drive.is_cdrom()).filter_map(|(_, drive)| {
            let storage = state.storage_of(&drive.file).ok()?;
            iso::read(storage.file(node, &drive.file)?)
        });
        discs.into_iter().find(|disc| disc.label.eq_ignore_ascii_case(LABEL))
    }

    /// The discs in the CD-ROM drives of a guest: uploaded images as they are, and the image that
    /// Proxmox makes for cloud-init.
    pub(crate) fn discs(state: &State, node: &str, vmid: u32, config: &Config) -> Vec<GuestDisc> {
        let drives = conf::drives(config).into_iter().filter(|(_, drive)| drive.is_cdrom());
        let discs = drives.filter_map(|(key, drive)| {
            let image = match drive.is_cloudinit() {
                true => cloudinit::texts(config, vmid).image().into(),
                false => state.storage_of(&drive.file).ok()?.file(node, &drive.file)?.clone(),
            };
            Some(GuestDisc { drive: key, image })
        });
        discs.collect()
    }
}

/// Replaces the values of Proxmox's drive by those of the disc; returns the host name.
pub(crate) fn apply_disc(
    config: &mut Config,
    hostname: &str,
    mac: Option<&str>,
    disc: &Disc,
) -> String {
    config.retain(|key, _| {
        !PROXMOX_DRIVE_KEYS.contains(&key.as_str()) && conf::numbered(key, "ipconfig").is_none()
    });
    let yaml = |name: &str| -> Value {
        let text = disc.text(name).unwrap_or_default();
        serde_yaml::from_str(&text).unwrap_or(Value::Null)
    };
    let (meta, network) = (yaml("meta-data"), yaml("network-config"));
    let is_config = disc.text("user-data").is_some_and(|text| text.starts_with("#cloud-config"));
    let user = if is_config { yaml("user-data") } else { Value::Null };
    let login = login(&user);
    let mut keys = texts(&user["ssh_authorized_keys"]);
    keys.extend(texts(&meta["public-keys"]));
    keys.extend(login.as_ref().map(|(_, keys)| keys.clone()).unwrap_or_default());
    if !keys.is_empty() {
        config.insert("sshkeys".into(), encode(&keys.join("\n")));
    }
    if let Some((name, _)) = login {
        config.insert("ciuser".into(), name);
    }
    if let Some(address) = mac.and_then(|mac| address(&network, mac)) {
        config.insert("ipconfig0".into(), address);
    }
    let named = [&user["hostname"], &user["fqdn"], &meta["local-hostname"]];
    let named = named.into_iter().find_map(Value::as_str).unwrap_or(hostname);
    named.split('.').next().unwrap_or(named).to_owned()
}

/// A text, or the texts of a list or map.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Sequence(items) => {
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Value::Mapping(map) => map.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Tagged(_) => Vec::new(),
    }
}

/// The user and the keys of that user; a simulated guest has one user.
fn login(user: &Value) -> Option<(String, Vec<String>)> {
    let one = |value: &Value| match value {
        Value::String(name) if name != "default" => Some((name.clone(), Vec::new())),
        Value::Mapping(_) => {
            let name = value["name"].as_str()?.to_owned();
            Some((name, texts(&value["ssh_authorized_keys"])))
        }
        Value::String(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Sequence(_)
        | Value::Tagged(_) => None,
    };
    let listed = user["users"].as_sequence().map(Vec::as_slice).unwrap_or_default();
    let default = &user["system_info"]["default_user"];
    one(&user["user"]).or_else(|| listed.iter().find_map(one)).or_else(|| one(default))
}

/// The address of the network device with this MAC address, in the format of `ipconfig0`; reads
/// versions 1 and 2.
fn address(network: &Value, mac: &str) -> Option<String> {
    let inner = if network["network"].is_null() { network } else { &network["network"] };
    let is_mac = |value: &Value| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(mac));
    if let Some(nics) = inner["ethernets"].as_mapping() {
        let nic = nics.values().find(|nic| is_mac(&nic["match"]["macaddress"]))?;
        if nic["dhcp4"].as_bool() == Some(true) {
            return Some("ip=dhcp".to_owned());
        }
        return ipconfig(&texts(&nic["addresses"]));
    }
    let nics = inner["config"].as_sequence()?;
    let nic = nics.iter().find(|nic| is_mac(&nic["mac_address"]))?;
    let subnets = nic["subnets"].as_sequence()?;
    if subnets.iter().any(|one| one["type"].as_str().is_some_and(|kind| kind.starts_with("dhcp"))) {
        return Some("ip=dhcp".to_owned());
    }
    ipconfig(&subnets.iter().flat_map(|one| texts(&one["address"])).collect::<Vec<_>>())
}

fn ipconfig(addresses: &[String]) -> Option<String> {
    let parts = addresses.iter().map(|address| {
        let name = if address.contains(':') { "ip6" } else { "ip" };
        format!("{name}={address}")
    });
    let ipconfig = parts.collect::<Vec<_>>().join(",");
    (!ipconfig.is_empty()).then_some(ipconfig)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disc(user: &str, meta: &str, network: &str) -> Disc {
        let files = [("user-data", user), ("meta-data", meta), ("network-config", network)];
        let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
        Disc { label: LABEL.into(), files }
    }

    fn applied(user: &str, meta: &str, network: &str) -> (String, Config) {
        let mut config = Config::from([
            ("ciuser".to_owned(), "old".to_owned()),
            ("ipconfig0".to_owned(), "ip=10.0.0.1/24".to_owned()),
            ("memory".to_owned(), "512".to_owned()),
        ]);
        let disc = disc(user, meta, network);
        let name = apply_disc(&mut config, "vm", Some("BC:24:11:00:00:01"), &disc);
        (name, config)
    }

    // Invariant: a guest with a NoCloud disc gets the values of the disc, and none of Proxmox's
    // drive.

    #[test]
    fn a_disc_names_host_user_keys_and_address() {
        let user = "#cloud-config\nhostname: build-1\nuser: ci\nssh_authorized_keys: [k1]\n";
        let network = "version: 2\nethernets:\n  e0:\n    match: {macaddress: 'bc:24:11:00:00:01'}\n    addresses: [127.0.0.9/8]\n";
        let (name, config) = applied(user, "public-keys: [k2]\n", network);
        assert_eq!(name, "build-1");
        assert_eq!(config["ciuser"], "ci");
        assert_eq!(config["sshkeys"], "k1%0Ak2");
        assert_eq!(config["ipconfig0"], "ip=127.0.0.9/8");
        assert_eq!(config["memory"], "512");
    }

    #[test]
    fn a_script_leaves_all_but_what_the_meta_data_says() {
        let (name, config) = applied("#!/bin/sh\n", "local-hostname: h.example.com\n", "");
        assert_eq!(name, "h");
        assert_eq!(config.keys().collect::<Vec<_>>(), ["memory"]);
    }

    #[test]
    fn users_with_names_of_their_own_are_found_and_version_1_is_read() {
        let user =
            "#cloud-config\nusers:\n  - default\n  - name: runner\n    ssh_authorized_keys: [k]\n";
        let network = "version: 1\nconfig:\n  - {type: physical, mac_address: 'bc:24:11:00:00:01', subnets: [{type: dhcp4}]}\n";
        let (name, config) = applied(user, "", network);
        assert_eq!((name.as_str(), config["ciuser"].as_str()), ("vm", "runner"));
        assert_eq!((config["sshkeys"].as_str(), config["ipconfig0"].as_str()), ("k", "ip=dhcp"));
    }
}
