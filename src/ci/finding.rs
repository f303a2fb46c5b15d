//! Findings: what `drover doctor` reports of a source, found without changing anything there.

use std::fmt;

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

/// What helps: where, and what to type or write there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Remedy {
    /// Where, as the words before a colon: `on node pve1`.
    pub place: String,
    /// A command, a line of the YAML, or what somebody does there.
    pub action: String,
}

impl Remedy {
    pub fn at(place: impl Into<String>, action: impl Into<String>) -> Self {
        Self { place: place.into(), action: action.into() }
    }

    /// A command on one node.
    pub fn on_node(node: impl fmt::Display, command: impl Into<String>) -> Self {
        Self::at(format!("on node {node}"), command)
    }

    /// A command that has the same effect on every node.
    pub fn on_any_node(command: impl Into<String>) -> Self {
        Self::at("on any node of the cluster", command)
    }

    /// A command on the machine that reports the finding.
    pub fn here(command: impl Into<String>) -> Self {
        Self::at("on this machine", command)
    }

    /// A line of the configuration.
    pub fn yaml(line: impl Into<String>) -> Self {
        Self::at("in the YAML", line)
    }

    /// The same with more words on the place.
    #[must_use]
    pub fn noting(mut self, note: &str) -> Self {
        self.place += ", ";
        self.place += note;
        self
    }

    /// The same in place of the remedy before it.
    #[must_use]
    pub fn or(mut self) -> Self {
        self.place.insert_str(0, "or ");
        self
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.action)
    }
}

impl From<Remedy> for String {
    fn from(remedy: Remedy) -> Self {
        remedy.to_string()
    }
}

/// What somebody does at the CI system.
impl From<&str> for Remedy {
    fn from(action: &str) -> Self {
        Self::at("at the source", action)
    }
}

impl From<String> for Remedy {
    fn from(action: String) -> Self {
        action.as_str().into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The subject, such as `token`.
    pub about: &'static str,
    /// What was found.
    pub text: String,
    /// What helps; empty where all is well.
    pub remedies: Vec<Remedy>,
}

impl Finding {
    /// A finding that all is well.
    pub fn ok(about: &'static str, text: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, about, text: text.into(), remedies: Vec::new() }
    }

    /// A finding that drover works with less than it could.
    pub fn warn(about: &'static str, text: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
        Self { severity: Severity::Warn, about, text: text.into(), remedies: vec![remedy.into()] }
    }

    /// A finding that something configured does not work.
    pub fn fail(about: &'static str, text: impl Into<String>, remedy: impl Into<Remedy>) -> Self {
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
                let place = "in the credential that `credentialsId` names";
                let remedy = Remedy::at(place, "a valid token");
                Self::fail("token", format!("is refused: {text}"), remedy)
            }
            DemandError::Status { status: 403, .. } => {
                let remedy = "give the token the rights that `drover help ci` lists";
                Self::fail("token", format!("lacks a right: {text}"), remedy)
            }
            DemandError::Status { status: 404 | 410, .. } => {
                let place = "in the YAML, as the source has it, and the token may see it";
                let remedy = Remedy::at(place, "url, kind, scope");
                Self::fail("scope", format!("is not found: {text}"), remedy)
            }
            DemandError::Status { status: 407, .. } => Self::fail(
                "proxy",
                format!("wants a login: {text}"),
                Remedy::at(
                    "in drover's environment, without `proxy` in the YAML",
                    "HTTPS_PROXY=http://USER:PASSWORD@HOST:PORT",
                ),
            ),
            DemandError::Status { status: 429, .. } => {
                Self::warn("limits", text, Remedy::yaml("pollSeconds: 60"))
            }
            DemandError::NotReady { .. } => {
                Self::fail("answers", text, "wait until the server is up, and look at its log")
            }
            DemandError::Paused(_) => Self::warn("limits", text, Remedy::yaml("pollSeconds: 60")),
            DemandError::Moved { .. } => {
                Self { severity: Severity::Fail, about: "answers", text, remedies: Vec::new() }
            }
            // The text says who must change what.
            DemandError::Refused(_) => {
                Self { severity: Severity::Fail, about: "rights", text, remedies: Vec::new() }
            }
            DemandError::Status { .. } => Self::fail("answers", text, "look at the server's log"),
            DemandError::Shape { .. } => {
                let place = "in the YAML, as the source has it";
                Self::fail("answers", text, Remedy::at(place, "url, kind"))
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
