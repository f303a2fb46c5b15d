//! What the service and its callers say to each other: every request and answer of the HTTP API as one
//! type, which the server parses and answers with, the command line sends and reads, and
//! `/openapi.json` describes (feature `openapi`).
//!
//! - `…In` is the body of a request, `…Out` an answer, [`Problem`] a refusal. Field names in JSON are
//!   camel case, times are RFC 3339 texts, an absent field of an answer means the same as null.
//! - An answer may grow fields: readers skip what they do not know, and a field that an older service
//!   does not send has a default.
//! - The server refuses unknown fields of a request. It takes the names that it knows from
//!   [`fields_of`] the request's type.
//! - [`sentence`] says an event in words, for the command line and the page.
//! - [`Role`] says who may do what, [`nearest`] finds the word that somebody meant.
//!
//! The package depends on `drover-model` for the phases of agents, leases, breakers and clouds: a phase
//! is one enum from the actors to the screen, never a text that each side spells by itself.
//!
//! An answer that shows a status of `drover_model::status` is a type of its own where it hides
//! something by role, or spells times for people: the model counts milliseconds, and readers of the API
//! show the text. Comments in the code say which. Where neither is so, the status is the answer
//! (`ResetStatus`). Conversions are the server's: only the server knows who may see what.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod addresses;
mod agents;
mod audit;
mod black_box;
mod breakers;
mod call_in;
mod clouds;
mod control;
mod declared;
mod events;
mod faults;
mod fields;
mod happened;
mod holds;
mod images;
mod leases;
mod machines;
mod members;
mod nearest;
mod nodes;
mod notify;
mod overrides;
mod plan;
mod problem;
mod remedies;
mod roles;
mod sources;
mod status;
mod sync;
mod templates;
mod terminals;
mod usage;
mod values;
mod why;
mod words;

pub use addresses::{AddressPoolOut, AddressPoolsOut};
pub use agents::{
    AgentLimits, AgentOut, AgentsOut, GoneOut, LimitsIn, MachineSize, PhaseOut, SshOut,
};
pub use audit::{AuditOut, AuditRecordOut};
pub use black_box::{BlackBoxOut, GuestCallOut, GuestTaskOut, MomentOut};
pub use breakers::{BreakerOut, BreakersOut, ResetOut};
pub use call_in::{CallIn, CalledIn};
pub use clouds::{CloudOut, CloudsOut, ConfirmIn, ConfirmOut};
pub use control::{
    FoundOut, LogLevelIn, Nothing, ReapIn, ReapOut, ReloadOut, ResyncIn, ResyncOut, ResyncPlanOut,
    RetireIn,
};
pub use declared::{
    AdoptMachineIn, AdoptMachineOut, DeclaredMachineOut, DeclaredMachinesOut, DriftOut,
};
pub use events::EventKind;
pub use faults::{ExcerptOut, FaultOut, faults_in_one_line, faults_of};
pub use fields::fields_of;
pub use happened::sentence;
pub use holds::{CloneOut, HoldIn, HoldNextOut, HoldOut};
pub use images::{
    BuildImageIn, BuildImageOut, ImageBuildOut, ImageBuildsOut, ImageOut, ImagePlanOut,
    ImageVersionOut, ImagesOut, ImportImageIn, ImportImageOut, PruneImagesIn, PruneImagesOut,
    UnreachedOut,
};
pub use leases::{LeaseIn, LeaseOut, LeasesOut, Opaque, RenewIn};
pub use machines::{
    ConfigOutValue, LoadOut, MachineOut, OrderIn, OrderOut, PowerIn, ResizeIn, SnapshotIn,
    SnapshotOut, SnapshotsOut,
};
pub use members::{LastLeaderOut, MemberOut, MembersOut, TransferIn, TransferOut};
pub use nearest::nearest;
pub use nodes::{
    CordonIn, DrainIn, DrainOut, KeptOutBy, NodeOut, NodesOut, RefusesOut, RoomOut, SpaceOut,
    StorageOut, UnreadOut,
};
pub use notify::{NotifyTestIn, NotifyTestOut, NotifyTestsOut};
pub use overrides::{
    CloudOverridesIn, CloudOverridesOut, TemplateOverridesIn, TemplateOverridesOut,
};
pub use plan::{
    CloudPlanOut, NumberOut, PlanIn, PlanOut, PlanPart, RollOut, TemplatePlanOut, UnservedOut,
    WhatChangesOut,
};
pub use problem::{FieldFault, Problem};
pub use remedies::{Heading, Remedies, TROUBLESHOOTING, anchor};
pub use roles::{Peer, Role, WhoAmIOut};
pub use sources::{JobOut, JobsOut, LostJobOut, SilentOut, SourceOut};
pub use status::{AlarmOut, ConfigOut, ReconcileOut, RestartOut, StatusOut};
pub use sync::{
    AppliedOut, AttemptOut, SyncCheckOut, SyncDoneOut, SyncIn, SyncOut, SyncResult, SyncTestOut,
    ValueChangeOut,
};
pub use templates::{CanaryOut, GivenUpOut, ProvisionIn, ProvisionOut, TemplateOut, TemplatesOut};
pub use terminals::{
    OpenTerminalOut, TerminalIn, TerminalKeysIn, TerminalOut, TerminalPiece, TerminalScreenOut,
    TerminalSizeIn, TerminalsOut,
};
pub use usage::{UsageOut, UsageRowOut};
pub use values::{ValueOut, ValuesOut};
pub use why::{
    AccountOut, FailedOut, KindOut, OtherOut, ServingOut, UntriedOut, WhyNodeOut, WhyOut,
    WhySubjectOut,
};
pub use words::{Counts, Part, count, health, is_let_go, part, shows_failure, standing};
