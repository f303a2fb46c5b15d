//! What happens in a session: commands, files, and what their ends mean.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use causes::chain;
use drover_model::fault::{Culprit, Fault, FaultKind};
use drover_model::os::Os;
use drover_model::ports::Ran;
use drover_model::spec::UploadSpec;
use drover_scripts::guest as scripts;
use drover_ssh::{ConnectError, ExecError, Keep, Limits, Session, UploadError};

use crate::tail::{FAULT_LINES, ran_of, tail};
use crate::user_data::{UserDataStore, guest};
use crate::{EXIT_ALREADY_DONE, TAIL_BYTES, windows};

pub(super) async fn exec(session: Session, command: &str, limit: Duration) -> Result<Ran, Fault> {
    let ran = exec_on(&session, command, limit).await;
    session.close().await;
    ran
}

/// Writes files that only their user may read.
pub(super) async fn put_all(
    session: &Session,
    os: Os,
    files: impl IntoIterator<Item = (String, Bytes)> + Send,
    limit: Duration,
) -> Result<(), Fault> {
    for (to, content) in files {
        match windows::put(session, os, (&to, content, 0o600), limit).await {
            Ok(()) => {}
            Err(error @ UploadError::Failed { .. }) => {
                let text = error.to_string();
                return Err(Fault::new(FaultKind::Broken, Culprit::Guest, text));
            }
            Err(UploadError::Exec { source, .. }) => {
                let ran = ended_early(source)?;
                return Err(broken(&format!("writing `{to}`"), &ran));
            }
        }
    }
    Ok(())
}

/// Puts a lease's user data into the guest, unless it is there already.
pub(super) async fn put_user_data(
    session: &Session,
    store: Option<Arc<UserDataStore>>,
    lease: String,
    limit: Duration,
) -> Result<(), Fault> {
    let made = exec_on(session, &guest::make_folder(&lease), limit).await?;
    if was_already_done("making the folder for user data", &made)? {
        return Ok(());
    }
    let of = lease.clone();
    let read = tokio::task::spawn_blocking(move || Some(store?.read(&of))).await;
    let gone = |text: &str| Err(Fault::new(FaultKind::Gone, Culprit::Guest, text));
    match read {
        Ok(Some(Ok(Some(content)))) => {
            put_all(session, Os::Linux, guest::files(&lease, content), limit).await
        }
        Ok(Some(Ok(None))) => gone("the lease's user data is not there any more"),
        Ok(Some(Err(error))) => {
            let text = format!("the lease's user data cannot be read: {}", chain(&error));
            Err(Fault::new(FaultKind::Contention, Culprit::Guest, text))
        }
        Ok(None) | Err(_) => gone("this service does not keep the user data of leases"),
    }
}

/// Whether a command found its work done already.
pub(super) fn was_already_done(doing: &str, ran: &Ran) -> Result<bool, Fault> {
    match ran.exit {
        Some(0) => Ok(false),
        Some(EXIT_ALREADY_DONE) => Ok(true),
        _ => Err(broken(doing, ran)),
    }
}

pub(super) fn broken(doing: &str, ran: &Ran) -> Fault {
    Fault::new(FaultKind::Broken, Culprit::Guest, format!("{doing} failed: {}", ran.said()))
}

pub(super) async fn exec_on(
    session: &Session,
    command: &str,
    limit: Duration,
) -> Result<Ran, Fault> {
    let limits = Limits { time: limit, output_bytes_max: TAIL_BYTES, keep: Keep::Last };
    match session.exec(command, None, limits, None).await {
        Ok(result) => {
            let result = windows::with_own_status(command, result);
            Ok(ran_of(command, &result))
        }
        Err(error) => ended_early(error),
    }
}

/// What is known about a command without a result.
pub(super) fn ended_early(error: ExecError) -> Result<Ran, Fault> {
    match error {
        ExecError::TimedOut { partial, after } => {
            // The login took the rest of the last second.
            let seconds = after.as_millis().div_ceil(1000);
            let tail = format!("{}\n(ended after {seconds} s)", tail(&partial, FAULT_LINES));
            Ok(Ran { exit: None, tail: tail.trim_start().to_owned() })
        }
        ExecError::Lost { partial } => {
            let tail = tail(&partial, FAULT_LINES);
            let text = format!("the connection was lost while a command ran; {tail}");
            Err(Fault::new(FaultKind::UnknownOutcome, Culprit::Guest, text))
        }
        error @ (ExecError::Refused | ExecError::NotStarted { .. }) => {
            Err(Fault::new(FaultKind::Unreachable, Culprit::Guest, chain(&error)))
        }
    }
}

pub(super) async fn put(
    session: Session,
    os: Os,
    upload: &UploadSpec,
    content: Bytes,
    limit: Duration,
) -> Result<Ran, Fault> {
    let outcome = windows::put(&session, os, (&upload.to, content, upload.mode), limit).await;
    session.close().await;
    match outcome {
        Ok(()) => Ok(Ran { exit: Some(0), tail: String::new() }),
        Err(error @ UploadError::Failed { .. }) => {
            Ok(Ran { exit: Some(1), tail: error.to_string() })
        }
        Err(UploadError::Exec { source, .. }) => ended_early(source),
    }
}

/// The fault of a login that failed.
pub(super) fn login_fault(os: Os, error: ConnectError) -> Fault {
    let (kind, culprit) = match &error {
        ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. } => {
            (FaultKind::Unreachable, Culprit::Guest)
        }
        ConnectError::KeyRejected { .. } => (FaultKind::KeyRejected, Culprit::Template),
        ConnectError::Impostor { .. } => (FaultKind::Impostor, Culprit::Guest),
        ConnectError::BadPin { .. } | ConnectError::Protocol { .. } => {
            (FaultKind::Broken, Culprit::Guest)
        }
    };
    let text = windows::login_text(os, chain(&error));
    let text = match unanswered(&error) {
        Some(what) => format!("{what}: {text}"),
        None => text,
    };
    Fault::new(kind, culprit, text)
}

/// What it means where nobody answered; none where somebody did.
fn unanswered(error: &ConnectError) -> Option<String> {
    let place = |target: &str| target.rsplit_once(':').map(|(_, port)| port.to_owned());
    match error {
        ConnectError::Unreachable { target, source } => {
            let port = place(target)?;
            if source.kind() == ErrorKind::ConnectionRefused {
                return Some(format!(
                    "nothing listens on port {port} of the guest (`sshPort`): the port is wrong, the \
                     image's sshd does not run, or the guest's firewall refuses it"
                ));
            }
            let is_silent = [ErrorKind::TimedOut, ErrorKind::HostUnreachable];
            is_silent.contains(&source.kind()).then(|| {
                format!(
                    "no answer from the guest's address, so its network is not up, the address is \
                     another machine's, or a firewall drops port {port} (`sshPort`)"
                )
            })
        }
        ConnectError::TimedOut { target, .. } => Some(format!(
            "no answer from the guest's port {} (`sshPort`), so a firewall drops it, or the address \
             is another machine's",
            place(target)?
        )),
        ConnectError::KeyRejected { .. }
        | ConnectError::Impostor { .. }
        | ConnectError::BadPin { .. }
        | ConnectError::Protocol { .. } => None,
    }
}

/// The outcome of a command that changes keys.
pub(super) fn changed(doing: &str, ran: &Ran) -> Result<(), Fault> {
    match ran.exit {
        Some(0) => Ok(()),
        Some(scripts::EXIT_TRY_AGAIN) => {
            let text = format!("{doing} failed: {}", ran.said());
            Err(Fault::new(FaultKind::Contention, Culprit::Guest, text))
        }
        _ => Err(broken(doing, ran)),
    }
}
