//! `service.openId`: the provider at which people log in for the page, and what its groups may do.

use std::time::Duration;

use drover_api::Role;
use drover_openid::Settings;
use proxmox_client::Tls;
use reqwest::Url;

use super::connection::certificates;
use super::context::Context;
use super::demand::is_loopback;
use super::keys::{RawOpenId, RawOpenIdGroup};
use super::layer::Layer;

/// What is asked for beside `openid` where nothing is said.
const SCOPE: &str = "profile";

/// The provider at which people log in.
#[derive(Debug, Clone)]
pub struct OpenIdSpec {
    /// On the button.
    pub name: String,
    /// The provider, and drover as its client.
    pub settings: Settings,
    /// Groups of the provider that may log in.
    pub groups: Vec<OpenIdGroup>,
    /// How long a login lasts.
    pub session: Duration,
    /// Whether a logout ends the session at the provider too.
    pub ends_session: bool,
}

/// What a group of the provider may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenIdGroup {
    /// As the provider spells it.
    pub name: String,
    pub role: Role,
    /// The group whose leases its members share.
    pub group: Option<String>,
}

/// Makes the provider of `service.openId`; none where it is not given, or has faults.
pub(super) fn open_id(service: &Layer, cx: &mut Context<'_>) -> Option<OpenIdSpec> {
    let layer = service.nested("openId").first()?;
    let raw = layer.typed::<RawOpenId>(&mut cx.faults);
    let secret = cx.secret(layer);
    let groups = groups(layer, cx);
    let tls = trusted(layer, cx);
    let raw = raw?;
    let issuer: Option<Url> = raw.issuer.parse().ok();
    if issuer.as_ref().is_some_and(is_plain) {
        let message =
            "others could read logins on the way, and make them up: the issuer is not https";
        let help = "write the issuer with https, or run the provider on this machine";
        cx.faults.push(layer.fault("issuer", message).help(help));
    }
    if raw.redirect_url.parse().is_ok_and(|url| is_plain(&url)) {
        let message = "others can read sessions on the way: the page is not https";
        let help = "put a proxy with TLS before drover, and write redirectUrl with https";
        cx.warnings.push(layer.fault("redirectUrl", message).help(help));
    }
    let host = issuer.and_then(|url| url.host_str().map(str::to_owned));
    let name = raw.name.filter(|name| !name.trim().is_empty()).or(host);
    let scopes = if raw.scopes.is_empty() { vec![SCOPE.to_owned()] } else { raw.scopes };
    Some(OpenIdSpec {
        name: name?,
        settings: Settings {
            issuer: raw.issuer,
            client_id: raw.client_id,
            client_secret: secret?,
            redirect: raw.redirect_url,
            scopes,
            user_claim: raw.user_claim,
            groups_claim: raw.groups_claim,
            tls: tls?,
        },
        groups,
        session: Duration::from_secs(raw.session_hours * 60 * 60),
        ends_session: raw.end_session,
    })
}

/// Whether others can read along: neither TLS nor this machine.
fn is_plain(url: &Url) -> bool {
    url.scheme() != "https" && !url.host_str().is_some_and(is_loopback)
}

fn groups(layer: &Layer, cx: &mut Context<'_>) -> Vec<OpenIdGroup> {
    let mut groups: Vec<OpenIdGroup> = Vec::new();
    if layer.nested("groups").is_empty() && !layer.is_faulty("groups") {
        let fault = layer.missing_fault("groups", "no group may log in");
        cx.faults.push(fault.help("list at least one group with its role"));
    }
    for layer in layer.nested("groups") {
        let Some(raw) = layer.typed::<RawOpenIdGroup>(&mut cx.faults) else { continue };
        if groups.iter().any(|other| other.name == raw.name) {
            let message = format!("another entry has the group `{}`", raw.name);
            cx.faults.push(layer.fault("name", message).help("keep one of them"));
        }
        let group = raw.group.filter(|group| !group.is_empty());
        groups.push(OpenIdGroup { name: raw.name, role: raw.role, group });
    }
    groups
}

/// How the certificate of a server is judged, by `caFile`.
pub(super) fn trusted(layer: &Layer, cx: &mut Context<'_>) -> Option<Tls> {
    let Some(name) = layer.text("caFile").filter(|name| !name.is_empty()) else {
        return (!layer.is_faulty("caFile")).then_some(Tls::System);
    };
    let text = cx.open_file(layer, "caFile", name)?;
    if let Err(reason) = certificates(&text) {
        let fault = layer.fault("caFile", reason);
        cx.faults.push(fault.help("give PEM, one certificate or more"));
        return None;
    }
    Some(Tls::Bundle(vec![text]))
}
