//! Reasons as HTML: names of things lead to their pages, and commands that the page can carry out have a button.

use drover_api::{Role, TROUBLESHOOTING};
use serde_json::json;

use crate::frame::Frame;
use crate::hints::{Entries, Hints, KeyInForce};
use crate::{clauses, moments};

/// The most characters that a name of a thing has.
const LONGEST_NAME: usize = 200;
/// A value of more characters that stands in a text is not there by chance.
const WORD: usize = 6;
/// How commands begin that change something on a node of Proxmox VE.
const PROXMOX: [&str; 6] = ["pveum ", "pvesm ", "pvesh ", "qm ", "pct ", "ha-manager "];

/// Text as HTML: what stands between backticks as code, and agents, leases, templates, clouds and nodes as
/// links to their pages.
pub(crate) fn marked(text: &str) -> String {
    written(text, None)
}

/// The same with clusters by the names of their clouds, with the values of keys of the configuration, with a link to
/// the heading of the book that says what to do, and with a button at the end for each command that the page can
/// carry out for this role, in the place of its clause.
pub(crate) fn with_orders(text: &str, frame: &Frame) -> String {
    with_orders_of(text, frame, "")
}

/// The same of what is about something, such as `cloud lab`, whose keys the text may name.
pub(crate) fn with_orders_of(text: &str, frame: &Frame, about: &str) -> String {
    let text = frame.named(text);
    let mut ordered: Vec<&str> = Vec::new();
    let mut buttons = String::new();
    // Where no address may be used, nobody can log in, either.
    let is_vain =
        |command: &str| command.starts_with("drover hold-next ") && text.contains("guestNetworks");
    for command in text.split('`').skip(1).step_by(2) {
        // One is enough, however often it is named.
        if !ordered.contains(&command) && !is_vain(command) {
            ordered.push(command);
            let order = Order::of(command, frame.role);
            buttons.extend(order.map(|order| order.button(command)));
        }
    }
    let has_button = |command: &str| is_vain(command) || Order::of(command, frame.role).is_some();
    let rest = clauses::without(&text, has_button);
    let html = written(&rest, Some((&*frame.hints, Entries::of(about))));
    html + &what_to_do(&text, &frame.hints) + &buttons
}

/// The same, each of its clauses on a line of its own, and commands of Proxmox VE with a button that copies them: it
/// is read in a hurry.
pub(crate) fn in_lines(text: &str, frame: &Frame, about: &str) -> String {
    with_copies(
        &with_orders_of(&clauses::apart(text), frame, about).replace(clauses::BREAK, "<br>"),
    )
}

/// HTML with a button behind each command of Proxmox VE that copies it: it is run elsewhere.
fn with_copies(html: &str) -> String {
    let mut rest = html;
    let mut done = String::with_capacity(html.len());
    while let Some((before, (code, after))) = rest
        .split_once("<code>")
        .and_then(|(before, rest)| Some((before, rest.split_once("</code>")?)))
    {
        done += &format!("{before}<code>{code}</code>");
        if PROXMOX.iter().any(|tool| code.starts_with(tool)) {
            done += &format!(
                " <button type=\"button\" class=\"small\" data-copy=\"{code}\">Copy</button>"
            );
        }
        rest = after;
    }
    done + rest
}

/// The same of what is about a template, `cloud/template`.
pub(crate) fn of_template(text: &str, frame: &Frame, id: &str) -> String {
    with_orders_of(text, frame, &format!("template {id}"))
}

/// Keys of the configuration of a template.
pub(crate) fn keys(keys: &[String], frame: &Frame, id: &str) -> String {
    let text = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    of_template(&text, frame, id)
}

/// A link to the heading of the book that says what to do; blank where none does.
fn what_to_do(text: &str, hints: &Hints) -> String {
    let Some(heading) = hints.heading(text) else { return String::new() };
    format!(
        " <a class=\"remedy\" href=\"/docs/{TROUBLESHOOTING}#{}\" title=\"{}\">What to do</a>",
        escaped(&heading.anchor),
        escaped(&heading.title)
    )
}

/// How much of a key in a sentence was said before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Value,
    /// Its value and its place.
    All,
}

/// A key as a link to its line of the configuration, with what was not said yet of its value and place.
fn key_of(key: &str, found: &KeyInForce<'_>, said: Said) -> String {
    let address = format!("/configuration?q=key:{}#values-title", encoded(&found.path));
    let link = format!("<a href=\"{}\"><code>{}</code></a>", escaped(&address), escaped(key));
    // The folder of a file is the same for all, and long.
    let place = match found.origin {
        "default" => "the default",
        origin => origin.rsplit('/').next().unwrap_or_default(),
    };
    let text = match said {
        Said::Nothing => format!("now {}, {}", escaped(found.value), escaped(place)),
        Said::Value => escaped(place),
        Said::All => return link,
    };
    let origin = escaped(found.origin);
    format!("{link} <span class=\"value\" title=\"{origin}\">{text}</span>")
}

/// Text as HTML, without what a button says that stands elsewhere on the page.
pub(crate) fn without_orders(text: &str, frame: &Frame) -> String {
    let has_button = |command: &str| Order::of(command, frame.role).is_some();
    marked(&clauses::without(&frame.named(text), has_button))
}

/// What a button sends.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    label: String,
    call: String,
    body: Option<String>,
    /// What is asked before; blank where it takes nothing away.
    ask: String,
}

impl Order {
    /// What carries out a command; none where no call does, or not for this role.
    fn of(command: &str, role: Role) -> Option<Self> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let (verb, name) = match *words.as_slice() {
            ["drover", "uncordon", node] => ("uncordon", node),
            ["drover", "breakers", "reset", breaker] => ("reset", breaker),
            ["drover", "hold-next", template] => ("hold-next", template),
            ["drover", "release", lease] => ("release", lease),
            ["drover", "reload"] => ("reload", ""),
            ["drover", "resync"] => ("resync", ""),
            ["drover", "sync"] => ("sync", ""),
            _ => return None,
        };
        let id = encoded(name);
        let least = match verb {
            "release" | "resync" => Role::Operator,
            _ => Role::Admin,
        };
        let order = |label: String, call: String, body: Option<serde_json::Value>, ask: &str| {
            Self { label, call, body: body.map(|body| body.to_string()), ask: ask.to_owned() }
        };
        let order = match verb {
            "uncordon" => order(
                format!("Use {name} again"),
                format!("POST /v1/nodes/{id}/drain"),
                Some(json!({ "undrain": true })),
                &format!("Let new agents be made on node {name} again?"),
            ),
            "reset" => {
                order("Try again now".to_owned(), format!("POST /v1/breakers/{id}/reset"), None, "")
            }
            "hold-next" => order(
                "Hold the next failure".to_owned(),
                format!("POST /v1/templates/{id}/hold-next"),
                Some(json!({ "seconds": 7200 })),
                "Hold the next agent of this template that fails? It stays for two hours, with a login.",
            ),
            "release" => order(
                "End the lease".to_owned(),
                format!("DELETE /v1/leases/{id}"),
                None,
                "End this lease? What runs under it ends, too.",
            ),
            "reload" => {
                order("Read it again".to_owned(), "POST /v1/reload".to_owned(), Some(json!({})), "")
            }
            "sync" => order(
                "Sync".to_owned(),
                "POST /v1/sync".to_owned(),
                Some(json!({})),
                "Bring into force what git has?",
            ),
            _ => order(
                "Resync".to_owned(),
                "POST /v1/resync".to_owned(),
                Some(json!({})),
                "Read every cluster and carry out what is found? drover also reads its configuration again.",
            ),
        };
        (role >= least).then_some(order)
    }

    fn button(&self, command: &str) -> String {
        let body = self.body.as_ref().map(|body| format!(" data-body=\"{}\"", escaped(body)));
        let ask = match self.ask.as_str() {
            "" => String::new(),
            ask => format!(" data-ask=\"{}\"", escaped(ask)),
        };
        format!(
            " <button type=\"button\" class=\"small\" data-do=\"{}\"{}{ask} data-command=\"{}\">{}</button>",
            escaped(&self.call),
            body.unwrap_or_default(),
            escaped(command),
            escaped(&self.label)
        )
    }
}

/// Text as HTML.
fn written(text: &str, hints: Option<(&Hints, Entries)>) -> String {
    let mut html = String::with_capacity(text.len() + 16);
    let mut parts = text.split('`').peekable();
    let (mut is_code, mut before) = (false, "");
    let mut known: Vec<String> = Vec::new();
    let (hints, entries) = hints.unzip();
    let mut entries = entries.unwrap_or_default();
    while let Some(part) = parts.next() {
        match (is_code, parts.peek().is_some()) {
            (true, true) => {
                entries.names(before, part);
                let code = format!("<code>{}</code>", escaped(part));
                // A key may stand with what it has, such as `node: pve1`.
                let (key, has_value) =
                    part.split_once(": ").map_or((part, false), |(key, _)| (key, true));
                let found = hints.and_then(|hints| entries.key(hints, key));
                html += &match (listed(part), address(before, part, true), found) {
                    (Some((page, name)), ..) => format!("<a href=\"{page}\">{name}</a>"),
                    (None, Some(address), _) => {
                        format!("<a href=\"{}\">{code}</a>", escaped(&address))
                    }
                    (None, None, Some(found)) => {
                        let value = found.value.trim_matches('"');
                        let has_value = has_value || value.len() > WORD && text.contains(value);
                        let said = match known.contains(&found.path) {
                            true => Said::All,
                            false if has_value => Said::Value,
                            false => Said::Nothing,
                        };
                        let link = key_of(part, &found, said);
                        known.push(found.path);
                        link
                    }
                    (None, None, None) => code,
                };
                before = "";
            }
            // A backtick that nothing closes is one.
            (true, false) => html.extend(["`", &escaped(part)]),
            (false, _) => before = plain(&mut html, part, &mut entries),
        }
        is_code = !is_code;
    }
    html
}

/// Adds text without code; gives its last word where a name may follow.
fn plain<'a>(html: &mut String, text: &'a str, entries: &mut Entries) -> &'a str {
    let mut before = "";
    for piece in text.split_inclusive(' ') {
        let word = piece.trim_end_matches(' ');
        let name = word.trim_end_matches([',', ';', ':', '.', ')']);
        let is_ended = name.len() < word.len();
        entries.names(before, name.trim_start_matches('('));
        if moments::is_moment(name) {
            moments::add(html, name);
            *html += &escaped(piece.get(name.len()..).unwrap_or_default());
            before = "";
            continue;
        }
        match address(before, name, is_ended).filter(|_| !name.is_empty()) {
            Some(address) => {
                let rest = piece.get(name.len()..).unwrap_or_default();
                let (address, name) = (escaped(&address), escaped(name));
                *html += &format!("<a href=\"{address}\">{name}</a>{}", escaped(rest));
            }
            None => *html += &escaped(piece),
        }
        before = word.trim_start_matches(['(', clauses::BREAK]);
    }
    if text.ends_with(' ') { before } else { "" }
}

fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// The page that lists what a command lists, and its name.
fn listed(command: &str) -> Option<(&'static str, &'static str)> {
    match command.strip_prefix("drover ")? {
        "leases" => Some(("/leases", "Leases")),
        "agents" => Some(("/agents", "Agents")),
        "jobs" => Some(("/jobs", "Jobs")),
        "events" => Some(("/events", "Events")),
        "status" => Some(("/", "Herd")),
        _ => None,
    }
}

/// The page of what has this name behind that word; none where it may be a word of the sentence. A name that
/// stands as code, or before a comma, is one for certain.
fn address(before: &str, name: &str, is_certain: bool) -> Option<String> {
    let is_of_name = |one: char| one.is_ascii_alphanumeric() || "-_./".contains(one);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_of_name) {
        return None;
    }
    let has_digit = name.chars().any(|one| one.is_ascii_digit());
    let is_id = has_digit && !name.contains(['/', '.']);
    match before {
        "agent" if is_id => Some(format!("/agents/{}", encoded(name))),
        "lease" if is_id => Some(format!("/leases/{}", encoded(name))),
        "template" if name.split('/').count() == 2 => Some(format!("/templates/{name}")),
        "cloud" if is_certain && !name.contains('/') => Some(format!("/#cloud-{name}")),
        "node" if is_id || is_certain && !name.contains('/') => Some("/nodes".to_owned()),
        _ => None,
    }
}

/// The page of what an alarm is about, such as `cloud lab`.
pub(crate) fn place(about: &str) -> Option<String> {
    match about.split_once(' ') {
        Some((kind @ ("agent" | "template" | "cloud"), name)) => address(kind, name, true),
        Some(("source", name)) => Some(format!("/jobs?q=source:{}", encoded(name))),
        Some(_) => (about == "audit log").then(|| "/audit".to_owned()),
        None => (about == "configuration").then(|| "/configuration".to_owned()),
    }
}

/// A name as a part of an address.
pub(crate) fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                text.push(char::from(byte));
            }
            other => text += &format!("%{other:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::frame;

    // Invariant: text stays text, whatever is in it.

    #[test]
    fn text_stays_text_with_code_between_backticks() {
        assert_eq!(
            marked("run `drover why <id>` & \"wait\""),
            "run <code>drover why &lt;id&gt;</code> &amp; &quot;wait&quot;"
        );
        assert_eq!(marked("a ` b"), "a ` b");
        assert_eq!(marked("`<b>` and `"), "<code>&lt;b&gt;</code> and `");
    }

    // Invariant: a name leads to the page of what it names, and a word of a sentence leads nowhere.

    #[test]
    fn names_behind_their_kind_are_links() {
        for (text, html) in [
            ("on agent a1, gone", "on agent <a href=\"/agents/a1\">a1</a>, gone"),
            ("agent `x7` goes", "agent <a href=\"/agents/x7\"><code>x7</code></a> goes"),
            ("the agent goes", "the agent goes"),
            ("lease lease-7f:", "lease <a href=\"/leases/lease-7f\">lease-7f</a>:"),
            ("(template lab/linux)", "(template <a href=\"/templates/lab/linux\">lab/linux</a>)"),
            ("template `linux`", "template <code>linux</code>"),
            ("cloud lab: gone", "cloud <a href=\"/#cloud-lab\">lab</a>: gone"),
            ("no cloud that works", "no cloud that works"),
            ("node pve2 is offline", "node <a href=\"/nodes\">pve2</a> is offline"),
            ("agent <b>1", "agent &lt;b&gt;1"),
            ("`drover leases` says it", "<a href=\"/leases\">Leases</a> says it"),
            (
                "tripped until 2026-11-29T02:00:00Z: no",
                "tripped <time datetime=\"2026-11-29T02:00:00Z\" data-word=\"until\">until 2026-11-29 \
                 02:00:00</time>: no",
            ),
        ] {
            assert_eq!(marked(text), html);
        }
        assert_eq!(place("cloud lab").as_deref(), Some("/#cloud-lab"));
        assert_eq!(place("configuration").as_deref(), Some("/configuration"));
        assert_eq!(place("another drover"), None);
    }

    // Invariant: a key in code leads to its line for what the text is about, with its value, once.

    #[test]
    fn keys_lead_to_their_values_for_what_the_text_is_about() {
        let frame = frame(Role::Operator);
        let of = |text: &str, about: &str| with_orders_of(text, &frame, about);
        let link = |path: &str, key: &str| {
            format!("<a href=\"/configuration?q=key:{path}#values-title\"><code>{key}</code></a>")
        };
        let memory = link("agentConfigurations.linux.memoryMb", "memoryMb");
        assert_eq!(
            of("lower `memoryMb`, `memoryMb`", "template lab/linux"),
            format!(
                "lower {memory} <span class=\"value\" title=\"drover.yaml:14\">now 2048, drover.yaml:14</span>, {memory}"
            )
        );
        // The text says which entry it is.
        let cap = link("cloudConfigurations.lab.instanceCap", "instanceCap");
        let full = of("cloud lab is full: 8 of 8 (`instanceCap`)", "template lab/linux");
        assert!(
            full.contains(&format!("({cap} <span class=\"value\" title=\"drover.yaml:9\">now 8, ")),
            "{full}"
        );
        let own = link("agentConfigurations.linux.instanceCap", "instanceCap");
        let full = of("lab/linux is full: 4 of 4 (`instanceCap`)", "");
        assert!(
            full.contains(&format!(
                "({own} <span class=\"value\" title=\"default\">now 4, the default"
            )),
            "{full}"
        );
        // A word is none, nor is a key of something else, nor what has no code.
        for (text, about) in [
            ("the url", "source git"),
            ("`url`", "cloud lab"),
            ("`memoryMb`", ""),
            ("memoryMb", "template lab/linux"),
        ] {
            assert!(!of(text, about).contains("href"), "{text}");
        }
        assert!(of("`url`", "source git").contains(">now https://git.lan, drover.yaml:22<"));
        // A key that stands with what it has says it already.
        let with_value = link("agentConfigurations.linux.memoryMb", "memoryMb: 2048");
        let place = "<span class=\"value\" title=\"drover.yaml:14\">drover.yaml:14</span>";
        let text = of("it has `memoryMb: 2048`", "template lab/linux");
        assert_eq!(text, format!("it has {with_value} {place}"));
        let silent = of("no answer of `https://git.lan` (`url`)", "source git");
        assert!(silent.contains("title=\"drover.yaml:22\">drover.yaml:22<"), "{silent}");
    }

    // Invariant: a reason that the book has leads to the heading there.

    #[test]
    fn a_reason_leads_to_what_to_do() {
        let frame = frame(Role::Viewer);
        assert_eq!(
            with_orders("512 MiB are needed", &frame),
            "512 MiB are needed <a class=\"remedy\" href=\"/docs/troubleshooting#no-node-takes-an-agent\" \
             title=\"No node takes an agent\">What to do</a>"
        );
        assert_eq!(with_orders("all is well", &frame), "all is well");
    }

    // Invariant: a command that the page can carry out has a button for those who may, once.

    #[test]
    fn a_command_has_a_button_for_the_roles_that_may_give_it() {
        let text = "drained: `drover uncordon pve1` ends that; `drover uncordon pve1`";
        let html = with_orders(text, &frame(Role::Admin));
        assert_eq!(html.matches("<button").count(), 1, "{html}");
        assert!(html.starts_with("drained <button"), "{html}");
        assert!(html.contains("data-do=\"POST /v1/nodes/pve1/drain\""), "{html}");
        assert!(html.contains("data-body=\"{&quot;undrain&quot;:true}\""), "{html}");
        assert!(html.contains(">Use pve1 again</button>"), "{html}");
        assert!(!with_orders(text, &frame(Role::Operator)).contains("<button"));
        let release = with_orders("`drover release l7`", &frame(Role::Operator));
        assert!(release.contains("data-do=\"DELETE /v1/leases/l7\" data-ask="), "{release}");
        let reset = with_orders("`drover breakers reset lab/linux`", &frame(Role::Admin));
        assert!(reset.contains("POST /v1/breakers/lab%2Flinux/reset"), "{reset}");
        let other =
            with_orders("`drover doctor --cloud lab` `drover uncordon`", &frame(Role::Admin));
        assert!(!other.contains("<button"), "{other}");
        let vain = "set `guestNetworks`; `drover hold-next lab/linux` keeps the next";
        assert_eq!(with_orders(vain, &frame(Role::Admin)), "set <code>guestNetworks</code>");
    }

    // Invariant: what is run on a node of Proxmox VE can be copied from the alarm that names it.

    #[test]
    fn a_command_of_proxmox_in_an_alarm_can_be_copied() {
        let html =
            in_lines("run `qm set 9000 --name 'x'`; see `drover doctor`", &frame(Role::Viewer), "");
        let button = "<button type=\"button\" class=\"small\" data-copy=\"qm set 9000 --name &#39;x&#39;\">Copy</button>";
        let code = "<code>qm set 9000 --name &#39;x&#39;</code>";
        assert_eq!(html, format!("run {code} {button}; <br>see <code>drover doctor</code>"));
        let html = in_lines("no; node `pve2`: no", &frame(Role::Viewer), "");
        assert_eq!(html, "no; <br>node <a href=\"/nodes\"><code>pve2</code></a>: no");
    }

    // Invariant: an operator knows clouds, and no fingerprint.

    #[test]
    fn a_cluster_is_called_by_its_clouds() {
        let html = with_orders("cluster `9f31c0aa52e7d410` has no quorum", &frame(Role::Viewer));
        assert_eq!(html, "the cluster of cloud lab has no quorum");
    }
}
