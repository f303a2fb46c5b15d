//! The start of a service: what must hold before anything may start on a cluster, and then its parts in
//! the order in which they need each other.

use std::path::Path;
use std::sync::Arc;

use drover_actors::herd::HerdStart;
use drover_audit::Cause;
use drover_config::calendar::Almanac;
use drover_config::{Checked, Environment};
use drover_journal::{Opened, Writer};
use drover_model::ambient::mint_installation;
use drover_model::id::{Generation, Installation};
use drover_model::journal_state::JournalState;
use drover_model::ports::{Journal as _, JournalFault, Observer, Ports};
use drover_model::record::Body;
use drover_model::spec::HerdSpec;
use drover_server::{Auth, Bound, Limits};
use drover_shell::kept_keys::KeyTrackingJournal;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::super::actors_thread::ActorsThread;
use super::super::config_sync::{self, ConfigSync, Configured};
use super::super::connections::Connections;
use super::super::doors::{self, Behind};
use super::super::layout::{self, Layout};
use super::super::lead::Lead;
use super::super::membership::Membership;
use super::super::observer::ServiceObserver;
use super::super::start_settings::StartSettings;
use super::super::{RunError, auditing, notices, state_dir, twin, wiring};
use super::records::{self, Records};
use super::tools::Tools;
use super::{Begins, ReloadReply, Service, listen, listened};
use crate::systemd::Notifier;
use crate::telemetry::LevelHandle;

/// The journal that this term took over, and what else it holds alone.
struct Taken {
    journal: Arc<Writer>,
    journal_state: JournalState,
    journal_ended: oneshot::Receiver<JournalFault>,
    bound: Bound,
    installation: Installation,
    epoch: u64,
}

/// Takes over the journal, the sockets and the state directory.
async fn take(begins: &mut Begins<'_>, checked: &Checked, auth: &Auth) -> Result<Taken, RunError> {
    let Begins { settings, state, ambient, ground, bound, .. } = begins;
    let layout = layout::read(state)?;
    let Opened { writer: journal, journal_state, ended: journal_ended } =
        ground.open_journal(state, ambient, layout.as_ref())?;
    // A service whose API cannot be served must not start anything on a cluster.
    let bound = match bound.take() {
        Some(bound) => bound,
        None => drover_server::bind(listen(settings, checked), auth)?,
    };
    let epoch = journal_state.epoch + 1;
    let kept = journal_state.installation.clone();
    let installation = kept.unwrap_or_else(|| mint_installation(|| ambient.draw()));
    if ground.shared.is_none() {
        twin::hold(&installation, state, listened(settings, checked))?;
    }
    if let Some(last) = layout.as_ref().and_then(Layout::other) {
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(last, version, "another version of drover used this state directory last");
    }
    // Before this version writes a record that the other one may not read.
    layout::write(state, layout.as_ref())?;
    let takeover = Body::Takeover { installation: installation.clone() };
    journal.append(vec![takeover]).await.map_err(RunError::Takeover)?;
    Ok(Taken { journal, journal_state, journal_ended, bound, installation, epoch })
}

impl Service {
    pub(super) async fn start(
        mut begins: Begins<'_>,
        mut checked: Checked,
        (level, environment): (LevelHandle, Environment),
        reloads: mpsc::UnboundedSender<ReloadReply>,
        lead: &Lead,
    ) -> Result<Self, RunError> {
        let files = Box::new(checked.clone());
        let auth = wiring::auth(&checked.service);
        let Taken { journal, journal_state, journal_ended, bound, installation, epoch } =
            take(&mut begins, &checked, &auth).await?;
        let Begins { settings, state, ambient, ground, stored, audit, .. } = begins;
        let audit = audit.open(&state, &checked.service)?;
        state_dir::write_heartbeat(&state);

        let runtime = Handle::current();
        let tools = Tools::open(&ground, &state, &journal_state, &runtime)?;
        let gate = ground.gate();
        let shared = ground.shared.clone();
        let config = settings.config.as_path();
        let stored = stored.map(|stored| (check_command(config), stored));
        let view = records::view_of(epoch, &*ambient, shared.is_some(), stored);
        let instance = records::instance(&installation, shared.as_deref());
        let seen = (view, audit);
        let records = Records::begin(&state, seen, &tools, &checked.service, instance, &ambient);
        records.audit.note(auditing::started(shared.as_deref().map(Membership::name)));
        records.configured(Cause::Start, &checked, Generation(1), &*ambient);
        wiring::measure(&tools.proxmox, &journal, &records.view, &records.history);

        checked.follow(&HerdSpec::default(), Generation(1));
        let (proxmox, systems) = (Arc::clone(&tools.proxmox), Arc::clone(&tools.systems));
        let connections = Arc::new(Connections::new(proxmox, systems, gate));
        connections.connect(&checked, &HerdSpec::default());
        tools.configure(&checked);
        let user_data = Arc::clone(&tools.user_data);
        let observer: Arc<dyn Observer> = Arc::new(ServiceObserver::new(
            &records,
            Arc::clone(&connections),
            user_data,
            runtime.clone(),
        ));
        let kept_keys = Arc::clone(&tools.former);
        let ports = Ports {
            hypervisor: Arc::clone(&tools.proxmox) as _,
            shell: Arc::clone(&tools.shell) as _,
            demand: Arc::clone(&tools.systems) as _,
            journal: Arc::new(KeyTrackingJournal::new(
                Arc::clone(&journal) as _,
                kept_keys,
                runtime,
            )),
            observer: Arc::clone(&observer),
            ambient: Arc::clone(&ambient),
            calendar: Arc::new(Almanac),
        };
        let spec = Arc::new(checked.herd.clone());
        let (down, machine) = (ground.down, Some(ground.machine));
        let actors = ActorsThread::start(
            move |escalate| HerdStart {
                ports,
                journal_state,
                spec,
                installation,
                epoch,
                down,
                machine,
                give_up: Arc::clone(&escalate),
                spawner: drover_actors::agent::spawner(escalate),
            },
            Arc::clone(&ambient),
        )
        .await?;
        wiring::wake_on_news(&tools.systems, &actors.commands);

        let config_sync = ConfigSync::start(
            config_sync::Tools {
                config: settings.config.clone(),
                environment: environment.clone(),
                state: state.clone(),
                audit: records.audit.clone(),
                view: Arc::clone(&records.view),
                observer: Arc::clone(&observer),
                ambient: Arc::clone(&ambient),
                reloads: reloads.clone(),
                herd: actors.commands.clone(),
            },
            Configured::of(&checked, &environment),
        );
        let channels = &checked.service.notify;
        let messages =
            notices::start(channels, &records.view, ground.vault, &ambient, lead.send_by());
        let behind = Behind {
            actors: &actors,
            records: &records,
            tools: &tools,
            config_sync: &config_sync,
            messages: &messages,
            ambient: &ambient,
        };
        let doors = doors::doors(&behind, config, lead, &level, reloads);
        let start_settings = StartSettings::of(&checked.service);
        let server = bound.serve(doors, auth, Limits::default())?;
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
            tools,
            records,
            messages,
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
}

/// What shows the faults of a configuration that lies in the store.
fn check_command(config: &Path) -> String {
    format!("drover check --config {}", config.display())
}
