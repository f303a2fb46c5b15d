//! Agents: living ones, those that are gone, and limits of one agent.

use drover_model::overrides::Overrides;
use drover_model::phase::{AgentPhase, LoginPhase};
use drover_model::size::Size;
use serde::{Deserialize, Deserializer, Serialize};

use crate::OrderOut;

/// How to log in to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SshOut {
    /// The IP address.
    pub host: String,
    /// The TCP port of its SSH server.
    pub port: u16,
    /// The login name.
    pub user: String,
    /// The host key to expect, a public key line; null when it is not known.
    pub host_key: Option<String>,
    /// All host keys of the agent.
    pub host_keys: Vec<String>,
}

/// Time spent in a part of an agent's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PhaseOut {
    /// A phase, or a step of one such as `Preparing: cloud-init`; `Earlier` is the time before the
    /// service started.
    pub state: String,
    /// Its length in milliseconds.
    pub ms: u64,
}

// Not `AgentStatus`: `ssh` is hidden from callers whose lease is not on the agent; standing, owner and
// who holds it are shown to nobody; times are spelled.
/// An agent, its state and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentOut {
    /// The id of the agent.
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
    /// Whether the operator who holds it can log in; null when it is not held.
    #[serde(default)]
    pub login: Option<LoginPhase>,
    /// Whether it was made for trial, and serves nobody.
    #[serde(default)]
    pub on_trial: bool,
    /// How large it is, where a job or lease asked for that size; left out where its template alone
    /// says it.
    #[serde(default, skip_serializing_if = "MachineSize::is_none")]
    pub size: MachineSize,
    /// The last orders to its machine, oldest first; absent where there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<OrderOut>,
    /// What it waits for, or why it goes.
    pub detail: String,
    /// Time spent in each state so far, in order.
    pub phases: Vec<PhaseOut>,
}

// Not `Size`: journals hold another name of the disk.
/// How large a machine is, by the names of the keys of templates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSize {
    /// Processor cores; those of the template when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Memory in MiB; that of the template when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// Size of the boot disk in GiB; that of the template when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<u32>,
}

impl MachineSize {
    /// Whether nothing is said.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Size> for MachineSize {
    fn from(size: Size) -> Self {
        let Size { cores, memory_mb, disk_gb } = size;
        Self { cores, memory_mb, disk_size_gb: disk_gb }
    }
}

impl From<MachineSize> for Size {
    fn from(size: MachineSize) -> Self {
        let MachineSize { cores, memory_mb, disk_size_gb } = size;
        Self { cores, memory_mb, disk_gb: disk_size_gb }
    }
}

// Not `Overrides`: journals hold other names of these two numbers.
/// Limits of one agent against its template's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AgentLimits {
    /// Minutes of idling after which it goes, 0 for never; null for its template's.
    pub idle_termination_minutes: Option<u32>,
    /// Uses after which it goes, 0 for no limit; null for its template's.
    pub max_total_uses: Option<u32>,
}

/// What changes of the limits of one agent: absent leaves a limit, null takes it back, a number sets it.
/// `/openapi.json` describes it as [`AgentLimits`]: a schema does not distinguish null from absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitsIn {
    /// Minutes of idling after which the agent goes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub idle_termination_minutes: Option<Option<u32>>,
    /// Uses after which the agent goes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_total_uses: Option<Option<u32>>,
}

/// Reads a field that is there: null is a value of its own.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(from).map(Some)
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GoneOut {
    /// The id of the agent.
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

/// The answer to a list of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentsOut {
    /// The agents that are not gone.
    pub agents: Vec<AgentOut>,
    /// The last that went, oldest first.
    pub gone: Vec<GoneOut>,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    // Invariant: null and an absent field are different requests, and both survive the way through JSON.

    #[test]
    fn null_takes_a_limit_back_and_an_absent_one_stays() {
        for (text, idle, uses) in [
            (r#"{"idleTerminationMinutes":null}"#, Some(None), None),
            (r#"{"idleTerminationMinutes":5,"maxTotalUses":0}"#, Some(Some(5)), Some(Some(0))),
            ("{}", None, None),
        ] {
            let limits = LimitsIn { idle_termination_minutes: idle, max_total_uses: uses };
            assert_eq!(serde_json::from_str::<LimitsIn>(text).unwrap(), limits);
            assert_eq!(serde_json::to_string(&limits).unwrap(), text);
        }
    }
}
