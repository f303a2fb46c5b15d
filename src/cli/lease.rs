//! `drover lease`: take a lease, run a command on it over SSH, and release it whatever happens.

use std::fs::File;
use std::future::Future;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::time::Duration;

use drover_actors::record::{EXPIRED, LOST, WAITED, is_lost};
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::client::CALL_LIMIT;
use super::identity::{self, Identity};
use super::over_ssh::{self, Cut};
use super::remote::path;
use super::tables::clean;
use super::{CallError, CliError, Client, LeaseOptions, Term};
use crate::ssh::{self, Output};
use crate::user_data::{USER_DATA_MAX, guest};
use crate::web::shapes::{AgentsOut, LeaseOut, SshOut};
use crate::web::{LONGEST_QUEUE_SECONDS, LeaseIn};

/// A command to run on a leased agent.
pub struct SshJob {
    /// The address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The login name.
    pub user: String,
    /// Host keys to accept, public key lines; empty to trust on first sight.
    pub host_keys: Vec<String>,
    /// The private key.
    pub key: ssh::PrivateKey,
    /// The command line for the user's shell.
    pub command: String,
    /// Where its output goes; a slow receiver slows the command.
    pub output: mpsc::Sender<Output>,
}

/// Runs commands over SSH.
pub trait RunOverSsh: Send + Sync {
    /// Runs one to its end; gives its exit status (255 when a signal ended it), or why not.
    /// Dropping the future ends the connection.
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, Cut>>;
}

/// The way that the command line uses.
pub(super) struct OverSsh;

impl RunOverSsh for OverSsh {
    fn run(&self, job: SshJob) -> BoxFuture<'static, Result<u32, Cut>> {
        Box::pin(over_ssh::run(job))
    }
}

/// How long a machine may take to answer whose command was cut.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// How patient the command is with a service that restarts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How often a call is repeated.
    pub tries: u32,
    /// The pause between two.
    pub pause: Duration,
    /// How long the service may hold one question for the lease's state, in seconds.
    pub wait_seconds: u64,
    /// The pause between two questions whether the lease of a running command is over.
    pub watch: Duration,
    /// How long the end of a lease is waited for whose command was cut and whose machine does not answer:
    /// the service knows of a death within that time.
    pub loss: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (watch, loss) = (Duration::from_secs(5), Duration::from_secs(30));
        Self { tries: 30, pause: Duration::from_secs(1), wait_seconds: 2, watch, loss }
    }
}

/// All that leasing needs besides the options.
pub(super) struct Leasing<'a> {
    /// The service.
    pub client: &'a Client,
    /// The way to run commands.
    pub over: &'a dyn RunOverSsh,
    /// How patient to be.
    pub patience: Patience,
    /// Where keys of leases that are kept go.
    pub key_dir: PathBuf,
    /// Whether to print JSON.
    pub json: bool,
}

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
    let lease = take(leasing, options, &identity, stop.as_mut(), term).await?;
    let waiting = wait_ready(leasing, lease.clone(), stop.as_mut(), term);
    let waited = match options.wait {
        Some(limit) => tokio::time::timeout(limit, waiting).await.unwrap_or_else(|_| {
            let (id, seconds) = (&lease.id, limit.as_secs());
            Err(CliError::Waited(format!("lease `{id}` was not ready within {seconds} s")))
        }),
        None => waiting.await,
    };
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
                several => ssh::join(several),
            };
            if options.user_data.is_some() {
                command = guest::with_env(&lease.id, &command);
            }
            let job = run(leasing.over, &ssh, &identity, command, stop.as_mut(), term);
            // A machine that died says nothing: SSH alone would wait for it a minute longer.
            let ran = tokio::select! {
                biased;
                ran = job => ran,
                how = until_over(leasing, &lease.id) => {
                    Ok(Ran::Ended(Err(Cut { text: how, sent: false })))
                }
            };
            match ran {
                Ok(Ran::Stopped(code)) => Ok(code),
                Ok(Ran::Ended(ended)) => {
                    let cut = match &ended {
                        Ok(status) => *status == KILLED,
                        Err(cut) => cut.sent,
                    };
                    let over = settled(leasing, &lease.id, cut.then_some((&ssh, &identity)));
                    let stopped = tokio::select! {
                        biased;
                        code = stop.as_mut() => Some(code),
                        () = over => None,
                    };
                    match stopped {
                        Some(code) => Ok(code),
                        None => judge(leasing.client, &lease.id, ended, stop.as_mut()).await,
                    }
                }
                Err(fault) => Err(fault),
            }
        }
        Ok(Waited::Stopped(code)) => Ok(code),
        Err(fault) => Err(fault),
    };
    release(leasing, &lease, term).await;
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
    let mut tries = leasing.patience.tries;
    loop {
        // Not given up on a signal: only its answer tells which lease to release.
        let fault = match leasing.client.post("/v1/leases", &ask, CALL_LIMIT).await {
            Ok(lease) => return Ok(lease),
            Err(fault) => fault,
        };
        // The same key answers the same lease, so asking again cannot take two. A service that
        // was never there is not waited for.
        let never_there =
            matches!(fault, CallError::NoService { .. }) && tries == leasing.patience.tries;
        if tries <= 1 || never_there || !fault.is_passing() {
            return Err(fault.into());
        }
        if tries == leasing.patience.tries {
            writeln!(term.err, "the lease is not taken yet, trying again: {fault}")?;
        }
        tries -= 1;
        tokio::select! {
            _ = stop.as_mut() => return Err(CliError::Failed(
                "stopped before drover answered; if it took the lease, that ends by its time".into(),
            )),
            () = tokio::time::sleep(leasing.patience.pause) => {}
        }
    }
}

/// Reads user data from a file, or from the standard input for `-`.
fn read_user_data(path: &Path) -> Result<Vec<u8>, CliError> {
    let most = USER_DATA_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
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

enum Waited {
    Ready(Box<LeaseOut>, SshOut),
    Stopped(u8),
}

async fn wait_ready(
    leasing: &Leasing<'_>,
    mut lease: LeaseOut,
    mut stop: Pin<&mut impl Future<Output = u8>>,
    term: &mut Term<'_>,
) -> Result<Waited, CliError> {
    let (client, patience) = (leasing.client, leasing.patience);
    let path = format!("/v1/leases/{}?waitSeconds={}", lease.id, patience.wait_seconds);
    let mut tries = patience.tries;
    let mut said = String::new();
    loop {
        say(&lease, &mut said, term)?;
        match (lease.state.as_str(), &lease.ssh) {
            ("ready", Some(ssh)) => {
                let ssh = ssh.clone();
                return Ok(Waited::Ready(Box::new(lease), ssh));
            }
            ("ended", _) if lease.detail == WAITED => {
                let id = &lease.id;
                return Err(CliError::Waited(format!(
                    "lease `{id}` ended: no agent was there for it in time (maxWaitSeconds)"
                )));
            }
            ("ended", _) => {
                let text = format!("lease `{}` ended: {}", lease.id, clean(&lease.detail));
                return Err(end_of(&lease.detail, text));
            }
            _ => {}
        }
        let answer = tokio::select! {
            biased;
            code = stop.as_mut() => return Ok(Waited::Stopped(code)),
            answer = client.get::<LeaseOut>(&path, CALL_LIMIT) => answer,
        };
        match answer {
            Ok(seen) if seen.state == "ready" && seen.ssh.is_none() => {
                // Its agent goes at this moment: the lease's end is told next.
                if tries <= 1 {
                    let id = &lease.id;
                    let fault = format!("lease `{id}` is ready and drover does not tell where");
                    return Err(CliError::Failed(fault));
                }
                tries -= 1;
                lease = seen;
                tokio::time::sleep(patience.pause).await;
            }
            Ok(seen) => {
                lease = seen;
                tries = patience.tries;
            }
            Err(fault) if tries > 1 && fault.is_passing() => {
                // The lease outlives a restart of the service.
                writeln!(term.err, "drover on `{}` does not answer, trying again", client.place())?;
                tries -= 1;
                tokio::select! {
                    code = stop.as_mut() => return Ok(Waited::Stopped(code)),
                    () = tokio::time::sleep(patience.pause) => {}
                }
            }
            Err(fault) => return Err(fault.into()),
        }
    }
}

/// Tells the lease's state on the terminal whenever it changed.
fn say(lease: &LeaseOut, said: &mut String, term: &mut Term<'_>) -> Result<(), CliError> {
    let mut line = format!("lease {}: {}", lease.id, lease.state);
    if let Some(agent) = &lease.agent {
        line.push_str(&format!(" on agent {agent}"));
    }
    if !lease.detail.is_empty() {
        line.push_str(&format!(" ({})", clean(&lease.detail)));
    }
    if *said != line {
        writeln!(term.err, "{line}")?;
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
    over: &dyn RunOverSsh,
    ssh: &SshOut,
    identity: &Identity,
    command: String,
    mut stop: Pin<&mut impl Future<Output = u8>>,
    term: &mut Term<'_>,
) -> Result<Ran, CliError> {
    let (output, mut pieces) = mpsc::channel(64);
    let mut running = over.run(job(ssh, identity, command, output));
    let mut ended = None;
    loop {
        tokio::select! {
            biased;
            code = stop.as_mut() => return Ok(Ran::Stopped(code)),
            piece = pieces.recv() => match (piece, ended.take()) {
                (Some(piece), before) => {
                    ended = before;
                    print(piece, term)?;
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

fn job(ssh: &SshOut, identity: &Identity, command: String, output: mpsc::Sender<Output>) -> SshJob {
    SshJob {
        host: ssh.host.clone(),
        port: ssh.port,
        user: ssh.user.clone(),
        host_keys: ssh.host_keys.clone(),
        key: identity.key.clone(),
        command,
        output,
    }
}

/// Waits, where a command was `cut` and its machine does not answer, until its lease is known to be over.
async fn settled(leasing: &Leasing<'_>, lease: &str, cut: Option<(&SshOut, &Identity)>) {
    let Some((ssh, identity)) = cut else { return };
    // One that is being shut down ends its commands before it stops answering.
    tokio::time::sleep(leasing.patience.pause).await;
    if answers(leasing, ssh, identity).await {
        return;
    }
    let path = path("leases", lease, "");
    let over = async {
        loop {
            match leasing.client.get::<LeaseOut>(&path, CALL_LIMIT).await {
                Ok(seen) if seen.state == "ended" => return,
                // A service that does not answer says nothing of the lease.
                Ok(_) | Err(_) => tokio::time::sleep(leasing.patience.pause).await,
            }
        }
    };
    // Where it is not over by then, the command's own end is told.
    let _ = tokio::time::timeout(leasing.patience.loss, over).await;
}

/// Whether the machine of a lease lets its holder in.
async fn answers(leasing: &Leasing<'_>, ssh: &SshOut, identity: &Identity) -> bool {
    let (output, mut pieces) = mpsc::channel(1);
    let unheard = async {
        while pieces.recv().await.is_some() {}
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = leasing.over.run(job(ssh, identity, "true".into(), output)) => ended.is_ok(),
        () = unheard => false,
        () = tokio::time::sleep(PROBE_LIMIT) => false,
    }
}

/// The status of a command that was killed, which one may also end with by itself.
const KILLED: u32 = 255;

/// The exit code of a command that ended; where it was cut off, what became of its lease.
async fn judge(
    client: &Client,
    lease: &str,
    ended: Result<u32, Cut>,
    mut stop: Pin<&mut impl Future<Output = u8>>,
) -> Result<u8, CliError> {
    if !matches!(ended, Ok(status) if status != KILLED) {
        let how = tokio::select! {
            biased;
            code = stop.as_mut() => return Ok(code),
            how = how_it_ended(client, lease) => how,
        };
        if let Some((detail, how)) = how {
            let text = format!("the lease ended while the command ran: {how}");
            return Err(end_of(&detail, text));
        }
    }
    match ended {
        Ok(status) => Ok(u8::try_from(status).unwrap_or(255)),
        Err(Cut { text, sent: true }) => {
            Err(CliError::Failed(format!("the command was cut off: {text}")))
        }
        Err(Cut { text, sent: false }) => {
            Err(CliError::Failed(format!("the command could not be run: {text}")))
        }
    }
}

/// Whether a lease ended together with its machine: no command runs there any more.
fn is_over(detail: &str) -> bool {
    detail == EXPIRED || is_lost(detail)
}

/// The fault of a lease that ended in this way.
fn end_of(detail: &str, text: String) -> CliError {
    if is_over(detail) { CliError::Over(text) } else { CliError::Failed(text) }
}

/// Waits until the lease has ended together with its machine; gives how.
async fn until_over(leasing: &Leasing<'_>, lease: &str) -> String {
    let path = path("leases", lease, "");
    loop {
        tokio::time::sleep(leasing.patience.watch).await;
        // A service that does not answer says nothing of the lease.
        let Ok(seen) = leasing.client.get::<LeaseOut>(&path, CALL_LIMIT).await else { continue };
        if seen.state == "ended" && is_over(&seen.detail) {
            // What the command still said is on its way.
            tokio::time::sleep(leasing.patience.watch).await;
            return format!("its lease ended: {}", clean(&seen.detail));
        }
    }
}

/// How a lease ended, as it is told and in a sentence; none while it lasts, or where that cannot be
/// told.
async fn how_it_ended(client: &Client, lease: &str) -> Option<(String, String)> {
    let seen: LeaseOut = client.get(&path("leases", lease, ""), CALL_LIMIT).await.ok()?;
    if seen.state != "ended" {
        return None;
    }
    let how = match seen.detail.as_str() {
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
    };
    Some((seen.detail, how))
}

/// Why an agent goes or went, as far as the service still knows.
async fn why_it_went(client: &Client, agent: Option<&str>) -> Option<String> {
    let agent = agent?;
    let all: AgentsOut = client.get("/v1/agents", CALL_LIMIT).await.ok()?;
    let gone = all.gone.into_iter().rev().find(|gone| gone.id == agent).map(|gone| gone.detail);
    let going = || all.agents.into_iter().find(|one| one.id == agent).map(|one| one.detail);
    gone.or_else(going).filter(|why| !why.is_empty())
}

fn print(piece: Output, term: &mut Term<'_>) -> Result<(), CliError> {
    match piece {
        Output::Stdout(bytes) => {
            term.out.write_all(&bytes)?;
            term.out.flush()?;
        }
        Output::Stderr(bytes) => {
            term.err.write_all(&bytes)?;
            term.err.flush()?;
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
    let command = identity::keep(&leasing.key_dir, lease, ssh, identity)?;
    if leasing.json {
        let mut value = serde_json::to_value(lease).unwrap_or_default();
        value["sshCommand"] = command.into();
        writeln!(term.out, "{value:#}")?;
        return Ok(());
    }
    let until = lease.expires_at.as_deref().unwrap_or("it is released");
    writeln!(term.out, "lease {} lasts until {until}", lease.id)?;
    writeln!(term.out, "log in:  {command}")?;
    if options.user_data.is_some() {
        let (data, env) = (guest::shown(&lease.id), guest::shown_env(&lease.id));
        writeln!(term.out, "there:   {data}; as variables: . {env}")?;
    }
    writeln!(term.out, "release: drover release {}", lease.id)?;
    Ok(())
}

/// Releases, and says so when that fails: the lease then ends by its time.
async fn release(leasing: &Leasing<'_>, lease: &LeaseOut, term: &mut Term<'_>) {
    identity::forget(&leasing.key_dir, &lease.id);
    let mut tries = leasing.patience.tries;
    loop {
        let path = format!("/v1/leases/{}", lease.id);
        match leasing.client.tell(reqwest::Method::DELETE, &path).await {
            Ok(()) => return,
            Err(fault) if tries > 1 && fault.is_passing() => {
                tries -= 1;
                tokio::time::sleep(leasing.patience.pause).await;
            }
            Err(fault) => {
                // The command's own result stands whether or not this can be printed.
                let _ = writeln!(
                    term.err,
                    "lease {} could not be released and ends by its time: {}; try `drover release \
                     {0}`",
                    lease.id,
                    super::chain(&fault)
                );
                return;
            }
        }
    }
}
