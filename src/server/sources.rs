//! Sources of demand: how much waits and runs there, and since when one cannot be polled.

use super::shapes::{Shown, rfc3339};
use drover_api::{LostJobOut, SourceOut};
use drover_model::status::SourceStatus;

use crate::view::LostJob;

impl Shown<SourceOut> for SourceStatus {
    fn shown(&self) -> SourceOut {
        let (silent_since, detail) = self.outage.clone().unzip();
        let (refused_since, refusal) = self.refused.clone().unzip();
        SourceOut {
            id: self.source.to_string(),
            kind: self.kind.clone(),
            configured: self.configured,
            waiting: self.waiting,
            oldest: self.oldest.map(rfc3339),
            unoffered: self.unoffered,
            lacks: self.lacks.clone(),
            ignored: self.ignored,
            runners: self.runners,
            running: self.running,
            unserved: self.unserved,
            refused_since: refused_since.map(rfc3339),
            refusal,
            silent_since: silent_since.map(rfc3339),
            detail,
        }
    }
}

impl Shown<LostJobOut> for LostJob {
    fn shown(&self) -> LostJobOut {
        LostJobOut {
            source: self.source.to_string(),
            runner: self.runner.to_string(),
            agent: self.agent.to_string(),
            job: self.job.clone(),
            at: rfc3339(self.at),
        }
    }
}
