//! Kinds of trouble, and how urgent each is.

use serde::{Deserialize, Serialize};

/// How soon somebody should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Part of the work stands still, or may be lost.
    Critical,
    /// Something works less well, or will not go on by itself.
    Warning,
}

impl Severity {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

/// What a trouble is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// The journal cannot be written.
    Journal,
    /// Another drover may own agents.
    OtherDrover,
    /// A part of drover panicked too often.
    Actor,
    /// A cloud is degraded.
    Cloud,
    /// A source of demand cannot be polled, or lets no runner be made.
    Source,
    /// A breaker is not closed.
    Breaker,
    /// A configuration is refused, or waits for a restart.
    Configuration,
    /// What git has is not in force, or differs.
    Git,
    /// The audit log cannot be written.
    AuditLog,
    /// An agent that drover cannot destroy.
    Agent,
    /// A version of a template is not used.
    Template,
    /// A build of an image failed.
    Image,
    /// A channel of notifications fails.
    Channel,
}

impl Kind {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 13] = [
        Self::Journal,
        Self::OtherDrover,
        Self::Actor,
        Self::Cloud,
        Self::Source,
        Self::Breaker,
        Self::Configuration,
        Self::Git,
        Self::AuditLog,
        Self::Agent,
        Self::Template,
        Self::Image,
        Self::Channel,
    ];

    /// As it is written in the configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::OtherDrover => "otherDrover",
            Self::Actor => "actor",
            Self::Cloud => "cloud",
            Self::Source => "source",
            Self::Breaker => "breaker",
            Self::Configuration => "configuration",
            Self::Git => "git",
            Self::AuditLog => "auditLog",
            Self::Agent => "agent",
            Self::Template => "template",
            Self::Image => "image",
            Self::Channel => "channel",
        }
    }

    /// The kind of this word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// How urgent all troubles of the kind are.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Journal | Self::OtherDrover | Self::Actor | Self::Cloud | Self::Source => {
                Severity::Critical
            }
            Self::Breaker
            | Self::Configuration
            | Self::Git
            | Self::AuditLog
            | Self::Agent
            | Self::Template
            | Self::Image
            | Self::Channel => Severity::Warning,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: a kind is written in one way, and the order of all of them is that of their urgency.

    #[test]
    fn a_kind_is_read_as_it_is_written_and_kept() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.word()), Some(kind));
            assert_eq!(serde_json::json!(kind), kind.word());
        }
        assert_eq!(Kind::of("clouds"), None);
        let mut sorted = Kind::ALL;
        sorted.sort_by_key(|kind| (kind.severity(), *kind));
        assert_eq!(sorted, Kind::ALL);
    }
}
