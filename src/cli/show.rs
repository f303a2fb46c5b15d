//! `drover show NOUN ID`: one thing in full, with its history, why it waits, and what to run next.
//!
//! What is printed is what the service's lists say of it, every field that holds something, so that a new
//! field is shown as soon as the service has it.

use drover_api::WhySubjectOut;
use drover_model::phase::LeasePhase;
use serde_json::{Map, Value, json};

use super::client::{CALL_LIMIT, Client, LONG_LIMIT};
use super::error::{CliError, failed, usage};
use super::ids;
use super::list_options::ViewOptions;
use super::logs;
use super::options::Noun;
use super::sentences::{clean, did_you_mean};
use super::table::View;
use super::term::{Term, page};
use super::why;

/// Where the service lists the things of one kind.
struct Place {
    path: &'static str,
    /// The lists of its answer that hold them.
    lists: &'static [&'static str],
    /// The field that names one.
    id: &'static str,
}

fn place(noun: Noun) -> Place {
    let (path, lists, id): (_, &'static [&'static str], _) = match noun {
        Noun::Agent => ("/v1/agents", &["agents", "gone"], "id"),
        Noun::Lease => ("/v1/leases", &["leases"], "id"),
        Noun::Template => ("/v1/templates", &["templates"], "id"),
        Noun::Cloud => ("/v1/clouds", &["clouds"], "id"),
        Noun::Node => ("/v1/nodes", &["nodes"], "node"),
        Noun::Source => ("/v1/status", &["sources"], "id"),
        Noun::Job => ("/v1/jobs", &["jobs"], "id"),
        Noun::Alarm => ("/v1/status", &["alarms"], "about"),
        Noun::Image => ("/v1/images", &["images"], "id"),
        Noun::Machine => ("/v1/machines", &["machines"], "name"),
        Noun::Breaker => ("/v1/breakers", &["breakers"], "id"),
        Noun::AddressPool => ("/v1/address-pools", &["addressPools"], "id"),
    };
    Place { path, lists, id }
}

/// Shows one thing.
pub(super) async fn show(
    client: &Client,
    noun: Noun,
    word: &str,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let Place { path, lists, id } = place(noun);
    let mut things = Vec::new();
    let mut query = String::new();
    loop {
        let mut answer: Value = client.get(&format!("{path}{query}"), LONG_LIMIT).await?;
        for list in lists {
            if let Value::Array(some) = answer[*list].take() {
                things.extend(some);
            }
        }
        let next = answer["next"].as_str().map(|next| format!("?after={next}"));
        match next.filter(|next| *next > query) {
            Some(next) => query = next,
            None => break,
        }
    }
    let thing = chosen(noun, id, word, things)?;
    let name = thing[id].as_str().unwrap_or(word).to_owned();
    let why = match noun {
        Noun::Agent | Noun::Lease | Noun::Template | Noun::Node | Noun::Source | Noun::Job => {
            let of = match (noun, thing["source"].as_str()) {
                (Noun::Job, Some(source)) => format!("{source}/{name}"),
                (_, _) => name.clone(),
            };
            // What ended waits for nothing, and the service may know it no more.
            client.get::<WhySubjectOut>(&why::query(&of), CALL_LIMIT).await.ok()
        }
        Noun::Cloud
        | Noun::Alarm
        | Noun::Image
        | Noun::Machine
        | Noun::Breaker
        | Noun::AddressPool => None,
    };
    let next: Vec<String> =
        next(noun, &name, &thing).into_iter().map(|command| client.spelled(&command)).collect();
    let whole = json!({ "kind": noun.one(), noun.one(): thing, "why": why, "next": next });
    page(term, json, &ViewOptions::default(), &whole, |_, page| {
        let view = page.view();
        page.lines(&facts(&thing, id, &view, 0));
        if let Some(why) = &why {
            page.heading("WHY");
            why::subject(why, page);
        }
        if !next.is_empty() {
            page.heading("NEXT");
            next.iter().for_each(|command| page.line(command));
        }
    })
}

/// The thing that a word names: by its whole name, its last part, or the start of its id.
fn chosen(noun: Noun, id: &str, word: &str, things: Vec<Value>) -> Result<Value, CliError> {
    let name = |thing: &Value| thing[id].as_str().unwrap_or_default().to_owned();
    // What an alarm is about has its kind before it, as in `cloud lab`.
    let rules: [&dyn Fn(&str) -> bool; 2] =
        [&|name| name == word, &|name| name.rsplit(['/', ' ']).next() == Some(word)];
    for rule in rules {
        let found: Vec<&Value> = things.iter().filter(|thing| rule(&name(thing))).collect();
        let mut names: Vec<String> = found.iter().map(|thing| name(thing)).collect();
        names.sort();
        names.dedup();
        match (found.first(), names.len()) {
            (Some(one), 1) => return Ok((*one).clone()),
            (None, _) => {}
            (Some(_), _) => {
                let (word, noun, list) = (clean(word), noun.one(), noun.list());
                return Err(usage(format!(
                    "`{word}` is more than one {noun}: {}; `drover {list}` lists them",
                    ids::listed(&names)
                )));
            }
        }
    }
    let names: Vec<String> = things.iter().map(name).collect();
    // Names may be short; only ids have starts that are too short.
    let has_ids = matches!(noun, Noun::Agent | Noun::Lease);
    let whole = match has_ids || ids::is_start(word) {
        true => ids::whole(noun.one(), &format!("drover {}", noun.list()), word, &names)?,
        false => word.to_owned(),
    };
    if let Some(one) = things.iter().find(|thing| name(thing) == whole) {
        return Ok(one.clone());
    }
    let parts =
        names.iter().flat_map(|name| [name.as_str(), name.rsplit('/').next().unwrap_or(name)]);
    let (near, word) = (did_you_mean(word, parts), clean(word));
    let (noun, list) = (noun.one(), noun.list());
    Err(failed(format!("unknown {noun} `{word}`;{near} `drover {list}` lists them")))
}

/// Commands that go on from here.
pub(super) fn next(noun: Noun, name: &str, thing: &Value) -> Vec<String> {
    let gone = thing["goneAt"].is_string();
    let all: &[&str] = match noun {
        Noun::Agent if gone => &["drover logs {}"],
        Noun::Agent => &["drover logs {} --follow", "drover ssh {}", "drover retire {}"],
        Noun::Lease => next_of_lease(thing),
        Noun::Template => &["drover doctor template {}", "drover provision {}"],
        Noun::Cloud => &["drover doctor"],
        Noun::Node if thing["state"] == "drained" => &["drover uncordon {}"],
        Noun::Node if thing["state"] == "cordoned" => &["drover drain {}", "drover uncordon {}"],
        Noun::Node => &["drover cordon {}", "drover drain {}"],
        Noun::Source | Noun::Job => &["drover jobs"],
        Noun::Alarm => &[],
        Noun::Image => &["drover image build {}"],
        Noun::Machine => &["drover machine show {}"],
        Noun::Breaker => &["drover breakers reset {}"],
        Noun::AddressPool => &["drover agents"],
    };
    let own = thing["command"].as_str().map(str::to_owned);
    let name = drover_ssh::quote(name);
    own.into_iter().chain(all.iter().map(|command| command.replace("{}", &name))).collect()
}

/// Commands that the service takes for a lease as it stands; it shows for whom a lease is only to those
/// whose lease it is.
fn next_of_lease(thing: &Value) -> &'static [&'static str] {
    let is_own = thing["owner"].as_str().is_some_and(|owner| !owner.is_empty());
    let phase = serde_json::from_value::<LeasePhase>(thing["state"].clone());
    match (phase, is_own) {
        (Ok(LeasePhase::Waiting), true) => &["drover why {}", "drover lease release {}"],
        (Ok(LeasePhase::Waiting), false) => &["drover why {}"],
        (Ok(LeasePhase::Granted), true) => &["drover lease release {}"],
        (Ok(LeasePhase::Ready), true) => {
            &["drover lease renew {} --ttl 1h", "drover ssh {}", "drover lease release {}"]
        }
        (Ok(LeasePhase::Granted | LeasePhase::Ready), false)
        | (Ok(LeasePhase::Ended) | Err(_), _) => &[],
    }
}

/// Fields that come first, in this order, behind the name of the thing; the others follow by their names.
const FIRST: [&str; 19] = [
    "name",
    "what",
    "state",
    "since",
    "detail",
    "template",
    "cloud",
    "source",
    "cluster",
    "node",
    "vmid",
    "address",
    "ssh",
    "login",
    "agent",
    "lease",
    "leases",
    "wants",
    "heldUntil",
];
/// Fields that are long, and come last.
const LAST: [&str; 2] = ["orders", "phases"];

/// Where a field of a thing stands, whose name is in the field `id`.
fn rank(key: &str, id: &str) -> usize {
    if key == id {
        return 0;
    }
    if let Some(last) = LAST.iter().position(|last| *last == key) {
        return FIRST.len() + 2 + last;
    }
    FIRST.iter().position(|first| *first == key).map_or(FIRST.len() + 1, |at| at + 1)
}

/// The fields of a thing that hold something, one `key: value` a line; what a field holds of its own
/// stands below it, further in.
pub(super) fn facts(thing: &Value, id: &str, view: &View, depth: usize) -> String {
    let Value::Object(fields) = thing else { return line(&plain(thing, view), depth) };
    let mut text = String::new();
    let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
    fields.sort_by_key(|(key, _)| (rank(key, id), *key));
    for (key, value) in fields {
        if is_nothing(value) {
            continue;
        }
        let key = words_of(key);
        match value {
            Value::Array(items) if key == "phases" => {
                text += &line("history:", depth);
                items.iter().for_each(|item| text += &phase(item, depth + 1));
            }
            Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                text += &line(&format!("{key}:"), depth);
                items.iter().for_each(|item| text += &entry(item, view, depth + 1));
            }
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| plain(item, view)).collect();
                text += &line(&format!("{key}: {}", items.join(", ")), depth);
            }
            Value::Object(inner) if inner.values().all(Value::is_number) => {
                text += &line(&format!("{key}: {}", counts(inner)), depth);
            }
            Value::Object(_) => {
                text += &line(&format!("{key}:"), depth);
                text += &facts(value, "id", view, depth + 1);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                text += &line(&format!("{key}: {}", plain(value, view)), depth);
            }
        }
    }
    text
}

/// An entry of a list, its first line marked.
fn entry(item: &Value, view: &View, depth: usize) -> String {
    let text = facts(item, "id", view, depth + 1);
    let margin = "  ".repeat(depth);
    match text.strip_prefix(&format!("{margin}  ")) {
        Some(rest) => format!("{margin}- {rest}"),
        None => text,
    }
}

/// A part of a life, with its length.
fn phase(item: &Value, depth: usize) -> String {
    let seconds = item["ms"].as_u64().unwrap_or(0) as f64 / 1000.0;
    let state = clean(&logs::part(item["state"].as_str().unwrap_or_default()));
    line(&format!("{seconds:8.1} s  {state}"), depth)
}

fn counts(fields: &Map<String, Value>) -> String {
    let some = fields.iter().filter(|(_, count)| count.as_f64() != Some(0.0));
    let all: Vec<String> = some.map(|(key, count)| format!("{} {count}", clean(key))).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn line(text: &str, depth: usize) -> String {
    format!("{}{text}\n", "  ".repeat(depth))
}

/// A value in words; a time as lists show it.
fn plain(value: &Value, view: &View) -> String {
    match value {
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => clean(&view.time(text)),
        Value::String(text) => clean(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            clean(&value.to_string())
        }
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A key of JSON as words: `heldUntil` is `held until`.
fn words_of(key: &str) -> String {
    let mut text = String::new();
    for c in key.chars() {
        if c.is_ascii_uppercase() {
            text.push(' ');
        }
        text.push(c.to_ascii_lowercase());
    }
    clean(&text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: every field that holds something is shown, and nothing in it moves the cursor.

    #[test]
    fn a_thing_is_lines_of_keys_and_values() {
        let thing = json!({
            "id": "4f8z1c3p", "state": "Ready", "detail": "", "vmid": 10042, "heldUntil": null,
            "labels": ["linux", "x64"], "states": {"Ready": 2, "Gone": 0},
            "ssh": {"host": "10.0.0.7", "port": 22}, "orders": [{"what": "reboot\u{7}", "state": "done"}],
            "phases": [{"state": "Cloning", "ms": 8200}, {"state": "Booting", "ms": 21040}],
        });
        let exact = View::complete("2026-11-21T08:00:00Z".parse().unwrap());
        insta::assert_snapshot!(facts(&thing, "id", &exact, 0));
    }

    #[test]
    fn what_a_thing_is_and_where_comes_first_and_times_are_ages_on_a_terminal() {
        let thing = json!({
            "cluster": "9f31c0aa52e7d410", "detail": "is in use", "heldUntil": "2026-11-21T10:00:00Z",
            "id": "4f8z1c3p", "leases": ["lease-7ab1"], "login": "open", "node": "pve1",
            "phases": [{"state": "Ready", "ms": 1000}], "since": "2026-11-21T07:58:00Z",
            "ssh": {"host": "10.0.0.7", "port": 22}, "state": "Held", "template": "lab/linux",
            "uses": 1, "vmid": 10042, "labels": ["2026"],
        });
        let exact = View::complete("2026-11-21T08:00:00Z".parse().unwrap());
        let people = View { utc: false, ..exact };
        let node = json!({"agents": 3, "cluster": "9f31c0aa", "node": "pve1", "state": "cordoned"});
        let text = [
            facts(&thing, "id", &people, 0),
            facts(&thing, "id", &exact, 0),
            facts(&node, "node", &people, 0),
        ];
        insta::assert_snapshot!(text.join("\n"));
    }

    // Invariant: no command is suggested that the service refuses.

    #[test]
    fn a_lease_is_renewed_once_it_is_ready_and_only_by_those_whose_it_is() {
        let mut text = String::new();
        for state in ["waiting", "granted", "ready", "ended"] {
            for (whose, owner) in [("own", "token:alice"), ("of another", "")] {
                let thing = json!({"id": "lease-7ab1", "state": state, "owner": owner});
                let commands = next(Noun::Lease, "lease-7ab1", &thing).join("; ");
                text += &format!("{state}, {whose}: {commands}\n");
            }
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_name_is_found_by_its_last_part_and_an_id_by_its_start() {
        let things = || {
            vec![
                json!({"id": "lab/linux"}),
                json!({"id": "rack/linux"}),
                json!({"id": "lab/windows"}),
            ]
        };
        let of = |word: &str| chosen(Noun::Template, "id", word, things());
        assert_eq!(of("windows").unwrap()["id"], "lab/windows");
        assert_eq!(of("rack/linux").unwrap()["id"], "rack/linux");
        assert_eq!(of("rack").unwrap()["id"], "rack/linux");
        let refused = |word: &str| of(word).unwrap_err().to_string();
        insta::assert_snapshot!([refused("linux"), refused("windos"), refused("lab")].join("\n"));
    }
}
