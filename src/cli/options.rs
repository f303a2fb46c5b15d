//! The arguments of every command.

mod actions;
mod audit;
mod black_box;
mod history;
mod image;
mod lease;
mod machine;
mod notes;
mod notify;
mod nouns;
mod read;
mod run;
mod shard;
mod simulate;
mod sync;
mod watching;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use super::doctor::DoctorOptions;
use super::global::Global;
use super::init::InitOptions;
use super::list_options::{ListOptions, ViewOptions};
use super::setup::SetupAction;
use super::sim_options::SimOptions;
pub use actions::{
    AgentAction, BreakerAction, ClusterAction, CopyOptions, Limit, NodeAction, TemplateAction,
};
pub use audit::{AuditAction, AuditOptions};
pub use black_box::BlackBoxOptions;
pub use history::{RangeOptions, TraceOptions, UsageBy, UsageOptions};
pub use image::{BuildImageOptions, ImageAction};
pub use lease::{HoldNextOptions, HoldOptions, LeaseAction, LeaseOptions};
pub use machine::{
    CloneOptions, MachineAction, ResizeOptions, SnapshotAction, TakeOptions, WaitOptions,
};
pub use notify::NotifyAction;
pub use nouns::{ConfigAction, CpOptions, JournalAction, LogsOptions, Noun, ShownNode, SshOptions};
pub use run::{CheckOptions, DemoOptions, RunOptions};
pub use shard::{MembersAction, ShardConfigAction, ShardPutOptions, StoreOptions, StorePlace};
pub use simulate::SimulateOptions;
pub use sync::{CloudsAction, PlanOptions, Rollout, SyncOptions, TemplatesAction, Value};
pub use watching::{EventsOptions, LeasesOptions, TopNoun, TopOptions};

/// Turns Proxmox VE clusters into a pool of throw-away CI machines.
#[derive(Debug, Parser)]
#[command(name = "drover", version, about, max_term_width = 100, after_long_help = notes::ending())]
pub struct Cli {
    /// Options of all commands.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Run the service
    Run(RunOptions),
    /// Show everything on a simulated cluster
    Demo(DemoOptions),
    /// Run a simulated Proxmox VE cluster
    Sim(SimOptions),
    /// Check a configuration
    Check(CheckOptions),
    /// Look up values of the configuration, and what its keys mean
    #[command(subcommand)]
    Config(ConfigAction),
    /// Look into the journal of a service that does not run, or copy it; what is read does not change
    #[command(subcommand)]
    Journal(JournalAction),
    /// Keep the configuration of a herd in the store of its members: put it there, get it back
    #[command(subcommand, after_help = "The page of the book: `drover help members.md`")]
    ShardConfig(ShardConfigAction),
    /// Put a configuration into the store of a shard, as `drover shard-config put` does
    CreateShardConfig(ShardPutOptions),
    /// Look at each cloud: endpoints, rights, storages, bridges, templates; say what repairs it
    #[command(args_conflicts_with_subcommands = true)]
    Doctor(DoctorOptions),
    /// Write the first configuration: looks at a cluster, makes token, rights and key, asks before it writes
    #[command(after_help = "The page of the book: `drover help quickstart`")]
    Init(Box<InitOptions>),
    /// Set up, with an administrator's rights, what drover needs on a cluster
    Setup {
        /// What to set up
        #[command(subcommand)]
        action: SetupAction,
    },
    /// Print the JSON Schema of the configuration, for editors
    Schema,
    /// Print what a shell needs to complete commands, options, ids and names
    #[command(after_help = notes::INSTALL)]
    Completions {
        /// The shell that is to complete them
        shell: CompletedShell,
    },
    /// Print the man page of drover, or write that of every command
    Man {
        /// Write all pages into this directory, one for each command
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
    /// Show clouds, templates, agents, leases, configuration and alarms
    Status(ViewOptions),
    /// List things of one kind, as `drover agents` does; with an ID, show one, as `drover show` does
    Get {
        /// The kind of things
        noun: Noun,
        /// The one to show
        id: Option<String>,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Show one thing in full: what it is, its history, why it waits, and what to run next
    Show {
        /// The kind of thing
        noun: Noun,
        /// Its id or name, or the start of its id
        id: String,
    },
    /// List agents, or set limits of one against its template's
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "The page of the book: `drover help agents.md`"
    )]
    Agents {
        /// List those that went too
        #[arg(long)]
        gone: bool,
        /// Which, and how
        #[command(flatten)]
        list: ListOptions,
        /// What to do instead
        #[command(subcommand)]
        action: Option<AgentAction>,
    },
    /// List clouds: health, version, agents, and what is wrong; or set the cap of one
    #[command(args_conflicts_with_subcommands = true)]
    Clouds {
        /// Which, and how
        #[command(flatten)]
        list: ListOptions,
        /// What to do instead
        #[command(subcommand)]
        action: Option<CloudsAction>,
    },
    /// List templates, and what each is cloned from; or set values of one
    #[command(args_conflicts_with_subcommands = true)]
    Templates {
        /// Which, and how
        #[command(flatten)]
        list: ListOptions,
        /// What to do instead
        #[command(subcommand)]
        action: Option<TemplatesAction>,
    },
    /// Work with one template of the configuration
    Template {
        /// What to do
        #[command(subcommand)]
        action: TemplateAction,
    },
    /// List circuit breakers that are not closed, or close one
    #[command(args_conflicts_with_subcommands = true)]
    Breakers {
        /// Which, and how
        #[command(flatten)]
        list: ListOptions,
        /// What to do instead
        #[command(subcommand)]
        action: Option<BreakerAction>,
    },
    /// Work with the cluster behind one cloud
    Cluster {
        /// What to do
        #[command(subcommand)]
        action: ClusterAction,
    },
    /// List nodes: what is free, what agents take, and what is started on none of them
    Nodes(ListOptions),
    /// Start nothing on a node any more; agents there stay and take leases; across restarts
    Cordon(ShownNode),
    /// Start nothing on a node any more: idle agents go, busy ones finish; across restarts
    Drain(ShownNode),
    /// Use a node again, after a cordon or a drain
    Uncordon(ShownNode),
    /// Work with one node (`drover drain` and `drover uncordon` do the same)
    Node {
        /// What to do
        #[command(subcommand)]
        action: NodeAction,
    },
    /// Show why something waits, in numbers, and what keeps templates from each node
    Why {
        /// A template, a source, a lease, an agent, a node, or a job (its id, its name, or
        /// SOURCE/ID) [default: all templates]
        #[arg(value_name = "TEMPLATE|SOURCE|LEASE|AGENT|NODE|JOB")]
        of: Option<String>,
        /// How it is shown
        #[command(flatten)]
        view: ViewOptions,
    },
    /// Build, list, prune and import template images
    #[command(after_help = "The page of the book: `drover help images.md`")]
    #[command(subcommand)]
    Image(ImageAction),
    /// List jobs of CI systems that wait, run, or are left alone
    Jobs(ListOptions),
    /// List sources of jobs: what waits, what runs, and why one cannot be polled
    Sources(ListOptions),
    /// List what needs an administrator, each with the command that helps
    Alarms(ListOptions),
    /// List images, their versions, and builds that run, as `drover image list` does
    #[command(after_help = "The page of the book: `drover help images.md`")]
    Images(ListOptions),
    /// List machines of the configuration, as `drover machine list` does
    #[command(after_help = "The page of the book: `drover help machines.md`")]
    Machines(ListOptions),
    /// List pools of addresses: size, used, resting, free, and when the next is free
    AddressPools(ListOptions),
    /// List members of the store that drovers share: who leads, why one does not; or forget one that is gone
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "The page of the book: `drover help members.md`"
    )]
    Members {
        /// Which, and how
        #[command(flatten)]
        list: ListOptions,
        /// What to do instead
        #[command(subcommand)]
        action: Option<MembersAction>,
    },
    /// Let another member of the store lead
    #[command(after_help = "The page of the book: `drover help members.md`")]
    TransferLeadership {
        /// The member that is to lead [default: the first that can]
        member: Option<String>,
    },
    /// Begin agents of a template at once, without demand
    Provision {
        /// The template, `cloud/template` or its bare name
        template: String,
        /// The number of agents to make
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        count: u32,
    },
    /// Lease an agent; with CMD, run it there over SSH and release
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Lease {
        /// What to lease
        #[command(flatten)]
        options: Box<LeaseOptions>,
        /// What to do instead
        #[command(subcommand)]
        action: Option<LeaseAction>,
    },
    /// List leases: what they want, whose they are, why they wait; or end them
    Leases(LeasesOptions),
    /// End leases, as `drover lease release` does (safe to repeat)
    Release {
        /// The ids of the leases, or the starts of them
        #[arg(required = true, value_name = "LEASE")]
        leases: Vec<String>,
    },
    /// Retire an agent, after its last lease
    Retire {
        /// The id of the agent, or the start of it
        agent: String,
    },
    /// Hold an agent for debugging, with a login; it is destroyed afterwards
    Hold(HoldOptions),
    /// Hold the next agent of a template that fails on its way, with a login
    HoldNext(HoldNextOptions),
    /// End a hold before its time
    ReleaseHold {
        /// The id of the agent, or the start of it
        agent: String,
    },
    /// Look at the machine of an agent or a lease, switch it, give it other sizes, take snapshots
    #[command(after_help = "The page of the book: `drover help machines.md`")]
    #[command(subcommand)]
    Machine(MachineAction),
    /// Retire everything idle that may go
    Reap {
        /// The warm minimum too
        #[arg(long)]
        all: bool,
    },
    /// Read the configuration again, and reconcile every cluster fully and at once
    Resync {
        /// The journal is a restored backup, and this is known: orphans that it does not know may go
        #[arg(long)]
        confirm_older_journal: bool,
        /// The state directory was moved to this machine, and no other drover uses a copy of it
        #[arg(long)]
        confirm_machine: bool,
        /// Print what would be destroyed, followed, left alone and reported, and why; change nothing
        #[arg(long, conflicts_with_all = ["confirm_older_journal", "confirm_machine"])]
        dry_run: bool,
    },
    /// Read the configuration again
    Reload,
    /// Say what a configuration would do: agents that start, go or are replaced, caps, jobs that nothing
    /// would serve; change nothing
    Plan(PlanOptions),
    /// Bring into force what git has, or return to a commit that was in force
    Sync(SyncOptions),
    /// Test the channels over which drover sends what is wrong
    #[command(subcommand)]
    Notify(NotifyAction),
    /// Log in to an agent, or run a command there
    #[command(after_help = notes::KEYS)]
    Ssh(SshOptions),
    /// Copy files to an agent, or from it
    #[command(after_help = notes::KEYS)]
    Cp(CpOptions),
    /// Print what drover did with an agent: phases and events; with --guest, what the guest logged
    Logs(LogsOptions),
    /// Show what drover kept of an agent that failed: what happened, phases, tasks of Proxmox with their logs
    Blackbox(BlackBoxOptions),
    /// Follow what happens
    Events(EventsOptions),
    /// Replay a trace on a configuration in virtual time: waits, VM-hours, caps; suggest warm pools and sizes
    #[command(after_help = "The page of the book: `drover help forecast`")]
    Simulate(SimulateOptions),
    /// Show the herd live on a terminal, with keys for lists, details and actions
    Top(TopOptions),
    /// Show what was used: VM-hours, core-hours, GiB-hours, leases, jobs, waits, failures, price
    Usage(UsageOptions),
    /// Export the history that drover has seen, as lines of JSON
    Trace(TraceOptions),
    /// List who changed what; or verify that nobody changed the records
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "The page of the book: `drover help audit.md`"
    )]
    Audit {
        #[command(flatten)]
        options: AuditOptions,
        /// What to do instead
        #[command(subcommand)]
        action: Option<AuditAction>,
    },
}

/// Shells that completions are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompletedShell {
    Bash,
    Zsh,
    Fish,
}

#[cfg(test)]
mod tests;
