//! `drover completions`: completions of commands and options for a shell, made from their definitions.
//!
//! For fish, clap_complete gives two levels of commands: `drover machine snapshot create` has its name
//! there, and not its options.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;
use serde_json::json;

use super::global::Global;
use super::options::{Cli, CompletedShell};
use super::stdout::{put, put_value};

/// Prints the completions for a shell.
pub(super) fn print(global: &Global, shell: CompletedShell) -> ExitCode {
    let script = script(shell);
    if global.json {
        return put_value(global.output(), &json!({ "script": script }), ExitCode::SUCCESS);
    }
    put(false, &script, ExitCode::SUCCESS)
}

/// The script that a shell loads.
pub(super) fn script(shell: CompletedShell) -> String {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "drover", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
