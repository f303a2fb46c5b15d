//! What callers are shown of what the service knows.
//!
//! The types of the answers are those of `drover-api`, shared with the command line. Who may see what
//! is decided here: [`lease`] and [`agent`] hide logins and owners from callers whose they are not.

use drover_api::{
    AgentOut, CanaryOut, CloudOut, ConfigOut, GivenUpOut, GoneOut, LeaseOut, OrderOut, PhaseOut,
    ReconcileOut, RestartOut, SshOut, TemplateOut, faults_of,
};
use drover_model::id::{AgentId, LeaseId};
use drover_model::order::OrderStatus;
use drover_model::phase::LeasePhase;
use drover_model::status::{AgentStatus, CanaryStatus, CloudStatus, LeaseStatus, TemplateStatus};
use drover_model::tenant::By;
use drover_model::time::WallTime;

use crate::view::{ConfigStatus, GoneAgent, ReconcileStatus, RestartStatus, TemplateAsides, View};

/// What every caller is shown of a thing. A trait of the server, since neither the things nor the
/// answers are its types.
pub(super) trait Shown<T> {
    fn shown(&self) -> T;
}

/// Spells wall time in RFC 3339.
pub fn rfc3339(at: WallTime) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |at| at.to_string())
}

fn ssh(agent: &AgentStatus) -> Option<SshOut> {
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

/// A lease. How to log in comes from its agent and is shown only while the lease is ready. A caller who
/// may not end it sees that it is there, and neither for whom nor how to log in.
pub(super) fn lease(view: &View, lease: &LeaseStatus, by: &By) -> LeaseOut {
    let theirs = by.owns(&lease.principal, lease.group.as_deref());
    let agent = lease.agent.as_ref().filter(|_| lease.state == LeasePhase::Ready && theirs);
    LeaseOut {
        id: lease.lease.to_string(),
        state: lease.state,
        agent: lease.agent.as_ref().map(ToString::to_string),
        owner: if theirs { lease.owner.clone() } else { String::new() },
        principal: lease.principal.clone(),
        group: lease.group.clone(),
        wants: lease.wants.clone(),
        asked_at: lease.asked.map(rfc3339),
        expires_at: lease.expires.map(rfc3339),
        ended_at: view.lease_ended(&lease.lease).map(rfc3339),
        detail: lease.detail.clone(),
        ssh: agent.and_then(|agent| view.agent(agent)).and_then(|agent| ssh(&agent)),
    }
}

/// An agent. Admins see how to log in. Others see it where all leases on the agent are theirs, or its hold
/// where no lease is on it: anyone who saw it before a lease could use it during the lease.
pub(super) fn agent(view: &View, agent: &AgentStatus, by: &By) -> AgentOut {
    let theirs = |lease: &LeaseId| {
        let known = view.lease(lease);
        known.is_some_and(|lease| by.owns(&lease.principal, lease.group.as_deref()))
    };
    let theirs = match agent.leases.as_slice() {
        [] => by.may_change_hold(agent.hold_owner.as_ref()),
        leases => by.all || leases.iter().all(theirs),
    };
    AgentOut {
        id: agent.agent.to_string(),
        template: agent.template.to_string(),
        state: agent.phase,
        since: rfc3339(agent.since),
        vmid: agent.vmid.map(|vmid| vmid.0),
        node: agent.node.as_ref().map(ToString::to_string),
        ssh: ssh(agent).filter(|_| theirs),
        leases: agent.leases.iter().map(ToString::to_string).collect(),
        uses: agent.uses,
        overrides: agent.overrides.into(),
        held_until: agent.held_until.map(rfc3339),
        login: agent.login,
        on_trial: agent.on_trial,
        size: agent.size.into(),
        orders: agent.machine.all().iter().map(|status| order(&agent.agent, status)).collect(),
        detail: agent.detail.clone(),
        phases: phases(&agent.phases),
    }
}

/// An order to the machine of an agent.
pub(super) fn order(agent: &AgentId, status: &OrderStatus) -> OrderOut {
    let order = &status.order;
    OrderOut {
        id: order.id.to_string(),
        agent: agent.to_string(),
        action: order.work.name().to_owned(),
        wants: order.work.to_string(),
        state: status.phase,
        principal: order.by.clone(),
        asked_at: rfc3339(order.asked),
        ended_at: status.ended.map(rfc3339),
        detail: status.text.clone(),
    }
}

/// A template, with what others report of it.
pub(super) fn template(
    template: &TemplateStatus,
    asides: TemplateAsides,
    managed_by: Option<String>,
) -> TemplateOut {
    let (retry_at, cause) = template.tripped.clone().unzip();
    TemplateOut {
        id: template.template.to_string(),
        labels: template.labels.clone(),
        states: template.states.clone(),
        cap: template.cap,
        minimum: template.minimum,
        idle_minimum: template.idle_minimum,
        single_use: template.max_uses == Some(1),
        max_total_uses: template.max_uses,
        num_executors: template.executors,
        lack: template.lack.clone(),
        breaker: template.breaker,
        retry_at: retry_at.map(rfc3339),
        cause,
        source: template.source.clone(),
        paused: template.paused.clone(),
        canary: template.canary.as_ref().map(canary),
        resets: asides.resets,
        hold_next_seconds: asides.hold_next,
        outdated: template.outdated,
        overrides: (!template.overrides.is_empty()).then(|| template.overrides.into()),
        managed_by,
    }
}

fn canary(canary: &CanaryStatus) -> CanaryOut {
    let (agent, trying) = canary.trial.clone().unzip();
    let given_up = canary.given_up.iter().map(|one| GivenUpOut {
        version: one.version.to_string(),
        failures: one.failures,
        cause: one.cause.clone(),
    });
    CanaryOut {
        proven: canary.proven.as_ref().map(ToString::to_string),
        trying: trying.map(|version| version.to_string()),
        agent: agent.map(|agent| agent.to_string()),
        given_up: given_up.collect(),
    }
}

/// Templates by id, each with what others report of it.
pub(super) fn templates(view: &View) -> Vec<TemplateOut> {
    let all = view.templates();
    let shown = |one: &TemplateStatus| {
        let managed_by = view.managed_by(&one.template.cloud);
        template(one, view.template_asides(&one.template), managed_by)
    };
    all.iter().map(shown).collect()
}

/// A cloud that last reported at that time.
pub(super) fn cloud(cloud: &CloudStatus, at: WallTime, managed_by: Option<String>) -> CloudOut {
    CloudOut {
        id: cloud.cloud.to_string(),
        cluster: cloud.cluster.as_ref().map(ToString::to_string),
        health: cloud.health,
        version: cloud.version.clone(),
        detail: cloud.detail.clone(),
        agents: cloud.agents,
        cap: cloud.cap,
        overrides: (!cloud.overrides.is_empty()).then(|| cloud.overrides.into()),
        managed_by,
        reported_at: rfc3339(at),
    }
}

/// Clouds by id, each with the time of its last report.
pub(super) fn clouds(view: &View) -> Vec<CloudOut> {
    let all = view.dated_clouds();
    all.iter().map(|(one, at)| cloud(one, *at, view.managed_by(&one.cloud))).collect()
}

impl Shown<GoneOut> for GoneAgent {
    fn shown(&self) -> GoneOut {
        GoneOut {
            id: self.agent.to_string(),
            template: self.template.to_string(),
            reason: self.reason.label().to_owned(),
            detail: self.reason.to_string(),
            gone_at: rfc3339(self.at),
            phases: phases(&self.phases),
        }
    }
}

impl Shown<ConfigOut> for ConfigStatus {
    fn shown(&self) -> ConfigOut {
        let (refused_at, refusal) = self.refusal().cloned().unzip();
        ConfigOut {
            generation: self.generation.map(|generation| generation.0),
            orphan_cleanup_period_seconds: self.reconcile_seconds,
            applied_at: self.applied.map(rfc3339),
            refused_at: refused_at.map(rfc3339),
            faults: refusal.as_deref().map(faults_of).unwrap_or_default(),
            refusal,
            // The service knows it.
            path: None,
        }
    }
}

impl Shown<ReconcileOut> for ReconcileStatus {
    fn shown(&self) -> ReconcileOut {
        let cluster = self.cluster.to_string();
        let (findings, unread) = (self.findings.clone(), self.unread.clone());
        ReconcileOut { cluster, findings, unread, at: rfc3339(self.at) }
    }
}

impl Shown<RestartOut> for RestartStatus {
    fn shown(&self) -> RestartOut {
        let actor = self.actor.clone();
        RestartOut { actor, count: self.count, gave_up: self.gave_up, at: rfc3339(self.at) }
    }
}
