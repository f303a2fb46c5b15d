//! The service and its loop. Its start is in `service/opening.rs`, its ends in `service/ends.rs`, what
//! signals ask of it in `service/asked.rs`, and how a configuration comes into force in
//! `service/reloads.rs`.

mod asked;
mod ends;
mod opening;
mod records;
mod reloads;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use drover_actors::herd::Tried;
use drover_config::watch::{Outcome, Trigger, Watch};
use drover_config::{Checked, Environment};
use drover_journal::Writer;
use drover_model::ports::{Ambient, JournalFault, Observer};
use drover_model::spec::HerdSpec;
use drover_runtime::reply::Reply;
use drover_server::{Bound, Listen, Running};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actors_thread::ActorsThread;
use super::auditing;
use super::config_sync::ConfigSync;
use super::connections::Connections;
use super::ground::Ground;
use super::lead::Lead;
use super::membership::Membership;
use super::shard_config::StoreTrouble;
use super::signals::{SignalAction, Signals};
use super::standby::Begin;
use super::start_settings::StartSettings;
use super::{RunError, Settings, state_dir};
use crate::systemd::{self, Notifier};
use crate::telemetry::LevelHandle;

pub(super) use records::Records;
pub(super) use tools::Tools;

/// How often the heartbeat file is written.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

pub(super) type ReloadReply = Reply<Result<u64, String>>;

pub(super) struct Service {
    strict: bool,
    /// This process among the members of a store; none where it stands alone.
    shared: Option<Arc<Membership>>,
    /// The configuration in force, as its files have it.
    files: Box<Checked>,
    /// A configuration that comes into force when every live member has it, and why not yet.
    waiting: Option<(Box<Checked>, String)>,
    /// The faults of the newest files, where these are refused.
    refused: Option<String>,
    state: PathBuf,
    spec: HerdSpec,
    log_level: String,
    level: LevelHandle,
    on_stop: drover_model::stop::StopPolicy,
    stop_timeout: Duration,
    connections: Arc<Connections>,
    tools: Tools,
    records: Records,
    messages: Arc<drover_notify::Notifier>,
    config_sync: ConfigSync,
    environment: Environment,
    observer: Arc<dyn Observer>,
    ambient: Arc<dyn Ambient>,
    journal: Arc<Writer>,
    /// Resolves when the journal's writer has failed.
    journal_ended: oneshot::Receiver<JournalFault>,
    actors: ActorsThread,
    server: Running,
    notifier: Notifier,
    /// The open requests for a reload, with their numbers.
    reload_replies: Vec<(u64, ReloadReply)>,
    /// The number of the reload after which a requested resync starts.
    resync_due: Option<u64>,
    /// The number of the last reload by a signal, until its outcome.
    reloading: Option<u64>,
    start_settings: StartSettings,
}

/// How a term of the service ended.
pub(super) enum Ended {
    Stopped,
    /// Another member leads, or is to lead; with the last configuration that was in force.
    LeadsNoMore(Box<Checked>),
}

/// What a service begins with.
pub(super) struct Begins<'a> {
    pub(super) settings: &'a Settings,
    pub(super) state: PathBuf,
    pub(super) ambient: Arc<dyn Ambient>,
    pub(super) ground: Ground,
    /// The sockets of the API, where this process has them already.
    pub(super) bound: Option<Bound>,
    /// What is wrong with the configuration in the store, where it lies there.
    pub(super) stored: Option<StoreTrouble>,
    pub(super) audit: &'a mut auditing::Slot,
}

/// Watches the configuration in its own task, so that signals and requests do not interrupt the
/// reading of files.
pub(super) fn changes_of(mut watch: Watch) -> (mpsc::Receiver<Outcome>, JoinHandle<()>) {
    let (sender, changes) = mpsc::channel(1);
    let watching =
        tokio::spawn(async move { while sender.send(watch.next().await).await.is_ok() {} });
    (changes, watching)
}

impl Service {
    /// Starts the service, runs it until a signal stops it or it leads no more, and stops it.
    ///
    /// # Errors
    /// See [`RunError`].
    pub(super) async fn serve(
        begins: Begins<'_>,
        begin: Begin,
        (level, environment): (LevelHandle, Environment),
        (trigger, changes): (&Trigger, &mut mpsc::Receiver<Outcome>),
        signals: &mut Signals,
    ) -> Result<Ended, RunError> {
        let (reloads, mut reload_requests) = mpsc::unbounded_channel();
        let mut lead = Lead::of(&begins.ground);
        let is_member = begins.ground.shared.is_some();
        let Begin { checked, changes: known } = begin;
        let files = checked.clone();
        let started = Self::start(begins, *checked, (level, environment), reloads, &lead);
        let mut service = match started.await {
            // The leader before wrote while this one read: the next try reads that too.
            Err(RunError::Takeover(JournalFault::Fenced)) if is_member => {
                return Ok(Ended::LeadsNoMore(files));
            }
            // The store did not answer in time, so that nothing could be written beside the journal.
            Err(RunError::Beside { place, source }) if lead.is_cut_off() => {
                tracing::warn!(place, error = chain(&source), "term ends before it served");
                return Ok(Ended::LeadsNoMore(files));
            }
            started => started?,
        };
        let tried = tokio::select! {
            tried = &mut service.actors.tried => tried.ok(),
            () = signals.terminated() => None,
            why = lead.lost.wait() => return service.leads_no_more(why).await,
            given_up = service.actors.given_up.recv() => return service.actors_failed(given_up).await,
            fault = &mut service.journal_ended => return service.journal_failed(fault.ok()).await,
        };
        let Some(tried) = tried else { return service.stop(signals).await };
        service.records.view.mark_clouds_tried();
        service.records.history.settled(service.spec.sources.keys().cloned().collect());
        if let Some(refused) = service.strict_refusal(&tried) {
            service.server.stop().await;
            service.actors.stop().await;
            return Err(refused);
        }
        service.notifier.ready(&service.status(&tried));
        for change in known {
            service.config_changed(Outcome { change, answers: 0 });
        }
        let watchdog = tokio::spawn(systemd::feed_watchdog(Arc::clone(&service.actors.alive)));
        let mut heartbeat = tokio::time::interval(HEARTBEAT_INTERVAL);
        let outcome = loop {
            tokio::select! {
                Some(change) = changes.recv() => service.config_changed(change),
                Some(reply) = reload_requests.recv() => {
                    service.reload_replies.push((trigger.pull(), reply));
                }
                _ = heartbeat.tick() => {
                    state_dir::write_heartbeat(&service.state);
                    service.journal.check(service.ambient.now());
                }
                () = lead.news.wait() => service.members_changed(),
                why = lead.lost.wait() => break service.leads_no_more(why).await,
                Some(next) = lead.handed_over.recv() => break service.hand_over(next).await,
                action = signals.next() => {
                    service.records.audit.note(auditing::signal(action));
                    match action {
                        SignalAction::Reload => drop(service.reload(trigger)),
                        SignalAction::Reap => service.reap(),
                        SignalAction::Resync => service.resync_due = Some(service.reload(trigger)),
                        SignalAction::Stop => break service.stop(signals).await,
                    }
                }
                given_up = service.actors.given_up.recv() => {
                    break service.actors_failed(given_up).await;
                }
                fault = &mut service.journal_ended => break service.journal_failed(fault.ok()).await,
            }
        };
        watchdog.abort();
        outcome
    }

    fn status(&self, tried: &Tried) -> String {
        let well = tried.values().filter(|outcome| outcome.is_ok()).count();
        let agents = self.records.view.agents().len();
        format!("clouds: {well} of {} well, agents: {agents}", tried.len())
    }

    fn strict_refusal(&self, tried: &Tried) -> Option<RunError> {
        let lines: Vec<String> = tried
            .iter()
            .filter_map(|(cloud, outcome)| {
                outcome.as_ref().err().map(|why| format!("  {cloud}: {why}"))
            })
            .collect();
        (self.strict && !lines.is_empty()).then(|| RunError::Strict(lines.join("\n")))
    }
}

/// The path of the API's Unix socket.
pub(super) fn listened<'a>(settings: &'a Settings, checked: &'a Checked) -> &'a Path {
    settings.socket.as_deref().unwrap_or(&checked.service.socket)
}

pub(super) fn listen(settings: &Settings, checked: &Checked) -> Vec<Listen> {
    let path = listened(settings, checked).to_owned();
    let unix = Listen::Unix { path, mode: checked.service.socket_mode };
    let tcp = checked.service.listen.map(Listen::Tcp);
    [unix].into_iter().chain(tcp).collect()
}
