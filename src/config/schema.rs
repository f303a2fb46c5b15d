//! The JSON Schema of the YAML, generated from the tables of keys, for editors.
//!
//! Draft 7, which the YAML support of editors knows best. It has types, ranges and words; what
//! holds between keys (references, layers, keys that one of several layers must give) only the
//! check knows.

use serde_json::{Map, Value, json};
use serde_yaml::Value as Yaml;

use super::keys::{
    CredentialKind, Form, Key, Kind, NODE_DEFAULTS, NODE_DEFAULTS_HELP, SECTIONS, Section, Table,
};
use super::node;

/// The sections whose entries inherit from another one.
const INHERITING: [&str; 2] = ["cloudConfigurations", "agentConfigurations"];

/// The schema of a whole configuration.
pub fn schema() -> Value {
    let sections = SECTIONS.iter().map(|one| (one.name.to_owned(), section(one)));
    let sections: Map<String, Value> = sections.collect();
    let mut of_node = sections["agentDefaults"].clone();
    of_node["description"] = NODE_DEFAULTS_HELP.into();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "drover",
        "description": "Configuration of drover",
        "type": "object",
        "additionalProperties": false,
        "patternProperties": {
            "^x-": {"description": "The file's own, such as blocks that anchors name."},
            format!("^{NODE_DEFAULTS}."): of_node,
        },
        "properties": sections,
    })
}

/// A section. What an entry must have may stand in the defaults, except for the name of a cloud.
fn section(section: &Section) -> Value {
    let entries = |of: Value| json!({"type": ["object", "null"], "additionalProperties": of});
    let mut value = match section.form {
        Form::One(table) => Value::Object(mapping(table, false)),
        Form::Many(table) => {
            let mut entry = mapping(table, !INHERITING.contains(&section.name));
            if section.name == "cloudConfigurations" {
                entry.insert("required".into(), json!(["name"]));
            }
            entries(Value::Object(entry))
        }
        Form::Kinds(kinds) => {
            let of_kind = |(kind, _, table): &(&str, CredentialKind, &'static Table)| {
                let mut value = Value::Object(mapping(table, true));
                value["properties"]["kind"] = json!({"const": kind});
                value
            };
            entries(json!({"oneOf": kinds.iter().map(of_kind).collect::<Vec<_>>()}))
        }
    };
    value["description"] = section.help.into();
    value
}

/// A mapping with these keys and no other, or nothing at all. `whole`: the required keys stand
/// here.
fn mapping(table: &'static Table, whole: bool) -> Map<String, Value> {
    let names = |key: &Key| [Some(key.name), key.alias].into_iter().flatten();
    let properties =
        table.iter().flat_map(|key| names(key).map(|name| (name.to_owned(), value(key))));
    let properties: Map<String, Value> = properties.collect();
    let mut mapping = Map::new();
    mapping.insert("type".into(), json!(["object", "null"]));
    mapping.insert("additionalProperties".into(), false.into());
    mapping.insert("properties".into(), properties.into());
    let required: Vec<&str> = table.required().filter(|_| whole).collect();
    if !required.is_empty() {
        mapping.insert("required".into(), json!(required));
    }
    if whole && !table.one_of.is_empty() {
        let one = table.one_of.iter().map(|key| json!({"required": [key]}));
        mapping.insert("oneOf".into(), one.collect::<Vec<_>>().into());
    }
    mapping
}

/// The values of a key. An empty key has its default, and a number can stand for a text.
fn value(key: &Key) -> Value {
    let text = || json!(["string", "number", "null"]);
    let of_kind = match key.kind {
        Kind::Text => json!({"type": text()}),
        Kind::Whole(least, most) => {
            json!({"type": ["integer", "null"], "minimum": least, "maximum": most})
        }
        Kind::ZeroOr(least, most) => json!({"anyOf": [
            {"enum": [0, null]},
            {"type": "integer", "minimum": least, "maximum": most},
        ]}),
        Kind::Memory(least, most) => json!({"anyOf": [
            {"type": ["integer", "null"], "minimum": least, "maximum": most},
            {"type": "string", "pattern": "^[0-9]+(Ki|Mi|Gi|Ti)$"},
        ]}),
        Kind::Flag => json!({"type": ["boolean", "null"]}),
        Kind::Choice(words) => {
            let words: Vec<Value> =
                words.iter().map(|word| json!(word)).chain([Value::Null]).collect();
            json!({"enum": words})
        }
        Kind::Texts => {
            json!({"type": ["array", "null"], "items": {"type": ["string", "number"]}})
        }
        Kind::Wholes => {
            let item = json!({"type": "integer", "minimum": 0, "maximum": u32::MAX});
            json!({"type": ["array", "null"], "items": item})
        }
        Kind::Names => {
            json!({"type": ["object", "null"], "additionalProperties": {"type": ["string", "number"]}})
        }
        Kind::Lists => json!({
            "type": ["object", "null"],
            "additionalProperties": {"type": "array", "items": {"type": ["string", "number"]}},
        }),
        Kind::Mapping(table) => Value::Object(mapping(table, true)),
        Kind::Mappings(table) => {
            json!({"type": ["array", "null"], "items": mapping(table, true)})
        }
    };
    let json = |value: Yaml| serde_json::to_value(value).ok();
    let mut of_kind = of_kind;
    if let Value::Object(of_kind) = &mut of_kind {
        of_kind.insert("description".into(), key.meaning().into());
        of_kind.extend(key.default().and_then(json).map(|value| ("default".to_owned(), value)));
        let example = node::value(key.example).ok().filter(|value| !value.is_null());
        let example = example.and_then(json);
        of_kind.extend(example.map(|value| ("examples".to_owned(), json!([value]))));
    }
    of_kind
}
