//! The arguments of every command.

mod audit;
mod black_box;
mod events;
mod image;
mod lease;
mod machine;
mod notes;
mod nouns;
mod run;
mod shard;
mod sync;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use drover_model::phase::LeasePhase;
use drover_model::size::Part;

use super::doctor::DoctorOptions;
use super::global::Global;
use super::init::InitOptions;
use super::list_options::{ListOptions, ViewOptions};
use super::setup::SetupAction;
use super::sim_options::SimOptions;
pub use audit::{AuditAction, AuditOptions};
pub use black_box::BlackBoxOptions;
pub use events::EventsOptions;
pub use image::{BuildImageOptions, ImageAction};
pub use lease::{HoldNextOptions, HoldOptions, LeaseAction, LeaseOptions};
pub use machine::{
    CloneOptions, MachineAction, ResizeOptions, SnapshotAction, TakeOptions, WaitOptions,
};
pub use nouns::{ConfigAction, CpOptions, JournalAction, LogsOptions, Noun, ShownNode, SshOptions};
pub use run::RunOptions;
pub use shard::{MembersAction, ShardConfigAction, ShardPutOptions, StoreOptions, StorePlace};
pub use sync::{CloudsAction, PlanOptions, Rollout, SyncOptions, TemplatesAction, Value};

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

/// Options of `leases`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "The page of the book: `drover help leases.md`")]
pub struct LeasesOptions {
    /// Those in this state alone: waiting, granted, ready or ended [default: all that have not ended]
    #[arg(long, value_parser = lease_phases())]
    pub state: Option<LeasePhase>,
    /// Those of this principal alone, such as token:ci or uid:1000; `ci` is token:ci
    #[arg(long)]
    pub principal: Option<String>,
    /// Those of the caller alone: of the token, or of the user on the socket
    #[arg(long, conflicts_with = "principal")]
    pub mine: bool,
    /// End them all, instead of listing them; needs --state, --principal or --mine
    #[arg(long)]
    pub end: bool,
    #[command(flatten)]
    pub list: ListOptions,
}

/// The states that leases can be listed by.
fn lease_phases() -> impl TypedValueParser<Value = LeasePhase> {
    PossibleValuesParser::new(LeasePhase::ALL.map(LeasePhase::name)).try_map(|word| word.parse())
}

/// Reads a number, or `template`.
fn read_limit(text: &str) -> Result<Limit, String> {
    if text == "template" {
        return Ok(Limit::Template);
    }
    let wrong = |_| format!("`{text}` is neither a whole number nor `template`");
    text.parse().map(Limit::Own).map_err(wrong)
}

/// Reads the size of a part of a machine.
fn read_size(part: Part) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let wrong = || format!("`{text}` is no size; write it as {}", part.example());
        part.parse(text).ok_or_else(wrong)
    }
}

/// Reads a span such as `90s`, `30m`, `2h`, `1d`.
fn read_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time; write it as 90s, 30m, 2h or 1d");
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => Some(number),
        "m" => number.checked_mul(60),
        "h" => number.checked_mul(3600),
        "d" => number.checked_mul(86400),
        _ => None,
    };
    match seconds {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        Some(_) | None => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use clap::CommandFactory;

    use super::*;

    // Invariant: the arguments are consistent, and wrong ones are usage errors.

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn spans_have_a_unit_and_are_not_zero() {
        assert_eq!(read_span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(read_span("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "5", "h", "0m", "1.5h", "99999999999999999999s", "1 h"] {
            assert!(read_span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn everything_after_two_dashes_is_the_command() {
        let cli = Cli::try_parse_from([
            "drover",
            "lease",
            "--labels",
            "linux,big",
            "--",
            "make",
            "--json",
            "-i",
            "x",
        ])
        .unwrap();
        assert!(!cli.global.json);
        let Command::Lease { options: lease, action: None } = cli.command else {
            panic!("not a lease")
        };
        assert_eq!(lease.labels.unwrap(), ["linux", "big"]);
        assert_eq!(lease.command, ["make", "--json", "-i", "x"]);
        assert_eq!(lease.identity, None);
    }

    #[test]
    fn sizes_of_machines_are_written_as_those_of_leases() {
        let line = ["drover", "machine", "resize", "a1", "--memory", "8g", "--disk", "1t"];
        let cli = Cli::try_parse_from(line).unwrap();
        let Command::Machine(MachineAction::Resize(sizes)) = cli.command else {
            panic!("no resize")
        };
        assert_eq!((sizes.cores, sizes.memory, sizes.disk), (None, Some(8192), Some(1024)));
    }

    #[test]
    fn wrong_arguments_are_usage_errors() {
        for line in [
            &["drover", "lease"][..],
            &["drover", "lease", "--labels", "a", "--template", "b"],
            &["drover", "lease", "--labels", "a", "--ttl", "soon"],
            &["drover", "lease", "--labels", "a", "--cpu", "many"],
            &["drover", "lease", "--labels", "a", "--memory", "16k"],
            &["drover", "machine", "resize", "a1", "--memory", "much"],
            &["drover", "agents", "set", "a1"],
            &["drover", "agents", "set", "a1", "--idle", "soon"],
            &["drover", "agents", "--gone", "set", "a1", "--idle", "0"],
            &["drover", "sim", "--pve", "6.4"],
            &["drover", "nothing"],
        ] {
            assert_eq!(Cli::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
        }
    }
}
