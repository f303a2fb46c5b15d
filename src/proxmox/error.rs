//! What can go wrong between a client and Proxmox, in full.

use std::fmt;

use causes::chain;

use crate::refusal::Refusal;
use crate::transport::{Method, TransportError};
use crate::turn::NoTurn;

/// Which call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path below `/api2/json`.
    pub path: String,
}

impl Call {
    /// Names a call.
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
    /// No endpoint took the connection; one line for each that was tried.
    #[error("no endpoint took `{call}`: {}", by_failure(tried))]
    Unreachable {
        /// The call.
        call: Call,
        /// Each endpoint with its failure.
        tried: Vec<String>,
        /// Whether every one of them answered and was not trusted.
        distrusted: bool,
        /// SHA-256 of the certificate that was refused last.
        seen: Option<String>,
    },
    /// The connection failed after something may have been sent.
    #[error("`{call}` got no answer from `{endpoint}`")]
    Lost {
        /// The call.
        call: Call,
        /// The node it was sent to.
        endpoint: String,
        /// What happened.
        #[source]
        source: TransportError,
    },
    /// The call had no turn in time, and was not sent.
    #[error("`{call}` was not sent to `{endpoint}`")]
    Unsent {
        /// The call.
        call: Call,
        /// The node it was for.
        endpoint: String,
        /// Why not.
        #[source]
        source: NoTurn,
    },
    /// Proxmox said no.
    #[error("`{call}` was refused by `{endpoint}`: {refusal}")]
    Refused {
        /// The call.
        call: Call,
        /// The node that was asked.
        endpoint: String,
        /// What it said.
        refusal: Refusal,
    },
    /// The answer is not what Proxmox documents.
    #[error("`{call}` was answered by `{endpoint}` in a shape that is not Proxmox's")]
    Shape {
        /// The call.
        call: Call,
        /// The node that answered.
        endpoint: String,
        /// What did not fit.
        #[source]
        source: serde_json::Error,
    },
    /// The login wants a second factor.
    #[error(
        "`{0}` has a second factor, which a program cannot answer: use an API token, or a user \
         without one"
    )]
    SecondFactor(String),
    /// The connection can not be set up as configured.
    #[error("{what}")]
    Setup {
        /// What is wrong and what to do.
        what: String,
        /// The cause beneath.
        #[source]
        source: Option<crate::transport::BoxError>,
    },
}

/// Each failure once, behind the endpoints that it is of.
fn by_failure(tried: &[String]) -> String {
    let mut each: Vec<(Vec<&str>, &str)> = Vec::new();
    for one in tried {
        let (endpoint, failure) = one.split_once(": ").unwrap_or(("", one));
        match each.iter_mut().find(|(_, known)| *known == failure) {
            Some((endpoints, _)) => endpoints.push(endpoint),
            None => each.push((vec![endpoint], failure)),
        }
    }
    let told = each.iter().map(|(endpoints, failure)| match endpoints[..] {
        [""] => (*failure).to_owned(),
        _ => format!("{}: {failure}", endpoints.join(", ")),
    });
    told.collect::<Vec<_>>().join("; ")
}

impl PveError {
    /// A failed set-up without a cause beneath.
    pub fn setup(what: impl Into<String>) -> Self {
        Self::Setup { what: what.into(), source: None }
    }

    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        chain(self).replace('\n', " ")
    }
}
