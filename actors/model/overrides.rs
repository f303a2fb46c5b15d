//! What an operator says of one agent, against its template: how long it may be idle, and how often
//! it is used.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::spec::TemplateSpec;

/// What holds for one agent instead of what its template says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overrides {
    /// Minutes of idling after which it goes, 0 for never; none for its template's.
    pub idle_minutes: Option<u32>,
    /// Uses after which it goes, 0 for no limit; none for its template's.
    pub max_uses: Option<u32>,
}

/// What becomes of one override.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is taken back: what the template says holds again.
    TakeBack,
    /// It is this from now on.
    Set(u32),
}

/// A change of an agent's overrides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OverrideChange {
    /// Of the idle minutes.
    pub idle_minutes: Change,
    /// Of the uses.
    pub max_uses: Change,
}

impl Change {
    /// The override after this, by what it was before.
    pub fn to(self, before: Option<u32>) -> Option<u32> {
        match self {
            Self::Keep => before,
            Self::TakeBack => None,
            Self::Set(number) => Some(number),
        }
    }
}

impl Overrides {
    /// Carries a change out.
    pub fn change(&mut self, change: OverrideChange) {
        self.idle_minutes = change.idle_minutes.to(self.idle_minutes);
        self.max_uses = change.max_uses.to(self.max_uses);
    }

    /// The idle time after which the agent goes; none for never.
    pub fn idle(&self, spec: &TemplateSpec) -> Option<Duration> {
        let own =
            |minutes: u32| (minutes > 0).then(|| Duration::from_secs(u64::from(minutes) * 60));
        self.idle_minutes.map_or(spec.idle, own)
    }

    /// The uses after which the agent goes; none for no limit.
    pub fn max_uses(&self, spec: &TemplateSpec) -> Option<u32> {
        self.max_uses.map_or(spec.max_uses, |uses| (uses > 0).then_some(uses))
    }
}

impl fmt::Display for Overrides {
    /// What is overridden, in words; nothing where nothing is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle = self.idle_minutes.map(|minutes| match minutes {
            0 => "never goes for idling".to_owned(),
            minutes => format!("goes when idle for {minutes} min"),
        });
        let uses = self.max_uses.map(|uses| match uses {
            0 => "unlimited uses".to_owned(),
            1 => "goes after 1 use".to_owned(),
            uses => format!("goes after {uses} uses"),
        });
        let parts: Vec<String> = idle.into_iter().chain(uses).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{seconds, template};

    // Invariant: what is not overridden is as the template says, and zero means no limit.

    #[test]
    fn an_override_stands_in_front_of_the_template_until_it_is_taken_back() {
        let mut spec = template("c/t", &[]);
        (spec.idle, spec.max_uses) = (Some(seconds(600)), Some(3));
        let mut own = Overrides::default();
        let both = |own: &Overrides| (own.idle(&spec), own.max_uses(&spec));
        assert_eq!(both(&own), (Some(seconds(600)), Some(3)));
        own.change(OverrideChange { idle_minutes: Change::Set(2), max_uses: Change::Set(0) });
        assert_eq!(both(&own), (Some(seconds(120)), None));
        own.change(OverrideChange { idle_minutes: Change::Set(0), max_uses: Change::Keep });
        assert_eq!(both(&own), (None, None));
        own.change(OverrideChange { idle_minutes: Change::TakeBack, max_uses: Change::TakeBack });
        assert_eq!(both(&own), (Some(seconds(600)), Some(3)));
    }

    #[test]
    fn only_what_is_overridden_is_spelled() {
        let own = |idle_minutes, max_uses| Overrides { idle_minutes, max_uses }.to_string();
        assert_eq!(own(None, None), "");
        assert_eq!(own(Some(0), Some(1)), "never goes for idling, goes after 1 use");
        assert_eq!(own(Some(5), Some(0)), "goes when idle for 5 min, unlimited uses");
    }
}
