//! Agents that speak another version of the protocol than their server; both must speak the same.

use drover_model::demand::words::Words;

/// What `woodpecker-agent` logs before it ends (3.17.0 at a4cb541b82de, `cmd/agent/core/agent.go`).
const MISMATCH_LOG: &str = "GRPC version mismatch";
/// The longest server version that is reported, in bytes: it comes from a guest.
const VERSION_MAX_BYTES: usize = 40;

/// Says that an agent does not fit its server, by what it logged.
pub(super) fn too_old(words: &Words) -> Option<String> {
    if !words.lines.contains(MISMATCH_LOG) {
        return None;
    }
    let Some((server, theirs, own)) = versions(&words.lines) else {
        return Some(
            "its woodpecker-agent has another version than the server; install the server's version \
             in the template image"
                .to_owned(),
        );
    };
    let how = if own < theirs { "too old" } else { "too new" };
    Some(format!(
        "its woodpecker-agent is {how}: it speaks version {own} of the agents' protocol, and the \
         server {server} version {theirs}; install woodpecker-agent {server} in the template image"
    ))
}

/// The server's version, and the protocol versions of the server and of the agent.
fn versions(log: &str) -> Option<(&str, u32, u32)> {
    let (_, rest) = log.split_once("server version ")?;
    let (server, rest) = rest.split_once(" does report grpc version ")?;
    let (theirs, rest) = rest.split_once(" but we only understand ")?;
    let own = rest.split(|ch: char| !ch.is_ascii_digit()).next()?;
    (server.len() <= VERSION_MAX_BYTES).then_some(())?;
    Some((server, theirs.parse().ok()?, own.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use drover_model::demand::words::Life;

    use super::*;

    // Invariant: an agent that does not fit its server is reported with the server's version.

    #[test]
    fn an_agent_of_another_protocol_is_reported_with_the_version_of_its_server() {
        let reported = |lines: &str| {
            let (life, lines) = (Life::Ended(Some(1)), lines.to_owned());
            too_old(&Words { life, seconds: 1, ago: 0, lines, too_old: None })
        };
        let log = |own: u32| {
            reported(&format!(
                "{{\"level\":\"error\",\"error\":\"GRPC version mismatch\",\"message\":\"server version \
                 3.17.0 does report grpc version 16 but we only understand {own}\"}}"
            ))
        };
        assert_eq!(
            log(15).as_deref(),
            Some(
                "its woodpecker-agent is too old: it speaks version 15 of the agents' protocol, and \
                 the server 3.17.0 version 16; install woodpecker-agent 3.17.0 in the template image"
            )
        );
        assert!(log(17).is_some_and(|text| text.starts_with("its woodpecker-agent is too new")));
        assert!(
            reported(MISMATCH_LOG)
                .is_some_and(|text| text.contains("install the server's version"))
        );
        assert_eq!(reported("could not get grpc server version"), None);
    }
}
