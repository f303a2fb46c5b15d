//! Sections of configuration files whose keys are the parameters of the calls that write them: what
//! a call sets, what it deletes, and the types that answers have.

use serde_json::Value;

use super::ask::Ask;
use super::conf::Config;
use crate::api;

pub(crate) use crate::api::typed;
pub(crate) use crate::section_keys::Keys;

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

/// The keys that a call names in `delete`.
pub fn deleted(ask: &Ask) -> Vec<String> {
    words(&ask.text("delete").unwrap_or_default()).map(str::to_owned).collect()
}

/// The refusal of a parameter where a lock around the check makes text of it.
pub fn refusal(name: &str, text: &str) -> String {
    format!("400 Parameter verification failed.\n{name}: {text}")
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
    api::is_parameter(ask.call.method, ask.call.route, name, ask.cluster.version)
}
