//! What can be proven of a source without changing anything there.

use drover_actors::ports::SourceSight;

use crate::doctor::Mark;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// How bad it is.
    pub mark: Mark,
    /// What was looked at, such as `token`.
    pub about: &'static str,
    /// What was found.
    pub text: String,
    /// Commands or settings that mend it; none for what is well.
    pub mend: Vec<String>,
}

impl Proof {
    /// As it should be.
    pub fn ok(about: &'static str, text: impl Into<String>) -> Self {
        Self { mark: Mark::Ok, about, text: text.into(), mend: Vec::new() }
    }

    /// Works, with less than it could.
    pub fn warn(about: &'static str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { mark: Mark::Warn, about, text: text.into(), mend: vec![mend.into()] }
    }

    /// Something that is configured does not work.
    pub fn fail(about: &'static str, text: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { mark: Mark::Fail, about, text: text.into(), mend: vec![mend.into()] }
    }

    /// That a whole look came about.
    pub fn seen(sight: &SourceSight) -> Self {
        let (jobs, rows) = (sight.jobs.len(), sight.rows.len());
        Self::ok("jobs and runners", format!("can be listed: {jobs} wait, {rows} of drover's"))
    }
}
