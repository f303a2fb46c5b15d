//! Why a call to a CI system failed, and what that means to the actors.
//!
//! Connectors return a [`DemandError`]. [`DemandError::fault`] maps it to a fault of the model: the
//! kind decides whether the actors try again, and the text says what an operator can do.

use causes::{chain, innermost};
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::SourceId;

/// Why a call to a CI system failed. Never holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// The client cannot be made or the settings cannot work.
    #[error("{0}")]
    Setup(String),
    /// No answer came.
    #[error("{call}: no answer")]
    Unreachable {
        /// Method and path, such as `GET /api/user`.
        call: String,
        /// The address of the system, without path, login and query.
        at: String,
        /// Why the connection or the request failed.
        #[source]
        source: reqwest::Error,
    },
    /// The answer has a status that means failure.
    #[error("{call}: {status}{text}")]
    Status {
        call: String,
        status: u16,
        /// What the server said, bounded, with a colon before it; empty where it said nothing.
        text: String,
    },
    /// The answer is an HTML page or a redirect to one: the server is starting, or wants a login.
    #[error(
        "{call}: {status} with an HTML page instead of data: the server is still starting, or it \
         refuses the login"
    )]
    NotReady { call: String, status: u16 },
    /// The answer redirects elsewhere. drover does not follow: its login is meant for no other
    /// host.
    #[error("{call}: {status}, a redirect to `{to}`: {remedy}")]
    Moved {
        call: String,
        status: u16,
        /// The address of the redirect, without its query.
        to: String,
        /// What the operator can do.
        remedy: String,
    },
    /// The answer is not of the documented form.
    #[error("{call}: the answer cannot be read: {what}")]
    Shape {
        call: String,
        /// What is wrong with it.
        what: String,
    },
    /// drover may send no requests for a while, for example because of a rate limit.
    #[error("{0}")]
    Paused(String),
    /// The system refuses, for a reason that lasts until somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// The guest refused or failed a step.
    #[error("{0}")]
    Guest(Fault),
}

impl DemandError {
    /// The fault that this error means, charged to the source where the source is the cause.
    pub fn fault(self, source: &SourceId) -> Fault {
        let kind = match &self {
            Self::Guest(fault) => return fault.clone(),
            Self::Setup(_) | Self::Shape { .. } | Self::Refused(_) | Self::Moved { .. } => {
                FaultKind::Broken
            }
            Self::NotReady { .. } => FaultKind::Unreachable,
            Self::Paused(_) => FaultKind::Contention,
            Self::Unreachable { source, .. } if source.is_connect() => FaultKind::Unreachable,
            Self::Unreachable { .. } => FaultKind::UnknownOutcome,
            Self::Status { status: 401 | 403, .. } => {
                FaultKind::Denied { privilege: None, path: None }
            }
            Self::Status { status: 404 | 410, .. } => FaultKind::Gone,
            Self::Status { status: 422, .. } => FaultKind::Locked { lock: "job".into() },
            Self::Status { status: 429 | 500..=599, .. } => FaultKind::Contention,
            Self::Status { .. } => FaultKind::Broken,
        };
        let culprit = Culprit::Source(source.clone());
        let (what, remedy) = self.meaning();
        let text = match self.unanswered() {
            Some((call, at, cause)) => {
                tracing::debug!(%source, error = %chain(&self), "source does not answer");
                format!(
                    "source `{source}`{what} at `{at}` (`url`), asked for {call}: {cause}{remedy}"
                )
            }
            None => format!("source `{source}`{what}: {}{remedy}", chain(&self)),
        };
        Fault::new(kind, culprit, text)
    }

    /// The call that got no answer, the address that gave none, and the innermost cause.
    fn unanswered(&self) -> Option<(&str, &str, String)> {
        match self {
            Self::Unreachable { call, at, source } => Some((call, at, innermost(source))),
            Self::Setup(_)
            | Self::Status { .. }
            | Self::NotReady { .. }
            | Self::Moved { .. }
            | Self::Shape { .. }
            | Self::Paused(_)
            | Self::Refused(_)
            | Self::Guest(_) => None,
        }
    }

    /// What happened and what the operator can do; empty where the error's own text says all.
    fn meaning(&self) -> (&'static str, &'static str) {
        match self {
            Self::Setup(_) | Self::Paused(_) | Self::Refused(_) | Self::Guest(_) => ("", ""),
            Self::Unreachable { source, .. } => {
                (" does not answer", connection_advice(source.is_connect(), proxy_is_set()))
            }
            Self::NotReady { .. } => (" is not ready", ""),
            Self::Moved { .. } => (" redirects to another address", ""),
            Self::Status { status: 401, .. } => (
                " refuses the login",
                "; put a valid one into the credential that `credentialsId` names",
            ),
            Self::Status { status: 403, .. } => {
                (" denies the login a right", "; see `drover help ci`")
            }
            Self::Status { status: 404 | 410, .. } => (
                " does not have what drover asks for",
                "; check that `url`, `kind` and `scope` are right and that the login may see that \
                 scope",
            ),
            Self::Status { status: 407, .. } => {
                (" is behind a proxy that refuses drover", PROXY_LOGIN_ADVICE)
            }
            Self::Status { status: 429, .. } => (" limits the rate of requests", ""),
            Self::Status { status: 500..=599, .. } => (" answers with a server error", ""),
            Self::Status { .. } => (" answers unexpectedly", ""),
            Self::Shape { .. } => {
                (" answers unexpectedly", "; check that `url` and `kind` are right")
            }
        }
    }
}

/// What to do where a proxy wants a login.
const PROXY_LOGIN_ADVICE: &str = "; give the proxy a login: set `HTTP_PROXY` and `HTTPS_PROXY` to \
                           `http://USER:PASSWORD@HOST:PORT`, and leave out `proxy`";

/// What to do where a source accepts no connection and the environment names a proxy.
fn connection_advice(no_connection: bool, proxy_is_set: bool) -> &'static str {
    match (no_connection, proxy_is_set) {
        (true, false) => "; check that it runs there, and that nothing blocks the way",
        (true, true) => {
            "; check that it runs there; the environment names a proxy: to reach this source without it, name its host in \
             `NO_PROXY` or set `proxy: none`"
        }
        (false, _) => "",
    }
}

fn proxy_is_set() -> bool {
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_out_of_reach_where_a_proxy_is_set_is_reported_how_to_go_past_it() {
        assert!(connection_advice(true, true).contains("`proxy: none`"));
        let without = connection_advice(true, false);
        assert!(without.contains("runs there") && !without.contains("proxy"), "{without}");
        assert_eq!(connection_advice(false, true), "");
    }

    #[test]
    fn a_proxy_that_wants_a_login_is_reported_as_the_one_that_refuses() {
        let call = "GET /api/agents".to_owned();
        let error = DemandError::Status { call, status: 407, text: String::new() };
        let text = error.fault(&SourceId::new("ci")).text;
        let begin = "source `ci` is behind a proxy that refuses drover: GET /api/agents: 407; give";
        assert!(text.starts_with(begin) && text.contains("`HTTP_PROXY`"), "{text}");
    }
}
