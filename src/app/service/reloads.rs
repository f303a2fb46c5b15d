//! How a configuration comes into force: read, agreed on with other members, applied.

use std::sync::Arc;

use causes::chain;
use drover_actors::message::ApplySpec;
use drover_audit::{Cause, Entry};
use drover_config::Checked;
use drover_config::watch::{Change, Outcome};
use drover_model::fact::{Fact, What};
use drover_model::id::Generation;

use super::super::config_sync::Configured;
use super::super::start_settings::StartSettings;
use super::super::wiring;
use super::Service;

impl Service {
    /// Applies a valid configuration everywhere, or reports the faults of an invalid one.
    pub(super) fn config_changed(&mut self, outcome: Outcome) {
        self.refused = match &outcome.change {
            Change::Reloaded(_) => None,
            Change::Refused(text) => Some(text.clone()),
        };
        if let Some(shared) = &self.shared {
            shared.refuses(self.refused.as_deref());
        }
        let cause = self.cause_of(outcome.answers);
        let result = match outcome.change {
            Change::Reloaded(checked) => self.agree_on(checked, cause),
            Change::Refused(text) => {
                let generation = self.spec.generation.0;
                self.records.audit.note(Entry::ConfigurationRefused { cause, generation });
                self.report_refused(text.clone());
                Err(text)
            }
        };
        // The next reading answers requests that arrived during this one.
        for (_, reply) in
            self.reload_replies.extract_if(.., |(number, _)| *number <= outcome.answers)
        {
            // The client can have disconnected.
            reply.send(result.clone());
        }
        if self.resync_due.is_some_and(|number| number <= outcome.answers) {
            self.resync_due = None;
            self.resync();
        }
        if self.reloading.is_some_and(|number| number > outcome.answers) {
            return;
        }
        self.reloading = None;
        self.notifier.ready(match result {
            Ok(_) if !self.records.view.restart_due().is_empty() => {
                "configuration reloaded; part of it needs a restart"
            }
            Ok(_) => "configuration reloaded",
            Err(_) => "configuration refused, the old one stays in force: see drover status",
        });
    }

    /// Applies a configuration at once, or once every live member of the store has it.
    fn agree_on(&mut self, checked: Box<Checked>, cause: Cause) -> Result<u64, String> {
        let Some(shared) = self.shared.clone() else { return Ok(self.apply(*checked, cause)) };
        let digest = shared.digest(&checked.agreed_text());
        let in_force = shared.digest(&self.files.agreed_text());
        shared.has(digest.clone(), vec![in_force]);
        let others = tokio::task::block_in_place(|| shared.others_without(&digest));
        if others.as_ref().is_ok_and(Vec::is_empty) {
            self.waiting = None;
            self.files.clone_from(&checked);
            let applied = self.apply(*checked, cause);
            shared.put_in_force(digest);
            return Ok(applied);
        }
        let why = match others {
            Ok(others) => format!("{} has another", others.join(", ")),
            Err(error) => format!("the members cannot be read: {}", chain(&error)),
        };
        let text = format!(
            "this configuration is valid and not in force: {why}. It comes into force when every \
             member has the same files"
        );
        if self.waiting.as_ref().is_none_or(|(_, before)| *before != text) {
            tracing::warn!("{text}");
            self.report_refused(text.clone());
        }
        self.waiting = Some((checked, text.clone()));
        Err(text)
    }

    /// The members changed: what waits for them may come into force.
    pub(super) fn members_changed(&mut self) {
        if let Some(shared) = &self.shared {
            shared.follow();
        }
        if let Some((checked, _)) = self.waiting.as_ref() {
            let checked = checked.clone();
            // Who asked for it was answered when it came. The newest files may have faults by now.
            if self.agree_on(checked, Cause::Members).is_ok()
                && let Some(text) = self.refused.clone()
            {
                self.report_refused(text);
            }
        }
    }

    /// Shows that newer files are not in force.
    fn report_refused(&self, text: String) {
        let what = What::ConfigRefused { text, after: self.spec.generation };
        self.observer.observe(Fact { at: self.ambient.now().wall, what });
    }

    fn apply(&mut self, mut checked: Checked, cause: Cause) -> u64 {
        let generation = Generation(self.spec.generation.0 + 1);
        self.records.configure(&checked.service);
        self.messages.configure(&checked.service.notify);
        self.records.configured(cause, &checked, generation, &*self.ambient);
        checked.follow(&self.spec, generation);
        self.connections.connect(&checked, &self.spec);
        self.tools.configure(&checked);
        self.server.replace_auth(wiring::auth(&checked.service));
        self.on_stop = checked.service.on_stop;
        self.stop_timeout = checked.service.stop_timeout;
        let start_settings = StartSettings::of(&checked.service);
        let due = self.start_settings.differing(&start_settings);
        if !due.is_empty() {
            let keys = due.join(", ");
            tracing::warn!(keys, "part of the configuration takes effect at the next start");
        }
        self.records.view.mark_restart_due(due);
        self.config_sync.configure(Configured::of(&checked, &self.environment));
        if checked.service.log_level != self.log_level {
            if let Err(error) = self.level.set(&checked.service.log_level) {
                tracing::warn!(%error, "cannot set the log level; the old one stays");
            }
            self.log_level = checked.service.log_level;
        }
        self.spec = checked.herd;
        self.actors.specs.do_send(ApplySpec(Arc::new(self.spec.clone())));
        generation.0
    }
}
