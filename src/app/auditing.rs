//! The audit log of this process, over all its terms.

use std::path::Path;
use std::time::Duration;

use drover_audit::{Audit, Cause, Entry, OnFailure, Options};
use drover_config::{AuditSpec, Checked, ServiceSpec};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use super::RunError;
use super::signals::SignalAction;

/// How long the end of a term waits for its last record.
const RECORD_LIMIT: Duration = Duration::from_secs(2);

/// The audit log, once a term has the state directory for itself.
#[derive(Default)]
pub(super) struct Slot(Option<Audit>);

impl Slot {
    /// Opens the log, or gives the one that is open, with the options of this configuration.
    ///
    /// # Errors
    /// [`RunError::System`].
    pub(super) fn open(&mut self, state: &Path, spec: &ServiceSpec) -> Result<Audit, RunError> {
        if let Some(audit) = &self.0 {
            configure(audit, spec);
            return Ok(audit.clone());
        }
        let audit = Audit::open(state, options(spec)).map_err(|source| RunError::System {
            doing: "cannot start the thread of the audit log",
            source,
        })?;
        Ok(self.0.insert(audit).clone())
    }
}

fn options(spec: &ServiceSpec) -> Options {
    let AuditSpec { refuses, keep_bytes } = spec.audit;
    let on_failure = if refuses { OnFailure::Refuse } else { OnFailure::GoOn };
    Options { on_failure, keep_bytes }
}

/// Takes the options of a configuration that comes into force.
pub(super) fn configure(audit: &Audit, spec: &ServiceSpec) {
    audit.configure(options(spec));
}

/// The SHA-256 of a configuration, as digits.
pub(super) fn digest(checked: &Checked) -> String {
    let digest = Sha256::digest(checked.agreed_text());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A configuration came into force.
pub(super) fn applied(cause: Cause, checked: &Checked, generation: u64) -> Entry {
    let digest = digest(checked);
    Entry::ConfigurationApplied { cause, digest, generation }
}

/// This process began to serve, as this member where there are several.
pub(super) fn started(member: Option<&str>) -> Entry {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Entry::Started { version, member: member.map(str::to_owned) }
}

/// A signal came.
pub(super) fn signal(action: SignalAction) -> Entry {
    let name = match action {
        SignalAction::Reload => "SIGHUP",
        SignalAction::Reap => "SIGUSR1",
        SignalAction::Resync => "SIGUSR2",
        SignalAction::Stop => "SIGTERM or SIGINT",
    };
    Entry::Signal { name: name.to_owned() }
}

/// Records an entry, and waits until it is on the disk or the disk takes too long.
pub(super) async fn record(audit: &Audit, entry: Entry) {
    let (done, recorded) = oneshot::channel();
    audit.record(entry, move |written| {
        // Who waited may have given up.
        let _ = done.send(written);
    });
    if tokio::time::timeout(RECORD_LIMIT, recorded).await.is_err() {
        tracing::warn!("the last record of the audit log may be missing");
    }
}
