//! What the journal holds: facts that must survive, in the order they became true.
//!
//! Bodies marked *before acting* are durable before the call they announce is made; the others may
//! be lost with the last moments before a crash and are found again by looking (book: agents,
//! journal records). A record never holds a secret. Old journals must still fold: fields are only
//! added, with defaults, and never taken away. An older drover refuses a journal with a field that it
//! does not know.

mod asks;
mod hold;
mod reason;
mod troubled;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::addresses::AssignedAddress;
use crate::canary::Canary;
use crate::declared::DeclaredSpec;
use crate::id::{
    AgentId, CloudId, ClusterId, Installation, LeaseId, NodeName, OrderId, RunnerName, SourceId,
    TemplateId, Upid, VmId,
};
use crate::machine::Machine;
use crate::marks::Marks;
use crate::order::{Order, OrderEnd, Work};
use crate::overridden::{CloudOverrides, TemplateOverrides};
use crate::overrides::OverrideChange;
use crate::phase::AgentPhase;
use crate::scope::Scope;
use crate::spec::TemplateSpec;
use crate::time::WallTime;

pub use asks::{LeaseAsk, Owner, Want, describe};
pub use hold::{Hold, HoldOwner};
pub use reason::{Failure, Reason};
pub use troubled::Troubled;

/// The version of the record format this code writes.
pub const RECORD_VERSION: u32 = 1;

/// Why a lease ended whose holder overstayed: the guest goes with it.
pub const EXPIRED: &str = "expired";
/// Why a lease ended that its holder gave back.
pub const RELEASED: &str = "released";
/// Why a lease ended whose agent cannot serve it any more.
pub const LOST: &str = "lost";
/// Why a lease ended that no agent was there for in time.
pub const WAITED: &str = "waited-too-long";
/// Why a lease ended that nobody wanted any more before it was served.
pub const CANCELLED: &str = "cancelled";
/// Why a runner's lease ended that took no job.
pub const IDLE: &str = "idle";

/// What stands before the output of a command in the text of its failure.
pub const LAST_SAID: &str = "; last: ";

/// The text of a failure without the output of the command that failed.
pub fn without_output(text: &str) -> &str {
    text.split_once(LAST_SAID).map_or(text, |(why, _)| why)
}

/// How a lease ended, for people: why in one word, and what it was lost by where that is known.
pub fn how_ended(why: &str, cause: &str) -> String {
    if cause.is_empty() { why.to_owned() } else { format!("{why}: {cause}") }
}

/// Whether that is how a lost lease ended.
pub fn is_lost(how: &str) -> bool {
    how.strip_prefix(LOST).is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// One journal record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The format's version.
    pub version: u32,
    /// Its place in the log, from 1.
    pub seq: u64,
    /// The start of the service that wrote it.
    pub epoch: u64,
    /// When it was written.
    pub wall_time: WallTime,
    /// What it says.
    pub body: Body,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Body {
    /// *Before acting.* The service started; the epoch of all that follows.
    Takeover {
        /// Which installation, made at the first start.
        installation: Installation,
    },
    /// *Before acting.* A cloud leads to this cluster.
    ClusterPinned { cloud: CloudId, cluster: ClusterId },
    /// *Before acting.* An agent will be cloned.
    CloneIntended {
        /// The marks it will carry (agent, VMID, cluster, …); `seq` in them is this record's
        /// and filled in by the journal when 0.
        marks: Box<Marks>,
        /// The node of the template.
        node: NodeName,
        /// The spec it is born with.
        spec: Box<TemplateSpec>,
    },
    /// *Before acting.* A guest of this installation that no agent has is retired as this one.
    OrphanTaken {
        marks: Box<Marks>,
        /// The node it is on.
        node: NodeName,
        /// What it is retired by.
        spec: Box<TemplateSpec>,
    },
    /// The clone call returned a task.
    TaskAccepted { agent: AgentId, upid: Upid },
    /// The clone is known to have worked, and the guest to be ours.
    CloneSettled {
        agent: AgentId,
        /// The node the guest is on.
        node: NodeName,
    },
    /// *Before acting.* An agent's guest will be given these addresses, and nobody else's.
    AddressAssigned {
        agent: AgentId,
        /// Its addresses; by the first it is reached.
        addresses: Vec<AssignedAddress>,
    },
    /// *Before acting.* A guest without a guest agent has called from this address first.
    GuestCalled { agent: AgentId, address: IpAddr },
    /// *Before acting.* A disc image for cloud-init will be uploaded for an agent's guest.
    IsoIntended {
        agent: AgentId,
        /// Proxmox's volume id of it.
        volume: String,
    },
    /// The guest's volumes, its disc image with them.
    VolumesKnown {
        agent: AgentId,
        /// Proxmox's volume ids.
        volumes: Vec<String>,
        /// The MAC address of its first network card; none where it stays as it was.
        #[serde(default)]
        mac: Option<String>,
    },
    /// The machine's wall clock was set while the service ran: what is written before this goes by
    /// the clock as it was.
    ClockSet {
        /// How far ahead it was set, in milliseconds; below zero when it was set back.
        by_ms: i64,
    },
    /// The guest's SSH host keys.
    HostKeyPinned {
        agent: AgentId,
        /// Public key lines.
        keys: Vec<String>,
        /// The address it was reached at.
        address: String,
    },
    /// The agent reached a state (one of those shown to users).
    Phase { agent: AgentId, state: AgentPhase },
    /// *Before acting.* A lease was asked for.
    LeaseAsked(Box<LeaseAsk>),
    /// *Before acting.* A lease is given out.
    LeaseGranted {
        agent: AgentId,
        /// The lease as asked for.
        ask: Box<LeaseAsk>,
        /// When it runs out.
        expires: WallTime,
        /// Whether [`Body::LeaseReady`] says when it is ready; older journals do not.
        #[serde(default)]
        pending: bool,
    },
    /// *Before acting.* What a lease needs in its guest is there: its holder can hear that it is
    /// ready, and nothing but its end takes the guest from then on.
    LeaseReady { agent: AgentId, lease: LeaseId },
    /// *Before acting.* A runner of this name will be made at a source, for a lease on an agent.
    RunnerIntended {
        agent: AgentId,
        lease: LeaseId,
        source: SourceId,
        /// Its name there.
        runner: RunnerName,
        /// Where its source was: changes with its URL and scope; none where that was not written down.
        #[serde(default)]
        place: Option<u64>,
    },
    /// So many jobs began on a runner that may take several, as far as that was seen.
    RunnerWorked {
        source: SourceId,
        runner: RunnerName,
        /// Jobs that began on it.
        began: u32,
    },
    /// The numbers that a runner's rows have or had at its source: by those it is asked for.
    RowsNumbered {
        source: SourceId,
        runner: RunnerName,
        /// All that are known.
        rows: BTreeSet<u64>,
    },
    /// A runner is known to be at its source no more.
    RowGone { source: SourceId, runner: RunnerName },
    /// *Before acting.* A lease waits again, or is given up where a source wanted it: its agent was lost before the lease was ready.
    LeaseReturned { agent: AgentId, lease: LeaseId },
    /// *Before acting.* A lease lasts longer.
    LeaseRenewed {
        lease: LeaseId,
        /// When it runs out.
        expires: WallTime,
    },
    /// *Before acting.* A lease is over, or was given up before it was granted.
    LeaseEnded {
        lease: LeaseId,
        /// Why, one word: `released`, [`EXPIRED`], [`LOST`], [`WAITED`], `cancelled`.
        why: String,
        /// What it was lost by, in words for people; empty where there is nothing to say.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        cause: String,
    },
    /// The key of a lease that ended is out of its guest, and another lease is on it still; where
    /// none is, the phase or the retirement that follows says as much.
    KeyRemoved { agent: AgentId, lease: LeaseId },
    /// *Before acting.* An operator wants other limits for an agent than its template's.
    OverrideSet { agent: AgentId, change: OverrideChange },
    /// *Before acting.* An operator wants other values for a template than the configuration's; this is
    /// all that holds from now on.
    TemplateOverridden { template: TemplateId, overrides: Box<TemplateOverrides> },
    /// *Before acting.* The same for a cloud.
    CloudOverridden { cloud: CloudId, overrides: CloudOverrides },
    /// *Before acting.* An agent will be held for debugging, or its hold is over.
    HoldSet {
        agent: AgentId,
        /// The hold; none when it is over.
        hold: Option<Box<Hold>>,
        /// When it is over, from the moment on that it is held.
        until: Option<WallTime>,
        /// The template whose next failure this is, when it is held for that.
        #[serde(default)]
        next: Option<TemplateId>,
        /// Why it would have gone, when it is held instead; none leaves what was said before.
        #[serde(default)]
        why: Option<String>,
    },
    /// *Before acting.* The next agent of a template that fails on its way will be held, or none.
    HoldNextSet {
        template: TemplateId,
        /// The hold; none when it is taken back.
        hold: Option<Box<Hold>>,
    },
    /// *Before acting.* The machine of an agent gets an order.
    MachineOrdered { agent: AgentId, order: Box<Order> },
    /// *Before acting.* The order is over: it is not carried out again.
    OrderEnded { agent: AgentId, order: OrderId, end: OrderEnd },
    /// A snapshot of the guest from before its first use is there.
    SnapshotTaken { agent: AgentId },
    /// *Before acting.* The guest will be put back to its snapshot.
    ResetIntended { agent: AgentId },
    /// *Before acting.* The guest will be destroyed.
    RetireIntended { agent: AgentId, reason: Reason },
    /// *Before acting.* A guest will be made for an image.
    ImageIntended {
        /// The marks it will carry, as a builder.
        marks: Box<Marks>,
        node: NodeName,
        /// The version that it is to be.
        version: AgentId,
        /// Values of variables that somebody gave.
        #[serde(default)]
        given: BTreeMap<String, String>,
        /// The disc image for cloud-init that it will have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        iso: Option<String>,
    },
    /// *Before acting.* A build is proved: its template will carry these marks.
    ImageSealed { build: AgentId, marks: Box<Marks> },
    /// A build failed. Its guest, where it has one, is still to be removed.
    ImageFailed {
        build: AgentId,
        image: TemplateId,
        node: NodeName,
        /// The version that it was to be.
        version: AgentId,
        /// Whether its guest is known to have been made: no create can have its effect later.
        made: bool,
        why: String,
    },
    /// A version carries its marks, and the build is over.
    ImageBuilt { build: AgentId },
    /// *Before acting.* A version will be destroyed.
    ImagePruned {
        /// Names the removal.
        build: AgentId,
        /// The marks of the version.
        marks: Box<Marks>,
        node: NodeName,
    },
    /// A build came to nothing, or a version was destroyed: the guest is gone.
    ImageGone {
        build: AgentId,
        /// Whether the id must be burned rather than rest.
        burned: bool,
    },
    /// *Before acting.* A guest will be cloned for a declared machine, or an operator had it adopt one.
    DeclaredIntended {
        marks: Box<Marks>,
        /// The node that the guest is to be on.
        node: NodeName,
        /// The declaration, with the template image that was found.
        spec: Box<DeclaredSpec>,
        /// Whether the guest is there and carries the marks: only corrections that are allowed change it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        adopted: bool,
    },
    /// *Before acting.* The guest of a declared machine is configured and was started; from here on only
    /// corrections that are allowed change it.
    DeclaredMade { machine: AgentId, node: NodeName },
    /// *Before acting.* A machine that is there is declared otherwise, or again: it is not destroyed.
    DeclaredChanged { machine: AgentId, spec: Box<DeclaredSpec> },
    /// *Before acting.* A difference of a machine from its declaration will be put right by this work.
    DeclaredCorrecting { machine: AgentId, work: Work },
    /// *Before acting.* The guest of a declared machine will be destroyed.
    DeclaredRemoving { machine: AgentId },
    /// The guest of a declared machine is gone, or is no concern of drover's any more.
    DeclaredGone {
        machine: AgentId,
        /// Whether the id must be burned rather than rest.
        burned: bool,
    },
    /// A breaker moved.
    BreakerMoved {
        /// The node, storage or cloud it belongs to; none for the template's own.
        #[serde(default)]
        scope: Option<Scope>,
        /// The template, or the one whose agent moved it.
        template: TemplateId,
        /// Failures in a row.
        failures: u32,
        /// When it may be tried again; none while it flows.
        until: Option<WallTime>,
        /// The cool-down in force, in milliseconds.
        cooldown_ms: u64,
        /// The last cause, for people.
        cause: String,
        /// Which version of the template it judges; none in older journals.
        #[serde(default)]
        version: Option<String>,
    },
    /// What a template knows of its versions changed.
    CanaryMoved { template: TemplateId, canary: Canary },
    /// A VMID must not be used again until its volumes were listed empty.
    IdBurned { cluster: ClusterId, vmid: VmId },
    /// A burned VMID's volumes were listed empty: it may be used again.
    IdCleared { cluster: ClusterId, vmid: VmId },
    /// *Before acting.* An operator lets orphans go although guests were ahead of the journal.
    AheadConfirmed { cluster: ClusterId },
    /// *Before acting.* A guest's marks are ahead of this journal: orphans stay until that is confirmed.
    MarksAhead {
        cluster: ClusterId,
        vmid: VmId,
        /// The sequence in its marks.
        seq: u64,
    },
    /// *Before acting.* A cluster goes on under another fingerprint, as an operator says.
    ClusterContinued {
        /// The id by which it stays known.
        cluster: ClusterId,
        /// What its fingerprint says now.
        now: ClusterId,
    },
    /// *Before acting.* The journal belongs to this machine from here on.
    MachineBound { machine: Machine },
    /// *Before acting.* An operator cordons or drains a node, or lets it be used again.
    NodeDrained {
        cluster: ClusterId,
        node: NodeName,
        /// Whether it is drained.
        drained: bool,
        /// Whether it is cordoned and not drained; left out where it is not, for older drovers.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cordoned: bool,
        /// Who wants it, such as `token:ci`; none in journals from before it was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// A node, a cloud or a source is in trouble, or is not any more.
    TroubleSince {
        of: Troubled,
        /// Since when; none once it is over.
        since: Option<WallTime>,
    },
    /// An agent's guest cannot be finished without an administrator.
    Stranded {
        agent: AgentId,
        why: String,
        /// What an administrator must run.
        command: String,
    },
    /// An agent is gone and its VMID rests.
    Gone {
        agent: AgentId,
        /// Why it went.
        reason: Reason,
        /// Whether the id must be burned rather than rest.
        burned: bool,
    },
}

impl Body {
    /// Whether it must be durable before the effects after it are carried out.
    pub fn before_acting(&self) -> bool {
        match self {
            Self::Takeover { .. }
            | Self::ClusterPinned { .. }
            | Self::ClusterContinued { .. }
            | Self::MachineBound { .. }
            | Self::CloneIntended { .. }
            | Self::OrphanTaken { .. }
            | Self::AddressAssigned { .. }
            | Self::IsoIntended { .. }
            | Self::GuestCalled { .. }
            | Self::LeaseAsked(_)
            | Self::LeaseGranted { .. }
            | Self::LeaseReady { .. }
            | Self::RunnerIntended { .. }
            | Self::LeaseReturned { .. }
            | Self::LeaseRenewed { .. }
            | Self::LeaseEnded { .. }
            | Self::AheadConfirmed { .. }
            | Self::MarksAhead { .. }
            | Self::NodeDrained { .. }
            | Self::OverrideSet { .. }
            | Self::TemplateOverridden { .. }
            | Self::CloudOverridden { .. }
            | Self::HoldSet { .. }
            | Self::HoldNextSet { .. }
            | Self::MachineOrdered { .. }
            | Self::OrderEnded { .. }
            | Self::ResetIntended { .. }
            | Self::ImageIntended { .. }
            | Self::ImageSealed { .. }
            // Without it a build that failed would begin again after a restart.
            | Self::ImageFailed { .. }
            | Self::ImagePruned { .. }
            | Self::DeclaredIntended { .. }
            // Without it a machine that somebody stopped since would be started once more.
            | Self::DeclaredMade { .. }
            | Self::DeclaredGone { .. }
            | Self::DeclaredChanged { .. }
            | Self::DeclaredCorrecting { .. }
            | Self::DeclaredRemoving { .. }
            | Self::RetireIntended { .. } => true,
            Self::TaskAccepted { .. }
            | Self::CloneSettled { .. }
            | Self::VolumesKnown { .. }
            | Self::HostKeyPinned { .. }
            | Self::Phase { .. }
            | Self::KeyRemoved { .. }
            | Self::RunnerWorked { .. }
            | Self::RowsNumbered { .. }
            | Self::RowGone { .. }
            | Self::SnapshotTaken { .. }
            | Self::BreakerMoved { .. }
            | Self::CanaryMoved { .. }
            | Self::IdBurned { .. }
            | Self::IdCleared { .. }
            | Self::ClockSet { .. }
            | Self::TroubleSince { .. }
            | Self::Stranded { .. }
            | Self::ImageBuilt { .. }
            | Self::ImageGone { .. }
            | Self::Gone { .. } => false,
        }
    }
}
