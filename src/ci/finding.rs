//! Findings: what `drover doctor` reports of a source, found without changing anything there.

use causes::chain;
use drover_model::ports::SourceObservation;
use serde::Serialize;

use crate::error::DemandError;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Ok,
    /// drover works, with less than it could.
    Warn,
    /// Something that is configured does not work.
    Fail,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The subject, such as `token`.
    pub about: &'static str,
    /// What was found.
    pub text: String,
    /// Commands or settings that help; empty where all is well.
    pub remedies: Vec<String>,
}

impl Finding {
    /// A finding that all is well.
    pub fn ok(about: &'static str, text: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, about, text: text.into(), remedies: Vec::new() }
    }

    /// A finding that drover works with less than it could.
    pub fn warn(about: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warn, about, text: text.into(), remedies: vec![remedy.into()] }
    }

    /// A finding that something configured does not work.
    pub fn fail(about: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Fail, about, text: text.into(), remedies: vec![remedy.into()] }
    }

    /// A right that only a change would show; `needs` is what the token must have.
    pub fn untested(what: &str, needs: &str) -> Self {
        let text = format!("making and removing {what} is not tested by doctor; it needs {needs}");
        Self::ok("rights", text)
    }

    /// The finding for a failed call, which ends the check.
    pub fn from_error(error: &DemandError) -> Self {
        let text = chain(error);
        match error {
            DemandError::Status { status: 401, .. } => {
                let remedy = "put a valid token into the credential that `credentialsId` names";
                Self::fail("token", format!("is refused: {text}"), remedy)
            }
            DemandError::Status { status: 403, .. } => {
                let remedy = "give the token the rights that `drover help ci` lists";
                Self::fail("token", format!("lacks a right: {text}"), remedy)
            }
            DemandError::Status { status: 404 | 410, .. } => {
                let remedy = "check that `url`, `kind` and `scope` are right and that the token \
                            may see that scope";
                Self::fail("scope", format!("is not found: {text}"), remedy)
            }
            DemandError::Status { status: 407, .. } => Self::fail(
                "proxy",
                format!("wants a login: {text}"),
                "set `HTTP_PROXY` and `HTTPS_PROXY` to `http://USER:PASSWORD@HOST:PORT`, and leave \
                 out `proxy`",
            ),
            DemandError::Status { status: 429, .. } => {
                Self::warn("limits", text, "raise `pollSeconds`")
            }
            DemandError::NotReady { .. } => {
                Self::fail("answers", text, "wait until the server is up, and look at its log")
            }
            DemandError::Paused(_) => {
                Self::warn("limits", text, "wait until then, or raise `pollSeconds`")
            }
            DemandError::Moved { .. } => {
                Self { severity: Severity::Fail, about: "answers", text, remedies: Vec::new() }
            }
            // The text says who must change what.
            DemandError::Refused(_) => {
                Self { severity: Severity::Fail, about: "rights", text, remedies: Vec::new() }
            }
            DemandError::Status { .. } => Self::fail("answers", text, "look at the server's log"),
            DemandError::Shape { .. } => {
                Self::fail("answers", text, "check that `url` and `kind` are right")
            }
            DemandError::Setup(_) | DemandError::Unreachable { .. } | DemandError::Guest(_) => {
                Self { severity: Severity::Fail, about: "answers", text, remedies: Vec::new() }
            }
        }
    }

    /// The finding that a whole poll succeeded.
    pub fn listed(observation: &SourceObservation) -> Self {
        let (jobs, rows) = (observation.jobs.len(), observation.rows.len());
        Self::ok(
            "jobs and runners",
            format!("can be listed: {jobs} jobs wait, {rows} runners are drover's"),
        )
    }
}
