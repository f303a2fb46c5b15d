//! The arguments of `drover machine`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use drover_model::size::Part;

use super::read::{read_size, read_span};
use super::{ListOptions, ViewOptions};

/// What to do with one machine.
#[derive(Debug, Clone, Subcommand)]
pub enum MachineAction {
    /// List the machines of the configuration, and those that left it
    List(ListOptions),
    /// Show its state, load, addresses, console, hardware and orders
    Show {
        /// The id of its agent, or of a lease on it, or the start of either; or the name of a machine of the configuration
        target: String,
        /// How it is shown
        #[command(flatten)]
        view: ViewOptions,
    },
    /// Destroy the guest of a machine that left the configuration
    Delete {
        /// The name of the machine
        name: String,
    },
    /// Let go of a machine that left the configuration, or was lost; its guest stays
    Forget {
        /// The name of the machine
        name: String,
    },
    /// Have a machine that is blocked, missing or foreign adopt a guest that is there
    Adopt {
        /// The name of the machine
        name: String,
        /// The guest; without it the one whose marks prove that it is the machine
        #[arg(long)]
        vmid: Option<u32>,
        /// Say that this guest is the machine, which its marks do not prove: drover writes them
        #[arg(long, requires = "vmid")]
        confirm: bool,
        /// Print what would be adopted; change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Start the machine
    Start(WaitOptions),
    /// Stop it hard
    Stop(WaitOptions),
    /// Let its system shut it down
    Shutdown(WaitOptions),
    /// Shut it down and start it with what is pending
    Reboot(WaitOptions),
    /// Reset it hard
    Reset(WaitOptions),
    /// Let it stand still with its memory
    Suspend(WaitOptions),
    /// Let it run on
    Resume(WaitOptions),
    /// Give it other sizes: what cannot change while it runs waits for a reboot
    Resize(ResizeOptions),
    /// Make another agent whose machine is a full clone of it, and hold that agent
    Clone(CloneOptions),
    /// Work with its snapshots
    #[command(subcommand)]
    Snapshot(SnapshotAction),
}

/// What to do with the snapshots of one machine.
#[derive(Debug, Clone, Subcommand)]
pub enum SnapshotAction {
    /// List them, each behind the one that it comes from
    List {
        /// The id of its agent, or of a lease on it, or the start of either
        target: String,
        /// Which, and how
        #[command(flatten)]
        list: ListOptions,
    },
    /// Take a snapshot
    Create(TakeOptions),
    /// Go back to one; the machine runs afterwards
    Revert {
        #[command(flatten)]
        wait: WaitOptions,
        /// The name of the snapshot
        name: String,
    },
    /// Delete a snapshot
    Delete {
        #[command(flatten)]
        wait: WaitOptions,
        /// The name of the snapshot
        name: String,
    },
}

/// Whose machine, and how long to wait for the end of an order.
#[derive(Debug, Clone, Args)]
pub struct WaitOptions {
    /// The id of its agent, or of a lease on it, or the start of either
    pub target: String,
    /// How long to wait for the end of the order, such as 90s, 30m; it goes on after that
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = read_span)]
    pub wait: Duration,
    /// Do not wait for the end of the order
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
}

/// Options of `machine resize`.
#[derive(Debug, Clone, Args)]
pub struct ResizeOptions {
    #[command(flatten)]
    pub wait: WaitOptions,
    /// Processor cores of each socket
    #[arg(long, required_unless_present_any = ["memory", "disk"], value_parser = read_size(Part::Cores))]
    pub cores: Option<u32>,
    /// Memory, such as 16g; a bare number is MiB
    #[arg(long, value_name = "SIZE", value_parser = read_size(Part::Memory))]
    pub memory: Option<u32>,
    /// The disk it boots from, such as 100g; a bare number is GiB, and disks cannot shrink
    #[arg(long, value_name = "SIZE", value_parser = read_size(Part::Disk))]
    pub disk: Option<u32>,
}

/// Options of `machine clone`.
#[derive(Debug, Clone, Args)]
pub struct CloneOptions {
    /// The id of its agent, or of a lease on it, or the start of either
    pub target: String,
    /// How long the clone is held once it is ready, such as 90s, 30m, 2h
    #[arg(long = "for", value_name = "TIME", default_value = "2h", value_parser = read_span)]
    pub span: Duration,
    /// File of the public key to let in [default: a new key, printed once]
    #[arg(long, value_name = "FILE")]
    pub public_key: Option<PathBuf>,
}

/// Options of `machine snapshot create`.
#[derive(Debug, Clone, Args)]
pub struct TakeOptions {
    #[command(flatten)]
    pub wait: WaitOptions,
    /// Its name: 2 to 40 letters, digits, `_` and `-`, a letter first
    pub name: String,
    /// What people should know of it
    #[arg(long)]
    pub description: Option<String>,
    /// Hold the memory of the running machine too
    #[arg(long)]
    pub ram: bool,
}

impl MachineAction {
    /// Whose machine it works with.
    pub(crate) fn target(&mut self) -> Option<&mut String> {
        match self {
            Self::Show { target, .. } | Self::Snapshot(SnapshotAction::List { target, .. }) => {
                Some(target)
            }
            Self::Start(wait)
            | Self::Stop(wait)
            | Self::Shutdown(wait)
            | Self::Reboot(wait)
            | Self::Reset(wait)
            | Self::Suspend(wait)
            | Self::Resume(wait)
            | Self::Resize(ResizeOptions { wait, .. })
            | Self::Snapshot(
                SnapshotAction::Create(TakeOptions { wait, .. })
                | SnapshotAction::Revert { wait, .. }
                | SnapshotAction::Delete { wait, .. },
            ) => Some(&mut wait.target),
            Self::Clone(options) => Some(&mut options.target),
            Self::List(_) | Self::Delete { .. } | Self::Forget { .. } | Self::Adopt { .. } => None,
        }
    }
}
