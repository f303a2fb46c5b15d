//! The JSON of the API, as the server writes and the command line reads it.

use std::collections::BTreeMap;

use drover_model::fact::{AgentDetail, LeaseStatus, ResetStatus};
use drover_model::id::LeaseId;
use drover_model::overrides::Overrides;
use drover_model::phase::{AgentPhase, BreakerPhase, CloudHealth, LeasePhase};
use drover_model::tenant::By;
use drover_model::time::WallTime;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AddressPoolOut;
use super::breakers::{self, BreakerOut};
use super::sources::{LostJobOut, SourceOut};
use crate::view::{
    AlarmStatus, CloudStatus, ConfigStatus, GoneAgent, ReconcileStatus, RestartStatus,
    TemplateStatus, View,
};

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseOut {
    /// Its id.
    pub id: String,
    pub state: LeasePhase,
    /// Its agent, once granted.
    pub agent: Option<String>,
    /// For whom; blank where the lease is not the caller's.
    pub owner: String,
    /// Who asked.
    pub principal: String,
    /// The group whose lease it is too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What was asked for, in words.
    #[serde(default)]
    pub wants: String,
    /// When it was asked for (RFC 3339); left out where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<String>,
    /// When it runs out (RFC 3339), once granted.
    pub expires_at: Option<String>,
    /// Why it waits or ended.
    pub detail: String,
    /// How to log in, once ready; null where the lease is not the caller's.
    pub ssh: Option<SshOut>,
}

/// How to log in to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SshOut {
    /// The address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The login name.
    pub user: String,
    /// The host key to expect, a public key line; null when it is not known.
    pub host_key: Option<String>,
    /// All host keys of the agent.
    pub host_keys: Vec<String>,
}

/// Leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeasesOut {
    /// Live ones and the last that ended, by id.
    pub leases: Vec<LeaseOut>,
    /// There are more: list them with `after` set to this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Time spent in a part of an agent's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PhaseOut {
    /// A phase, or a step of one such as `Preparing: cloud-init`; `Earlier` is the time before the
    /// service started.
    pub state: String,
    /// Milliseconds.
    pub ms: u64,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentOut {
    /// Its id.
    pub id: String,
    /// Its template, `cloud/template`.
    pub template: String,
    pub state: AgentPhase,
    /// Since when (RFC 3339).
    pub since: String,
    /// Its VMID, once chosen.
    pub vmid: Option<u32>,
    /// Its node, once chosen.
    pub node: Option<String>,
    /// How to log in, once known; null where a lease of somebody else is on it.
    pub ssh: Option<SshOut>,
    /// Leases on it.
    pub leases: Vec<String>,
    /// Uses so far.
    pub uses: u32,
    /// What was set for it against its template.
    #[serde(default)]
    pub overrides: AgentLimits,
    /// Until when it is held for debugging (RFC 3339); null when it is not.
    #[serde(default)]
    pub held_until: Option<String>,
    /// Whether it was made for trial, and serves nobody.
    #[serde(default)]
    pub on_trial: bool,
    /// What it waits for, or why it goes.
    pub detail: String,
    /// Time spent in each state so far, in order.
    pub phases: Vec<PhaseOut>,
}

/// Limits of one agent against its template's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentLimits {
    /// Minutes of idling after which it goes, 0 for never; null for its template's.
    pub idle_termination_minutes: Option<u32>,
    /// Uses after which it goes, 0 for no limit; null for its template's.
    pub max_total_uses: Option<u32>,
}

impl From<Overrides> for AgentLimits {
    fn from(own: Overrides) -> Self {
        Self { idle_termination_minutes: own.idle_minutes, max_total_uses: own.max_uses }
    }
}

impl AgentLimits {
    /// What is set, in words; nothing where nothing is.
    pub fn spell(self) -> String {
        let (idle_minutes, max_uses) = (self.idle_termination_minutes, self.max_total_uses);
        Overrides { idle_minutes, max_uses }.to_string()
    }
}

/// An agent that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoneOut {
    /// Its id.
    pub id: String,
    /// Its template, `cloud/template`.
    pub template: String,
    /// Why it went, one word.
    pub reason: String,
    /// Why it went, for people.
    pub detail: String,
    /// When (RFC 3339).
    pub gone_at: String,
    /// Time spent in each state, in order.
    pub phases: Vec<PhaseOut>,
}

/// Agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AgentsOut {
    /// Live ones.
    pub agents: Vec<AgentOut>,
    /// The last that went, oldest first.
    pub gone: Vec<GoneOut>,
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TemplateOut {
    /// `cloud/template`.
    pub id: String,
    /// Its labels.
    pub labels: Vec<String>,
    /// How many of its agents are in each phase.
    #[schema(value_type = BTreeMap<String, u32>)]
    pub states: BTreeMap<AgentPhase, u32>,
    /// The most agents; null for no limit.
    pub cap: Option<u32>,
    /// Agents kept at this moment, in use or not.
    pub minimum: u32,
    /// Idle agents kept at this moment.
    pub idle_minimum: u32,
    /// Why it begins nothing although it may: no address is free; null when one is.
    #[serde(default)]
    pub lack: Option<String>,
    pub breaker: BreakerPhase,
    /// When a tripped breaker may be tried again (RFC 3339).
    pub retry_at: Option<String>,
    /// What tripped it.
    pub cause: Option<String>,
    /// What its agents are cloned from and why; null before that was chosen.
    #[serde(default)]
    pub source: Option<String>,
    /// Why no agent is started for a while, when that is no breaker's matter.
    #[serde(default)]
    pub paused: Option<String>,
    /// What is known of its resets; null where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets: Option<ResetsOut>,
    /// For how many seconds its next failure is held; left out when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_next_seconds: Option<u64>,
}

/// What is known of the resets of a template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResetsOut {
    /// Resets that went well since the service started.
    pub count: u64,
    /// Milliseconds one takes by now.
    pub reset_ms: Option<u64>,
    /// Milliseconds it takes to destroy an agent and make a new one.
    #[serde(rename = "anewMs")]
    pub clone_ms: Option<u64>,
    /// Why agents are destroyed all the same; empty when they are not.
    pub detail: String,
}

/// Templates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TemplatesOut {
    /// Each template on each of its clouds.
    pub templates: Vec<TemplateOut>,
}

/// A cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CloudOut {
    /// Its key.
    pub id: String,
    /// Its cluster, once known.
    pub cluster: Option<String>,
    pub health: CloudHealth,
    /// Proxmox's version, once known.
    pub version: Option<String>,
    /// What is wrong.
    pub detail: String,
    /// Agents that count against its cap.
    pub agents: u32,
    /// The most agents; null for no limit.
    pub cap: Option<u32>,
    /// When this was last told (RFC 3339).
    #[serde(rename = "toldAt")]
    pub reported_at: String,
}

/// Clouds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CloudsOut {
    /// The configured clouds.
    pub clouds: Vec<CloudOut>,
}

/// The configuration in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigOut {
    /// Its generation; null before the first.
    pub generation: Option<u64>,
    /// Seconds between two reconciliations of every cloud, as `service` says; null where each cloud
    /// says so itself.
    #[serde(default)]
    pub orphan_cleanup_period_seconds: Option<u64>,
    /// Since when (RFC 3339).
    pub applied_at: Option<String>,
    /// When a newer one was refused (RFC 3339); null when the newest is in force.
    pub refused_at: Option<String>,
    /// Its faults.
    pub refusal: Option<String>,
}

/// Something that needs an administrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlarmOut {
    /// The agent.
    pub agent: String,
    /// What is wrong.
    pub text: String,
    /// What to run.
    pub command: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// The last reconciliation of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReconcileOut {
    /// The cluster.
    pub cluster: String,
    /// What was found, a line each.
    pub findings: Vec<String>,
    /// Why the cluster could not be read; null where it was.
    pub unread: Option<String>,
    /// When (RFC 3339).
    pub at: String,
}

/// A restart of an actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestartOut {
    /// Which actor.
    pub actor: String,
    /// Restarts within the window.
    pub count: u32,
    /// Whether it was given up.
    pub gave_up: bool,
    /// When (RFC 3339).
    pub at: String,
}

/// Everything at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusOut {
    /// drover's version.
    pub version: String,
    /// Whether the service is ready for work.
    pub ready: bool,
    /// Why the journal cannot be written; null when it can. Nothing new is started meanwhile.
    #[serde(default)]
    pub journal: Option<String>,
    /// The configuration in force.
    pub config: ConfigOut,
    /// The configured clouds.
    pub clouds: Vec<CloudOut>,
    /// Each template on each of its clouds.
    pub templates: Vec<TemplateOut>,
    /// Pools of addresses.
    #[serde(default)]
    pub address_pools: Vec<AddressPoolOut>,
    /// Live agents.
    pub agents: Vec<AgentOut>,
    /// Leases that have not ended.
    pub leases: Vec<LeaseOut>,
    /// What needs an administrator.
    pub alarms: Vec<AlarmOut>,
    /// Breakers that do not flow.
    #[serde(default)]
    pub breakers: Vec<BreakerOut>,
    /// Sources of demand.
    #[serde(default)]
    pub sources: Vec<SourceOut>,
    /// The last jobs that were lost with their machines.
    #[serde(default)]
    pub lost_jobs: Vec<LostJobOut>,
    /// The last reconciliation of each cluster.
    pub reconciled: Vec<ReconcileOut>,
    /// The last restarts of actors.
    pub restarts: Vec<RestartOut>,
}

/// Spells wall time in RFC 3339.
pub fn rfc3339(at: WallTime) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

fn ssh(agent: &AgentDetail) -> Option<SshOut> {
    let (port, user) = agent.ssh.clone()?;
    let keys = &agent.host_keys;
    let best = keys.iter().find(|key| key.starts_with("ssh-ed25519 ")).or_else(|| keys.first());
    Some(SshOut {
        host: agent.address.clone()?,
        port,
        user,
        host_key: best.cloned(),
        host_keys: keys.clone(),
    })
}

fn phases(phases: &[(String, u64)]) -> Vec<PhaseOut> {
    phases.iter().map(|(state, ms)| PhaseOut { state: state.clone(), ms: *ms }).collect()
}

impl LeaseOut {
    /// Spells a lease; how to log in comes from its agent and is told only while it is ready. Who
    /// may not end it sees that it is there, and neither for whom nor how to log in.
    pub fn of(view: &View, lease: &LeaseStatus, by: &By) -> Self {
        let theirs = by.owns(&lease.principal, lease.group.as_deref());
        let agent = lease.agent.as_ref().filter(|_| lease.state == LeasePhase::Ready && theirs);
        Self {
            id: lease.lease.to_string(),
            state: lease.state,
            agent: lease.agent.as_ref().map(ToString::to_string),
            owner: if theirs { lease.owner.clone() } else { String::new() },
            principal: lease.principal.clone(),
            group: lease.group.clone(),
            wants: lease.wants.clone(),
            asked_at: lease.asked.map(rfc3339),
            expires_at: lease.expires.map(rfc3339),
            detail: lease.detail.clone(),
            ssh: agent.and_then(|agent| view.agent(agent)).and_then(|agent| ssh(&agent)),
        }
    }
}

impl AgentOut {
    /// Spells an agent; how to log in is told to admins, and to those alone whose are all leases on
    /// it, or its hold where there is no lease. Anyone who was told it before a lease could use it then.
    pub fn of(view: &View, agent: &AgentDetail, by: &By) -> Self {
        let theirs = |lease: &LeaseId| {
            let known = view.lease(lease);
            known.is_some_and(|lease| by.owns(&lease.principal, lease.group.as_deref()))
        };
        let theirs = match agent.leases.as_slice() {
            [] => by.may_change_hold(agent.hold_owner.as_ref()),
            leases => by.all || leases.iter().all(theirs),
        };
        let out = Self::from(agent);
        Self { ssh: out.ssh.filter(|_| theirs), ..out }
    }
}

impl From<&AgentDetail> for AgentOut {
    fn from(agent: &AgentDetail) -> Self {
        Self {
            id: agent.agent.to_string(),
            template: agent.template.to_string(),
            state: agent.state,
            since: rfc3339(agent.since),
            vmid: agent.vmid.map(|vmid| vmid.0),
            node: agent.node.as_ref().map(ToString::to_string),
            ssh: ssh(agent),
            leases: agent.leases.iter().map(ToString::to_string).collect(),
            uses: agent.uses,
            overrides: agent.overrides.into(),
            held_until: agent.held_until.map(rfc3339),
            on_trial: agent.on_trial,
            detail: agent.detail.clone(),
            phases: phases(&agent.phases),
        }
    }
}

impl From<&GoneAgent> for GoneOut {
    fn from(gone: &GoneAgent) -> Self {
        Self {
            id: gone.agent.to_string(),
            template: gone.template.to_string(),
            reason: gone.reason.label().to_owned(),
            detail: gone.reason.to_string(),
            gone_at: rfc3339(gone.at),
            phases: phases(&gone.phases),
        }
    }
}

impl From<&TemplateStatus> for TemplateOut {
    fn from(template: &TemplateStatus) -> Self {
        let (retry_at, cause) = template.tripped.clone().unzip();
        Self {
            id: template.template.to_string(),
            labels: template.labels.clone(),
            states: template.states.clone(),
            cap: template.cap,
            minimum: template.minimum,
            idle_minimum: template.idle_minimum,
            lack: template.lack.clone(),
            breaker: template.breaker,
            retry_at: retry_at.map(rfc3339),
            cause,
            source: template.source.clone(),
            paused: template.paused.clone(),
            resets: template.asides.resets.as_ref().map(ResetsOut::from),
            hold_next_seconds: template.asides.hold_next,
        }
    }
}

impl From<&ResetStatus> for ResetsOut {
    fn from(resets: &ResetStatus) -> Self {
        let ResetStatus { count, reset_ms, clone_ms, detail } = resets.clone();
        Self { count, reset_ms, clone_ms, detail }
    }
}

impl From<&CloudStatus> for CloudOut {
    fn from(cloud: &CloudStatus) -> Self {
        Self {
            id: cloud.cloud.to_string(),
            cluster: cloud.cluster.as_ref().map(ToString::to_string),
            health: cloud.health,
            version: cloud.version.clone(),
            detail: cloud.detail.clone(),
            agents: cloud.agents,
            cap: cloud.cap,
            reported_at: rfc3339(cloud.at),
        }
    }
}

impl From<&ConfigStatus> for ConfigOut {
    fn from(config: &ConfigStatus) -> Self {
        let (refused_at, refusal) = config.refused.clone().unzip();
        Self {
            generation: config.generation.map(|generation| generation.0),
            orphan_cleanup_period_seconds: config.reconcile_seconds,
            applied_at: config.applied.map(rfc3339),
            refused_at: refused_at.map(rfc3339),
            refusal,
        }
    }
}

impl From<&AlarmStatus> for AlarmOut {
    fn from(alarm: &AlarmStatus) -> Self {
        Self {
            agent: alarm.agent.to_string(),
            text: alarm.text.clone(),
            command: alarm.command.clone(),
            since: rfc3339(alarm.at),
        }
    }
}

impl From<&ReconcileStatus> for ReconcileOut {
    fn from(one: &ReconcileStatus) -> Self {
        let cluster = one.cluster.to_string();
        let (findings, unread) = (one.findings.clone(), one.unread.clone());
        Self { cluster, findings, unread, at: rfc3339(one.at) }
    }
}

impl From<&RestartStatus> for RestartOut {
    fn from(one: &RestartStatus) -> Self {
        let actor = one.actor.clone();
        Self { actor, count: one.count, gave_up: one.gave_up, at: rfc3339(one.at) }
    }
}

impl StatusOut {
    /// Spells the whole view, as far as these may see it.
    pub fn of(view: &View, by: &By) -> Self {
        let live = |lease: &LeaseStatus| lease.state != LeasePhase::Ended;
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ready: view.ready(),
            journal: view.journal_trouble(),
            config: ConfigOut::from(&view.config()),
            clouds: view.clouds().iter().map(CloudOut::from).collect(),
            templates: view.templates().iter().map(TemplateOut::from).collect(),
            address_pools: view.address_pools().iter().map(AddressPoolOut::from).collect(),
            agents: view.agents().iter().map(|agent| AgentOut::of(view, agent, by)).collect(),
            leases: view
                .leases()
                .iter()
                .filter(|lease| live(lease))
                .map(|lease| LeaseOut::of(view, lease, by))
                .collect(),
            alarms: view.alarms().iter().map(AlarmOut::from).collect(),
            breakers: breakers::breakers(view),
            sources: view.sources().iter().map(SourceOut::from).collect(),
            lost_jobs: view.lost_jobs().iter().map(LostJobOut::from).collect(),
            reconciled: view.reconciled().iter().map(ReconcileOut::from).collect(),
            restarts: view.restarts().iter().map(RestartOut::from).collect(),
        }
    }
}
