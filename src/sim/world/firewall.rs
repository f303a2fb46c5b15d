//! Firewalls as configuration: options, rules in their order, and address sets, of the cluster,
//! of nodes and of guests. Nothing is filtered.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::ask::{Ask, failed};
use super::conf::{Config, digest};
use super::state::State;
use crate::sim::call::{Answer, ApiError, Outcome};

/// What an empty file's digest is: guests without a firewall file have it.
const EMPTY: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

/// One firewall.
#[derive(Debug, Default)]
pub struct Firewall {
    options: Config,
    rules: Vec<Config>,
    sets: BTreeMap<String, BTreeMap<String, Config>>,
}

/// Which firewall a call is about; guests need not exist.
fn scope(ask: &Ask) -> String {
    match (ask.node.as_str(), ask.vmid) {
        ("", _) => "cluster".into(),
        (node, 0) => format!("node/{node}"),
        (_, vmid) => format!("guest/{vmid}"),
    }
}

/// Drops the firewall of a guest that was destroyed.
pub fn forget_guest(state: &mut State, vmid: u32) {
    state.firewalls.remove(&format!("guest/{vmid}"));
}

/// Serves a call below a `firewall` route; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str) -> Option<Outcome> {
    let mut state = ask.cluster.state();
    let own = state.firewalls.entry(scope(ask)).or_default();
    let outcome = match (ask.call.method, rest) {
        ("GET", "options") => Ok(Answer::new(options(own))),
        ("PUT", "options") => {
            drop_keys(ask, &mut own.options);
            own.options.extend(stored(ask, &[]));
            Ok(Answer::null())
        }
        ("GET", "rules") => Ok(Answer::new(rules(own))),
        ("POST", "rules") => add_rule(ask, own),
        ("GET", "rules/{pos}") => rule_at(ask, own).map(|pos| Answer::new(rule(own, pos))),
        ("PUT", "rules/{pos}") => change_rule(ask, own),
        ("DELETE", "rules/{pos}") => rule_at(ask, own).map(|pos| {
            own.rules.remove(pos);
            Answer::null()
        }),
        ("GET", "ipset") => Ok(Answer::new(sets(own))),
        ("POST", "ipset") => add_set(ask, own),
        ("GET", "ipset/{name}") => set(ask, own).map(|set| Answer::new(members(set))),
        ("POST", "ipset/{name}") => add_member(ask, own),
        ("DELETE", "ipset/{name}") => remove_set(ask, own),
        ("DELETE", "ipset/{name}/{cidr}") => remove_member(ask, own),
        _ => return None,
    };
    Some(outcome)
}

fn stored(ask: &Ask, left_out: &[&str]) -> Config {
    let never = ["node", "vmid", "delete", "digest", "pos", "moveto", "name", "rename"];
    let keys = ask.params().0.keys().filter(|key| !never.contains(&key.as_str()));
    let keys = keys.filter(|key| !left_out.contains(&key.as_str()));
    keys.filter_map(|key| Some((key.clone(), ask.text(key)?))).collect()
}

fn drop_keys(ask: &Ask, config: &mut Config) {
    for key in ask.text("delete").unwrap_or_default().split([',', ';', ' ']) {
        config.remove(key);
    }
}

fn shown(config: &Config) -> Map<String, Value> {
    const NUMERIC: &[&str] =
        &["enable", "pos", "dhcp", "ndp", "radv", "macfilter", "ipfilter", "ebtables"];
    let typed = |key: &str, value: &str| match value.parse::<i64>() {
        Ok(number) if NUMERIC.contains(&key) => number.into(),
        _ => Value::from(value),
    };
    config.iter().map(|(key, value)| (key.clone(), typed(key, value))).collect()
}

fn digest_of(config: &Config) -> String {
    if config.is_empty() { EMPTY.into() } else { digest(config) }
}

fn options(own: &Firewall) -> Value {
    let mut fields = shown(&own.options);
    fields.insert("digest".into(), digest_of(&own.options).into());
    fields.into()
}

fn rule(own: &Firewall, pos: usize) -> Value {
    let mut fields = own.rules.get(pos).map(shown).unwrap_or_default();
    fields.insert("pos".into(), pos.into());
    fields.entry("enable").or_insert_with(|| 0.into());
    let all: Config = own
        .rules
        .iter()
        .enumerate()
        .flat_map(|(at, rule)| rule.iter().map(move |(key, v)| (format!("{at}.{key}"), v.clone())))
        .collect();
    fields.insert("digest".into(), digest(&all).into());
    fields.into()
}

fn rules(own: &Firewall) -> Value {
    (0..own.rules.len()).map(|pos| rule(own, pos)).collect()
}

fn rule_at(ask: &Ask, own: &Firewall) -> Result<usize, ApiError> {
    let pos = ask.number("pos").unwrap_or(0);
    let at = usize::try_from(pos).unwrap_or(usize::MAX);
    if at < own.rules.len() { Ok(at) } else { Err(failed(format!("no rule at position {pos}"))) }
}

fn sound(rule: &Config) -> Result<(), ApiError> {
    let action = rule.get("action").map(String::as_str).unwrap_or_default();
    if rule.get("type").is_some_and(|kind| kind == "group") {
        let text = format!("no such security group '{action}'");
        return Err(ApiError::parameter("action", text));
    }
    if !matches!(action, "ACCEPT" | "DROP" | "REJECT") {
        return Err(ApiError::parameter("action", format!("unknown action '{action}'")));
    }
    let ports = ["dport", "sport"].into_iter().find(|key| rule.contains_key(*key));
    if ports.is_some() && !rule.contains_key("proto") && !rule.contains_key("macro") {
        return Err(ApiError::parameter("proto", "missing property"));
    }
    Ok(())
}

fn add_rule(ask: &Ask, own: &mut Firewall) -> Outcome {
    let rule = stored(ask, &[]);
    sound(&rule)?;
    // The newest comes first unless a place is said.
    let pos = ask.number("pos").and_then(|pos| usize::try_from(pos).ok()).unwrap_or(0);
    own.rules.insert(pos.min(own.rules.len()), rule);
    Ok(Answer::null())
}

fn change_rule(ask: &Ask, own: &mut Firewall) -> Outcome {
    let pos = rule_at(ask, own)?;
    let mut rule = own.rules.get(pos).cloned().unwrap_or_default();
    drop_keys(ask, &mut rule);
    rule.extend(stored(ask, &[]));
    sound(&rule)?;
    own.rules.remove(pos);
    let place = ask.number("moveto").and_then(|place| usize::try_from(place).ok()).unwrap_or(pos);
    own.rules.insert(place.min(own.rules.len()), rule);
    Ok(Answer::null())
}

fn sets(own: &Firewall) -> Value {
    let line = |name: &String| json!({ "name": name, "digest": EMPTY });
    own.sets.keys().map(line).collect()
}

fn set<'a>(ask: &Ask, own: &'a mut Firewall) -> Result<&'a mut BTreeMap<String, Config>, ApiError> {
    let name = ask.text("name").unwrap_or_default();
    let missing = || failed(format!("no such IPSet '{name}'"));
    own.sets.get_mut(&name).ok_or_else(missing)
}

fn add_set(ask: &Ask, own: &mut Firewall) -> Outcome {
    let name = ask.text("name").unwrap_or_default();
    if let Some(old) = ask.text("rename") {
        let Some(set) = own.sets.remove(&old) else {
            return Err(failed(format!("IPSet '{old}' does not exist")));
        };
        own.sets.insert(name, set);
        return Ok(Answer::null());
    }
    if own.sets.contains_key(&name) {
        return Err(ApiError::parameter("name", format!("IPSet '{name}' already exists")));
    }
    own.sets.insert(name, BTreeMap::new());
    Ok(Answer::null())
}

fn members(set: &BTreeMap<String, Config>) -> Value {
    let line = |(cidr, config): (&String, &Config)| {
        let mut fields = shown(config);
        fields.insert("cidr".into(), cidr.clone().into());
        fields.insert("digest".into(), digest(config).into());
        Value::from(fields)
    };
    set.iter().map(line).collect()
}

fn add_member(ask: &Ask, own: &mut Firewall) -> Outcome {
    let cidr = ask.text("cidr").unwrap_or_default();
    let config = stored(ask, &["cidr"]);
    let members = set(ask, own)?;
    if members.contains_key(&cidr) {
        let text = format!("address '{cidr}' already exists");
        return Err(ApiError::parameter("cidr", text));
    }
    members.insert(cidr, config);
    Ok(Answer::null())
}

fn remove_set(ask: &Ask, own: &mut Firewall) -> Outcome {
    let name = ask.text("name").unwrap_or_default();
    if !set(ask, own)?.is_empty() {
        return Err(failed(format!("IPSet '{name}' is not empty")));
    }
    own.sets.remove(&name);
    Ok(Answer::null())
}

fn remove_member(ask: &Ask, own: &mut Firewall) -> Outcome {
    let cidr = ask.text("cidr").unwrap_or_default();
    set(ask, own)?.remove(&cidr);
    Ok(Answer::null())
}
