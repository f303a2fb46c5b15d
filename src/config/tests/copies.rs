//! Copies of templates: their text, their place in a file, and what is refused.

use std::fs;

use insta::assert_snapshot;

use super::*;
use crate::{Copied, CopyRequest, EditError, Environment, copy};

const TEXT: &str = "
# Who may do what is kept elsewhere.
cloudConfigurations:
  c: {name: C, apiUrl: 'https://pve1', credentialsId: api}
agentDefaults: {cloudIds: [c], credentialsId: ssh, templateVmId: 9000}
agentConfigurations:
    # The small one.
    small:
        name: Small
        labelString: linux   # and nothing else
        prepare:
          - {name: config, upload: {from: ci.conf, to: ci.conf, mode: '0600'}}
          - {run: 'echo \"ready: yes\" # now'}
    # No more for now.

# The rest.
service: {logLevel: info}
credentials:
  api: {kind: proxmoxToken, tokenId: 'ci@pve!x', secretFile: token}
  ssh: {kind: sshKey, username: ci, privateKeyFile: ed25519}
";

fn scene() -> (Scene, std::path::PathBuf) {
    let scene = Scene::new();
    scene.put("ci.conf", 0o644, "retries = 3\n");
    scene.put("drover.yaml", 0o644, TEXT);
    let path = scene.path("drover.yaml");
    (scene, path)
}

fn want<'a>(new: &'a str, set: &'a [String], into: Option<&'a std::path::Path>) -> CopyRequest<'a> {
    CopyRequest { old: "small", new, set, into }
}

fn refused(path: &std::path::Path, command: CopyRequest<'_>) -> String {
    copy(path, &Environment::default(), command).unwrap_err().render()
}

// Invariant: a copy has the effective values, and makes a configuration without faults.

#[test]
fn a_copy_has_all_effective_values_and_its_own() {
    let (_scene, path) = scene();
    let set = ["cores=4".to_owned(), "templateTag=golden".to_owned()];
    let copied = copy(&path, &Environment::default(), want("large", &set, None)).unwrap();
    let Copied::Text(text) = copied else { panic!("{copied:?}") };
    is_generated("src/config/tests/copies/alone.yaml", &text);
}

// Invariant: a file keeps every line it had, comments too, and is written only when all is well.

#[test]
fn a_copy_goes_behind_the_last_template_and_no_line_is_lost() {
    let (_scene, path) = scene();
    let copied = copy(&path, &Environment::default(), want("large", &[], Some(&path))).unwrap();
    let Copied::File(file, text) = copied else { panic!("{copied:?}") };
    assert_eq!(file, path);
    is_generated("src/config/tests/copies/in-its-file.yaml", &text);
    let lines: Vec<&str> = text.lines().collect();
    let mut left = lines.iter();
    assert!(TEXT.lines().all(|line| left.any(|other| *other == line)), "in their order");
    assert_eq!(fs::read_to_string(&path).unwrap(), TEXT, "the caller writes");
    fs::write(&path, &text).unwrap();
    let why = refused(&path, want("large", &[], Some(&path)));
    assert_snapshot!(why, @"template `large` already exists; choose another name");
}

#[test]
fn what_cannot_be_copied_says_why() {
    let (scene, path) = scene();
    let set = |text: &str| [text.to_owned()];
    let unknown = CopyRequest { old: "smal", new: "x", set: &[], into: None };
    assert_snapshot!(refused(&path, unknown), @"unknown template `smal`; did you mean `small`?");
    assert_snapshot!(refused(&path, want("x", &set("core=4"), None)), @"unknown key `core` of a template; did you mean `cores`?");
    assert_snapshot!(refused(&path, want("x", &set("cores"), None)), @"`--set cores` is not KEY=VALUE, such as cores=4");
    let faulty = refused(&path, want("x", &set("cores=many"), None));
    assert!(faulty.starts_with("with the copy the configuration would have faults:\n"), "{faulty}");
    assert!(faulty.contains("expected a whole number"), "{faulty}");
    assert!(faulty.contains("[the copy:") && !faulty.contains("/copy:"), "{faulty}");
    let elsewhere = scene.path("other.yaml");
    let why = refused(&path, want("x", &[], Some(&elsewhere)));
    assert!(why.contains("is not a file of the configuration"), "{why}");
    let flow = TEXT.replace("agentConfigurations:\n", "agentConfigurations: {}\nx:\n");
    fs::write(&path, flow.split("x:\n").next().unwrap_or_default()).unwrap();
    assert!(matches!(
        copy(&path, &Environment::default(), want("x", &[], None)),
        Err(EditError::Faulty { .. })
    ));
}
