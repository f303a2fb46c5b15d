//! The arguments of commands about git, and about what operators say against the configuration.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Options of `sync`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    group(ArgGroup::new("what").args(["to", "back", "test", "status"])),
    after_help = "The page of the book: `drover help git.md`"
)]
pub struct SyncOptions {
    /// Return to this commit, in full or its first digits, and stay there until the next `drover sync`
    #[arg(long, value_name = "COMMIT")]
    pub to: Option<String>,
    /// Return to the commit that was applied before, and stay there until the next `drover sync`
    #[arg(long)]
    pub back: bool,
    /// Test repository, branch, file and configuration, and change nothing
    #[arg(long)]
    pub test: bool,
    /// Show the commit in force, the last attempt, manual changes, and commits to return to
    #[arg(long)]
    pub status: bool,
}

/// Options of `plan`.
#[derive(Debug, Clone, Default, Args)]
#[command(
    group(ArgGroup::new("what").required(true).args(["file", "git"])),
    after_help = "Exit codes: 0 nothing to do, 1 the configuration has faults, 3 it changes something.\n\
                  The page of the book: `drover help git.md`"
)]
pub struct PlanOptions {
    /// The file, or the directory of YAML files, in place of what is in force
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// FILE takes the place of this machine's own configuration, not of what git manages
    #[arg(long, requires = "file")]
    pub local: bool,
    /// What the branch has now
    #[arg(long)]
    pub git: bool,
}

/// What to do with a template, instead of listing all.
#[derive(Debug, Clone, Subcommand)]
pub enum TemplatesAction {
    /// Set values of a template against the configuration; they hold across restarts, until they are
    /// taken back or a sync with git undoes them
    #[command(group(ArgGroup::new("value").required(true).multiple(true).args([
        "instance_cap", "instance_min", "idle_min", "idle_minutes", "max_uses", "rollout",
    ])))]
    Set(Box<TemplateValues>),
}

/// Whether agents of an older version are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rollout {
    /// They stay until they go by themselves; no sync changes that
    Pause,
    /// They are replaced again
    Resume,
}

/// Values of a template.
#[derive(Debug, Clone, Args)]
pub struct TemplateValues {
    /// The template, `cloud/template` or its bare name
    pub template: String,
    /// The most agents, 0 for no limit; `configured` takes it back
    #[arg(long, value_name = "AGENTS", value_parser = read_value)]
    pub instance_cap: Option<Value>,
    /// Agents kept, in use or not; `configured` takes it back
    #[arg(long, value_name = "AGENTS", value_parser = read_value)]
    pub instance_min: Option<Value>,
    /// Idle agents kept beside those in use; `configured` takes it back
    #[arg(long, value_name = "AGENTS", value_parser = read_value)]
    pub idle_min: Option<Value>,
    /// Minutes of idling after which an agent goes, 0 for never; `configured` takes it back
    #[arg(long, value_name = "MINUTES", value_parser = read_value)]
    pub idle_minutes: Option<Value>,
    /// Uses after which an agent goes, 0 for no limit; `configured` takes it back
    #[arg(long, value_name = "USES", value_parser = read_value)]
    pub max_uses: Option<Value>,
    /// Whether agents of an older version are replaced
    #[arg(long)]
    pub rollout: Option<Rollout>,
}

/// What to do with a cloud, instead of listing all.
#[derive(Debug, Clone, Subcommand)]
pub enum CloudsAction {
    /// Set the cap of a cloud against the configuration; it holds across restarts, until it is taken
    /// back or a sync with git undoes it
    Set {
        /// The name of the cloud
        cloud: String,
        /// The most agents over all its templates, 0 for no limit; `configured` takes it back
        #[arg(long, required = true, value_name = "AGENTS", value_parser = read_value)]
        instance_cap: Value,
    },
}

/// A value that stands against the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// As the configuration says.
    Configured,
    Own(u32),
}

impl Value {
    /// The value in a request: none takes it back.
    pub fn asked(self) -> Option<u32> {
        match self {
            Self::Configured => None,
            Self::Own(number) => Some(number),
        }
    }
}

/// Reads a number, or `configured`.
fn read_value(text: &str) -> Result<Value, String> {
    if text == "configured" {
        return Ok(Value::Configured);
    }
    let wrong = |_| format!("`{text}` is neither a whole number nor `configured`");
    text.parse().map(Value::Own).map_err(wrong)
}
