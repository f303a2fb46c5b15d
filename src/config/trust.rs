//! Which certificates of a server are accepted: a bundle, pins, the system's CAs, or any.

use proxmox_client::{Tls, parse_pin};

use super::connection::certificates;
use super::context::Context;
use super::keys::TRUST;
use super::layer::Layer;

/// The TLS keys of one mapping.
pub(super) struct Trust<'a> {
    pub ca_file: Option<&'a str>,
    pub ca_pem: Option<&'a str>,
    pub pins: Option<&'a [String]>,
    pub ignore: bool,
    /// What to do where a bundle holds no certificate.
    pub remedy: &'static str,
}

/// The TLS setting. None where it has a fault; two keys that contradict are one already.
pub(super) fn tls(trust: &Trust<'_>, layer: &Layer, cx: &mut Context<'_>) -> Option<Tls> {
    if layer.one_of(&TRUST).is_err() || TRUST.into_iter().any(|key| layer.is_faulty(key)) {
        return None;
    }
    if trust.ignore {
        let message =
            "drover does not verify certificates: anyone on the way can read and change everything";
        let fault = layer.fault("ignoreSslErrors", message);
        cx.warnings.push(fault.help("give pinSha256 or caFile instead"));
        return Some(Tls::Ignore);
    }
    if let Some(pins) = trust.pins {
        if pins.is_empty() {
            let fault = layer.fault("pinSha256", "no fingerprint is listed");
            cx.faults.push(fault.help("list at least one, or remove the key"));
            return None;
        }
        return Some(Tls::Pins(pins.iter().filter_map(|pin| parse_pin(pin).ok()).collect()));
    }
    let (key, text) = match (trust.ca_file, trust.ca_pem) {
        (Some(name), _) => ("caFile", cx.open_file(layer, "caFile", name)?),
        (None, Some(text)) => ("caPem", text.to_owned()),
        (None, None) => return Some(Tls::System),
    };
    if let Err(reason) = certificates(&text) {
        cx.faults.push(layer.fault(key, reason).help(trust.remedy));
        return None;
    }
    Some(Tls::Bundle(vec![text]))
}
