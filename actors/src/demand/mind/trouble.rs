//! Runners that could not be started: each costs a machine, so that ever fewer are tried, and where the
//! source itself is against it none as long as that can be seen without one.

use std::time::Duration;

use drover_model::demand::report::Outage;
use drover_model::demand::spec::SourceSpec;
use drover_model::fault::Fault;
use drover_model::time::{Moment, Now};

use crate::demand::mind::{PAUSE_LONGEST, SourceMind};

/// Between two probes of whether runners can be made.
const PROBE_PAUSE: Duration = Duration::from_secs(30);

/// For so long none is wanted after so many in a row that cost a machine each.
pub(super) fn pause_after(count: u32, spec: &SourceSpec) -> Duration {
    spec.poll.saturating_mul(1 << count.min(6)).min(PAUSE_LONGEST)
}

/// What keeps runners from being started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Runners in a row that could not be started.
    pub count: u32,
    /// Until when none is wanted for that.
    pub until: Option<Moment>,
    /// Whether those were connected: that another connects does not end it, and that one has a job does.
    jobless: bool,
    /// Since when its source lets none be made, and why.
    pub refused: Option<Outage>,
    /// What the last poll found against it.
    found: Option<String>,
    /// What its source was against before that was found.
    under: Option<Outage>,
    /// Whether its source is seen to be against it.
    shut: bool,
    /// When the last probe started, and whether it is under way.
    probe: Option<(Moment, bool)>,
}

impl Trouble {
    /// Whether nothing is wanted.
    pub fn holds(&self) -> bool {
        self.until.is_some() || self.shut || self.found.is_some()
    }

    /// Whether the next runner is a trial: one of a kind is enough to learn how it goes.
    pub fn is_on_trial(&self) -> bool {
        self.refused.is_some()
    }

    /// A runner was started in vain, which cost a machine.
    pub fn cost_one(&mut self, spec: &SourceSpec, now: Now) {
        self.count += 1;
        let count = self.count;
        let pause = pause_after(count, spec);
        self.until = Some(now.mono + pause);
        tracing::warn!(
            source = %spec.id, count, seconds = pause.as_secs(),
            "runner was started in vain: none is wanted for a while"
        );
    }

    /// A runner ended that was connected and had no job. Several that end at once count as one.
    pub fn cost_jobless(&mut self, spec: &SourceSpec, now: Now) {
        if self.until.is_none() {
            self.jobless = true;
            self.cost_one(spec, now);
        }
    }

    /// A runner had its job: those before it that had none say nothing of the next.
    pub fn end_jobless(&mut self) {
        if std::mem::take(&mut self.jobless) {
            (self.count, self.until) = (0, None);
        }
    }

    /// A runner is connected, or `works`: nothing is against others but what polls find themselves.
    pub fn pass(&mut self, works: bool) {
        let found = self.found.take();
        let refused = self.refused.take().filter(|_| found.is_some());
        let stays = self.jobless && !works;
        let (count, until) = if stays { (self.count, self.until) } else { (0, None) };
        *self = Self { found, refused, count, until, jobless: stays, ..Self::default() };
    }

    /// What a poll found that keeps runners from being made stands until a poll does not find it. Gives
    /// whether that is another than what the last poll found.
    pub fn find(&mut self, found: Option<&str>, now: Now) -> bool {
        let is_news = self.found.as_deref() != found;
        if is_news && self.found.is_none() {
            self.under = self.refused.take();
        }
        if let Some(text) = found {
            self.refuse(text, now);
        } else if is_news {
            // What was refused before is tried with a single runner.
            (self.refused, self.shut) = (self.under.take(), false);
        }
        self.found = found.map(str::to_owned);
        is_news
    }

    /// Its source did not let a runner be made.
    pub fn refuse(&mut self, text: &str, now: Now) {
        let refused =
            self.refused.get_or_insert_with(|| Outage { since: now.wall, text: String::new() });
        text.clone_into(&mut refused.text);
        self.probe = self.probe.filter(|(_, under_way)| *under_way);
    }

    /// Whether a probe is due now; it is under way then.
    pub fn wants_probe(&mut self, poll: Duration, now: Moment) -> bool {
        let pause = poll.max(PROBE_PAUSE);
        let rests = self.probe.is_some_and(|(at, under_way)| under_way || now - at < pause);
        // What polls find needs no probe.
        if self.refused.is_none() || self.found.is_some() || rests {
            return false;
        }
        self.probe = Some((now, true));
        true
    }

    /// What was seen of it. Where nothing is against it any more the next is tried at once; where
    /// nothing ever was, only a pause keeps machines from being used up.
    pub fn probed(&mut self, obstacle: Result<Option<String>, Fault>) {
        if let Some((_, under_way)) = &mut self.probe {
            *under_way = false;
        }
        let Some(refused) = self.refused.as_mut().filter(|_| self.found.is_none()) else { return };
        match obstacle {
            Ok(Some(text)) => {
                self.shut = true;
                refused.text = text;
            }
            Ok(None) if std::mem::take(&mut self.shut) => self.until = None,
            // One that does not answer says nothing of it.
            Ok(None) | Err(_) => {}
        }
    }
}

impl SourceMind {
    /// Takes in what a poll found that keeps runners from being made, and logs it where it changed.
    pub(super) fn find(&mut self, obstacle: Option<&str>, now: Now) {
        if !self.trouble.find(obstacle, now) {
            return;
        }
        let source = &self.spec.id;
        match obstacle {
            Some(error) => tracing::warn!(source = %source, error, "source lets no runner be made"),
            None => {
                tracing::info!(source = %source, "nothing is seen any more that kept runners away")
            }
        }
    }
}
