//! What the service reaches clusters, guests and CI systems with.

use std::path::Path;
use std::sync::Arc;

use drover_ci::{CiSystems, Hooks};
use drover_config::Checked;
use drover_hypervisor::download::Downloads;
use drover_hypervisor::{CallInKey, GatedDialer, HttpWeb, Proxmox, TASK_POLL_INTERVAL};
use drover_model::journal_state::JournalState;
use drover_shell::SshShell;
use drover_shell::kept_keys::KeptKeys;
use drover_shell::user_data::UserDataStore;
use proxmox_client::GatedWireDialer;
use tokio::runtime::Handle;

use super::super::ground::Ground;
use super::super::{RunError, state_dir, wiring};

/// What the service reaches clusters, guests and CI systems with.
pub(in crate::app) struct Tools {
    /// Signs the tokens with which guests call in.
    pub(in crate::app) key: Arc<CallInKey>,
    pub(in crate::app) proxmox: Arc<Proxmox>,
    pub(in crate::app) user_data: Arc<UserDataStore>,
    /// Private keys of agents that outlive the keys' configuration.
    pub(in crate::app) former: Arc<KeptKeys>,
    pub(in crate::app) shell: Arc<SshShell>,
    pub(in crate::app) systems: Arc<CiSystems>,
    pub(in crate::app) hooks: Arc<Hooks>,
}

impl Tools {
    /// Opens what lies beside the journal, and makes the clients. Blocks.
    ///
    /// # Errors
    /// [`RunError::Beside`] and [`RunError::State`].
    pub(super) fn open(
        ground: &Ground,
        state: &Path,
        journal_state: &JournalState,
        runtime: &Handle,
    ) -> Result<Self, RunError> {
        let (gate, vault) = (ground.gate(), &ground.vault);
        let beside = |source| RunError::Beside { place: ground.place.clone(), source };
        let key = Arc::new(CallInKey::open(&**vault).map_err(beside)?);
        let downloads = Downloads::open(Arc::new(HttpWeb), state.join(state_dir::DOWNLOADS))
            .map_err(|source| RunError::State { path: state.to_owned(), source })?;
        let dialer = Arc::new(GatedDialer::new(GatedWireDialer::new(gate.ask()), gate.clone()));
        let proxmox = Proxmox::new(Some(runtime.clone()), dialer, TASK_POLL_INTERVAL)
            .with_call_ins(Arc::clone(&key))
            .with_downloads(downloads);
        let user_data = UserDataStore::open(Arc::clone(vault), journal_state).map_err(beside)?;
        let user_data = Arc::new(user_data);
        let (former, keys) = KeptKeys::open(Arc::clone(vault), journal_state).map_err(beside)?;
        let shell =
            SshShell::new(runtime.clone()).with_gate(gate).with_user_data(Arc::clone(&user_data));
        shell.add_kept_keys(keys);
        let shell = Arc::new(shell);
        let systems = CiSystems::new(Arc::clone(&shell), runtime.clone())
            .with_vault(Arc::clone(vault), ground.machine.id.clone());
        let systems = Arc::new(systems);
        let hinted = Arc::clone(&systems);
        let hooks = Hooks::with_hint(move |source, body| hinted.hint(source, body));
        Ok(Self {
            key,
            proxmox: Arc::new(proxmox),
            user_data,
            former: Arc::new(former),
            shell,
            systems,
            hooks: Arc::new(hooks),
        })
    }

    /// Gives them the keys, the files and the webhook secrets of a configuration.
    pub(super) fn configure(&self, checked: &Checked) {
        self.hooks.replace(wiring::hook_secrets(checked));
        wiring::set_keys(&self.shell, &self.former, &checked.keys);
        self.shell.set_files(checked.uploads.iter());
    }
}
