//! What to do with one thing: a template, a breaker, a cluster, a node, an agent.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use super::read::read_limit;

/// What to do with one template.
#[derive(Debug, Clone, Subcommand)]
pub enum TemplateAction {
    /// Print a new template with the values of another one, as YAML
    Copy(CopyOptions),
}

/// Options of `template copy`.
#[derive(Debug, Clone, Args)]
pub struct CopyOptions {
    /// The template to copy
    pub old: String,
    /// The new template's key
    pub new: String,
    /// A value of its own, such as `cores=4`; an empty one takes the key out
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write it into this YAML file of the configuration, behind what is there
    #[arg(long, value_name = "FILE")]
    pub into: Option<PathBuf>,
}

/// What to do with breakers.
#[derive(Debug, Clone, Subcommand)]
pub enum BreakerAction {
    /// Close one at once: agents are started again
    Reset {
        /// A template, or such as node:pve1, storage:nfs, cloud:rack
        breaker: String,
    },
}

/// What to do with the cluster behind one cloud.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterAction {
    /// Say that it is the same cluster as before, whose root CA was made again; the marks of drover's
    /// guests there must prove it
    Confirm {
        /// The name of the cloud
        cloud: String,
        /// drover has no guest there that could prove it
        #[arg(long)]
        no_guests: bool,
    },
}

/// What to do with one node.
#[derive(Debug, Clone, Subcommand)]
pub enum NodeAction {
    /// Start nothing there any more: idle agents go, busy ones finish; across restarts
    Drain {
        /// The name of the node
        node: String,
        /// Use it again
        #[arg(long)]
        undrain: bool,
        /// A cloud of its cluster, where several clusters have such a node
        #[arg(long)]
        cloud: Option<String>,
    },
}

/// What to do with one agent.
#[derive(Debug, Clone, Subcommand)]
pub enum AgentAction {
    /// Set limits of an agent against its template's; they hold across restarts
    #[command(group(ArgGroup::new("limit").required(true).multiple(true).args(["idle", "max_uses"])))]
    Set {
        /// The id of the agent, or the start of it
        agent: String,
        /// Minutes of idling after which it goes, 0 for never; `template` takes it back
        #[arg(long, value_name = "MINUTES", value_parser = read_limit)]
        idle: Option<Limit>,
        /// Uses after which it goes, 0 for no limit; `template` takes it back
        #[arg(long, value_name = "USES", value_parser = read_limit)]
        max_uses: Option<Limit>,
    },
}

/// A limit of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// As its template says.
    Template,
    Own(u32),
}
