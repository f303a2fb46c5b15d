//! `service.notify`: over which channels drover sends what is wrong, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_notify::{Channel, Kind, Mail, MailTls, Ntfy, Secret, Settings, Via, Wanted, Webhook};
use proxmox_client::Tls;
use secrecy::ExposeSecret as _;

use super::connection::certificates;
use super::context::Context;
use super::keys::{NOTIFY_TIMES, RawMail, RawMailLogin, RawNotify, RawNtfy, RawWebhook};
use super::layer::Layer;

/// The most channels: each has a task of its own.
const CHANNELS_MAX: usize = 20;
/// The most who get one mail.
const RECIPIENTS_MAX: usize = 50;
/// A shorter secret can be guessed.
const MIN_SECRET_BYTES: usize = 16;

/// Makes the settings of `service.notify`; without it there are no channels.
pub(super) fn notify(service: &Layer, cx: &mut Context<'_>) -> Settings {
    let (group_sec, recovery_sec, repeat_hours) = NOTIFY_TIMES;
    let raw = service.inner::<RawNotify>("notify", &mut cx.faults);
    let raw = raw.unwrap_or(RawNotify { group_sec, recovery_sec, repeat_hours, page_url: None });
    let mut channels: Vec<Channel> = Vec::new();
    for layer in service.nested("notify") {
        for (kind, of) in [
            ("webhooks", webhook as fn(&Layer, &mut Context<'_>) -> Option<Channel>),
            ("mails", mail),
            ("ntfy", ntfy),
        ] {
            for one in layer.nested(kind) {
                let Some(channel) = of(one, cx) else { continue };
                if channels.iter().any(|other| other.name == channel.name) {
                    let message = format!("another channel has the name `{}`", channel.name);
                    let fault = one.fault("name", message);
                    cx.faults.push(fault.help("give each channel a unique name"));
                }
                channels.push(channel);
                if channels.len() == CHANNELS_MAX + 1 {
                    let message = format!("there are more than {CHANNELS_MAX} channels");
                    cx.faults.push(one.fault("name", message).help("remove some"));
                }
            }
        }
        if channels.is_empty() && !layer.has_faulty() {
            let fault = service.fault("notify", "no channel is configured, so nothing is sent");
            cx.warnings.push(fault.help("add an item to `webhooks`, `mails` or `ntfy`"));
        }
    }
    Settings {
        group: Duration::from_secs(raw.group_sec),
        recovery: Duration::from_secs(raw.recovery_sec),
        repeat: Some(Duration::from_secs(raw.repeat_hours * 3600)).filter(|span| !span.is_zero()),
        page: raw
            .page_url
            .filter(|url| !url.is_empty())
            .map(|url| url.trim_end_matches('/').to_owned()),
        channels,
    }
}

fn wanted(kinds: &[String], quiet: &[String]) -> Wanted {
    let read = |words: &[String]| -> BTreeSet<Kind> {
        words.iter().filter_map(|word| Kind::of(word)).collect()
    };
    Wanted { kinds: read(kinds), quiet: read(quiet) }
}

fn trust(layer: &Layer, cx: &mut Context<'_>) -> Option<Tls> {
    let Some(name) = layer.text("caFile").filter(|name| !name.is_empty()) else {
        return Some(Tls::System);
    };
    let text = cx.open_file(layer, "caFile", name)?;
    if let Err(reason) = certificates(&text) {
        let fault = layer.fault("caFile", reason);
        cx.faults.push(fault.help("give the CA certificates of the server as PEM"));
        return None;
    }
    Some(Tls::Bundle(vec![text]))
}

fn webhook(layer: &Layer, cx: &mut Context<'_>) -> Option<Channel> {
    let raw = layer.typed::<RawWebhook>(&mut cx.faults);
    let tls = trust(layer, cx);
    let signing = match layer.nested("signing").first() {
        Some(of) => {
            let secret = cx.secret(of);
            if secret.as_ref().is_some_and(|one| one.expose_secret().len() < MIN_SECRET_BYTES) {
                let fault = layer.fault("signing", "the secret is short");
                cx.warnings.push(fault.help("make one with `openssl rand -hex 32`"));
            }
            Some(Secret::from(secret?))
        }
        None => None,
    };
    let (raw, tls) = raw.zip(tls)?;
    if raw.url.starts_with("http:") {
        let fault = layer.fault("url", "others can read and change messages: the URL is not https");
        cx.warnings.push(fault.help("use https"));
    }
    let via = Webhook { url: Secret::new(raw.url), format: raw.format, secret: signing, tls };
    let wanted = wanted(&raw.kinds, &raw.quiet_kinds);
    Some(Channel { name: raw.name, wanted, via: Via::Webhook(via) })
}

fn mail(layer: &Layer, cx: &mut Context<'_>) -> Option<Channel> {
    let raw = layer.typed::<RawMail>(&mut cx.faults);
    let tls = trust(layer, cx);
    let login = match layer.nested("login").first() {
        Some(of) => {
            let raw = of.typed::<RawMailLogin>(&mut cx.faults);
            let secret = cx.secret(of);
            let (raw, secret) = raw.zip(secret)?;
            Some((raw.username, Secret::from(secret)))
        }
        None => None,
    };
    let (raw, tls) = raw.zip(tls)?;
    let (host, port) = raw.server.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if raw.tls == MailTls::None && login.is_some() {
        let message = "others can read the password on the way: `tls` is none";
        cx.warnings.push(layer.fault("tls", message).help("use startTls or tls"));
    }
    if raw.to.len() > RECIPIENTS_MAX {
        let message = format!("there are more than {RECIPIENTS_MAX} addresses");
        cx.faults.push(layer.fault("to", message).help("name a mailing list"));
    }
    let via = Mail {
        host,
        port: port.parse().ok()?,
        security: raw.tls,
        tls,
        login,
        from: raw.from.parse().ok()?,
        to: raw.to.iter().filter_map(|one| one.parse().ok()).collect(),
    };
    let wanted = wanted(&raw.kinds, &raw.quiet_kinds);
    Some(Channel { name: raw.name, wanted, via: Via::Mail(Box::new(via)) })
}

fn ntfy(layer: &Layer, cx: &mut Context<'_>) -> Option<Channel> {
    let raw = layer.typed::<RawNtfy>(&mut cx.faults);
    let tls = trust(layer, cx);
    let token = match layer.nested("access").first() {
        Some(of) => Some(Secret::from(cx.secret(of)?)),
        None => None,
    };
    let (raw, tls) = raw.zip(tls)?;
    if raw.server.starts_with("http:") && token.is_some() {
        let message = "others can read the token on the way: the URL is not https";
        cx.warnings.push(layer.fault("server", message).help("use https"));
    }
    let priority = raw.priority.and_then(|number| u8::try_from(number).ok());
    let via = Ntfy { url: raw.server.parse().ok()?, topic: raw.topic, token, priority, tls };
    let wanted = wanted(&raw.kinds, &raw.quiet_kinds);
    Some(Channel { name: raw.name, wanted, via: Via::Ntfy(via) })
}
