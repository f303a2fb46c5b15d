//! The commands that start something of their own: where the command line hands over.

use std::process::ExitCode;

use super::{CheckOptions, DemoOptions, Global, RunOptions, SimOptions};

/// Runs the service.
pub(super) fn run(_global: &Global, _options: RunOptions) -> ExitCode {
    not_joined("run")
}

/// Runs the demo.
pub(super) fn demo(_options: DemoOptions) -> ExitCode {
    not_joined("demo")
}

/// Runs the simulated cluster.
pub(super) fn sim(_options: SimOptions) -> ExitCode {
    not_joined("sim")
}

/// Checks the configuration.
pub(super) fn check(_global: &Global, _options: CheckOptions) -> ExitCode {
    not_joined("check")
}

/// Says that a command is not part of this build; goes away when the four above are joined.
#[expect(clippy::print_stderr, reason = "the command line talks to people")]
fn not_joined(command: &str) -> ExitCode {
    eprintln!("drover: `{command}` is not joined to the command line in this build");
    ExitCode::from(1)
}
