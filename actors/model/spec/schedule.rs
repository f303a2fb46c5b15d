//! What a template keeps without demand, and when it keeps more (`schedule`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time that comes again and again, in which a template keeps more (an entry of `schedule`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSpec {
    /// When it opens: a cron pattern of five fields.
    pub cron: String,
    /// How long it is open.
    pub duration: Duration,
    /// The IANA time zone of the pattern.
    pub time_zone: String,
    /// Agents kept meanwhile, in use or not.
    pub minimum: u32,
    /// Idle agents kept meanwhile.
    pub idle_minimum: u32,
}

impl WindowSpec {
    /// What is kept while it is open.
    pub fn minimums(&self) -> Minimums {
        Minimums { all: self.minimum, idle: self.idle_minimum }
    }
}

/// How many agents a template keeps without demand, within the caps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Minimums {
    /// Agents in all, those in use included.
    pub all: u32,
    /// Agents that are idle.
    pub idle: u32,
}

impl Minimums {
    /// The higher one of each.
    pub fn max(self, other: Self) -> Self {
        Self { all: self.all.max(other.all), idle: self.idle.max(other.idle) }
    }
}
