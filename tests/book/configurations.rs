//! Configurations that README and the book show: `drover check` takes them.
//!
//! A block of kind `yaml` is a whole configuration or a part of one, by its indentation: sections of
//! the file, entries of `agentConfigurations` (2), or keys of a template (4). Parts are laid over a
//! small configuration without faults. Blocks of kind `yaml faults`, `yaml latency` and `yaml cluster` are
//! files of the simulator.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use drover_config::{Environment, load};
use pve_sim::spec::ClusterSpec;
use pve_sim::world::{Faults, Latency};
use serde_yaml::{Mapping, Value};

use crate::{documents, none_is, root};

const BASE: &str = "
credentials:
  proxmox: {kind: proxmoxToken, tokenId: 'drover@pve!ci', secretFile: /etc/drover/credentials/proxmox}
  agents: {kind: sshKey, username: debian, privateKeyFile: /etc/drover/credentials/agent}
cloudConfigurations:
  primary: {name: Rack, apiUrl: 'https://pve1.lan:8006', credentialsId: proxmox, caFile: /etc/drover/ca.pem}
agentDefaults: {cloudIds: [primary], credentialsId: agents, templateVmId: 9000}
agentConfigurations:
  linux-builder: {node: pve1}
images:
  debian: {cloudIds: [primary], credentialsId: agents, storage: local-lvm}
service: {listen: '127.0.0.1:8080'}
";

/// Keys that name files, and whether others may read them.
const FILES: [(&str, bool); 6] = [
    ("secretFile", false),
    ("passphraseFile", false),
    ("caFile", true),
    ("userDataFile", true),
    ("metaDataFile", true),
    ("from", true),
];

fn value(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

/// A block as a whole configuration.
fn whole(text: &str) -> Result<Value, String> {
    let lines =
        text.lines().filter(|line| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let indent = lines.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let part: Value = serde_yaml::from_str(text).map_err(|fault| fault.to_string())?;
    let path: &[&str] = match indent {
        0 => &[],
        2 => &["agentConfigurations"],
        4 => &["agentConfigurations", "linux-builder"],
        _ => return Err(format!("an indentation of {indent} is none of 0, 2 and 4")),
    };
    let laid = path
        .iter()
        .rev()
        .fold(part, |part, key| Value::Mapping(Mapping::from_iter([(Value::from(*key), part)])));
    let mut base = value(BASE);
    lay(&mut base, laid);
    Ok(base)
}

/// Lays one value over another. An entry that says its own kind or name is whole.
fn lay(under: &mut Value, over: Value) {
    let is_whole = |one: &Mapping| one.contains_key("kind") || one.contains_key("name");
    match (under, over) {
        (Value::Mapping(under), Value::Mapping(over)) if !is_whole(&over) => {
            for (key, value) in over {
                match under.get_mut(&key) {
                    Some(known) => lay(known, value),
                    None => drop(under.insert(key, value)),
                }
            }
        }
        (under, over) => *under = over,
    }
}

/// Makes the files that a configuration names.
fn make_files(folder: &Path, value: &Value, kind: &str) {
    match value {
        Value::Mapping(mapping) => {
            let own = mapping.get("kind").and_then(Value::as_str).unwrap_or(kind);
            for (key, value) in mapping {
                let known = FILES.iter().find(|(name, _)| key.as_str() == Some(name));
                match (known, value.as_str()) {
                    (Some((name, open)), Some(file)) => make_file(folder, file, (name, own), *open),
                    (Some(_) | None, _) => make_files(folder, value, own),
                }
            }
        }
        Value::Sequence(values) => values.iter().for_each(|one| make_files(folder, one, kind)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Tagged(_) => {}
    }
}

fn make_file(folder: &Path, file: &str, (key, kind): (&str, &str), open: bool) {
    let path = folder.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = match (key, kind) {
        ("caFile", _) => rcgen::generate_simple_self_signed(["pve".to_owned()]).unwrap().cert.pem(),
        ("secretFile", "githubApp") => {
            fs::read_to_string(root().join("src/config/tests/keys/app_pkcs1")).unwrap()
        }
        ("userDataFile", _) => "#cloud-config\n{}\n# ${runner_name}\n".to_owned(),
        _ => "d6b1c1a4f1c54bb7a4b4d6b1c1a4f1c54bb7\n".to_owned(),
    };
    fs::write(&path, text).unwrap();
    let mode = if open { 0o644 } else { 0o600 };
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Why `drover check` refuses a block.
fn refusal(block: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let etc = dir.path().to_str().unwrap();
    let config = match whole(&block.replace("/etc/drover", etc)) {
        Ok(config) => config,
        Err(fault) => return Some(fault),
    };
    let config = serde_yaml::to_string(&config).unwrap().replace("/etc/drover", etc);
    make_files(dir.path(), &value(&config), "");
    let path = dir.path().join("drover.yaml");
    fs::write(&path, config).unwrap();
    // Tokens of Proxmox and keys for guests are made later, as for `drover setup rights`.
    load(&path, &Environment::of(&[]).without_secrets()).err().map(|fault| fault.render())
}

// Invariant: anyone who copies a configuration from README or the book has one without faults.

#[test]
fn every_configuration_passes_the_check() {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for document in documents() {
        for block in document.blocks().into_iter().filter(|block| block.kind == "yaml") {
            tried += 1;
            let place = document.place(block.line);
            wrong.extend(refusal(&block.text).map(|why| format!("{place}:\n{why}")));
        }
    }
    none_is(&wrong);
    assert!(tried > 10, "{tried} configurations");
}

#[test]
fn every_file_of_the_simulator_is_one_that_it_takes() {
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for document in documents() {
        for block in document.blocks() {
            let read = match block.kind.as_str() {
                "yaml faults" => serde_yaml::from_str::<Faults>(&block.text).err(),
                "yaml cluster" => serde_yaml::from_str::<ClusterSpec>(&block.text).err(),
                "yaml latency" => serde_yaml::from_str::<Latency>(&block.text).err(),
                _ => continue,
            };
            tried += 1;
            wrong.extend(read.map(|why| format!("{}: {why}", document.place(block.line))));
        }
    }
    none_is(&wrong);
    assert_eq!(tried, 3, "one of each");
}

#[test]
fn a_fault_in_a_part_is_found() {
    assert_eq!(refusal("    instanceCap: 3\n"), None);
    for wrong in ["    instanceCpa: 3\n", "agentConfigurations: 7\n", "   a: b\n"] {
        assert!(refusal(wrong).is_some(), "{wrong}");
    }
}
