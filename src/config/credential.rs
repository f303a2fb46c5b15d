//! The `credentials`: what each id stands for. Where secrets come from: `context.rs`.

use std::collections::BTreeMap;
use std::path::Path;

use causes::chain;
use drover_ci::github::{AppSpec, parse_key};
use drover_ssh::PrivateKey;
use proxmox_client::Login;
use secrecy::SecretString;
use serde_yaml::Value as Yaml;

use super::context::Context;
use super::fault::{Fault, Place};
use super::keys::{CREDENTIALS, CredentialKind, KEY_SOURCES};
use super::layer::{Layer, unknown, wrong_type};
use super::node::{Entry, Node, Value};
use super::rules;

/// A private key for the guests, and the user it logs in.
#[derive(Debug, Clone)]
pub struct SshKeySpec {
    /// The login in the guest.
    pub username: String,
    /// The decrypted key.
    pub key: PrivateKey,
    /// The public key, one line without comment, for cloud-init.
    pub public_line: String,
}

/// What an id in `credentials` stands for.
#[derive(Debug, Clone)]
pub(super) enum Credential {
    Proxmox(Login),
    SshKey(SshKeySpec),
    /// A token of another API.
    Token(SecretString),
    App(AppSpec),
    /// A user of another API, with a token or a password.
    Login(String, SecretString),
    /// Has faults, which are said already.
    Faulty,
}

impl Credential {
    pub fn as_proxmox(&self) -> Option<&Login> {
        if let Self::Proxmox(login) = self { Some(login) } else { None }
    }

    pub fn as_ssh_key(&self) -> Option<&SshKeySpec> {
        if let Self::SshKey(key) = self { Some(key) } else { None }
    }
}

/// All credentials by id.
pub(super) type Credentials = BTreeMap<String, Credential>;

/// Reads every entry of `credentials`.
pub(super) fn credentials<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    cx: &mut Context<'_>,
) -> Credentials {
    let read = entries.map(|entry| {
        let path = format!("credentials.{}", entry.key);
        let credential = credential(entry, &path, cx).unwrap_or(Credential::Faulty);
        (entry.key.clone(), credential)
    });
    read.collect()
}

/// The credential of an id as `pick` takes it; an unknown id, or one of other kinds than `kinds`, is a
/// fault.
pub(super) fn resolve<'a, T>(
    layer: &Layer,
    id: &str,
    known: &'a Credentials,
    kinds: &str,
    pick: impl Fn(&'a Credential) -> Option<T>,
    cx: &mut Context<'_>,
) -> Option<T> {
    let fault = match known.get(id).map(|found| (found, pick(found))) {
        Some((_, Some(picked))) => return Some(picked),
        Some((Credential::Faulty, None)) => return None,
        Some((_, None)) => {
            let fault = layer.fault("credentialsId", format!("`{id}` is not of kind {kinds}"));
            fault.help(format!("name a credential of kind {kinds}"))
        }
        None => {
            let help = format!("add `{id}:` with kind {kinds} to `credentials`");
            let fault = layer.fault("credentialsId", format!("unknown credential `{id}`"));
            fault.nearest(id, known.keys().map(String::as_str), help)
        }
    };
    cx.faults.push(fault);
    None
}

fn credential(entry: &Entry, path: &str, cx: &mut Context<'_>) -> Option<Credential> {
    let kinds = CREDENTIALS.iter().map(|(word, ..)| *word);
    let known = kinds.clone().collect::<Vec<_>>().join(", ");
    let Some((kind, place)) = kind_of(&entry.value) else {
        let fault = match &entry.value.value {
            Value::Map(keys) => {
                let path = format!("{path}.kind");
                match keys.iter().find(|key| key.key == "kind" && !key.value.is_null()) {
                    Some(kind) => wrong_type(&kind.value, &path, "text"),
                    None => Fault::at(entry.place, path, "`kind` is missing"),
                }
            }
            Value::Scalar { .. } | Value::List(_) => wrong_type(&entry.value, path, "a mapping"),
        };
        cx.faults.push(fault.help(format!("add `kind:`, one of {known}")));
        return None;
    };
    let Some((_, kind, table)) = CREDENTIALS.iter().find(|(word, ..)| *word == kind) else {
        let mut fault = unknown(kind, place, &format!("{path}.kind"), kinds);
        fault.message = format!("unknown kind `{kind}`");
        let help = fault.help.take().unwrap_or_default();
        let help = if help.contains(&known) { help } else { format!("{help} (known: {known})") };
        cx.faults.push(fault.help(help));
        return None;
    };
    let before = cx.faults.len();
    let layer = Layer::check(&entry.value, entry.place, path, table, &mut cx.faults);
    rules::check(&layer, table, &mut cx.faults);
    let text = |name: &str| layer.text(name).unwrap_or_default().to_owned();
    let credential = match kind {
        CredentialKind::ProxmoxToken => {
            let secret = secret(&layer, cx)?;
            Credential::Proxmox(Login::Token { id: text("tokenId"), secret })
        }
        CredentialKind::ProxmoxPassword => {
            let secret = secret(&layer, cx)?;
            Credential::Proxmox(Login::Password { username: text("username"), secret })
        }
        CredentialKind::SshKey => Credential::SshKey(ssh_key(&layer, text("username"), cx)?),
        CredentialKind::ApiToken => Credential::Token(secret(&layer, cx)?),
        CredentialKind::GithubApp => app(&layer, secret(&layer, cx)?, cx)?,
        CredentialKind::ApiLogin => Credential::Login(text("username"), secret(&layer, cx)?),
    };
    (cx.faults.len() == before).then_some(credential)
}

/// The secret of a credential, or one in its place where secrets may be missing.
fn secret(layer: &Layer, cx: &mut Context<'_>) -> Option<SecretString> {
    match cx.missing_secret(layer, &["secretFile"]) {
        Some(_) => Some("to-come".into()),
        None => cx.secret(layer),
    }
}

fn app(layer: &Layer, key: SecretString, cx: &mut Context<'_>) -> Option<Credential> {
    if let Err(reason) = parse_key(&key) {
        let way = layer.chosen().unwrap_or("secretFile");
        let fault = layer.fault(way, format!("the App's key: {reason}"));
        cx.faults.push(fault.help("give the private key that GitHub made for the App (PEM)"));
        return None;
    }
    let id = layer.text("appId").unwrap_or_default().to_owned();
    let installation = layer.get("installationId").and_then(Yaml::as_u64);
    Some(Credential::App(AppSpec { id, installation, key }))
}

fn ssh_key(layer: &Layer, username: String, cx: &mut Context<'_>) -> Option<SshKeySpec> {
    let key = KEY_SOURCES.into_iter().find(|key| layer.has(key)).unwrap_or(KEY_SOURCES[0]);
    if let Some(path) = cx.missing_secret(layer, &KEY_SOURCES[..2]) {
        return Some(placeholder_key(layer, key, username, &path, cx));
    }
    let secret = cx.secret(layer);
    let passphrase = match layer.text("passphraseFile") {
        Some(name) => match cx.private_file(layer, "passphraseFile", name) {
            Ok(text) => Some(SecretString::from(text.trim_end_matches(['\r', '\n']))),
            Err(fault) => {
                cx.faults.push(fault);
                return None;
            }
        },
        None => None,
    };
    let secret = secret?;
    let name = if key == "secret" { key } else { layer.text(key).unwrap_or(key) };
    match PrivateKey::parse(name, &secret, passphrase.as_ref()) {
        Ok(key) => Some(SshKeySpec { username, public_line: key.public_line(""), key }),
        Err(error) => {
            let fault = layer.fault(key, chain(&error));
            cx.faults.push(fault.help(error.remedy("passphraseFile")));
            None
        }
    }
}

/// A key in place of one that does not exist yet, for commands that log in nowhere. Nobody can log
/// in with it: no guest gets its public half.
fn placeholder_key(
    layer: &Layer,
    key: &str,
    username: String,
    path: &Path,
    cx: &mut Context<'_>,
) -> SshKeySpec {
    let shown = path.display();
    let help =
        format!("make the key before the service starts: ssh-keygen -t ed25519 -N \"\" -f {shown}");
    cx.warnings.push(layer.fault(key, format!("`{shown}` does not exist yet")).help(help));
    let public_line = String::new();
    SshKeySpec { username, key: PrivateKey::from_seed(&[0; 32], ""), public_line }
}

fn kind_of(node: &Node) -> Option<(&str, Place)> {
    let Value::Map(entries) = &node.value else { return None };
    let kind = entries.iter().find(|entry| entry.key == "kind")?;
    match &kind.value.value {
        Value::Scalar { text, .. } if !text.is_empty() => Some((text, kind.value.place)),
        Value::Scalar { .. } | Value::List(_) | Value::Map(_) => None,
    }
}
