//! `drover lease`: take a lease, run a command on it over SSH, and release it whatever happens.

use std::fs::File;
use std::future::Future;
use std::io::Read as _;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use causes::chain;
use drover_api::{LeaseIn, LeaseOut, MachineSize, SshOut};
use drover_model::phase::LeasePhase;
use drover_model::record::WAITED;
use drover_shell::user_data::{USER_DATA_MAX, guest};
use drover_ssh::Output;
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::mpsc;

use super::client::CALL_LIMIT;
use super::ending::{end_of, outcome, until_over};
use super::error::{CallError, CliError};
use super::identity::Identity;
use super::kept;
use super::leasing::{Leasing, job};
use super::options::LeaseOptions;
use super::over_ssh::Cut;
use super::privacy::note_open;
use super::screen::Output as Screened;
use super::sentences::clean;
use super::stdin::is_standard_input;
use super::term::Term;
use drover_server::LONGEST_QUEUE_SECONDS;

/// Pieces that wait on their way to the command, and from it.
const INPUT_PIECES: usize = 4;
const OUTPUT_PIECES: usize = 64;

/// Leases, and runs the command if there is one; gives the exit code.
///
/// `stop` ends with the exit code to give when the user wants an end.
pub(super) async fn lease(
    leasing: &Leasing<'_>,
    options: &LeaseOptions,
    stop: impl Future<Output = u8>,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let mut stop = pin!(stop);
    let identity = Identity::of(options)?;
    let files = [("key", &options.identity), ("passphrase", &options.passphrase_file)];
    for (what, file) in files {
        if let Some(path) = file {
            note_open(what, path, leasing.json, term)?;
        }
    }
    kept::sweep(leasing.client, &leasing.key_dir).await;
    let step = term.live.step("asking for a lease");
    let lease = take(leasing, options, &identity, stop.as_mut(), term).await?;
    let mut said = Said { within: options.wait, ..Said::default() };
    let waiting = wait_ready(leasing, lease.clone(), &mut said, stop.as_mut(), term);
    let waited = match options.wait {
        Some(limit) => match tokio::time::timeout(limit, waiting).await {
            Ok(waited) => waited,
            Err(_) => {
                let (id, in_time, why) = (&lease.id, said.in_time(), said.why());
                Err(CliError::Waited(format!("lease `{id}` was not ready {in_time}{why}")))
            }
        },
        None => waiting.await,
    };
    drop(step);
    // Whether the command's last line on standard error has no end.
    let mut open = false;
    let mut is_stopped = false;
    let result = match waited {
        Ok(Waited::Ready(lease, ssh)) if options.command.is_empty() => {
            match show(leasing, options, &lease, &ssh, &identity, term) {
                Ok(()) => return Ok(0),
                Err(fault) => Err(fault),
            }
        }
        Ok(Waited::Ready(_, ssh)) => {
            let mut command = match &options.command[..] {
                [one] => one.clone(),
                several => drover_ssh::join(several),
            };
            if options.user_data.is_some() {
                command = guest::with_env(&lease.id, &command);
            }
            let login = (&ssh, &identity);
            let input = input_of(leasing, options);
            let (output, printed) = mpsc::channel(OUTPUT_PIECES);
            let job = leasing.over.run(job(login, command, input, output));
            let job = run(job, printed, stop.as_mut(), term, &mut open);
            // A machine that died says nothing: SSH alone would wait for it a minute longer.
            let ran = tokio::select! {
                biased;
                ran = job => ran,
                fault = until_over(leasing, &lease.id) => Err(fault),
            };
            match ran {
                Ok(Ran::Stopped(code)) => {
                    is_stopped = true;
                    Ok(code)
                }
                Ok(Ran::Ended(ended)) => {
                    outcome(leasing, &lease.id, login, ended, stop.as_mut()).await
                }
                Err(fault) => Err(fault),
            }
        }
        Ok(Waited::Stopped(code)) => {
            is_stopped = true;
            Ok(code)
        }
        Err(fault) => Err(fault),
    };
    // The command's own result stands whether or not more can be printed.
    if (leasing.json || is_stopped) && open {
        let _ = writeln!(term.err);
    }
    if release(leasing, &lease, term).await && is_stopped {
        let id = &lease.id;
        let _ =
            term.progress(leasing.json, &format!("lease {id} is released"), json!({ "lease": id }));
    }
    if let (true, Ok(exit)) = (leasing.json, &result) {
        let _ = writeln!(term.err, "{}", json!({ "lease": lease.id, "exit": exit }));
    }
    result
}

async fn take(
    leasing: &Leasing<'_>,
    options: &LeaseOptions,
    identity: &Identity,
    mut stop: Pin<&mut impl Future<Output = u8>>,
    term: &mut Term<'_>,
) -> Result<LeaseOut, CliError> {
    let mut ask = LeaseIn {
        template: options.template.clone(),
        labels: options.labels.clone(),
        label_expression: options.label_expression.clone(),
        overrides: Some(size_of(options)).filter(|size| !size.is_none()),
        ttl_seconds: Some(options.ttl.as_secs()),
        // It ends by itself where this command does not live to release it.
        max_wait_seconds: options.wait.map(|wait| wait.as_secs().clamp(1, LONGEST_QUEUE_SECONDS)),
        owner: options.owner.clone(),
        ssh_public_key: Some(identity.key.public_line("")),
        idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        ..LeaseIn::default()
    };
    if let Some(path) = &options.user_data {
        ask.bring(read_user_data(path)?);
    }
    let mut tries = leasing.time_limits.tries;
    loop {
        // Not given up on a signal: only its answer says which lease to release.
        let fault = match leasing.client.post("/v1/leases", &ask, CALL_LIMIT).await {
            Ok(lease) => return Ok(lease),
            Err(fault) => fault,
        };
        // The same key answers the same lease, so asking again cannot take two. A service that
        // was never there is not waited for.
        let never_there =
            matches!(fault, CallError::NoService { .. }) && tries == leasing.time_limits.tries;
        if tries <= 1 || never_there || !fault.is_passing() {
            return Err(fault.into());
        }
        if tries == leasing.time_limits.tries {
            let text = format!("the lease is not taken yet, trying again: {fault}");
            term.progress(leasing.json, &text, json!({}))?;
        }
        tries -= 1;
        tokio::select! {
            _ = stop.as_mut() => return Err(CliError::Failed(
                "stopped before drover answered; if it took the lease, that ends by its time".into(),
            )),
            () = tokio::time::sleep(leasing.time_limits.pause) => {}
        }
    }
}

/// What the command reads: the standard input, or nothing at all where that is the file for the machine.
pub(super) fn input_of(leasing: &Leasing<'_>, options: &LeaseOptions) -> mpsc::Receiver<Bytes> {
    let (pieces, input) = mpsc::channel(INPUT_PIECES);
    // Without a sender the input has ended.
    if !options.reads_user_data() {
        (leasing.input)(pieces);
    }
    input
}

/// The size that the machine is to have.
fn size_of(options: &LeaseOptions) -> MachineSize {
    let LeaseOptions { cpu: cores, memory: memory_mb, disk: disk_size_gb, .. } = *options;
    MachineSize { cores, memory_mb, disk_size_gb }
}

/// Reads user data from a file, or from the standard input for `-`.
fn read_user_data(path: &Path) -> Result<Vec<u8>, CliError> {
    let most = USER_DATA_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = if is_standard_input(path) {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    let path = path.display();
    read.map_err(|fault| CliError::Usage(format!("user data `{path}` cannot be read: {fault}")))?;
    if bytes.is_empty() || bytes.len() > USER_DATA_MAX {
        let text = format!("user data `{path}` must have 1 to {USER_DATA_MAX} bytes");
        return Err(CliError::Usage(text));
    }
    Ok(bytes)
}

/// What was said of a lease so far.
#[derive(Default)]
struct Said {
    /// The last line on the terminal.
    line: String,
    /// Why it waited, as the service said it last.
    why: String,
    /// How long it may wait, where this command says that.
    within: Option<Duration>,
}

impl Said {
    /// Within which time an agent had to be there.
    fn in_time(&self) -> String {
        match self.within {
            Some(limit) => format!("within {} s (--wait)", limit.as_secs()),
            None => "in time (maxWaitSeconds)".to_owned(),
        }
    }

    /// Why there was none, as far as that is known.
    fn why(&self) -> String {
        if self.why.is_empty() { String::new() } else { format!(": {}", clean(&self.why)) }
    }
}

enum Waited {
    Ready(Box<LeaseOut>, SshOut),
    Stopped(u8),
}

async fn wait_ready(
    leasing: &Leasing<'_>,
    mut lease: LeaseOut,
    said: &mut Said,
    mut stop: Pin<&mut impl Future<Output = u8>>,
    term: &mut Term<'_>,
) -> Result<Waited, CliError> {
    let (client, time_limits) = (leasing.client, leasing.time_limits);
    let path = format!("/v1/leases/{}?waitSeconds={}", lease.id, time_limits.wait_seconds);
    let mut tries = time_limits.tries;
    let mut unanswered = false;
    loop {
        say(&lease, &mut said.line, leasing.json, term)?;
        if lease.state == LeasePhase::Waiting {
            said.why.clone_from(&lease.detail);
        }
        match (lease.state, &lease.ssh) {
            (LeasePhase::Ready, Some(ssh)) => {
                let ssh = ssh.clone();
                return Ok(Waited::Ready(Box::new(lease), ssh));
            }
            (LeasePhase::Ended, _) if lease.detail == WAITED => {
                let (id, in_time, why) = (&lease.id, said.in_time(), said.why());
                return Err(CliError::Waited(format!(
                    "lease `{id}` ended: no agent was there for it {in_time}{why}"
                )));
            }
            (LeasePhase::Ended, _) => {
                let text = format!("lease `{}` ended: {}", lease.id, clean(&lease.detail));
                return Err(end_of(&lease.detail, text));
            }
            (LeasePhase::Ready, None) | (LeasePhase::Waiting | LeasePhase::Granted, _) => {}
        }
        let answer = tokio::select! {
            biased;
            code = stop.as_mut() => return Ok(Waited::Stopped(code)),
            answer = client.get::<LeaseOut>(&path, CALL_LIMIT) => answer,
        };
        match answer {
            Ok(seen) if seen.state == LeasePhase::Ready && seen.ssh.is_none() => {
                // Its agent goes at this moment: the lease's end is reported next.
                if tries <= 1 {
                    let id = &lease.id;
                    let fault = format!("lease `{id}` is ready and drover does not say where");
                    return Err(CliError::Failed(fault));
                }
                tries -= 1;
                lease = seen;
                tokio::time::sleep(time_limits.pause).await;
            }
            Ok(seen) => {
                lease = seen;
                (tries, unanswered) = (time_limits.tries, false);
            }
            Err(fault) if tries > 1 && fault.is_passing() => {
                // The lease outlives a restart of the service.
                if !unanswered {
                    let place = client.place();
                    let text = format!("drover on `{place}` does not answer, trying again");
                    term.progress(leasing.json, &text, json!({ "lease": lease.id }))?;
                }
                unanswered = true;
                tries -= 1;
                tokio::select! {
                    code = stop.as_mut() => return Ok(Waited::Stopped(code)),
                    () = tokio::time::sleep(time_limits.pause) => {}
                }
            }
            Err(fault) => return Err(fault.into()),
        }
    }
}

/// Reports the lease's state on the terminal whenever it changed.
fn say(
    lease: &LeaseOut,
    said: &mut String,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let mut line = format!("lease {}: {}", lease.id, lease.state);
    if let Some(agent) = &lease.agent {
        line.push_str(&format!(" on agent {agent}"));
    }
    if !lease.detail.is_empty() {
        line.push_str(&format!(" ({})", clean(&lease.detail)));
    }
    if *said != line {
        let facts = json!({ "lease": lease.id, "state": lease.state, "agent": lease.agent });
        term.moved(json, &line, facts)?;
        *said = line;
    }
    Ok(())
}

/// How a command went.
enum Ran {
    /// To its end: its exit status, or why there is none.
    Ended(Result<u32, Cut>),
    /// Somebody wanted an end, with this exit code.
    Stopped(u8),
}

async fn run(
    mut running: BoxFuture<'static, Result<u32, Cut>>,
    mut pieces: mpsc::Receiver<Output>,
    mut stop: Pin<&mut impl Future<Output = u8>>,
    term: &mut Term<'_>,
    open: &mut bool,
) -> Result<Ran, CliError> {
    let mut ended = None;
    loop {
        tokio::select! {
            biased;
            code = stop.as_mut() => return Ok(Ran::Stopped(code)),
            piece = pieces.recv() => match (piece, ended.take()) {
                (Some(piece), before) => {
                    ended = before;
                    print(piece, term, open)?;
                }
                (None, Some(result)) => return Ok(Ran::Ended(result)),
                // The output ended before the command did: only its status is left to come.
                (None, None) => {
                    return tokio::select! {
                        code = stop.as_mut() => Ok(Ran::Stopped(code)),
                        result = &mut running => Ok(Ran::Ended(result)),
                    };
                }
            },
            result = &mut running, if ended.is_none() => {
                ended = Some(result);
                // What is still under way is printed; nothing new can come.
                pieces.close();
            }
        }
    }
}

/// Prints a piece of the command's output, and notes whether that ends a line of standard error.
fn print(piece: Output, term: &mut Term<'_>, open: &mut bool) -> Result<(), CliError> {
    match piece {
        Output::Stdout(bytes) => {
            term.out.write_all(&bytes)?;
            term.out.flush()?;
        }
        Output::Stderr(bytes) => {
            term.err.write_all(&bytes)?;
            term.err.flush()?;
            *open = bytes.last().map_or(*open, |last| *last != b'\n');
        }
    }
    Ok(())
}

fn show(
    leasing: &Leasing<'_>,
    options: &LeaseOptions,
    lease: &LeaseOut,
    ssh: &SshOut,
    identity: &Identity,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let command = kept::keep(&leasing.key_dir, leasing.client, lease, ssh, identity)?;
    if leasing.json {
        let mut value = serde_json::to_value(lease).unwrap_or_default();
        value["sshCommand"] = command.into();
        term.structured(&value)?;
        return Ok(());
    }
    let id = &lease.id;
    if term.screen.output == Screened::Name {
        return Ok(writeln!(term.out, "{id}")?);
    }
    let drover = leasing.client.program();
    let until = lease.expires_at.as_deref().unwrap_or("it is released");
    writeln!(term.out, "lease {id} lasts until {until}")?;
    // drover keeps no key of the user's own, and cannot log in with it later.
    if identity.file.is_none() {
        writeln!(term.out, "shell:   {drover} ssh {id}")?;
        writeln!(term.out, "copy:    {drover} cp FILE {id}:/tmp/")?;
    }
    writeln!(term.out, "log in:  {command}")?;
    if options.user_data.is_some() {
        let (data, env) = (guest::data_path(&lease.id), guest::env_path(&lease.id));
        writeln!(term.out, "there:   {data}; as variables: . {env}")?;
    }
    writeln!(term.out, "renew:   {drover} lease renew {id} --ttl 1h")?;
    writeln!(term.out, "release: {drover} release {id}")?;
    Ok(())
}

/// Releases, and says so when that fails: the lease then ends by its time. Gives whether it is released.
async fn release(leasing: &Leasing<'_>, lease: &LeaseOut, term: &mut Term<'_>) -> bool {
    kept::forget(&leasing.key_dir, &lease.id);
    let mut tries = leasing.time_limits.tries;
    loop {
        let path = format!("/v1/leases/{}", lease.id);
        match leasing.client.report(reqwest::Method::DELETE, &path).await {
            Ok(()) => return true,
            Err(fault) if tries > 1 && fault.is_passing() => {
                tries -= 1;
                tokio::time::sleep(leasing.time_limits.pause).await;
            }
            Err(fault) => {
                let (id, why) = (&lease.id, chain(&fault));
                let text = format!(
                    "lease {id} could not be released and ends by its time: {why}; try `drover \
                     release {id}`"
                );
                // The command's own result stands whether or not this can be printed.
                let _ = term.progress(leasing.json, &text, json!({ "lease": id }));
                return false;
            }
        }
    }
}
