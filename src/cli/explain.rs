//! `drover config`: values of the configuration with their origins, and what keys mean.
//!
//! All of it comes from the files and from the tables of keys; no service is asked.

use std::process::ExitCode;

use drover_config::{Environment, Explained, Origin, ValueInForce, explain, sections, values};
use serde_json::{Value, json};

use super::config::{config_path, load};
use super::encrypted;
use super::global::Global;
use super::list_options::ViewOptions;
use super::options::ConfigAction;
use super::report::{FAILED, USAGE, fail};
use super::screen::Screen;
use super::sentences::{clean, did_you_mean};
use super::stdout::{put, put_value};
use super::table::{Cell, Column, Kind, Table, View, column};

/// Prints what was asked for.
pub(super) fn config(global: &Global, action: &ConfigAction) -> ExitCode {
    let json = global.json;
    let view = Screen::of_process(global.output(), global.color).view(&ViewOptions::default());
    let (text, value) = match action {
        ConfigAction::Show { given } => match in_force(global) {
            Ok(mut all) => {
                all.retain(|one| !given || one.origin != Origin::Default);
                (listed(&all, &view), json!({ "values": all }))
            }
            Err(code) => return code,
        },
        ConfigAction::Get { key } => match in_force(global).map(|all| got(key, &all, &view)) {
            Ok(Ok(answer)) => answer,
            Ok(Err(text)) => return refused(json, FAILED, &text),
            Err(code) => return code,
        },
        ConfigAction::Encrypt { recipient } => {
            return encrypted::encrypted(global, recipient.as_deref());
        }
        ConfigAction::AgeKey => return encrypted::age_key(global),
        ConfigAction::Explain { key: None } => {
            let all = sections();
            let rows = all.iter().map(|(name, help)| vec![Cell::of(name), Cell::of(help)]);
            let table = Table::new(SECTIONS, rows.collect());
            let value: Vec<Value> =
                all.iter().map(|(name, help)| json!({ "path": name, "meaning": help })).collect();
            (table.draw(&view), json!({ "sections": value }))
        }
        ConfigAction::Explain { key: Some(key) } => match explain(key) {
            Ok(found) => (explained(&found, &view), json!({ "keys": found })),
            Err(fault) => return refused(json, USAGE, &fault.to_string()),
        },
    };
    match json {
        true => put_value(global.output(), &value, ExitCode::SUCCESS),
        false => put(json, &text, ExitCode::SUCCESS),
    }
}

fn refused(json: bool, code: u8, text: &str) -> ExitCode {
    fail(json, code, text, &format!("drover: {text}\n"))
}

fn in_force(global: &Global) -> Result<Vec<ValueInForce>, ExitCode> {
    let checked = load(&config_path(global), global.json)?;
    Ok(values(&checked, &Environment::of_process()))
}

const SECTIONS: &[Column] = &[column("SECTION", Kind::Name, 0), column("MEANING", Kind::Text, 0)];
const KEYS: &[Column] = &[column("KEY", Kind::Name, 0), column("MEANING", Kind::Text, 0)];
const VALUES: &[Column] =
    &[column("KEY", Kind::Name, 0), column("VALUE", Kind::Text, 0), column("FROM", Kind::Name, 0)];

fn listed(all: &[ValueInForce], view: &View) -> String {
    let row =
        |one: &ValueInForce| vec![Cell::of(&one.path), Cell::of(&one.value), Cell::of(&one.origin)];
    Table::new(VALUES, all.iter().map(row).collect()).draw(view)
}

/// The value of a key, or those of all keys below it.
fn got(key: &str, all: &[ValueInForce], view: &View) -> Result<(String, Value), String> {
    if let Some(one) = all.iter().find(|one| one.path == key) {
        let bare: Option<String> = serde_json::from_str(&one.value).ok();
        let text = bare.unwrap_or_else(|| one.value.clone());
        return Ok((format!("{text}\n"), json!(one)));
    }
    let is_below = |one: &&ValueInForce| {
        one.path.strip_prefix(key).is_some_and(|rest| rest.starts_with(['.', '[']))
    };
    let below: Vec<ValueInForce> = all.iter().filter(is_below).cloned().collect();
    if !below.is_empty() {
        return Ok((listed(&below, view), json!({ "values": below })));
    }
    let near = did_you_mean(key, all.iter().map(|one| one.path.as_str()));
    let key = clean(key);
    Err(format!(
        "no value is in force for `{key}`;{near} `drover config show` lists all, `drover config explain {key}` \
         says whether there is such a key"
    ))
}

/// Keys for people; those that say the same stand together.
fn explained(found: &[Explained], view: &View) -> String {
    let mut groups: Vec<(Vec<&str>, &Explained)> = Vec::new();
    for one in found {
        let is_same = |other: &Explained| {
            (&other.meaning, &other.value, &other.default, other.required)
                == (&one.meaning, &one.value, &one.default, one.required)
        };
        match groups.iter_mut().find(|(_, other)| is_same(other)) {
            Some((paths, _)) => paths.push(&one.path),
            None => groups.push((vec![&one.path], one)),
        }
    }
    let text = |(paths, one): &(Vec<&str>, &Explained)| {
        let mut text: String = paths.iter().map(|path| format!("{path}\n")).collect();
        text += &format!("  {}\n", one.meaning);
        let default = match (&one.default, one.required) {
            (_, true) => Some("none: the key is required".to_owned()),
            (Some(default), false) => Some(default.clone()),
            (None, false) => Some("unset".to_owned()),
        };
        let facts = [
            ("value", Some(one.value.clone())),
            ("default", default.filter(|_| one.keys.is_empty())),
            ("example", one.example.clone()),
            ("also written", one.alias.map(str::to_owned)),
            ("environment", one.variable.map(str::to_owned)),
        ];
        for (name, fact) in facts {
            if let Some(fact) = fact {
                text += &format!("  {name:<12}  {fact}\n");
            }
        }
        if !one.keys.is_empty() {
            text += "  keys:\n";
            let rows =
                one.keys.iter().map(|(name, meaning)| vec![Cell::of(name), Cell::of(meaning)]);
            let view = View { width: view.width.map(|width| width.saturating_sub(4)), ..*view };
            let rows = Table::new(KEYS, rows.collect()).draw(&view);
            text += &rows.lines().skip(1).map(|line| format!("    {line}\n")).collect::<String>();
        }
        text
    };
    groups.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;

    use secrecy::ExposeSecret as _;

    use super::*;

    const FILE: &str = "\
cloudConfigurations:
  lab: {name: Lab, credentialsId: t, ignoreSslErrors: true}
credentials:
  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: 5f0c8d36-8b0e}
  k: {kind: sshKey, username: ubuntu, privateKeyFile: key}
agentDefaults:
  memoryMb: 4096
agentConfigurations:
  linux: {cloudIds: [lab], node: pve1, templateVmId: 9000, credentialsId: k, labelString: linux}
service: {logLevel: debug}
";

    fn view() -> View {
        View::complete(jiff::Timestamp::UNIX_EPOCH)
    }

    /// The values in force with these variables, and the folder whose path stands in their origins.
    fn read(text: &str, variables: &[(&str, &str)]) -> (Vec<ValueInForce>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("drover.yaml");
        std::fs::write(&file, text).unwrap();
        let key = drover_ssh::PrivateKey::from_seed(&[7; 32], "test").to_openssh().unwrap();
        let mut options = std::fs::OpenOptions::new();
        let private = options.write(true).create(true).mode(0o600);
        let mut private = private.open(directory.path().join("key")).unwrap();
        private.write_all(key.expose_secret().as_bytes()).unwrap();
        let environment = Environment::of(variables);
        let checked = drover_config::load(&file, &environment).unwrap();
        (values(&checked, &environment), directory)
    }

    // Invariant: what is in force has no value of a key that another one is given in place of.

    #[test]
    fn the_default_of_an_alternative_that_is_not_used_is_left_out() {
        let shown = |text: &str| {
            let (all, _directory) = read(text, &[]);
            let ways = ["apiUrl", "apiUrls", "ignoreSslErrors"];
            let last = |one: &&ValueInForce| {
                one.path.rsplit('.').next().is_some_and(|last| ways.contains(&last))
            };
            let line = |one: &ValueInForce| format!("{} {}", one.path, one.value);
            all.iter().filter(last).map(line).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            shown(FILE),
            "cloudConfigurations.lab.apiUrl \"https://localhost:8006\"\n\
             cloudConfigurations.lab.ignoreSslErrors true"
        );
        let several = FILE.replace(
            "name: Lab,",
            "name: Lab, apiUrls: [\"https://pve1:8006\", \"https://pve2:8006\"],",
        );
        assert_eq!(
            shown(&several),
            "cloudConfigurations.lab.apiUrls [\"https://pve1:8006\",\"https://pve2:8006\"]\n\
             cloudConfigurations.lab.ignoreSslErrors true"
        );
    }

    // Invariant: each value is shown with its place, and no secret is.

    #[test]
    fn every_value_that_is_given_has_its_line_or_its_variable() {
        let (mut all, directory) = read(FILE, &[("RUNNER_ID_START", "500")]);
        assert!(all.iter().any(|one| one.path == "cloudConfigurations.lab.endVmId"), "a default");
        all.retain(|one| one.origin != Origin::Default);
        let text = listed(&all, &view());
        assert!(!text.contains("5f0c8d36"), "{text}");
        insta::assert_snapshot!(text.replace(directory.path().to_str().unwrap(), "/etc/drover"));
    }

    #[test]
    fn what_variables_give_clouds_and_sources_of_github_is_shown_with_them_and_no_secret_is() {
        let without_login = FILE.replace("credentialsId: t, ", "");
        let text = format!("{without_login}demand:\n  hub: {{kind: github, labels: [linux]}}\n");
        let (mut all, _directory) = read(
            &text,
            &[
                ("PVE_TOKEN_ID", "ci@pve!drover"),
                ("PVE_TOKEN_SECRET", "5f0c8d36-aaaa-bbbb-cccc-000000000000"),
                ("GITHUB_TOKEN", "ghp_5f0c8d36"),
                ("REPO_OWNER", "acme"),
                ("REPO_NAME", "app"),
                ("POLL_INTERVAL", "45"),
            ],
        );
        all.retain(|one| matches!(one.origin, Origin::Variable { .. }));
        let text = listed(&all, &view());
        assert!(!text.contains("5f0c8d36"), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn one_value_is_printed_bare_and_a_slip_is_answered() {
        let (all, _directory) = read(FILE, &[]);
        let of =
            |key: &str| got(key, &all, &view()).map(|(text, _)| text).unwrap_or_else(|fault| fault);
        insta::assert_snapshot!(
            [
                of("agentConfigurations.linux.memoryMb"),
                of("service.logLevel"),
                of("agentConfigurations.linux.cloudIds"),
                of("service.loglevel"),
            ]
            .join("")
        );
    }

    #[test]
    fn a_key_is_explained_once_for_all_its_places() {
        insta::assert_snapshot!(explained(&explain("memoryMb").unwrap(), &view()));
    }
}
