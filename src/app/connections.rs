//! The connections to the configured clouds and sources of demand.

use std::collections::BTreeSet;
use std::sync::Arc;

use causes::chain;
use drover_ci::CiSystems;
use drover_hypervisor::Proxmox;
use drover_model::gate::Gate;
use drover_model::id::{CloudId, SourceId};
use drover_model::spec::HerdSpec;
use parking_lot::Mutex;

use drover_config::Checked;

/// The connections to the configured clouds and sources. A cloud or source that left the
/// configuration keeps its connection until its last agent or runner is gone, and for good when it
/// is configured again before that.
pub struct Connections {
    proxmox: Arc<Proxmox>,
    systems: Arc<CiSystems>,
    gate: Gate,
    configured: Mutex<Configured>,
}

/// What the current configuration contains.
#[derive(Default)]
struct Configured {
    clouds: BTreeSet<CloudId>,
    sources: BTreeSet<SourceId>,
}

impl Connections {
    /// Calls to CI systems that change something pass the gate.
    pub fn new(proxmox: Arc<Proxmox>, systems: Arc<CiSystems>, gate: Gate) -> Self {
        Self { proxmox, systems, gate, configured: Mutex::default() }
    }

    /// Opens the connections that are new or changed since the configuration `before`.
    pub fn connect(&self, checked: &Checked, before: &HerdSpec) {
        let mut configured = self.configured.lock();
        configured.clouds = checked.connections.keys().cloned().collect();
        configured.sources = checked.demand.keys().cloned().collect();
        for (id, connection) in &checked.demand {
            let now = checked.herd.sources.get(id).map(|source| source.connection);
            if now == before.sources.get(id).map(|source| source.connection) {
                continue;
            }
            match drover_ci::connector(connection, self.gate.clone()) {
                Ok(connector) => self.systems.set(id.clone(), connector),
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(source = %id, error, "cannot set up the connection");
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
                let error = chain(&error);
                tracing::error!(cloud = %id, error, "cannot set up the connection");
            }
        }
    }

    /// Closes the connection to a cloud that is gone, unless it is configured again: the actors can
    /// report its end before they get the new configuration.
    pub fn close_cloud(&self, cloud: &CloudId) {
        let configured = self.configured.lock();
        if !configured.clouds.contains(cloud) {
            self.proxmox.drop_cloud(cloud);
        }
    }

    /// Closes the connection to a source whose last runner is gone, unless it is configured again.
    pub fn close_source(&self, source: &SourceId) {
        let configured = self.configured.lock();
        if !configured.sources.contains(source) {
            self.systems.forget(source);
        }
    }
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
    use drover_shell::SshShell;
    use proxmox_client::WireDialer;

    const YAML: &str = "cloudConfigurations:\n  a: {name: A, apiUrl: \"https://127.0.0.1:1\", \
        credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secret: x-y-z}\n";

    fn checked(text: &str) -> Checked {
        check(Sources::of_text("drover.yaml", text), &Environment::default()).unwrap()
    }

    // Invariant: a configured cloud has a connection, whatever the actors reported before.

    #[tokio::test]
    async fn a_cloud_that_came_back_keeps_its_connection_when_its_end_is_reported_late() {
        let proxmox = Arc::new(Proxmox::new(
            Some(tokio::runtime::Handle::current()),
            Arc::new(WireDialer),
            TASK_POLL_INTERVAL,
        ));
        let runtime = tokio::runtime::Handle::current();
        let shell = Arc::new(SshShell::new(runtime.clone()));
        let systems = Arc::new(CiSystems::new(shell, runtime));
        let connections = Connections::new(Arc::clone(&proxmox), systems, Gate::default());
        let cloud = CloudId::new("a");
        // A call to a cloud without a connection fails at once.
        let answered = || proxmox.identify(&CloudId::new("a")).now_or_never();
        let there = checked(YAML);
        let away = checked(&YAML.replace("  a: {name: A", "  b: {name: B"));
        connections.connect(&there, &HerdSpec::default());
        connections.connect(&away, &there.herd);
        assert!(answered().is_none(), "its agents are not gone yet");
        let mut back = checked(YAML);
        back.follow(&away.herd, Generation(3));
        connections.connect(&back, &away.herd);
        connections.close_cloud(&cloud);
        assert!(answered().is_none());
        connections.connect(&away, &back.herd);
        connections.close_cloud(&cloud);
        let fault: Fault = answered().unwrap().unwrap_err();
        assert!(fault.text.contains("not configured"), "{fault}");
    }
}
