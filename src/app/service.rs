//! The service: its start, and its loop of signals and reloads. Its ends are in `service/ends.rs`, what
//! signals ask of it in `service/asked.rs`.

mod asked;
mod ends;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use causes::chain;
use drover_actors::herd::{HerdStart, Tried};
use drover_actors::message::ApplySpec;
use drover_audit::{Audit, Cause, Entry};
use drover_ci::{CiSystems, Hooks};
use drover_config::calendar::Almanac;
use drover_config::watch::{Change, Outcome, Trigger, Watch};
use drover_config::{Checked, Environment};
use drover_hypervisor::CallInKey;
use drover_hypervisor::download::Downloads;
use drover_hypervisor::{GatedDialer, HttpWeb, Proxmox, TASK_POLL_INTERVAL};
use drover_journal::{Opened, Writer};
use drover_model::ambient::mint_installation;
use drover_model::fact::{Fact, What};
use drover_model::id::{Generation, Installation};
use drover_model::ports::{Ambient, Journal, JournalFault, Observer, Ports};
use drover_model::record::Body;
use drover_model::spec::HerdSpec;
use drover_runtime::reply::Reply;
use drover_server::view::View;
use drover_server::{Bound, Limits, Listen, Running};
use drover_shell::SshShell;
use drover_shell::kept_keys::{KeptKeys, KeyTrackingJournal};
use drover_shell::user_data::UserDataStore;
use proxmox_client::GatedWireDialer;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actors_thread::ActorsThread;
use super::auditing;
use super::black_box::{BlackBoxes, keep_of};
use super::config_sync::{self, ConfigSync};
use super::connections::Connections;
use super::ground::Ground;
use super::history::History;
use super::layout::{self, Layout};
use super::lead::Lead;
use super::membership::Membership;
use super::observer::ServiceObserver;
use super::past_events::PastEvents;
use super::shard_config::StoreTrouble;
use super::signals::{SignalAction, Signals};
use super::spans::Spans;
use super::standby::Begin;
use super::start_settings::StartSettings;
use super::{RunError, Settings, doors, notices, state_dir, twin, wiring};
use crate::systemd::{self, Notifier};
use crate::telemetry::LevelHandle;

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
    hooks: Arc<Hooks>,
    systems: Arc<CiSystems>,
    shell: Arc<SshShell>,
    former: Arc<KeptKeys>,
    view: Arc<View>,
    past_events: PastEvents,
    audit: Audit,
    black_boxes: Arc<BlackBoxes>,
    history: Arc<History>,
    messages: Arc<drover_notify::Notifier>,
    spans: Arc<Spans>,
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
        service.view.mark_clouds_tried();
        service.history.settled();
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
                    service.audit.note(auditing::signal(action));
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

    async fn start(
        Begins { settings, state, ambient, ground, bound, stored, audit }: Begins<'_>,
        mut checked: Checked,
        (level, environment): (LevelHandle, Environment),
        reloads: mpsc::UnboundedSender<ReloadReply>,
        lead: &Lead,
    ) -> Result<Self, RunError> {
        let layout = layout::read(&state)?;
        let Opened { writer: journal, journal_state, ended: journal_ended } =
            ground.open_journal(&state, &ambient, layout.as_ref())?;
        let files = Box::new(checked.clone());
        // A service whose API cannot be served must not start anything on a cluster.
        let auth = wiring::auth(&checked.service);
        let bound = match bound {
            Some(bound) => bound,
            None => drover_server::bind(listen(settings, &checked), &auth)?,
        };
        let epoch = journal_state.epoch + 1;
        let installation = journal_state
            .installation
            .clone()
            .unwrap_or_else(|| mint_installation(|| ambient.draw()));
        if ground.shared.is_none() {
            twin::hold(&installation, &state, listened(settings, &checked))?;
        }
        if let Some(last) = layout.as_ref().and_then(Layout::other) {
            let version = env!("CARGO_PKG_VERSION");
            tracing::info!(
                last,
                version,
                "another version of drover used this state directory last"
            );
        }
        // Before this version writes a record that the other one may not read.
        layout::write(&state, layout.as_ref())?;
        let takeover = Body::Takeover { installation: installation.clone() };
        let started = journal.append(vec![takeover]).await;
        started.map_err(RunError::Takeover)?;
        let audit = audit.open(&state, &checked.service)?;
        state_dir::write_heartbeat(&state);

        let runtime = Handle::current();
        let gate = ground.gate();
        let Ground { vault, place, machine, down, shared, .. } = ground;
        let beside = |source| RunError::Beside { place: place.clone(), source };
        let key = Arc::new(CallInKey::open(&*vault).map_err(beside)?);
        let downloads = Downloads::open(Arc::new(HttpWeb), state.join(state_dir::DOWNLOADS))
            .map_err(|source| RunError::State { path: state.clone(), source })?;
        let dialer = Arc::new(GatedDialer::new(GatedWireDialer::new(gate.ask()), gate.clone()));
        let proxmox = Proxmox::new(Some(runtime.clone()), dialer, TASK_POLL_INTERVAL);
        let proxmox = Arc::new(proxmox.with_call_ins(Arc::clone(&key)).with_downloads(downloads));
        let user_data = UserDataStore::open(Arc::clone(&vault), &journal_state).map_err(beside)?;
        let user_data = Arc::new(user_data);
        let (former, keys) = KeptKeys::open(Arc::clone(&vault), &journal_state).map_err(beside)?;
        let former = Arc::new(former);
        let shell = SshShell::new(runtime.clone()).with_gate(gate.clone());
        let shell = shell.with_user_data(Arc::clone(&user_data));
        shell.add_kept_keys(keys);
        let shell = Arc::new(shell);
        let systems = CiSystems::new(Arc::clone(&shell), runtime.clone());
        let systems = Arc::new(systems.with_vault(Arc::clone(&vault), machine.id.clone()));
        let hinted = Arc::clone(&systems);
        let hooks = Arc::new(Hooks::with_hint(move |source, body| hinted.hint(source, body)));
        hooks.replace(wiring::hook_secrets(&checked));
        let view = View::new(epoch);
        view.mark_started(ambient.now().wall);
        if systemd::is_manager() {
            view.mark_restarted_by("systemctl restart drover");
        }
        if shared.is_some() {
            view.mark_shared();
        }
        if let Some(stored) = stored {
            let check = format!("drover check --config {}", settings.config.display());
            view.mark_stored_config(check, Box::new(move || stored.now()));
        }
        let past_events = PastEvents::attach(&state, &view);
        // The log outlives this term, and with it the view.
        let audit_view = Arc::downgrade(&view);
        audit.watch(move |trouble| {
            if let Some(view) = audit_view.upgrade() {
                view.mark_audit(trouble.cloned());
            }
        });
        audit.note(auditing::started(shared.as_deref().map(Membership::name)));
        audit.note(auditing::applied(Cause::Start, &checked, 1));
        view.mark_journal_folded();
        let history = History::start(&state, &checked.service, Arc::clone(&ambient));
        wiring::measure(&proxmox, &journal, &view, &history);
        let instance = instance(&installation, shared.as_deref());
        let traces = checked.service.traces.clone();
        let spans = Spans::start(traces, instance, &view, Arc::clone(&ambient));
        let (started, digest) = (ambient.now().wall, auditing::digest(&checked));
        history.configured(started, 1, digest, checked.herd.asked.priority);
        checked.follow(&HerdSpec::default(), Generation(1));
        let connections =
            Arc::new(Connections::new(Arc::clone(&proxmox), Arc::clone(&systems), gate));
        connections.connect(&checked, &HerdSpec::default());
        wiring::set_keys(&shell, &former, &checked.keys);
        shell.set_files(checked.uploads.iter());
        let black_boxes = BlackBoxes::start(
            &state,
            keep_of(&checked.service),
            &proxmox,
            Arc::clone(&ambient) as _,
        );
        let listener = ServiceObserver::new(
            Arc::clone(&view),
            Arc::clone(&connections),
            Arc::clone(&user_data),
            (Arc::clone(&black_boxes), Arc::clone(&history), Arc::clone(&spans)),
            runtime,
        );
        let observer: Arc<dyn Observer> = Arc::new(listener);
        let ports = Ports {
            hypervisor: Arc::clone(&proxmox) as _,
            shell: Arc::clone(&shell) as _,
            demand: Arc::clone(&systems) as _,
            journal: Arc::new(KeyTrackingJournal::new(
                Arc::clone(&journal) as _,
                Arc::clone(&former),
                Handle::current(),
            )),
            observer: Arc::clone(&observer),
            ambient: Arc::clone(&ambient),
            calendar: Arc::new(Almanac),
        };
        let spec = Arc::new(checked.herd.clone());
        let actors = ActorsThread::start(
            move |escalate| HerdStart {
                ports,
                journal_state,
                spec,
                installation,
                epoch,
                down,
                machine: Some(machine),
                give_up: Arc::clone(&escalate),
                spawner: drover_actors::agent::spawner(escalate),
            },
            Arc::clone(&ambient),
        )
        .await?;
        wiring::wake_on_news(&systems, &actors.commands);
        let config_sync = ConfigSync::start(
            config_sync::Tools {
                config: settings.config.clone(),
                environment: environment.clone(),
                state: state.clone(),
                audit: audit.clone(),
                view: Arc::clone(&view),
                observer: Arc::clone(&observer),
                ambient: Arc::clone(&ambient),
                reloads: reloads.clone(),
                herd: actors.commands.clone(),
            },
            config_sync::Configured::of(&checked, &environment),
        );
        let channels = &checked.service.notify;
        let messages = notices::start(channels, &view, vault, &ambient, lead.send_by());
        let handles = doors::doors(
            &actors,
            (&view, &config_sync, &audit, (&black_boxes, &history), &messages),
            &settings.config,
            lead,
            (&ambient, &key, &hooks, &user_data, &shell),
            &level,
            reloads,
        );
        let start_settings = StartSettings::of(&checked.service);
        let server = bound.serve(handles, auth, Limits::default())?;
        if let Some(shared) = &shared {
            shared.put_in_force(shared.digest(&files.agreed_text()));
        }
        for addr in &server.addrs {
            tracing::info!(%addr, "API served");
        }
        Ok(Self {
            strict: settings.strict,
            shared,
            waiting: None,
            refused: None,
            files,
            state,
            spec: checked.herd,
            log_level: checked.service.log_level,
            level,
            on_stop: checked.service.on_stop,
            stop_timeout: checked.service.stop_timeout,
            connections,
            shell,
            former,
            hooks,
            systems,
            view,
            past_events,
            audit,
            black_boxes,
            history,
            messages,
            spans,
            config_sync,
            environment,
            observer,
            ambient,
            journal,
            journal_ended,
            actors,
            server,
            notifier: Notifier,
            reload_replies: Vec::new(),
            resync_due: None,
            reloading: None,
            start_settings,
        })
    }

    fn status(&self, tried: &Tried) -> String {
        let well = tried.values().filter(|outcome| outcome.is_ok()).count();
        let agents = self.view.agents().len();
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

    /// Applies a valid configuration everywhere, or reports the faults of an invalid one.
    fn config_changed(&mut self, outcome: Outcome) {
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
                self.audit.note(Entry::ConfigurationRefused { cause, generation });
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
            Ok(_) if !self.view.restart_due().is_empty() => {
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
    fn members_changed(&mut self) {
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
        auditing::configure(&self.audit, &checked.service);
        self.black_boxes.configure(keep_of(&checked.service));
        self.history.configure(&checked.service);
        self.spans.configure(checked.service.traces.clone());
        let (at, digest) = (self.ambient.now().wall, auditing::digest(&checked));
        self.history.configured(at, generation.0, digest, checked.herd.asked.priority);
        self.messages.configure(&checked.service.notify);
        self.audit.note(auditing::applied(cause, &checked, generation.0));
        checked.follow(&self.spec, generation);
        self.connections.connect(&checked, &self.spec);
        self.hooks.replace(wiring::hook_secrets(&checked));
        wiring::set_keys(&self.shell, &self.former, &checked.keys);
        self.shell.set_files(checked.uploads.iter());
        self.server.replace_auth(wiring::auth(&checked.service));
        self.on_stop = checked.service.on_stop;
        self.stop_timeout = checked.service.stop_timeout;
        let start_settings = StartSettings::of(&checked.service);
        let due = self.start_settings.differing(&start_settings);
        if !due.is_empty() {
            let keys = due.join(", ");
            tracing::warn!(keys, "part of the configuration takes effect at the next start");
        }
        self.view.mark_restart_due(due);
        self.config_sync.configure(config_sync::Configured::of(&checked, &self.environment));
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

/// The name of this drover among others that send traces.
fn instance(installation: &Installation, shared: Option<&Membership>) -> String {
    match shared {
        Some(member) => format!("{installation}/{}", member.name()),
        None => installation.to_string(),
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
