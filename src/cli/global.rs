//! Options of all commands.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;
use drover_ssh::quote;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::screen::{ColorWhen, Output};

/// Where the service listens when nothing is said.
pub const DEFAULT_SOCKET: &str = "/run/drover/drover.sock";

const COMMON: &str = "Common options";

/// Options of all commands.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Configuration: a YAML file, or a directory of them [default of run and check: /etc/drover]
    #[arg(long, global = true, help_heading = COMMON, value_name = "PATH", env = "DROVER_CONFIG")]
    pub config: Option<PathBuf>,
    /// Unix socket of the service [default: that of --config, else /run/drover/drover.sock]
    #[arg(long, global = true, help_heading = COMMON, value_name = "PATH", env = "DROVER_SOCKET")]
    pub socket: Option<PathBuf>,
    /// Address of a service elsewhere, such as `https://drover.example.com`
    #[arg(long, global = true, help_heading = COMMON, value_name = "URL", env = "DROVER_URL")]
    pub url: Option<String>,
    /// File with the bearer token for --url
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DROVER_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// How to print: text for people, JSON or YAML for scripts, or the names alone of what is listed
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "FORM", value_enum, conflicts_with = "json")]
    pub output: Option<Output>,
    /// Print JSON for scripts (as `--output json`)
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
    /// When to colour states
    #[arg(long, global = true, help_heading = COMMON, value_name = "WHEN", value_enum, default_value_t)]
    pub color: ColorWhen,
    /// Be killed with this parent process
    #[arg(long, global = true, value_name = "PID", hide = true)]
    pub die_with: Option<u32>,
}

impl Global {
    /// Asks the kernel to kill this process together with the parent that `--die-with` names. False
    /// when that parent is gone already.
    pub(super) fn die_with_parent(&self) -> bool {
        let Some(parent) = self.die_with else { return true };
        let signal = set_parent_process_death_signal(Some(Signal::KILL));
        // It may be gone already, and then nobody sends the signal any more.
        let is_there = getppid().is_some_and(|now| now.as_raw_pid().unsigned_abs() == parent);
        signal.is_ok() && is_there
    }

    /// How commands that ask the same service begin. `known` is the configuration that a variable names,
    /// so that no command needs to.
    pub(super) fn program(&self, known: Option<&OsStr>) -> String {
        let named = self.config.as_deref().filter(|config| Some(config.as_os_str()) != known);
        match named.filter(|_| self.socket.is_none() && self.url.is_none()) {
            Some(config) => format!("drover --config {}", quote(&config.display().to_string())),
            None => "drover".to_owned(),
        }
    }

    /// How to print.
    pub(super) fn output(&self) -> Output {
        match self.output {
            Some(output) => output,
            None if self.json => Output::Json,
            None => Output::Table,
        }
    }

    /// With `json` set wherever scripts are to read what is printed.
    pub(super) fn settled(mut self) -> Self {
        self.json |= matches!(self.output, Some(Output::Json | Output::Yaml));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a command that is printed asks the service that was asked, as it is typed.

    #[test]
    fn a_configuration_that_an_option_names_stands_in_the_commands_that_are_printed() {
        let lab = Global { config: Some("my lab".into()), ..Global::default() };
        assert_eq!(lab.program(None), "drover --config 'my lab'");
        assert_eq!(lab.program(Some(OsStr::new("my lab"))), "drover", "a variable names it");
        assert_eq!(Global::default().program(None), "drover");
    }
}
