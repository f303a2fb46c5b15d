//! The `demand` section: the CI systems whose jobs drover starts agents for, and the share of each.
//!
//! What all kinds have is read here. Each kind's module reads its own keys into the settings of
//! `drover-ci` and says how its runners behave ([`Behaviour`]). A new kind takes such a module and its
//! name in `keys/demand.rs`; the compiler asks for the line in [`source`].

mod gitea;
mod github;
mod gitlab;
mod jenkins;
mod names;
mod woodpecker;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use drover_ci::gitea::Dialect;
use drover_ci::{Route, SourceConnection, System};
use drover_model::demand::spec::{ShareSpec, SourceSpec};
use drover_model::id::SourceId;
use reqwest::Url;
use secrecy::SecretString;
use serde_yaml::Value as Yaml;

use super::context::Context;
use super::credential::{Credential, Credentials, resolve};
use super::fault::Fault;
use super::keys::{FORGES, RawDemand, SourceKind};
use super::layer::Layer;
use super::trust;

/// The `demand` section without faults.
#[derive(Debug, Clone, Default)]
pub(super) struct CheckedDemand {
    pub sources: BTreeMap<SourceId, (SourceSpec, SourceConnection)>,
    /// The share of the lease API.
    pub asked: ShareSpec,
}

/// What a source has, its own keys over what the environment gives for sources of its kind.
pub(super) fn over_environment(own: &Layer, cx: &mut Context<'_>) -> Layer {
    match is_github(own) {
        true => github::environment(cx).overlaid(own),
        false => own.clone(),
    }
}

/// Whether a source is one of GitHub.
pub(super) fn is_github(layer: &Layer) -> bool {
    layer.text("kind") == Some(SourceKind::GitHub.word())
}

/// Makes all sources. `listens` says whether webhooks can arrive.
pub(super) fn demand(
    entries: &[(String, Layer)],
    credentials: &Credentials,
    listens: bool,
    cx: &mut Context<'_>,
) -> CheckedDemand {
    let mut all = CheckedDemand::default();
    let mut asked: Option<&str> = None;
    for (id, layer) in entries {
        let layer = &over_environment(layer, cx);
        let Some(raw) = layer.typed::<RawDemand>(&mut cx.faults) else { continue };
        if !listens && layer.has("webhook") && FORGES.contains(&raw.kind) {
            let message = "service.listen is not set, so no webhook can arrive";
            let fault = layer.fault("webhook", message);
            let help = "set service.listen to an address that the CI system reaches, or remove it";
            cx.faults.push(fault.help(help));
        }
        let share = ShareSpec {
            weight: raw.weight,
            priority: raw.priority,
            cap: (raw.instance_cap > 0).then_some(raw.instance_cap),
        };
        let leases = SourceKind::Leases;
        if raw.kind == leases {
            if let Some(first) = asked.replace(id) {
                let fault = layer.fault("kind", format!("`{first}` has kind leases too"));
                cx.faults.push(fault.help("keep one of them"));
            }
            all.asked = share;
            continue;
        }
        if id == leases.word() {
            let fault = layer.fault("kind", "`leases` is the name of the lease API");
            cx.faults.push(fault.help("give the source another name"));
        }
        if let Some((spec, connection)) = source(id, &raw, (layer, share), credentials, cx) {
            all.sources.insert(spec.id.clone(), (spec, connection));
        }
    }
    all
}

/// What each kind reads its settings from.
struct SourceInputs<'a, 'v> {
    raw: &'a RawDemand,
    layer: &'a Layer,
    credentials: &'a Credentials,
    cx: &'a mut Context<'v>,
}

/// How the runners of a kind behave, and the defaults of its polls.
struct Behaviour {
    system: System,
    /// Characters that the program of its runners reads as the end of a label's name.
    ends_of_labels: &'static [char],
    /// Whether a runner takes its agent whole.
    whole: bool,
    /// Whether drover cordons a runner as soon as it has a job.
    early: bool,
    /// Whether a runner registers itself.
    registers: bool,
    /// The default time between two polls; none: as for every kind.
    poll: Option<Duration>,
    /// Time between two polls while the source has runners; none: no shorter.
    brisk: Option<Duration>,
}

impl Behaviour {
    /// A system whose runners serve one job each.
    fn of_single_jobs(system: System) -> Self {
        Self {
            system,
            ends_of_labels: &[],
            whole: false,
            early: false,
            registers: false,
            poll: None,
            brisk: None,
        }
    }
}

fn source(
    id: &str,
    raw: &RawDemand,
    (layer, share): (&Layer, ShareSpec),
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<(SourceSpec, SourceConnection)> {
    let url = url(raw, layer, cx);
    let tls = trust::tls(layer, "give PEM, one certificate or more", cx);
    let webhook = layer.nested("webhook").first();
    // A webhook whose secret cannot be read is a fault already.
    let webhook = match webhook.map(|layer| cx.secret(layer)) {
        Some(secret) => secret.map(Some),
        None => Some(None),
    };
    let mut inputs = SourceInputs { raw, layer, credentials, cx };
    let behaviour = match raw.kind {
        SourceKind::Gitea => gitea::behaviour(Dialect::Gitea, &mut inputs),
        SourceKind::Forgejo => gitea::behaviour(Dialect::Forgejo, &mut inputs),
        SourceKind::GitHub => github::behaviour(&mut inputs),
        SourceKind::GitLab => gitlab::behaviour(&mut inputs),
        SourceKind::Woodpecker => woodpecker::behaviour(&mut inputs),
        SourceKind::Jenkins => jenkins::behaviour(&mut inputs),
        SourceKind::Leases => return None,
    };
    let Behaviour { system, ends_of_labels, whole, early, registers, poll, brisk } = behaviour?;
    let url = url?;
    let is_here = url.host_str().is_some_and(is_loopback);
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
        kind: raw.kind.word(),
        share,
        labels: raw.labels.clone(),
        // What templates say is known where all of them are.
        size_keys: BTreeSet::new(),
        ends_of_labels,
        whole,
        single: true,
        early,
        registers,
        firm: matches!(raw.kind, SourceKind::GitHub | SourceKind::Gitea),
        poll,
        brisk: brisk.map_or(poll, |brisk| brisk.min(poll)),
        register: Duration::from_secs(raw.register_timeout_sec),
        idle: Duration::from_secs(raw.idle_timeout_sec),
        job: Duration::from_secs(raw.job_timeout_minutes * 60),
        connection: connection.fingerprint(),
        place: connection.place(),
    };
    check_labels(&spec, layer, &mut cx.faults);
    Some((spec, connection))
}

/// Faults of labels that jobs may want and that no runner of the source can have.
fn check_labels(spec: &SourceSpec, layer: &Layer, faults: &mut Vec<Fault>) {
    let listed = layer.get("labels").and_then(Yaml::as_sequence).into_iter().flatten();
    for (at, label) in listed.enumerate() {
        if let Some(message) = label.as_str().and_then(|label| spec.bars(label)) {
            let fault = layer.item_fault("labels", at, message);
            faults.push(fault.help("remove it, or give the source a `runnerCommand`"));
        }
    }
}

fn url(raw: &RawDemand, layer: &Layer, cx: &mut Context<'_>) -> Option<Url> {
    let own = (raw.kind == SourceKind::GitHub).then_some(github::URL);
    let Some(text) = raw.url.as_deref().filter(|text| !text.is_empty()).or(own) else {
        if !layer.is_faulty("url") {
            let fault = layer.fault("url", "`url` is missing");
            cx.faults
                .push(fault.help("add the URL of the CI system, such as `url: https://git.lan`"));
        }
        return None;
    };
    let url: Url = text.parse().ok()?;
    if raw.kind == SourceKind::GitHub
        && matches!(url.host_str(), Some("github.com" | "www.github.com"))
    {
        let fault = layer.fault("url", format!("`{text}` is the web site, not the API"));
        cx.faults.push(fault.help(format!("write `{}`, or remove `url`", github::URL)));
        return None;
    }
    if url.scheme() == "http" && !url.host_str().is_some_and(is_loopback) {
        let message = "without TLS anyone on the way can read the token and every credential";
        let fault = layer.fault("url", message);
        cx.warnings.push(fault.help("use https, with caFile or pinSha256 for its certificate"));
    }
    Some(url)
}

/// Whether a host is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_matches(['[', ']']);
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl SourceInputs<'_, '_> {
    /// The credential of the required `credentialsId`, as `pick` takes it; none is a fault.
    fn credential<T>(&mut self, kinds: &str, pick: impl Fn(&Credential) -> Option<T>) -> Option<T> {
        let (layer, key) = (self.layer, "credentialsId");
        let Some(id) = self.raw.credentials_id.as_deref().filter(|id| !id.is_empty()) else {
            if !layer.is_faulty(key) {
                let fault = layer.fault(key, "`credentialsId` is missing");
                let help = format!("name an entry of `credentials` of kind {kinds}");
                self.cx.faults.push(fault.help(help));
            }
            return None;
        };
        resolve(layer, id, self.credentials, kinds, pick, self.cx)
    }

    /// The token for the login.
    fn token(&mut self) -> Option<SecretString> {
        self.credential("apiToken", |found| {
            if let Credential::Token(token) = found { Some(token.clone()) } else { None }
        })
    }

    /// The user for the login, with a token or a password.
    fn login(&mut self) -> Option<(String, SecretString)> {
        self.credential("apiLogin", |found| {
            let Credential::Login(user, secret) = found else { return None };
            Some((user.clone(), secret.clone()))
        })
    }

    /// The `scope`, read by the kind's own reader; `forms` lists what can be written.
    fn scope<T>(
        &mut self,
        default: &str,
        read: impl Fn(&[&str]) -> Option<T>,
        forms: &str,
    ) -> Option<T> {
        let text = self.raw.scope.as_deref().unwrap_or(default);
        let parts: Vec<&str> = text.trim().split('/').collect();
        let known = parts.iter().all(|part| !part.is_empty());
        let scope = known.then(|| read(&parts)).flatten();
        if scope.is_none() && !self.layer.is_faulty("scope") {
            let fault = self.layer.fault("scope", format!("`{text}` is not a scope"));
            self.cx.faults.push(fault.help(format!("write it as {forms}")));
        }
        scope
    }
}

/// The route by `proxy`, whose form is checked already. A source on this machine (`is_here`) uses
/// no proxy of the environment.
fn route(proxy: Option<&str>, is_here: bool) -> Route {
    match proxy {
        None if is_here => Route::Direct,
        None => Route::Environment,
        Some("none") => Route::Direct,
        Some(url) => url.parse().map_or(Route::Environment, Route::Proxy),
    }
}
