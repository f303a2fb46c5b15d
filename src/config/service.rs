//! The `service` section: where drover keeps its state, who can reach it, and what callers may do.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use drover_model::stop::StopPolicy;
use drover_model::tenant::{LeaseLimits, Quota, Whose};
use secrecy::{ExposeSecret as _, SecretString};

use super::context::Context;
use super::credential::Credentials;
use super::encrypted::Identities;
use super::fault::Place;
use super::keys::{
    AUDIT_MIB, BLACK_BOX_KEEP, HISTORY_KEEP, OnFailure, RawAudit, RawBlackBox, RawHistory,
    RawLeases, RawPeer, RawPrice, RawPrices, RawQuota, RawService, RawToken, SERVICE,
};
use super::layer::Layer;
use super::node::Node;
use super::notify;
use super::openid::{self, OpenIdSpec};
use super::shared_store::{self, StoreSpec};
use super::socket::default_socket;
use super::sync::{self, ConfigSyncSpec};
use super::traces;
use super::value::{self, SOCKET_PATH_MAX};
use drover_api::{Peer, Role};

/// A shorter token can be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// `TimeoutStopSec` of `configs/drover.service`: after it systemd kills drover.
const UNIT_STOP_SECS: u64 = 120;
/// The longest stop beside the wait for agents: 5 s for answers under way, 5 s for sources, 10 s
/// for actors that hang, and the journal.
const STOP_REST_SECS: u64 = 25;

/// How drover itself runs.
#[derive(Debug, Clone)]
pub struct ServiceSpec {
    /// The directory of the journal.
    pub state_directory: PathBuf,
    /// The Unix socket of the API.
    pub socket: PathBuf,
    /// The socket's permissions; none for the least that its callers need.
    pub socket_mode: Option<u32>,
    /// Users that may use the socket, beside root and drover's own user.
    pub allowed_uids: BTreeSet<u32>,
    /// Groups that may use the socket.
    pub allowed_gids: BTreeSet<u32>,
    /// The address of the API over TCP.
    pub listen: Option<SocketAddr>,
    /// Users and groups that may use the socket, with what they may do.
    pub peers: Vec<SocketPeer>,
    /// Callers of the API over TCP.
    pub tokens: Vec<ApiToken>,
    /// The provider at which people log in for the page.
    pub open_id: Option<OpenIdSpec>,
    /// Limits of leases.
    pub leases: LeaseLimits,
    /// What happens to agents at a stop.
    pub on_stop: StopPolicy,
    /// The longest time that a stop waits for agents.
    pub stop_timeout: Duration,
    /// Time between two reconciliations of every cloud; none for what each of them says.
    pub reconcile_period: Option<Duration>,
    /// The level or filter of the logs.
    pub log_level: String,
    /// The audit log.
    pub audit: AuditSpec,
    /// What stays of agents that failed.
    pub black_box: BlackBoxSpec,
    /// What is kept of the past.
    pub history: HistorySpec,
    /// What machines cost.
    pub prices: Option<PriceSpec>,
    /// Over which channels drover sends what is wrong.
    pub notify: drover_notify::Settings,
    /// The collector that takes traces of agents.
    pub traces: Option<drover_spans::Settings>,
    /// For whom secrets must be encrypted that the configuration holds.
    pub age_recipients: Vec<String>,
    /// The repository with part of the configuration.
    pub config_sync: Option<ConfigSyncSpec>,
    /// The store that several drovers share; none where the journal is in the state directory.
    pub store: Option<StoreSpec>,
}

/// How the audit log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditSpec {
    /// Whether drover refuses what would leave no record.
    pub refuses: bool,
    /// How many bytes all its files may have.
    pub keep_bytes: u64,
}

/// How long drover keeps what it knows of agents that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlackBoxSpec {
    /// After this time it goes.
    pub keep: Duration,
    /// How many bytes all of it may have.
    pub keep_bytes: u64,
}

/// What drover keeps of the past, for usage and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistorySpec {
    /// After this time it goes; zero where nothing is kept.
    pub keep: Duration,
    /// How many bytes all of it may have.
    pub keep_bytes: u64,
}

/// What machines cost, in millionths of a unit of money.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceSpec {
    pub all: HourPrices,
    /// Those of clouds, and of templates as `cloud/template`.
    pub of: BTreeMap<String, HourPrices>,
    /// Its name; blank where none is given.
    pub currency: String,
}

/// Prices of one hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HourPrices {
    /// Of a processor core.
    pub core: u64,
    /// Of a GiB of memory.
    pub gib: u64,
}

/// A caller of the API over TCP.
#[derive(Debug, Clone)]
pub struct ApiToken {
    pub name: String,
    pub role: Role,
    /// The group whose leases the caller shares.
    pub group: Option<String>,
    /// The token itself.
    pub secret: SecretString,
}

/// A user or group of this machine that may use the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPeer {
    pub peer: Peer,
    pub role: Role,
    /// The group whose leases they share.
    pub group: Option<String>,
}

/// The keys of the section; none are given without one.
pub(super) fn layer(section: Option<(&Node, Place)>, cx: &mut Context<'_>) -> Layer {
    match section {
        Some((node, place)) => Layer::check(node, place, "service", &SERVICE, &mut cx.faults),
        None => Layer::empty(None, "service", &SERVICE),
    }
}

/// What reads encrypted secrets; none where nothing is configured, or it has faults.
pub(super) fn identities(service: &Layer, cx: &mut Context<'_>) -> Option<Identities> {
    let layer = service.nested("ageIdentity").first()?;
    let secret = cx.secret(layer)?;
    let key = layer.chosen().unwrap_or("secretFile");
    let wrong = |why| {
        let fault = layer.fault(key, format!("the identity of age: {why}"));
        cx.faults.push(fault.help("make one with `drover config age-key`"));
    };
    Identities::parse(&secret).map_err(wrong).ok()
}

/// Makes the service of its section; without one all defaults hold.
pub(super) fn service(
    layer: &Layer,
    credentials: &Credentials,
    cx: &mut Context<'_>,
) -> Option<ServiceSpec> {
    let tokens = tokens(layer, cx);
    let peers = peers(layer, cx);
    let open_id = openid::open_id(layer, cx);
    let leases = leases(layer, cx);
    let audit = audit(layer, cx);
    let black_box = black_box(layer, cx);
    let (history, prices) = (history(layer, cx), prices(layer, cx));
    let notify = notify::notify(layer, cx);
    let traces = traces::traces(layer, cx);
    let config_sync = sync::config_sync(layer, credentials, cx);
    let raw: RawService = layer.typed(&mut cx.faults)?;
    let store = shared_store::store(&raw, layer, cx);
    if let Some(addr) = raw.listen {
        listening(addr, raw.listen_plain, tokens.is_empty() && open_id.is_none(), layer, cx);
    }
    let socket = raw.socket.as_ref().map_or(0, |path| path.as_os_str().len());
    if socket > SOCKET_PATH_MAX {
        let message =
            format!("the path has {socket} bytes, and a Unix socket takes {SOCKET_PATH_MAX}");
        let fault = layer.fault("socket", message);
        cx.faults.push(fault.help("name a shorter one, such as `/run/drover/drover.sock`"));
    }
    stopping(raw.stop_timeout_sec, layer, cx);
    if cx.environment.is_for_stored() && raw.state_directory.is_some() {
        let message = "a configuration in the store is read from there into the state directory";
        let fault = layer.fault("stateDirectory", message);
        cx.faults.push(
            fault.help("leave it out: --state-dir or DROVER_STATE_DIR of each member says it"),
        );
    }
    let environment = cx.environment;
    // The environment wins as at the start: an edit of the file must not undo it.
    let level = environment.get("LOG_LEVEL").map(str::to_owned);
    let level = level.or(raw.log_level.filter(|level| !level.is_empty()));
    let given = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
    Some(ServiceSpec {
        state_directory: sync::state_directory(given(raw.state_directory), environment),
        socket: given(raw.socket).unwrap_or_else(|| default_socket(environment)),
        socket_mode: raw.socket_mode.and_then(|mode| u32::from_str_radix(&mode, 8).ok()),
        allowed_uids: raw.allowed_uids,
        allowed_gids: raw.allowed_gids,
        listen: raw.listen,
        peers,
        tokens,
        open_id,
        leases,
        on_stop: raw.on_stop,
        stop_timeout: Duration::from_secs(raw.stop_timeout_sec),
        reconcile_period: Some(Duration::from_secs(raw.orphan_cleanup_period_seconds))
            .filter(|period| !period.is_zero()),
        log_level: level.unwrap_or_else(|| "info".to_owned()),
        audit,
        black_box,
        history,
        prices,
        notify,
        traces,
        age_recipients: cx.identities.as_ref().map(Identities::recipients).unwrap_or_default(),
        config_sync,
        store,
    })
}

fn listening(
    addr: SocketAddr,
    plain: bool,
    admits_nobody: bool,
    layer: &Layer,
    cx: &mut Context<'_>,
) {
    if !addr.ip().is_loopback() && !plain {
        let message =
            format!("`{addr}` is open to the network without TLS: others could read tokens");
        cx.faults.push(layer.fault("listen", message).help(
            "listen on 127.0.0.1 behind a reverse proxy that adds TLS, or use the Unix socket; \
             where you trust the network itself, set `listenPlain: true`",
        ));
    }
    if admits_nobody {
        let message = "without tokens the port takes only webhooks and calls of guests";
        let fault = layer.fault("listen", message);
        cx.warnings.push(fault.help("add `tokens`, each with name, role and secretFile"));
    }
}

/// Warns where systemd kills drover before a stop can end in order.
fn stopping(timeout_secs: u64, layer: &Layer, cx: &mut Context<'_>) {
    let (most, needed) = (UNIT_STOP_SECS - STOP_REST_SECS, timeout_secs + STOP_REST_SECS);
    if timeout_secs <= most {
        return;
    }
    let message = format!(
        "systemd kills drover {UNIT_STOP_SECS} s after a stop begins (TimeoutStopSec of the \
         shipped unit), which may be before drover has waited {timeout_secs} s and closed its journal"
    );
    cx.warnings.push(layer.fault("stopTimeoutSec", message).help(format!(
        "use at most {most}, or set `TimeoutStopSec={needed}` or more by `systemctl edit drover`"
    )));
}

fn tokens(service: &Layer, cx: &mut Context<'_>) -> Vec<ApiToken> {
    let mut tokens: Vec<ApiToken> = Vec::new();
    for layer in service.nested("tokens") {
        let raw = layer.typed::<RawToken>(&mut cx.faults);
        let secret = cx.secret(layer);
        let (Some(raw), Some(secret)) = (raw, secret) else { continue };
        if tokens.iter().any(|token| token.name == raw.name) {
            let message = format!("another token has the name `{}`", raw.name);
            cx.faults.push(layer.fault("name", message).help("give each token a unique name"));
        }
        if secret.expose_secret().len() < MIN_TOKEN_BYTES {
            let fault = layer.missing_fault("secret", "the token is short");
            cx.warnings.push(fault.help("make one with `openssl rand -hex 32`"));
        }
        let group = raw.group.filter(|group| !group.is_empty());
        tokens.push(ApiToken { name: raw.name, role: raw.role, group, secret });
    }
    tokens
}

fn peers(service: &Layer, cx: &mut Context<'_>) -> Vec<SocketPeer> {
    let mut peers: Vec<SocketPeer> = Vec::new();
    for layer in service.nested("peers") {
        let raw = layer.typed::<RawPeer>(&mut cx.faults);
        let key = layer.chosen().map_err(|fault| cx.faults.push(fault)).ok();
        let Some((raw, key)) = raw.zip(key) else { continue };
        let Some(peer) = raw.uid.map(Peer::Uid).or(raw.gid.map(Peer::Gid)) else { continue };
        if peers.iter().any(|other| other.peer == peer) {
            cx.faults.push(layer.fault(key, "another entry has it too").help("keep one of them"));
        }
        let group = raw.group.filter(|group| !group.is_empty());
        peers.push(SocketPeer { peer, role: raw.role, group });
    }
    peers
}

fn audit(service: &Layer, cx: &mut Context<'_>) -> AuditSpec {
    let raw = service.inner::<RawAudit>("audit", &mut cx.faults);
    let raw = raw.unwrap_or(RawAudit { on_failure: OnFailure::GoOn, keep_mb: AUDIT_MIB });
    let refuses = raw.on_failure == OnFailure::Refuse;
    AuditSpec { refuses, keep_bytes: raw.keep_mb << 20 }
}

fn black_box(service: &Layer, cx: &mut Context<'_>) -> BlackBoxSpec {
    let (keep_days, keep_mb) = BLACK_BOX_KEEP;
    let raw = service.inner::<RawBlackBox>("blackBox", &mut cx.faults);
    let raw = raw.unwrap_or(RawBlackBox { keep_days, keep_mb });
    let keep = Duration::from_secs(raw.keep_days * 24 * 60 * 60);
    BlackBoxSpec { keep, keep_bytes: raw.keep_mb << 20 }
}

fn history(service: &Layer, cx: &mut Context<'_>) -> HistorySpec {
    let (keep_days, keep_mb) = HISTORY_KEEP;
    let raw = service.inner::<RawHistory>("history", &mut cx.faults);
    let raw = raw.unwrap_or(RawHistory { keep_days, keep_mb });
    let keep = Duration::from_secs(raw.keep_days * 24 * 60 * 60);
    HistorySpec { keep, keep_bytes: raw.keep_mb << 20 }
}

fn prices(service: &Layer, cx: &mut Context<'_>) -> Option<PriceSpec> {
    let raw = service.inner::<RawPrices>("prices", &mut cx.faults)?;
    let all =
        HourPrices { core: value::price_of(&raw.core_hour)?, gib: value::price_of(&raw.gib_hour)? };
    let mut given: BTreeMap<String, RawPrice> = BTreeMap::new();
    for layer in service.nested("prices").iter().flat_map(|prices| prices.nested("overrides")) {
        let Some(raw) = layer.typed::<RawPrice>(&mut cx.faults) else { continue };
        if raw.core_hour.is_none() && raw.gib_hour.is_none() {
            let fault = layer.fault("of", "the entry has no price");
            cx.faults.push(fault.help("give it `coreHour`, `gibHour` or both"));
        }
        let of = raw.of.clone();
        if given.insert(of.clone(), raw).is_some() {
            let fault = layer.fault("of", format!("`{of}` has another entry"));
            cx.faults.push(fault.help("merge the two entries"));
        }
    }
    let priced = |of: &str, rest: HourPrices| {
        let price = |text: &Option<String>| text.as_deref().and_then(value::price_of);
        given.get(of).map_or(rest, |raw| HourPrices {
            core: price(&raw.core_hour).unwrap_or(rest.core),
            gib: price(&raw.gib_hour).unwrap_or(rest.gib),
        })
    };
    let of = given.keys().map(|of| {
        let of_cloud = of.split_once('/').map_or(all, |(cloud, _)| priced(cloud, all));
        (of.clone(), priced(of, of_cloud))
    });
    Some(PriceSpec { all, of: of.collect(), currency: raw.currency.unwrap_or_default() })
}

fn leases(service: &Layer, cx: &mut Context<'_>) -> LeaseLimits {
    let Some(raw) = service.inner::<RawLeases>("leases", &mut cx.faults) else {
        return LeaseLimits::default();
    };
    let mut quotas: Vec<Quota> = Vec::new();
    for layer in service.nested("leases").iter().flat_map(|leases| leases.nested("quotas")) {
        let raw = layer.typed::<RawQuota>(&mut cx.faults);
        let key = layer.chosen().map_err(|fault| cx.faults.push(fault)).ok();
        let Some((raw, key)) = raw.zip(key) else { continue };
        let principal = raw.principal.map(Whose::Principal);
        let Some(whose) = principal.or(raw.group.map(Whose::Group)) else { continue };
        if quotas.iter().any(|other| other.whose == whose) {
            let fault = layer.fault(key, format!("{whose} has another quota"));
            cx.faults.push(fault.help("merge the two entries"));
        }
        quotas.push(Quota {
            whose,
            leases: raw.max_leases,
            waiting: raw.max_waiting,
            cores: raw.max_cores,
            memory_mb: raw.max_memory_mb,
            disk_gb: raw.max_disk_gb,
        });
    }
    LeaseLimits {
        waiting: raw.max_waiting,
        waiting_each: raw.max_waiting_per_principal,
        wait: Duration::from_secs(raw.max_wait_seconds),
        quotas,
    }
}
