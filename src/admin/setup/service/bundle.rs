//! The files for the guest: the program, the configuration with all files that it names, the
//! systemd unit, and the environment variables that stand for keys of the configuration.
//!
//! A file beside the YAML goes to the same place below [`GUEST_CONFIG`]; a file that the YAML names
//! by its full path goes to that path. A path that the service could not read in the guest is
//! refused. Files of the configuration belong to the service's user, all others to root.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use drover_config::{Checked, Environment};

/// The folder of the configuration in the guest.
pub(super) const GUEST_CONFIG: &str = "/etc/drover";
/// The path of the program in the guest.
pub(super) const GUEST_PROGRAM: &str = "/usr/local/bin/drover";
/// The path of the systemd unit in the guest.
pub(super) const GUEST_UNIT: &str = "/etc/systemd/system/drover.service";
/// The path of the unit's environment variables in the guest.
pub(super) const GUEST_VARIABLES: &str = "/etc/default/drover";

const UNIT_TEXT: &str = include_str!("../../../../configs/drover.service");

/// Folders that the unit cannot see, or whose content does not last.
const UNUSABLE_FOLDERS: [&str; 8] =
    ["/home", "/root", "/tmp", "/var/tmp", "/run", "/proc", "/dev", "/usr"];

/// Environment variables for sources: names, or prefixes that end in `_`.
const SOURCE_VARIABLES: [&str; 2] = ["GITHUB_", "POLL_INTERVAL"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// The path in the guest.
    pub path: String,
    pub content: Bytes,
    pub mode: u32,
    /// Whether the service's user owns it, rather than root.
    pub own: bool,
}

impl GuestFile {
    fn roots(path: &str, content: impl Into<Bytes>, mode: u32) -> Self {
        Self { path: path.to_owned(), content: content.into(), mode, own: false }
    }

    /// The SHA-256 of the content, in hexadecimal digits.
    pub fn sum(&self) -> String {
        Sha256::digest(&self.content).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// All files for the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// The program comes first.
    pub parts: Vec<GuestFile>,
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}", path.display())
}

impl Bundle {
    /// Collects the files. `base` is the configuration, a file or a directory.
    ///
    /// # Errors
    /// A file that cannot be read, or that the service would not find in the guest.
    pub fn collect(
        base: &Path,
        program: &Path,
        checked: &Checked,
        environment: &Environment,
    ) -> Result<Self, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| unreadable(path, &error));
        let own = Path::new("/var/lib/drover");
        if !checked.service.state_directory.starts_with(own) {
            return Err(format!(
                "service.stateDirectory is {}; leave the key out, because the unit uses {}",
                checked.service.state_directory.display(),
                own.display()
            ));
        }
        let mut files: BTreeMap<String, (Bytes, u32)> = BTreeMap::new();
        let mut texts = Vec::new();
        for file in checked.sources.files() {
            let content = read(&file.path)?;
            texts.push(String::from_utf8_lossy(&content).into_owned());
            let name = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(format!("{GUEST_CONFIG}/{name}"), (content.into(), 0o600));
        }
        let folder = if base.is_dir() { base } else { base.parent().unwrap_or(base) };
        let mut credentials = BTreeSet::new();
        let handed = environment.get("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        for path in drover_config::inputs(base, environment) {
            let content = read(&path)?.into();
            let at = match handed.as_ref().and_then(|folder| path.strip_prefix(folder).ok()) {
                Some(name) => {
                    let name = name.to_string_lossy().into_owned();
                    let at = format!("{GUEST_CONFIG}/credentials/{name}");
                    credentials.insert(name);
                    at
                }
                None => within(&path, folder, &texts)?,
            };
            files.insert(at, (content, 0o600));
        }
        let at = match base.is_dir() {
            true => GUEST_CONFIG.to_owned(),
            false => {
                format!("{GUEST_CONFIG}/{}", base.file_name().unwrap_or_default().to_string_lossy())
            }
        };
        let mut parts = vec![GuestFile::roots(GUEST_PROGRAM, read(program)?, 0o755)];
        let own = |(path, (content, mode))| GuestFile { path, content, mode, own: true };
        parts.extend(files.into_iter().map(own));
        parts.push(GuestFile::roots(GUEST_VARIABLES, variables(environment, &texts), 0o600));
        parts.push(GuestFile::roots(GUEST_UNIT, unit(&at, &credentials), 0o644));
        Ok(Self { parts })
    }
}

/// The path of a file of the configuration in the guest: beside the YAML as here, or, where the
/// YAML names the full path, that path.
fn within(path: &Path, folder: &Path, texts: &[String]) -> Result<String, String> {
    let shown = path.to_string_lossy().into_owned();
    let dotted = path.components().any(|part| part == Component::ParentDir);
    let named = texts.iter().any(|text| text.contains(&shown));
    if let (Ok(beside), false, false) = (path.strip_prefix(folder), named, dotted) {
        return Ok(format!("{GUEST_CONFIG}/{}", beside.display()));
    }
    let unseen = UNUSABLE_FOLDERS.iter().any(|folder| path.starts_with(folder));
    if unseen || dotted || !path.is_absolute() {
        return Err(format!(
            "the configuration names {shown}, which the service would not find in the guest; put the file \
             beside the YAML and name it without a folder, or put it below {GUEST_CONFIG}"
        ));
    }
    Ok(shown)
}

/// The unit, with the path of the configuration and the credentials that the configuration uses.
fn unit(config: &str, credentials: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for line in UNIT_TEXT.lines() {
        if line.starts_with("LoadCredential=") || line.starts_with("SetCredential=") {
            continue;
        }
        if line.starts_with("# Secrets are read as") {
            for name in credentials {
                text.push_str(&format!(
                    "LoadCredential={name}:{GUEST_CONFIG}/credentials/{name}\n"
                ));
            }
            continue;
        }
        text.push_str(&line.replace("--config /etc/drover ", &format!("--config {config} ")));
        text.push('\n');
    }
    text
}

/// Collects the names in `secretEnv:` of any mapping.
fn named(value: &serde_yaml::Value, names: &mut BTreeSet<String>) {
    if let Some(map) = value.as_mapping() {
        for (key, value) in map {
            if let (Some("secretEnv"), Some(name)) = (key.as_str(), value.as_str()) {
                names.insert(name.to_owned());
            }
            named(value, names);
        }
    }
    for item in value.as_sequence().into_iter().flatten() {
        named(item, names);
    }
}

/// The file of variables: those that stand for keys, those that the YAML names, and those for
/// sources.
fn variables(environment: &Environment, texts: &[String]) -> String {
    let mut all = environment.given();
    let mut names = BTreeSet::new();
    for text in texts {
        // A text that is no YAML was refused before.
        if let Ok(value) = serde_yaml::from_str(text) {
            named(&value, &mut names);
        }
    }
    let demand = environment.names().filter(|name| {
        SOURCE_VARIABLES
            .iter()
            .any(|word| name == word || (word.ends_with('_') && name.starts_with(word)))
    });
    names.extend(demand.map(str::to_owned));
    for name in names {
        let value = environment.get(&name).map(str::to_owned);
        all.extend(value.map(|value| (name, value)));
    }
    let mut text = "# made by drover setup service\n".to_owned();
    for (name, value) in all {
        let mut quoted = String::new();
        for letter in value.chars() {
            if matches!(letter, '"' | '\\' | '$' | '`') {
                quoted.push('\\');
            }
            quoted.push(letter);
        }
        text.push_str(&format!("{name}=\"{quoted}\"\n"));
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: the unit asks for the credentials of the configuration, and is that of configs/
    // otherwise.

    #[test]
    fn the_unit_has_the_configurations_place_and_its_credentials_alone() {
        let text = unit("/etc/drover/lab.yaml", &BTreeSet::from(["token".to_owned()]));
        let changed = |line: &&str| !UNIT_TEXT.lines().any(|other| other == *line);
        insta::assert_snapshot!(text.lines().filter(changed).collect::<Vec<_>>().join("\n"), @r"
        ExecStart=/usr/local/bin/drover --config /etc/drover/lab.yaml run
        LoadCredential=token:/etc/drover/credentials/token
        ");
        assert!(text.contains("EnvironmentFile=-/etc/default/drover\n"));
        assert!(!unit(GUEST_CONFIG, &BTreeSet::new()).contains("Credential="));
    }

    // Invariant: only variables that the service uses are passed on, unchanged.

    #[test]
    fn variables_that_are_named_are_handed_on() {
        let environment = Environment::of(&[
            ("PROXMOX_NODE", "pve1"),
            ("RUNNER_LABELS", "a b"),
            ("MY_SECRET", "it\"s $5"),
            ("GITHUB_TOKEN", "t"),
            ("HOME", "/root"),
            ("DROVER_ADMIN_PASSWORD", "never"),
        ]);
        let text = "credentials: {a: {kind: proxmoxToken, secretEnv: MY_SECRET}}".to_owned();
        insta::assert_snapshot!(variables(&environment, &[text]), @r#"
        # made by drover setup service
        GITHUB_TOKEN="t"
        MY_SECRET="it\"s \$5"
        PROXMOX_NODE="pve1"
        RUNNER_LABELS="a b"
        "#);
    }

    // Invariant: a file is put where the service looks for it, or is refused.

    #[test]
    fn files_go_where_the_yaml_says_that_they_are() {
        let folder = Path::new("/home/me/ci");
        let at = |path: &str, text: &str| within(Path::new(path), folder, &[text.to_owned()]);
        assert_eq!(at("/home/me/ci/token", "secretFile: token").unwrap(), "/etc/drover/token");
        assert_eq!(at("/home/me/ci/a/b", "secretFile: a/b").unwrap(), "/etc/drover/a/b");
        let full = "secretFile: /etc/pki/token";
        assert_eq!(at("/etc/pki/token", full).unwrap(), "/etc/pki/token");
        let refused = at("/home/me/ci/token", "secretFile: /home/me/ci/token").unwrap_err();
        insta::assert_snapshot!(refused, @"the configuration names /home/me/ci/token, which the service would not find in the guest; put the file beside the YAML and name it without a folder, or put it below /etc/drover");
        assert!(at("/home/me/ci/../token", "secretFile: ../token").is_err());
    }
}
