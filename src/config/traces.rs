//! `service.traces`: the collector of OpenTelemetry that takes traces of agents.

use drover_spans::{Header, Settings};
use reqwest::Url;
use secrecy::SecretString;

use super::context::Context;
use super::demand::is_loopback;
use super::keys::{RawHeader, RawTraces};
use super::layer::Layer;
use super::openid::trusted;

/// Makes the collector of `service.traces`; none where it is not given, or has faults.
pub(super) fn traces(service: &Layer, cx: &mut Context<'_>) -> Option<Settings> {
    let layer = service.nested("traces").first()?;
    let raw = layer.typed::<RawTraces>(&mut cx.faults);
    let headers: Vec<Option<(Header, bool)>> =
        layer.nested("headers").iter().map(|header| self::header(header, cx)).collect();
    let tls = trusted(layer, cx);
    let raw = raw?;
    let has_secret = headers.iter().flatten().any(|(_, is_secret)| *is_secret);
    let is_plain = raw
        .endpoint
        .parse()
        .is_ok_and(|url: Url| url.scheme() != "https" && !url.host_str().is_some_and(is_loopback));
    if is_plain && has_secret {
        let message = "others could read the secrets of the headers on the way: it is not https";
        let help = "write it with https, or send to a collector on this machine that has the login";
        cx.faults.push(layer.fault("endpoint", message).help(help));
    }
    let headers: Option<Vec<Header>> =
        headers.into_iter().map(|header| header.map(|(header, _)| header)).collect();
    Some(Settings { endpoint: raw.endpoint, headers: headers?, tls: tls? })
}

/// A header, and whether its value is a secret.
fn header(layer: &Layer, cx: &mut Context<'_>) -> Option<(Header, bool)> {
    let raw = layer.typed::<RawHeader>(&mut cx.faults);
    let is_secret = layer.chosen().is_ok_and(|key| key != "value");
    let value = if is_secret { cx.secret(layer) } else { plain(layer, raw.as_ref(), cx) };
    let header = Header { name: raw?.name, value: value? };
    if layer.is_faulty("name") {
        return None;
    }
    if !header.is_sound() {
        let key = layer.chosen().unwrap_or("name");
        let message = "the value has characters that a header cannot have";
        cx.faults.push(layer.fault(key, message).help("use printable ASCII, on one line"));
        return None;
    }
    Some((header, is_secret))
}

/// The value of a header that is no secret.
fn plain(layer: &Layer, raw: Option<&RawHeader>, cx: &mut Context<'_>) -> Option<SecretString> {
    if let Err(fault) = layer.chosen() {
        cx.faults.push(fault);
        return None;
    }
    Some(SecretString::from(raw?.value.clone()?))
}
