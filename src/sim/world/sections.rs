//! Sections of configuration files whose keys are the parameters of the calls that write them: what
//! a call sets, what it deletes, and the types that answers have.

use serde_json::Value;

use super::ask::Ask;
use super::conf::Config;
use crate::sim::door::{self, Kind};

/// Words of a list: what parts them in any of Proxmox's lists.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';', ' ', '\0']).filter(|word| !word.is_empty())
}

/// The parameters of a call as a section keeps them: a list has a line for each of its items, as in
/// the file.
pub fn stored(ask: &Ask, left_out: &[&str]) -> Config {
    let params = ask.params().0.iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
    let text = |key: &str, value: &Value| match value.as_array() {
        Some(items) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")),
        None => ask.text(key),
    };
    params.filter_map(|(key, value)| Some((key.clone(), text(key, value)?))).collect()
}

/// The keys that a call takes out of a section. `own` are parameters that are no keys, and
/// `required` are keys that a section cannot lack (pve-common, SectionConfig.pm:1853,
/// delete_from_config).
///
/// # Errors
/// `no such option 'x'`, or that the section requires it.
pub fn deleted(ask: &Ask, own: &[&str], required: &[&str]) -> Result<Vec<String>, String> {
    let text = ask.text("delete").unwrap_or_default();
    let names: Vec<String> = words(&text).map(str::to_owned).collect();
    for name in &names {
        if required.contains(&name.as_str()) {
            return Err(format!("unable to delete required option '{name}'"));
        }
        if own.contains(&name.as_str()) || !is_parameter(ask, name) {
            return Err(format!("no such option '{name}'"));
        }
    }
    Ok(names)
}

/// Refuses a key that is both set and deleted.
///
/// # Errors
/// The text of delete_from_config.
pub fn set_apart(ask: &Ask, deleted: &[String]) -> Result<(), String> {
    match deleted.iter().find(|name| ask.params().0.contains_key(*name)) {
        Some(name) => Err(format!("cannot set and delete property '{name}' at the same time!")),
        None => Ok(()),
    }
}

/// Whether the call could have had a parameter of this name.
pub fn is_parameter(ask: &Ask, name: &str) -> bool {
    door::is_parameter(ask.call.method, ask.call.route, name, ask.cluster.version)
}

/// A value as answers carry it: what the schema of these routes calls a number or a boolean is a
/// number, and a list is one (pve-common, SectionConfig.pm:1209, check_value).
pub fn typed(is_of: impl Fn(&str) -> bool, key: &str, text: &str) -> Value {
    match door::kind_of(is_of, key) {
        Some(Kind::Boolean | Kind::Integer | Kind::Number) => {
            text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
        }
        Some(Kind::Array) => text.lines().collect(),
        Some(Kind::String) | None => text.into(),
    }
}
