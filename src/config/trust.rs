//! Which certificates of a server are taken: a bundle, pins, the system's authorities, or any.

use proxmox_client::{Tls, parse_pin};

use super::connection::certificates;
use super::credential::Vault;
use super::layer::Layer;

/// What one mapping says of it.
pub(super) struct Trust<'a> {
    pub ca_file: Option<&'a str>,
    pub ca_pem: Option<&'a str>,
    pub pins: Option<&'a [String]>,
    pub ignore: bool,
    /// What to do where a bundle holds no certificate.
    pub remedy: &'static str,
}

/// What that comes to; the faults go to the vault. At most one of the ways is given.
pub(super) fn tls(trust: &Trust<'_>, layer: &Layer, vault: &mut Vault<'_>) -> Option<Tls> {
    if trust.ignore {
        let fault = layer.fault(
            "ignoreSslErrors",
            "certificates are not verified: whoever stands between can read and change everything",
        );
        vault.warnings.push(fault.help("give pinSha256 or caFile for it"));
        return Some(Tls::Ignore);
    }
    if let Some(pins) = trust.pins {
        if pins.is_empty() {
            let fault = layer.fault("pinSha256", "no fingerprint is listed");
            vault.faults.push(fault.help("list at least one, or leave the key out"));
            return None;
        }
        return Some(Tls::Pins(pins.iter().filter_map(|pin| parse_pin(pin).ok()).collect()));
    }
    let (key, text) = match (trust.ca_file, trust.ca_pem) {
        (Some(name), _) => ("caFile", vault.open_file(layer, "caFile", name)?),
        (None, Some(text)) => ("caPem", text.to_owned()),
        (None, None) => return Some(Tls::System),
    };
    if let Err(reason) = certificates(&text) {
        vault.faults.push(layer.fault(key, reason).help(trust.remedy));
        return None;
    }
    Some(Tls::Bundle(vec![text]))
}
