//! The end of a command on a lease: its own exit status, or what became of its machine.
//!
//! A command whose connection breaks says nothing of its machine. Therefore the machine is asked whether
//! it still answers, and the service whether it knows of the lease's end. A machine that answers no more
//! is lost to its holder, even where the service still waits for it, as for a node that is offline within
//! its grace.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use drover_api::{AgentsOut, LeaseOut, SshOut};
use drover_model::phase::LeasePhase;
use drover_model::record::{EXPIRED, LOST, is_lost};
use tokio::sync::mpsc;

use super::client::{CALL_LIMIT, Client, path};
use super::error::CliError;
use super::identity::Identity;
use super::leasing::{Leasing, job};
use super::over_ssh::Cut;
use super::sentences::clean;

/// How long a machine may take to answer whose command was cut.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// The status of a command that was killed, which one may also end with by itself.
const KILLED: u32 = 255;

/// The exit code of a command that ended; where it was cut off, what became of its machine and its lease.
pub(super) async fn outcome(
    leasing: &Leasing<'_>,
    lease: &str,
    login: (&SshOut, &Identity),
    ended: Result<u32, Cut>,
    mut stop: Pin<&mut impl Future<Output = u8>>,
) -> Result<u8, CliError> {
    let cut = match &ended {
        Ok(status) => *status == KILLED,
        Err(cut) => cut.sent,
    };
    let silent = tokio::select! {
        biased;
        code = stop.as_mut() => return Ok(code),
        silent = settled(leasing, lease, cut.then_some(login)) => silent,
    };
    if !matches!(ended, Ok(status) if status != KILLED) {
        let how = tokio::select! {
            biased;
            code = stop.as_mut() => return Ok(code),
            how = how_it_ended(leasing.client, lease) => how,
        };
        if let Some(how) = how {
            return Err(CliError::Over(ended_under(&how)));
        }
    }
    let cut = match ended {
        // A machine that is shut down kills its commands before it stops answering.
        Ok(KILLED) if silent.is_some() => "the command was killed".to_owned(),
        Ok(status) => return Ok(u8::try_from(status).unwrap_or(255)),
        Err(Cut { text, sent: true }) => format!("the command was cut off: {text}"),
        Err(Cut { text, sent: false }) => {
            return Err(CliError::Failed(format!("the command could not be run: {text}")));
        }
    };
    Err(match silent {
        None => CliError::Failed(cut),
        Some(known) if known.is_empty() => {
            let why = "and drover does not know why";
            CliError::Over(format!("{cut}; its machine does not answer, {why}"))
        }
        Some(known) => {
            CliError::Over(format!("{cut}; its machine does not answer: {}", clean(&known)))
        }
    })
}

/// What is said of a lease that ended in this way under its command.
fn ended_under(how: &str) -> String {
    format!("the lease ended while the command ran: {how}")
}

/// Waits, where a command was `cut` and its machine does not answer, until its lease is known to be over.
/// Gives what the service says of the machine of a lease that is not over by then.
async fn settled(
    leasing: &Leasing<'_>,
    lease: &str,
    cut: Option<(&SshOut, &Identity)>,
) -> Option<String> {
    let login = cut?;
    // One that is being shut down ends its commands before it stops answering.
    tokio::time::sleep(leasing.time_limits.pause).await;
    if answers(leasing, login).await {
        return None;
    }
    let path = path("leases", lease, "");
    let mut known = None;
    let over = async {
        loop {
            match leasing.client.get::<LeaseOut>(&path, CALL_LIMIT).await {
                Ok(seen) if seen.state == LeasePhase::Ended => return,
                Ok(seen) => known = Some(seen.detail),
                // A service that does not answer says nothing of the lease.
                Err(_) => {}
            }
            tokio::time::sleep(leasing.time_limits.pause).await;
        }
    };
    let ended = tokio::time::timeout(leasing.time_limits.loss, over).await.is_ok();
    known.filter(|_| !ended)
}

/// Whether the machine of a lease lets its holder in.
async fn answers(leasing: &Leasing<'_>, login: (&SshOut, &Identity)) -> bool {
    let (_, input) = mpsc::channel(1);
    let (output, mut pieces) = mpsc::channel(1);
    let unheard = async {
        while pieces.recv().await.is_some() {}
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = leasing.over.run(job(login, "true".into(), input, output)) => ended.is_ok(),
        () = unheard => false,
        () = tokio::time::sleep(PROBE_LIMIT) => false,
    }
}

/// Whether a lease ended together with its machine: no command runs there any more.
fn is_over(detail: &str) -> bool {
    detail == EXPIRED || is_lost(detail)
}

/// The fault of a lease that ended in this way before its command began.
pub(super) fn end_of(detail: &str, text: String) -> CliError {
    let is_ended = matches!(detail, "released" | "cancelled");
    if is_over(detail) || is_ended { CliError::Over(text) } else { CliError::Failed(text) }
}

/// Waits until the lease of a running command has ended, whatever ended it; gives the fault of that.
pub(super) async fn until_over(leasing: &Leasing<'_>, lease: &str) -> CliError {
    let path = path("leases", lease, "");
    loop {
        tokio::time::sleep(leasing.time_limits.watch).await;
        // A service that does not answer says nothing of the lease.
        let Ok(seen) = leasing.client.get::<LeaseOut>(&path, CALL_LIMIT).await else { continue };
        if seen.state != LeasePhase::Ended {
            continue;
        }
        // What the command still said is on its way. One whose lease was given back would go on.
        if is_over(&seen.detail) {
            tokio::time::sleep(leasing.time_limits.watch).await;
        }
        let how = how_it_ended(leasing.client, lease).await;
        let how = how.unwrap_or_else(|| clean(&seen.detail));
        return CliError::Over(ended_under(&how));
    }
}

/// How a lease ended, in a sentence; none while it lasts, or where that is not known.
async fn how_it_ended(client: &Client, lease: &str) -> Option<String> {
    let seen: LeaseOut = client.get(&path("leases", lease, ""), CALL_LIMIT).await.ok()?;
    if seen.state != LeasePhase::Ended {
        return None;
    }
    Some(match seen.detail.as_str() {
        EXPIRED => match seen.expires_at {
            Some(at) => format!("it expired at {}", clean(&at)),
            None => "it expired".to_owned(),
        },
        LOST => match why_it_went(client, seen.agent.as_deref()).await {
            Some(why) => format!("its agent went: {}", clean(&why)),
            None => "its agent went".to_owned(),
        },
        "released" | "cancelled" => format!("it was {}", seen.detail),
        why if is_lost(why) => format!("it was {}", clean(why)),
        why => format!("its agent went: {}", clean(why)),
    })
}

/// Why an agent goes or went, as far as the service still knows.
async fn why_it_went(client: &Client, agent: Option<&str>) -> Option<String> {
    let agent = agent?;
    let all: AgentsOut = client.get("/v1/agents", CALL_LIMIT).await.ok()?;
    let gone = all.gone.into_iter().rev().find(|gone| gone.id == agent).map(|gone| gone.detail);
    let going = || all.agents.into_iter().find(|one| one.id == agent).map(|one| one.detail);
    gone.or_else(going).filter(|why| !why.is_empty())
}
