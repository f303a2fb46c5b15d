//! What a configuration is made into for the parts: connections, keys, callers, the state folder.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use actix::Recipient;
use causes::chain;
use drover_actors::message::HerdCommand;
use drover_ci::{CiSystems, HookSecret};
use drover_hypervisor::Proxmox;
use drover_model::id::{CloudId, SourceId};
use drover_model::spec::HerdSpec;
use drover_shell::SshShell;
use drover_shell::kept_keys::KeptKeys;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;

use super::RunError;
use drover_api::{Peer, Role};
use drover_config::{Checked, ServiceSpec, SshKeySpec};
use drover_server::{Auth, PeerGrant, TokenGrant};

/// The name of the journal in the state directory.
pub const JOURNAL: &str = "journal.redb";
/// A file whose time of change says when the service was last alive.
const PULSE: &str = "alive";

/// Makes the state directory, readable by its owner alone.
///
/// # Errors
/// [`RunError::State`].
pub fn state_directory(given: Option<PathBuf>, spec: &ServiceSpec) -> Result<PathBuf, RunError> {
    let path = given.unwrap_or_else(|| spec.state_directory.clone());
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .map_err(|source| RunError::State { path: path.clone(), source })?;
    Ok(path)
}

/// How long the service was down, by the file it touches while it runs.
pub fn down_time(state: &Path) -> Duration {
    let changed = std::fs::metadata(state.join(PULSE)).and_then(|meta| meta.modified());
    changed
        .ok()
        .and_then(|last| SystemTime::now().duration_since(last).ok())
        .unwrap_or(Duration::ZERO)
}

/// Notes that the service is alive; a failure only costs leases their credit for down time.
pub fn pulse(state: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let touched = options.open(state.join(PULSE)).map(drop);
    if let Err(error) = touched {
        tracing::warn!(%error, "the pulse file cannot be written");
    }
}

/// The ways into the configured clouds and to the sources of demand. One that left the
/// configuration keeps its way until its last agent or runner is gone; one that came back meanwhile
/// keeps it for good.
pub struct Ways {
    proxmox: Arc<Proxmox>,
    systems: Arc<CiSystems>,
    configured: Mutex<Configured>,
}

/// What is configured.
#[derive(Default)]
struct Configured {
    clouds: BTreeSet<CloudId>,
    sources: BTreeSet<SourceId>,
}

impl Ways {
    /// No way yet.
    pub fn new(proxmox: Arc<Proxmox>, systems: Arc<CiSystems>) -> Self {
        Self { proxmox, systems, configured: Mutex::default() }
    }

    /// Gives the client the connections that are new or changed.
    pub fn connect(&self, checked: &Checked, before: &HerdSpec) {
        let mut configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        configured.clouds = checked.connections.keys().cloned().collect();
        configured.sources = checked.demand.keys().cloned().collect();
        for (id, connection) in &checked.demand {
            let now = checked.herd.sources.get(id).map(|source| source.connection);
            if now == before.sources.get(id).map(|source| source.connection) {
                continue;
            }
            match drover_ci::connector(connection) {
                Ok(connector) => self.systems.set(id.clone(), connector),
                Err(error) => {
                    tracing::error!(source = %id, error = chain(&error), "connection refused");
                }
            }
        }
        for spec in checked.herd.clouds.values() {
            self.proxmox.set_max_concurrent(spec);
        }
        for (id, connection) in &checked.connections {
            let now = checked.herd.clouds.get(id).map(|cloud| cloud.connection);
            let was = before.clouds.get(id).map(|cloud| cloud.connection);
            if now == was {
                continue;
            }
            if let Err(error) = self.proxmox.set_cloud(id.clone(), connection) {
                tracing::error!(cloud = %id, error = chain(&error), "connection refused");
            }
        }
    }

    /// Forgets a cloud that is gone, unless it is configured again: the actors tell of its end
    /// before they hear of that.
    pub fn forget(&self, cloud: &CloudId) {
        let configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        if !configured.clouds.contains(cloud) {
            self.proxmox.drop_cloud(cloud);
        }
    }

    /// Forgets a source whose last runner is gone, unless it is configured again.
    pub fn forget_source(&self, source: &SourceId) {
        let configured = self.configured.lock().unwrap_or_else(PoisonError::into_inner);
        if !configured.sources.contains(source) {
            self.systems.forget(source);
        }
    }
}

/// Raises how many files the service may have open to as many as it is allowed: connections to the
/// API, to guests and to clusters need one each. Gives how many that are; none for any number.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        return limit.current;
    }
    raised.current
}

/// Gives the shell the private keys, and keeps copies of them for agents that outlive their time in the
/// configuration.
pub fn keys(shell: &SshShell, former: &KeptKeys, keys: &BTreeMap<String, SshKeySpec>) {
    former.configure(keys.values().map(|spec| &spec.key));
    shell.add_keys(keys.iter().map(|(id, spec)| (id.clone(), spec.key.clone())));
}

/// What the webhooks of sources are signed with.
pub fn hook_secrets(checked: &Checked) -> BTreeMap<SourceId, HookSecret> {
    let each = checked.demand.iter().filter_map(|(id, source)| {
        let (proof, secret) = (source.system.hook_proof(), source.webhook.clone()?);
        Some((id.clone(), HookSecret { proof, secret }))
    });
    each.collect()
}

/// Has sources with news of their own looked at.
pub fn wake(systems: &CiSystems, herd: &Recipient<HerdCommand>) {
    let herd = herd.clone();
    systems.on_news(move |source| {
        let (reply, _) = oneshot::channel();
        herd.do_send(HerdCommand::Wake { source, reply });
    });
}

/// Who may call the API.
pub fn auth(spec: &ServiceSpec) -> Auth {
    let tokens = spec.tokens.iter().map(|token| TokenGrant {
        name: token.name.clone(),
        role: token.role,
        secret: token.secret.clone(),
    });
    let operator = |peer| PeerGrant { peer, role: Role::Operator };
    let uids = spec.allowed_uids.iter().map(|uid| operator(Peer::Uid(*uid)));
    let gids = spec.allowed_gids.iter().map(|gid| operator(Peer::Gid(*gid)));
    let peers = spec.peers.iter().map(|one| PeerGrant { peer: one.peer, role: one.role });
    let of_tokens = spec.tokens.iter().map(|one| (format!("token:{}", one.name), &one.group));
    let of_peers = spec.peers.iter().map(|one| {
        let whose = match one.peer {
            Peer::Uid(uid) => format!("uid:{uid}"),
            Peer::Gid(gid) => format!("gid:{gid}"),
        };
        (whose, &one.group)
    });
    let groups = of_tokens.chain(of_peers);
    let groups = groups.filter_map(|(whose, group)| Some((whose, group.clone()?)));
    Auth::new(tokens, uids.chain(gids).chain(peers).collect()).grouped(groups.collect())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use drover_model::fault::Fault;
    use drover_model::id::Generation;
    use drover_model::ports::Hypervisor;
    use futures_util::FutureExt;

    use super::*;
    use drover_config::{Environment, Sources, check};
    use drover_hypervisor::TASK_POLL_INTERVAL;
    use proxmox_client::WireDialer;

    const YAML: &str = "cloudConfigurations:\n  a: {name: A, apiUrl: \"https://127.0.0.1:1\", \
        credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}\n";

    fn checked(text: &str) -> Checked {
        check(Sources::of_text("drover.yaml", text), &Environment::default()).unwrap()
    }

    // Invariant: a cloud that is configured has a way in, whatever was told of it before.

    #[tokio::test]
    async fn a_cloud_that_came_back_keeps_its_way_when_its_end_is_told_late() {
        let proxmox = Arc::new(Proxmox::new(
            Some(tokio::runtime::Handle::current()),
            Arc::new(WireDialer),
            TASK_POLL_INTERVAL,
        ));
        let runtime = tokio::runtime::Handle::current();
        let shell = Arc::new(SshShell::new(runtime.clone()));
        let systems = Arc::new(CiSystems::new(shell, runtime));
        let ways = Ways::new(Arc::clone(&proxmox), systems);
        let cloud = CloudId::new("a");
        // A call for a cloud without a way is answered at once.
        let answered = || proxmox.identify(&CloudId::new("a")).now_or_never();
        let there = checked(YAML);
        let away = checked(&YAML.replace("  a: {name: A", "  b: {name: B"));
        ways.connect(&there, &HerdSpec::default());
        ways.connect(&away, &there.herd);
        assert!(answered().is_none(), "its agents are not gone yet");
        let mut back = checked(YAML);
        back.follow(&away.herd, Generation(3));
        ways.connect(&back, &away.herd);
        ways.forget(&cloud);
        assert!(answered().is_none());
        ways.connect(&away, &back.herd);
        ways.forget(&cloud);
        let fault: Fault = answered().unwrap().unwrap_err();
        assert!(fault.text.contains("not configured"), "{fault}");
    }

    // Invariant: what the service keeps is for its owner alone.

    #[test]
    fn the_state_directory_and_the_pulse_are_made_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let spec = checked(YAML).service;
        let state = state_directory(Some(dir.path().join("a/b")), &spec).unwrap();
        pulse(&state);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(PULSE))), (0o700, 0o600));
        pulse(&state);
        assert!(down_time(&state) < Duration::from_secs(60));
    }
}
