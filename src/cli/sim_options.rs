//! Options of `drover sim`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the simulated cluster's guests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GuestKind {
    /// An address only
    None,
    /// An SSH server that accepts logins and runs nothing
    Greeter,
    /// An SSH server whose sessions run real commands in a directory
    Process,
    /// A real machine of QEMU, from a disk image of --images
    Qemu,
}

/// How QEMU runs guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Accelerator {
    /// Software emulation, which works everywhere
    Tcg,
    /// The hardware's virtualisation; fails unless a guest boots with it first
    Kvm,
    /// The hardware's virtualisation if a guest boots with it first, else software emulation
    Auto,
}

/// Which Proxmox VE it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PveVersion {
    /// Proxmox VE 7.4
    #[value(name = "7.4")]
    V7_4,
    /// Proxmox VE 8.4
    #[value(name = "8.4")]
    V8_4,
    /// Proxmox VE 9.2
    #[value(name = "9.2")]
    V9_2,
}

/// Options of `sim`.
#[derive(Debug, Clone, Args)]
pub struct SimOptions {
    /// Loopback address to listen on; port 0 for any free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8006")]
    pub listen: SocketAddr,
    /// Description of the cluster; without it, three nodes with a template each
    ///
    /// YAML with nodes, storages, guests, pools, users, roles, acl and web. Only nodes is required,
    /// as in `nodes: [{name: pve1}]`. configs/sim-cluster.yaml shows all keys.
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// Named world in place of a description; --list-worlds shows all
    #[arg(long, value_name = "NAME", conflicts_with = "cluster")]
    pub world: Option<String>,
    /// What runs inside the guests
    #[arg(long, value_enum, default_value = "none")]
    pub guests: GuestKind,
    /// Folder of disk images NAME.qcow2 for QEMU guests; a template has the image of its name
    ///
    /// Without --cluster each image is a template on each node. tests/vm/image.sh builds images.
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// How QEMU runs its guests
    #[arg(long, value_enum, default_value = "tcg")]
    pub accel: Accelerator,
    /// Version of Proxmox VE; with 7.4 the simulator reports that and behaves as 8.4
    #[arg(long, value_enum, default_value = "8.4")]
    pub pve: PveVersion,
    /// Workers of pveproxy and of pvedaemon on each node, 0 for no limit [default: as in the
    /// description, else 3]
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File with the delays of a real cluster, or `none`
    #[arg(long, value_name = "FILE|none", default_value = "none")]
    pub latency: String,
    /// File with planned faults
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Write requests, tasks and boots to a file, one JSON object a line
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Run commands in process guests without bubblewrap, as the user who runs the simulator
    #[arg(long)]
    pub unisolated: bool,
    /// Absolute folder of this computer that process guests can read, in addition to /usr
    #[arg(long, value_name = "DIR")]
    pub share: Vec<PathBuf>,
    /// Serve every node: the first on --listen, the others on free ports; `urls` lists all
    #[arg(long)]
    pub all_nodes: bool,
    /// Unix socket for commands, one a line: renew-certificate, replace-certificate,
    /// renew-authority, expire-tickets, faults FILE|none, node-down NODE, node-up NODE, isolate
    /// NODE, rejoin NODE, maintenance NODE on|off, lock VMID NAME|none, move VMID NODE, trouble VMID
    /// NAME|none, power-off VMID, reset, world NAME
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Print the named worlds, and exit
    #[arg(long)]
    pub list_worlds: bool,
    /// Print the served methods and paths, and exit
    #[arg(long)]
    pub list_api: bool,
}
