//! `service.configSync`: the repository from which drover reads part of its configuration, and what
//! such files must not hold.

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use drover_git::{Login, Remote, RepoUrl, Scheme};

use super::context::Context;
use super::credential::{Credential, Credentials, resolve};
use super::environment::Environment;
use super::fault::Fault;
use super::keys::{RawConfigSync, SERVICE};
use super::layer::Layer;
use super::managed::{CONFIG_SYNC, IN_FORCE};
use super::node::{Entry, Node, Value};
use super::source::Sources;
use super::top::Top;
use super::values::url_login;

/// The kinds of credentials that a repository takes.
const KINDS: &str = "apiToken, apiLogin or sshKey";
/// The fewest letters of a token that stands in a URL where a user does.
const TOKEN_MIN: usize = 20;
/// The user beside a token: forges look at the token alone.
const TOKEN_USER: &str = "x-access-token";

/// The repository with part of the configuration.
#[derive(Debug, Clone)]
pub struct ConfigSyncSpec {
    /// The branch, and how it is reached.
    pub remote: Remote,
    /// A YAML file in the repository, or a folder of them.
    pub path: String,
    /// The cron pattern of the automatic sync; none for syncs on demand alone.
    pub schedule: Option<String>,
    /// The IANA time zone of the schedule.
    pub time_zone: String,
    /// Whether people may change what git manages; the next sync undoes it.
    pub allows_changes: bool,
    /// The longest time of one sync.
    pub timeout: Duration,
}

/// What must be known of a sync before the rest of the configuration is read.
pub(super) struct Outline {
    /// Where the files are that git manages.
    pub folder: PathBuf,
    /// Whether the copies count that people may edit.
    pub allows_changes: bool,
}

/// Looks whether this machine's files name a repository. Faults are found later.
pub(super) fn outline(sources: &Sources, environment: &Environment) -> Option<Outline> {
    let mut faults = Vec::new();
    let top = Top::of(&sources.local(), &mut faults).ok()?;
    let section = top.local("service")?;
    let layer = Layer::check(&section.value, section.place, "service", &SERVICE, &mut faults);
    let sync = layer.nested("configSync").first()?;
    let given = layer.text("stateDirectory").filter(|path| !path.is_empty());
    let state = state_directory(given.map(PathBuf::from), environment);
    let allows = sync.get("allowManualChanges").and_then(serde_yaml::Value::as_bool);
    Some(Outline { folder: managed_folder(&state), allows_changes: allows.unwrap_or(true) })
}

/// The folder of the files in force that git manages, in a state directory.
pub fn managed_folder(state: &Path) -> PathBuf {
    state.join(CONFIG_SYNC).join(IN_FORCE)
}

/// The state directory: the one of the command line, of the YAML, of systemd, or the usual one.
pub fn state_directory(given: Option<PathBuf>, environment: &Environment) -> PathBuf {
    let of_command = environment.get("DROVER_STATE_DIR").map(PathBuf::from);
    let otherwise = || environment.directory("STATE_DIRECTORY");
    of_command.or(given).or_else(otherwise).unwrap_or_else(|| "/var/lib/drover".into())
}

/// Makes the sync of `service.configSync`; none where it is not given, or has faults.
pub(super) fn config_sync(
    service: &Layer,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<ConfigSyncSpec> {
    let layer = service.nested("configSync").first()?;
    let raw: RawConfigSync = layer.typed(&mut cx.faults)?;
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let login = match given(raw.credentials_id) {
        Some(id) => resolve(layer, &id, credentials, KINDS, login, cx)?,
        None => Login::None,
    };
    let url = RepoUrl::from_str(&raw.repository).ok()?;
    check_reach(&url, &login, &raw.known_hosts, layer, cx);
    let ca_file = raw.ca_file.filter(|path| !path.as_os_str().is_empty());
    let ca_file = match ca_file {
        Some(path) => {
            let name = path.display().to_string();
            cx.open_file(layer, "caFile", &name)?;
            Some(cx.path(layer.place_of("caFile"), &name))
        }
        None => None,
    };
    let known_hosts = Some(raw.known_hosts.join("\n")).filter(|lines| !lines.is_empty());
    Some(ConfigSyncSpec {
        remote: Remote { url, branch: raw.branch, login, ca_file, known_hosts },
        path: raw.path.strip_suffix('/').unwrap_or(&raw.path).to_owned(),
        schedule: given(raw.schedule),
        time_zone: raw.time_zone,
        allows_changes: raw.allow_manual_changes,
        timeout: Duration::from_secs(raw.timeout_sec),
    })
}

/// Whether the login fits the repository, and what proves its server.
fn check_reach(
    url: &RepoUrl,
    login: &Login,
    known_hosts: &[String],
    layer: &Layer,
    cx: &mut Context<'_>,
) {
    if let Err(why) = login.check(url) {
        let fault = layer.fault("credentialsId", why.to_string());
        cx.faults.push(fault.help(match url.scheme() {
            Scheme::Ssh => "name a credential of kind sshKey",
            Scheme::Https | Scheme::Http => "name a credential of kind apiToken or apiLogin",
            Scheme::File => "remove the key",
        }));
    }
    if url.scheme() == Scheme::Ssh && known_hosts.is_empty() {
        let fault = layer.missing_fault("knownHosts", "nothing proves the server's host key");
        cx.faults.push(fault.help("add its lines of known_hosts, which `ssh-keyscan HOST` prints"));
    }
    for line in known_hosts {
        if !is_host_key(line) {
            let message = format!("`{line}` is no line of known_hosts");
            let fault = layer.fault("knownHosts", message);
            cx.faults.push(fault.help("write each line as `ssh-keyscan HOST` prints it"));
        }
    }
    if url.scheme() == Scheme::Http {
        let message = match login {
            Login::None => "others can change on the way what drover reads: the URL is not https",
            Login::Password { .. } | Login::SshKey { .. } => {
                "others can read the login on the way: the URL is not https"
            }
        };
        cx.warnings.push(layer.fault("repository", message).help("use https"));
    }
}

/// Whether it has the form of a line of `known_hosts`, or of a comment in it (sshd(8)).
fn is_host_key(line: &str) -> bool {
    let mut words = line.split_whitespace().peekable();
    if line.trim().is_empty() || line.trim_start().starts_with('#') {
        return true;
    }
    words.next_if(|word| word.starts_with('@'));
    let (host, kind, key) = (words.next(), words.next(), words.next());
    let is_kind =
        |kind: &str| ["ssh-", "ecdsa-", "sk-"].iter().any(|start| kind.starts_with(start));
    // Each form of a key begins with the length of its kind.
    host.is_some() && kind.is_some_and(is_kind) && key.is_some_and(|key| key.starts_with("AAAA"))
}

fn login(credential: &Credential) -> Option<Login> {
    match credential {
        Credential::Token(token) => {
            Some(Login::Password { username: TOKEN_USER.to_owned(), password: token.clone() })
        }
        Credential::Login(user, secret) => {
            Some(Login::Password { username: user.clone(), password: secret.clone() })
        }
        Credential::SshKey(key) => {
            let (username, key) = (key.username.clone(), key.key.to_openssh().ok()?);
            Some(Login::SshKey { username, key })
        }
        Credential::Proxmox(_) | Credential::App(_) | Credential::Faulty => None,
    }
}

/// Refuses secrets that stand in files of git under keys that are no secrets: logins in URLs, and
/// private keys.
pub(super) fn refuse_plain_secrets(managed: &[Entry], faults: &mut Vec<Fault>) {
    for entry in managed {
        search(&entry.value, &entry.key, faults);
    }
}

fn search(node: &Node, path: &str, faults: &mut Vec<Fault>) {
    match &node.value {
        Value::Map(entries) => {
            for entry in entries {
                search(&entry.value, &format!("{path}.{}", entry.key), faults);
            }
        }
        Value::List(items) => {
            for (at, item) in items.iter().enumerate() {
                search(item, &format!("{path}[{at}]"), faults);
            }
        }
        Value::Scalar { text, .. } => {
            let what = if text.contains("PRIVATE KEY-----") {
                "git holds a private key"
            } else if has_password(text) {
                "git holds the password or token of a URL"
            } else {
                return;
            };
            let fault = Fault::at(node.place, path, what);
            faults.push(fault.help("keep it in the configuration of drover's machine"));
        }
    }
}

/// Whether a text has a URL with a password, as in `https://user:password@host/`, or with a token alone.
fn has_password(text: &str) -> bool {
    let mut logins = text.split("://").skip(1).filter_map(url_login);
    logins.any(|login| match login.split_once(':') {
        Some((_, password)) => !password.is_empty(),
        None => is_token(login),
    })
}

/// Whether a login is more likely a token than the name of a user.
fn is_token(login: &str) -> bool {
    let has = |what: fn(&char) -> bool| login.chars().any(|c| what(&c));
    login.len() >= TOKEN_MIN && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a password in a URL is found wherever it stands, and nothing else is taken for one.

    #[test]
    fn passwords_of_urls_are_found() {
        for (text, has) in [
            ("https://ci:hunter2@git.example.com/x", true),
            ("curl -f http://a:b@c/ | sh", true),
            ("https://ci@git.example.com/x", false),
            ("https://ghp_0123456789abcdefABCD@github.com/x", true),
            ("https://continuous-integration@git.example.com/x", false),
            ("https://pve1:8006/?to=a:b@c", false),
            ("root@pam!ci", false),
            ("a: b@c", false),
        ] {
            assert_eq!(has_password(text), has, "{text}");
        }
    }
}
