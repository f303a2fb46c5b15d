//! What only a restart of the service applies.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings that only a restart applies.
pub(super) struct StartSettings {
    listen: Option<SocketAddr>,
    socket: PathBuf,
    mode: Option<u32>,
    state: PathBuf,
}

impl StartSettings {
    pub(super) fn of(spec: &drover_config::ServiceSpec) -> Self {
        Self {
            listen: spec.listen,
            socket: spec.socket.clone(),
            mode: spec.socket_mode,
            state: spec.state_directory.clone(),
        }
    }

    /// The keys of what others have another value of.
    pub(super) fn differing(&self, other: &Self) -> Vec<&'static str> {
        let Self { listen, socket, mode, state } = self;
        let all = [
            ("service.listen", *listen != other.listen),
            ("service.socket", *socket != other.socket),
            ("service.socketMode", *mode != other.mode),
            ("service.stateDirectory", *state != other.state),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}
