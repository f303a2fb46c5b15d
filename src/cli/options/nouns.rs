//! The kinds of things that commands list and show, and arguments that name one of them.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::read::read_span;
use super::shard::StorePlace;

/// A kind of things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Noun {
    #[value(alias = "agents")]
    Agent,
    #[value(alias = "leases")]
    Lease,
    #[value(alias = "templates")]
    Template,
    #[value(alias = "clouds")]
    Cloud,
    #[value(alias = "nodes")]
    Node,
    #[value(alias = "sources")]
    Source,
    #[value(alias = "jobs")]
    Job,
    #[value(alias = "alarms")]
    Alarm,
    #[value(alias = "images")]
    Image,
    #[value(alias = "machines")]
    Machine,
    #[value(alias = "breakers")]
    Breaker,
    #[value(alias = "address-pools")]
    AddressPool,
}

impl Noun {
    /// All kinds, in the order of the help.
    pub const ALL: [Self; 12] = [
        Self::Agent,
        Self::Lease,
        Self::Template,
        Self::Cloud,
        Self::Node,
        Self::Source,
        Self::Job,
        Self::Alarm,
        Self::Image,
        Self::Machine,
        Self::Breaker,
        Self::AddressPool,
    ];

    /// The word for one.
    pub fn one(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Lease => "lease",
            Self::Template => "template",
            Self::Cloud => "cloud",
            Self::Node => "node",
            Self::Source => "source",
            Self::Job => "job",
            Self::Alarm => "alarm",
            Self::Image => "image",
            Self::Machine => "machine",
            Self::Breaker => "breaker",
            Self::AddressPool => "address-pool",
        }
    }

    /// The command that lists them.
    pub fn list(self) -> String {
        format!("{}s", self.one())
    }
}

/// A node to work with.
#[derive(Debug, Clone, Args)]
pub struct ShownNode {
    /// The name of the node
    pub node: String,
    /// A cloud of its cluster, where several clusters have such a node
    #[arg(long)]
    pub cloud: Option<String>,
}

/// Options of `ssh`.
#[derive(Debug, Clone, Args)]
pub struct SshOptions {
    /// The id of the agent, or of a lease on it, or the start of either
    #[arg(value_name = "AGENT|LEASE")]
    pub target: String,
    /// Without a lease of yours on it: hold the agent, which drover destroys afterwards
    #[arg(long)]
    pub hold: bool,
    /// How long it is held, such as 90s, 30m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = read_span, requires = "hold")]
    pub span: Duration,
    /// What to run there; without it, a shell
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Options of `cp`.
#[derive(Debug, Clone, Args)]
pub struct CpOptions {
    /// What to copy: a path here, or AGENT:PATH, or LEASE:PATH
    #[arg(value_name = "SRC")]
    pub source: String,
    /// Where to: a path here, or AGENT:PATH, or LEASE:PATH
    #[arg(value_name = "DST")]
    pub target: String,
    /// Copy directories with all that is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Without a lease of yours on it: hold the agent, which drover destroys afterwards
    #[arg(long)]
    pub hold: bool,
    /// How long it is held, such as 90s, 30m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = read_span, requires = "hold")]
    pub span: Duration,
}

/// Options of `logs`.
#[derive(Debug, Clone, Args)]
pub struct LogsOptions {
    /// The id of the agent, or of a lease on it, or the start of either
    #[arg(value_name = "AGENT|LEASE")]
    pub target: String,
    /// Follow what happens, until the agent is gone
    #[arg(short, long)]
    pub follow: bool,
    /// What cloud-init logged in the guest, over SSH with the key of your lease
    #[arg(long)]
    pub guest: bool,
}

/// How to look into a journal.
#[derive(Debug, Clone, Subcommand)]
pub enum JournalAction {
    /// Read all of it as a start would, and say whether it is sound and what it holds
    Verify {
        /// The journal: its file or text, the state directory, etcd://HOST:PORT/PREFIX or
        /// s3://BUCKET/PREFIX [default: that of the store, else that of the configuration]
        journal: Option<String>,
        #[command(flatten)]
        store: StorePlace,
    },
    /// List the records after its snapshot: when each was written, and what it is about
    Inspect {
        /// The journal: its file or text, the state directory, etcd://HOST:PORT/PREFIX or
        /// s3://BUCKET/PREFIX [default: that of the store, else that of the configuration]
        journal: Option<String>,
        /// Only records after this one
        #[arg(long, value_name = "RECORD")]
        after: Option<u64>,
        /// Only records about this agent, lease, template, cluster, source or node, by its id or the start of it
        #[arg(long, value_name = "ID")]
        about: Option<String>,
        #[command(flatten)]
        store: StorePlace,
    },
    /// Copy it to where none is yet: to another file, to a store, or as text, and back. While a drover leads in
    /// a store, nothing is copied from or to it
    Copy {
        /// A file, a state directory, a text file (.jsonl), etcd://HOST[:2379],HOST[:2379]/PREFIX
        /// (etcds:// with TLS; ?caFile=PATH&user=NAME&passwordFile=PATH), s3://BUCKET/PREFIX or
        /// gs://BUCKET/PREFIX (?endpoint=URL&region=NAME and others; the login is in the environment or
        /// in files)
        from: String,
        /// The same; a file must not be there, a prefix of a store must be empty
        to: String,
        /// File of the key of the members, under which a store keeps what lies beside the journal
        #[arg(long, value_name = "FILE", env = "DROVER_CLUSTER_KEY_FILE")]
        cluster_key_file: Option<PathBuf>,
        /// Leave what lies beside it: keys of agents, user data, the key of guests that call in
        #[arg(long)]
        journal_only: bool,
    },
}

/// What to look up in the configuration.
#[derive(Debug, Clone, Subcommand)]
pub enum ConfigAction {
    /// List every value in force, with the file and line, variable or default it comes from
    Show {
        /// Only values that a file or a variable gives
        #[arg(long)]
        given: bool,
    },
    /// Print one value in force, such as service.logLevel or agentConfigurations.linux.memoryMb
    Get {
        /// The path of the key
        key: String,
    },
    /// Encrypt a secret from standard input, for `secretAge` in a file of git
    Encrypt {
        /// Whom it is for, such as age1…; [default: service.ageIdentity of the configuration]
        #[arg(long, value_name = "RECIPIENT")]
        recipient: Option<String>,
    },
    /// Print a new identity for service.ageIdentity, with its recipient in the first line
    AgeKey,
    /// Say what a key means: type, default, example; without KEY, the sections of the top level
    Explain {
        /// A key such as memoryMb, or its path, such as agentDefaults.memoryMb
        key: Option<String>,
    },
}
