//! Which certificates of a server are accepted: a bundle, pins, the system's CAs, or any.

use proxmox_client::{Tls, parse_pin};
use serde_yaml::Value as Yaml;

use super::connection::certificates;
use super::context::Context;
use super::keys::TRUST;
use super::layer::Layer;

/// The TLS setting of a mapping; `remedy` says what to do where a bundle holds no certificate. None
/// where it has a fault; two keys that contradict are one already.
pub(super) fn tls(layer: &Layer, remedy: &str, cx: &mut Context<'_>) -> Option<Tls> {
    let way = layer.one_of(&TRUST).ok()?;
    if TRUST.into_iter().any(|key| layer.is_faulty(key)) {
        return None;
    }
    let Some(key) = way else { return Some(Tls::System) };
    if key == "ignoreSslErrors" {
        let message =
            "drover does not verify certificates: anyone on the way can read and change everything";
        cx.warnings.push(layer.fault(key, message).help("give pinSha256 or caFile instead"));
        return Some(Tls::Ignore);
    }
    if let Some(pins) = layer.get(key).and_then(Yaml::as_sequence) {
        if pins.is_empty() {
            let fault = layer.fault(key, "no fingerprint is listed");
            cx.faults.push(fault.help("list at least one, or remove the key"));
            return None;
        }
        let pins = pins.iter().filter_map(|pin| parse_pin(pin.as_str()?).ok());
        return Some(Tls::Pins(pins.collect()));
    }
    let given = layer.text(key)?;
    let text = if key == "caFile" { cx.open_file(layer, key, given)? } else { given.to_owned() };
    if let Err(reason) = certificates(&text) {
        cx.faults.push(layer.fault(key, reason).help(remedy));
        return None;
    }
    Some(Tls::Bundle(vec![text]))
}
