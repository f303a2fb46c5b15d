//! The guest agent of a process guest: its commands and files are the guest's own.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::task::AbortHandle;

use super::machine::{Machine, signal_group};
use super::{gate, windows};
use crate::guest::{AgentCall, AgentError};
use crate::guests::answers::{self, Exited, OUTPUT_BYTES_MAX};
use drover_ssh::join;

/// Processes whose end nobody asked for yet.
const PROCESSES_MAX: usize = 16;
/// The agent answers within this time or not at all, as Proxmox asks it to.
const ANSWER_TIME: Duration = Duration::from_secs(5);

const EXISTS: &str = "command -v -- \"$1\" >/dev/null 2>&1";

const READ: &str = "[ -e \"$1\" ] || { echo No such file or directory >&2; exit 2; }; \
    [ -r \"$1\" ] || { echo Permission denied >&2; exit 2; }; exec head -c \"$2\" -- \"$1\"";

const WRITE: &str = "d=$(dirname -- \"$1\"); \
    [ -d \"$d\" ] || { echo No such file or directory >&2; exit 2; }; \
    [ ! -d \"$1\" ] || { echo Is a directory >&2; exit 2; }; \
    cat > \"$1\" || { echo Permission denied >&2; exit 2; }";

/// The processes that `guest-exec` started.
#[derive(Default)]
pub(super) struct Processes(Mutex<Table>);

struct Table {
    next_pid: i64,
    by_pid: BTreeMap<i64, Process>,
}

impl Default for Table {
    fn default() -> Self {
        Self { next_pid: 130, by_pid: BTreeMap::new() }
    }
}

struct Process {
    exited: Option<Exited>,
    task: Option<AbortHandle>,
}

impl Processes {
    /// Forgets all: the machine ends.
    pub(super) fn forget(&self) {
        let table = std::mem::take(&mut self.lock().by_pid);
        for task in table.into_values().filter_map(|process| process.task) {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }
}

/// Answers one command of a guest that is up.
pub(super) async fn answer(machine: Arc<Machine>, call: AgentCall) -> Result<Value, AgentError> {
    if machine.listens().is_none() {
        return Err(AgentError::NotRunning);
    }
    let answer = match call {
        AgentCall::Ping => json!({}),
        AgentCall::Info => answers::info(),
        AgentCall::NetworkInterfaces => {
            answers::interfaces(machine.inside.mac.as_deref(), Some(machine.address()))
        }
        AgentCall::Get(name) => {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let seconds = since.map_or(0, |since| since.as_secs());
            answers::get(&name, &machine.inside.hostname, seconds)?
        }
        AgentCall::Exec { command, input } => exec(machine, command, input).await?,
        AgentCall::ExecStatus { pid } => exec_status(&machine, pid)?,
        AgentCall::FileRead { path } => file_read(&machine, &path).await?,
        AgentCall::FileWrite { path, content } => {
            file_write(&machine, &path, content).await?;
            Value::Null
        }
    };
    Ok(answer)
}

async fn exec(
    machine: Arc<Machine>,
    command: Vec<String>,
    input: Option<Vec<u8>>,
) -> Result<Value, AgentError> {
    let Some(program) = command.first() else {
        return Err(answers::no_such_program(""));
    };
    if !machine.may_run(&join(&command)) {
        return Err(answers::refused("GenericError", gate::REFUSAL.trim()));
    }
    if !script(&machine, EXISTS, &[program], None).await?.0.success() {
        return Err(answers::no_such_program(program));
    }
    if machine.processes.lock().by_pid.len() >= PROCESSES_MAX {
        return Err(answers::refused("GenericError", "too many processes were never asked about"));
    }
    let child = start(&machine, &command).await?;
    let pid = {
        let mut table = machine.processes.lock();
        let pid = table.next_pid;
        table.next_pid += 2;
        table.by_pid.insert(pid, Process { exited: None, task: None });
        pid
    };
    let watched = Arc::downgrade(&machine);
    let task = tokio::spawn(async move {
        let exited = collect(child, input, OUTPUT_BYTES_MAX).await;
        if let Some(machine) = watched.upgrade()
            && let Some(process) = machine.processes.lock().by_pid.get_mut(&pid)
        {
            process.exited = Some(exited);
        }
    });
    if let Some(process) = machine.processes.lock().by_pid.get_mut(&pid) {
        process.task = Some(task.abort_handle());
    }
    Ok(json!({"pid": pid}))
}

/// Tells an end once, and then knows the process no more.
fn exec_status(machine: &Machine, pid: i64) -> Result<Value, AgentError> {
    let mut table = machine.processes.lock();
    let process = table.by_pid.get(&pid).ok_or_else(answers::unknown_pid)?;
    let answer = answers::exec_status(process.exited.as_ref());
    if process.exited.is_some() {
        table.by_pid.remove(&pid);
    }
    Ok(answer)
}

async fn file_read(machine: &Machine, path: &str) -> Result<Value, AgentError> {
    let refused = |reason: &str| answers::can_not_open(path, "r", reason);
    let place = place(machine, path).ok_or_else(|| refused("Permission denied"))?;
    let limit = (OUTPUT_BYTES_MAX + 1).to_string();
    let (status, exited) = script(machine, READ, &[&place, &limit], None).await?;
    if !status.success() {
        return Err(refused(String::from_utf8_lossy(&exited.stderr).trim()));
    }
    Ok(answers::file(&exited.stdout, exited.stdout_truncated))
}

async fn file_write(machine: &Machine, path: &str, content: Vec<u8>) -> Result<(), AgentError> {
    let refused = |reason: &str| answers::can_not_open(path, "wb", reason);
    let place = place(machine, path).ok_or_else(|| refused("Permission denied"))?;
    let (status, exited) = script(machine, WRITE, &[&place], Some(content)).await?;
    if !status.success() {
        // The shell's own complaint comes first, the plain reason last.
        let said = String::from_utf8_lossy(&exited.stderr);
        return Err(refused(said.trim().lines().last().unwrap_or_default()));
    }
    Ok(())
}

/// The path as a command in the guest sees it.
fn place(machine: &Machine, path: &str) -> Option<String> {
    let path = match machine.inside.windows() {
        Some(_) => format!("/{}", windows::on_disk(path, &machine.inside.home)?),
        None => path.to_owned(),
    };
    if machine.ground.sandbox.is_isolated() {
        return Some(path);
    }
    machine.disk.locate(&path).map(|place| place.display().to_string())
}

/// Runs a script of the agent's own to its end.
async fn script(
    machine: &Machine,
    text: &str,
    arguments: &[&str],
    input: Option<Vec<u8>>,
) -> Result<(ExitStatus, Exited), AgentError> {
    let words: Vec<String> = ["/bin/sh", "-c", text, "sh"]
        .iter()
        .chain(arguments)
        .map(|word| (*word).to_owned())
        .collect();
    let child = start(machine, &words).await?;
    let group = child.id();
    let ended = tokio::time::timeout(ANSWER_TIME, collect(child, input, OUTPUT_BYTES_MAX)).await;
    let Ok(exited) = ended else {
        if let Some(group) = group {
            signal_group(group, Signal::KILL);
        }
        return Err(AgentError::Timeout);
    };
    let status = exited.code.map_or(1 << 8, |code| code << 8);
    Ok((ExitStatus::from_raw(status), exited))
}

async fn start(machine: &Machine, words: &[String]) -> Result<Child, AgentError> {
    let environment = machine.environment(&BTreeMap::new());
    let child = machine
        .start(words, &environment)
        .await
        .map_err(|error| answers::refused("GenericError", &error.to_string()))?;
    Ok(child)
}

/// Feeds a process, keeps the first bytes of its output, and waits for its end.
async fn collect(mut child: Child, input: Option<Vec<u8>>, limit: usize) -> Exited {
    let stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let feed = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A process need not read what it is given.
            let _closed = stdin.write_all(&input).await;
        }
    };
    let streams = futures_util::future::join3(feed, keep(stdout, limit), keep(stderr, limit));
    let ((), (stdout, stdout_truncated), (stderr, stderr_truncated)) = streams.await;
    let status = child.wait().await.ok();
    Exited {
        code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        stdout,
        stderr,
        stdout_truncated,
        stderr_truncated,
    }
}

async fn keep(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> (Vec<u8>, bool) {
    let mut kept = Vec::new();
    let Some(mut stream) = stream else { return (kept, false) };
    let room = u64::try_from(limit).unwrap_or(u64::MAX);
    let _cut = (&mut stream).take(room).read_to_end(&mut kept).await;
    let surplus = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap_or(0);
    (kept, surplus > 0)
}
