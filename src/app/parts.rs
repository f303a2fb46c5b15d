//! What a configuration is made into for the parts: connections, keys, callers, the state folder.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use drover_actors::fact::{Fact, What};
use drover_actors::ports::Observer;
use drover_actors::spec::HerdSpec;

use super::RunError;
use crate::config::{Checked, ServiceSpec, SshKeySpec};
use crate::pve::Proxmox;
use crate::shell::SshShell;
use crate::view::View;
use crate::web::{Auth, Peer, PeerGrant, Role, TokenGrant};

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
    if let Err(error) = std::fs::write(state.join(PULSE), b"") {
        tracing::warn!(%error, "the pulse file cannot be written");
    }
}

/// Gives the client the connections that are new or changed. Clouds that left the configuration
/// keep theirs until their last agent is gone.
pub fn connect(proxmox: &Proxmox, checked: &Checked, before: &HerdSpec) {
    for (id, connection) in &checked.connections {
        let now = checked.herd.clouds.get(id).map(|cloud| cloud.connection);
        let was = before.clouds.get(id).map(|cloud| cloud.connection);
        if now == was {
            continue;
        }
        if let Err(error) = proxmox.set_cloud(id.clone(), connection) {
            tracing::error!(cloud = %id, error = crate::causes::chain(&error), "connection refused");
        }
    }
}

/// Gives the shell the private keys.
pub fn keys(shell: &SshShell, keys: &BTreeMap<String, SshKeySpec>) {
    shell.add_keys(keys.iter().map(|(id, spec)| (id.clone(), spec.key.clone())));
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
    Auth::new(tokens, uids.chain(gids).collect())
}

/// Takes facts for the view, logs those an operator wants to read, and forgets clouds that are gone.
pub struct Listener {
    view: Arc<View>,
    proxmox: Arc<Proxmox>,
}

impl Listener {
    /// Listens for both.
    pub fn new(view: Arc<View>, proxmox: Arc<Proxmox>) -> Self {
        Self { view, proxmox }
    }
}

impl Observer for Listener {
    fn observe(&self, fact: Fact) {
        log(&self.view, &fact.what);
        if let What::CloudGone { cloud } = &fact.what {
            self.proxmox.drop_cloud(cloud);
        }
        self.view.observe(fact);
    }
}

fn log(view: &View, what: &What) {
    match what {
        What::AgentGone { agent, reason, .. } => {
            tracing::info!(%agent, %reason, "agent gone");
        }
        What::Alarm { agent, text, command } => {
            tracing::error!(%agent, text, command, "agent needs an administrator");
        }
        What::Lease(picture) => {
            tracing::info!(
                lease = %picture.lease,
                state = picture.state,
                agent = picture.agent.as_ref().map(tracing::field::display),
                detail = picture.detail,
                "lease moved"
            );
        }
        What::Cloud { cloud, health, detail, .. } => {
            // Counts change with every agent; only its health is worth a line.
            let mut known = view.clouds().into_iter().filter(|known| known.cloud == *cloud);
            if known.next().is_none_or(|old| old.health != *health || old.detail != *detail) {
                tracing::info!(%cloud, health, detail, "cloud's health changed");
            }
        }
        What::ConfigApplied { generation } => {
            tracing::info!(generation = generation.0, "configuration in force");
        }
        What::ConfigRefused { .. } => tracing::error!("configuration refused, the old one stays"),
        What::Reconciled { cluster, findings } => {
            tracing::info!(%cluster, findings = findings.len(), "cluster reconciled");
        }
        What::Restarted { actor, count, gave_up } => {
            tracing::error!(actor, count, gave_up, "actor restarted");
        }
        What::CloudGone { cloud } => tracing::info!(%cloud, "cloud gone"),
        // The agents log their own moves.
        What::Agent(_) | What::Template { .. } | What::TemplateGone { .. } => {}
    }
}
