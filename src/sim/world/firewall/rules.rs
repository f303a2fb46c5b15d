//! Ordered rules of a firewall or of a security group.

use serde_json::{Map, Value};

use super::super::conf::Config;
use super::super::context::{CallContext, failed};
use super::super::sections;
use super::{digest_of_all, json_fields, stored_parameters};
use crate::call::{Answer, ApiError, Outcome};

/// Serves a call on a list of rules; none for unknown routes.
pub(crate) fn serve(ctx: &CallContext, rest: &str, rules: &mut Vec<Config>) -> Option<Outcome> {
    let outcome = match (ctx.call.method, rest) {
        ("GET", "") => Ok(Answer::new(list(rules))),
        ("POST", "") => add(ctx, rules),
        ("GET", "/{pos}") => rule_index(ctx, rules).map(|pos| Answer::new(entry(ctx, rules, pos))),
        ("PUT", "/{pos}") => change(ctx, rules),
        ("DELETE", "/{pos}") => check_rules_digest(ctx, rules).and_then(|()| {
            let pos = rule_index(ctx, rules)?;
            rules.remove(pos);
            Ok(Answer::null())
        }),
        _ => return None,
    };
    Some(outcome)
}

fn rule_fields(rules: &[Config], pos: usize) -> Map<String, Value> {
    let mut fields = rules.get(pos).map(json_fields).unwrap_or_default();
    fields.entry("enable").or_insert_with(|| 0.into());
    fields.insert("digest".into(), digest_of_all(rules).into());
    fields
}

fn list(rules: &[Config]) -> Value {
    let line = |pos: usize| {
        let mut line = rule_fields(rules, pos);
        line.insert("pos".into(), pos.into());
        Value::from(line)
    };
    (0..rules.len()).map(line).collect()
}

/// One rule; its position is text, as in the path (pve-firewall, API2/Firewall/Rules.pm:244).
fn entry(ctx: &CallContext, rules: &[Config], pos: usize) -> Value {
    let mut line = rule_fields(rules, pos);
    line.insert("pos".into(), ctx.text("pos").unwrap_or_default().into());
    line.into()
}

fn rule_index(ctx: &CallContext, rules: &[Config]) -> Result<usize, ApiError> {
    let pos = ctx.number("pos").unwrap_or(0);
    let index = usize::try_from(pos).unwrap_or(usize::MAX);
    if index < rules.len() { Ok(index) } else { Err(failed(format!("no rule at position {pos}"))) }
}

/// Refuses a call whose `digest` differs from that of the list.
fn check_rules_digest(ctx: &CallContext, rules: &[Config]) -> Result<(), ApiError> {
    super::check_digest(ctx, &digest_of_all(rules))
}

fn check_rule(rule: &Config) -> Result<(), ApiError> {
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

/// Adds a rule at the top, whatever `pos` says (Rules.pm, create_rule).
fn add(ctx: &CallContext, rules: &mut Vec<Config>) -> Outcome {
    let rule = stored_parameters(ctx, &[]);
    check_rule(&rule)?;
    rules.insert(0, rule);
    Ok(Answer::null())
}

/// The properties that a change deletes from a rule (pve-firewall, Firewall.pm:1648,
/// delete_rule_properties).
fn deleted(ctx: &CallContext) -> Result<Vec<String>, ApiError> {
    const FIXED_PARAMETERS: [&str; 6] = ["node", "vmid", "group", "delete", "digest", "moveto"];
    let text = ctx.text("delete").unwrap_or_default();
    let names: Vec<String> = sections::list_items(&text).map(str::to_owned).collect();
    for name in &names {
        let refusal = match name.as_str() {
            "type" | "action" => format!("unable to delete required property '{name}'"),
            own if FIXED_PARAMETERS.contains(&own) || !sections::is_parameter(ctx, own) => {
                format!("no such property ('{name}')")
            }
            _ => continue,
        };
        return Err(ApiError::parameter("delete", refusal));
    }
    Ok(names)
}

/// Changes or moves a rule. A move changes nothing else, and counts positions as they were before
/// it (Rules.pm, update_rule).
fn change(ctx: &CallContext, rules: &mut Vec<Config>) -> Outcome {
    check_rules_digest(ctx, rules)?;
    let pos = rule_index(ctx, rules)?;
    let to = ctx.number("moveto").and_then(|place| usize::try_from(place).ok());
    if let Some(to) = to.filter(|to| *to != pos) {
        let rule = rules.remove(pos);
        let place = if to > pos { to - 1 } else { to };
        rules.insert(place.min(rules.len()), rule);
        return Ok(Answer::null());
    }
    let mut rule = rules.get(pos).cloned().unwrap_or_default();
    rule.extend(stored_parameters(ctx, &[]));
    for key in deleted(ctx)? {
        rule.remove(&key);
    }
    check_rule(&rule)?;
    if let Some(own) = rules.get_mut(pos) {
        *own = rule;
    }
    Ok(Answer::null())
}
