//! Jobs of sources, and why one waits.

use askama::Template;
use drover_api::{JobOut, JobsOut, SilentOut, WhySubjectOut};

use crate::filter::Filter;
use crate::frame::Frame;

/// Rows of one page.
const ROWS: usize = 200;
const COLUMNS: [&str; 6] = ["source", "id", "name", "state", "wants", "agent"];

/// The list of jobs.
#[derive(Template)]
#[template(path = "jobs.html")]
pub struct JobsPage {
    frame: Frame,
    query: String,
    all: usize,
    found: usize,
    jobs: Vec<JobOut>,
    silent: Vec<SilentOut>,
}

impl JobsPage {
    /// Those that a filter finds.
    pub fn new(frame: Frame, out: JobsOut, query: &str) -> Self {
        let filter = Filter::of(query, &COLUMNS);
        let mut jobs = out.jobs;
        let all = jobs.len();
        jobs.retain(|one| {
            filter.has(&[
                ("source", &one.source),
                ("id", &one.id),
                ("name", one.name.as_deref().unwrap_or_default()),
                ("state", one.state.name()),
                ("wants", one.wants.as_deref().unwrap_or_default()),
                ("agent", one.agent.as_deref().unwrap_or_default()),
            ])
        });
        let found = jobs.len();
        jobs.truncate(ROWS);
        Self { frame, query: query.to_owned(), all, found, jobs, silent: out.silent }
    }
}

/// One job, source or other thing that waits.
#[derive(Template)]
#[template(path = "job.html")]
pub struct JobPage {
    frame: Frame,
    why: WhySubjectOut,
}

impl JobPage {
    /// Of what it waits for.
    pub fn new(frame: Frame, why: WhySubjectOut) -> Self {
        Self { frame, why }
    }
}
