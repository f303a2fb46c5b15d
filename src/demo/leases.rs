//! The jobs' commands: `drover lease` as a child process, what it prints, and how it ends.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc;

use super::fault::DemoError;
use super::jobs::Job;
use super::service::DemoService;
use super::state::JobEnd;

/// The most that is read of a job's output, in bytes.
const OUTPUT_MAX: u64 = 1 << 20;

/// What a job did; the number is its place in the batch.
#[derive(Debug)]
pub enum News {
    Printed(usize, String),
    Ended(usize, JobEnd),
    /// The release of the lease of a job whose command was killed, and whether the service took it.
    Released(String, bool),
}

/// Starts a job, and sends what it does.
///
/// # Errors
/// When the command cannot be started.
pub fn start(
    service: &DemoService,
    index: usize,
    job: &Job,
    news: mpsc::Sender<News>,
) -> Result<(), DemoError> {
    let mut command = service.command();
    command.args(["lease", "--labels", "linux", "--ttl", "5m", "--owner", &job.name, "--"]);
    command.arg(job.work.command).stdout(Stdio::piped()).stderr(Stdio::piped());
    // By this thread: a process that dies with its parent dies with the thread that started it.
    let child = command.spawn().map_err(DemoError::system)?;
    tokio::spawn(async move {
        tokio::select! {
            end = watch(index, child, &news) => {
                // The demo may have ended.
                let _ = news.send(News::Ended(index, end)).await;
            }
            // Drops the child, which kills it.
            () = news.closed() => {}
        }
    });
    Ok(())
}

async fn watch(index: usize, mut child: Child, news: &mpsc::Sender<News>) -> JobEnd {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let printed = async {
        let Some(stdout) = stdout else { return };
        let mut lines = BufReader::new(stdout.take(OUTPUT_MAX)).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // The demo may have ended.
            let _ = news.send(News::Printed(index, line)).await;
        }
    };
    let ((), error, status) = tokio::join!(printed, last_line(stderr), child.wait());
    JobEnd { exit: status.ok().and_then(|status| status.code()), error }
}

async fn last_line(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut last = String::new();
    let Some(stream) = stream else { return last };
    let mut lines = BufReader::new(stream.take(OUTPUT_MAX)).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.trim().is_empty() {
            last = line;
        }
    }
    last
}

/// Releases the lease of a job whose command was killed, and sends whether the service took that.
pub fn release(service: &DemoService, job: String, lease: &str, news: mpsc::Sender<News>) {
    let mut command = service.command();
    command.args(["release", lease]).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn();
    tokio::spawn(async move {
        let taken = match child {
            Ok(mut child) => child.wait().await.is_ok_and(|status| status.success()),
            Err(_) => false,
        };
        // The demo may have ended.
        let _ = news.send(News::Released(job, taken)).await;
    });
}
