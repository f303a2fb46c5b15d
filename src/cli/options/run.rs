//! Options of `drover run`.

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
