//! Why a call of a CI system failed, and what that means to the actors.

use causes::chain;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::id::SourceId;

/// Why a call of a CI system failed. Never holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    /// The client could not be made.
    #[error("{0}")]
    Setup(String),
    /// No answer came.
    #[error("{call} was not answered")]
    Unreachable {
        /// Method and path.
        call: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// It was answered, and not as hoped.
    #[error("{call}: {status}{text}")]
    Status {
        /// Method and path.
        call: String,
        /// The status.
        status: u16,
        /// What it said, bounded, with a colon before it.
        text: String,
    },
    /// It answered with a page for people, or sent elsewhere: it is starting, or wants a login.
    #[error("{call}: {status} with a page for people: it is not ready, or the login is not taken")]
    NotReady {
        /// Method and path.
        call: String,
        /// The status.
        status: u16,
    },
    /// It sends elsewhere, where drover does not follow: its login is meant for nobody else.
    #[error("{call}: {status}, it sends to `{to}`: {mend}")]
    Moved {
        /// Method and path.
        call: String,
        /// The status.
        status: u16,
        /// Where it sends, without a query.
        to: String,
        /// What mends it.
        mend: String,
    },
    /// The answer is not of the form it should have.
    #[error("{call}: the answer can not be read: {what}")]
    Shape {
        /// Method and path.
        call: String,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing may be asked for a while.
    #[error("{0}")]
    Paused(String),
    /// It does not do what is wanted, for a reason that stays until somebody changes it.
    #[error("{0}")]
    Refused(String),
    /// The guest did not take what it was given.
    #[error("{0}")]
    Guest(Fault),
}

impl DemandError {
    /// What it means, charged to the source where it is the source's.
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
        let (what, mend) = self.means();
        Fault::new(kind, culprit, format!("source `{source}`{what}: {}{mend}", chain(&self)))
    }

    /// What it means to an operator, and what mends it; nothing where its own text says all.
    fn means(&self) -> (&'static str, &'static str) {
        match self {
            Self::Setup(_) | Self::Paused(_) | Self::Refused(_) | Self::Guest(_) => ("", ""),
            Self::Unreachable { source, .. } => {
                (" does not answer", proxied(source.is_connect(), proxy_is_set()))
            }
            Self::NotReady { .. } => (" is not ready", ""),
            Self::Moved { .. } => (" answers that it is elsewhere", ""),
            Self::Status { status: 401, .. } => {
                (" refuses the login", "; put a good one into what `credentialsId` names")
            }
            Self::Status { status: 403, .. } => {
                (" denies the login a right", "; `drover help ci` says what it needs")
            }
            Self::Status { status: 404 | 410, .. } => (
                " does not have what is asked for",
                "; look whether `url`, `kind` and `scope` are right, and the login may see that",
            ),
            Self::Status { status: 407, .. } => {
                (" is behind a proxy that refuses drover", PROXY_LOGIN)
            }
            Self::Status { status: 429, .. } => (" wants to be asked less", ""),
            Self::Status { status: 500..=599, .. } => (" answers with an error of its own", ""),
            Self::Status { .. } => (" answers unexpectedly", ""),
            Self::Shape { .. } => {
                (" answers unexpectedly", "; look whether `url` and `kind` are right")
            }
        }
    }
}

/// What mends a proxy that wants a login.
const PROXY_LOGIN: &str = "; give the proxy a login: set `HTTP_PROXY` and `HTTPS_PROXY` to \
                           `http://USER:PASSWORD@HOST:PORT`, and leave out `proxy`";

/// What mends a source that takes no connection where the environment names a proxy.
fn proxied(no_connection: bool, proxy_is_set: bool) -> &'static str {
    match no_connection && proxy_is_set {
        true => {
            "; the environment names a proxy: where it is not to be used for this source, name the host in \
             `NO_PROXY` or set `proxy: none`"
        }
        false => "",
    }
}

/// Whether the environment names a proxy.
fn proxy_is_set() -> bool {
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_out_of_reach_where_a_proxy_is_set_is_told_how_to_go_past_it() {
        assert!(proxied(true, true).contains("`proxy: none`"));
        assert_eq!((proxied(true, false), proxied(false, true)), ("", ""));
    }

    #[test]
    fn a_proxy_that_wants_a_login_is_told_as_the_one_that_refuses() {
        let call = "GET /api/agents".to_owned();
        let error = DemandError::Status { call, status: 407, text: String::new() };
        let text = error.fault(&SourceId::new("ci")).text;
        let begin = "source `ci` is behind a proxy that refuses drover: GET /api/agents: 407; give";
        assert!(text.starts_with(begin) && text.contains("`HTTP_PROXY`"), "{text}");
    }
}
