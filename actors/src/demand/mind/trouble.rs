//! Runners that could not be begun: each costs a machine, so that ever fewer are tried, and where the
//! source itself is against it none as long as that can be seen without one.

use std::time::Duration;

use crate::demand::mind::{Outage, PAUSE_LONGEST};
use crate::demand::spec::SourceSpec;
use crate::fault::Fault;
use crate::time::{Moment, Now};

/// Between two looks at whether runners can be made.
const PROVE_PAUSE: Duration = Duration::from_secs(30);

/// What keeps runners from being begun.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Runners in a row that could not be begun.
    pub count: u32,
    /// Until when none is wanted for that.
    pub until: Option<Moment>,
    /// Since when its source lets none be made, and why.
    pub refused: Option<Outage>,
    /// Whether its source is seen to be against it.
    shut: bool,
    /// When that was looked at last, and whether such a look is under way.
    proof: Option<(Moment, bool)>,
}

impl Trouble {
    /// Whether nothing is wanted.
    pub fn holds(&self) -> bool {
        self.until.is_some() || self.shut
    }

    /// Whether the next runner is a trial: one of a kind is enough to learn how it goes.
    pub fn is_on_trial(&self) -> bool {
        self.refused.is_some()
    }

    /// A runner was begun in vain, which cost a machine.
    pub fn cost_one(&mut self, spec: &SourceSpec, now: Now) {
        self.count += 1;
        let count = self.count;
        let pause = spec.poll.saturating_mul(1 << count.min(6)).min(PAUSE_LONGEST);
        self.until = Some(now.mono + pause);
        tracing::warn!(
            source = %spec.id, count, seconds = pause.as_secs(),
            "runner was begun in vain: none is wanted for a while"
        );
    }

    /// Its source did not let a runner be made.
    pub fn refuse(&mut self, text: &str, now: Now) {
        let refused =
            self.refused.get_or_insert_with(|| Outage { since: now.wall, text: String::new() });
        text.clone_into(&mut refused.text);
        self.proof = self.proof.filter(|(_, under_way)| *under_way);
    }

    /// Whether it is to be looked at now whether runners can be made; that is under way then.
    pub fn wants_proof(&mut self, poll: Duration, now: Moment) -> bool {
        let pause = poll.max(PROVE_PAUSE);
        let rests = self.proof.is_some_and(|(at, under_way)| under_way || now - at < pause);
        if self.refused.is_none() || rests {
            return false;
        }
        self.proof = Some((now, true));
        true
    }

    /// What was seen of it. Where nothing is against it any more the next is tried at once; where
    /// nothing ever was, only a pause keeps machines from being used up.
    pub fn proven(&mut self, obstacle: Result<Option<String>, Fault>) {
        if let Some((_, under_way)) = &mut self.proof {
            *under_way = false;
        }
        let Some(refused) = &mut self.refused else { return };
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
