//! Options of all commands.

use std::path::PathBuf;

use clap::Args;

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
    #[arg(long, global = true, help_heading = COMMON, value_name = "URL", env = "DROVER_URL", requires = "token_file")]
    pub url: Option<String>,
    /// File with the bearer token for --url
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "DROVER_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,
    /// Print JSON for scripts
    #[arg(long, global = true, help_heading = COMMON)]
    pub json: bool,
}
