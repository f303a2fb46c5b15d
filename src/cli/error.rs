//! Why a command failed, and with which exit code.

use std::io;

use drover_api::Problem;
use drover_config::LoadError;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The configuration cannot be used.
    #[error("{}", .0.render().trim_end())]
    Config(Box<LoadError>),
    /// A running service could not be asked, or refused.
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}")]
    Failed(String),
    /// What was waited for did not come in time.
    #[error("{0}")]
    Waited(String),
    /// The lease was lost, expired, or was released by somebody else, or a build is not known any more.
    #[error("{0}")]
    Over(String),
    /// The terminal or pipe took nothing.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
}

impl CliError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Config(_) => 2,
            Self::Call(fault) if fault.is_usage() => 2,
            Self::Call(fault) if fault.is_silence() => 69,
            Self::Waited(_) | Self::Over(_) => 75,
            Self::Call(_) | Self::Failed(_) | Self::Output(_) => 1,
        }
    }
}

/// Why a call gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no drover is listening on `{place}`: is it running? {}", elsewhere(place))]
    NoService { place: String },
    /// The socket may not be opened.
    #[error(
        "may not open `{place}`: run this as root or as the service's own user, or use --url and \
         --token-file"
    )]
    NotAllowed { place: String },
    /// The connection failed on the way; the call may have been taken.
    #[error("the call to drover on `{place}` failed")]
    Broken {
        place: String,
        #[source]
        cause: reqwest::Error,
    },
    /// The address begins with `https://`, and who listens there does not speak TLS.
    #[error("the server on `{place}` speaks plain HTTP: try `{instead}`")]
    PlainHttp { place: String, instead: String },
    /// The service said no.
    #[error("{}", reported(.0))]
    Refused(Problem),
    /// What came back is not an answer of drover.
    #[error("`{place}` answered {status}, and not as drover does: is something else there?")]
    NotDrover {
        place: String,
        /// The HTTP status.
        status: u16,
    },
}

impl CallError {
    /// Whether the service knows nothing of that name.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.status == 404)
    }

    /// Whether nothing was done because no member of a store leads at the moment.
    pub fn lacks_leader(&self) -> bool {
        matches!(self, Self::Refused(problem) if problem.kind.ends_with(":no-leader"))
    }

    /// Whether the same call may bring an answer later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NoService { .. } | Self::Broken { .. } => true,
            Self::Refused(problem) => {
                // A leader that died amid a call leaves open what came of it.
                matches!(problem.status, 429 | 503) || problem.kind.ends_with(":unknown-outcome")
            }
            Self::NotAllowed { .. } | Self::PlainHttp { .. } | Self::NotDrover { .. } => false,
        }
    }

    /// Whether no service answered.
    pub fn is_silence(&self) -> bool {
        match self {
            Self::NoService { .. } | Self::Broken { .. } | Self::PlainHttp { .. } => true,
            Self::NotAllowed { .. } | Self::Refused(_) | Self::NotDrover { .. } => false,
        }
    }

    /// Whether the service could make nothing of what was asked, whatever it has, or its configuration
    /// has faults; that it lacks what was named is no wrong usage.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.status == 400 || problem.is_of_configuration(),
            Self::NoService { .. }
            | Self::NotAllowed { .. }
            | Self::PlainHttp { .. }
            | Self::Broken { .. }
            | Self::NotDrover { .. } => false,
        }
    }
}

/// What to do when nobody listens.
fn elsewhere(place: &str) -> &'static str {
    if place.starts_with("http") {
        "look there, or give another address with --url or DROVER_URL"
    } else {
        "start it with `drover run --config FILE`, or name its socket with --socket or DROVER_SOCKET; for \
         one on another machine give --url and --token-file (DROVER_URL, DROVER_TOKEN_FILE)"
    }
}

/// A problem for people: the field faults are part of the detail already.
fn reported(problem: &Problem) -> String {
    if problem.detail.is_empty() {
        return problem.title.clone();
    }
    let between = if problem.detail.contains('\n') { ":\n" } else { ": " };
    format!("{}{between}{}", problem.title, problem.detail)
}

pub(super) fn failed(text: impl Into<String>) -> CliError {
    CliError::Failed(text.into())
}

pub(super) fn usage(text: impl Into<String>) -> CliError {
    CliError::Usage(text.into())
}
