//! `configs/full.yaml` and the book's reference, generated from the tables of keys.

use std::fmt::Write as _;

use super::super::explain::kind;
use super::super::keys::{Form, Key, Kind, NODE_DEFAULTS_HELP, Preset, SECTIONS, Section, Table};
use super::*;

// Invariant: both files are what the tables yield.
// After a change of keys, `DROVER_WRITE=1 cargo test -p drover-config reference` writes them.

#[test]
fn every_key_is_in_the_full_file_with_its_default() {
    is_generated("configs/full.yaml", &full_yaml());
}

#[test]
fn every_key_is_in_the_reference_of_the_book() {
    is_generated("src/book/reference/configuration.md", &reference());
}

/// The default of a key as YAML.
fn default(key: &Key) -> Option<String> {
    key.default().map(|value| serde_json::to_string(&value).unwrap())
}

/// Every key with its default, its help above it; keys without a default as commented examples.
fn keys_of(table: &Table) -> String {
    let mut text = String::new();
    for key in table.iter() {
        let line = default(key).map(|default| format!("{}: {default}", key.name));
        let required = if key.preset == Preset::Required { "  # required" } else { "" };
        let line = line.unwrap_or_else(|| format!("# {}: {}{required}", key.name, key.example));
        writeln!(text, "  # {}\n  {line}", key.meaning()).unwrap();
        if let Some(table) = key.kind.table() {
            text += &nested(table, "  # ");
        }
    }
    text
}

/// The keys of the mappings in a key, commented out.
fn nested(table: &Table, margin: &str) -> String {
    let mut text = String::new();
    if !table.one_of.is_empty() {
        writeln!(text, "{margin}each with exactly one of {}:", table.one_of.join(", ")).unwrap();
    }
    for key in table.iter() {
        let example = Some(key.example).filter(|example| !example.is_empty()).map(str::to_owned);
        let value = match (key.kind.table(), key.preset) {
            (Some(table), _) => format!("\n{}", nested(table, &format!("{margin}    "))),
            (None, Preset::Empty) => format!(" {}\n", example.or(default(key)).unwrap()),
            (None, _) => format!(" {}\n", default(key).or(example).unwrap()),
        };
        write!(text, "{margin}  # {}\n{margin}  {}:{value}", key.help, key.name).unwrap();
    }
    text
}

/// One entry of a section; required keys, and those of `also`, as examples.
fn entry(name: &str, table: &Table, also: &[&str]) -> String {
    let mut text = format!("  {name}:\n");
    for line in keys_of(table).lines() {
        let commented = line.strip_prefix("  # ");
        let given = commented.and_then(|line| line.strip_suffix("  # required"));
        let wanted = |line: &&str| also.iter().any(|key| line.starts_with(&format!("{key}: ")));
        let given = given.or(commented.filter(wanted));
        writeln!(text, "    {}", given.unwrap_or(&line[2..])).unwrap();
    }
    text
}

const CLOUD_ENTRY: &str = "  primary:
    name: \"Production\"
    credentialsId: \"proxmox-token\"
";

const AGENT_ENTRY: &str = "  linux-builder:
    cloudIds: [\"primary\"]
    node: \"pve1\"
    templateVmId: 9000
    credentialsId: \"agent-key\"
    labelString: \"linux\"
";

const CREDENTIAL_ENTRIES: &str = "  proxmox-token:
    kind: proxmoxToken
    tokenId: \"drover@pve!drover\"
    # a file only its owner can read; or, for any secret here:
    # secretEnv: PROXMOX_TOKEN       a variable of the environment
    # systemdCredential: token       a name given by LoadCredential=
    # secret: \"...\"                  the secret itself; drover warns about it
    secretFile: /etc/drover/token
  proxmox-login:
    kind: proxmoxPassword
    username: \"drover@pve\"
    secretFile: /etc/drover/token
  git-token:
    kind: apiToken
    secretFile: /etc/drover/git
  # github-app: {kind: githubApp, appId: 12345, secretFile: /etc/drover/app.pem}
  #   installationId: its installation; unset: drover finds it by the source's scope
  jenkins-login:
    kind: apiLogin
    username: \"drover\"
    secretFile: /etc/drover/jenkins
  agent-key:
    kind: sshKey
    username: \"ubuntu\"
    privateKeyFile: /etc/drover/ed25519
    # passphraseFile: /etc/drover/passphrase
";

/// The content of a section in `full.yaml`.
fn content(section: &Section) -> String {
    match (section.name, section.form) {
        ("cloudConfigurations", _) => CLOUD_ENTRY.to_owned(),
        ("agentConfigurations", _) => AGENT_ENTRY.to_owned(),
        ("images", Form::Many(table)) => entry("debian", table, &["source"]),
        ("machines", Form::Many(table)) => {
            entry("gitea", table, &["templateVmId", "credentialsId"])
        }
        ("labelMappings", Form::Many(table)) => entry("builds", table, &[]),
        ("addressPools", Form::Many(table)) => entry("lab", table, &[]),
        ("demand", Form::Many(table)) => {
            entry("git", table, &["url", "credentialsId"]) + "  api:\n    kind: leases\n"
        }
        ("sizes", Form::Many(table)) => entry("small", table, &[]),
        (_, Form::Kinds(_)) => CREDENTIAL_ENTRIES.to_owned(),
        (_, Form::One(table)) => keys_of(table),
        (name, Form::Many(_)) => panic!("{name} has no example"),
    }
}

fn full_yaml() -> String {
    let mut text = "# All keys of drover with their defaults, generated from the tables of keys.
# A key behind `#` has no default: its value is an example.
# Give secrets by secretFile, secretEnv or systemdCredential; only drover may read the files.
"
    .to_owned();
    for section in &SECTIONS {
        let (name, help) = (section.name, section.help);
        write!(text, "\n# {help}\n{name}:\n{}", content(section)).unwrap();
        if name == "agentDefaults" {
            let help = NODE_DEFAULTS_HELP;
            write!(text, "\n# {help}\nagentDefaults-pve1:\n  templateVmId: 9000\n").unwrap();
        }
    }
    text
}

const INTRODUCTION: &str = "# Configuration reference

<!-- Generated from the tables of keys: `DROVER_WRITE=1 cargo test -p drover-config reference`. -->

drover reads one YAML file, or all `*.yaml` and `*.yml` files of a directory. `drover check` reports
every fault with file, line and column; `drover schema` prints a JSON Schema for editors.
`configs/full.yaml` has all keys with their defaults.

A template merges four layers; the later one wins: the environment, `agentDefaults`,
`agentDefaults-<node>`, and its entry of `agentConfigurations`. A cloud merges the environment,
`cloudDefaults`, and its entry of `cloudConfigurations`. An empty value is the default. A top-level
key that begins with `x-` is free for your own blocks, which YAML anchors can name.
";

/// Variables that give more than one key, or one key by rules of their own.
const VARIABLES: [(&str, &str); 16] = [
    ("PROXMOX_API_URL, PROXMOX_URL, PVE_ENDPOINT", "`apiUrl` of clouds"),
    (
        "PROXMOX_TOKEN_ID, PVE_TOKEN_ID",
        "the login of clouds without `credentialsId`: id of the token",
    ),
    ("PROXMOX_TOKEN_SECRET, PVE_TOKEN_SECRET", "the same: secret of the token"),
    ("PVE_USERNAME", "the same, without a token: the user"),
    ("PVE_PASSWORD", "the same, without a token: the password"),
    ("PROXMOX_VERIFY_SSL", "the opposite of `ignoreSslErrors`"),
    ("PVE_INSECURE_SKIP_VERIFY", "`ignoreSslErrors`"),
    ("PVE_CA_BUNDLE", "`caFile` for an absolute path, else `caPem`"),
    ("PROXMOX_NODE", "`node`, or `nodes` for several names with commas"),
    ("PVE_NODE_SELECTOR", "`preferredNodes`, separated by commas"),
    ("GITHUB_TOKEN", "the token of sources of kind github without `credentialsId`"),
    ("REPO_URL", "`url` and `scope` of sources of kind github"),
    ("REPO_OWNER, REPO_NAME", "`scope` of sources of kind github"),
    ("POLL_INTERVAL", "`pollSeconds` of sources of kind github"),
    (
        "STATE_DIRECTORY, RUNTIME_DIRECTORY",
        "`stateDirectory` and the directory of `socket`; systemd sets them",
    ),
    ("LOG_LEVEL", "`logLevel`; it wins over the file"),
];

fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut left: Vec<&Section> = SECTIONS.iter().collect();
    while !left.is_empty() {
        let first = left.remove(0);
        let same = |one: &&Section| match (one.form, first.form) {
            (Form::One(a) | Form::Many(a), Form::One(b) | Form::Many(b)) => std::ptr::eq(a, b),
            _ => false,
        };
        let (others, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(same);
        left = rest;
        let all: Vec<_> = std::iter::once(first).chain(others).collect();
        let names: Vec<_> = all.iter().map(|one| format!("`{}`", one.name)).collect();
        writeln!(text, "\n## {}\n", names.join(", ")).unwrap();
        for one in &all {
            writeln!(text, "- `{}`: {}", one.name, markdown(one.help)).unwrap();
            if one.name == "agentDefaults" {
                writeln!(text, "- `agentDefaults-<node>`: {NODE_DEFAULTS_HELP}").unwrap();
            }
        }
        match first.form {
            Form::One(table) | Form::Many(table) => text += &rows(table, ""),
            Form::Kinds(kinds) => {
                for (kind, _, table) in kinds {
                    writeln!(text, "\n### `kind: {kind}`").unwrap();
                    text += &rows(table, "");
                }
            }
        }
    }
    text += "\n## Environment\n\n| Variable | Gives |\n|---|---|\n";
    for (names, gives) in VARIABLES {
        let names: Vec<_> = names.split(", ").map(|name| format!("`{name}`")).collect();
        writeln!(text, "| {} | {gives} |", names.join(", ")).unwrap();
    }
    let tables = SECTIONS.iter().filter_map(|section| match section.form {
        Form::One(table) => Some((section.name, table)),
        Form::Many(_) | Form::Kinds(_) => None,
    });
    for (section, key) in tables.flat_map(|(name, table)| table.iter().map(move |key| (name, key)))
    {
        if let Some(variable) = key.variable {
            writeln!(text, "| `{variable}` | `{}` of {section} |", key.name).unwrap();
        }
    }
    text
}

/// The keys of a table, then those of the mappings in them, under the path `of`.
fn rows(table: &Table, of: &str) -> String {
    let mut text = String::new();
    if !table.one_of.is_empty() {
        let keys: Vec<_> = table.one_of.iter().map(|key| format!("`{key}`")).collect();
        writeln!(text, "\nExactly one of {} is given.", keys.join(", ")).unwrap();
    }
    text += "\n| Key | Value | Default | Meaning |\n|---|---|---|---|\n";
    let mut inner = String::new();
    for key in table.iter() {
        let none = if key.preset == Preset::Required { "required" } else { "unset" };
        let default = default(key).map_or(none.to_owned(), |default| format!("`{default}`"));
        let mut help = markdown(&key.meaning());
        if let Some(alias) = key.alias {
            write!(help, ". Also written `{alias}`").unwrap();
        }
        if let Some(variable) = key.variable {
            write!(help, ". Environment: `{variable}`").unwrap();
        }
        writeln!(text, "| `{}` | {} | {default} | {help} |", key.name, kind(key.kind)).unwrap();
        if let Some(table) = key.kind.table() {
            let list = if matches!(key.kind, Kind::Mappings(_)) { "[]" } else { "" };
            let path = format!("{of}{}{list}", key.name);
            writeln!(inner, "\n### `{path}`").unwrap();
            inner += &rows(table, &format!("{path}."));
        }
    }
    text + &inner
}

/// A text in a table of Markdown.
fn markdown(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;")
}
