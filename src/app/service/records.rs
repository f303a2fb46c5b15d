//! What the service has seen: for people who look, and for those who ask later.

use std::path::Path;
use std::sync::Arc;

use drover_audit::{Audit, Cause};
use drover_config::{Checked, ServiceSpec};
use drover_model::id::{Generation, Installation};
use drover_model::ports::Ambient;
use drover_server::view::View;

use super::super::auditing;
use super::super::black_box::{BlackBoxes, keep_of};
use super::super::history::History;
use super::super::membership::Membership;
use super::super::past_events::PastEvents;
use super::super::shard_config::StoreTrouble;
use super::super::spans::Spans;
use super::tools::Tools;
use crate::systemd;

/// What the service has seen.
pub(in crate::app) struct Records {
    pub(in crate::app) view: Arc<View>,
    pub(in crate::app) past_events: PastEvents,
    pub(in crate::app) audit: Audit,
    pub(in crate::app) black_boxes: Arc<BlackBoxes>,
    pub(in crate::app) history: Arc<History>,
    pub(in crate::app) spans: Arc<Spans>,
}

impl Records {
    /// Begins the records of a term: what was kept is read, and `view` shows what `audit` meets.
    pub(super) fn begin(
        state: &Path,
        (view, audit): (Arc<View>, Audit),
        tools: &Tools,
        service: &ServiceSpec,
        instance: String,
        ambient: &Arc<dyn Ambient>,
    ) -> Self {
        let past_events = PastEvents::attach(state, &view);
        view.mark_journal_folded();
        // The log outlives this term, and with it the view.
        let audit_view = Arc::downgrade(&view);
        audit.watch(move |trouble| {
            if let Some(view) = audit_view.upgrade() {
                view.mark_audit(trouble.cloned());
            }
        });
        let history = History::start(state, service, Arc::clone(ambient));
        let spans = Spans::start(service.traces.clone(), instance, &view, Arc::clone(ambient));
        let keep = keep_of(service);
        let black_boxes = BlackBoxes::start(state, keep, &tools.proxmox, Arc::clone(ambient) as _);
        Self { view, past_events, audit, black_boxes, history, spans }
    }

    /// Has them follow the settings of a configuration that is in force from now on.
    pub(super) fn configure(&self, service: &ServiceSpec) {
        auditing::configure(&self.audit, service);
        self.black_boxes.configure(keep_of(service));
        self.history.configure(service);
        self.spans.configure(service.traces.clone());
    }

    /// Notes that a configuration comes into force, and why.
    pub(super) fn configured(
        &self,
        cause: Cause,
        checked: &Checked,
        generation: Generation,
        ambient: &dyn Ambient,
    ) {
        let (at, digest) = (ambient.now().wall, auditing::digest(checked));
        self.history.configured(at, generation.0, digest, checked.herd.asked.priority);
        self.audit.note(auditing::applied(cause, checked, generation.0));
    }

    /// Writes what is to be kept of a term that ends, and sends what waits for others.
    pub(super) async fn close(&self) {
        tokio::join!(self.keep(), self.spans.stop());
    }

    /// Writes what is to be kept where another member leads: nothing is sent any more.
    pub(super) async fn close_silently(&self) {
        tokio::join!(self.keep(), self.spans.drop_all());
    }

    async fn keep(&self) {
        self.past_events.flush().await;
        self.black_boxes.flush().await;
        self.history.stop().await;
    }
}

/// What people see of a term from its first moment.
pub(super) fn view_of(
    epoch: u64,
    ambient: &dyn Ambient,
    is_shared: bool,
    stored: Option<(String, StoreTrouble)>,
) -> Arc<View> {
    let view = View::new(epoch);
    view.mark_started(ambient.now().wall);
    if systemd::is_manager() {
        view.mark_restarted_by("systemctl restart drover");
    }
    if is_shared {
        view.mark_shared();
    }
    if let Some((check, stored)) = stored {
        view.mark_stored_config(check, Box::new(move || stored.now()));
    }
    view
}

/// The name of this drover among others that send traces.
pub(super) fn instance(installation: &Installation, shared: Option<&Membership>) -> String {
    match shared {
        Some(member) => format!("{installation}/{}", member.name()),
        None => installation.to_string(),
    }
}
