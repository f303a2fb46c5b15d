//! Keys of `service.notify`.

use drover_notify::{Format, MailTls};

use super::super::channels;
use super::credential::{SECRET_KEYS, SECRETS};
use super::{Key, Kind, Raw, Table, choice, key, mapping, mappings, text, value, whole};

/// Seconds and hours of `service.notify` by default: `groupSec`, `recoverySec`, `repeatHours`.
pub(in super::super) const NOTIFY_TIMES: (u64, u64, u64) = (30, 60, 4);

table! {
    /// Keys of `service.notify`.
    NOTIFY => RawNotify {
        "groupSec" => group_sec: u64, whole(1..=3600).or(NOTIFY_TIMES.0),
            "seconds that drover collects what goes wrong before it sends one message";
        "recoverySec" => recovery_sec: u64, whole(1..=86_400).or(NOTIFY_TIMES.1),
            "seconds that a trouble must be gone before drover sends its end";
        "repeatHours" => repeat_hours: u64, whole(0..=720).or(NOTIFY_TIMES.2),
            "hours after which drover sends again what still stands; 0: never";
        "pageUrl" => page_url: Option<String>, text().check(value::url)
                .eg(r#""https://drover.example.com""#),
            "address of the page, for links in messages; unset: no links";
        "webhooks", mappings(&WEBHOOK), "servers that take messages as JSON";
        "mails", mappings(&MAIL), "mail servers and who gets mail";
        "ntfy", mappings(&NTFY), "topics of ntfy, for phones";
    }
}

const NAME_HELP: &str = "name of the channel: letters, digits, - and _, at most 40";
const KINDS_HELP: &str = "kinds of trouble that the channel sends; empty: all";
const QUIET_HELP: &str = "kinds of trouble that the channel does not send";
const CA_HELP: &str = "CA certificates of the server, PEM; unset: those of the system";

const NAME: Key = text().required().check(channels::channel).eg(r#""ops""#);
const KINDS: Key = key(Kind::Texts).or_empty().check(channels::trouble).eg("[cloud, breaker]");
const CA_FILE: Key = text().eg("/etc/drover/ca.pem");

table! {
    /// Keys of each item of `service.notify.webhooks`.
    WEBHOOK => RawWebhook {
        "name" => name: String, NAME, NAME_HELP;
        "url" => url: String,
            text().required().check(channels::hook_url).secret()
                .eg(r#""https://hooks.example.com/drover""#),
            "where drover posts messages; shown nowhere, since it may contain a secret";
        "format" => format: Format, choice(&["drover", "slack"]).or_text("drover"),
            "body: drover, with every field; or slack, one text, for Slack and Mattermost";
        "signing", mapping(&SIGNING).eg("{secretFile: /etc/drover/hook}"),
            "secret that signs bodies (HMAC-SHA256); unset: no signature";
        "caFile", CA_FILE, CA_HELP;
        "kinds" => kinds: Vec<String>, KINDS, KINDS_HELP;
        "quietKinds" => quiet_kinds: Vec<String>, KINDS, QUIET_HELP;
    }
}

table! {
    /// Keys of `signing`.
    SIGNING, one_of: SECRET_KEYS, shared: SECRETS {}
}

table! {
    /// Keys of each item of `service.notify.mails`.
    MAIL => RawMail {
        "name" => name: String, NAME, NAME_HELP;
        "server" => server: String,
            text().required().check(channels::mail_server).eg(r#""mail.example.com:587""#),
            "mail server, host and port";
        "tls" => tls: MailTls, choice(&["startTls", "tls", "none"]).or_text("startTls"),
            "encryption: startTls after a plain start (port 587), tls from the start (465), or none";
        "login", mapping(&LOGIN).eg("{username: drover, secretFile: /etc/drover/mail}"),
            "login at the server; unset: none";
        "from" => from: String, text().required().check(channels::mail_address)
                .eg(r#""drover <drover@example.com>""#),
            "sender";
        "to" => to: Vec<String>,
            key(Kind::Texts).required().check(channels::mail_address)
                .filled("nobody gets the mail", "name at least one address")
                .eg(r#"["ops@example.com"]"#),
            "who gets the mail";
        "caFile", CA_FILE, CA_HELP;
        "kinds" => kinds: Vec<String>, KINDS, KINDS_HELP;
        "quietKinds" => quiet_kinds: Vec<String>, KINDS, QUIET_HELP;
    }
}

table! {
    /// Keys of `login`.
    LOGIN, one_of: SECRET_KEYS, shared: SECRETS => RawMailLogin {
        "username" => username: String, text().required().check(value::filled).eg(r#""drover""#),
            "user at the mail server; the secret is the password";
    }
}

table! {
    /// Keys of each item of `service.notify.ntfy`.
    NTFY => RawNtfy {
        "name" => name: String, NAME, NAME_HELP;
        "server" => server: String, text().or_text("https://ntfy.sh").check(value::url),
            "server of ntfy";
        "topic" => topic: String, text().required().check(channels::topic).eg(r#""drover-ops""#),
            "topic: letters, digits, - and _; who knows it can read it, unless the server forbids that";
        "access", mapping(&ACCESS).eg("{secretFile: /etc/drover/ntfy}"),
            "access token of the server; unset: none";
        "priority" => priority: Option<u64>, whole(1..=5).eg("4"),
            "priority of all messages, 5 is the highest; unset: by severity, 3 to 5";
        "caFile", CA_FILE, CA_HELP;
        "kinds" => kinds: Vec<String>, KINDS, KINDS_HELP;
        "quietKinds" => quiet_kinds: Vec<String>, KINDS, QUIET_HELP;
    }
}

table! {
    /// Keys of `access`.
    ACCESS, one_of: SECRET_KEYS, shared: SECRETS {}
}
