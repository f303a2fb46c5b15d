//! The circuit breaker of a template.
//!
//! ```text
//!          failures in a row               cool-down over, an agent starts
//! closed ────────────────────▶ open ────────────────────────────────────────▶ half-open
//!    ▲                           ▲                                               │  │
//!    │                           └──────────── the trial fails ──────────────────┘  │
//!    └──────────────────── success, or another version ─────────────────────────────┘
//! ```
//!
//! A half-open breaker lets exactly one trial through. It is a plain value: its caller decides what
//! counts as a failure.

use std::time::Duration;

use drover_model::id::{AgentId, TemplateId};
use drover_model::journal_state::BreakerEntry;
use drover_model::phase::BreakerPhase;
use drover_model::record::Body;
use drover_model::spec::BreakerSpec;
use drover_model::time::{Moment, Now, WallTime};

/// Where a breaker stands, with what only that position needs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Position {
    Closed,
    Open { until: Moment, wall: WallTime },
    HalfOpen { trial: Option<AgentId> },
}

/// Failures in a row, and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    position: Position,
    failures: u32,
    cooldown: Duration,
    cause: String,
    /// The version of what can be cloned that it judges, once that was looked at.
    judged: Option<String>,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            position: Position::Closed,
            failures: 0,
            cooldown: Duration::ZERO,
            cause: String::new(),
            judged: None,
        }
    }
}

impl Breaker {
    /// Whether a breaker of the journal judges another version of the spec than this one. What was
    /// found in the cluster for it stands behind a colon, and is judged once it is looked at.
    pub fn is_outdated(entry: &BreakerEntry, version: &str) -> bool {
        let spec = |judged: &str| judged.split(':').next() != Some(version);
        entry.version.as_deref().is_some_and(spec)
    }

    /// Restores a breaker from the journal. A wall clock that jumped cannot stretch its
    /// cool-down.
    pub fn restore(entry: &BreakerEntry, now: Now) -> Self {
        let cooldown = Duration::from_millis(entry.cooldown_ms);
        let position = match entry.until {
            None => Position::Closed,
            Some(until) => {
                let left = (until - now.wall).min(cooldown);
                Position::Open { until: now.mono + left, wall: now.wall + left }
            }
        };
        let judged = entry.version.as_deref().and_then(|version| version.split_once(':'));
        Self {
            position,
            failures: entry.failures,
            cooldown,
            cause: entry.cause.clone(),
            judged: judged.map(|(_, found)| found.to_owned()),
        }
    }

    /// What can be cloned at this moment has this version. Another version than the judged one closes
    /// it. Says whether the breaker moved.
    pub fn sees(&mut self, found: &str) -> bool {
        if self.rests() || self.judged.as_deref() == Some(found) {
            return false;
        }
        match self.judged {
            None => self.judged = Some(found.to_owned()),
            Some(_) => *self = Self::default(),
        }
        true
    }

    /// How many agents may be started at this moment: no limit, one trial, or none.
    pub fn allowance(&self, now: Moment) -> u32 {
        match &self.position {
            Position::Closed => u32::MAX,
            Position::Open { until, .. } => u32::from(*until <= now),
            Position::HalfOpen { trial } => u32::from(trial.is_none()),
        }
    }

    /// An agent is started; it becomes the trial where one is due.
    pub fn started(&mut self, agent: &AgentId, now: Moment) {
        let due = self.allowance(now) == 1;
        if due && self.position != Position::Closed {
            self.position = Position::HalfOpen { trial: Some(agent.clone()) };
        }
    }

    /// An agent got ready: the template works. Says whether the breaker moved.
    pub fn succeeded(&mut self) -> bool {
        let moved = self.failures > 0 || self.position != Position::Closed;
        *self = Self::default();
        moved
    }

    /// An agent failed in a way that is charged to its template. Says whether the breaker moved.
    ///
    /// Once it is open only the trial's outcome counts: earlier agents show nothing new.
    pub fn failed(&mut self, agent: &AgentId, cause: &str, spec: &BreakerSpec, now: Now) -> bool {
        match &self.position {
            Position::Closed => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= spec.threshold.max(1) {
                    self.open_for(spec.cooldown, now);
                }
            }
            Position::HalfOpen { trial } if trial.as_ref() == Some(agent) => {
                self.failures = self.failures.saturating_add(1);
                let longest = spec.cooldown_cap.max(spec.cooldown);
                self.open_for(self.cooldown.saturating_mul(2).clamp(spec.cooldown, longest), now);
            }
            Position::Open { .. } | Position::HalfOpen { .. } => return false,
        }
        cause.clone_into(&mut self.cause);
        true
    }

    fn open_for(&mut self, cooldown: Duration, now: Now) {
        self.cooldown = cooldown;
        self.position = Position::Open { until: now.mono + cooldown, wall: now.wall + cooldown };
    }

    /// An agent ended without an outcome. If it was the trial, another one may follow. Says whether it
    /// was.
    pub fn left(&mut self, agent: &AgentId) -> bool {
        let trial = self.position == (Position::HalfOpen { trial: Some(agent.clone()) });
        if trial {
            self.position = Position::HalfOpen { trial: None };
        }
        trial
    }

    /// Where it stands.
    pub fn phase(&self) -> BreakerPhase {
        match self.position {
            Position::Closed => BreakerPhase::Closed,
            Position::Open { .. } => BreakerPhase::Open,
            Position::HalfOpen { .. } => BreakerPhase::HalfOpen,
        }
    }

    /// Whether it is closed, and no failure is counted.
    pub fn rests(&self) -> bool {
        self.failures == 0 && self.position == Position::Closed
    }

    /// When a trial is due next, while it is open.
    pub fn due(&self) -> Option<Moment> {
        match self.position {
            Position::Open { until, .. } => Some(until),
            Position::Closed | Position::HalfOpen { .. } => None,
        }
    }

    /// When an open breaker may be tried again, and the last cause.
    pub fn tripped(&self) -> Option<(WallTime, String)> {
        match self.position {
            Position::Open { wall, .. } => Some((wall, self.cause.clone())),
            Position::Closed | Position::HalfOpen { .. } => None,
        }
    }

    /// The record that says where it stands. A trial under way is not written: after a restart
    /// the cool-down is over and the trial is due again.
    pub fn record(&self, template: &TemplateId, version: String, now: WallTime) -> Body {
        let until = match self.position {
            Position::Closed => None,
            Position::Open { wall, .. } => Some(wall),
            Position::HalfOpen { .. } => Some(now),
        };
        Body::BreakerMoved {
            scope: None,
            template: template.clone(),
            failures: self.failures,
            until,
            cooldown_ms: u64::try_from(self.cooldown.as_millis()).unwrap_or(u64::MAX),
            cause: self.cause.clone(),
            version: Some(match &self.judged {
                Some(found) => format!("{version}:{found}"),
                None => version,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use proptest::prelude::*;

    use super::*;
    use drover_model::id::CloudId;

    const SPEC: BreakerSpec = BreakerSpec {
        threshold: 3,
        cooldown: Duration::from_secs(120),
        cooldown_cap: Duration::from_secs(600),
    };

    fn at(seconds: u64) -> Now {
        let wall = WallTime(1_000_000_000_000 + i64::try_from(seconds).unwrap() * 1000);
        Now { mono: Moment(seconds * 1000), wall }
    }

    fn agent(n: u32) -> AgentId {
        AgentId::new(format!("a{n}"))
    }

    fn opened() -> Breaker {
        let mut breaker = Breaker::default();
        for n in 0..3 {
            breaker.failed(&agent(n), "no", &SPEC, at(0));
        }
        breaker
    }

    // Invariant: failures in a row open it, a success closes it.

    #[test]
    fn two_failures_leave_it_closed_and_the_third_opens_it() {
        let mut breaker = Breaker::default();
        breaker.failed(&agent(1), "no", &SPEC, at(0));
        breaker.failed(&agent(2), "no", &SPEC, at(0));
        assert_eq!(
            (breaker.phase(), breaker.allowance(Moment(0))),
            (BreakerPhase::Closed, u32::MAX)
        );
        breaker.failed(&agent(3), "still no", &SPEC, at(0));
        assert_eq!((breaker.phase(), breaker.allowance(Moment(0))), (BreakerPhase::Open, 0));
        assert_eq!(breaker.tripped(), Some((at(120).wall, "still no".into())));
    }

    #[test]
    fn a_success_between_failures_starts_the_count_again() {
        let mut breaker = Breaker::default();
        for n in 0..10 {
            breaker.failed(&agent(n), "no", &SPEC, at(0));
            breaker.failed(&agent(n), "no", &SPEC, at(0));
            assert!(breaker.succeeded());
        }
        assert_eq!(breaker, Breaker::default());
    }

    // Invariant: after the cool-down exactly one trial goes through, and its outcome decides.

    #[test]
    fn nothing_passes_before_the_cool_down_is_over_and_one_trial_after() {
        let mut breaker = opened();
        assert_eq!(breaker.allowance(at(119).mono), 0);
        assert_eq!(breaker.allowance(at(120).mono), 1);
        breaker.started(&agent(7), at(120).mono);
        assert_eq!((breaker.phase(), breaker.allowance(at(500).mono)), (BreakerPhase::HalfOpen, 0));
    }

    #[test]
    fn a_failed_trial_doubles_the_cool_down_up_to_the_cap() {
        let mut breaker = opened();
        let mut now = 0;
        let mut spans = Vec::new();
        for n in 10..15 {
            now += 10_000;
            breaker.started(&agent(n), at(now).mono);
            assert!(breaker.failed(&agent(n), "no", &SPEC, at(now)));
            spans.push((breaker.due().unwrap() - at(now).mono).as_secs());
        }
        assert_eq!(spans, [240, 480, 600, 600, 600]);
    }

    #[test]
    fn a_trial_that_succeeds_closes_it() {
        let mut breaker = opened();
        breaker.started(&agent(7), at(130).mono);
        assert!(breaker.succeeded());
        assert_eq!(breaker, Breaker::default());
    }

    #[test]
    fn a_trial_that_ends_without_an_outcome_may_be_repeated() {
        let mut breaker = opened();
        breaker.started(&agent(7), at(130).mono);
        breaker.left(&agent(7));
        assert_eq!(breaker.allowance(at(130).mono), 1);
    }

    #[test]
    fn agents_started_before_it_opened_do_not_lengthen_the_cool_down() {
        let mut breaker = opened();
        assert!(!breaker.failed(&agent(8), "no", &SPEC, at(5)));
        assert_eq!(breaker.due(), Some(at(120).mono));
        breaker.started(&agent(9), at(120).mono);
        assert!(!breaker.failed(&agent(8), "no", &SPEC, at(121)));
        assert_eq!(breaker.phase(), BreakerPhase::HalfOpen);
    }

    // Invariant: what is repaired is another version, and begins again.

    #[test]
    fn it_closes_as_soon_as_something_else_can_be_cloned_than_what_failed() {
        let mut breaker = opened();
        assert!(breaker.sees("one"), "to be written down");
        assert!(!breaker.sees("one"));
        assert_eq!(breaker.phase(), BreakerPhase::Open);
        assert!(breaker.sees("two"));
        assert_eq!(breaker, Breaker::default());
        assert!(!breaker.sees("three"), "it judges nothing");
    }

    // Invariant: it outlives the service.

    #[test]
    fn an_open_breaker_is_restored_with_what_is_left_of_its_cool_down() {
        let template = TemplateId::new(CloudId::new("c"), "t");
        let Body::BreakerMoved { failures, until, cooldown_ms, cause, version, .. } =
            opened().record(&template, "v1".into(), at(0).wall)
        else {
            panic!("another record");
        };
        let entry = BreakerEntry { failures, until, cooldown_ms, cause, version };
        let later = Now { mono: Moment(5), wall: at(100).wall };
        let restored = Breaker::restore(&entry, later);
        assert!(!Breaker::is_outdated(&entry, "v1") && Breaker::is_outdated(&entry, "v2"));
        assert_eq!(restored.due(), Some(Moment(5 + 20_000)));
        let jumped_back = Now { mono: Moment(0), wall: WallTime(0) };
        assert_eq!(Breaker::restore(&entry, jumped_back).due(), Some(at(120).mono));
    }

    proptest! {
        #[test]
        fn at_most_one_trial_is_under_way_whatever_happens(
            steps in prop::collection::vec((0u8..4, 0u32..6, 0u64..200), 1..200)
        ) {
            let mut breaker = opened();
            let mut clock = 0;
            let mut trials: Vec<AgentId> = Vec::new();
            for (n, (what, pick, wait)) in steps.into_iter().enumerate() {
                clock += wait;
                let now = at(clock);
                let chosen = trials.get(pick as usize).cloned().unwrap_or_else(|| agent(pick));
                match what {
                    0 => {
                        let allowed = breaker.allowance(now.mono);
                        if allowed == 1 {
                            let fresh = AgentId::new(format!("t{n}"));
                            breaker.started(&fresh, now.mono);
                            trials.push(fresh);
                        }
                    }
                    1 => {
                        breaker.failed(&chosen, "no", &SPEC, now);
                        trials.retain(|other| other != &chosen);
                    }
                    2 => {
                        breaker.left(&chosen);
                        trials.retain(|other| other != &chosen);
                    }
                    _ => {
                        if breaker.phase() == BreakerPhase::Closed {
                            breaker = opened();
                            trials.clear();
                        }
                    }
                }
                prop_assert!(trials.len() <= 1, "{trials:?}");
            }
        }
    }
}
