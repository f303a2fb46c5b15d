//! One run of a program: in a process group of its own, with bounded output and bounded files.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

/// What is kept of a child's complaints.
const STDERR_BYTES: usize = 16 << 10;

/// Units of `ulimit -f`.
const BLOCK_BYTES: u64 = 512;

/// Limits the files of the program that follows. A lower limit that is there already stays.
const LIMITED: &str = "ulimit -f \"$1\" 2>/dev/null; shift; exec \"$@\"";

/// What to run.
pub(super) struct Call {
    /// The arguments, which other users of the machine can read.
    pub(super) args: Vec<String>,
    pub(super) variables: Vec<(OsString, OsString)>,
    /// The text for its standard input, which must fit a pipe's buffer or be read at once.
    pub(super) input: String,
    /// How much of the output is kept; the rest is read and dropped.
    pub(super) keep_bytes: usize,
    /// The largest file that it may write.
    pub(super) file_bytes: u64,
}

/// How a child ended.
pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// Whether more output came than was kept.
    pub(super) cut: bool,
    pub(super) stderr: String,
}

/// Runs git to its end. Dropped earlier, it kills git and all programs that git started.
pub(super) async fn run(call: Call, folder: &Path) -> io::Result<Output> {
    let mut child = Command::new("sh")
        .args(["-c", LIMITED, "sh"])
        .arg(call.file_bytes.div_ceil(BLOCK_BYTES).to_string())
        .arg("git")
        .args(&call.args)
        .env_clear()
        .envs(call.variables)
        .current_dir(folder)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(if call.input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let mut group = Group { id: group_of(&child), child };
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A child that ends early says why by its status.
            let _closed = stdin.write_all(call.input.as_bytes()).await;
        }
        Ok(())
    };
    let ((), (stdout, cut), (stderr, _)) = tokio::try_join!(
        feed,
        read_bounded(stdout, call.keep_bytes),
        read_bounded(stderr, STDERR_BYTES)
    )?;
    let status = group.child.wait().await?;
    group.id = None;
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ok(Output { status, stdout, cut, stderr })
}

/// A child that leads a process group. Dropped before its end was awaited, it takes the group with
/// it; its number cannot belong to another process before that.
struct Group {
    id: Option<Pid>,
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && let Err(error) = kill_process_group(id, Signal::KILL)
        {
            tracing::debug!(%error, "the programs of git could not be killed");
        }
    }
}

fn group_of(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

async fn read_bounded(
    source: Option<impl AsyncRead + Unpin>,
    keep: usize,
) -> io::Result<(Vec<u8>, bool)> {
    let (mut kept, mut cut) = (Vec::new(), false);
    let Some(mut source) = source else {
        return Ok((kept, cut));
    };
    let mut part = vec![0; 16 << 10];
    loop {
        let count = source.read(&mut part).await?;
        if count == 0 {
            return Ok((kept, cut));
        }
        let room = keep.saturating_sub(kept.len()).min(count);
        kept.extend_from_slice(part.get(..room).unwrap_or_default());
        cut |= room < count;
    }
}
