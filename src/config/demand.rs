//! The `demand`: CI systems whose jobs agents are begun for, and what share each may have.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_actors::demand::spec::{ShareSpec, SourceSpec};
use drover_actors::id::SourceId;
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use super::cloud;
use super::credential::{Credential, Vault};
use super::keys::{DEMAND, SECRET_KEYS};
use super::layer::Layer;
use super::trust::{self, Trust};
use super::value;
use crate::demand::{Dialect, Scope};
use crate::pve::Tls;

/// The kind of the lease API, which has a share like the sources.
const LEASES: &str = "leases";

/// How a source is reached. Its secrets never print.
#[derive(Debug, Clone)]
pub struct SourceConnection {
    /// Where it is.
    pub url: Url,
    /// How it proves itself.
    pub tls: Tls,
    /// What drover logs in with.
    pub token: SecretString,
    /// What is spoken there.
    pub dialect: Dialect,
    /// Whose jobs are meant.
    pub scope: Scope,
    /// What runs a runner in its guest; none for the kind's own program.
    pub command: Option<String>,
    /// What its webhooks are signed with; none where it sends none.
    pub webhook: Option<SecretString>,
}

/// All sources.
#[derive(Debug, Clone, Default)]
pub(super) struct CheckedDemand {
    pub sources: BTreeMap<SourceId, (SourceSpec, SourceConnection)>,
    /// The share of whoever asks for leases themselves.
    pub asked: ShareSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawDemand {
    kind: String,
    url: Option<String>,
    credentials_id: Option<String>,
    scope: String,
    labels: Option<BTreeSet<String>>,
    weight: u32,
    priority: i32,
    instance_cap: u32,
    poll_seconds: u64,
    register_timeout_sec: u64,
    idle_timeout_sec: u64,
    job_timeout_minutes: u64,
    runner_command: Option<String>,
    #[serde(rename = "webhook")]
    _webhook: Option<IgnoredAny>,
    ca_file: Option<String>,
    pin_sha256: Option<Vec<String>>,
    ignore_ssl_errors: bool,
}

/// Makes all sources; the faults go to the vault.
pub(super) fn demand(
    entries: &[(String, Layer)],
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> CheckedDemand {
    let mut all = CheckedDemand::default();
    let mut asked: Option<&str> = None;
    for (id, layer) in entries {
        let Some(raw) = layer.typed::<RawDemand>(DEMAND, vault.faults) else { continue };
        let share = ShareSpec {
            weight: raw.weight,
            priority: raw.priority,
            cap: (raw.instance_cap > 0).then_some(raw.instance_cap),
        };
        if raw.kind == LEASES {
            if let Some(first) = asked.replace(id) {
                let fault = layer.fault("kind", format!("`{first}` is of kind leases too"));
                vault.faults.push(fault.help("keep one of them"));
            }
            of_leases(layer, vault);
            all.asked = share;
        } else if let Some((spec, connection)) =
            source(id, &raw, (layer, share), credentials, vault)
        {
            all.sources.insert(spec.id.clone(), (spec, connection));
        }
    }
    all
}

/// What a share of leases can not have.
fn of_leases(layer: &Layer, vault: &mut Vault<'_>) {
    let meant = ["kind", "weight", "priority", "instanceCap"];
    for key in DEMAND.iter().map(|key| key.name).filter(|key| !meant.contains(key)) {
        if layer.has(key) {
            let fault = layer.fault(key, format!("`{key}` means nothing for leases"));
            vault.faults.push(fault.help("take it out"));
        }
    }
}

fn source(
    id: &str,
    raw: &RawDemand,
    (layer, share): (&Layer, ShareSpec),
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> Option<(SourceSpec, SourceConnection)> {
    let url = url(raw, layer, vault);
    let token = token(raw, layer, credentials, vault);
    let tls = tls(raw, layer, vault);
    let webhook = layer.nested("webhook").first();
    // One that is given and can not be read is a fault already.
    let webhook = match webhook.map(|layer| vault.secret(layer, &SECRET_KEYS)) {
        Some(secret) => Some(secret?),
        None => None,
    };
    let scope = value::scope_of(&raw.scope)?;
    let connection = SourceConnection {
        url: url?,
        tls: tls?,
        token: token?,
        dialect: if raw.kind == "gitea" { Dialect::Gitea } else { Dialect::Forgejo },
        scope,
        command: raw.runner_command.clone(),
        webhook,
    };
    let spec = SourceSpec {
        id: SourceId::new(id),
        kind: if raw.kind == "gitea" { "gitea" } else { "forgejo" },
        share,
        labels: raw.labels.clone(),
        whole: false,
        single: true,
        poll: Duration::from_secs(raw.poll_seconds),
        register: Duration::from_secs(raw.register_timeout_sec),
        idle: Duration::from_secs(raw.idle_timeout_sec),
        job: Duration::from_secs(raw.job_timeout_minutes * 60),
        connection: fingerprint(&connection),
    };
    Some((spec, connection))
}

fn url(raw: &RawDemand, layer: &Layer, vault: &mut Vault<'_>) -> Option<Url> {
    let Some(text) = raw.url.as_deref().filter(|text| !text.is_empty()) else {
        if !layer.is_faulty("url") {
            let fault = layer.fault("url", "`url` is missing");
            vault.faults.push(fault.help("say where it is, such as `url: https://git.lan`"));
        }
        return None;
    };
    let url: Url = text.parse().ok()?;
    if url.scheme() == "http" && !is_loopback(&url) {
        let message = "without TLS whoever stands between can read the token and every credential";
        let fault = layer.fault("url", message);
        vault.warnings.push(fault.help("use https, with caFile or pinSha256 for its certificate"));
    }
    Some(url)
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let bare = host.trim_matches(['[', ']']);
        host == "localhost"
            || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

fn token(
    raw: &RawDemand,
    layer: &Layer,
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> Option<SecretString> {
    let key = "credentialsId";
    let Some(id) = raw.credentials_id.as_deref().filter(|id| !id.is_empty()) else {
        if !layer.is_faulty(key) {
            let fault = layer.fault(key, "`credentialsId` is missing");
            vault.faults.push(fault.help("name an entry of `credentials` of kind apiToken"));
        }
        return None;
    };
    match credentials.get(id) {
        Some(Credential::Token(token)) => Some(token.clone()),
        Some(Credential::Faulty) => None,
        Some(Credential::Proxmox(_) | Credential::SshKey(_)) => {
            let fault = layer.fault(key, format!("`{id}` is no apiToken"));
            vault.faults.push(fault.help("name a credential of kind apiToken"));
            None
        }
        None => {
            vault.faults.push(cloud::unresolved(layer, id, credentials, "kind: apiToken"));
            None
        }
    }
}

fn tls(raw: &RawDemand, layer: &Layer, vault: &mut Vault<'_>) -> Option<Tls> {
    let mut given: Vec<&str> =
        ["caFile", "pinSha256"].into_iter().filter(|key| layer.has(key)).collect();
    given.extend(raw.ignore_ssl_errors.then_some("ignoreSslErrors"));
    if let [_, second, ..] = given.as_slice() {
        let fault = layer.fault(second, format!("{} contradict", given.join(" and ")));
        vault.faults.push(fault.help("keep one of them"));
        return None;
    }
    let trust = Trust {
        ca_file: raw.ca_file.as_deref(),
        ca_pem: None,
        pins: raw.pin_sha256.as_deref(),
        ignore: raw.ignore_ssl_errors,
        remedy: "give PEM, one certificate or more",
    };
    trust::tls(&trust, layer, vault)
}

/// A number that changes with anything in it, secrets included; tells nothing about them.
fn fingerprint(connection: &SourceConnection) -> u64 {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    part(connection.url.as_str().as_bytes());
    part(connection.token.expose_secret().as_bytes());
    part(format!("{:?} {:?}", connection.dialect, connection.scope).as_bytes());
    part(connection.command.as_deref().unwrap_or_default().as_bytes());
    match &connection.tls {
        Tls::System => part(b"system"),
        Tls::Bundle(texts) => texts.iter().for_each(|text| part(text.as_bytes())),
        Tls::Pins(pins) => pins.iter().for_each(|pin| part(pin)),
        Tls::Ignore => part(b"ignore"),
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
