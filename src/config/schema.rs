//! The JSON Schema of the YAML, drawn from the tables of keys, so that editors complete and check.
//!
//! Draft 7, which editors' YAML support knows best. It knows types, ranges and words; what holds
//! between keys (references, layers, what must be given in one of several places) only `check` says.

use serde_json::{Map, Value, json};

use super::keys::{
    ADDRESS_POOL, AGENT, CLOUD, CREDENTIAL_KINDS, DEMAND, Key, Kind, MAPPING, Preset, SERVICE,
    SIZES, Shape,
};

/// The schema of a whole configuration.
pub fn schema() -> Value {
    let layer = |keys, about: &str| {
        let mut layer = mapping(keys);
        layer.insert("description".into(), about.into());
        Value::Object(layer)
    };
    let entries = |of: Value, about: &str| json!({"description": about, "type": ["object", "null"], "additionalProperties": of});
    let mut cloud = mapping(CLOUD);
    cloud.insert("required".into(), json!(["name"]));
    let mut labels = mapping(MAPPING);
    labels.insert("required".into(), json!(["labels", "templates"]));
    let mut pool = mapping(ADDRESS_POOL);
    pool.insert("required".into(), json!(["ranges", "prefix"]));
    let mut source = mapping(DEMAND);
    source.insert("required".into(), json!(["kind"]));
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "drover",
        "description": "Configuration of drover",
        "type": "object",
        "additionalProperties": false,
        "patternProperties": {
            "^x-": {"description": "the file's own, such as blocks that anchors name"},
            "^agentDefaults-.": layer(AGENT, "what agents on this node inherit; wins over agentDefaults"),
        },
        "properties": {
            "cloudDefaults": layer(CLOUD, "what every cloud inherits"),
            "cloudConfigurations": entries(Value::Object(cloud), "ways into Proxmox clusters"),
            "agentDefaults": layer(AGENT, "what every agent inherits"),
            "agentConfigurations": entries(Value::Object(mapping(AGENT)), "kinds of agents"),
            "labelMappings": entries(Value::Object(labels), "labels that a list of templates serves"),
            "addressPools": entries(Value::Object(pool), "addresses given to agents one by one"),
            "demand": entries(Value::Object(source), "CI systems whose jobs agents are begun for"),
            "sizes": entries(Value::Object(mapping(SIZES)), "sizes of agents by name, for size"),
            "credentials": entries(credential(), "what the ids in credentialsId stand for"),
            "service": layer(SERVICE, "drover itself"),
        },
    })
}

/// A mapping with these keys and no other; nothing at all is fine too.
fn mapping(keys: &[Key]) -> Map<String, Value> {
    let names = |key: &Key| [Some(key.name), key.also].into_iter().flatten();
    let properties: Map<String, Value> =
        keys.iter().flat_map(|key| names(key).map(|name| (name.to_owned(), value(key)))).collect();
    let mut mapping = Map::new();
    mapping.insert("type".into(), json!(["object", "null"]));
    mapping.insert("additionalProperties".into(), false.into());
    mapping.insert("properties".into(), properties.into());
    mapping
}

/// One of the kinds, each with its own keys.
fn credential() -> Value {
    let kinds = CREDENTIAL_KINDS.iter().map(|(kind, keys)| {
        let mut of_kind = mapping(keys);
        let must = keys.iter().filter(|key| key.preset == Preset::Required);
        let must: Vec<&str> = must.map(|key| key.name).collect();
        of_kind.insert("required".into(), json!(must));
        if let Some(Value::Object(properties)) = of_kind.get_mut("properties") {
            properties.insert("kind".into(), json!({"const": kind}));
        }
        Value::Object(of_kind)
    });
    json!({"oneOf": kinds.collect::<Vec<_>>()})
}

/// A mapping that stands in a key.
fn shaped(shape: &Shape) -> Map<String, Value> {
    let mut inner = mapping(shape.keys);
    let must = shape.keys.iter().filter(|key| key.preset == Preset::Required);
    let must: Vec<&str> = must.map(|key| key.name).collect();
    if !must.is_empty() {
        inner.insert("required".into(), json!(must));
    }
    if !shape.one_of.is_empty() {
        let one = shape.one_of.iter().map(|key| json!({"required": [key]}));
        inner.insert("oneOf".into(), one.collect::<Vec<_>>().into());
    }
    inner
}

/// What a key may hold. An empty key is back to its default, and numbers do for texts.
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
        Kind::Mapping(shape) => Value::Object(shaped(shape)),
        Kind::Mappings(shape) => {
            json!({"type": ["array", "null"], "items": Value::Object(shaped(shape))})
        }
    };
    let preset = match key.preset {
        Preset::Required | Preset::Unset => None,
        Preset::Whole(number) => Some(json!(number)),
        Preset::Flag(flag) => Some(json!(flag)),
        Preset::Text(text) => Some(json!(text)),
        Preset::Empty if matches!(key.kind, Kind::Names) => Some(json!({})),
        Preset::Empty => Some(json!([])),
    };
    let mut of_kind = of_kind;
    if let Value::Object(of_kind) = &mut of_kind {
        of_kind.insert("description".into(), key.about.into());
        of_kind.extend(preset.map(|preset| ("default".to_owned(), preset)));
    }
    of_kind
}
