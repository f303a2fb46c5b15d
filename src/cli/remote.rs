//! The commands that ask a running service and print what it says.

use std::io;
use std::pin::pin;
use std::time::Duration;

use causes::chain;
use drover_api::{
    AddressPoolsOut, AgentLimits, AlarmOut, BreakersOut, CloudsOut, ConfirmIn, ConfirmOut,
    LimitsIn, MembersOut, Nothing, ProvisionIn, ProvisionOut, ReapIn, ReapOut, ReloadOut, ResetOut,
    ResyncIn, ResyncOut, ResyncPlanOut, SourceOut, StatusOut, TemplatesOut, TransferIn,
    TransferOut, UnreadOut,
};
use drover_model::phase::NodeOrder;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::client::{CALL_LIMIT, Client, LONG_LIMIT, path};
use super::doctor::{DoctorAction, DoctorOptions};
use super::error::{CallError, CliError};
use super::global::Global;
use super::lease::lease;
use super::leasing::{Leasing, TimeLimits};
use super::options::{
    AgentAction, BlackBoxOptions, BreakerAction, ClusterAction, Command, ImageAction, LeaseAction,
    LeasesOptions, Limit, MachineAction, MembersAction, NotifyAction, Noun, ShardConfigAction,
};
use super::over_ssh::OverSsh;
use super::progress::Live;
use super::screen::{self, Output, Screen};
use super::term::{Term, page, print, shown};
use super::watch::frame;
use super::{
    agents, audit, black_box, doctor, events, history, hold, ids, image, kept, leases, lists, logs,
    machine, nodes, notify, overrides, plan, reach, sentences, show, stdin, sync, why,
};

/// Runs one of the commands, again and again where that is wanted; gives the exit code.
pub(super) async fn run(
    global: &Global,
    mut command: Command,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let client = Client::proven(global, global.json, term).await?;
    ids::complete(&client, &mut command).await?;
    match lists::pause(&command) {
        Some(pause) => repeat(global, &client, &command, pause, term).await,
        None => once(global, &client, command, term).await,
    }
}

/// Runs a command every so often; gives the exit code of the signal that ended it.
async fn repeat(
    global: &Global,
    client: &Client,
    command: &Command,
    pause: Duration,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let (mut stop, mut unread) = (pin!(stop_signal()?), pin!(events::unread()));
    let mut is_first = true;
    loop {
        let mut text = Vec::new();
        let mut inner = Term {
            out: &mut text,
            err: &mut *term.err,
            screen: term.screen,
            live: Live::default(),
        };
        let asked = once(global, client, command.clone(), &mut inner);
        let result = tokio::select! {
            biased;
            code = &mut stop => return Ok(code),
            result = asked => result,
        };
        match result {
            Ok(_) => {}
            // It was there before, and comes back once it is started again.
            Err(CliError::Call(fault)) if !is_first && fault.is_passing() => {
                text = format!("{}\n", shown(&chain(&fault))).into_bytes();
            }
            Err(fault) => return Err(fault),
        }
        let text = String::from_utf8_lossy(&text);
        let frame = frame(&text, term.screen.is_terminal, screen::size(), is_first);
        term.out.write_all(frame.as_bytes())?;
        term.out.flush()?;
        is_first = false;
        tokio::select! {
            biased;
            code = &mut stop => return Ok(code),
            () = &mut unread => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Asks the service one time, and prints what it answers.
pub(super) async fn once(
    global: &Global,
    client: &Client,
    command: Command,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let json = global.json;
    match command {
        Command::Status(view) => {
            page(term, json, &view, &status(client).await?, lists::status)?;
        }
        Command::Agents { action: Some(action), .. } => limit(client, action, json, term).await?,
        Command::Agents { gone, list, action: None } => {
            agents::list(client, list, gone, json, term).await?;
        }
        Command::Templates { list, action: None } => {
            let out: TemplatesOut = client.get("/v1/templates", CALL_LIMIT).await?;
            let whole = |templates| TemplatesOut { templates };
            lists::show(term, json, &list, out.templates, whole, |_, _| ())?;
        }
        Command::Breakers { list, action: None } => {
            let out: BreakersOut = client.get("/v1/breakers", CALL_LIMIT).await?;
            let whole = |breakers| BreakersOut { breakers };
            lists::show(term, json, &list, out.breakers, whole, |_, _| ())?;
        }
        Command::Breakers { action: Some(BreakerAction::Reset { breaker }), .. } => {
            if breaker.trim().is_empty() {
                let text = "name a breaker: a template, or such as node:pve1; `drover breakers` \
                            lists those that are not closed";
                return Err(CliError::Usage(text.into()));
            }
            let path = path("breakers", &breaker, "/reset");
            let out: ResetOut = client.post(&path, &Nothing {}, CALL_LIMIT).await?;
            print(term, json, &out, |out| {
                let does = if out.flowed { "was closed already" } else { "is closed" };
                format!("breaker {} {does}\n", sentences::clean(&out.id))
            })?;
        }
        Command::Cluster { action: ClusterAction::Confirm { cloud, no_guests } } => {
            let path = path("clouds", &cloud, "/confirm");
            let step = term.live.step("drover looks for its guests");
            let out: ConfirmOut = client.post(&path, &ConfirmIn { no_guests }, LONG_LIMIT).await?;
            drop(step);
            print(term, json, &out, |out| {
                let cloud = sentences::clean(&out.cloud);
                let proof = match out.guests {
                    0 => "by your word: drover has no guest there that could prove it".to_owned(),
                    guests => {
                        format!("the marks of {} prove it", sentences::count(guests, "guest"))
                    }
                };
                format!(
                    "cloud {cloud} leads to the cluster that drover knows as {}: {proof}; drover goes on \
                     there\n",
                    out.cluster
                )
            })?;
        }
        Command::Clouds { list, action: None } => {
            let out: CloudsOut = client.get("/v1/clouds", CALL_LIMIT).await?;
            let whole = |clouds| CloudsOut { clouds };
            lists::show(term, json, &list, out.clouds, whole, |_, _| ())?;
        }
        Command::Sources(list) => {
            let out: StatusOut = client.get("/v1/status", CALL_LIMIT).await?;
            let whole = |sources: Vec<SourceOut>| json!({ "sources": sources });
            lists::show(term, json, &list, out.sources, whole, |_, _| ())?;
        }
        Command::Alarms(list) => {
            let StatusOut { alarms, other_drover, .. } = status(client).await?;
            let whole =
                |alarms: Vec<AlarmOut>| json!({ "alarms": alarms, "otherDrover": other_drover });
            lists::show(term, json, &list, alarms, whole, |_, _| ())?;
        }
        Command::Show { noun, id } if term.screen.output == Output::Name => {
            name_of(client, noun, &id, term).await?;
        }
        Command::Show { noun, id } => show::show(client, noun, &id, json, term).await?,
        Command::Cordon(at) => nodes::order(client, at, NodeOrder::Cordon, json, term).await?,
        Command::Drain(at) => nodes::order(client, at, NodeOrder::Drain, json, term).await?,
        Command::Uncordon(at) => nodes::order(client, at, NodeOrder::Use, json, term).await?,
        Command::Ssh(options) => return reach::ssh(client, &options, json, term).await,
        Command::Cp(options) => return reach::cp(client, &options, json, term).await,
        Command::Logs(options) => return logs::logs(client, &options, json, term).await,
        Command::Images(list) => {
            return image::act(client, ImageAction::List(list), json, term).await;
        }
        Command::Machines(list) => {
            return machine::act(client, MachineAction::List(list), json, term).await;
        }
        Command::Nodes(list) => nodes::list(client, &list, json, term).await?,
        Command::Node { action } => nodes::act(client, action, json, term).await?,
        Command::Why { of, view } => why::why(client, of, &view, json, term).await?,
        Command::Image(action) => return image::act(client, action, json, term).await,
        Command::Jobs(list) => why::jobs(client, &list, json, term).await?,
        Command::AddressPools(list) => {
            let out: AddressPoolsOut = client.get("/v1/address-pools", CALL_LIMIT).await?;
            let whole = |address_pools| AddressPoolsOut { address_pools };
            lists::show(term, json, &list, out.address_pools, whole, |_, _| ())?;
        }
        Command::Members { action: Some(MembersAction::Forget { member }), .. } => {
            client.report(Method::DELETE, &path("members", &member, "")).await?;
            let member = sentences::clean(&member);
            print(term, json, &json!({ "forgotten": member }), |_| {
                format!("member {member} is no longer listed; it comes back when it starts again\n")
            })?;
        }
        Command::Members { list, action: None } => {
            let mut out: MembersOut = client.get("/v1/members", CALL_LIMIT).await?;
            let members = std::mem::take(&mut out.members);
            let whole = |members| MembersOut { members, ..out.clone() };
            lists::show(term, json, &list, members, whole, lists::last_leader)?;
        }
        Command::TransferLeadership { member } => {
            let ask = TransferIn { to: member };
            let out: TransferOut = client.post("/v1/members/transfer", &ask, CALL_LIMIT).await?;
            print(term, json, &out, |out| format!("{}\n", sentences::clean(&out.detail)))?;
        }
        Command::Provision { template, count } => {
            let path = path("templates", &template, "/provision");
            let out: ProvisionOut =
                client.post(&path, &ProvisionIn { count, trial: false }, CALL_LIMIT).await?;
            print(term, json, &out, sentences::provisioned)?;
            return Ok(u8::from(out.agents.len() < count as usize));
        }
        Command::Lease { action: Some(LeaseAction::Renew { lease, ttl }), .. } => {
            leases::renew(client, &lease, ttl, json, term).await?;
        }
        Command::Lease { options, action: None } => {
            let stop = stop_signal()?;
            let leasing = Leasing {
                client,
                over: &OverSsh,
                input: stdin::read,
                time_limits: TimeLimits::default(),
                key_dir: kept::key_dir(),
                json,
            };
            return lease(&leasing, &options, stop, term).await;
        }
        Command::Leases(options) => {
            kept::sweep(client, &kept::key_dir()).await;
            return leases::leases(client, &options, json, term).await;
        }
        Command::Release { leases }
        | Command::Lease { action: Some(LeaseAction::Release { leases }), .. } => {
            kept::sweep(client, &kept::key_dir()).await;
            return leases::end(client, &leases, json, term).await;
        }
        Command::Retire { agent } => {
            client.report(Method::POST, &path("agents", &agent, "/retire")).await?;
            let line = format!("agent {agent} goes, after its last lease if it has one\n");
            print(term, json, &json!({ "retiring": agent }), |_| line.clone())?;
        }
        Command::Hold(options) => hold::hold(client, &options, json, term).await?,
        Command::HoldNext(options) => hold::hold_next(client, &options, json, term).await?,
        Command::ReleaseHold { agent } => {
            client.report(Method::DELETE, &path("agents", &agent, "/hold")).await?;
            print(term, json, &json!({ "released": agent }), |_| {
                format!("agent {agent} is held no longer\n")
            })?;
        }
        Command::Machine(action) => return machine::act(client, action, json, term).await,
        Command::Reap { all } => {
            let out: ReapOut = client.post("/v1/reap", &ReapIn { all }, CALL_LIMIT).await?;
            print(term, json, &out, |out| {
                format!("{} asked to go\n", sentences::count(out.retired as usize, "agent"))
            })?;
        }
        Command::Resync { dry_run: true, .. } => {
            let step = term.live.step("drover compares its journal with the clusters");
            let out: ResyncPlanOut = client.get("/v1/resync", LONG_LIMIT).await?;
            drop(step);
            print(term, json, &out, sentences::planned)?;
            if let Some(text) = not_compared(out.clusters.len(), &out.unread) {
                return Err(CliError::Failed(text));
            }
        }
        Command::Resync { confirm_older_journal, confirm_machine, dry_run: false } => {
            let command = ResyncIn { confirm_older_journal, confirm_machine };
            let step = term.live.step("drover reconciles its journal with the clusters");
            let out: ResyncOut = client.post("/v1/resync", &command, LONG_LIMIT).await?;
            drop(step);
            print(term, json, &out, sentences::findings)?;
            let refused = out.refused.map(|faults| {
                let refused = "reconciled, but not reloaded, the old configuration stays in force";
                format!("{refused}:\n{}", faults.trim_end())
            });
            let failed = refused.into_iter().chain(not_compared(out.clusters.len(), &out.unread));
            let failed: Vec<String> = failed.collect();
            if !failed.is_empty() {
                return Err(CliError::Failed(failed.join("\n")));
            }
        }
        Command::Reload => {
            let step = term.live.step("drover reads its configuration and looks at the clusters");
            let out: ReloadOut = client.post("/v1/reload", &Nothing {}, LONG_LIMIT).await?;
            drop(step);
            print(term, json, &out, reloaded)?;
        }
        Command::Plan(options) => return plan::plan(client, &options, json, term).await,
        Command::Notify(NotifyAction::Test { channel }) => {
            return notify::test(client, channel, json, term).await;
        }
        Command::Sync(options) => return sync::sync(client, options, json, term).await,
        Command::Templates { action: Some(action), .. } => {
            overrides::template(client, action, json, term).await?;
        }
        Command::Clouds { action: Some(action), .. } => {
            overrides::cloud(client, action, json, term).await?;
        }
        Command::Events(options) => events::follow(client, &options, None, json, term).await?,
        Command::Blackbox(BlackBoxOptions { agent, view }) => {
            black_box::show(client, &agent, &view, json, term).await?;
        }
        Command::Usage(options) => history::usage(client, &options, json, term).await?,
        Command::Trace(options) => history::trace(client, &options, json, term).await?,
        Command::Audit { options, action: None } => {
            audit::list(client, &options, json, term).await?
        }
        Command::Doctor(DoctorOptions {
            action: Some(DoctorAction::Template { template }),
            ..
        }) => {
            return doctor::template(global, &template, term).await;
        }
        Command::Run(_)
        | Command::Get { .. }
        | Command::Config(_)
        | Command::Journal(_)
        | Command::Audit { .. }
        | Command::ShardConfig(_)
        | Command::CreateShardConfig(_)
        | Command::Doctor(_)
        | Command::Setup { .. }
        | Command::Init(_)
        | Command::Demo(_)
        | Command::Sim(_)
        | Command::Check(_)
        | Command::Simulate(_)
        | Command::Schema
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Top(_)
        | Command::Template { .. } => {
            return Err(CliError::Usage("this command does not ask a running service".into()));
        }
    }
    Ok(0)
}

/// Everything at a glance, with the commands that the caller runs.
async fn status(client: &Client) -> Result<StatusOut, CallError> {
    let mut out: StatusOut = client.get("/v1/status", CALL_LIMIT).await?;
    for alarm in &mut out.alarms {
        alarm.command = client.spelled(&alarm.command);
    }
    Ok(out)
}

/// What a reload brought into force, and what only a restart will.
fn reloaded(out: &ReloadOut) -> String {
    let due = match out.restart_due.is_empty() {
        true => String::new(),
        false => format!(
            "takes effect at the next start only: {}\n",
            sentences::clean(&out.restart_due.join(", "))
        ),
    };
    format!("generation {} in force\n{due}", out.generation)
}

/// Prints the whole id of the one agent or lease that a word names.
async fn name_of(
    client: &Client,
    noun: Noun,
    word: &str,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let mut shown = Vec::new();
    let screen = Screen { output: Output::Json, ..term.screen };
    let mut inner = Term { out: &mut shown, err: &mut *term.err, screen, live: Live::default() };
    show::show(client, noun, word, true, &mut inner).await?;
    let whole: Value = serde_json::from_slice(&shown).unwrap_or_default();
    let Some(id) = whole[noun.one()]["id"].as_str() else {
        return Err(CliError::Failed(format!("this {} has no id", noun.one())));
    };
    Ok(writeln!(term.out, "{}", sentences::clean(id))?)
}

/// The command that `drover get` or `drover create-shard-config` stands for, or the command itself.
pub(super) fn plain(command: Command) -> Command {
    if let Command::CreateShardConfig(options) = command {
        return Command::ShardConfig(ShardConfigAction::Put(options));
    }
    let Command::Get { noun, id, list } = command else { return command };
    if let Some(id) = id {
        return Command::Show { noun, id };
    }
    match noun {
        Noun::Agent => Command::Agents { gone: false, list, action: None },
        Noun::Lease => Command::Leases(LeasesOptions { list, ..LeasesOptions::default() }),
        Noun::Template => Command::Templates { list, action: None },
        Noun::Cloud => Command::Clouds { list, action: None },
        Noun::Node => Command::Nodes(list),
        Noun::Source => Command::Sources(list),
        Noun::Job => Command::Jobs(list),
        Noun::Alarm => Command::Alarms(list),
        Noun::Image => Command::Images(list),
        Noun::Machine => Command::Machines(list),
        Noun::Breaker => Command::Breakers { list, action: None },
        Noun::AddressPool => Command::AddressPools(list),
    }
}

/// Why a reconciliation is not done, where so many clusters were read and these were not.
fn not_compared(read: usize, unread: &[UnreadOut]) -> Option<String> {
    match (read, unread.len()) {
        (0, 0) => Some(
            "no cluster was reached since drover started, and nothing was compared: `drover status` \
             shows why"
                .to_owned(),
        ),
        (_, 0) => None,
        (_, count) => Some(format!(
            "{} could not be read, and nothing was compared there: `drover doctor` looks for the \
             cause; then run `drover resync` again",
            sentences::count(count, "cluster")
        )),
    }
}

/// Sets limits of one agent.
async fn limit(
    client: &Client,
    action: AgentAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let AgentAction::Set { agent, idle, max_uses } = action;
    let change = |limit| match limit {
        Limit::Template => None,
        Limit::Own(number) => Some(number),
    };
    let command = LimitsIn {
        idle_termination_minutes: idle.map(change),
        max_total_uses: max_uses.map(change),
    };
    let out: AgentLimits = client.change(&path("agents", &agent, ""), &command, CALL_LIMIT).await?;
    print(term, json, &out, |out| match out.spell() {
        text if text.is_empty() => format!("agent {agent}: as its template says\n"),
        text => format!("agent {agent}: {text}\n"),
    })
}

/// Ends with the exit code to give once SIGINT, SIGTERM or SIGHUP came.
pub(super) fn stop_signal() -> Result<impl Future<Output = u8>, CliError> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
            _ = hangup.recv() => 129,
        }
    })
}
