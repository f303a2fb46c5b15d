//! The arguments of `drover lease`, `drover hold` and `drover hold-next`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use drover_model::size::Part;

use super::super::stdin::is_standard_input;
use super::read::{read_size, read_span};

/// What to do with leases that are there, instead of taking one.
#[derive(Debug, Clone, Subcommand)]
pub enum LeaseAction {
    /// Let a lease last longer, from this moment
    Renew {
        /// The id of the lease, or the start of it
        lease: String,
        /// How long it lasts from now on, such as 90s, 30m, 2h
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = read_span)]
        ttl: Duration,
    },
    /// End leases (safe to repeat)
    Release {
        /// The ids of the leases, or the starts of them
        #[arg(required = true, value_name = "LEASE")]
        leases: Vec<String>,
    },
}

/// Options of `lease`.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["labels", "label_expression", "template"])))]
#[command(after_help = "\
Exit codes:
  that of CMD  it ran to its end (255: a signal ended it)
  0            without CMD: the agent is leased
  1            drover refused, or CMD could not be run
  2            the arguments do not fit together
  69           no drover answers
  75           the machine was lost, the lease expired or somebody released it, or the wait was too
               long: run it again
  129 130 143  SIGHUP, SIGINT (Ctrl-C) or SIGTERM ended drover, which released the lease")]
pub struct LeaseOptions {
    /// Labels the template must carry, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub labels: Option<Vec<String>>,
    /// Expression over its labels as in Jenkins, such as 'linux && (x64 || !slow)'
    #[arg(long, value_name = "EXPR")]
    pub label_expression: Option<String>,
    /// The template, `cloud/template` or its bare name
    #[arg(long)]
    pub template: Option<String>,
    /// Processor cores of the machine, within the limits of its template
    #[arg(long, value_name = "CORES", value_parser = read_size(Part::Cores))]
    pub cpu: Option<u32>,
    /// Memory of the machine, such as 16g, within the limits of its template
    #[arg(long, value_name = "SIZE", value_parser = read_size(Part::Memory))]
    pub memory: Option<u32>,
    /// Boot disk of the machine, such as 100g, within the limits of its template
    #[arg(long, value_name = "SIZE", value_parser = read_size(Part::Disk))]
    pub disk: Option<u32>,
    /// How long it lasts at most, such as 90s, 30m, 2h
    #[arg(long, default_value = "1h", value_parser = read_span)]
    pub ttl: Duration,
    /// How long to wait for an agent, such as 10m; then the lease is released [default: as long as
    /// service.leases.maxWaitSeconds says]
    #[arg(long, value_name = "TIME", value_parser = read_span)]
    pub wait: Option<Duration>,
    /// For whom [default: the caller]
    #[arg(long)]
    pub owner: Option<String>,
    /// Private key to log in with [default: a new one for this lease]
    #[arg(short = 'i', value_name = "KEYFILE")]
    pub identity: Option<PathBuf>,
    /// File with the passphrase of that key
    #[arg(long, value_name = "FILE", env = "DROVER_KEY_PASSPHRASE_FILE")]
    pub passphrase_file: Option<PathBuf>,
    /// File for the machine, of any kind; its lines NAME=value are variables of CMD (`-` reads it here)
    #[arg(long, value_name = "FILE")]
    pub user_data: Option<PathBuf>,
    /// What to run there, with the standard input of drover; several words are quoted, a single one
    /// goes to the shell as it is
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

impl LeaseOptions {
    /// Whether the standard input is the file for the machine.
    pub(in crate::cli) fn reads_user_data(&self) -> bool {
        self.user_data.as_deref().is_some_and(is_standard_input)
    }
}

/// Options of `hold`.
#[derive(Debug, Clone, Args)]
pub struct HoldOptions {
    /// The agent: held at once when it is free, else after its last lease
    pub agent: String,
    /// How long, such as 90s, 30m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = read_span)]
    pub span: Duration,
    /// File of the public key to let in [default: a new key, printed once]
    #[arg(long, value_name = "FILE")]
    pub public_key: Option<PathBuf>,
}

/// Options of `hold-next`.
#[derive(Debug, Clone, Args)]
pub struct HoldNextOptions {
    /// The template, its bare name or cloud/template
    pub template: String,
    /// How long, such as 90s, 30m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = read_span)]
    pub span: Duration,
    /// File of the public key to let in [default: a new key, printed once]
    #[arg(long, value_name = "FILE")]
    pub public_key: Option<PathBuf>,
    /// Hold none: take it back
    #[arg(long, conflicts_with = "public_key")]
    pub off: bool,
}
