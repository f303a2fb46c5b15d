//! What the service stands on: its journal, what lies beside it, and what its calls pass.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_journal::{LogError, Opened, RedbLog, Writer, WriterOptions};
use drover_members::SendBy;
use drover_model::gate::Gate;
use drover_model::machine::Machine;
use drover_model::ports::Ambient;
use drover_vault::{FolderVault, Vault};

use super::layout::Layout;
use super::membership::Membership;
use super::{RunError, state_dir};

/// What the service stands on.
pub(super) struct Ground {
    /// What lies beside the journal.
    pub(super) vault: Arc<dyn Vault>,
    /// Where that is, for people.
    pub(super) place: String,
    /// Until when this service may send; none where it may always.
    pub(super) send_by: Option<SendBy>,
    /// The machine that the journal belongs to.
    pub(super) machine: Machine,
    /// For how long no drover served.
    pub(super) down: Duration,
    /// Whether other drovers stand by.
    pub(super) shared: Option<Arc<Membership>>,
}

impl Ground {
    /// The state directory of one drover.
    pub(super) fn alone(state: &Path) -> Self {
        Self {
            vault: Arc::new(FolderVault::new(state)),
            place: state.display().to_string(),
            send_by: None,
            machine: crate::machine::read(),
            down: state_dir::down_time(state),
            shared: None,
        }
    }

    /// The store of a member that leads.
    pub(super) fn of_leader(membership: Arc<Membership>, ambient: &dyn Ambient) -> Self {
        let send_by = membership.send_by().for_next_service();
        Self {
            vault: membership.leaders_vault(&send_by),
            place: membership.place(),
            send_by: Some(send_by),
            machine: membership.machine(),
            down: membership.down(ambient.now().wall),
            shared: Some(membership),
        }
    }

    /// What calls pass that change something.
    pub(super) fn gate(&self) -> Gate {
        self.send_by.as_ref().map_or_else(Gate::default, SendBy::gate)
    }

    /// Opens the journal and folds it. Blocks.
    ///
    /// # Errors
    /// [`RunError::Journal`]; [`RunError::Downgrade`] where another version used it last.
    pub(super) fn open_journal(
        &self,
        state: &Path,
        ambient: &Arc<dyn Ambient>,
        layout: Option<&Layout>,
    ) -> Result<Opened, RunError> {
        let opened = match &self.shared {
            Some(membership) => membership.open_journal(ambient),
            None => RedbLog::open(state.join(state_dir::JOURNAL))
                .and_then(|log| Writer::open(log, Arc::clone(ambient), WriterOptions::default())),
        };
        opened.map_err(|fault| {
            let not_ours = matches!(fault, LogError::Newer { .. } | LogError::Unknown { .. });
            match layout.and_then(Layout::other).filter(|_| not_ours && self.shared.is_none()) {
                Some(last) => RunError::Downgrade { last: last.to_owned(), source: fault },
                None => RunError::Journal(fault),
            }
        })
    }
}
