//! What agents show about resets of their template: whether a reset is possible and worth it. A
//! reset is not worth it when it takes longer than to destroy an agent and make a new one.

use std::time::Duration;

use drover_model::record::Hold;
use drover_model::status::ResetStatus;

/// The mean covers roughly this many of the last values.
const WEIGHT: u32 = 8;
/// The fewest resets for a judgement. The first one may have met a busy storage.
const ENOUGH: u32 = 3;
/// After this many agents that were destroyed instead, one is reset again: storages change.
const AGAIN: u32 = 10;

/// What one agent has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetStats {
    /// From the intent to clone to `Ready`.
    Made(Duration),
    /// From the intent to retire to the end.
    Retired(Duration),
    /// From the intent to reset to `Ready` again.
    Reset(Duration),
    /// The agent was destroyed because resets are not worth it.
    Passed,
    /// The agent cannot be reset. The text is for people.
    Refused(String),
}

/// What an agent learns of its template before each step.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateHints {
    /// Whether a reset is worth it.
    pub worth: bool,
    /// The hold that waits for the template's next failure.
    pub hold_next: Option<Hold>,
}

impl Default for TemplateHints {
    fn default() -> Self {
        Self { worth: true, hold_next: None }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mean {
    count: u32,
    mean: Duration,
}

impl Mean {
    fn note(&mut self, span: Duration) {
        self.count = self.count.saturating_add(1);
        let parts = self.count.min(WEIGHT);
        self.mean = (self.mean * (parts - 1) + span) / parts;
    }

    fn get(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.mean)
    }
}

/// What is known of one template's resets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    made: Mean,
    retired: Mean,
    reset: Mean,
    total: u64,
    passed: u32,
    refused: Option<String>,
}

impl Figures {
    /// Updates the figures with what one agent has shown. Returns the refusal where it is a new one.
    pub fn note(&mut self, reset_stats: ResetStats) -> Option<String> {
        let before = self.refused.clone();
        match reset_stats {
            ResetStats::Made(span) => self.made.note(span),
            ResetStats::Retired(span) => self.retired.note(span),
            ResetStats::Reset(span) => {
                self.reset.note(span);
                self.total += 1;
                self.passed = 0;
                self.refused = None;
            }
            ResetStats::Passed => self.passed = self.passed.saturating_add(1),
            ResetStats::Refused(why) => self.refused = Some(why),
        }
        self.refused.clone().filter(|_| self.refused != before)
    }

    /// How long it takes to destroy an agent and make a new one.
    fn clone_time(&self) -> Option<Duration> {
        Some(self.made.get()? + self.retired.get().unwrap_or_default())
    }

    fn slower(&self) -> bool {
        let known = self.reset.get().filter(|_| self.reset.count >= ENOUGH);
        matches!((known, self.clone_time()), (Some(reset), Some(clone)) if reset > clone)
    }

    /// Whether the next used agent is reset rather than destroyed.
    pub fn worth(&self) -> bool {
        !self.slower() || self.passed >= AGAIN
    }

    /// The status for people.
    pub fn status(&self) -> ResetStatus {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let detail = match &self.refused {
            Some(why) => format!("used agents are destroyed: {why}"),
            None if self.slower() => {
                "used agents are destroyed: resets take longer than new ones".to_owned()
            }
            None => String::new(),
        };
        ResetStatus {
            count: self.total,
            reset_ms: self.reset.get().map(ms),
            clone_ms: self.clone_time().map(ms),
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seconds;

    // Invariant: agents are reset as long as that is faster than a new one, and are tried again.

    fn figures(made: u64, retired: u64, resets: &[u64]) -> Figures {
        let mut figures = Figures::default();
        figures.note(ResetStats::Made(seconds(made)));
        figures.note(ResetStats::Retired(seconds(retired)));
        for reset in resets {
            figures.note(ResetStats::Reset(seconds(*reset)));
        }
        figures
    }

    #[test]
    fn resets_are_given_up_when_they_take_longer_than_new_agents() {
        assert!(Figures::default().worth(), "nothing is known yet");
        assert!(figures(20, 10, &[40, 40]).worth(), "too few to judge by");
        assert!(figures(20, 10, &[30, 30, 30]).worth());
        assert!(!figures(20, 10, &[31, 31, 31]).worth());
        assert!(figures(20, 10, &[90, 5, 5, 5]).worth(), "one slow one among others");
    }

    #[test]
    fn after_ten_destroyed_agents_one_is_reset_again() {
        let mut figures = figures(20, 10, &[60, 60, 60]);
        for _ in 0..9 {
            figures.note(ResetStats::Passed);
            assert!(!figures.worth());
        }
        figures.note(ResetStats::Passed);
        assert!(figures.worth());
        figures.note(ResetStats::Reset(seconds(60)));
        assert!(!figures.worth());
        for _ in 0..12 {
            figures.note(ResetStats::Reset(seconds(2)));
        }
        assert!(figures.worth(), "the storage is better now");
    }

    // Invariant: a refusal is reported once, until a reset succeeded.

    #[test]
    fn a_refusal_is_news_once() {
        let mut resets = Figures::default();
        let refused = || ResetStats::Refused("no right".into());
        assert_eq!(resets.note(refused()).as_deref(), Some("no right"));
        assert_eq!(resets.note(refused()), None);
        assert_eq!(resets.status().detail, "used agents are destroyed: no right");
        resets.note(ResetStats::Reset(seconds(5)));
        assert_eq!(resets.status().detail, "");
        assert!(resets.note(refused()).is_some());
    }
}
