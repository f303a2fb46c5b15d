//! The environment: the lowest layer of clouds and agents, the login of clouds, secrets by name,
//! and directories of systemd.
//!
//! The connection has two families of variables. The `config` crate layers them: `PROXMOX_*` over
//! `PVE_*`. Other variables give one key each; the entry of the key names its variable
//! (`keys`, `Key::variable`). The YAML wins over both. Why the crate does not layer the files too:
//! the opening of `layer.rs`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proxmox_client::Login;
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
    /// Whether the files lie in the store of the members.
    stored: bool,
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
        Self { variables, ..Self::default() }
    }

    /// Just these variables.
    pub fn of(variables: &[(&str, &str)]) -> Self {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Self { variables: variables.iter().map(owned).collect(), ..Self::default() }
    }

    /// The same, for commands that make secrets or need none: files of Proxmox secrets and of SSH
    /// keys may be missing.
    pub fn without_secrets(self) -> Self {
        Self { secretless: true, ..self }
    }

    /// The same, for files that lie in the store of the members: each member reads them in a folder of
    /// its own, so they say nothing of that folder, nor of where the store is.
    pub fn for_stored(self) -> Self {
        Self { stored: true, ..self }
    }

    /// The same with a variable where it is not set.
    pub fn or(mut self, name: &str, value: &str) -> Self {
        self.variables.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        self
    }

    /// The same with a variable in place of what it is set to.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
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

    /// Whether the files lie in the store of the members.
    pub(super) fn is_for_stored(&self) -> bool {
        self.stored
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
    pub(super) fn source_of(&self, shared: &str) -> &'static str {
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

/// The lowest layers: what the environment gives for keys that the YAML leaves out.
#[derive(Debug)]
pub(super) struct Defaults {
    /// Keys of clouds.
    pub cloud: Layer,
    /// Keys of agents.
    pub agent: Layer,
    /// The login of clouds without credentialsId.
    pub login: Option<Login>,
}

impl Defaults {
    /// Reads the variables and their faults.
    pub fn of(environment: &Environment, faults: &mut Vec<Fault>) -> Self {
        let [cloud, agent] = [&CLOUD, &AGENT].map(|table| Layer::empty(None, "", table));
        let mut defaults = Self { cloud, agent, login: None };
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

    fn login(&mut self, layered: Layered) -> Option<Login> {
        let token = [layered.token_id, layered.token_secret];
        if let Some((id, secret)) = self.pair(["TOKEN_ID", "TOKEN_SECRET"], token) {
            let sound = self.sound("TOKEN_ID", &id, value::token_id);
            return sound.then_some(Login::Token { id, secret });
        }
        let password = [layered.username, layered.password];
        let (username, secret) = self.pair(["USERNAME", "PASSWORD"], password)?;
        let sound = self.sound("USERNAME", &username, value::user_id);
        sound.then_some(Login::Password { username, secret })
    }

    /// Two variables that make a login together; one without the other is a fault.
    fn pair(
        &mut self,
        [user, secret]: [&str; 2],
        given: [Option<String>; 2],
    ) -> Option<(String, SecretString)> {
        let (name, other) = match given {
            [Some(user), Some(secret)] => return Some((user, secret.into())),
            [Some(_), None] => (user, secret),
            [None, Some(_)] => (secret, user),
            [None, None] => return None,
        };
        let variable = self.environment.source_of(name);
        self.faults.push(half(variable, &variable.replace(name, other)));
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

/// The fault of a variable that means something only with another one.
pub(super) fn half(name: &str, other: &str) -> Fault {
    Fault::nowhere(name, format!("`{other}` is not set")).help("set both, or neither")
}

/// The value of a key as a variable gives it.
pub(super) fn setting(key: &Key, variable: &str, text: &str) -> Result<Yaml, Fault> {
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
