//! What people see of the sync.

use std::sync::Arc;

use drover_api::{AppliedOut, SyncOut, ValueChangeOut};
use drover_config::ValueChange;
use drover_config::managed::AppliedCommit;
use tokio::task::block_in_place;

use super::{Configured, Worker};

/// A commit as people see it.
pub(super) fn applied(of: &AppliedCommit) -> AppliedOut {
    AppliedOut {
        commit: of.commit.clone(),
        committed_at: of.committed_at.clone(),
        author: of.author.clone(),
        subject: of.subject.clone(),
        branch: of.branch.clone(),
        applied_at: of.applied_at.clone(),
    }
}

/// A change as people see it.
pub(super) fn value_change(change: &ValueChange) -> ValueChangeOut {
    ValueChangeOut {
        path: change.path.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
        entry: change.entry,
    }
}

impl Worker {
    /// Puts the state of the sync into the view; none where no repository is configured.
    pub(super) fn report(&self, configured: &Configured) {
        let shown = configured.spec.as_ref().map(|spec| {
            let (history, in_force, pinned) = block_in_place(|| {
                let history = self.reader.store.history();
                let history: Vec<AppliedOut> = history.iter().map(|(_, of)| applied(of)).collect();
                (history, self.reader.store.applied(), self.reader.store.is_pinned())
            });
            let changes = configured.manual_changes.iter().map(value_change);
            SyncOut {
                repository: spec.remote.url.to_string(),
                branch: spec.remote.branch.clone(),
                path: spec.path.clone(),
                schedule: spec.schedule.clone(),
                next_at: self.next.map(|at| at.rfc3339()),
                allow_manual_changes: spec.allows_changes,
                running: self.running,
                in_force: in_force.as_ref().map(applied),
                pinned,
                last_attempt: self.last.clone(),
                clouds: configured.clouds.clone(),
                manual_changes: changes.collect(),
                history,
            }
        });
        self.reader.tools.view.mark_sync(shown, Arc::clone(&configured.herd));
    }
}
