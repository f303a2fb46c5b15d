//! The `credentials`: what an id stands for, and where its secret comes from.
//!
//! Files with secrets must be readable by their owner alone, and root's by one group besides.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::{fs, io};

use causes::chain;
use drover_ci::github::{AppSpec, parse_key};
use drover_ssh::PrivateKey;
use proxmox_client::Login;
use secrecy::SecretString;

use super::environment::Environment;
use super::fault::{Fault, Place};
use super::file;
use super::keys::{CREDENTIAL_KINDS, SECRET_KEYS};
use super::layer::{Layer, unknown, wrong_type};
use super::node::{Entry, Node, Value};
use super::prepare::Shelf;

/// Where a unit loads credentials from, beside the YAML.
pub(super) const BESIDE: &str = "credentials";
/// The largest secret read.
const LARGEST: u64 = 64 * 1024;
/// The largest file read that is no secret, such as a system's whole bundle of certificates.
const LARGEST_BUNDLE: u64 = 4 << 20;

/// A private key for the guests, and whom it logs in.
#[derive(Debug, Clone)]
pub struct SshKeySpec {
    /// The login in the guest.
    pub username: String,
    /// The key, open.
    pub key: PrivateKey,
    /// The public key, one line without comment, for cloud-init.
    pub public_line: String,
}

/// What an id in `credentials` stands for.
#[derive(Debug, Clone)]
pub(super) enum Credential {
    Proxmox(Login),
    SshKey(SshKeySpec),
    /// A token of some other API.
    Token(SecretString),
    /// A GitHub App.
    App(AppSpec),
    /// A user of some other API, with a token or a password.
    Login(String, SecretString),
    /// Its faults are said already.
    Faulty,
}

/// Reads secrets; keeps which files they came from, and what is wrong.
pub(super) struct Vault<'a> {
    pub environment: &'a Environment,
    pub faults: &'a mut Vec<Fault>,
    pub warnings: &'a mut Vec<Fault>,
    /// Files read, found or not, so that changes of them can be noticed.
    pub inputs: &'a mut Vec<PathBuf>,
    /// Files for guests.
    pub shelf: Shelf,
    /// The directories of the configuration's files, for relative paths.
    pub bases: &'a [PathBuf],
}

impl Vault<'_> {
    /// Reads every entry of `credentials`.
    pub fn credentials(&mut self, entries: &[Entry]) -> BTreeMap<String, Credential> {
        let mut credentials = BTreeMap::new();
        for entry in entries {
            let path = format!("credentials.{}", entry.key);
            let credential = self.credential(entry, &path).unwrap_or(Credential::Faulty);
            credentials.insert(entry.key.clone(), credential);
        }
        credentials
    }

    fn credential(&mut self, entry: &Entry, path: &str) -> Option<Credential> {
        let kinds = CREDENTIAL_KINDS.iter().map(|(kind, _)| *kind);
        let known = kinds.clone().collect::<Vec<_>>().join(", ");
        let Some(kind) = kind_of(&entry.value) else {
            let fault = match &entry.value.value {
                Value::Map(keys) => {
                    let path = format!("{path}.kind");
                    match keys.iter().find(|key| key.key == "kind" && !key.value.is_null()) {
                        Some(kind) => wrong_type(&kind.value, &path, "text"),
                        None => Fault::at(entry.place, path, "`kind` is missing"),
                    }
                }
                Value::Scalar { .. } | Value::List(_) => {
                    wrong_type(&entry.value, path, "a mapping")
                }
            };
            self.faults.push(fault.help(format!("add `kind:`, one of {known}")));
            return None;
        };
        let (kind, place) = kind;
        let Some((kind, keys)) = CREDENTIAL_KINDS.iter().find(|(name, _)| *name == kind) else {
            let mut fault = unknown(kind, place, &format!("{path}.kind"), kinds);
            fault.message = format!("unknown kind `{kind}`");
            let help = fault.help.take().unwrap_or_default();
            let help =
                if help.contains(&known) { help } else { format!("{help} (known: {known})") };
            self.faults.push(fault.help(help));
            return None;
        };
        let before = self.faults.len();
        let layer = Layer::check(&entry.value, entry.place, path, keys, self.faults);
        for name in ["tokenId", "username", "appId"] {
            let wanted = keys.iter().any(|key| key.name == name);
            if wanted && layer.text(name).is_none_or(str::is_empty) && !layer.is_faulty(name) {
                let fault = layer.fault(name, format!("`{name}` is missing"));
                self.faults.push(fault.help(format!("add `{name}:` beside `kind: {kind}`")));
            }
        }
        let text = |name: &str| layer.text(name).unwrap_or_default().to_owned();
        let credential = if *kind == "sshKey" {
            Credential::SshKey(self.ssh_key(&layer, text("username"))?)
        } else {
            let secret = match self.to_come(&layer, &["secretFile"]) {
                Some(_) => "to-come".into(),
                None => self.secret(&layer, &SECRET_KEYS)?,
            };
            if *kind == "githubApp" {
                return self.app(&layer, secret).filter(|_| self.faults.len() == before);
            }
            match *kind {
                "apiToken" => Credential::Token(secret),
                "apiLogin" => Credential::Login(text("username"), secret),
                "proxmoxToken" => Credential::Proxmox(Login::Token { id: text("tokenId"), secret }),
                _ => Credential::Proxmox(Login::Password { username: text("username"), secret }),
            }
        };
        (self.faults.len() == before).then_some(credential)
    }

    fn app(&mut self, layer: &Layer, key: SecretString) -> Option<Credential> {
        if let Err(reason) = parse_key(&key) {
            let way = SECRET_KEYS.into_iter().find(|way| layer.has(way)).unwrap_or("secretFile");
            let fault = layer.fault(way, format!("the App's key: {reason}"));
            self.faults.push(fault.help("give the private key that GitHub made for the App (PEM)"));
            return None;
        }
        let id = layer.text("appId").unwrap_or_default().to_owned();
        let installation = layer.get("installationId").and_then(serde_yaml::Value::as_u64);
        Some(Credential::App(AppSpec { id, installation, key }))
    }

    /// The file of a secret that is about to be made, named by one of these keys or for systemd; none
    /// where it is there, or must be.
    fn to_come(&self, layer: &Layer, keys: &[&str]) -> Option<PathBuf> {
        if !self.environment.is_secretless() {
            return None;
        }
        let named = keys.iter().find_map(|key| Some((*key, layer.text(key)?)));
        let path = match named {
            Some((key, name)) => self.path(layer.fault(key, "").place, name),
            None => self.handed_over(layer, layer.text("systemdCredential")?).ok()?.0,
        };
        path.try_exists().is_ok_and(|there| !there).then_some(path)
    }

    /// The secret of a mapping, given in exactly one of these ways.
    pub fn secret(&mut self, layer: &Layer, ways: &[&'static str]) -> Option<SecretString> {
        let given: Vec<_> = ways.iter().copied().filter(|way| layer.has(way)).collect();
        let way = match given.as_slice() {
            [way] => *way,
            [] => {
                let message = format!("none of {} is given", ways.join(", "));
                let path = layer.path.clone();
                let fault = Fault { place: layer.place, path, message, help: None };
                self.faults.push(fault.help("add one of them"));
                return None;
            }
            [_, second, ..] => {
                let fault = layer.fault(second, format!("{} contradict", given.join(" and ")));
                self.faults.push(fault.help("keep one of them"));
                return None;
            }
        };
        let text = layer.text(way)?.to_owned();
        let found = match way {
            "secretEnv" => self.environment.get(&text).map(str::to_owned).ok_or_else(|| {
                let fault = layer.fault(way, format!("variable `{text}` is not set"));
                fault.help("set it in drover's environment, such as by `EnvironmentFile=`")
            }),
            "systemdCredential" => self.systemd(layer, &text),
            "secret" => {
                let fault = layer.fault(way, "a secret stands in the configuration itself");
                self.warnings.push(fault.help("use secretFile, secretEnv or systemdCredential"));
                Ok(text)
            }
            _ => self.private_file(layer, way, &text),
        };
        match found {
            Ok(secret) if secret.trim().is_empty() => {
                self.faults.push(layer.fault(way, "the secret is empty"));
                None
            }
            Ok(secret) => Some(secret.trim_end_matches(['\r', '\n']).into()),
            Err(fault) => {
                self.faults.push(fault);
                None
            }
        }
    }

    fn systemd(&mut self, layer: &Layer, name: &str) -> Result<String, Fault> {
        let key = "systemdCredential";
        let (path, by_systemd) = self.handed_over(layer, name)?;
        self.inputs.push(path.clone());
        let shown = path.display();
        if by_systemd {
            return file::read_text(&path, LARGEST).map_err(|error| {
                let message = format!("credential `{name}` can not be read: {error}");
                let help = format!("add `LoadCredential={name}:/path` to the unit");
                layer.fault(key, message).help(help)
            });
        }
        self.private_text(&path).map_err(|(text, trouble)| {
            let message = format!("credential `{name}`: systemd did not start drover, and {text}");
            layer.fault(key, message).help(match trouble {
                Trouble::Absent => format!(
                    "put the secret there, mode 0600, and `LoadCredential={name}:{shown}` into the unit"
                ),
                Trouble::Denied => format!(
                    "run the command as root, or let drover's group read the file: \
                     `chgrp drover {shown} && chmod 640 {shown}`"
                ),
                Trouble::Open => format!("run `chmod 600 {shown}`"),
            })
        })
    }

    /// The file of a credential, and whether systemd hands it over. In a shell it is what the unit
    /// loads, in `credentials` beside the YAML.
    fn handed_over(&self, layer: &Layer, name: &str) -> Result<(PathBuf, bool), Fault> {
        let key = "systemdCredential";
        if name.contains('/') || name.starts_with('.') {
            return Err(layer.fault(key, format!("`{name}` is no credential's name")));
        }
        Ok(match self.environment.get("CREDENTIALS_DIRECTORY") {
            Some(directory) => (Path::new(directory).join(name), true),
            None => {
                let beside = self.path(layer.fault(key, "").place, BESIDE);
                (beside.join(name), false)
            }
        })
    }

    /// The text of a file that only its owner can read.
    fn private_file(&mut self, layer: &Layer, key: &str, name: &str) -> Result<String, Fault> {
        let path = self.path(layer.fault(key, "").place, name);
        self.inputs.push(path.clone());
        self.private_text(&path).map_err(|(text, trouble)| {
            let help = match trouble {
                Trouble::Open if path.is_dir() => "name a file in it".to_owned(),
                Trouble::Open => format!("run `chmod 600 {}`", path.display()),
                Trouble::Denied => {
                    "let drover's user own it, or give it to root and drover's group \
                     with mode 0640"
                        .into()
                }
                Trouble::Absent if layer.has("tokenId") => {
                    "put the token's secret there, mode 0600, drover's user its owner; \
                     `drover setup rights` makes both"
                        .into()
                }
                Trouble::Absent => "put it there, mode 0600, drover's user its owner".into(),
            };
            layer.fault(key, text).help(help)
        })
    }

    /// The text of a secret's file, or what is wrong with it.
    fn private_text(&self, path: &Path) -> Result<String, (String, Trouble)> {
        let shown = path.display();
        let unreadable = |error: io::Error| {
            let absent = error.kind() == io::ErrorKind::NotFound;
            let trouble = if absent { Trouble::Absent } else { Trouble::Denied };
            (format!("`{shown}` can not be read: {error}"), trouble)
        };
        let known = fs::metadata(path).map_err(unreadable)?;
        let mode = known.permissions().mode() & 0o7777;
        if !is_private(mode, known.uid()) {
            let text = format!("`{shown}` can be read by others (mode {mode:04o})");
            return Err((text, Trouble::Open));
        }
        file::read_text(path, LARGEST).map_err(unreadable)
    }

    /// The text of a file that is no secret.
    pub fn open_file(&mut self, layer: &Layer, key: &str, name: &str) -> Option<String> {
        let path = self.path(layer.fault(key, "").place, name);
        self.inputs.push(path.clone());
        file::read_text(&path, LARGEST_BUNDLE)
            .map_err(|error| {
                let message = format!("`{}` can not be read: {error}", path.display());
                let fault = layer.fault(key, message);
                self.faults.push(fault.help("check that the file exists and drover may read it"));
            })
            .ok()
    }

    /// An absolute path, or one beside the file that names it; `~/` is the home directory.
    pub(super) fn path(&self, place: Option<Place>, name: &str) -> PathBuf {
        if let (Some(rest), Some(home)) = (name.strip_prefix("~/"), self.environment.get("HOME")) {
            return Path::new(home).join(rest);
        }
        let base = place.and_then(|place| self.bases.get(place.file));
        base.map_or_else(|| PathBuf::from(name), |base| base.join(name))
    }

    fn ssh_key(&mut self, layer: &Layer, username: String) -> Option<SshKeySpec> {
        const WAYS: [&str; 5] =
            ["privateKeyFile", "secretFile", "secretEnv", "systemdCredential", "secret"];
        if let Some(path) = self.to_come(layer, &["privateKeyFile", "secretFile"]) {
            return Some(self.stand_in(layer, username, &path));
        }
        let secret = self.secret(layer, &WAYS);
        let passphrase = match layer.text("passphraseFile") {
            Some(name) => match self.private_file(layer, "passphraseFile", name) {
                Ok(text) => Some(SecretString::from(text.trim_end_matches(['\r', '\n']))),
                Err(fault) => {
                    self.faults.push(fault);
                    return None;
                }
            },
            None => None,
        };
        let secret = secret?;
        let way = WAYS.into_iter().find(|way| layer.has(way)).unwrap_or("privateKeyFile");
        let name = if way == "secret" { way } else { layer.text(way).unwrap_or(way) };
        match PrivateKey::parse(name, &secret, passphrase.as_ref()) {
            Ok(key) => Some(SshKeySpec { username, public_line: key.public_line(""), key }),
            Err(error) => {
                let fault = layer.fault(way, chain(&error));
                self.faults.push(fault.help(error.remedy("passphraseFile")));
                None
            }
        }
    }

    /// A key in the place of one that is not made yet, for commands that log in nowhere. It lets
    /// nobody in: no guest is given its public half.
    fn stand_in(&mut self, layer: &Layer, username: String, path: &Path) -> SshKeySpec {
        let ways = ["privateKeyFile", "secretFile", "systemdCredential"];
        let way = ways.into_iter().find(|way| layer.has(way)).unwrap_or("privateKeyFile");
        let shown = path.display();
        let fault = layer.fault(way, format!("`{shown}` is not there yet"));
        let help =
            format!("make it before the service starts: ssh-keygen -t ed25519 -N \"\" -f {shown}");
        self.warnings.push(fault.help(help));
        SshKeySpec {
            username,
            key: PrivateKey::from_seed(&[0; 32], ""),
            public_line: String::new(),
        }
    }
}

/// Why a secret's file cannot be used.
#[derive(Clone, Copy)]
enum Trouble {
    Absent,
    Denied,
    Open,
}

/// Whether a secret's file is for drover alone: root may let a group read what it owns, as PostgreSQL
/// has it for its server's key (`ssl_key_file`).
pub(super) fn is_private(mode: u32, owner: u32) -> bool {
    let open = if owner == 0 { 0o037 } else { 0o077 };
    mode & open == 0
}

fn kind_of(node: &Node) -> Option<(&str, Place)> {
    let Value::Map(entries) = &node.value else { return None };
    let kind = entries.iter().find(|entry| entry.key == "kind")?;
    match &kind.value.value {
        Value::Scalar { text, .. } if !text.is_empty() => Some((text, kind.value.place)),
        Value::Scalar { .. } | Value::List(_) | Value::Map(_) => None,
    }
}
