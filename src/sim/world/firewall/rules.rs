//! Rules in their order, of a firewall or of a security group.

use serde_json::{Map, Value};

use super::super::ask::{Ask, failed};
use super::super::conf::Config;
use super::super::sections;
use super::{digest_of_all, shown, stored};
use crate::call::{Answer, ApiError, Outcome};

/// Serves a call on a list of rules; none for routes that are not served.
pub fn serve(ask: &Ask, rest: &str, rules: &mut Vec<Config>) -> Option<Outcome> {
    let outcome = match (ask.call.method, rest) {
        ("GET", "") => Ok(Answer::new(list(rules))),
        ("POST", "") => add(ask, rules),
        ("GET", "/{pos}") => at(ask, rules).map(|pos| Answer::new(one(ask, rules, pos))),
        ("PUT", "/{pos}") => change(ask, rules),
        ("DELETE", "/{pos}") => fresh(ask, rules).and_then(|()| {
            let pos = at(ask, rules)?;
            rules.remove(pos);
            Ok(Answer::null())
        }),
        _ => return None,
    };
    Some(outcome)
}

fn fields(rules: &[Config], pos: usize) -> Map<String, Value> {
    let mut fields = rules.get(pos).map(shown).unwrap_or_default();
    fields.entry("enable").or_insert_with(|| 0.into());
    fields.insert("digest".into(), digest_of_all(rules).into());
    fields
}

fn list(rules: &[Config]) -> Value {
    let line = |pos: usize| {
        let mut line = fields(rules, pos);
        line.insert("pos".into(), pos.into());
        Value::from(line)
    };
    (0..rules.len()).map(line).collect()
}

/// One rule has its place as the path says it, which is text (pve-firewall,
/// API2/Firewall/Rules.pm:244).
fn one(ask: &Ask, rules: &[Config], pos: usize) -> Value {
    let mut line = fields(rules, pos);
    line.insert("pos".into(), ask.text("pos").unwrap_or_default().into());
    line.into()
}

fn at(ask: &Ask, rules: &[Config]) -> Result<usize, ApiError> {
    let pos = ask.number("pos").unwrap_or(0);
    let at = usize::try_from(pos).unwrap_or(usize::MAX);
    if at < rules.len() { Ok(at) } else { Err(failed(format!("no rule at position {pos}"))) }
}

/// Refuses a caller that worked on another version of the list.
fn fresh(ask: &Ask, rules: &[Config]) -> Result<(), ApiError> {
    super::fresh(ask, &digest_of_all(rules))
}

fn sound(rule: &Config) -> Result<(), ApiError> {
    let action = rule.get("action").map(String::as_str).unwrap_or_default();
    if rule.get("type").is_some_and(|kind| kind == "group") {
        return Ok(());
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

/// The newest comes first, wherever `pos` says (Rules.pm, create_rule).
fn add(ask: &Ask, rules: &mut Vec<Config>) -> Outcome {
    let rule = stored(ask, &[]);
    sound(&rule)?;
    rules.insert(0, rule);
    Ok(Answer::null())
}

/// The properties that a change takes out of a rule (pve-firewall, Firewall.pm:1648,
/// delete_rule_properties).
fn deleted(ask: &Ask) -> Result<Vec<String>, ApiError> {
    const OWN: [&str; 6] = ["node", "vmid", "group", "delete", "digest", "moveto"];
    let text = ask.text("delete").unwrap_or_default();
    let names: Vec<String> = sections::words(&text).map(str::to_owned).collect();
    for name in &names {
        let refusal = match name.as_str() {
            "type" | "action" => format!("unable to delete required property '{name}'"),
            own if OWN.contains(&own) || !sections::is_parameter(ask, own) => {
                format!("no such property ('{name}')")
            }
            _ => continue,
        };
        return Err(ApiError::parameter("delete", refusal));
    }
    Ok(names)
}

/// A move leaves all else of the rule as it is, and counts places as they were before it
/// (Rules.pm, update_rule).
fn change(ask: &Ask, rules: &mut Vec<Config>) -> Outcome {
    fresh(ask, rules)?;
    let pos = at(ask, rules)?;
    let to = ask.number("moveto").and_then(|place| usize::try_from(place).ok());
    if let Some(to) = to.filter(|to| *to != pos) {
        let rule = rules.remove(pos);
        let place = if to > pos { to - 1 } else { to };
        rules.insert(place.min(rules.len()), rule);
        return Ok(Answer::null());
    }
    let mut rule = rules.get(pos).cloned().unwrap_or_default();
    rule.extend(stored(ask, &[]));
    for key in deleted(ask)? {
        rule.remove(&key);
    }
    sound(&rule)?;
    if let Some(own) = rules.get_mut(pos) {
        *own = rule;
    }
    Ok(Answer::null())
}
