//! Jobs of which their source does not say what they want, such as builds of a Jenkins that has no node
//! and lets none be made: nothing is started for them.

use super::shapes::rfc3339;
use drover_api::JobOut;
use drover_model::demand::report::{SourceJobs, UnreadJob};
use drover_model::outside::outside;
use drover_model::phase::JobPhase;

/// The unread jobs of a source, those that wait the longest first.
pub(super) fn jobs(one: &SourceJobs) -> Vec<JobOut> {
    let mut all: Vec<&UnreadJob> = one.unread.iter().collect();
    all.sort_by_key(|job| job.since);
    let shown = |job: &UnreadJob| JobOut {
        source: one.source.to_string(),
        id: job.id.clone(),
        name: Some(job.name.clone()),
        state: JobPhase::Unread,
        lacks: Some(cause(one).to_owned()),
        wants: None,
        since: Some(rfc3339(job.since)),
        agent: None,
    };
    all.into_iter().map(shown).collect()
}

/// How an unread job stands.
pub(super) fn stands(one: &SourceJobs, job: &UnreadJob) -> String {
    let since = rfc3339(job.since);
    format!("{} waits since {since}; it is unread: {}", outside(&job.name), cause(one))
}

/// Why a source does not say what a job wants.
fn cause(one: &SourceJobs) -> &str {
    let refused = one.refused.as_ref().map(|refused| refused.text.as_str());
    refused.unwrap_or("its source does not say which labels it waits for")
}

#[cfg(test)]
mod tests {
    use drover_model::demand::report::Outage;
    use drover_model::id::SourceId;

    use super::*;
    use crate::testing::THEN;

    // Invariant: a job that cannot be read is listed with the cause.

    #[test]
    fn a_job_that_its_source_says_nothing_of_says_why() {
        let job = UnreadJob { id: "7".into(), name: "app".into(), since: THEN };
        let mut one = SourceJobs {
            source: SourceId::new("ci"),
            waiting: Vec::new(),
            unoffered: Vec::new(),
            ignored: Vec::new(),
            unread: vec![job.clone()],
            running: Vec::new(),
            rowless: Vec::new(),
            outage: None,
            unserved: 0,
            refused: None,
        };
        let plain = "its source does not say which labels it waits for";
        assert_eq!(jobs(&one)[0].lacks.as_deref(), Some(plain));
        one.refused = Some(Outage { since: THEN, text: "403: it lacks a right".into() });
        let shown = jobs(&one).remove(0);
        assert_eq!((shown.state, shown.name.as_deref()), (JobPhase::Unread, Some("app")));
        assert_eq!(shown.lacks.as_deref(), Some("403: it lacks a right"));
        assert_eq!(
            stands(&one, &job),
            "`app` waits since 2026-11-21T08:11:02Z; it is unread: 403: it lacks a right"
        );
    }
}
