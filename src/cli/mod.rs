//! The command line: arguments, exit codes, and what the commands print.
//!
//! Exit codes: 0 done, 1 failed, 2 usage or invalid configuration, 69 no service answers, 75 waited too long, or the
//! lease was lost, expired or released by somebody (69 and 75 as in `sysexits.h`);
//! `lease -- CMD` exits as CMD, `run` also with 70 and 74 (`app::RunError::exit_code`).
//! Commands that start a service hand over to `service`; all others talk to a running one.

mod agents;
mod audit;
mod black_box;
mod builds;
mod candidates;
mod check;
mod client;
mod completions;
mod config;
mod doctor;
mod encrypted;
mod ending;
mod error;
mod events;
mod explain;
mod global;
mod help;
mod history;
mod hold;
mod identity;
mod ids;
mod image;
mod init;
mod journal;
mod kept;
mod lease;
mod leases;
mod leasing;
mod list_options;
mod lists;
mod logs;
mod machine;
mod man;
mod nodes;
mod notify;
mod options;
mod over_ssh;
mod overrides;
mod plan;
mod privacy;
mod progress;
mod prompt;
mod reach;
mod remote;
mod report;
mod runtime;
mod screen;
mod sentences;
mod service;
mod setup;
mod shard_config;
mod show;
mod sim_options;
mod simulate;
mod slips;
mod stdin;
mod stdout;
mod sync;
mod table;
mod term;
mod top;
pub mod topics;
mod watch;
mod why;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use causes::chain;
use clap::Parser;

pub use client::Client;
pub use doctor::{DoctorAction, DoctorOptions};
pub use error::{CallError, CliError};
pub use global::{DEFAULT_SOCKET, Global};
pub use init::InitOptions;
pub use list_options::{ListOptions, ViewOptions};
pub use options::{
    AgentAction, AuditAction, AuditOptions, BlackBoxOptions, BreakerAction, BuildImageOptions,
    CheckOptions, Cli, ClusterAction, Command, CompletedShell, ConfigAction, CopyOptions,
    CpOptions, DemoOptions, EventsOptions, HoldNextOptions, HoldOptions, ImageAction, LeaseAction,
    LeaseOptions, LeasesOptions, Limit, LogsOptions, MachineAction, MembersAction, NodeAction,
    Noun, RangeOptions, ResizeOptions, RunOptions, ShardConfigAction, ShardPutOptions, ShownNode,
    SnapshotAction, SshOptions, StoreOptions, TakeOptions, TemplateAction, TopOptions,
    TraceOptions, UsageBy, UsageOptions, WaitOptions,
};
pub use over_ssh::{RunOverSsh, SshJob};
pub use progress::Live;
pub use screen::{ColorWhen, Output, Screen};
pub use setup::{DhcpOptions, RightsOptions, ServiceOptions, SetupAction, VipOptions};
pub use sim_options::{Accelerator, GuestKind, PveVersion, SimOptions};
pub use term::Term;

/// Parses the arguments, does what they say, and gives the exit code.
pub fn main() -> ExitCode {
    if let Some(words) = candidates::asked() {
        return candidates::print(&words);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            let words: Vec<OsString> = std::env::args_os().skip(1).collect();
            slips::tip(&mut error, &words);
            return help::answer(&error, words).unwrap_or_else(|| help::usage(&error));
        }
    };
    if !cli.global.die_with_parent() {
        return ExitCode::from(report::FAILED);
    }
    let cli = Cli { global: cli.global.settled(), command: remote::plain(cli.command) };
    if let Err(error) = lists::check(cli.global.output(), &cli.command) {
        return report::fail_by(cli.global.json, &error, &format!("drover: {}\n", chain(&error)));
    }
    match cli.command {
        Command::Run(options) => service::run(&cli.global, options),
        Command::Demo(options) => service::demo(&cli.global, options),
        Command::Sim(options) => service::sim(&cli.global, options),
        Command::Check(options) => check::check(&cli.global, &options),
        Command::Schema => {
            stdout::put_value(cli.global.output(), &drover_config::schema(), ExitCode::SUCCESS)
        }
        Command::Completions { shell } => completions::print(&cli.global, shell),
        Command::Config(action) => explain::config(&cli.global, &action),
        Command::Journal(action) => journal::journal(&cli.global, &action),
        Command::Audit { action: Some(AuditAction::Verify { path, holds }), .. } => {
            audit::verify(&cli.global, path.as_deref(), holds.as_deref())
        }
        Command::ShardConfig(action) => shard_config::shard_config(&cli.global, &action),
        Command::Man { directory } => man::pages(&cli.global, directory.as_deref()),
        Command::Template { action: TemplateAction::Copy(options) } => {
            service::copy(&cli.global, &options)
        }
        Command::Doctor(options) if options.action.is_none() => {
            doctor::examine(&cli.global, &options)
        }
        Command::Setup { action } => setup::run(&cli.global, &action),
        Command::Init(options) => init::run(&cli.global, &options),
        Command::Simulate(options) => simulate::simulate(&cli.global, &options),
        Command::Top(options) => top::run(&cli.global, &options),
        Command::Doctor(_)
        | Command::CreateShardConfig(_)
        | Command::Status(_)
        | Command::Agents { .. }
        | Command::Templates { .. }
        | Command::Breakers { .. }
        | Command::Cluster { .. }
        | Command::Nodes(_)
        | Command::Node { .. }
        | Command::Why { .. }
        | Command::Jobs(_)
        | Command::Image(_)
        | Command::AddressPools(_)
        | Command::Members { .. }
        | Command::TransferLeadership { .. }
        | Command::Provision { .. }
        | Command::Lease { .. }
        | Command::Get { .. }
        | Command::Show { .. }
        | Command::Clouds { .. }
        | Command::Sources(_)
        | Command::Alarms(_)
        | Command::Images(_)
        | Command::Machines(_)
        | Command::Cordon(_)
        | Command::Drain(_)
        | Command::Uncordon(_)
        | Command::Ssh(_)
        | Command::Cp(_)
        | Command::Logs(_)
        | Command::Leases(_)
        | Command::Release { .. }
        | Command::Retire { .. }
        | Command::Hold(_)
        | Command::HoldNext(_)
        | Command::ReleaseHold { .. }
        | Command::Machine(_)
        | Command::Plan(_)
        | Command::Sync(_)
        | Command::Notify(_)
        | Command::Reap { .. }
        | Command::Resync { .. }
        | Command::Reload
        | Command::Audit { .. }
        | Command::Blackbox(_)
        | Command::Usage(_)
        | Command::Trace(_)
        | Command::Events(_) => ask(cli),
    }
}

/// Runs a command that talks to a running service.
fn ask(cli: Cli) -> ExitCode {
    let json = cli.global.json;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let screen = Screen::of_process(cli.global.output(), cli.global.color);
            let live = Live::of_process(cli.global.output());
            let (mut out, mut err) = (live.above(io::stdout()), live.above(io::stderr()));
            let mut term = Term { out: &mut *out, err: &mut *err, screen, live };
            runtime.block_on(remote::run(&cli.global, cli.command, &mut term))
        }
        Err(error) => Err(CliError::Failed(format!("cannot start the runtime: {error}"))),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(CliError::Output(error)) => stdout::not_written(json, error),
        Err(error) => report::fail_by(json, &error, &format!("drover: {}\n", chain(&error))),
    }
}

#[cfg(test)]
mod tests;
