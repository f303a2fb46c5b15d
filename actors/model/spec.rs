//! The checked configuration the actors live by: no secrets, no endpoints, shared by `Arc`.
//!
//! `src/config` makes it; agents keep a copy of the [`TemplateSpec`] they were born with.

mod copy;
mod schedule;
mod untried;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::addresses::{AddressPoolSpec, AddressSource};
use crate::canary::MadeAs;
use crate::container::ContainerSpec;
use crate::declared::DeclaredSpec;
use crate::demand::spec::{ShareSpec, SourceSpec};
use crate::hardware::HardwareSpec;
use crate::id::{
    AddressPoolId, CloudId, DeclaredName, Generation, NodeName, SourceId, TemplateId, VmId,
};
use crate::image::ImageSpec;
use crate::os::Os;
use crate::overridden::{CloudOverrides, TemplateOverrides};
use crate::placement::PlacementSpec;
use crate::seed::{NicSpec, SeedSpec};
use crate::size::{Size, SizeLabels};
use crate::template_image::{Origin, Sought};
use crate::tenant::LeaseLimits;

pub use schedule::{Minimums, WindowSpec};

/// Everything one drover looks after.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HerdSpec {
    /// Counts configurations taken into force.
    pub generation: Generation,
    /// The configured clouds.
    pub clouds: BTreeMap<CloudId, Arc<CloudSpec>>,
    /// Each template on each of its clouds.
    pub templates: BTreeMap<TemplateId, Arc<TemplateSpec>>,
    /// Time between two reconciliations that stands in every cloud's spec against its own; none
    /// where each has its own.
    pub reconcile_period: Option<Duration>,
    /// Labels given to lists of templates, as written.
    pub mappings: Vec<Arc<LabelMapping>>,
    /// Each image on each of its clouds.
    pub images: BTreeMap<TemplateId, Arc<ImageSpec>>,
    /// Machines that are kept as they are declared.
    pub declared: BTreeMap<DeclaredName, Arc<DeclaredSpec>>,
    /// Addresses for agents, whichever clouds use them.
    pub pools: BTreeMap<AddressPoolId, Arc<AddressPoolSpec>>,
    /// Sources of demand.
    pub sources: BTreeMap<SourceId, Arc<SourceSpec>>,
    /// The share of anyone who asks for leases themselves.
    pub asked: ShareSpec,
    /// What bounds them.
    pub leases: LeaseLimits,
    /// The clouds that git manages.
    pub managed: BTreeSet<CloudId>,
    /// Whether nobody may change them but in git.
    pub locked: bool,
}

impl HerdSpec {
    /// Everything that is cloned: templates, and what machines are made like.
    pub fn cloned(&self) -> impl Iterator<Item = &TemplateSpec> {
        let machines = self.declared.values().filter(|machine| machine.installer.is_none());
        let machines = machines.map(|machine| &machine.template);
        self.templates.values().map(AsRef::as_ref).chain(machines)
    }
}

/// Labels that a list of templates serves (`labelMappings`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelMapping {
    /// The labels it carries.
    pub labels: BTreeSet<String>,
    /// Of several that carry the labels wanted, the highest decides.
    pub priority: i64,
    /// The templates, the first to be tried first.
    pub templates: Vec<TemplateId>,
}

/// How many operations may run at once on a storage, and on a node, where nothing is said of it.
pub const WIDTH: u32 = 16;

/// One configured way into a Proxmox cluster, as far as decisions need it.
///
/// Never written down: `connection` is drawn from secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudSpec {
    pub id: CloudId,
    /// Its display name.
    pub name: String,
    /// The most agents over all its templates; none for no limit.
    pub cap: Option<u32>,
    /// The lowest VMID it may use (`startVmId`).
    pub vmid_floor: VmId,
    /// The first VMID above its range.
    pub vmid_ceiling: VmId,
    /// How long one Proxmox operation may take (`operationTimeoutSec`).
    pub operation_timeout: Duration,
    /// Whether orphans are destroyed, or only reported.
    pub cleanup_orphans: bool,
    /// Time between two reconciliations.
    pub reconcile_period: Duration,
    /// How long an orphan is left alone.
    pub orphan_grace: Duration,
    /// How long an offline node's agents keep their slots.
    pub node_grace: Duration,
    /// Clones at once per storage.
    pub clones_per_storage: u32,
    /// Clones and starts at once per node.
    pub operations_per_node: u32,
    /// Storages on which disc images of its agents may be.
    pub image_storages: BTreeSet<String>,
    /// Whether fewer run at once where more would only wait.
    pub adapt_lanes: bool,
    /// Changes whenever endpoints, credentials or TLS of the connection change; opaque.
    pub connection: u64,
    /// What operators say against the configuration; the values above have it.
    pub overrides: CloudOverrides,
}

/// Full copies, or clones that share the template's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CloneStrategy {
    /// A full copy.
    Full,
    /// A linked clone.
    Linked,
}

/// Who may use a template's agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Mode {
    /// Unlabelled demand too.
    Normal,
    /// Only demand whose labels match.
    Exclusive,
}

/// Which Java is wanted on an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JavaDistribution {
    /// None is installed.
    None,
    /// OpenJDK from the distribution.
    Openjdk,
    /// Amazon's build of OpenJDK.
    Corretto,
}

/// What to clone on one cloud, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateSpec {
    /// Its cloud and its key there, written `cloud/template`.
    pub id: TemplateId,
    /// Its display name.
    pub name: String,
    /// The configuration it belongs to.
    pub generation: Generation,
    /// The node its agents run on; none for the template's.
    pub node: Option<NodeName>,
    /// Several nodes to choose from, instead of one.
    #[serde(default)]
    pub nodes: Vec<NodeName>,
    /// The template's VMID; of no meaning while it is sought by anything else.
    pub source: VmId,
    /// By what the template is found; none for its VMID.
    #[serde(default)]
    pub search: Option<Sought>,
    /// Where the clone comes from; known of agents whose place was granted.
    #[serde(default)]
    pub origin: Option<Origin>,
    /// Whether one agent must prove a new version of it before others are made of that.
    #[serde(default)]
    pub canary: bool,
    /// How many agents of an older version are replaced at once after a change: 0 for none, unset for
    /// a tenth of those that are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roll_at_once: Option<u32>,
    /// What operators say against the configuration; the values have it.
    #[serde(default, skip_serializing_if = "TemplateOverrides::is_empty")]
    pub overrides: TemplateOverrides,
    /// As what an agent is made; known of agents of a template with `canary`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_as: Option<MadeAs>,
    /// Where its agents are put, and how that is chosen.
    #[serde(default)]
    pub placement: PlacementSpec,
    /// Templates of the same cloud that stand in for it while it cannot be used, in order.
    #[serde(default)]
    pub fallbacks: Vec<TemplateId>,
    pub labels: BTreeSet<String>,
    /// Uses at once on one agent.
    pub executors: u32,
    /// Full or linked.
    pub clone: CloneStrategy,
    /// Storage of a full clone's disks; none for the template's own.
    pub target_storage: Option<String>,
    /// Several such storages, the first that can be used is taken.
    #[serde(default)]
    pub storages: Vec<String>,
    /// Resource pool of the clone.
    pub target_pool: Option<String>,
    /// Processor cores; none for the template's.
    pub cores: Option<u32>,
    /// Memory in MiB; none for the template's.
    pub memory_mb: Option<u32>,
    /// Size of the primary disk in GiB; none for the template's.
    pub disk_gb: Option<u32>,
    /// The labels by which jobs and leases ask for agents of another size.
    #[serde(default, skip_serializing_if = "SizeLabels::is_none")]
    pub size_labels: SizeLabels,
    /// What an agent was started with beside the size of its template; nothing of a template.
    #[serde(default, skip_serializing_if = "Size::is_none")]
    pub size: Size,
    /// What of its first network card differs from the template's.
    #[serde(default)]
    pub network: NetworkSpec,
    /// All of its network cards, in place of `network` and of the template's; empty for those.
    #[serde(default)]
    pub nics: Vec<NicSpec>,
    /// What of its virtual hardware differs from the template's otherwise.
    #[serde(default)]
    pub hardware: HardwareSpec,
    /// Whether it starts with its node.
    #[serde(default)]
    pub on_boot: bool,
    /// What runs in its guests.
    #[serde(default)]
    pub os: Os,
    /// What is said of containers; none for virtual machines.
    #[serde(default)]
    pub container: Option<ContainerSpec>,
    /// The agent's working directory.
    pub remote_fs: String,
    /// Who may use its agents.
    pub mode: Mode,
    /// How to log in.
    pub ssh: SshSpec,
    /// Which Java is wanted.
    pub java: JavaSpec,
    /// Idle time after which an agent goes; none for never.
    pub idle: Option<Duration>,
    /// The most agents; none for no limit.
    pub cap: Option<u32>,
    /// Agents kept, in use or not (`instanceMin`).
    pub minimum: u32,
    /// Idle agents kept beside those in use (`idleMin`).
    #[serde(default)]
    pub idle_minimum: u32,
    /// Times in which more is kept.
    #[serde(default)]
    pub schedule: Vec<WindowSpec>,
    /// Uses after which an agent is retired; none for no limit.
    pub max_uses: Option<u32>,
    /// Put before the template's name in guests' names.
    pub name_prefix: String,
    /// Tags beside drover's own.
    pub tags: BTreeSet<String>,
    /// Text for the guest's notes.
    pub description: String,
    pub cloud_init: CloudInitSpec,
    /// Where its agents have their addresses from.
    #[serde(default)]
    pub address: AddressSource,
    /// CIDRs the address must lie in; empty for any that is not loopback, link-local or a container bridge's.
    pub guest_networks: Vec<String>,
    /// Steps of its own to prepare an agent by, in order.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
    /// A command that must succeed before the agent counts as ready.
    pub ready_command: Option<String>,
    /// How a used guest is made clean again instead of being destroyed; none for never.
    #[serde(default)]
    pub reset: Option<ResetKind>,
    /// Whether a guest is closed off over SSH and stopped hard, rather than shut down.
    #[serde(default)]
    pub close_ssh: bool,
    /// How long each part may take.
    pub limits: LimitSpec,
    /// When the template stops being tried.
    pub breaker: BreakerSpec,
    /// Whether this is one agent's, made for trial: nobody is served by it, and it goes by itself.
    #[serde(default)]
    pub trial: bool,
}

impl TemplateSpec {
    /// The same for an agent that is made for trial.
    pub fn on_trial(&self) -> Self {
        Self { trial: true, ..self.clone() }
    }

    /// Whether `text` is its display name, alone or behind its cloud.
    pub fn is_called(&self, text: &str) -> bool {
        let behind =
            text.strip_prefix(self.id.cloud.as_str()).and_then(|rest| rest.strip_prefix('/'));
        text == self.name || behind == Some(self.name.as_str())
    }

    /// The nodes its agents may be on; empty for those of its templates.
    pub fn nodes(&self) -> Vec<NodeName> {
        match &self.nodes[..] {
            [] => self.node.iter().cloned().collect(),
            nodes => nodes.to_vec(),
        }
    }

    /// Whether the cluster's storages decide on which nodes its agents may be: every node will do,
    /// or none is named and each that reaches a template will do, preferred nodes first.
    pub fn roams(&self) -> bool {
        let prefers = !self.placement.preferred.is_empty();
        self.placement.anywhere || (prefers && self.nodes().is_empty())
    }

    /// The node a clone's work is done on, when its guest is meant for `node`.
    pub fn home(&self, node: &NodeName) -> NodeName {
        self.origin.as_ref().map_or_else(|| node.clone(), |origin| origin.home.clone())
    }

    /// Jobs at once on an agent that one runner has whole: no more than its uses.
    pub fn places(&self) -> u32 {
        let executors = self.executors.max(1);
        self.max_uses.map_or(executors, |most| executors.min(most.max(1)))
    }

    /// What it always keeps.
    pub fn minimums(&self) -> Minimums {
        Minimums { all: self.minimum, idle: self.idle_minimum }
    }

    /// A template about which nothing is said but its id and where it is: the defaults of the YAML,
    /// a login without a key, and labels, names and texts left empty.
    pub fn bare(id: TemplateId, source: VmId) -> Self {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        Self {
            name: id.name.to_string(),
            id,
            generation: Generation::default(),
            node: None,
            nodes: Vec::new(),
            source,
            search: None,
            origin: None,
            canary: false,
            roll_at_once: None,
            overrides: TemplateOverrides::default(),
            made_as: None,
            fallbacks: Vec::new(),
            placement: PlacementSpec::default(),
            labels: BTreeSet::new(),
            executors: 1,
            clone: CloneStrategy::Full,
            target_storage: None,
            storages: Vec::new(),
            target_pool: None,
            cores: None,
            memory_mb: None,
            disk_gb: None,
            size_labels: SizeLabels::default(),
            size: Size::NONE,
            network: NetworkSpec::default(),
            nics: Vec::new(),
            hardware: HardwareSpec::default(),
            on_boot: false,
            os: Os::Linux,
            container: None,
            remote_fs: String::new(),
            mode: Mode::Exclusive,
            ssh: SshSpec {
                credentials_id: String::new(),
                user: String::new(),
                port: 22,
                public_key: String::new(),
            },
            java: JavaSpec {
                distribution: JavaDistribution::None,
                major: 21,
                path: "java".into(),
                options: String::new(),
                repository: None,
                repository_key: None,
            },
            idle: None,
            cap: None,
            minimum: 0,
            idle_minimum: 0,
            schedule: Vec::new(),
            max_uses: None,
            name_prefix: String::new(),
            tags: BTreeSet::new(),
            description: String::new(),
            cloud_init: CloudInitSpec::default(),
            address: AddressSource::default(),
            guest_networks: Vec::new(),
            steps: Vec::new(),
            ready_command: None,
            reset: None,
            close_ssh: false,
            limits: LimitSpec {
                queue: minutes(10),
                call: call_limit(),
                operation: minutes(5),
                clone: minutes(30),
                startup: minutes(1),
                prepare: minutes(10),
                reset: reset_limit(),
                shutdown: minutes(1),
                retire: minutes(15),
                lifetime: None,
            },
            breaker: BreakerSpec { threshold: 3, cooldown: minutes(2), cooldown_cap: minutes(30) },
            trial: false,
        }
    }
}

/// How drover logs in to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshSpec {
    /// The id in `credentials` of the private key.
    pub credentials_id: String,
    /// The login name.
    pub user: String,
    pub port: u16,
    /// The public key for cloud-init, one line.
    pub public_key: String,
}

/// Which Java is wanted on an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JavaSpec {
    /// Where it comes from.
    pub distribution: JavaDistribution,
    /// Its major version.
    pub major: u32,
    /// The binary when nothing is installed.
    pub path: String,
    /// Options of the JVM of Jenkins' agent.
    pub options: String,
    /// Corretto's package repository; none for Amazon's own.
    #[serde(default)]
    pub repository: Option<String>,
    /// The key of that repository's signatures; none for `corretto.key` in it.
    #[serde(default)]
    pub repository_key: Option<String>,
}

/// One step of a template's own to prepare an agent by (an item of `prepare`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSpec {
    /// What it is called, unlike the other steps.
    pub name: String,
    /// What it does.
    pub work: StepWork,
    /// How long it may take, within all of preparing.
    pub timeout: Duration,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepWork {
    /// Runs a command as the login user.
    Run(String),
    /// Puts a file into the guest.
    Upload(UploadSpec),
    /// Installs packages by the guest's own package manager.
    Packages(Vec<String>),
}

/// A file for a guest; its content is kept by the shell alone, never here or in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadSpec {
    /// Where it was read, as written.
    pub from: String,
    /// Where it goes in the guest; relative to the login user's home.
    pub to: String,
    /// Unix permission bits.
    pub mode: u32,
    /// The SHA-256 of its content, in hexadecimal digits.
    pub sha256: String,
}

/// What of `net0` differs from the template's; its MAC, model and firewall stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSpec {
    /// The bridge; none for the template's.
    pub bridge: Option<String>,
    /// The VLAN tag, 1 to 4094; none for the template's.
    pub vlan: Option<u16>,
}

/// Values for Proxmox's own cloud-init keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudInitSpec {
    /// Proxmox's `ciuser`, the user that cloud-init creates.
    pub user: Option<String>,
    /// Proxmox's `ipconfig0`, the address of the first network card.
    pub ip_config: Option<String>,
    /// `ipconfig1` and so on, for the network cards after the first.
    #[serde(default)]
    pub ip_configs: Vec<String>,
    /// Proxmox's `nameserver`: DNS servers, separated by spaces.
    pub nameserver: Option<String>,
    /// Proxmox's `searchdomain`: where short names are looked up.
    pub search_domain: Option<String>,
    /// `ciupgrade`: whether packages are upgraded at the first boot.
    #[serde(default)]
    pub upgrade: bool,
    /// `cicustom`: snippets that lie on the storages already.
    #[serde(default)]
    pub custom: Option<String>,
    /// Texts for a disc image in the place of Proxmox's cloud-init drive; none for that drive.
    #[serde(default)]
    pub seed: Option<SeedSpec>,
}

/// What the snapshot from before a guest's first use holds, to which it goes back after each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ResetKind {
    /// Its disks: it boots again.
    Disk,
    /// Its disks and its memory: it goes on from there.
    Memory,
}

/// How long each part of an agent's life may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitSpec {
    /// Waiting for a place in the lanes.
    pub queue: Duration,
    /// One call of the cluster's API, after which its client gives up (`callTimeoutSec`).
    #[serde(default = "call_limit")]
    pub call: Duration,
    /// One Proxmox operation.
    pub operation: Duration,
    /// A clone in all, doubts included.
    pub clone: Duration,
    /// From start to login (`startupWaitSeconds`).
    pub startup: Duration,
    /// Preparing over SSH.
    pub prepare: Duration,
    /// A reset, after which the guest is destroyed instead (`resetTimeoutSec`).
    #[serde(default = "reset_limit")]
    pub reset: Duration,
    /// Graceful shutdown before the hard stop; zero stops at once.
    pub shutdown: Duration,
    /// Retirement in all before the alarm.
    pub retire: Duration,
    /// An agent's whole life; none for no limit.
    pub lifetime: Option<Duration>,
}

/// What a call may take where nobody said it.
fn call_limit() -> Duration {
    Duration::from_secs(60)
}

/// What a reset may take where nobody said it.
fn reset_limit() -> Duration {
    Duration::from_secs(300)
}

/// When a template stops being tried, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerSpec {
    /// Failures in a row that trip it.
    pub threshold: u32,
    /// The first cool-down.
    pub cooldown: Duration,
    /// The longest cool-down.
    pub cooldown_cap: Duration,
}
