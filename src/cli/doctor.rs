//! `drover doctor`: what it looks at is decided by [`drover_admin::doctor`]; here it is run and printed.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use drover_api::{
    AgentOut, AlarmOut, GoneOut, PhaseOut, ProvisionIn, ProvisionOut, RetireIn, StatusOut,
};
use drover_model::id::{NodeName, VmId};
use drover_model::phase::AgentPhase;
use drover_ssh::quote;
use jiff::Timestamp;
use proxmox_client::WireDialer;
use proxmox_client::types::VmConfig;
use serde::Serialize;
use serde_json::{Value, json};

use super::client::{CALL_LIMIT, Client, path};
use super::config::{config_path, load};
use super::error::{CallError, CliError};
use super::global::Global;
use super::progress::Live;
use super::report::{self, USAGE};
use super::runtime::runtime;
use super::stdout::{put, put_value};
use super::term::{Term, print};
use drover_admin::doctor::trial::{Diagnosis, End, diagnose, timeline};
use drover_admin::doctor::{self, Clients, NetworkCertificates, Report, clean, write_remedies};
use drover_config::Checked;

/// How often the agent on trial is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// At every so many looks at one that goes it is asked for alarms, too.
const ALARM_LOOKS: u32 = 4;
/// How long an agent that was just started may be unheard of.
const UNHEARD: Duration = Duration::from_secs(10);

/// Options of `doctor`.
#[derive(Debug, Clone, Default, Args)]
pub struct DoctorOptions {
    /// Only this cloud
    #[arg(long, value_name = "CLOUD")]
    pub cloud: Option<String>,
    /// Only this source of demand
    #[arg(long, value_name = "SOURCE", conflicts_with = "cloud")]
    pub source: Option<String>,
    /// What to do instead
    #[command(subcommand)]
    pub action: Option<DoctorAction>,
}

/// What the doctor does beside looking.
#[derive(Debug, Clone, Subcommand)]
pub enum DoctorAction {
    /// Make one agent of a template, say where its way ends, and destroy it
    Template {
        /// The template, `cloud/template` or its bare name
        template: String,
    },
}

/// Looks at the configured repository, provider of logins, clouds and sources of demand; nothing is changed and no
/// service is needed.
pub(super) fn examine(global: &Global, options: &DoctorOptions) -> ExitCode {
    match run(global, options) {
        Ok(code) | Err(code) => code,
    }
}

fn run(global: &Global, options: &DoctorOptions) -> Result<ExitCode, ExitCode> {
    let checked = load(&config_path(global), global.json)?;
    let unknown =
        |text: String| report::fail(global.json, USAGE, &text, &format!("drover: {text}\n"));
    if let Some(wanted) = &options.cloud
        && !checked.connections.keys().any(|cloud| cloud.as_str() == wanted)
    {
        let known: Vec<_> = checked.connections.keys().map(ToString::to_string).collect();
        let known = known.join(", ");
        return Err(unknown(format!("no cloud is called `{wanted}`; known are {known}")));
    }
    if let Some(wanted) = &options.source
        && !checked.demand.keys().any(|source| source.as_str() == wanted)
    {
        let known: Vec<_> = checked.demand.keys().map(ToString::to_string).collect();
        let known = known.join(", ");
        return Err(unknown(format!("no source is called `{wanted}`; known are {known}")));
    }
    let config = global.config.as_deref();
    let live = Live::of_process(global.output());
    let report = runtime(global.json)?.block_on(look(&checked, options, config, &live));
    let code = ExitCode::from(u8::from(!report.is_well()));
    if global.json {
        return Ok(put_value(global.output(), &report, code));
    }
    Ok(put(false, &report.text(), code))
}

/// Looks at the clouds and sources that the options name; without any, at the store, the repository, the
/// provider of logins and the collector of traces, too.
pub(super) async fn look(
    checked: &Checked,
    options: &DoctorOptions,
    config: Option<&Path>,
    live: &Live,
) -> Report {
    let clients = Clients {
        dialer: &WireDialer,
        certificates: &NetworkCertificates,
        clock: &|| u64::try_from(Timestamp::now().as_second()).unwrap_or(0),
        config,
    };
    let mut report = Report::default();
    if let (Some(spec), None, None) = (&checked.service.store, &options.cloud, &options.source) {
        let _step = live.step("the doctor looks at the store");
        let spec = spec.clone();
        report.store = tokio::task::spawn_blocking(move || doctor::check_store(&spec)).await.ok();
    }
    if let (Some(spec), None, None) =
        (&checked.service.config_sync, &options.cloud, &options.source)
    {
        let _step = live.step("the doctor looks at the repository");
        report.repository = Some(doctor::check_repository(spec).await);
    }
    if let (Some(spec), None, None) = (&checked.service.open_id, &options.cloud, &options.source) {
        let _step = live.step("the doctor looks at the provider of logins");
        report.provider = Some(doctor::check_provider(spec, clients.clock).await);
    }
    for channel in &checked.service.notify.channels {
        if options.cloud.is_none() && options.source.is_none() {
            let _step = live.step(&format!("the doctor looks at channel {}", channel.name));
            report.channels.push(doctor::check_channel(channel).await);
        }
    }
    if let (Some(settings), None, None) = (&checked.service.traces, &options.cloud, &options.source)
    {
        let _step = live.step("the doctor looks at the collector of traces");
        report.collector = Some(doctor::check_collector(settings).await);
    }
    for (cloud, connection) in &checked.connections {
        let named = options.cloud.as_ref().is_none_or(|only| only == cloud.as_str());
        if named && options.source.is_none() {
            let _step = live.step(&format!("the doctor looks at cloud {cloud}"));
            report
                .clouds
                .push(doctor::check_cloud(clients, &checked.herd, cloud, connection).await);
        }
    }
    for (source, connection) in &checked.demand {
        let named = options.source.as_ref().is_none_or(|only| only == source.as_str());
        let spec = checked.herd.sources.get(source);
        if let (true, None, Some(spec)) = (named, &options.cloud, spec) {
            let _step = live.step(&format!("the doctor looks at source {source}"));
            report.sources.push(doctor::check_source(clients, spec, connection).await);
        }
    }
    report
}

/// What came of a trial.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TrialOut {
    template: String,
    agent: String,
    ready: bool,
    phases: Vec<PhaseOut>,
    diagnosis: Option<Diagnosis>,
    /// What was reported of it when it was ready: errors that cloud-init got over.
    #[serde(skip_serializing_if = "String::is_empty")]
    warning: String,
}

/// Makes one agent by the running service, follows it, and retires it.
///
/// The service makes it, so that caps, the journal and the marks hold for it as for any other: it
/// cannot leak, whatever ends this command. On trial it serves nobody, and goes by itself.
pub(super) async fn template(
    global: &Global,
    template: &str,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let client = Client::proven(global, global.json, term).await?;
    let begin = path("templates", template, "/provision");
    let command = ProvisionIn { count: 1, trial: true };
    let started: ProvisionOut = client.post(&begin, &command, CALL_LIMIT).await?;
    let Some(agent) = started.agents.first().cloned() else {
        let why = started.short.unwrap_or_default();
        return Err(CliError::Failed(format!("no agent was started: {why}")));
    };
    let text = format!("agent {agent} of {} is on trial", started.template);
    term.progress(global.json, &text, json!({ "agent": agent }))?;
    let step = term.live.step(&text);
    let done = on_trial(&client, global, (started.template, agent.clone()), term).await;
    drop(step);
    if let Err(CliError::Call(fault)) = &done
        && fault.is_passing()
    {
        let retire = match &global.config {
            Some(path) => {
                format!("drover --config {} retire {agent}", quote(&path.display().to_string()))
            }
            None => format!("drover retire {agent}"),
        };
        let text = format!(
            "agent {agent} goes by itself, a minute after it is ready; sooner by: {retire}"
        );
        term.progress(global.json, &text, json!({ "agent": agent }))?;
    }
    done
}

/// Follows an agent that was started for trial to its end, and reports it.
async fn on_trial(
    client: &Client,
    global: &Global,
    (template, agent): (String, String),
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let followed = follow(client, global, &agent, term).await;
    // It is not to stay, whatever came of it; one that is gone is refused, and that is as good.
    let over = RetireIn { trial_over: true };
    let _ = client.command(&path("agents", &agent, "/retire"), &over).await;
    let Followed { phases, end, config, warning, mut stuck } = followed?;
    let diagnosis = match &end {
        None => None,
        Some(end) => {
            let vmid = config.as_ref().map_or_else(|| "VMID".to_owned(), |(vmid, _)| vmid.clone());
            let found = diagnose(end, config.as_ref().map(|(_, config)| config), &vmid);
            let found = found.of_template(&template);
            Some(match &global.config {
                Some(path) => found.with_config(path),
                None => found,
            })
        }
    };
    if stuck.is_none() {
        stuck = gone(client, &agent, global.json, term).await?;
    }
    let spans: Vec<(String, u64)> =
        phases.iter().map(|phase| (phase.state.clone(), phase.ms)).collect();
    let ready = diagnosis.is_none();
    let out = TrialOut { template, agent, ready, phases, diagnosis, warning };
    print(term, global.json, &out, |out| {
        let mut text = timeline(&spans);
        for line in out.warning.lines() {
            text.push_str(&format!("warn  {}\n", clean(line)));
        }
        match &out.diagnosis {
            None if stuck.is_some() => text.push_str("ok    it is ready\n"),
            None => text.push_str("ok    it is ready, and was destroyed again\n"),
            Some(Diagnosis { part, text: why, remedies }) => {
                let part = serde_json::to_value(part).unwrap_or_default();
                let part = part.as_str().unwrap_or_default().to_owned();
                text.push_str(&format!("fail  {part}: {why}\n"));
                write_remedies(&mut text, "      ", remedies);
            }
        }
        text
    })?;
    match stuck {
        Some(alarm) => {
            Err(CliError::Failed(format!("agent {} is not gone: {}", out.agent, reported(&alarm))))
        }
        None => Ok(u8::from(!out.ready)),
    }
}

/// What was seen of an agent on trial.
struct Followed {
    phases: Vec<PhaseOut>,
    /// Where its way ended; none where it became ready.
    end: Option<End>,
    /// The VMID of its template and its configuration.
    config: Option<(String, VmConfig)>,
    /// What was reported of it when it was ready.
    warning: String,
    /// What keeps it from being destroyed, where somebody has to do something.
    stuck: Option<AlarmOut>,
}

/// What was reported of an agent while it is destroyed.
#[derive(Default)]
struct Leaving {
    reported: String,
    looks: u32,
}

impl Leaving {
    /// Reports what it waits for when that changes; gives the alarm once one stands.
    async fn look(
        &mut self,
        client: &Client,
        (agent, detail): (&str, &str),
        json: bool,
        term: &mut Term<'_>,
    ) -> Result<Option<AlarmOut>, CliError> {
        if !detail.is_empty() && detail != self.reported {
            let text = format!("    {}", clean(detail));
            term.moved(json, &text, json!({ "agent": agent }))?;
            detail.clone_into(&mut self.reported);
        }
        self.looks += 1;
        if !self.looks.is_multiple_of(ALARM_LOOKS) {
            return Ok(None);
        }
        let status: StatusOut = client.get("/v1/status", CALL_LIMIT).await?;
        Ok(status.alarms.into_iter().find(|alarm| alarm.agent == agent))
    }
}

/// An alarm with the command to run.
fn reported(alarm: &AlarmOut) -> String {
    format!("{}\n  > {}", clean(&alarm.text), clean(&alarm.command))
}

/// Follows an agent until it is ready or on its way out.
async fn follow(
    client: &Client,
    global: &Global,
    agent: &str,
    term: &mut Term<'_>,
) -> Result<Followed, CliError> {
    let mut end = End::default();
    let mut config = None;
    let mut seen = String::new();
    let mut leaving = Leaving::default();
    let started = Instant::now();
    loop {
        let answer: Value = match client.get(&path("agents", agent, ""), CALL_LIMIT).await {
            // The service says that it begins an agent before the agent itself is heard of.
            Err(CallError::Refused(problem))
                if problem.status == 404 && started.elapsed() < UNHEARD =>
            {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            answer => answer?,
        };
        if let Ok(gone) = serde_json::from_value::<GoneOut>(answer.clone()) {
            end = at_last(end, &gone.phases);
            end.reason = gone.detail;
            let (phases, end) = (gone.phases, Some(end));
            return Ok(Followed { phases, end, config, warning: String::new(), stuck: None });
        }
        let now = read(answer)?;
        let state =
            now.phases.last().map_or_else(|| now.state.to_string(), |one| one.state.clone());
        if state != seen {
            let facts = json!({ "agent": agent, "state": state });
            term.moved(global.json, &format!("  {state}"), facts)?;
            seen.clone_from(&state);
        }
        match now.state {
            AgentPhase::Ready | AgentPhase::Leased => {
                let (phases, end, warning) = (now.phases, None, now.detail);
                return Ok(Followed { phases, end, config, warning, stuck: None });
            }
            AgentPhase::Stranded => return Err(stranded(client, agent, now.detail).await),
            AgentPhase::Retiring | AgentPhase::Gone => {
                let reported = (agent, &*now.detail);
                let stuck = leaving.look(client, reported, global.json, term).await?;
                // What it says first is why it goes, then what that waits for.
                if end.reason.is_empty() {
                    end.reason = now.detail;
                }
                if stuck.is_some() {
                    let (end, phases) = (Some(at_last(end, &now.phases)), now.phases);
                    return Ok(Followed { phases, end, config, warning: String::new(), stuck });
                }
            }
            AgentPhase::Queued
            | AgentPhase::Cloning
            | AgentPhase::InDoubt
            | AgentPhase::Configuring
            | AgentPhase::Booting
            | AgentPhase::Connecting
            | AgentPhase::Preparing
            | AgentPhase::Draining
            | AgentPhase::Resetting
            | AgentPhase::Held => {
                end.state = state;
                end.detail = now.detail;
                if config.is_none() && now.state == AgentPhase::Booting {
                    config = read_config(global, &now.template, now.node, now.vmid).await;
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn read(answer: Value) -> Result<AgentOut, CliError> {
    serde_json::from_value(answer)
        .map_err(|fault| CliError::Failed(format!("cannot read the answer: {fault}")))
}

/// Where its way ended by its phases, of which a short one may have come and gone between two looks.
fn at_last(end: End, phases: &[PhaseOut]) -> End {
    let leaving = |part: &str| AgentPhase::of_part(part).is_some_and(AgentPhase::is_leaving);
    match phases.iter().map(|phase| phase.state.as_str()).rfind(|state| !leaving(state)) {
        Some(state) if state != end.state => End { state: state.to_owned(), ..End::default() },
        Some(_) | None => end,
    }
}

/// How the guest is configured, when this machine has the YAML of the service.
async fn read_config(
    global: &Global,
    template: &str,
    node: Option<String>,
    vmid: Option<u32>,
) -> Option<(String, VmConfig)> {
    let (node, vmid) = (NodeName::new(node?), VmId(vmid?));
    let environment = drover_config::Environment::of_process();
    let checked = drover_config::load(&config_path(global), &environment).ok()?;
    let cloud = template.split('/').next()?;
    let (cloud, connection) = checked.connections.iter().find(|(id, _)| id.as_str() == cloud)?;
    let client = drover_hypervisor::Client::new(cloud.clone(), connection, &WireDialer).ok()?;
    let config = client.config(node.as_str(), vmid.0).await.ok()?;
    let source = checked.herd.templates.values().find(|spec| spec.id.to_string() == template)?;
    let source = match source.search {
        None => source.source.to_string(),
        Some(_) => "VMID".to_owned(),
    };
    Some((source, config))
}

/// Nobody but an administrator can finish this one: why, and what they are to run.
async fn stranded(client: &Client, agent: &str, why: String) -> CliError {
    let status: Result<StatusOut, CallError> = client.get("/v1/status", CALL_LIMIT).await;
    let alarms = status.map(|status| status.alarms).unwrap_or_default();
    let mut text = format!("agent {agent} is stranded: {}", clean(&why));
    match alarms.into_iter().find(|alarm| alarm.agent == agent) {
        Some(alarm) => text.push_str(&format!("\n  > {}", clean(&alarm.command))),
        None => text.push_str("\n  > drover status"),
    }
    CliError::Failed(text)
}

/// Waits until the agent is gone: nothing of it is left then. Gives what is in the way once an
/// alarm says it.
async fn gone(
    client: &Client,
    agent: &str,
    json: bool,
    term: &mut Term<'_>,
) -> Result<Option<AlarmOut>, CliError> {
    let mut leaving = Leaving::default();
    loop {
        let answer: Value = client.get(&path("agents", agent, ""), CALL_LIMIT).await?;
        if serde_json::from_value::<GoneOut>(answer.clone()).is_ok() {
            return Ok(None);
        }
        let now = read(answer)?;
        if now.state == AgentPhase::Stranded {
            return Err(stranded(client, agent, now.detail).await);
        }
        if now.state == AgentPhase::Retiring {
            let stuck = leaving.look(client, (agent, &*now.detail), json, term).await?;
            if stuck.is_some() {
                return Ok(stuck);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}
