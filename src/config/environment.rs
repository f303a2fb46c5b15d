//! The environment: the lowest layer of clouds and agents, the login of clouds, secrets by name,
//! and directories of systemd.
//!
//! The connection has two families of variables. The `config` crate layers them: `PROXMOX_*` over
//! `PVE_*`. Other variables give one key each; the entry of the key names its variable
//! (`keys`, `Key::variable`). The YAML wins over both. Why the crate does not layer the files too:
//! the opening of `layer.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::Deserialize;
use serde_yaml::Value as Yaml;

use super::fault::Fault;
use super::keys::{AGENT, CLOUD, Key, Kind, Table};
use super::layer::Layer;
use super::node::flag_of;
use super::value::{self, Check};

/// The variables of connections, with the names that both families share here. Of two in one family
/// the first wins.
const NAMES: [(&str, &str); 12] = [
    ("PROXMOX_API_URL", "API_URL"),
    ("PROXMOX_URL", "API_URL"),
    ("PROXMOX_TOKEN_ID", "TOKEN_ID"),
    ("PROXMOX_TOKEN_SECRET", "TOKEN_SECRET"),
    ("PROXMOX_VERIFY_SSL", "VERIFY_SSL"),
    ("PVE_ENDPOINT", "API_URL"),
    ("PVE_TOKEN_ID", "TOKEN_ID"),
    ("PVE_TOKEN_SECRET", "TOKEN_SECRET"),
    ("PVE_USERNAME", "USERNAME"),
    ("PVE_PASSWORD", "PASSWORD"),
    ("PVE_INSECURE_SKIP_VERIFY", "INSECURE_SKIP_VERIFY"),
    ("PVE_CA_BUNDLE", "CA_BUNDLE"),
];
/// The nodes of agents, separated by commas.
const NODES: &str = "PROXMOX_NODE";
/// The preferred nodes of agents, separated by commas.
const PREFERRED: &str = "PVE_NODE_SELECTOR";

/// The login of sources of kind github without credentialsId.
pub(super) const GITHUB_TOKEN: &str = "GITHUB_TOKEN";
/// The repository of sources of kind github without scope.
pub(super) const REPOSITORY: [&str; 3] = ["REPO_URL", "REPO_OWNER", "REPO_NAME"];
/// The pollSeconds of sources of kind github.
pub(super) const POLL_INTERVAL: &str = "POLL_INTERVAL";

/// The environment that a configuration is read in.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// Whether files of secrets may be missing.
    secretless: bool,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("variables", &self.variables.len()).finish()
    }
}

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(k, v)| (text(k), text(v))).collect();
        Self { variables, secretless: false }
    }

    /// Just these variables.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self { variables: variables.iter().map(owned).collect(), secretless: false }
    }

    /// The same, for commands that make secrets or need none: files of Proxmox secrets and of SSH
    /// keys may be missing.
    pub fn without_secrets(self) -> Self {
        Self { secretless: true, ..self }
    }

    /// The same with a variable where it is not set.
    pub fn or(mut self, name: &str, value: &str) -> Self {
        self.variables.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        self
    }

    /// The names of all variables.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().map(String::as_str)
    }

    /// The variables of the configuration that are set, with their values.
    pub fn given(&self) -> BTreeMap<String, String> {
        let of_keys = CLOUD.iter().chain(AGENT.iter()).filter_map(|key| key.variable);
        let names = NAMES.iter().map(|(name, _)| *name).chain(of_keys);
        let set = |name: &str| Some((name.to_owned(), self.get(name)?.to_owned()));
        let names = names.chain([NODES, PREFERRED]).chain(REPOSITORY);
        let names = names.chain([GITHUB_TOKEN, POLL_INTERVAL]);
        names.filter_map(set).collect()
    }

    /// Whether files of secrets may be missing.
    pub(super) fn is_secretless(&self) -> bool {
        self.secretless
    }

    /// A variable that is set and not blank.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The first directory of a variable that systemd sets, such as `STATE_DIRECTORY`.
    pub(super) fn directory(&self, name: &str) -> Option<PathBuf> {
        self.get(name).and_then(|dirs| dirs.split(':').next()).map(PathBuf::from)
    }

    /// The variable of a shared name that is set, `PROXMOX_*` before `PVE_*`.
    fn source_of(&self, shared: &str) -> &'static str {
        let mut names = NAMES.iter().filter(|(_, name)| *name == shared).map(|(name, _)| *name);
        names.find(|name| self.get(name).is_some()).unwrap_or("")
    }
}

/// The values of both families, merged.
#[derive(Default, Deserialize)]
struct Layered {
    api_url: Option<String>,
    token_id: Option<String>,
    token_secret: Option<String>,
    username: Option<String>,
    password: Option<String>,
    insecure_skip_verify: Option<String>,
    verify_ssl: Option<String>,
    ca_bundle: Option<String>,
}

/// A login that the environment gives.
#[derive(Debug, Clone)]
pub(super) enum EnvironmentLogin {
    Token { id: String, secret: SecretString },
    Password { username: String, secret: SecretString },
}

/// The lowest layers: what the environment gives for keys that the YAML leaves out.
#[derive(Debug)]
pub(super) struct Defaults {
    /// Keys of clouds.
    pub cloud: Layer,
    /// Keys of agents.
    pub agent: Layer,
    /// The login of clouds without credentialsId.
    pub login: Option<EnvironmentLogin>,
}

impl Defaults {
    /// Reads the variables and their faults.
    pub fn of(environment: &Environment, faults: &mut Vec<Fault>) -> Self {
        let mut defaults =
            Self { cloud: Layer::empty(None, ""), agent: Layer::empty(None, ""), login: None };
        let layered = layered(environment).unwrap_or_else(|error| {
            faults.push(Fault::nowhere("environment", error.to_string()));
            Layered::default()
        });
        let mut reader = Reader { environment, faults };
        reader.tls(&layered, &mut defaults.cloud);
        if let Some(url) = &layered.api_url
            && reader.sound("API_URL", url, value::endpoint)
        {
            let variable = environment.source_of("API_URL");
            defaults.cloud.put("apiUrl", variable, Yaml::from(url.as_str()));
        }
        defaults.login = reader.login(layered);
        reader.nodes(&mut defaults.agent);
        reader.settings(&CLOUD, &mut defaults.cloud);
        reader.settings(&AGENT, &mut defaults.agent);
        defaults
    }
}

/// `PROXMOX_*` over `PVE_*`, both by the names they share.
fn layered(environment: &Environment) -> Result<Layered, config::ConfigError> {
    let family = |prefix: &str| {
        let given = NAMES.iter().filter(move |(name, _)| name.starts_with(prefix));
        // Of equal names the crate takes the last one.
        let shared = given.rev().filter_map(|(name, shared)| {
            Some((format!("DROVER_{shared}"), environment.get(name)?.to_owned()))
        });
        config::Environment::with_prefix("DROVER").source(Some(shared.collect()))
    };
    config::Config::builder()
        .add_source(family("PVE_"))
        .add_source(family("PROXMOX_"))
        .build()?
        .try_deserialize()
}

struct Reader<'a> {
    environment: &'a Environment,
    faults: &'a mut Vec<Fault>,
}

impl Reader<'_> {
    fn sound(&mut self, shared: &str, text: &str, check: Check) -> bool {
        let checked = check(text);
        if let Err(bad) = &checked {
            let name = self.environment.source_of(shared);
            self.faults.push(Fault::nowhere(name, bad.message.clone()).help(bad.help));
        }
        checked.is_ok()
    }

    fn tls(&mut self, layered: &Layered, cloud: &mut Layer) {
        // Without a flag, certificates are verified.
        let verify = layered.verify_ssl.as_deref().and_then(|text| self.flag("VERIFY_SSL", text));
        if let Some(bundle) = layered.ca_bundle.as_deref().filter(|_| verify != Some(false)) {
            // A path or the text itself, as in such variables of other programs.
            let key = if bundle.starts_with('/') { "caFile" } else { "caPem" };
            cloud.put(key, "PVE_CA_BUNDLE", Yaml::from(bundle));
        } else if let Some(verify) = verify {
            cloud.put("ignoreSslErrors", "PROXMOX_VERIFY_SSL", Yaml::from(!verify));
        } else if let Some(text) = &layered.insecure_skip_verify
            && let Some(flag) = self.flag("INSECURE_SKIP_VERIFY", text)
        {
            cloud.put("ignoreSslErrors", "PVE_INSECURE_SKIP_VERIFY", Yaml::from(flag));
        }
    }

    fn flag(&mut self, shared: &str, text: &str) -> Option<bool> {
        let flag = flag_of(text).or(match text {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        });
        if flag.is_none() {
            let name = self.environment.source_of(shared);
            let fault = Fault::nowhere(name, "expected true or false");
            self.faults.push(fault.help("set it to `true` or `false`, or unset it"));
        }
        flag
    }

    fn login(&mut self, layered: Layered) -> Option<EnvironmentLogin> {
        let half = |name: &str, other: &str| {
            Fault::nowhere(name, format!("`{other}` is not set")).help("set both, or neither")
        };
        match (layered.token_id, layered.token_secret) {
            (Some(id), Some(secret)) => {
                let sound = self.sound("TOKEN_ID", &id, value::token_id);
                return sound.then(|| EnvironmentLogin::Token { id, secret: secret.into() });
            }
            (Some(_), None) => {
                let name = self.environment.source_of("TOKEN_ID");
                self.faults.push(half(name, &name.replace("_ID", "_SECRET")));
            }
            (None, Some(_)) => {
                let name = self.environment.source_of("TOKEN_SECRET");
                self.faults.push(half(name, &name.replace("_SECRET", "_ID")));
            }
            (None, None) => {}
        }
        match (layered.username, layered.password) {
            (Some(username), Some(secret)) => {
                let sound = self.sound("USERNAME", &username, value::user_id);
                return sound
                    .then(|| EnvironmentLogin::Password { username, secret: secret.into() });
            }
            (Some(_), None) => self.faults.push(half("PVE_USERNAME", "PVE_PASSWORD")),
            (None, Some(_)) => self.faults.push(half("PVE_PASSWORD", "PVE_USERNAME")),
            (None, None) => {}
        }
        None
    }

    fn nodes(&mut self, agent: &mut Layer) {
        let listed = |variable: &str| -> Vec<Yaml> {
            let text = self.environment.get(variable).unwrap_or_default();
            let nodes = text.split(',').map(str::trim).filter(|node| !node.is_empty());
            nodes.map(Yaml::from).collect()
        };
        match &listed(NODES)[..] {
            [] => {}
            [node] => agent.put("node", NODES, node.clone()),
            several => agent.put("nodes", NODES, Yaml::Sequence(several.to_vec())),
        }
        let preferred = listed(PREFERRED);
        if !preferred.is_empty() {
            agent.put("preferredNodes", PREFERRED, Yaml::Sequence(preferred));
        }
    }

    /// The variables that give one key each, read as the key is.
    fn settings(&mut self, table: &Table, layer: &mut Layer) {
        for (key, variable) in table.iter().filter_map(|key| Some((key, key.variable?))) {
            let Some(text) = self.environment.get(variable) else { continue };
            match setting(key, variable, text) {
                Ok(value) => layer.put(key.name, variable, value),
                Err(fault) => self.faults.push(fault),
            }
        }
    }
}

fn setting(key: &Key, variable: &str, text: &str) -> Result<Yaml, Fault> {
    if let Kind::Whole(least, most) = key.kind {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        return number.map(Yaml::from).ok_or_else(|| {
            let message = format!("`{text}` is not a whole number from {least} to {most}");
            Fault::nowhere(variable, message).help("set such a number, or unset it")
        });
    }
    if key.name == "labelString" {
        // Lists of labels have commas in the environment, and blanks in the YAML.
        return Ok(Yaml::from(text.replace(',', " ")));
    }
    match key.check.map_or(Ok(()), |check| check(text)) {
        Ok(()) => Ok(Yaml::from(text)),
        Err(bad) => Err(Fault::nowhere(variable, bad.message).help(bad.help)),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use secrecy::ExposeSecret;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> (Defaults, Vec<Fault>) {
        let mut faults = Vec::new();
        let defaults = Defaults::of(&Environment::of(variables), &mut faults);
        (defaults, faults)
    }

    // Invariant: PROXMOX_ wins over PVE_, a blank variable is not set, and half a login is a fault.

    #[test]
    fn proxmox_variables_win_over_pve_ones() {
        let (defaults, faults) = read(&[
            ("PVE_ENDPOINT", "https://two:8006"),
            ("PROXMOX_API_URL", "https://one:8006"),
            ("PVE_TOKEN_ID", "b@pve!b"),
            ("PVE_TOKEN_SECRET", "two"),
            ("PROXMOX_TOKEN_ID", "a@pve!a"),
            ("PROXMOX_TOKEN_SECRET", "one"),
            ("PVE_USERNAME", "root@pam"),
            ("PVE_PASSWORD", "x"),
            ("PVE_NODE_SELECTOR", "pve7"),
        ]);
        assert_eq!(faults, []);
        assert_eq!(defaults.cloud.text("apiUrl"), Some("https://one:8006"));
        assert_eq!(defaults.agent.get("node"), None);
        assert_eq!(defaults.agent.get("preferredNodes"), Some(&Yaml::from(vec!["pve7"])));
        match defaults.login.unwrap() {
            EnvironmentLogin::Token { id, secret } => {
                assert_eq!((id.as_str(), secret.expose_secret()), ("a@pve!a", "one"));
            }
            EnvironmentLogin::Password { .. } => panic!("the token is preferred"),
        }
    }

    #[test]
    fn pve_variables_alone_are_enough() {
        let (defaults, faults) = read(&[
            ("PROXMOX_API_URL", ""),
            ("PVE_ENDPOINT", "https://two:8006/api2"),
            ("PVE_USERNAME", "root@pam"),
            ("PVE_PASSWORD", "123"),
            ("PVE_INSECURE_SKIP_VERIFY", "true"),
        ]);
        assert_eq!(faults, []);
        assert_eq!(defaults.cloud.text("apiUrl"), Some("https://two:8006/api2"));
        assert_eq!(defaults.cloud.get("ignoreSslErrors"), Some(&Yaml::from(true)));
        assert!(matches!(defaults.login, Some(EnvironmentLogin::Password { .. })));
    }

    #[test]
    fn what_is_wrong_with_a_variable_names_it() {
        let (_, faults) = read(&[
            ("PVE_ENDPOINT", "http://two:8006"),
            ("PROXMOX_TOKEN_ID", "a@pve!a"),
            ("PVE_PASSWORD", "x"),
            ("PVE_INSECURE_SKIP_VERIFY", "maybe"),
            ("RUNNER_ID_START", "7"),
        ]);
        let mut named: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        named.sort_unstable();
        let expected = [
            "PROXMOX_TOKEN_ID",
            "PVE_ENDPOINT",
            "PVE_INSECURE_SKIP_VERIFY",
            "PVE_PASSWORD",
            "RUNNER_ID_START",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_flag_that_is_not_set_verifies_and_proxmoxs_wins() {
        let flag = |variables: &[(&str, &str)]| {
            let (defaults, faults) = read(variables);
            assert_eq!(faults, []);
            let ignores = defaults.cloud.get("ignoreSslErrors").and_then(Yaml::as_bool);
            (ignores, defaults.cloud.text("caPem").map(str::to_owned))
        };
        assert_eq!(flag(&[]), (None, None));
        assert_eq!(flag(&[("PROXMOX_VERIFY_SSL", "false")]), (Some(true), None));
        let both = [("PROXMOX_VERIFY_SSL", "true"), ("PVE_INSECURE_SKIP_VERIFY", "true")];
        assert_eq!(flag(&both), (Some(false), None));
        let bundle = [("PROXMOX_VERIFY_SSL", "true"), ("PVE_CA_BUNDLE", "PEM")];
        assert_eq!(flag(&bundle), (None, Some("PEM".to_owned())));
        let (of_file, _) = read(&[("PVE_CA_BUNDLE", "/etc/pve-root-ca.pem")]);
        assert_eq!(of_file.cloud.text("caFile"), Some("/etc/pve-root-ca.pem"));
        let bundle = [("PROXMOX_VERIFY_SSL", "0"), ("PVE_CA_BUNDLE", "PEM")];
        assert_eq!(flag(&bundle), (Some(true), None));
    }

    #[test]
    fn the_variables_of_a_runners_dispatcher_are_defaults_too() {
        let (defaults, faults) = read(&[
            ("PROXMOX_URL", "https://one:8006/api2/json"),
            ("PROXMOX_NODE", "proxmox"),
            ("PVE_NODE_SELECTOR", "pve-1,pve-2"),
            ("TEMPLATE_NAME", "ubuntu-2204-runner-template"),
            ("RUNNER_ID_START", "200"),
            ("RUNNER_ID_END", "299"),
            ("RUNNER_NAME_PREFIX", "energy-"),
            ("RUNNER_LABELS", "linux,x64,ubuntu-22.04"),
            ("PROXMOX_STORAGE", "iso"),
            ("USER_DATA_TEMPLATE", "runner.pkrtpl"),
        ]);
        assert_eq!(faults, []);
        assert_eq!(defaults.cloud.text("cloudInitIsoStorage"), Some("iso"));
        assert_eq!(defaults.agent.text("userDataFile"), Some("runner.pkrtpl"));
        assert_eq!(defaults.cloud.text("apiUrl"), Some("https://one:8006/api2/json"));
        assert_eq!(defaults.cloud.get("endVmId"), Some(&Yaml::from(299)));
        let agent = |key| defaults.agent.text(key).unwrap_or_default().to_owned();
        let keys = ["node", "templateName", "namePrefix", "labelString"].map(agent);
        let wanted =
            ["proxmox", "ubuntu-2204-runner-template", "energy-", "linux x64 ubuntu-22.04"];
        assert_eq!(keys, wanted);
        assert_eq!(defaults.agent.get("nodes"), None);
    }

    // Invariant: PVE_NODE_SELECTOR prefers nodes and forbids none; PROXMOX_NODE says which there
    // are.

    #[test]
    fn several_preferred_nodes_are_chosen_among() {
        let nodes: Yaml = serde_yaml::from_str("[pve-1, pve-2]").unwrap();
        let (defaults, _) = read(&[("PVE_NODE_SELECTOR", "pve-1, pve-2")]);
        assert_eq!(defaults.agent.get("preferredNodes"), Some(&nodes));
        assert_eq!((defaults.agent.get("node"), defaults.agent.get("nodes")), (None, None));
        let (defaults, _) = read(&[("PROXMOX_NODE", "pve-1, pve-2")]);
        assert_eq!(defaults.agent.get("nodes"), Some(&nodes));
        assert_eq!(defaults.agent.get("preferredNodes"), None);
        let (defaults, _) = read(&[("PVE_NODE_SELECTOR", " , ")]);
        assert_eq!(defaults.agent.get("preferredNodes"), None);
    }
}
