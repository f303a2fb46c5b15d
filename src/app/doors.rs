//! The ways from the API into the service.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_members::SendBy;
use drover_model::ambient::mint_lease;
use drover_model::ports::Ambient;
use drover_notify::Notifier;
use drover_runtime::reply::Reply;
use drover_server::{Doors, NotReloaded, SessionKey};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::actors_thread::ActorsThread;
use super::config_sync::ConfigSync;
use super::lead::Lead;
use super::service::{Records, ReloadReply, Tools};
use super::{members, notices};
use crate::pages;
use crate::telemetry::LevelHandle;

/// After this time, a request for a reload is answered without its outcome.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a guest may take until somebody sits at a terminal in it.
const TERMINAL_LIMIT: Duration = Duration::from_secs(20);

/// What lies behind the API.
pub(super) struct Behind<'a> {
    pub(super) actors: &'a ActorsThread,
    pub(super) records: &'a Records,
    pub(super) tools: &'a Tools,
    pub(super) config_sync: &'a ConfigSync,
    pub(super) messages: &'a Arc<Notifier>,
    pub(super) ambient: &'a Arc<dyn Ambient>,
}

/// Makes the ways from the API into the service.
pub(super) fn doors(
    Behind { actors, records, tools, config_sync, messages, ambient }: &Behind<'_>,
    configuration: &Path,
    lead: &Lead,
    level: &LevelHandle,
    reloads: mpsc::UnboundedSender<ReloadReply>,
) -> Doors {
    let (level, ambient, key) = (level.clone(), Arc::clone(ambient), Arc::clone(&tools.key));
    let (sync, test_sync) = (ConfigSync::clone(config_sync), ConfigSync::clone(config_sync));
    let (plan, values) = (ConfigSync::clone(config_sync), ConfigSync::clone(config_sync));
    let membership = lead.membership().cloned();
    let black_boxes = Arc::clone(&records.black_boxes);
    let shell = Arc::clone(&tools.shell);
    let send_by = lead.send_by();
    let transfer = lead.transfer();
    // Members have one key, also those that stand by.
    let session_key = membership.as_ref().map_or_else(
        || SessionKey::new(key.derived("page sessions 1")),
        |one| SessionKey::of_members(one.key()),
    );
    Doors {
        audit: records.audit.clone(),
        black_box: Arc::new(move |agent| black_boxes.read(agent)),
        terminal: Arc::new(move |target, size| shell.terminal(target, size, TERMINAL_LIMIT)),
        history: records.history.door(),
        test_notify: notices::door(messages),
        herd: actors.commands.clone(),
        leads: Arc::new(move || send_by.as_ref().is_none_or(SendBy::is_open)),
        session_key,
        book: pages::book(),
        key: membership.as_ref().map(|one| one.key().clone()),
        members: Arc::new(move || membership.as_ref().map(|one| members::listed(one))),
        transfer: Arc::new(move |next| std::future::ready(transfer(next)).boxed()),
        forget_member: lead.forget(),
        view: Arc::clone(&records.view),
        configuration: std::path::absolute(configuration)
            .unwrap_or_else(|_| configuration.to_owned()),
        reload: Arc::new(move || {
            let (reply, outcome) = Reply::channel();
            let sent = reloads.send(reply);
            async move {
                let stopping = || NotReloaded::Unknown("the service is stopping".to_owned());
                sent.map_err(|_| stopping())?;
                match tokio::time::timeout(RELOAD_TIMEOUT, outcome).await {
                    Ok(outcome) => outcome.map_err(|_| stopping())?.map_err(NotReloaded::Refused),
                    Err(_) => {
                        let text = "the reload did not end within 30 s: see drover status";
                        Err(NotReloaded::Unknown(text.to_owned()))
                    }
                }
            }
            .boxed()
        }),
        sync: Arc::new(move |asked| sync.clone().sync(asked).boxed()),
        test_sync: Arc::new(move || test_sync.clone().test().boxed()),
        values: Arc::new(move || values.values()),
        plan: Arc::new(move |asked| plan.clone().plan(asked).boxed()),
        log_level: Arc::new(move |given| level.set(given).map_err(|error| error.to_string())),
        alive: Arc::clone(&actors.alive),
        call_in: Arc::new(move |token| key.agent(token)),
        hooks: Arc::clone(&tools.hooks),
        user_data: Arc::clone(&tools.user_data),
        mint_lease: Arc::new(move || mint_lease(|| ambient.draw())),
    }
}
