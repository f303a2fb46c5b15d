//! The cloud-init calls: rebuild the image, and show its content.

use drover_nocloud::CloudInitTexts;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::checks::CLOUDINIT_KEYS;
use super::conf::{self, Config, Nic};
use super::context::{CallContext, failed};
use crate::call::{Answer, ApiError, Outcome};

/// How a password is shown.
const MASKED_PASSWORD: &str = "**********";

/// `GET …/cloudinit`: the content of the image. Every change reaches the image at once, so nothing
/// is pending (qemu-server, API2/Qemu.pm:1968).
pub(crate) fn pending(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
    let own = guest.config.iter().filter(|(key, value)| {
        let known =
            CLOUDINIT_KEYS.contains(&key.as_str()) || conf::numbered(key, "ipconfig").is_some();
        known && !matches!(value.as_str(), "" | "0")
    });
    let lines =
        own.map(|(key, value)| json!({ "key": key, "value": conf::json_value(key, value) }));
    Ok(Answer::new(lines.collect::<Vec<Value>>().into()))
}

/// `PUT …/cloudinit`.
pub(crate) async fn rebuild(ctx: &CallContext) -> Outcome {
    let _file = ctx.cluster.vm_write_lock(&ctx.node, ctx.vmid, 10, None).await.map_err(failed)?;
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
    guest.ensure_unlocked().map_err(failed)?;
    if conf::drives(&guest.config).iter().any(|(_, drive)| drive.is_cloudinit()) {
        return Ok(Answer::null());
    }
    Err(failed("no cloud-init drive found".into()))
}

/// `GET …/cloudinit/dump`.
pub(crate) fn dump(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let guest = state.vm(&ctx.node, ctx.vmid).map_err(ApiError::failed)?;
    let config = &guest.config;
    let text = match ctx.text("type").as_deref() {
        Some("network") => network_config(config),
        Some("meta") => meta_data(config, ctx.vmid),
        _ => user_data(config, ctx.vmid, MASKED_PASSWORD),
    };
    Ok(Answer::new(text.into()))
}

/// The texts in the image, with the password as it is.
pub(crate) fn texts(config: &Config, vmid: u32) -> CloudInitTexts {
    let password = config.get("cipassword").map_or("", String::as_str);
    CloudInitTexts {
        user_data: user_data(config, vmid, password),
        meta_data: meta_data(config, vmid),
        network_config: Some(network_config(config)),
    }
}

fn meta_data(config: &Config, vmid: u32) -> String {
    let all = format!("{}{}", user_data(config, vmid, MASKED_PASSWORD), network_config(config));
    let id = Sha256::digest(all).into_iter().take(20);
    let id: String = id.map(|byte| format!("{byte:02x}")).collect();
    format!("instance-id: {id}\n")
}

fn user_data(config: &Config, vmid: u32, password: &str) -> String {
    let name = config.get("name").cloned().unwrap_or_else(|| format!("VM{vmid}"));
    let host = name.split('.').next().unwrap_or(&name);
    let fqdn = match config.get("searchdomain") {
        Some(domain) if !name.contains('.') => format!("{name}.{domain}"),
        _ => name.clone(),
    };
    let mut text =
        format!("#cloud-config\nhostname: {host}\nmanage_etc_hosts: true\nfqdn: {fqdn}\n");
    if let Some(user) = config.get("ciuser") {
        text.push_str(&format!("user: {user}\n"));
    }
    if config.contains_key("cipassword") {
        text.push_str(&format!("password: {password}\n"));
    }
    if let Some(keys) = config.get("sshkeys") {
        let keys = percent_decode_str(keys).decode_utf8_lossy().into_owned();
        text.push_str("ssh_authorized_keys:\n");
        for key in keys.lines().filter(|key| !key.trim().is_empty()) {
            text.push_str(&format!("  - {key}\n"));
        }
    }
    text.push_str("chpasswd:\n  expire: False\nusers:\n  - default\n");
    if config.get("ciupgrade").is_none_or(|upgrade| upgrade != "0") {
        text.push_str("package_upgrade: true\n");
    }
    text
}

fn network_config(config: &Config) -> String {
    let mut text = "version: 1\nconfig:\n".to_owned();
    for n in 0..32 {
        let Some(nic) = config.get(&format!("net{n}")).and_then(|net| Nic::parse(net)) else {
            continue;
        };
        let mac = nic.mac.unwrap_or_default().to_lowercase();
        text.push_str(&format!(
            "    - type: physical\n      name: eth{n}\n      mac_address: '{mac}'\n      subnets:\n"
        ));
        let addresses = config.get(&format!("ipconfig{n}")).cloned().unwrap_or_default();
        let setting = |name: &str| {
            let mut parts = addresses.split(',').filter_map(|part| part.split_once('='));
            parts.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let mut fixed = |kind: &str, address: &str, gateway: Option<&str>| {
            text.push_str(&format!("      - type: {kind}\n"));
            if !address.is_empty() {
                text.push_str(&format!("        address: '{address}'\n"));
            }
            if let Some(gateway) = gateway {
                text.push_str(&format!("        gateway: '{gateway}'\n"));
            }
        };
        match setting("ip") {
            Some("dhcp") => fixed("dhcp4", "", None),
            Some(address) => fixed("static", address, setting("gw")),
            None => {}
        }
        // qemu-server, Cloudinit.pm, `nocloud_network`.
        match setting("ip6") {
            Some("dhcp") => fixed("dhcp6", "", None),
            Some("auto") => fixed("ipv6_slaac", "", None),
            Some(address) => fixed("static6", address, setting("gw6")),
            None => {}
        }
    }
    let servers = config.get("nameserver").map_or("192.0.2.53", String::as_str);
    text.push_str("    - type: nameserver\n      address:\n");
    for server in servers.split_whitespace() {
        text.push_str(&format!("      - '{server}'\n"));
    }
    if let Some(domain) = config.get("searchdomain") {
        text.push_str(&format!("      search:\n      - '{domain}'\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: the network of the image has both families of addresses, in Proxmox's own words.

    #[test]
    fn a_card_has_its_addresses_of_both_families() {
        let of = |ipconfig: &str| {
            let config = Config::from([
                ("net0".to_owned(), "virtio=BC:24:11:00:00:01,bridge=vmbr0".to_owned()),
                ("ipconfig0".to_owned(), ipconfig.to_owned()),
            ]);
            let text = network_config(&config);
            let (_, subnets) = text.split_once("subnets:\n").unwrap_or_default();
            let (subnets, _) = subnets.split_once("    - type: nameserver").unwrap_or_default();
            subnets.to_owned()
        };
        for (ipconfig, subnets) in [
            ("ip6=dhcp", "      - type: dhcp6\n"),
            ("ip=dhcp,ip6=auto", "      - type: dhcp4\n      - type: ipv6_slaac\n"),
            (
                "ip=10.1.0.5/24,gw=10.1.0.1,ip6=fd00::5/64,gw6=fd00::1",
                "      - type: static\n        address: '10.1.0.5/24'\n        gateway: '10.1.0.1'\n      \
                 - type: static6\n        address: 'fd00::5/64'\n        gateway: 'fd00::1'\n",
            ),
        ] {
            assert_eq!(of(ipconfig), subnets, "{ipconfig}");
        }
    }
}
