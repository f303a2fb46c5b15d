//! Notifications of this service: what they are about, who sends them, and where what was sent is kept.

use std::sync::Arc;

use drover_members::SendBy;
use drover_model::ports::Ambient;
use drover_notify::{Network, Notifier, Ports, Settings};
use drover_server::NotifyDoor;
use drover_server::view::View;
use drover_vault::Vault;
use tokio::runtime::Handle;

use crate::host::host_name;

/// Starts the notifications of a term. They end with it.
pub(super) fn start(
    settings: &Settings,
    view: &Arc<View>,
    vault: Arc<dyn Vault>,
    ambient: &Arc<dyn Ambient>,
    send_by: Option<SendBy>,
) -> Arc<Notifier> {
    let (seen, shown, ambient) = (Arc::clone(view), Arc::clone(view), Arc::clone(ambient));
    let name = host_name();
    let ports = Ports {
        standing: Arc::new(move || drover_server::troubles(&seen)),
        now: Arc::new(move || ambient.now().wall),
        leads: Arc::new(move || send_by.as_ref().is_none_or(SendBy::is_open)),
        report: Arc::new(move |troubles| shown.mark_channels(troubles)),
        vault,
        carrier: Arc::new(Network),
        from: if name.is_empty() { "drover".to_owned() } else { name },
        runtime: Handle::current(),
    };
    Arc::new(Notifier::start(ports, settings))
}

/// The way from the API to tests of channels.
pub(super) fn door(notifier: &Arc<Notifier>) -> NotifyDoor {
    let notifier = Arc::clone(notifier);
    Arc::new(move |channel| {
        let notifier = Arc::clone(&notifier);
        Box::pin(async move { notifier.test(channel.as_deref()).await })
    })
}
