//! QEMU's control socket (QMP): one command a connection, and jobs to their end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// QEMU answers nothing else while it saves memory.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// How often a job is looked at, and how long it may take.
const JOB_LOOK_INTERVAL: Duration = Duration::from_millis(50);
const JOB_TIMEOUT: Duration = Duration::from_secs(600);

/// Why QEMU did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum QmpError {
    #[error("VM {vmid} qmp command '{command}' failed - {desc}")]
    Refused { vmid: u32, command: String, desc: String },
    #[error("VM {vmid} qmp command '{command}' failed - got timeout")]
    Timeout { vmid: u32, command: String },
    #[error("VM {vmid} qmp command '{command}' failed - {source}")]
    Closed {
        vmid: u32,
        command: String,
        #[source]
        source: std::io::Error,
    },
}

/// The control socket of one QEMU. It serves one connection at a time.
pub(super) struct Qmp {
    vmid: u32,
    socket: PathBuf,
    turn: Mutex<()>,
}

impl Qmp {
    pub(super) fn new(vmid: u32, socket: &Path) -> Self {
        Self { vmid, socket: socket.to_owned(), turn: Mutex::new(()) }
    }

    /// Runs a command and gives what it returns.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub(super) async fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        let (vmid, name) = (self.vmid, || command.to_owned());
        let answer = timeout(ANSWER_TIMEOUT, async {
            let _turn = self.turn.lock().await;
            converse(&self.socket, command, &arguments).await
        });
        match answer.await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(desc))) => Err(QmpError::Refused { vmid, command: name(), desc }),
            Ok(Err(source)) => Err(QmpError::Closed { vmid, command: name(), source }),
            Err(_) => Err(QmpError::Timeout { vmid, command: name() }),
        }
    }

    /// Runs a command of the human monitor, whose answer is text; empty after most that succeed.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub(super) async fn monitor(&self, line: &str) -> Result<String, QmpError> {
        let said = self.execute("human-monitor-command", json!({ "command-line": line })).await?;
        Ok(said.as_str().unwrap_or_default().trim().to_owned())
    }

    /// Starts a job and waits for its end.
    ///
    /// # Errors
    /// See [`QmpError`].
    pub(super) async fn run_job(
        &self,
        command: &str,
        mut arguments: Value,
    ) -> Result<(), QmpError> {
        let (vmid, id) = (self.vmid, format!("{command}-job"));
        arguments["job-id"] = id.clone().into();
        self.execute(command, arguments).await?;
        let end = timeout(JOB_TIMEOUT, async {
            loop {
                let jobs = self.execute("query-jobs", json!({})).await?;
                let job = jobs.as_array().into_iter().flatten().find(|job| job["id"] == *id);
                // A job that has succeeded may leave the list by itself.
                let Some(job) = job else { return Ok(None) };
                if job["status"] == "concluded" {
                    self.execute("job-dismiss", json!({ "id": id })).await?;
                    return Ok(job["error"].as_str().map(str::to_owned));
                }
                tokio::time::sleep(JOB_LOOK_INTERVAL).await;
            }
        });
        match end.await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(desc))) => Err(QmpError::Refused { vmid, command: command.into(), desc }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(QmpError::Timeout { vmid, command: command.into() }),
        }
    }
}

/// One command: what it returns, or why QEMU refused it.
async fn converse(
    socket: &Path,
    command: &str,
    arguments: &Value,
) -> std::io::Result<Result<Value, String>> {
    let stream = UnixStream::connect(socket).await?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut answer = Ok(Value::Null);
    let commands = [
        json!({ "execute": "qmp_capabilities" }),
        json!({ "execute": command, "arguments": arguments }),
    ];
    for command in commands {
        writer.write_all(format!("{command}\n").as_bytes()).await?;
        answer = loop {
            let mut said = read_object(&mut reader).await?;
            // Between answers come the greeting and events.
            if let Some(value) = said.get_mut("return") {
                break Ok(value.take());
            }
            if let Some(error) = said.get("error") {
                break Err(error["desc"].as_str().unwrap_or_default().to_owned());
            }
        };
    }
    Ok(answer)
}

/// The next line of JSON; `null` for a line that is none.
pub(super) async fn read_object(
    reader: &mut BufReader<tokio::net::unix::OwnedReadHalf>,
) -> std::io::Result<Value> {
    read_line(reader, LINE_BYTES_MAX).await.map(|line| line_of_json(&line))
}

pub(super) fn line_of_json(line: &[u8]) -> Value {
    serde_json::from_slice(line).unwrap_or(Value::Null)
}

/// The next line, of at most so many bytes.
///
/// # Errors
/// The other side has closed the connection, or the line is too long.
pub(super) async fn read_line(
    reader: &mut BufReader<tokio::net::unix::OwnedReadHalf>,
    bytes_max: u64,
) -> std::io::Result<Vec<u8>> {
    let mut line = Vec::new();
    reader.take(bytes_max).read_until(b'\n', &mut line).await?;
    match line.last() {
        Some(b'\n') => Ok(line),
        Some(_) | None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
