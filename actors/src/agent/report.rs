//! What an agent says of itself: the detail for people, warnings, the time in each phase, and its
//! last status.

use std::sync::Arc;

use drover_model::status::AgentStatus;
use drover_model::time::{Moment, Now, WallTime};

/// The most phases that are kept apart. Beyond that, time is added to an earlier phase of the same
/// name.
const PHASES_KEPT: usize = 64;

/// The text that shows what delays the agent.
#[derive(Debug, Clone, PartialEq)]
enum Detail {
    /// Stays until the next text.
    Lasting(String),
    /// A call waits for a way to the cluster. Any answer shows that there is one.
    NoWay(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    detail: Detail,
    /// Why the outcome of the clone is unknown.
    doubted: Option<String>,
    /// Problems that preparing found and passed over.
    warnings: Vec<String>,
    waterfall: Waterfall,
    /// The last status that anybody was given. Those who were not given it had one like it.
    last: Option<Arc<AgentStatus>>,
}

impl Report {
    pub(super) fn new(now: Now) -> Self {
        Self {
            detail: Detail::Lasting(String::new()),
            doubted: None,
            warnings: Vec::new(),
            waterfall: Waterfall::new(now),
            last: None,
        }
    }

    pub(super) fn detail(&self) -> &str {
        match &self.detail {
            Detail::Lasting(text) | Detail::NoWay(text) => text,
        }
    }

    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.detail = Detail::Lasting(text.into());
    }

    pub(super) fn say_nothing(&mut self) {
        self.say("");
    }

    /// A call waits for a way to the cluster.
    pub(super) fn no_way(&mut self, text: String) {
        self.detail = Detail::NoWay(text);
    }

    /// A call was answered, so there is a way to the cluster.
    pub(super) fn way_found(&mut self) {
        if matches!(self.detail, Detail::NoWay(_)) {
            self.say_nothing();
        }
    }

    pub(super) fn doubt_clone(&mut self, cause: Option<String>) {
        self.doubted = cause;
    }

    /// Why the outcome of the clone is unknown.
    pub(super) fn clone_doubt(&self) -> Option<&str> {
        self.doubted.as_deref()
    }

    pub(super) fn warn(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings.extend(warnings);
    }

    pub(super) fn forget_warnings(&mut self) {
        self.warnings.clear();
    }

    pub(super) fn warnings(&self) -> String {
        self.warnings.join("; ")
    }

    pub(super) fn waterfall(&self) -> &Waterfall {
        &self.waterfall
    }

    pub(super) fn waterfall_mut(&mut self) -> &mut Waterfall {
        &mut self.waterfall
    }

    /// Whether others may decide differently by this status.
    pub(super) fn is_decisive(&self, status: &AgentStatus) -> bool {
        self.last.as_ref().is_none_or(|last| !status.decides_alike(last))
    }

    /// Whether people see something new in this status.
    pub(super) fn is_visible(&self, status: &AgentStatus) -> bool {
        self.last.as_ref().is_none_or(|last| !status.shows_alike(last))
    }

    /// This status was given to those whom it concerns.
    pub(super) fn gave(&mut self, status: Arc<AgentStatus>) {
        self.last = Some(status);
    }
}

/// Time spent in each state. The parts always sum to the wall time since the start.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waterfall {
    past: Vec<(String, u64)>,
    since: Moment,
    since_wall: WallTime,
}

impl Waterfall {
    /// Starts with no phase past.
    pub(super) fn new(now: Now) -> Self {
        Self { past: Vec::new(), since: now.mono, since_wall: now.wall }
    }

    /// Starts with the time that passed before this start of the service.
    pub(super) fn resumed(earlier_ms: u64, now: Now) -> Self {
        Self { past: vec![("Earlier".into(), earlier_ms)], ..Self::new(now) }
    }

    /// Sets the start of the running phase, which is older than this start of the service.
    pub(super) fn shown_since(&mut self, since: WallTime) {
        self.since_wall = since;
    }

    /// Ends the phase of this name.
    pub(super) fn move_on(&mut self, name: &str, now: Now) {
        self.step_on(name, now);
        self.since_wall = now.wall;
    }

    /// Ends a part of the running phase.
    pub(super) fn step_on(&mut self, name: &str, now: Now) {
        let spent = now.mono.0.saturating_sub(self.since.0);
        let full = self.past.len() >= PHASES_KEPT;
        let known = self.past.iter_mut().rev().find(|(past, _)| past == name);
        match known {
            Some((_, sum)) if full => *sum += spent,
            Some(_) | None => self.past.push((name.to_owned(), spent)),
        }
        self.since = now.mono;
    }

    /// All phases; the running one is last.
    pub(super) fn phases(&self, name: &str, now: Now) -> Vec<(String, u64)> {
        let mut phases = self.past.clone();
        phases.push((name.to_owned(), now.mono.0.saturating_sub(self.since.0)));
        phases
    }

    pub(super) fn ended(&self) -> Vec<(String, u64)> {
        self.past.clone()
    }

    /// When the running phase started.
    pub(super) fn since(&self) -> WallTime {
        self.since_wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Invariant: an answer ends the wait for a way to the cluster, and hides nothing else.

    #[test]
    fn an_answer_clears_only_a_wait_for_a_way_to_the_cluster() {
        let mut report = Report::new(Now { mono: Moment(0), wall: WallTime(0) });
        report.no_way("waits for a way".into());
        report.way_found();
        assert_eq!(report.detail(), "");
        report.no_way("waits for a way".into());
        report.say("node n1 is offline; drover waits for it");
        report.way_found();
        assert_eq!(report.detail(), "node n1 is offline; drover waits for it");
    }
}
