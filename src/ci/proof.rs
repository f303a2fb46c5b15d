//! What can be proven of a source without changing anything there.

use causes::chain;
use drover_model::ports::SourceSight;
use serde::Serialize;

use crate::error::DemandError;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As it should be.
    Ok,
    /// drover works, with less than it could.
    Warn,
    /// Something that the configuration asks for does not work.
    Fail,
}

impl Mark {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

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

    /// A right that only writing would prove; `needs` is what the token must have.
    pub fn unproven(what: &str, needs: &str) -> Self {
        let text = format!("making and removing {what} is not tried here; it needs {needs}");
        Self::ok("rights", text)
    }

    /// Why nothing more can be said.
    pub fn told(error: &DemandError) -> Self {
        let text = chain(error);
        match error {
            DemandError::Status { status: 401, .. } => {
                let mend = "put a token that is good into what `credentialsId` names";
                Self::fail("token", format!("is refused: {text}"), mend)
            }
            DemandError::Status { status: 403, .. } => {
                let mend = "give the token what `drover help ci` says it needs";
                Self::fail("token", format!("may not do this: {text}"), mend)
            }
            DemandError::Status { status: 404 | 410, .. } => {
                let mend = "look whether `url`, `kind` and `scope` are right, and whether the token \
                            may see that";
                Self::fail("scope", format!("is not found: {text}"), mend)
            }
            DemandError::Status { status: 407, .. } => Self::fail(
                "proxy",
                format!("wants a login: {text}"),
                "set `HTTP_PROXY` and `HTTPS_PROXY` to `http://USER:PASSWORD@HOST:PORT`, and leave \
                 out `proxy`",
            ),
            DemandError::Status { status: 429, .. } => {
                Self::warn("limits", text, "ask less often: raise `pollSeconds`")
            }
            DemandError::NotReady { .. } => {
                Self::fail("answers", text, "wait until it is up; look at its log")
            }
            DemandError::Paused(_) => Self::warn(
                "limits",
                text,
                "wait until then, or ask less often: raise `pollSeconds`",
            ),
            DemandError::Moved { .. } => {
                Self { mark: Mark::Fail, about: "answers", text, mend: Vec::new() }
            }
            // Its text says who must change what.
            DemandError::Refused(_) => {
                Self { mark: Mark::Fail, about: "rights", text, mend: Vec::new() }
            }
            DemandError::Status { .. } => Self::fail("answers", text, "look at the server's log"),
            DemandError::Shape { .. } => {
                Self::fail("answers", text, "look whether `url` and `kind` are right")
            }
            DemandError::Setup(_) | DemandError::Unreachable { .. } | DemandError::Guest(_) => {
                Self { mark: Mark::Fail, about: "answers", text, mend: Vec::new() }
            }
        }
    }

    /// That a whole look came about.
    pub fn seen(sight: &SourceSight) -> Self {
        let (jobs, rows) = (sight.jobs.len(), sight.rows.len());
        Self::ok("jobs and runners", format!("can be listed: {jobs} wait, {rows} of drover's"))
    }
}
