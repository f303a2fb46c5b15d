//! One service of an installation on a machine.
//!
//! A copied state directory makes two services with one installation, and each would hand out and
//! destroy the other's agents. The journal's own lock is of its file, which is another one in a copy.
//! So each service binds an abstract Unix socket (unix(7)) that is named by its installation, and keeps
//! it for its life. The system removes it with the process, however that ends.
//!
//! In: the installation, and what the next one is answered. Out: the hold, or who has it.
//!
//! An abstract socket is of a network namespace: services in containers with networks of their own do
//! not see each other, nor do services on two machines. There the marks of guests show the other one
//! (`drover_actors::restraint`), which takes until one of the two clones.

use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use drover_model::id::Installation;
use sha2::{Digest as _, Sha256};

use super::RunError;

/// How long the other service may take to say who it is.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// The longest such answer, in bytes.
const ANSWER_MAX: u64 = 8 * 1024;

/// Holds an installation for this process until the process ends.
///
/// # Errors
/// [`RunError::Twin`] where another process holds it; [`RunError::System`].
pub fn hold(installation: &Installation, state: &Path, socket: &Path) -> Result<(), RunError> {
    let name = format!("drover-{installation}");
    take(&name, state, socket, |who| {
        format!(
            "installation {installation} runs on this machine already: {who}; the state directory \
             `{}` is a copy of that one's. Use the service that runs, or give this one an empty \
             state directory (`ss -xlp | grep {name}` shows the process)",
            state.display()
        )
    })
}

/// The same for a member of a store: `key` is of the store alone.
///
/// # Errors
/// As [`hold`].
pub fn hold_member(member: &str, key: &str, state: &Path, socket: &Path) -> Result<(), RunError> {
    take(&format!("drover-member-{key}-{member}"), state, socket, |who| {
        format!(
            "member `{member}` runs on this machine already: {who}. Use the service that runs, or give \
             this one another name with --member"
        )
    })
}

/// The same for a state directory, where the journal's own lock is not in it.
///
/// # Errors
/// As [`hold`].
pub fn hold_state(state: &Path, socket: &Path) -> Result<(), RunError> {
    let whole = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    let digest = Sha256::digest(whole.as_os_str().as_encoded_bytes());
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    take(&format!("drover-state-{name}"), state, socket, |who| {
        format!(
            "the state directory `{}` is in use already: {who}. Give each member one of its own with \
             --state-dir",
            state.display()
        )
    })
}

/// Binds a name, or says who has it.
fn take(
    name: &str,
    state: &Path,
    socket: &Path,
    refusal: impl FnOnce(String) -> String,
) -> Result<(), RunError> {
    let failed = |source| RunError::System { doing: "cannot hold the installation", source };
    let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
    let listener = match UnixListener::bind_addr(&address) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let who = ask(&address).unwrap_or_else(|_| "a process that does not say which".into());
            return Err(RunError::Twin(refusal(who)));
        }
        Err(error) => return Err(failed(error)),
    };
    let answer = format!(
        "process {}, socket `{}`, state directory `{}`",
        std::process::id(),
        socket.display(),
        state.display()
    );
    let answers = move || {
        for stream in listener.incoming() {
            match stream {
                // Who asks and reads nothing hinders nobody else: the answer fits into the buffer.
                Ok(mut stream) => drop(stream.write_all(answer.as_bytes())),
                // The hold itself needs no answer.
                Err(_) => std::thread::sleep(ANSWER_LIMIT),
            }
        }
    };
    std::thread::Builder::new().name("twin".into()).spawn(answers).map_err(failed)?;
    Ok(())
}

/// Asks the service that has the installation who it is.
fn ask(address: &SocketAddr) -> io::Result<String> {
    let stream = UnixStream::connect_addr(address)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let mut text = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut text)?;
    Ok(text.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use super::*;

    // Invariant: an installation has one service on a machine, and the second one hears who that is.

    #[test]
    fn a_second_service_of_an_installation_is_refused_and_hears_of_the_first() {
        let installation = |end: &str| Installation::new(format!("t{}{end}", std::process::id()));
        let (one, other) = (installation("a"), installation("b"));
        let (state, copy) = (Path::new("/var/lib/drover"), Path::new("/srv/copy"));
        hold(&one, state, Path::new("/run/drover/drover.sock")).unwrap();
        hold(&other, copy, Path::new("/run/other.sock")).unwrap();
        let refused = hold(&one, copy, Path::new("/run/twin.sock")).unwrap_err();
        let text = refused.to_string();
        let who = format!("process {}, socket `/run/drover/drover.sock`", std::process::id());
        assert!(text.contains(&who), "{text}");
        assert!(text.contains("`/var/lib/drover`") && text.contains("`/srv/copy`"), "{text}");
        assert_eq!(refused.exit_code(), 1);
    }
}
