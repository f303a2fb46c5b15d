//! Options of the commands that need no running service: `run`, `demo`, `check`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::shard::StoreOptions;

/// Options of `run`.
#[derive(Debug, Clone, Default, Args)]
pub struct RunOptions {
    /// Exit with 1 when a cloud cannot be reached at the start
    #[arg(long)]
    pub strict: bool,
    /// Directory of the journal [default: $STATE_DIRECTORY, else /var/lib/drover]
    #[arg(long, value_name = "DIR", env = "DROVER_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreOptions,
    /// Read the configuration from the store too, where `drover shard-config put` puts it [default: where
    /// store and key are given and there is no YAML file]
    #[arg(long, env = "DROVER_CONFIG_FROM_STORE", value_parser = FalseyValueParser::new())]
    pub config_from_store: bool,
    /// Name of this member of a store [default: the machine's name]
    #[arg(long, visible_alias = "id", value_name = "NAME", env = "DROVER_MEMBER")]
    pub member: Option<String>,
    /// URL where other members of the store reach this one [default: by service.listen]
    #[arg(long, value_name = "URL", env = "DROVER_ADVERTISE")]
    pub advertise: Option<String>,
}

/// Options of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoOptions {
    /// Exit when the story has ended
    #[arg(long)]
    pub once: bool,
    /// Print plain lines even on a terminal
    #[arg(long)]
    pub plain: bool,
    /// Seed of the simulated cluster
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Jobs in the batch
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub jobs: u32,
    /// Keep the folder with state, keys and logs, and print its path
    #[arg(long)]
    pub keep: bool,
    /// Record the screen into this file, as an animated SVG
    #[arg(long, value_name = "FILE", hide = true)]
    pub record: Option<PathBuf>,
}

/// Options of `check`.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckOptions {
    /// The file, instead of the one that --config names
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Try each cloud and print its version
    #[arg(long)]
    pub connect: bool,
}
