//! How a service ends: by a signal, for another member, or because its journal or its actors failed.

use std::sync::Arc;

use drover_actors::message::HerdCommand;
use drover_audit::Entry;
use drover_model::ports::JournalFault;
use drover_runtime::reply::Reply;
use drover_runtime::supervise::GivenUp;

use super::super::signals::Signals;
use super::super::{RunError, auditing, state_dir, stop};
use super::{Ended, Service};

impl Service {
    /// Takes no new work and finishes work that must not be interrupted, within the time limit. A
    /// second signal stops at once.
    pub(super) async fn stop(mut self, signals: &mut Signals) -> Result<Ended, RunError> {
        self.notifier.stopping(&stop::status(self.stop_timeout));
        let (reply, drained) = Reply::channel();
        self.actors.commands.do_send(HerdCommand::Drain { policy: self.on_stop, reply });
        let (view, notifier) = (Arc::clone(&self.records.view), self.notifier);
        let report = move || {
            let agents = stop::describe_agents(&view.agents());
            tracing::info!(agents, "drover waits for work that must not be interrupted");
            notifier
                .status(&format!("waiting for work that must not be interrupted; agents {agents}"));
        };
        tokio::select! {
            biased;
            given_up = self.actors.given_up.recv() => return self.actors_failed(given_up).await,
            fault = &mut self.journal_ended => return self.journal_failed(fault.ok()).await,
            () = signals.terminated() => tracing::warn!("second signal: drover stops at once"),
            is_drained = stop::is_drained(drained, self.stop_timeout, report) => if is_drained {
                tracing::info!("drained");
            } else {
                let agents = self.records.view.agents();
                tracing::warn!("{}", stop::timeout_text(self.stop_timeout, &agents));
            },
        }
        self.server.stop().await;
        self.tools.systems.stop().await;
        self.actors.stop().await;
        if let Err(error) = self.journal.flush().await {
            tracing::warn!(%error, "the last records of the journal may be lost");
        }
        self.records.close().await;
        state_dir::write_heartbeat(&self.state);
        auditing::record(&self.records.audit, Entry::Stopped).await;
        Ok(Ended::Stopped)
    }

    /// Another member leads: nothing is sent or written any more.
    pub(super) async fn leads_no_more(self, why: String) -> Result<Ended, RunError> {
        tracing::warn!(why, "this member leads no more, and stands by");
        self.server.stop().await;
        self.actors.stop().await;
        self.records.close_silently().await;
        auditing::record(&self.records.audit, Entry::Stopped).await;
        Ok(Ended::LeadsNoMore(self.files))
    }

    /// Ends its work in order, for another member to lead.
    pub(super) async fn hand_over(self, next: String) -> Result<Ended, RunError> {
        tracing::info!(next, "this member hands over, and stands by");
        self.server.stop().await;
        self.actors.stop().await;
        if let Err(error) = self.journal.flush().await {
            tracing::warn!(%error, "the last records of the journal may be lost");
        }
        self.records.close().await;
        if let Some(shared) = &self.shared {
            shared.give_up(Some(next)).await;
        }
        auditing::record(&self.records.audit, Entry::Stopped).await;
        Ok(Ended::LeadsNoMore(self.files))
    }

    /// Without a journal drover must not start anything, and could not resume it.
    pub(super) async fn journal_failed(
        self,
        fault: Option<JournalFault>,
    ) -> Result<Ended, RunError> {
        if self.shared.is_some() && matches!(fault, Some(JournalFault::Fenced)) {
            return self
                .leads_no_more("another member has written to the journal".to_owned())
                .await;
        }
        self.server.stop().await;
        self.actors.stop().await;
        self.records.close().await;
        let text = fault.map_or_else(|| "its writer panicked".to_owned(), |why| why.to_string());
        Err(RunError::Unjournalled(text))
    }

    pub(super) async fn actors_failed(self, given_up: Option<GivenUp>) -> Result<Ended, RunError> {
        self.server.stop().await;
        self.actors.stop().await;
        if let Err(error) = self.journal.flush().await {
            tracing::warn!(%error, "the last records of the journal may be lost");
        }
        self.records.close().await;
        let text = given_up.map_or_else(
            || "their thread ended".to_owned(),
            |what| format!("{} panicked {} times: {}", what.name, what.restarts, what.panic),
        );
        Err(RunError::GaveUp(text))
    }
}
