//! `drover setup`: what has to be done is decided by [`drover_admin::setup`]; here an administrator is asked
//! for a password, and what is done is printed.

mod dhcp;
mod login;
mod node;
mod output;
mod rights;
mod rotate;
mod service;
mod steps;
mod vip;

use std::io;
use std::process::ExitCode;

use clap::Subcommand;

use super::error::CliError;
use super::global::Global;
use super::progress::Live;
use super::report;
use super::runtime::runtime;
use super::stdout::not_written;

pub use dhcp::DhcpOptions;
pub(super) use login::{asks_password, password};
pub(super) use output::SetupOutput;
pub use rights::RightsOptions;
pub(super) use rights::{refuse_without, role_prefix, run_as as rights_as};
pub use service::ServiceOptions;
pub use vip::VipOptions;

/// What to set up.
#[derive(Debug, Clone, Subcommand)]
pub enum SetupAction {
    /// Make user, token, pool, roles and access entries: the least that the configuration needs
    Rights(RightsOptions),
    /// Make the container or virtual machine that drover runs in, and install it there
    Service(Box<ServiceOptions>),
    /// Set up a DHCP server for a bridge on one node, or for a zone of Proxmox's SDN
    Dhcp(Box<DhcpOptions>),
    /// Set up keepalived, which gives a virtual IP address to a machine whose drover is ready
    Vip(Box<VipOptions>),
}

pub(super) fn run(global: &Global, action: &SetupAction) -> ExitCode {
    reporting(global, async |out| match action {
        SetupAction::Rights(options) => rights::run(global, options, out).await,
        SetupAction::Service(options) => service::run(global, options, out).await,
        SetupAction::Dhcp(options) => dhcp::run(global, options, out).await,
        SetupAction::Vip(options) => vip::run(global, options, out).await,
    })
}

/// Does work that reports what it does; gives the exit code.
pub(super) fn reporting(
    global: &Global,
    work: impl AsyncFnOnce(&mut SetupOutput<'_>) -> Result<(), CliError>,
) -> ExitCode {
    let json = global.json;
    let live = Live::of_process(global.output());
    let mut stdout = live.above(io::stdout());
    let done = runtime(json).and_then(|runtime| {
        let mut out = SetupOutput::new(&mut *stdout, json, live);
        let done = runtime.block_on(work(&mut out));
        let done = out.end(global.output(), done);
        done.map_err(|error| match error {
            CliError::Output(error) => not_written(json, error),
            error @ (CliError::Usage(_)
            | CliError::Config(_)
            | CliError::Call(_)
            | CliError::Failed(_)
            | CliError::Waited(_)
            | CliError::Over(_)) => report::fail_by(json, &error, &format!("drover: {error}\n")),
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}
