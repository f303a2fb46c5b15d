//! The service's own course: start, signals, reloads, stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_actors::herd::{HerdStart, Tried};
use drover_actors::message::{ApplySpec, HerdCommand};
use drover_ci::{CiSystems, Hooks};
use drover_config::calendar::Almanac;
use drover_config::watch::{Change, Told, Trigger, Watch};
use drover_config::{Checked, Environment};
use drover_hypervisor::CallInKey;
use drover_hypervisor::{Proxmox, TASK_POLL_INTERVAL};
use drover_journal::{Opened, RedbLog, Writer, WriterOptions};
use drover_model::ambient::{mint_installation, mint_lease};
use drover_model::fact::{Fact, What};
use drover_model::id::Generation;
use drover_model::ports::{Ambient, Journal, JournalFault, Observer, Ports};
use drover_model::record::Body;
use drover_model::spec::HerdSpec;
use drover_server::view::View;
use drover_server::{Doors, Limits, Listen, NotReloaded, Running};
use drover_shell::SshShell;
use drover_shell::kept_keys::{KeptKeys, KeyTrackingJournal};
use drover_shell::user_data::UserDataStore;
use futures_util::FutureExt;
use proxmox_client::WireDialer;
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::actors::Home;
use super::listener::Listener;
use super::parts::{self, Ways};
use super::{RunError, Settings, stop};
use crate::clock::SystemAmbient;
use crate::systemd::{self, Notifier};
use crate::telemetry::{self, LevelHandle};

/// How often the pulse file is touched.
const PULSE: Duration = Duration::from_secs(5);
/// How long a reload may take before the asker is told that it is not known.
const RELOAD_LIMIT: Duration = Duration::from_secs(30);

type ReloadReply = oneshot::Sender<Result<u64, String>>;

/// The joined service.
struct Service {
    settings: Settings,
    state: PathBuf,
    spec: HerdSpec,
    log_level: String,
    level: LevelHandle,
    on_stop: drover_model::stop::StopPolicy,
    stop_timeout: Duration,
    ways: Arc<Ways>,
    hooks: Arc<Hooks>,
    systems: Arc<CiSystems>,
    shell: Arc<SshShell>,
    former: Arc<KeptKeys>,
    view: Arc<View>,
    observer: Arc<dyn Observer>,
    ambient: Arc<dyn Ambient>,
    journal: Arc<Writer>,
    /// Tells that the journal will not be written any more.
    journal_ended: oneshot::Receiver<JournalFault>,
    home: Home,
    web: Running,
    notifier: Notifier,
    /// Who asked for a reload, with the number of the request.
    waiting: Vec<(u64, ReloadReply)>,
    /// A resync was asked for; it follows the reload of this number that it begins with.
    resync_due: Option<u64>,
    /// The last reload asked for by a signal, until it is answered.
    reloading: Option<u64>,
    fixed: Fixed,
    /// Something changed that only a restart brings into force.
    restart_due: bool,
}

/// What the service takes at its start only.
#[derive(PartialEq, Eq)]
struct Fixed {
    listen: Option<std::net::SocketAddr>,
    socket: PathBuf,
    mode: Option<u32>,
    state: PathBuf,
}

impl Fixed {
    fn of(spec: &drover_config::ServiceSpec) -> Self {
        Self {
            listen: spec.listen,
            socket: spec.socket.clone(),
            mode: spec.socket_mode,
            state: spec.state_directory.clone(),
        }
    }
}

/// Starts everything, runs until told to stop, and stops.
///
/// # Errors
/// See [`RunError`].
pub async fn serve(settings: Settings) -> Result<(), RunError> {
    let (watch, first) = Watch::open(&settings.config, Environment::of_process()).await;
    let checked = first?;
    let level = telemetry::init(&checked.service.log_level, settings.json_log)?;
    let files = parts::raise_open_files();
    tracing::debug!(files, "open files allowed");
    if !checked.warnings.is_empty() {
        tracing::warn!(warnings = checked.rendered_warnings(), "configuration has warnings");
    }
    let mut signals = Signals::listen()?;
    let (reloads, mut asked) = mpsc::unbounded_channel();
    let mut service = Service::start(settings, checked, level, reloads).await?;
    let tried = tokio::select! {
        tried = &mut service.home.tried => tried.ok(),
        () = signals.terminated() => None,
        given_up = service.home.given_up.recv() => return service.gave_up(given_up).await,
        fault = &mut service.journal_ended => return service.unjournalled(fault.ok()).await,
    };
    let Some(tried) = tried else { return service.stop(&mut signals).await };
    service.view.mark_clouds_tried();
    if let Some(refused) = service.strict_refusal(&tried) {
        service.web.stop().await;
        service.home.stop().await;
        return Err(refused);
    }
    service.notifier.ready(&service.status(&tried));
    let watchdog = tokio::spawn(systemd::feed_watchdog(Arc::clone(&service.home.alive)));
    let trigger = watch.trigger();
    let (mut changes, watching) = changes_of(watch);
    let mut pulse = tokio::time::interval(PULSE);
    let outcome = loop {
        tokio::select! {
            Some(told) = changes.recv() => service.change(told),
            Some(reply) = asked.recv() => service.waiting.push((trigger.pull(), reply)),
            _ = pulse.tick() => {
                parts::pulse(&service.state);
                service.journal.check(service.ambient.now());
            }
            wish = signals.next() => match wish {
                Wish::Reload => drop(service.reload(&trigger)),
                Wish::Reap => service.reap(),
                Wish::Resync => service.resync_due = Some(service.reload(&trigger)),
                Wish::Stop => break service.stop(&mut signals).await,
            },
            given_up = service.home.given_up.recv() => break service.gave_up(given_up).await,
            fault = &mut service.journal_ended => break service.unjournalled(fault.ok()).await,
        }
    };
    watchdog.abort();
    watching.abort();
    outcome
}

/// Watches in a task of its own: however often signals and questions come, a reading of the files
/// is never begun anew for them.
fn changes_of(mut watch: Watch) -> (mpsc::Receiver<Told>, JoinHandle<()>) {
    let (tell, changes) = mpsc::channel(1);
    let watching =
        tokio::spawn(async move { while tell.send(watch.next().await).await.is_ok() {} });
    (changes, watching)
}

impl Service {
    async fn start(
        settings: Settings,
        mut checked: Checked,
        level: LevelHandle,
        reloads: mpsc::UnboundedSender<ReloadReply>,
    ) -> Result<Self, RunError> {
        let state = parts::state_directory(settings.state_dir.clone(), &checked.service)?;
        let ambient: Arc<dyn Ambient> = Arc::new(SystemAmbient::new().map_err(|source| {
            RunError::System { doing: "the system gives no random numbers", source }
        })?);
        let down = parts::down_time(&state);
        let Opened { writer: journal, ledger, ended: journal_ended } =
            open_journal(&state, &ambient)?;
        // Nothing is begun on any cluster by a service that nobody could ask.
        let auth = parts::auth(&checked.service);
        let bound = drover_server::bind(listen(&settings, &checked), &auth)?;
        let epoch = ledger.epoch + 1;
        let installation =
            ledger.installation.clone().unwrap_or_else(|| mint_installation(|| ambient.draw()));
        let takeover = Body::Takeover { installation: installation.clone() };
        let begun = journal.append(vec![takeover]).await;
        begun.map_err(|fault| RunError::Takeover(fault.to_string()))?;
        parts::pulse(&state);

        let runtime = Handle::current();
        let key = CallInKey::open(&state)
            .map_err(|source| RunError::State { path: state.clone(), source })?;
        let key = Arc::new(key);
        let proxmox = Proxmox::new(Some(runtime.clone()), Arc::new(WireDialer), TASK_POLL_INTERVAL);
        let proxmox = Arc::new(proxmox.with_call_ins(Arc::clone(&key)));
        let user_data = UserDataStore::open(&state, &ledger)
            .map_err(|source| RunError::State { path: state.clone(), source })?;
        let user_data = Arc::new(user_data);
        let (former, keys) = KeptKeys::open(&state, &ledger)
            .map_err(|source| RunError::State { path: state.clone(), source })?;
        let former = Arc::new(former);
        let shell = SshShell::new(runtime.clone()).with_user_data(Arc::clone(&user_data));
        shell.add_kept_keys(keys);
        let shell = Arc::new(shell);
        let systems = CiSystems::new(Arc::clone(&shell), runtime.clone());
        let systems = Arc::new(systems.keeping(state.join("sources"), crate::machine::read().id));
        let hinted = Arc::clone(&systems);
        let hooks = Arc::new(Hooks::hinting(move |source, body| hinted.hint(source, body)));
        hooks.replace(parts::hook_secrets(&checked));
        let view = View::new(epoch);
        view.mark_journal_folded();
        let metered = Arc::clone(&proxmox);
        view.meter_calls(Box::new(move || metered.call_loads()));
        let told = Arc::clone(&view);
        journal.watch(move |trouble| told.mark_journal(trouble.map(str::to_owned)));
        checked.follow(&HerdSpec::default(), Generation(1));
        let ways = Arc::new(Ways::new(Arc::clone(&proxmox), Arc::clone(&systems)));
        ways.connect(&checked, &HerdSpec::default());
        parts::keys(&shell, &former, &checked.keys);
        shell.set_files(checked.uploads.iter());
        let listener =
            Listener::new(Arc::clone(&view), Arc::clone(&ways), Arc::clone(&user_data), runtime);
        let observer: Arc<dyn Observer> = Arc::new(listener);
        let ports = Ports {
            hypervisor: Arc::clone(&proxmox) as _,
            shell: Arc::clone(&shell) as _,
            demand: Arc::clone(&systems) as _,
            journal: Arc::new(KeyTrackingJournal::new(
                Arc::clone(&journal) as _,
                Arc::clone(&former),
            )),
            observer: Arc::clone(&observer),
            ambient: Arc::clone(&ambient),
            calendar: Arc::new(Almanac),
        };
        let spec = Arc::new(checked.herd.clone());
        let home = Home::start(
            move |escalate| HerdStart {
                ports,
                ledger,
                spec,
                installation,
                epoch,
                down,
                machine: Some(crate::machine::read()),
                give_up: Arc::clone(&escalate),
                spawner: drover_actors::agent::spawner(escalate),
            },
            Arc::clone(&ambient),
        )
        .await?;
        parts::wake(&systems, &home.wishes);
        let doors = doors(&home, &view, (&ambient, &key, &hooks, &user_data), &level, reloads);
        let fixed = Fixed::of(&checked.service);
        let web = bound.serve(doors, auth, Limits::default())?;
        for addr in &web.addrs {
            tracing::info!(%addr, "API served");
        }
        Ok(Self {
            settings,
            state,
            spec: checked.herd,
            log_level: checked.service.log_level,
            level,
            on_stop: checked.service.on_stop,
            stop_timeout: checked.service.stop_timeout,
            ways,
            shell,
            former,
            hooks,
            systems,
            view,
            observer,
            ambient,
            journal,
            journal_ended,
            home,
            web,
            notifier: Notifier,
            waiting: Vec::new(),
            resync_due: None,
            reloading: None,
            fixed,
            restart_due: false,
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
        (self.settings.strict && !lines.is_empty()).then(|| RunError::Strict(lines.join("\n")))
    }

    /// All or nothing: a configuration either comes into force everywhere, or only its faults show.
    fn change(&mut self, told: Told) {
        let outcome = match told.change {
            Change::Reloaded(checked) => Ok(self.apply(*checked)),
            Change::Refused(text) => {
                let what = What::ConfigRefused { text: text.clone(), after: self.spec.generation };
                self.observer.observe(Fact { at: self.ambient.now().wall, what });
                Err(text)
            }
        };
        // Who asked while the files were being read is answered by the next reading.
        for (_, reply) in self.waiting.extract_if(.., |(number, _)| *number <= told.answers) {
            // Who asked may have hung up.
            let _ = reply.send(outcome.clone());
        }
        if self.resync_due.is_some_and(|number| number <= told.answers) {
            self.resync_due = None;
            self.resync();
        }
        if self.reloading.is_some_and(|number| number > told.answers) {
            return;
        }
        self.reloading = None;
        self.notifier.ready(match outcome {
            Ok(_) if self.restart_due => "configuration reloaded; part of it needs a restart",
            Ok(_) => "configuration reloaded",
            Err(_) => "configuration refused, the old one is in force: see drover status",
        });
    }

    fn apply(&mut self, mut checked: Checked) -> u64 {
        let generation = Generation(self.spec.generation.0 + 1);
        checked.follow(&self.spec, generation);
        self.ways.connect(&checked, &self.spec);
        self.hooks.replace(parts::hook_secrets(&checked));
        parts::keys(&self.shell, &self.former, &checked.keys);
        self.shell.set_files(checked.uploads.iter());
        self.web.replace_auth(parts::auth(&checked.service));
        self.on_stop = checked.service.on_stop;
        self.stop_timeout = checked.service.stop_timeout;
        let fixed = Fixed::of(&checked.service);
        if fixed != self.fixed {
            let text =
                "service.listen, socket, socketMode and stateDirectory are taken at a start only";
            tracing::warn!(text, "configuration needs a restart in part");
            self.restart_due = true;
        }
        if checked.service.log_level != self.log_level {
            if let Err(error) = self.level.set(&checked.service.log_level) {
                tracing::warn!(%error, "log level kept");
            }
            self.log_level = checked.service.log_level;
        }
        self.spec = checked.herd;
        self.home.specs.do_send(ApplySpec(Arc::new(self.spec.clone())));
        generation.0
    }

    /// Tells the service manager once, however many ask before the answer: its socket holds few
    /// words.
    fn reload(&mut self, trigger: &Trigger) -> u64 {
        let number = trigger.pull();
        if self.reloading.replace(number).is_none() {
            self.notifier.reloading();
        }
        number
    }

    fn reap(&self) {
        let (reply, told) = oneshot::channel();
        self.home.wishes.do_send(HerdCommand::Reap { all: false, reply });
        tokio::spawn(async move {
            if let Ok(count) = told.await {
                tracing::info!(count, "reaped");
            }
        });
    }

    fn resync(&self) {
        let (reply, done) = oneshot::channel();
        self.home.wishes.do_send(HerdCommand::Resync { reply });
        tokio::spawn(async move {
            if let Ok(outcomes) = done.await {
                let unread = outcomes.values().filter(|outcome| outcome.is_err()).count();
                tracing::info!(clusters = outcomes.len(), unread, "resynced");
            }
        });
    }

    /// Takes no new work, finishes what must not be cut while there is time; a second signal ends at
    /// once.
    async fn stop(mut self, signals: &mut Signals) -> Result<(), RunError> {
        self.notifier.stopping(&stop::status(self.stop_timeout));
        let (reply, drained) = oneshot::channel();
        self.home.wishes.do_send(HerdCommand::Drain { policy: self.on_stop, reply });
        let (view, notifier) = (Arc::clone(&self.view), self.notifier);
        let tell = move || {
            let agents = stop::named(&view.agents());
            tracing::info!(agents, "drover waits for what must not be cut");
            notifier.status(&format!("waits for what must not be cut; agents {agents}"));
        };
        tokio::select! {
            biased;
            given_up = self.home.given_up.recv() => return self.gave_up(given_up).await,
            fault = &mut self.journal_ended => return self.unjournalled(fault.ok()).await,
            () = signals.terminated() => tracing::warn!("stopped at once"),
            is_drained = stop::is_drained(drained, self.stop_timeout, tell) => if is_drained {
                tracing::info!("drained");
            } else {
                let agents = self.view.agents();
                tracing::warn!("{}", stop::time_over(self.stop_timeout, &agents));
            },
        }
        self.web.stop().await;
        self.systems.stop().await;
        self.home.stop().await;
        if let Err(error) = self.journal.flush().await {
            tracing::warn!(%error, "the last records of the journal may be lost");
        }
        parts::pulse(&self.state);
        Ok(())
    }

    /// Without a journal nothing may be begun, and what goes on can not be taken up again.
    async fn unjournalled(self, fault: Option<JournalFault>) -> Result<(), RunError> {
        self.web.stop().await;
        self.home.stop().await;
        let text = fault.map_or_else(|| "its writer panicked".to_owned(), |why| why.to_string());
        Err(RunError::Unjournalled(text))
    }

    async fn gave_up(
        self,
        given_up: Option<drover_runtime::supervise::GivenUp>,
    ) -> Result<(), RunError> {
        self.web.stop().await;
        self.home.stop().await;
        if let Err(error) = self.journal.flush().await {
            tracing::warn!(%error, "the last records of the journal may be lost");
        }
        let text = given_up.map_or_else(
            || "their thread ended".to_owned(),
            |what| format!("{} panicked {} times: {}", what.name, what.restarts, what.panic),
        );
        Err(RunError::GaveUp(text))
    }
}

fn open_journal(state: &Path, ambient: &Arc<dyn Ambient>) -> Result<Opened, RunError> {
    let path = state.join(parts::JOURNAL);
    let log = RedbLog::open(&path)?;
    Ok(Writer::open(log, &path, Arc::clone(ambient), WriterOptions::default())?)
}

type Given<'a> = (&'a Arc<dyn Ambient>, &'a Arc<CallInKey>, &'a Arc<Hooks>, &'a Arc<UserDataStore>);

fn doors(
    home: &Home,
    view: &Arc<View>,
    (ambient, key, hooks, user_data): Given<'_>,
    level: &LevelHandle,
    reloads: mpsc::UnboundedSender<ReloadReply>,
) -> Doors {
    let (level, ambient, key) = (level.clone(), Arc::clone(ambient), Arc::clone(key));
    Doors {
        herd: home.wishes.clone(),
        view: Arc::clone(view),
        reload: Arc::new(move || {
            let (reply, outcome) = oneshot::channel();
            let sent = reloads.send(reply);
            async move {
                let stopping = || NotReloaded::Unknown("the service is stopping".to_owned());
                sent.map_err(|_| stopping())?;
                match tokio::time::timeout(RELOAD_LIMIT, outcome).await {
                    Ok(outcome) => outcome.map_err(|_| stopping())?.map_err(NotReloaded::Refused),
                    Err(_) => {
                        Err(NotReloaded::Unknown("no outcome yet: see drover status".to_owned()))
                    }
                }
            }
            .boxed()
        }),
        log_level: Arc::new(move |given| level.set(given).map_err(|error| error.to_string())),
        alive: Arc::clone(&home.alive),
        call_in: Arc::new(move |token| key.agent(token)),
        hooks: Arc::clone(hooks),
        user_data: Arc::clone(user_data),
        mint_lease: Arc::new(move || mint_lease(|| ambient.draw())),
    }
}

fn listen(settings: &Settings, checked: &Checked) -> Vec<Listen> {
    let path = settings.socket.clone().unwrap_or_else(|| checked.service.socket.clone());
    let unix = Listen::Unix { path, mode: checked.service.socket_mode };
    let tcp = checked.service.listen.map(Listen::Tcp);
    [unix].into_iter().chain(tcp).collect()
}

enum Wish {
    Reload,
    Reap,
    Resync,
    Stop,
}

struct Signals {
    reload: Signal,
    reap: Signal,
    resync: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> Result<Self, RunError> {
        let open = |kind| {
            signal(kind).map_err(|source| RunError::System {
                doing: "signals cannot be listened to",
                source,
            })
        };
        Ok(Self {
            reload: open(SignalKind::hangup())?,
            reap: open(SignalKind::user_defined1())?,
            resync: open(SignalKind::user_defined2())?,
            terminate: open(SignalKind::terminate())?,
            interrupt: open(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.reload.recv() => Wish::Reload,
            _ = self.reap.recv() => Wish::Reap,
            _ = self.resync.recv() => Wish::Resync,
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
        }
    }

    async fn terminated(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
