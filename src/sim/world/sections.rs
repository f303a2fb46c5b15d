//! Sections of configuration files whose keys are the parameters of the calls that write them: what
//! a call sets, what it deletes, and the JSON types of answers.

use serde_json::Value;

use super::conf::Config;
use super::context::CallContext;
use crate::api;

pub(crate) use crate::api::typed;
pub(crate) use crate::section_keys::Keys;

/// The items of a list; Proxmox accepts all of these separators.
pub(crate) fn list_items(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ';', ' ', '\0']).filter(|word| !word.is_empty())
}

/// The parameters of a call as a section stores them; each item of a list becomes a line, as in the
/// file.
pub(crate) fn stored_parameters(ctx: &CallContext, omitted: &[&str]) -> Config {
    let params = ctx.params().0.iter().filter(|(key, _)| !omitted.contains(&key.as_str()));
    let text = |key: &str, value: &Value| match value.as_array() {
        Some(items) => Some(items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")),
        None => ctx.text(key),
    };
    params.filter_map(|(key, value)| Some((key.clone(), text(key, value)?))).collect()
}

pub(crate) fn deleted_keys(ctx: &CallContext) -> Vec<String> {
    list_items(&ctx.text("delete").unwrap_or_default()).map(str::to_owned).collect()
}

/// The error of a parameter as text, for checks that run under a lock.
pub(crate) fn parameter_error(name: &str, text: &str) -> String {
    format!("400 Parameter verification failed.\n{name}: {text}")
}

/// Refuses a key that the call both sets and deletes.
///
/// # Errors
/// The text of delete_from_config.
pub(crate) fn check_set_and_delete(ctx: &CallContext, deleted: &[String]) -> Result<(), String> {
    match deleted.iter().find(|name| ctx.params().0.contains_key(*name)) {
        Some(name) => Err(format!("cannot set and delete property '{name}' at the same time!")),
        None => Ok(()),
    }
}

/// Whether the schema of the call has a parameter of this name.
pub(crate) fn is_parameter(ctx: &CallContext, name: &str) -> bool {
    api::is_parameter(ctx.call.method, ctx.call.route, name, ctx.cluster.version)
}
