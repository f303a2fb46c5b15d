//! What signals ask of the service, and why a configuration was read.

use drover_actors::message::HerdCommand;
use drover_audit::Cause;
use drover_config::watch::Trigger;
use drover_runtime::reply::Reply;

use super::Service;

impl Service {
    /// What made drover read its files, of which the reading answers the requests up to this number.
    pub(super) fn cause_of(&self, answers: u64) -> Cause {
        if self.reloading.is_some_and(|number| number <= answers) {
            return Cause::Signal;
        }
        let is_asked_for = self.reload_replies.iter().any(|(number, _)| *number <= answers);
        if is_asked_for { Cause::Request } else { Cause::Files }
    }

    /// Starts a reload. The service manager is notified once for all reloads before the outcome:
    /// its socket holds few messages.
    pub(super) fn reload(&mut self, trigger: &Trigger) -> u64 {
        let number = trigger.pull();
        if self.reloading.replace(number).is_none() {
            self.notifier.reloading();
        }
        number
    }

    pub(super) fn reap(&self) {
        let (reply, outcome) = Reply::channel();
        self.actors.commands.do_send(HerdCommand::Reap { all: false, reply });
        tokio::spawn(async move {
            if let Ok(count) = outcome.await {
                tracing::info!(count, "reaped");
            }
        });
    }

    pub(super) fn resync(&self) {
        let (reply, done) = Reply::channel();
        self.actors.commands.do_send(HerdCommand::Resync { reply });
        tokio::spawn(async move {
            if let Ok(outcomes) = done.await {
                let unread = outcomes.values().filter(|outcome| outcome.is_err()).count();
                tracing::info!(clusters = outcomes.len(), unread, "resynced");
            }
        });
    }
}
