//! Options of `drover simulate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::read::read_span;

/// What is replayed, and on what.
#[derive(Debug, Clone, Args)]
pub struct SimulateOptions {
    /// The trace, as `drover trace` writes it; `-` for standard input
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Replay it on this configuration too, and show both; may be given up to 8 times
    #[arg(long, value_name = "FILE")]
    pub compare: Vec<PathBuf>,
    /// Search the smallest warm pools with which 95 of 100 wait no longer than this, such as 10s
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub wait: Option<Duration>,
    /// The number that all chance of the replay comes from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Processor threads of each node [default: enough for all agents]
    #[arg(
        long,
        value_name = "COUNT",
        requires = "node_memory",
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    pub node_cores: Option<u32>,
    /// Memory of each node in GiB [default: enough for all agents]
    #[arg(
        long,
        value_name = "GIB",
        requires = "node_cores",
        value_parser = clap::value_parser!(u32).range(1..=1_048_576)
    )]
    pub node_memory: Option<u32>,
}
