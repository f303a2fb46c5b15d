//! Validates parameters, in the order and with the words of Proxmox (book: proxmox, section 2).
//!
//! In: the decoded values of a request. Out: typed [`Params`], or errors by parameter name.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::format;
use super::schema::{Kind, Property, Route, SCHEMA};
use crate::call::Params;
use crate::spec::PveVersion;

const MISSING_PROPERTY: &str = "property is missing and it is not optional";
const UNKNOWN_PROPERTY: &str =
    "property is not defined in schema and the schema does not allow additional properties";

/// A decoded value before validation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    /// Text, and numbers of JSON bodies.
    Text(String),
    /// `true` or `false` of a JSON body.
    Flag(bool),
    /// A repeated form key, or an array of a JSON body.
    List(Vec<Input>),
    /// `null` of a JSON body.
    Null,
    /// An object of a JSON body: no parameter takes one.
    Object,
}

impl Input {
    /// The value as text, for path templates and permission checks.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Flag(flag) => if *flag { "1" } else { "0" }.into(),
            Self::List(items) => items.iter().map(Self::text).collect::<Vec<_>>().join(","),
            Self::Null | Self::Object => String::new(),
        }
    }
}

type Errors = BTreeMap<String, String>;

/// Validates all parameters of a call.
///
/// # Errors
/// Texts by parameter name, for the `errors` of the answer.
pub(crate) fn params(
    route: &Route,
    version: PveVersion,
    inputs: &BTreeMap<String, Input>,
) -> Result<Params, Errors> {
    let mut errors = Errors::new();
    let mut values = BTreeMap::new();
    for (name, property) in SCHEMA.params(route) {
        if !property.optional && property.count.is_none() && !inputs.contains_key(name) {
            errors.insert(name.to_owned(), MISSING_PROPERTY.into());
        }
    }
    for (name, input) in inputs {
        let Some(property) = SCHEMA.param(route, name, version) else {
            if route.additional {
                values.insert(name.clone(), Value::String(input.text()));
            } else {
                errors.insert(name.clone(), UNKNOWN_PROPERTY.into());
            }
            continue;
        };
        match value(property, name, &adapt(property, input), version) {
            Ok(value) => {
                values.insert(name.clone(), value);
            }
            Err(text) => {
                errors.insert(name.clone(), text);
            }
        }
        if let Some(needed) = &property.requires
            && !inputs.contains_key(needed)
        {
            let text = format!("missing property - '{name}' requires this property");
            errors.insert(needed.clone(), text);
        }
    }
    if errors.is_empty() { Ok(Params(values)) } else { Err(errors) }
}

/// Wraps a single value where the schema has an array, and joins a list where it has `…-list` text.
fn adapt(property: &Property, input: &Input) -> Input {
    let is_list_text = property.format.as_ref().is_some_and(|format| format.ends_with("-list"));
    match input {
        Input::Text(text)
            if property.kind == Kind::Array && !text.is_empty() && text.as_str() != "0" =>
        {
            Input::List(vec![input.clone()])
        }
        Input::List(_) if property.kind == Kind::String && is_list_text => {
            Input::Text(input.text())
        }
        Input::Text(_) | Input::List(_) | Input::Flag(_) | Input::Null | Input::Object => {
            input.clone()
        }
    }
}

fn value(
    property: &Property,
    path: &str,
    input: &Input,
    version: PveVersion,
) -> Result<Value, String> {
    let kind = property.kind;
    match (kind, input) {
        // An explicit null is valid where an absent value is.
        (_, Input::Null) if property.optional => Ok(Value::String(String::new())),
        (_, Input::Null) => Err(MISSING_PROPERTY.into()),
        (Kind::Boolean, Input::Flag(flag)) => Ok(Value::Bool(*flag)),
        (Kind::Array, Input::List(items)) => {
            let item = property.items.as_deref();
            let one = |input| match item {
                Some(item) => value(item, path, input, version),
                None => Ok(Value::String(input.text())),
            };
            items.iter().map(one).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (Kind::Array, _) => Err("type check ('array') failed".into()),
        (_, Input::List(_)) => Err(format!("type check ('{}') failed - got ARRAY", kind.name())),
        (_, Input::Object) => Err(format!("type check ('{}') failed - got HASH", kind.name())),
        (_, Input::Flag(_)) => scalar(property, path, &input.text(), version),
        (_, Input::Text(text)) => scalar(property, path, text, version),
    }
}

fn scalar(
    property: &Property,
    path: &str,
    text: &str,
    version: PveVersion,
) -> Result<Value, String> {
    let typed = typed(property.kind, text)
        .ok_or_else(|| format!("type check ('{}') failed - got '{text}'", property.kind.name()))?;
    if let Some(name) = &property.format {
        let checked = match SCHEMA.formats.get(name) {
            Some(keys) => property_string(name, keys, text, path, version),
            None => format::check(name, text, version),
        };
        checked.map_err(|error| format!("invalid format - {error}"))?;
    }
    if property.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(text)) {
        return Err("value does not match the regex pattern".into());
    }
    let length = text.chars().count();
    if let Some(most) = property.max_length
        && length > most
    {
        return Err(format!("value may only be {most} characters long"));
    }
    if let Some(least) = property.min_length
        && length < least
    {
        return Err(format!("value must be at least {least} characters long"));
    }
    if let Ok(number) = text.parse::<f64>() {
        if let Some(most) = property.maximum.filter(|most| number > *most) {
            return Err(format!("value must have a maximum value of {most}"));
        }
        if let Some(least) = property.minimum.filter(|least| number < *least) {
            return Err(format!("value must have a minimum value of {least}"));
        }
    }
    if !property.choices.is_empty() && !property.choices.iter().any(|choice| choice == text) {
        let all = property.choices.join(", ");
        return Err(format!("value '{text}' does not have a value in the enumeration '{all}'"));
    }
    Ok(typed)
}

fn typed(kind: Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::String | Kind::Array => Some(Value::String(text.to_owned())),
        Kind::Boolean => match text {
            "0" => Some(Value::Bool(false)),
            "1" => Some(Value::Bool(true)),
            _ => None,
        },
        Kind::Integer => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // Perl uses floating point for larger numbers.
            let number = text.parse::<i64>().map(Number::from).ok();
            number.or_else(|| Number::from_f64(text.parse().ok()?)).map(Value::Number)
        }
        Kind::Number => {
            let plain = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
            if !text.chars().all(plain) {
                return None;
            }
            if let Ok(whole) = text.parse::<i64>() {
                return Some(Value::Number(whole.into()));
            }
            Number::from_f64(text.parse().ok()?).map(Value::Number)
        }
    }
}

/// Checks a property string (`key=value` parts joined by commas).
///
/// # Errors
/// The text after `invalid format - `.
fn property_string(
    format: &str,
    keys: &BTreeMap<String, Property>,
    text: &str,
    path: &str,
    version: PveVersion,
) -> Result<(), String> {
    let parts = split_property_string(keys, text)?;
    let mut errors = Errors::new();
    for (name, property) in keys {
        if property.alias.is_none() && !property.optional && !parts.contains_key(name) {
            errors.insert(format!("{path}.{name}"), MISSING_PROPERTY.into());
        }
    }
    for (name, part) in &parts {
        let place = format!("{path}.{name}");
        let Some(property) = keys.get(name) else {
            errors.insert(place, UNKNOWN_PROPERTY.into());
            continue;
        };
        if let Err(error) = scalar(property, &place, part, version) {
            errors.insert(place.clone(), error);
        }
        if let Some(needed) = property.requires.as_ref().filter(|key| !parts.contains_key(*key)) {
            let text = format!("missing property - '{place}' requires this property");
            errors.insert(format!("{path}.{needed}"), text);
        }
    }
    if !errors.is_empty() {
        let lines: String = errors.iter().map(|(name, text)| format!("{name}: {text}\n")).collect();
        return Err(format!("format error\n{lines}"));
    }
    if format == "pve-vm-cpu-conf"
        && let Some(model) = parts.get("cputype")
    {
        return format::cpu_model(model);
    }
    Ok(())
}

/// A property string as an object, as Proxmox parses it: booleans are numbers, all other values
/// text (pve-common, JSONSchema.pm:1068, parse_property_string). Null for an unknown format.
pub(crate) fn property_string_object(format: &str, text: &str) -> Value {
    let Some(keys) = SCHEMA.formats.get(format) else { return Value::Null };
    let parts = split_property_string(keys, text).unwrap_or_default();
    let of = |key: &str, text: String| {
        let is_flag = keys.get(key).is_some_and(|own| own.kind == Kind::Boolean);
        match text.parse::<u8>() {
            Ok(flag) if is_flag => flag.into(),
            _ => Value::String(text),
        }
    };
    parts.into_iter().map(|(key, text)| (key.clone(), of(&key, text))).collect()
}

fn split_property_string(
    keys: &BTreeMap<String, Property>,
    text: &str,
) -> Result<BTreeMap<String, String>, String> {
    let duplicate = |key: &str| format!("duplicate key in comma-separated list property: {key}\n");
    let mut parts = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, part) = match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => (key.to_owned(), value),
            Some(_) => return Err("missing key in comma-separated list property\n".into()),
            None => {
                let default = keys.iter().find(|(_, property)| property.default_key);
                let (key, _) = default.ok_or_else(|| {
                    "value without key, but schema does not define a default key\n".to_owned()
                })?;
                (key.clone(), part)
            }
        };
        let mut name = key.clone();
        if let Some(alias) = keys.get(&key).and_then(|property| property.alias.clone()) {
            if let Some(target) = keys.get(&key).and_then(|property| property.key_alias.clone())
                && parts.insert(target.clone(), key).is_some()
            {
                return Err(format!("key alias '{target}' is already defined\n"));
            }
            name = alias;
        }
        let is_flag = keys.get(&name).is_some_and(|property| property.kind == Kind::Boolean);
        let part = if is_flag { lenient_flag(part) } else { part };
        if parts.insert(name.clone(), part.to_owned()).is_some() {
            return Err(duplicate(&name));
        }
    }
    Ok(parts)
}

/// In property strings, further words than 0 and 1 are booleans.
fn lenient_flag(text: &str) -> &str {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => "1",
        "0" | "off" | "no" | "false" => "0",
        _ => text,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    fn create(pairs: &[(&str, &str)]) -> Result<Params, Errors> {
        let (route, found) = SCHEMA.find("POST", "/nodes/pve1/qemu", PveVersion::V8_4).unwrap();
        let path = found.into_iter().map(|(name, text)| (name, Input::Text(text)));
        let given =
            pairs.iter().map(|(name, text)| ((*name).to_owned(), Input::Text((*text).to_owned())));
        params(route, PveVersion::V8_4, &path.chain(given).collect())
    }

    fn refusal(name: &str, text: &str) -> String {
        let errors = create(&[("vmid", "100"), (name, text)]).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.into_values().next().unwrap()
    }

    // Invariant: errors name their parameter, in Proxmox's words
    // (book: proxmox, section 23, item 5).
    #[test]
    fn a_missing_parameter_is_named() {
        let errors = create(&[]).unwrap_err();
        assert_eq!(errors["vmid"], MISSING_PROPERTY);
    }

    #[test]
    fn the_format_is_checked_before_the_range() {
        assert_eq!(
            create(&[("vmid", "99")]).unwrap_err()["vmid"],
            "invalid format - value does not look like a valid VM ID\n"
        );
        assert_eq!(
            create(&[("vmid", "abc")]).unwrap_err()["vmid"],
            "type check ('integer') failed - got 'abc'"
        );
    }

    #[test]
    fn errors_inside_property_strings_name_the_key() {
        assert_eq!(
            refusal("memory", "8"),
            "invalid format - format error\nmemory.current: value must have a minimum value of 16\n"
        );
        assert_eq!(
            refusal("net0", "bridge=vmbr0"),
            "invalid format - format error\n\
             net0.model: property is missing and it is not optional\n"
        );
        assert_eq!(
            refusal("ipconfig0", "ip=10.0.0.1"),
            "invalid format - format error\nipconfig0.ip: invalid format - \
             value does not look like a valid ipv4 network configuration\n\n"
        );
    }

    #[test]
    fn a_missing_companion_is_the_parameter_with_the_error() {
        let errors = create(&[("vmid", "100"), ("unique", "1")]).unwrap_err();
        assert_eq!(errors["archive"], "missing property - 'unique' requires this property");
    }

    // Invariant: booleans of forms are 0 or 1 only (book: proxmox, section 23, item 10).
    #[test]
    fn words_are_no_booleans_in_forms_but_are_in_property_strings() {
        for word in ["true", "yes", "on", "2", ""] {
            let text = format!("type check ('boolean') failed - got '{word}'");
            assert_eq!(refusal("onboot", word), text);
        }
        assert!(create(&[("vmid", "100"), ("agent", "enabled=yes")]).is_ok());
    }

    #[test]
    fn values_have_the_types_of_the_schema() {
        let given = [("vmid", "100"), ("onboot", "1"), ("cpulimit", "1.5"), ("memory", "64")];
        let params = create(&given).unwrap();
        assert_eq!(params.int("vmid"), Some(100));
        assert!(params.flag("onboot"));
        assert_eq!(params.0["cpulimit"], serde_json::json!(1.5));
        assert_eq!(params.0["memory"], serde_json::json!("64"));
    }

    #[test]
    fn lists_are_joined_for_list_formats_and_single_values_wrapped_for_arrays() {
        let property = Property { format: Some("pve-tag-list".into()), ..Property::default() };
        let list = Input::List(vec![Input::Text("a".into()), Input::Text("b".into())]);
        assert_eq!(adapt(&property, &list), Input::Text("a,b".into()));
        let property = Property { kind: Kind::Array, ..Property::default() };
        let wrapped = adapt(&property, &Input::Text("ls".into()));
        assert_eq!(wrapped, Input::List(vec![Input::Text("ls".into())]));
    }
}
