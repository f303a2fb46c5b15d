//! What can be shown: where the API lists it, who may ask for it, and which events move it.

use std::time::Duration;

use clap::ValueEnum as _;
use drover_api::{EventKind, Role};

use super::super::options::{Noun, TopNoun};

/// What is asked of the API. Several nouns may be in one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ask {
    Status,
    Agents,
    Leases,
    Jobs,
    Nodes,
    Templates,
    Clouds,
    Images,
    Machines,
    Breakers,
    AddressPools,
    Members,
}

impl Ask {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Status => "/v1/status",
            Self::Agents => "/v1/agents",
            Self::Leases => "/v1/leases?limit=10000",
            Self::Jobs => "/v1/jobs",
            Self::Nodes => "/v1/nodes",
            Self::Templates => "/v1/templates",
            Self::Clouds => "/v1/clouds",
            Self::Images => "/v1/images",
            Self::Machines => "/v1/machines",
            Self::Breakers => "/v1/breakers",
            Self::AddressPools => "/v1/address-pools",
            Self::Members => "/v1/members",
        }
    }

    /// Whether the service asks its clusters before it answers.
    pub(super) fn asks_clusters(self) -> bool {
        matches!(self, Self::Nodes | Self::Images)
    }

    /// The shortest time between two requests.
    pub(super) fn pause(self) -> Duration {
        Duration::from_secs(if self.asks_clusters() { 5 } else { 1 })
    }

    /// After which time it is asked again although no event moved it.
    pub(super) fn stale(self) -> Duration {
        Duration::from_secs(if self.asks_clusters() { 30 } else { 10 })
    }
}

impl TopNoun {
    /// The word that stands behind `:`.
    pub(super) fn word(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The noun that a word means: its whole word, another name of it, or the only one that begins so.
    pub(super) fn of(word: &str) -> Option<Self> {
        let word = word.trim().to_lowercase();
        if let Ok(noun) = Self::from_str(&word, true) {
            return Some(noun);
        }
        let begins = |noun: &&Self| {
            let value = noun.to_possible_value();
            value.is_some_and(|value| {
                value.get_name_and_aliases().any(|name| name.starts_with(&word))
            })
        };
        let mut found = Self::value_variants().iter().filter(begins);
        match (found.next(), found.next()) {
            (Some(noun), None) if !word.is_empty() => Some(*noun),
            (_, _) => None,
        }
    }

    /// What it is read from; none for events, which come by themselves.
    pub(super) fn ask(self) -> Option<Ask> {
        match self {
            Self::Herd | Self::Sources | Self::Alarms => Some(Ask::Status),
            Self::Agents | Self::Gone => Some(Ask::Agents),
            Self::Leases => Some(Ask::Leases),
            Self::Jobs => Some(Ask::Jobs),
            Self::Nodes => Some(Ask::Nodes),
            Self::Templates => Some(Ask::Templates),
            Self::Clouds => Some(Ask::Clouds),
            Self::Images => Some(Ask::Images),
            Self::Machines => Some(Ask::Machines),
            Self::Breakers => Some(Ask::Breakers),
            Self::AddressPools => Some(Ask::AddressPools),
            Self::Members => Some(Ask::Members),
            Self::Events => None,
        }
    }

    /// The role that may read it.
    pub(super) fn least(self) -> Role {
        match self.ask().is_some_and(Ask::asks_clusters) {
            true => Role::Operator,
            false => Role::Viewer,
        }
    }

    /// The noun of `drover show` for one of them.
    pub(super) fn one(self) -> Option<Noun> {
        match self {
            Self::Agents | Self::Gone => Some(Noun::Agent),
            Self::Leases => Some(Noun::Lease),
            Self::Jobs => Some(Noun::Job),
            Self::Nodes => Some(Noun::Node),
            Self::Templates => Some(Noun::Template),
            Self::Clouds => Some(Noun::Cloud),
            Self::Sources => Some(Noun::Source),
            Self::Images => Some(Noun::Image),
            Self::Machines => Some(Noun::Machine),
            Self::Breakers => Some(Noun::Breaker),
            Self::AddressPools => Some(Noun::AddressPool),
            Self::Alarms => Some(Noun::Alarm),
            Self::Herd | Self::Members | Self::Events => None,
        }
    }

    /// Whether `drover why` says something of one of them.
    pub(super) fn has_why(self) -> bool {
        match self {
            Self::Agents
            | Self::Leases
            | Self::Jobs
            | Self::Nodes
            | Self::Templates
            | Self::Sources => true,
            Self::Herd
            | Self::Gone
            | Self::Clouds
            | Self::Images
            | Self::Machines
            | Self::Breakers
            | Self::AddressPools
            | Self::Members
            | Self::Alarms
            | Self::Events => false,
        }
    }
}

/// What an event moves: after it an older answer may be wrong.
pub(super) fn moved(kind: EventKind) -> &'static [Ask] {
    const ALL: &[Ask] = &[
        Ask::Status,
        Ask::Agents,
        Ask::Leases,
        Ask::Jobs,
        Ask::Nodes,
        Ask::Templates,
        Ask::Clouds,
        Ask::Images,
        Ask::Machines,
        Ask::Breakers,
        Ask::AddressPools,
        Ask::Members,
    ];
    match kind {
        EventKind::ConfigApplied
        | EventKind::ConfigRefused
        | EventKind::ConfigSynced
        | EventKind::ConfigNotSynced
        | EventKind::Ordered
        | EventKind::Lagged => ALL,
        EventKind::Agent | EventKind::AgentGone => {
            &[Ask::Status, Ask::Agents, Ask::Templates, Ask::Clouds, Ask::Nodes, Ask::Jobs]
        }
        EventKind::Step | EventKind::Restarted => &[Ask::Status],
        EventKind::Alarm => &[Ask::Status, Ask::Agents],
        EventKind::Lease => &[Ask::Status, Ask::Leases, Ask::Agents],
        EventKind::Template | EventKind::TemplateGone | EventKind::Resets | EventKind::HoldNext => {
            &[Ask::Status, Ask::Templates]
        }
        EventKind::Breaker => &[Ask::Status, Ask::Breakers, Ask::Templates, Ask::Nodes],
        EventKind::Cloud | EventKind::CloudGone => &[Ask::Status, Ask::Clouds, Ask::Nodes],
        EventKind::Source | EventKind::SourceGone | EventKind::JobLost => &[Ask::Status, Ask::Jobs],
        EventKind::OtherDrover | EventKind::Reconciled => &[Ask::Status],
        EventKind::AddressPools => &[Ask::Status, Ask::AddressPools],
        EventKind::Image => &[Ask::Status, Ask::Images],
        EventKind::Machine => &[Ask::Status, Ask::Machines],
    }
}
