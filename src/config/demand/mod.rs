//! The `demand`: CI systems whose jobs agents are begun for, and what share each may have.

mod gitea;
mod github;
mod gitlab;
mod jenkins;
mod names;
mod woodpecker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_ci::gitea::Dialect;
use drover_ci::{Route, SourceConnection, System};
use drover_model::demand::spec::{ShareSpec, SourceSpec};
use drover_model::id::SourceId;
use proxmox_client::Tls;
use reqwest::Url;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::cloud;
use super::credential::{Credential, Vault};
use super::keys::{DEMAND, OF_KINDS, SECRET_KEYS};
use super::layer::Layer;
use super::trust::{self, Trust};

/// The kind of the lease API, which has a share like the sources.
const LEASES: &str = "leases";

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
    scope: Option<String>,
    labels: Option<BTreeSet<String>>,
    weight: u32,
    priority: i32,
    instance_cap: u32,
    poll_seconds: u64,
    register_timeout_sec: u64,
    idle_timeout_sec: u64,
    job_timeout_minutes: u64,
    runner_command: Option<String>,
    repositories: Option<Vec<String>>,
    runner_group: Option<String>,
    registration: Option<String>,
    mode: Option<String>,
    scale_set: Option<String>,
    run_untagged: Option<bool>,
    grpc_server: Option<String>,
    grpc_secure: Option<bool>,
    launch: Option<Launch>,
    launch_credentials_id: Option<String>,
    #[serde(rename = "webhook")]
    _webhook: Option<IgnoredAny>,
    ca_file: Option<String>,
    pin_sha256: Option<Vec<String>>,
    ignore_ssl_errors: bool,
    proxy: Option<String>,
}

/// How an agent comes to Jenkins.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Launch {
    Websocket,
    InboundTcp,
    Ssh,
}

/// Makes all sources; the faults go to the vault. `listens`: whether webhooks can arrive.
pub(super) fn demand(
    entries: &[(String, Layer)],
    credentials: &BTreeMap<String, Credential>,
    listens: bool,
    vault: &mut Vault<'_>,
) -> CheckedDemand {
    let mut all = CheckedDemand::default();
    let mut asked: Option<&str> = None;
    for (id, layer) in entries {
        let beneath = (layer.text("kind") == Some("github")).then(|| github::environment(vault));
        let layer = &beneath.map_or_else(|| layer.clone(), |beneath| beneath.under(layer));
        let Some(raw) = layer.typed::<RawDemand>(DEMAND, vault.faults) else { continue };
        if !listens && layer.has("webhook") && is_meant(&raw.kind, "webhook") {
            let fault = layer.fault("webhook", "service.listen is not set: no webhook can arrive");
            let help =
                "set service.listen to an address that its server reaches, or take `webhook` out";
            vault.faults.push(fault.help(help));
        }
        let share = ShareSpec {
            weight: raw.weight,
            priority: raw.priority,
            cap: (raw.instance_cap > 0).then_some(raw.instance_cap),
        };
        if id == LEASES && raw.kind != LEASES {
            let fault = layer.fault("kind", "`leases` is what the lease API is called");
            vault.faults.push(fault.help("give the source another name"));
        }
        if raw.kind == LEASES {
            if let Some(first) = asked.replace(id) {
                let fault = layer.fault("kind", format!("`{first}` is of kind leases too"));
                vault.faults.push(fault.help("keep one of them"));
            }
            meant(LEASES, layer, vault);
            all.asked = share;
        } else if let Some((spec, connection)) =
            source(id, &raw, (layer, share), credentials, vault)
        {
            all.sources.insert(spec.id.clone(), (spec, connection));
        }
    }
    all
}

/// What the readers of each kind share.
struct Ground<'a, 'v> {
    raw: &'a RawDemand,
    layer: &'a Layer,
    credentials: &'a BTreeMap<String, Credential>,
    vault: &'a mut Vault<'v>,
}

/// How runners of a kind are used, and how often it is looked at where nothing is said.
struct Manner {
    /// What is spoken.
    system: System,
    /// Whether a runner takes its agent whole.
    whole: bool,
    /// Whether a runner is told to take no more as soon as it has a job.
    early: bool,
    /// Whether a runner makes its row itself.
    registers: bool,
    /// Time between two looks where nothing is said; none for as every kind has it.
    poll: Option<Duration>,
    /// Time between two looks while it has runners; none for as at any time.
    brisk: Option<Duration>,
}

impl Manner {
    /// Of a system whose runners are made for one job.
    fn of_single_jobs(system: System) -> Self {
        Self { system, whole: false, early: false, registers: false, poll: None, brisk: None }
    }
}

fn source(
    id: &str,
    raw: &RawDemand,
    (layer, share): (&Layer, ShareSpec),
    credentials: &BTreeMap<String, Credential>,
    vault: &mut Vault<'_>,
) -> Option<(SourceSpec, SourceConnection)> {
    meant(&raw.kind, layer, vault);
    let url = url(raw, layer, vault);
    let tls = tls(raw, layer, vault);
    let webhook = layer.nested("webhook").first();
    // One that is given and can not be read is a fault already.
    let webhook = match webhook.map(|layer| vault.secret(layer, &SECRET_KEYS)) {
        Some(secret) => secret.map(Some),
        None => Some(None),
    };
    let mut ground = Ground { raw, layer, credentials, vault };
    let (kind, manner) = match raw.kind.as_str() {
        "gitea" => ("gitea", gitea::manner(Dialect::Gitea, &mut ground)),
        "forgejo" => ("forgejo", gitea::manner(Dialect::Forgejo, &mut ground)),
        "github" => ("github", github::manner(&mut ground)),
        "gitlab" => ("gitlab", gitlab::manner(&mut ground)),
        "woodpecker" => ("woodpecker", woodpecker::manner(&mut ground)),
        "jenkins" => ("jenkins", jenkins::manner(&mut ground)),
        // Any other is a fault of its key.
        _ => return None,
    };
    let Manner { system, whole, early, registers, poll, brisk } = manner?;
    let url = url?;
    let is_here = is_loopback(&url);
    let connection = SourceConnection {
        url,
        tls: tls?,
        route: route(raw.proxy.as_deref(), is_here),
        system,
        command: raw.runner_command.clone(),
        webhook: webhook?,
    };
    let said = Duration::from_secs(raw.poll_seconds);
    let poll = poll.filter(|_| !layer.has("pollSeconds")).unwrap_or(said);
    let spec = SourceSpec {
        id: SourceId::new(id),
        kind,
        share,
        labels: raw.labels.clone(),
        whole,
        single: true,
        early,
        registers,
        firm: matches!(kind, "github" | "gitea"),
        poll,
        brisk: brisk.map_or(poll, |brisk| brisk.min(poll)),
        register: Duration::from_secs(raw.register_timeout_sec),
        idle: Duration::from_secs(raw.idle_timeout_sec),
        job: Duration::from_secs(raw.job_timeout_minutes * 60),
        connection: connection.fingerprint(),
        place: connection.place(),
    };
    Some((spec, connection))
}

/// Whether a key is meant for this kind.
fn is_meant(kind: &str, key: &str) -> bool {
    OF_KINDS.iter().all(|(of, kinds)| *of != key || kinds.contains(&kind))
}

/// Keys that mean nothing for this kind are faults.
fn meant(kind: &str, layer: &Layer, vault: &mut Vault<'_>) {
    for key in DEMAND.iter().map(|key| key.name).filter(|key| !is_meant(kind, key)) {
        if layer.has(key) {
            let fault = layer.fault(key, format!("`{key}` means nothing for {kind}"));
            vault.faults.push(fault.help("take it out"));
        }
    }
}

fn url(raw: &RawDemand, layer: &Layer, vault: &mut Vault<'_>) -> Option<Url> {
    let own = (raw.kind == "github").then_some(github::URL);
    let Some(text) = raw.url.as_deref().filter(|text| !text.is_empty()).or(own) else {
        if !layer.is_faulty("url") {
            let fault = layer.fault("url", "`url` is missing");
            vault.faults.push(fault.help("say where it is, such as `url: https://git.lan`"));
        }
        return None;
    };
    let url: Url = text.parse().ok()?;
    if raw.kind == "github" && matches!(url.host_str(), Some("github.com" | "www.github.com")) {
        let fault = layer.fault("url", format!("`{text}` is for browsers: the API is elsewhere"));
        vault.faults.push(fault.help(format!("write `{}`, or take `url` out", github::URL)));
        return None;
    }
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

impl Ground<'_, '_> {
    /// The `credentialsId` that must be there, with what it stands for; its faults are told.
    fn credential(&mut self, kinds: &str) -> Option<&Credential> {
        let (layer, key) = (self.layer, "credentialsId");
        let Some(id) = self.raw.credentials_id.as_deref().filter(|id| !id.is_empty()) else {
            if !layer.is_faulty(key) {
                let fault = layer.fault(key, "`credentialsId` is missing");
                let help = format!("name an entry of `credentials` of kind {kinds}");
                self.vault.faults.push(fault.help(help));
            }
            return None;
        };
        let found = self.credentials.get(id);
        if found.is_none() {
            let fault = cloud::unresolved(layer, id, self.credentials, &format!("kind: {kinds}"));
            self.vault.faults.push(fault);
        }
        found
    }

    /// That the named credential is of a kind that this system does not take.
    fn of_another_kind(&mut self, kinds: &str) {
        let id = self.raw.credentials_id.as_deref().unwrap_or_default();
        let fault = self.layer.fault("credentialsId", format!("`{id}` is no {kinds}"));
        self.vault.faults.push(fault.help(format!("name a credential of kind {kinds}")));
    }

    /// The token that drover logs in with.
    fn token(&mut self) -> Option<SecretString> {
        const KIND: &str = "apiToken";
        match self.credential(KIND)? {
            Credential::Token(token) => Some(token.clone()),
            Credential::Faulty => None,
            Credential::Proxmox(_)
            | Credential::SshKey(_)
            | Credential::App(_)
            | Credential::Login(..) => {
                self.of_another_kind(KIND);
                None
            }
        }
    }

    /// The user that drover logs in as, with a token or a password.
    fn login(&mut self) -> Option<(String, SecretString)> {
        const KIND: &str = "apiLogin";
        match self.credential(KIND)? {
            Credential::Login(user, secret) => Some((user.clone(), secret.clone())),
            Credential::Faulty => None,
            Credential::Proxmox(_)
            | Credential::SshKey(_)
            | Credential::App(_)
            | Credential::Token(_) => {
                self.of_another_kind(KIND);
                None
            }
        }
    }

    /// Whose jobs are meant, read by a kind's own reader; `forms` is what can be written.
    fn scope<T>(
        &mut self,
        preset: &str,
        read: impl Fn(&[&str]) -> Option<T>,
        forms: &str,
    ) -> Option<T> {
        let text = self.raw.scope.as_deref().unwrap_or(preset);
        let parts: Vec<&str> = text.trim().split('/').collect();
        let known = parts.iter().all(|part| !part.is_empty());
        let scope = known.then(|| read(&parts)).flatten();
        if scope.is_none() && !self.layer.is_faulty("scope") {
            let fault = self.layer.fault("scope", format!("`{text}` names nobody's jobs"));
            self.vault.faults.push(fault.help(format!("write it as {forms}")));
        }
        scope
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

/// The way that `proxy` says; one that is no URL is a fault of its key. What `is_here` is reached by no
/// proxy that is not named for it: its calls stay on this machine.
fn route(proxy: Option<&str>, is_here: bool) -> Route {
    match proxy {
        None if is_here => Route::Direct,
        None => Route::Environment,
        Some("none") => Route::Direct,
        Some(url) => url.parse().map_or(Route::Environment, Route::Proxy),
    }
}
