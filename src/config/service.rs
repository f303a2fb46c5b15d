//! The `service`: where drover keeps its state, how it is reached, who may ask it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drover_model::stop::StopPolicy;
use drover_model::tenant::{LeaseLimits, Quota, Whose};
use secrecy::SecretString;
use serde::Deserialize;

use super::credential::Vault;
use super::fault::Place;
use super::keys::{LEASES, PEER, QUOTA, SECRET_KEYS, SERVICE, TOKEN};
use super::layer::Layer;
use super::node::Node;
use super::source::Sources;
use super::{Environment, LoadError, fault, survey};
use drover_api::{Peer, Role};

/// Tokens shorter than this can be guessed.
const SHORT: usize = 16;
/// `TimeoutStopSec` of `configs/drover.service`: systemd kills a drover that has not ended by then.
const UNIT_STOP_SECS: u64 = 120;
/// What a stop takes at most beside the wait for agents: 5 s for answers under way, 5 s for sources,
/// 10 s for actors that hang, and the journal.
const STOP_REST_SECS: u64 = 25;

/// How drover itself runs.
#[derive(Debug, Clone)]
pub struct ServiceSpec {
    /// Where the journal lives.
    pub state_directory: PathBuf,
    /// The Unix socket of the API.
    pub socket: PathBuf,
    /// The socket's permissions; none for as many as its callers need.
    pub socket_mode: Option<u32>,
    /// Users that may use the socket, beside root and drover's own.
    pub allowed_uids: BTreeSet<u32>,
    /// Groups that may use the socket.
    pub allowed_gids: BTreeSet<u32>,
    /// The API over TCP; none for no such.
    pub listen: Option<SocketAddr>,
    /// Users and groups that may use the socket, with what they may do.
    pub peers: Vec<SocketPeer>,
    /// Who may use the API over TCP.
    pub tokens: Vec<ApiToken>,
    /// What bounds leases.
    pub leases: LeaseLimits,
    /// What happens to agents at a stop.
    pub on_stop: StopPolicy,
    /// The most time that a stop waits for agents.
    pub stop_timeout: Duration,
    /// Time between two reconciliations of every cloud; none for what each of them says.
    pub reconcile_period: Option<Duration>,
    /// The level or filter of the logs.
    pub log_level: String,
}

/// Somebody who may use the API over TCP.
#[derive(Debug, Clone)]
pub struct ApiToken {
    /// Who it is.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// The group whose leases are its own too.
    pub group: Option<String>,
    /// What it shows.
    pub secret: SecretString,
}

/// A user or group of this machine that may use the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPeer {
    /// Who it is.
    pub peer: Peer,
    /// What it may do.
    pub role: Role,
    /// The group whose leases are its own too.
    pub group: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawService {
    state_directory: Option<PathBuf>,
    socket: Option<PathBuf>,
    socket_mode: Option<String>,
    allowed_uids: BTreeSet<u32>,
    allowed_gids: BTreeSet<u32>,
    listen: Option<SocketAddr>,
    listen_plain: bool,
    on_stop: StopPolicy,
    stop_timeout_sec: u64,
    orphan_cleanup_period_seconds: u64,
    log_level: Option<String>,
}

#[derive(Deserialize)]
struct RawToken {
    name: String,
    role: Role,
    group: Option<String>,
}

#[derive(Deserialize)]
struct RawPeer {
    uid: Option<u32>,
    gid: Option<u32>,
    role: Role,
    group: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLeases {
    max_waiting: u32,
    max_waiting_per_principal: u32,
    max_wait_seconds: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawQuota {
    principal: Option<String>,
    group: Option<String>,
    max_leases: Option<u32>,
    max_waiting: Option<u32>,
    max_cores: Option<u32>,
    #[serde(rename = "maxMemoryMB")]
    max_memory_mb: Option<u32>,
    #[serde(rename = "maxDiskGB")]
    max_disk_gb: Option<u32>,
}

/// The socket of the API as a configuration names it, whatever is wrong beyond its `service`.
///
/// # Errors
/// [`LoadError`] where its files can not be read, or `service` has faults of its own.
pub fn socket(path: &Path, environment: &Environment) -> Result<PathBuf, LoadError> {
    let sources = Sources::read(path).map_err(|(path, source)| LoadError::Io { path, source })?;
    let mut faults = Vec::new();
    let layer = match survey::top(&sources, &mut Vec::new()) {
        Ok(top) => top
            .iter()
            .find(|entry| entry.key == "service")
            .map(|entry| Layer::check(&entry.value, entry.place, "service", SERVICE, &mut faults)),
        Err(fault) => {
            faults.push(*fault);
            None
        }
    };
    if !faults.is_empty() {
        fault::hide(&mut faults, &sources);
        return Err(LoadError::Faults { faults, sources });
    }
    let named = layer.as_ref().and_then(|layer| layer.text("socket"));
    let named = named.filter(|text| !text.is_empty()).map(PathBuf::from);
    Ok(named.unwrap_or_else(|| preset_socket(environment)))
}

fn preset_socket(environment: &Environment) -> PathBuf {
    let run = environment.directory("RUNTIME_DIRECTORY").unwrap_or("/run/drover".into());
    run.join("drover.sock")
}

/// Makes the service's section; without one everything is as preset.
pub(super) fn service(
    section: Option<(&Node, Place)>,
    vault: &mut Vault<'_>,
) -> Option<ServiceSpec> {
    let layer = match section {
        Some((node, place)) => Layer::check(node, place, "service", SERVICE, vault.faults),
        None => Layer::empty(None, "service"),
    };
    let tokens = tokens(&layer, vault);
    let peers = peers(&layer, vault);
    let leases = leases(&layer, vault);
    let raw: RawService = layer.typed(SERVICE, vault.faults)?;
    if let Some(addr) = raw.listen {
        listening(addr, raw.listen_plain, &tokens, &layer, vault);
    }
    stopping(raw.stop_timeout_sec, &layer, vault);
    let environment = vault.environment;
    let state = || environment.directory("STATE_DIRECTORY").unwrap_or("/var/lib/drover".into());
    // The environment wins as at the start: an edit of the file must not undo it.
    let level = environment.get("LOG_LEVEL").map(str::to_owned);
    let level = level.or(raw.log_level.filter(|level| !level.is_empty()));
    Some(ServiceSpec {
        state_directory: given(raw.state_directory).unwrap_or_else(state),
        socket: given(raw.socket).unwrap_or_else(|| preset_socket(environment)),
        socket_mode: raw.socket_mode.and_then(|mode| u32::from_str_radix(&mode, 8).ok()),
        allowed_uids: raw.allowed_uids,
        allowed_gids: raw.allowed_gids,
        listen: raw.listen,
        peers,
        tokens,
        leases,
        on_stop: raw.on_stop,
        stop_timeout: Duration::from_secs(raw.stop_timeout_sec),
        reconcile_period: Some(Duration::from_secs(raw.orphan_cleanup_period_seconds))
            .filter(|period| !period.is_zero()),
        log_level: level.unwrap_or_else(|| "info".to_owned()),
    })
}

fn listening(
    addr: SocketAddr,
    plain: bool,
    tokens: &[ApiToken],
    layer: &Layer,
    vault: &mut Vault<'_>,
) {
    if !addr.ip().is_loopback() && !plain {
        let message =
            format!("`{addr}` is open to the network without TLS: tokens could be read on the way");
        let fault = layer.fault("listen", message);
        vault.faults.push(fault.help(
            "listen on 127.0.0.1 behind a reverse proxy that adds TLS, or use the Unix socket; \
             where the network itself is trusted, set `listenPlain: true`",
        ));
    }
    if tokens.is_empty() {
        let fault =
            layer.fault("listen", "without tokens it takes webhooks and calls of guests alone");
        vault.warnings.push(fault.help("add `tokens`, each with name, role and secretFile"));
    }
}

/// Warns where systemd kills drover before a stop can end in order.
fn stopping(timeout_secs: u64, layer: &Layer, vault: &mut Vault<'_>) {
    let (most, needed) = (UNIT_STOP_SECS - STOP_REST_SECS, timeout_secs + STOP_REST_SECS);
    if timeout_secs <= most {
        return;
    }
    let message = format!(
        "systemd kills drover {UNIT_STOP_SECS} s after a stop begins (TimeoutStopSec of the \
         shipped unit), which may be before drover has waited {timeout_secs} s and closed its journal"
    );
    let fault = layer.fault("stopTimeoutSec", message);
    vault.warnings.push(fault.help(format!(
        "use at most {most}, or set `TimeoutStopSec={needed}` or more by `systemctl edit drover`"
    )));
}

fn given(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

fn tokens(service: &Layer, vault: &mut Vault<'_>) -> Vec<ApiToken> {
    let mut tokens: Vec<ApiToken> = Vec::new();
    for layer in service.nested("tokens") {
        let raw = layer.typed::<RawToken>(TOKEN.keys, vault.faults);
        let secret = vault.secret(layer, &SECRET_KEYS);
        let (Some(raw), Some(secret)) = (raw, secret) else { continue };
        if tokens.iter().any(|token| token.name == raw.name) {
            let message = format!("another token is called `{}`", raw.name);
            vault.faults.push(layer.fault("name", message).help("give each token its own name"));
        }
        if secrecy::ExposeSecret::expose_secret(&secret).len() < SHORT {
            let fault =
                Layer::empty(layer.place, &*layer.path).fault("secret", "the token is short");
            vault.warnings.push(fault.help("make one with `openssl rand -hex 32`"));
        }
        let group = raw.group.filter(|group| !group.is_empty());
        tokens.push(ApiToken { name: raw.name, role: raw.role, group, secret });
    }
    tokens
}

/// Either of two keys, the other of which is not given; a fault where that is not so.
fn either(layer: &Layer, keys: [&str; 2], vault: &mut Vault<'_>) -> bool {
    let given = keys.iter().filter(|key| layer.has(key)).count();
    if given != 1 {
        let text = format!("exactly one of `{}` and `{}` must be given", keys[0], keys[1]);
        vault.faults.push(layer.fault(keys[0], text));
    }
    given == 1
}

fn peers(service: &Layer, vault: &mut Vault<'_>) -> Vec<SocketPeer> {
    let mut peers: Vec<SocketPeer> = Vec::new();
    for layer in service.nested("peers") {
        let raw = layer.typed::<RawPeer>(PEER.keys, vault.faults);
        let one = either(layer, ["uid", "gid"], vault);
        let Some(raw) = raw.filter(|_| one) else { continue };
        let Some(peer) = raw.uid.map(Peer::Uid).or(raw.gid.map(Peer::Gid)) else { continue };
        if peers.iter().any(|other| other.peer == peer) {
            let key = if raw.uid.is_some() { "uid" } else { "gid" };
            vault.faults.push(layer.fault(key, "is in another entry too").help("keep one of them"));
        }
        let group = raw.group.filter(|group| !group.is_empty());
        peers.push(SocketPeer { peer, role: raw.role, group });
    }
    peers
}

fn leases(service: &Layer, vault: &mut Vault<'_>) -> LeaseLimits {
    let Some(layer) = service.nested("leases").first() else { return LeaseLimits::default() };
    let Some(raw) = layer.typed::<RawLeases>(LEASES.keys, vault.faults) else {
        return LeaseLimits::default();
    };
    let mut quotas: Vec<Quota> = Vec::new();
    for layer in layer.nested("quotas") {
        let raw = layer.typed::<RawQuota>(QUOTA.keys, vault.faults);
        let one = either(layer, ["principal", "group"], vault);
        let Some(raw) = raw.filter(|_| one) else { continue };
        let principal = raw.principal.map(Whose::Principal);
        let Some(whose) = principal.or(raw.group.map(Whose::Group)) else { continue };
        if quotas.iter().any(|other| other.whose == whose) {
            let key = if matches!(whose, Whose::Group(_)) { "group" } else { "principal" };
            let fault = layer.fault(key, format!("{whose} has another quota"));
            vault.faults.push(fault.help("put both into one entry"));
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
