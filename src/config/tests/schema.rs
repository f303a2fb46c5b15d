//! The JSON Schema: what loads is valid, and what no table of keys knows is not.

use serde_json::{Value, json};

use super::super::keys::{AGENT, CLOUD, SERVICE};
use super::super::schema::schema;
use super::*;

fn validator() -> jsonschema::Validator {
    jsonschema::draft7::new(&schema()).unwrap()
}

fn json_of(yaml: &str) -> Value {
    serde_yaml::from_str(yaml).unwrap()
}

// Invariant: the schema itself is sound, and says of every key what the tables say.

#[test]
fn the_schema_is_a_schema() {
    jsonschema::draft7::meta::validate(&schema()).unwrap();
}

#[test]
fn every_key_is_in_the_schema_with_its_meaning() {
    let schema = schema();
    for (section, table) in
        [("cloudDefaults", &CLOUD), ("agentDefaults", &AGENT), ("service", &SERVICE)]
    {
        let properties = &schema["properties"][section]["properties"];
        for key in table.iter() {
            assert_eq!(properties[key.name]["description"], key.help, "{}", key.name);
        }
    }
}

// Invariant: the files shipped are valid, and single slips are not.

#[test]
fn the_shipped_files_are_valid() {
    for name in ["full.yaml", "reference.yaml"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name);
        let file = json_of(&fs::read_to_string(path).unwrap());
        let faults: Vec<String> =
            validator().iter_errors(&file).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
}

#[test]
fn what_the_check_refuses_by_its_type_or_range_is_invalid() {
    let validator = validator();
    for bad in [
        "agentDefaults: {instanceCpa: 3}",
        "agentDefaults: {instanceCap: -1}",
        "agentDefaults: {memoryMb: 7}",
        "agentDefaults: {minFreeMemory: 4G}",
        "agentDefaults: {minFreeMemoryMb: -1}",
        "agentDefaults: {mode: SOMETIMES}",
        "agentDefaults: {tags: linux}",
        "agentDefaults: {schedule: [{cron: \"0 8 * * *\"}]}",
        "agentDefaults: {schedule: [{cron: \"0 8 * * *\", durationMinutes: 0}]}",
        "agentDefaults-pve1: {cores: many}",
        "cloudDefaults: {ignoreSslErrors: perhaps}",
        "cloudDefaults: {orphanCleanupPeriodSeconds: 29}",
        "cloudConfigurations: {a: {}}",
        "credentials: {a: {kind: proxmoxToken}}",
        "credentials: {a: {kind: sshKey, tokenId: x, username: u}}",
        "service: {tokens: [{name: a, role: boss, secretEnv: A}]}",
        "service: {tokens: [{name: a, role: admin}]}",
        "agentDefaults: {prepare: [{}]}",
        "agentDefaults: {prepare: [{run: id, packages: [git]}]}",
        "agentDefaults: {prepare: [{upload: {from: a}}]}",
        "agentDefaults: {prepare: [{run: id, timeoutSec: 0}]}",
        "flavours: {}",
    ] {
        assert!(!validator.is_valid(&json_of(bad)), "{bad}");
    }
    for good in [
        "agentDefaults: {memoryMb: 0, cores: }",
        "agentDefaults: {minFreeMemory: 4Gi}",
        "agentDefaults: {minFreeMemoryMb: 4096}",
        "agentDefaults: {schedule: [{cron: \"0 8 * * *\", durationMinutes: 60, idleMin: 2}]}",
        "cloudConfigurations: ",
        "agentDefaults: {namePrefix: 7}",
        "service: {tokens: [{name: a, role: admin, secretEnv: A}]}",
        "agentDefaults: {prepare: [{run: id}, {upload: {from: a, to: b, mode: \"0600\"}}]}",
    ] {
        assert!(validator.is_valid(&json_of(good)), "{good}");
    }
    assert!(!validator.is_valid(&json!([])));
}
