//! Checks of single texts of `service.notify`.

use std::net::Ipv6Addr;

use drover_notify::Kind;
use reqwest::Url;

use super::value::{Checked, begins_alphanumeric, complain, made_of, must};

/// Checks the URL of a webhook. It may contain a secret, so no complaint shows it.
pub(super) fn hook_url(text: &str) -> Checked {
    const FORM: &str = "write it as `https://hooks.example.com/drover`";
    let url = text.parse::<Url>().ok();
    let is_web = url.is_some_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.host_str().is_some()
            && url.username().is_empty()
            && url.password().is_none()
    });
    if is_web { Ok(()) } else { Err(complain("it is not the URL of a web server", FORM)) }
}

/// Checks the name of a channel of notifications.
pub(super) fn channel(text: &str) -> Checked {
    const FORM: &str = "use letters, digits, `-` and `_`, at most 40";
    must(drover_notify::is_name(text), text, "a name of a channel", FORM)
}

/// Checks a kind of trouble.
pub(super) fn trouble(text: &str) -> Checked {
    const KINDS: &str = "use journal, otherDrover, actor, cloud, source, breaker, configuration, git, \
                         auditLog, agent, template, image or channel";
    must(Kind::of(text).is_some(), text, "a kind of trouble", KINDS)
}

/// Checks the address of mail of one who sends or gets it.
pub(super) fn mail_address(text: &str) -> Checked {
    const FORM: &str = "write it as `ops@example.com` or `Ops <ops@example.com>`";
    must(drover_notify::is_address(text), text, "an address of mail", FORM)
}

/// Checks host and port of a mail server.
pub(super) fn mail_server(text: &str) -> Checked {
    const FORM: &str = "write it as `mail.example.com:587`";
    let parts = text.rsplit_once(':');
    let sound = parts.is_some_and(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => !host.is_empty() && made_of(host, ".-") && begins_alphanumeric(host),
        };
        is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    must(sound, text, "a host with port", FORM)
}

/// Checks a topic of ntfy.
pub(super) fn topic(text: &str) -> Checked {
    const FORM: &str = "use letters, digits, `-` and `_`, at most 64";
    let sound = (1..=64).contains(&text.len()) && made_of(text, "-_");
    must(sound, text, "a topic of ntfy", FORM)
}
