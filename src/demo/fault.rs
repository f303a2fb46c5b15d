//! Why the demo failed.

use std::io;

use pve_sim::api::https::HttpsError;
use pve_sim::guests::IsolationError;

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The process guests cannot run.
    #[error(transparent)]
    Guests(#[from] IsolationError),
    #[error("cannot create certificates")]
    Certificates(#[from] rcgen::Error),
    /// The simulated cluster's HTTPS server did not start.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// The service did not become ready, or did not stop.
    #[error("{what}; the end of its log:\n{log}")]
    Service {
        /// What did not happen.
        what: &'static str,
        /// The last lines of the service's log.
        log: String,
    },
    /// The operating system refused a file, process or socket.
    #[error("the operating system refused a request of the demo")]
    System(#[source] io::Error),
    /// The terminal, pipe or file took nothing.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// The file of the recording took nothing.
    #[error("cannot write the recording {path}")]
    Recording {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl DemoError {
    pub fn system(source: io::Error) -> Self {
        Self::System(source)
    }
}
