//! Jobs of sources, and why one waits.

use askama::Template;
use drover_api::{AccountOut, JobOut, JobsOut, SilentOut, WhySubjectOut};
use drover_model::phase::JobPhase;

use crate::filter::Filter;
use crate::frame::Frame;
use crate::why::Held;

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
    jobs: Vec<Row>,
    silent: Vec<SilentOut>,
}

/// A job with what it waits for.
struct Row {
    out: JobOut,
    /// Why it waits; blank where it does not.
    why: String,
}

impl JobsPage {
    /// Those that a filter finds, with what sources wait for.
    pub fn new(frame: Frame, out: JobsOut, query: &str, waits: &[AccountOut]) -> Self {
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
        let jobs = jobs.into_iter().map(|out| Row { why: why(&out, waits), out }).collect();
        Self { frame, query: query.to_owned(), all, found, jobs, silent: out.silent }
    }
}

/// Why a job waits, by what is known of its kind.
fn why(job: &JobOut, waits: &[AccountOut]) -> String {
    if let Some(lacks) = &job.lacks {
        return lacks.clone();
    }
    if job.state != JobPhase::Waiting {
        return String::new();
    }
    let its = waits.iter().filter(|account| account.source == job.source);
    let mut kinds = its.flat_map(|account| &account.kinds);
    let kind = kinds.find(|kind| Some(&kind.wants) == job.wants.as_ref());
    kind.map(|kind| kind.why.clone()).unwrap_or_default()
}

/// One job, source or other thing that waits.
#[derive(Template)]
#[template(path = "job.html")]
pub struct JobPage {
    frame: Frame,
    why: WhySubjectOut,
    templates: Vec<Held>,
}

impl JobPage {
    /// Of what it waits for.
    pub fn new(frame: Frame, why: WhySubjectOut) -> Self {
        Self { frame, templates: Held::all(&why), why }
    }
}
