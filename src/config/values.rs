//! Every value in force, and where it comes from: a line of a file, a variable, or its default.

use proxmox_client::Login;
use serde::Serialize;
use serde_yaml::Value as Yaml;

use super::context::{Bases, Context};
use super::demand::{is_github, over_environment};
use super::environment::{Defaults, GITHUB_TOKEN};
use super::explain::spelled;
use super::fault::Place;
use super::keys::{CLOUD, CREDENTIALS, Form, Key, Kind, SECTIONS, Table};
use super::layer::Layer;
use super::node::{Entry, Value};
use super::top::{Half, Top};
use super::{Checked, Environment};

/// What stands in place of a secret.
const HIDDEN: &str = "***";

/// A value in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValueInForce {
    /// The path of its key, such as `agentConfigurations.linux.memoryMb`.
    pub path: String,
    /// The path of its entry or section, such as `agentConfigurations.linux`.
    #[serde(skip)]
    pub entry: String,
    /// The value as YAML in one line; `***` for a secret.
    pub value: String,
    pub origin: Origin,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "from")]
pub enum Origin {
    /// A line of a file, with the path that it is written under there.
    File {
        file: String,
        line: usize,
        written: String,
    },
    Variable {
        name: String,
    },
    Default,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { file, line, .. } => write!(f, "{file}:{line}"),
            Self::Variable { name } => write!(f, "${name}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Every value of a checked configuration, section by section. Keys that are neither given nor have a
/// default are left out.
pub fn values(checked: &Checked, environment: &Environment) -> Vec<ValueInForce> {
    let mut out = Out { checked, entry: String::new(), all: Vec::new() };
    // It was checked already: what is wrong with it was said then.
    let (mut faults, mut of_variables) = (Vec::new(), Vec::new());
    let Ok(top) = Top::of(&checked.sources, &mut faults) else { return out.all };
    let defaults = Defaults::of(environment, &mut of_variables);
    for section in &SECTIONS {
        let name = section.name;
        match section.form {
            Form::One(table) if name == "service" => {
                let mut layer = top.one(Half::Local, name, table, &mut faults);
                service(&mut layer, checked, environment);
                out.entry(name, &layer);
            }
            // Templates and clouds have what these say.
            Form::One(_) => {}
            Form::Many(_) if name == "agentConfigurations" => {
                for (id, layer) in &checked.layers {
                    out.entry(&format!("{name}.{id}"), layer);
                }
            }
            Form::Many(table) if name == "cloudConfigurations" => {
                let mut base = |half| {
                    let shared = top.one(half, "cloudDefaults", &CLOUD, &mut faults);
                    defaults.cloud.overlaid(&shared)
                };
                let (local, managed) = (base(Half::Local), base(Half::Managed));
                let login = defaults.login.as_ref().map(|login| match login {
                    Login::Token { .. } => environment.source_of("TOKEN_SECRET"),
                    Login::Password { .. } => environment.source_of("PASSWORD"),
                });
                for (path, own) in many(&top, name, table) {
                    let base = match own.place.map(|place| checked.sources.half(place.file)) {
                        Some(Half::Managed) => &managed,
                        Some(Half::Local) | None => &local,
                    };
                    let layer = base.overlaid(&own);
                    out.entry(&path, &layer);
                    out.login(&path, &layer, login);
                }
            }
            Form::Many(table) if name == "demand" => {
                let mut cx = Context::new(environment, Bases::default());
                let token = environment.get(GITHUB_TOKEN).map(|_| GITHUB_TOKEN);
                for (path, own) in many(&top, name, table) {
                    let layer = over_environment(&own, &mut cx);
                    out.entry(&path, &layer);
                    out.login(&path, &layer, token.filter(|_| is_github(&layer)));
                }
            }
            Form::Many(table) => {
                many(&top, name, table).iter().for_each(|(path, layer)| out.entry(path, layer));
            }
            Form::Kinds(_) => {
                for entry in top.entries(name) {
                    let table = CREDENTIALS.iter().find(|(kind, ..)| is_kind(entry, kind));
                    let Some((.., table)) = table else { continue };
                    let path = format!("{name}.{}", entry.key);
                    out.entry(&path, &checked_layer(entry, &path, table));
                }
            }
        }
    }
    out.all
}

/// The directories and the log level, which the service takes from its environment too.
fn service(layer: &mut Layer, checked: &Checked, environment: &Environment) {
    let spec = &checked.service;
    if environment.get("LOG_LEVEL").is_some() {
        layer.put("logLevel", "LOG_LEVEL", Yaml::from(spec.log_level.as_str()));
    }
    let paths = [
        ("stateDirectory", "STATE_DIRECTORY", &spec.state_directory),
        ("socket", "RUNTIME_DIRECTORY", &spec.socket),
    ];
    for (key, variable, path) in paths {
        if !layer.has(key) && environment.directory(variable).is_some() {
            layer.put(key, variable, Yaml::from(path.display().to_string()));
        }
    }
}

fn entries(entry: &Entry) -> &[Entry] {
    match &entry.value.value {
        Value::Map(entries) => entries,
        Value::Scalar { .. } | Value::List(_) => &[],
    }
}

fn is_kind(entry: &Entry, kind: &str) -> bool {
    let given = entries(entry).iter().find(|entry| entry.key == "kind");
    given.is_some_and(|given| match &given.value.value {
        Value::Scalar { text, .. } => &**text == kind,
        Value::Map(_) | Value::List(_) => false,
    })
}

fn checked_layer(entry: &Entry, path: &str, table: &'static Table) -> Layer {
    Layer::check(&entry.value, entry.place, path, table, &mut Vec::new())
}

fn many(top: &Top, name: &str, table: &'static Table) -> Vec<(String, Layer)> {
    let read = |entry: &Entry| {
        let path = format!("{name}.{}", entry.key);
        let layer = checked_layer(entry, &path, table);
        (path, layer)
    };
    top.entries(name).map(read).collect()
}

struct Out<'a> {
    checked: &'a Checked,
    /// The entry that is taken in.
    entry: String,
    all: Vec<ValueInForce>,
}

impl Out<'_> {
    /// Takes in an entry, or a section that has none.
    fn entry(&mut self, path: &str, layer: &Layer) {
        path.clone_into(&mut self.entry);
        self.layer(path, layer);
    }

    /// Takes in what a mapping has.
    fn layer(&mut self, path: &str, layer: &Layer) {
        for (key, written) in layer.written() {
            let path = format!("{path}.{}", key.name);
            let Some(written) = written else {
                // A flag that is not set says something beside what is used in its place.
                let is_used = matches!(key.kind, Kind::Flag) || !layer.is_replaced(key);
                if let Some(value) = key.default().filter(|_| is_used) {
                    self.push(key, path, &value, Origin::Default);
                }
                continue;
            };
            if written.nested.is_empty() {
                let origin = self.origin(written.place, written.path);
                self.push(key, path, written.value, origin);
                continue;
            }
            let is_list = matches!(written.value, Yaml::Sequence(_));
            for (n, inner) in written.nested.iter().enumerate() {
                let path = if is_list { format!("{path}[{n}]") } else { path.clone() };
                self.layer(&path, inner);
            }
        }
    }

    /// Takes in that a variable gives the login of what names no credentials.
    fn login(&mut self, path: &str, layer: &Layer, variable: Option<&str>) {
        let Some(variable) = variable.filter(|_| !layer.has("credentialsId")) else { return };
        let (path, name) = (format!("{path}.credentialsId"), variable.to_owned());
        let origin = Origin::Variable { name };
        let entry = self.entry.clone();
        self.all.push(ValueInForce { path, entry, value: HIDDEN.to_owned(), origin });
    }

    fn push(&mut self, key: &Key, path: String, value: &Yaml, origin: Origin) {
        let value = if key.secret { HIDDEN.to_owned() } else { spelled(&without_logins(value)) };
        self.all.push(ValueInForce { path, entry: self.entry.clone(), value, origin });
    }

    fn origin(&self, place: Option<Place>, path: &str) -> Origin {
        let Some(place) = place else { return Origin::Variable { name: path.to_owned() } };
        let file = self.checked.sources.file(place.file).map(|file| file.name.clone());
        Origin::File { file: file.unwrap_or_default(), line: place.line, written: path.to_owned() }
    }
}

/// A value with the logins in its URLs hidden.
fn without_logins(value: &Yaml) -> Yaml {
    match value {
        Yaml::String(text) => Yaml::String(hide_logins(text)),
        Yaml::Sequence(items) => Yaml::Sequence(items.iter().map(without_logins).collect()),
        Yaml::Mapping(fields) => {
            let hidden = |(key, value): (&Yaml, &Yaml)| (key.clone(), without_logins(value));
            Yaml::Mapping(fields.iter().map(hidden).collect())
        }
        Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::Tagged(_) => value.clone(),
    }
}

/// A text in which `***` stands for each login of a URL, as in `https://user:password@host/`.
fn hide_logins(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let login = url_login(part);
        shown += "://";
        shown += login.map_or("", |_| HIDDEN);
        shown += &part[login.map_or(0, str::len)..];
    }
    shown
}

/// The login at the beginning of what follows `://`, as `user:password` in `user:password@host/`.
pub(crate) fn url_login(after_scheme: &str) -> Option<&str> {
    let ends = |c: char| c.is_whitespace() || "/?#\"'<>".contains(c);
    let authority = after_scheme.split(ends).next().unwrap_or_default();
    authority.rsplit_once('@').map(|(login, _)| login)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: no login in a URL is shown, and the rest of the URL is.

    #[test]
    fn the_login_of_each_url_is_hidden_wherever_it_stands() {
        for (text, shown) in [
            ("https://ci:hunter2@git.example.com/x", "https://***@git.example.com/x"),
            ("http://ghp_hunter2@proxy:3128", "http://***@proxy:3128"),
            ("socks5://a:p@hunter2@proxy", "socks5://***@proxy"),
            ("curl http://u:hunter2@a/ https://b/@c", "curl http://***@a/ https://b/@c"),
            ("https://pve1:8006/?to=a@b", "https://pve1:8006/?to=a@b"),
            ("root@pam!ci", "root@pam!ci"),
            ("", ""),
        ] {
            assert_eq!(hide_logins(text), shown);
            let nested = Yaml::Sequence(vec![Yaml::from(text)]);
            assert_eq!(without_logins(&nested), Yaml::Sequence(vec![Yaml::from(shown)]));
        }
    }
}
