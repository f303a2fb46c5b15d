//! Every failure between a client and Proxmox, with its call and endpoint.
//!
//! [`PveError`] keeps apart what callers must treat differently: a call that was not sent
//! ([`PveError::Unreachable`], [`PveError::Unsent`]), one whose outcome is unknown
//! ([`PveError::Lost`], and [`PveError::Shape`] for a write), and one that the node refused
//! ([`PveError::Refused`]).

use std::fmt;

use causes::chain;

use crate::limiter::NotAdmitted;
use crate::refusal::Refusal;
use crate::transport::{Method, TransportError};

/// The call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The HTTP method.
    pub method: Method,
    /// The path below `/api2/json`.
    pub path: String,
}

impl Call {
    /// A call by its method and path.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into() }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method.as_str(), self.path)
    }
}

/// A failure of the Proxmox client.
#[derive(Debug, thiserror::Error)]
pub enum PveError {
    /// No endpoint accepted a connection.
    #[error("no usable endpoint for `{call}`: {}{}", by_failure(tried), behind(advice.as_deref()))]
    Unreachable {
        /// The call that failed.
        call: Call,
        /// Each endpoint with its failure.
        tried: Vec<String>,
        /// Whether every endpoint answered and its certificate was refused.
        distrusted: bool,
        /// The SHA-256 of the last refused certificate.
        seen: Option<String>,
        /// What to do about that certificate.
        advice: Option<&'static str>,
        /// Whether an endpoint ever answered this client.
        answered: bool,
    },
    /// The connection failed after something may have been sent.
    #[error("`{call}` got no answer from `{endpoint}`")]
    Lost {
        /// The call that failed.
        call: Call,
        /// The endpoint to which it was sent.
        endpoint: String,
        /// How the connection failed.
        #[source]
        source: TransportError,
    },
    /// The call was not admitted in time and was not sent.
    #[error("`{call}` was not sent to `{endpoint}`")]
    Unsent {
        /// The call that was not sent.
        call: Call,
        /// The endpoint to which it would have gone.
        endpoint: String,
        /// Why it was not admitted.
        #[source]
        source: NotAdmitted,
    },
    /// Proxmox refused the call.
    #[error("`{call}` was refused by `{endpoint}`: {refusal}")]
    Refused {
        /// The call that was refused.
        call: Call,
        /// The endpoint that answered.
        endpoint: String,
        /// What the node said.
        refusal: Refusal,
    },
    /// The answer does not match what Proxmox documents.
    #[error("`{endpoint}` answered `{call}` with data that does not match the Proxmox API")]
    Shape {
        /// The call that was answered.
        call: Call,
        /// The endpoint that answered.
        endpoint: String,
        /// What did not match.
        #[source]
        source: serde_json::Error,
    },
    /// The login needs a second factor.
    #[error(
        "`{0}` needs a second factor, which a program cannot answer: use an API token, or a user \
         without a second factor"
    )]
    SecondFactor(String),
    /// The connection cannot be set up as configured.
    #[error("{what}")]
    Setup {
        /// What is wrong and what to do.
        what: String,
        /// The underlying error.
        #[source]
        source: Option<crate::transport::BoxError>,
    },
}

/// Advice at the end of a text.
fn behind(advice: Option<&str>) -> String {
    advice.map(|advice| format!("; {advice}")).unwrap_or_default()
}

/// Each failure once, after the endpoints that it applies to.
pub fn by_failure(tried: &[String]) -> String {
    let mut each: Vec<(Vec<&str>, &str)> = Vec::new();
    for one in tried {
        let (endpoint, failure) = one.split_once(": ").unwrap_or(("", one));
        match each.iter_mut().find(|(_, known)| *known == failure) {
            Some((endpoints, _)) => endpoints.push(endpoint),
            None => each.push((vec![endpoint], failure)),
        }
    }
    let lines = each.iter().map(|(endpoints, failure)| match endpoints[..] {
        [""] => (*failure).to_owned(),
        _ => format!("{}: {failure}", endpoints.join(", ")),
    });
    lines.collect::<Vec<_>>().join("; ")
}

impl PveError {
    /// A failed set-up without an underlying error.
    pub fn setup(what: impl Into<String>) -> Self {
        Self::Setup { what: what.into(), source: None }
    }

    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        chain(self).replace('\n', " ")
    }
}
