//! What a failed call of git means, by its status and by what git and ssh say.
//!
//! git has no codes for its failures, so its sentences are compared; it speaks English, since
//! `LC_ALL=C` is set. A sentence that is not known becomes [`GitError::Program`], and a repository
//! that fails so is fetched from scratch once.

use std::os::unix::process::ExitStatusExt as _;

use rustix::process::Signal;

use super::child::Output;
use super::error::GitError;
use super::remote::Remote;
use super::text::clean;

const LONGEST_WHY_CHARS: usize = 300;
const LONGEST_STDERR_CHARS: usize = 500;

/// The status of a shell that cannot find or start a program.
const NOT_STARTED: [i32; 2] = [126, 127];

/// The oldest git that reads settings from its environment.
const OLDEST: &str = "git 2.32 or newer";

/// What an older one says, which does not get to see the settings of the remote.
const SETTINGS_UNKNOWN: &str = "'origin' does not appear to be a git repository";

/// What a failed call means.
pub(super) enum Failure {
    /// The remote has no such ref.
    NoRef,
    /// The remote does not have the object, or does not hand it out.
    NotGiven,
    /// The remote has the other kind of ids.
    OtherHash,
    /// A file grew to the limit of the disk.
    DiskLimit,
    /// Anything else, in words.
    Other(GitError),
}

const NOT_GIVEN: [&str; 3] =
    ["not our ref", "Server does not allow request for unadvertised", "no such remote ref"];

const REFUSED: [&str; 9] = [
    "Authentication failed",
    "could not read Username",
    "could not read Password",
    "Permission denied (",
    "Too many authentication failures",
    "returned error: 401",
    "returned error: 403",
    "no mutual signature supported",
    "not authorized",
];

const CERTIFICATE: [&str; 5] =
    ["certificate", "SSL CA cert", "SSL: no alternative", "SSL peer", "CAfile"];

const REPOSITORY: [&str; 25] = [
    "dumb http transport",
    "unable to access",
    "does not appear to be a git repository",
    "epository not found",
    "' not found",
    "is this a git repository?",
    "ssh: connect to host",
    "ssh: Could not resolve",
    "Connection closed by",
    "Connection reset by",
    "kex_exchange_identification",
    "protocol error",
    "unexpected disconnect",
    "the remote end hung up",
    "early EOF",
    "RPC failed",
    "HTTP request failed",
    "unable to update url base from redirection",
    "transport '",
    "detected dubious ownership",
    "remote error",
    "access denied or repository not exported",
    "expected flush after",
    "invalid server response",
    // Follows what ssh says itself.
    "Could not read from remote repository",
];

/// Finds out what a failed call means.
pub(super) fn classify(remote: &Remote, doing: &'static str, output: &Output) -> Failure {
    let stderr = remote.login.mask(&output.stderr);
    if !is_started(output) {
        return Failure::Other(GitError::NoProgram { program: "git" });
    }
    if stderr.contains(SETTINGS_UNKNOWN) {
        return Failure::Other(GitError::NoProgram { program: OLDEST });
    }
    let says = |texts: &[&str]| texts.iter().any(|text| stderr.contains(text));
    let xfsz = Signal::XFSZ.as_raw();
    if output.status.signal() == Some(xfsz)
        || output.status.code() == Some(128 + xfsz)
        || says(&[&format!("died of signal {xfsz}"), "File too large"])
    {
        return Failure::DiskLimit;
    }
    if says(&["couldn't find remote ref"]) {
        return Failure::NoRef;
    }
    if says(&NOT_GIVEN) {
        return Failure::NotGiven;
    }
    if says(&["mismatched algorithms"]) {
        return Failure::OtherHash;
    }
    let url = remote.url.to_string();
    let why = |texts: &[&str]| clean(line_of(&stderr, texts), LONGEST_WHY_CHARS);
    Failure::Other(if says(&["Host key verification failed"]) {
        GitError::HostKey { url, why: host_key(&stderr) }
    } else if says(&["incorrect passphrase", "error in libcrypto", "invalid format"])
        && says(&["Load key"])
    {
        GitError::Refused { url, why: "ssh cannot read the SSH key".to_owned() }
    } else if says(&["could not read Username"]) {
        GitError::Refused { url, why: "it wants a login, and none fits it".to_owned() }
    } else if says(&REFUSED) {
        GitError::Refused { url, why: why(&REFUSED) }
    } else if says(&["unable to access"]) && says(&CERTIFICATE) {
        GitError::Certificate { url, why: why(&CERTIFICATE) }
    } else if says(&["ssh: not found", "ssh: command not found", "cannot run ssh"]) {
        GitError::NoProgram { program: "ssh" }
    } else if says(&REPOSITORY) {
        GitError::Repository { url, why: why(&REPOSITORY) }
    } else {
        GitError::Program {
            doing,
            status: output.status.to_string(),
            stderr: clean(&stderr, LONGEST_STDERR_CHARS),
        }
    })
}

/// The failure of a call that does not speak to the remote, and so has no secrets to show.
pub(super) fn local(doing: &'static str, output: &Output) -> GitError {
    if !is_started(output) {
        return GitError::NoProgram { program: "git" };
    }
    GitError::Program {
        doing,
        status: output.status.to_string(),
        stderr: clean(&output.stderr, LONGEST_STDERR_CHARS),
    }
}

fn is_started(output: &Output) -> bool {
    !output.status.code().is_some_and(|code| NOT_STARTED.contains(&code))
}

/// The first line with one of the texts, the first text first, without git's own beginning.
fn line_of<'a>(stderr: &'a str, texts: &[&str]) -> &'a str {
    let line = texts
        .iter()
        .find_map(|text| stderr.lines().find(|line| line.contains(text)))
        .unwrap_or_default();
    ["fatal: ", "error: ", "remote: "]
        .iter()
        .fold(line, |line, begin| line.strip_prefix(begin).unwrap_or(line))
}

fn host_key(stderr: &str) -> String {
    if !stderr.contains("IDENTIFICATION HAS CHANGED") {
        return "no key of this host is among the known hosts".to_owned();
    }
    let shown = stderr
        .lines()
        .map(|line| line.trim().trim_end_matches('.'))
        .find(|line| line.starts_with("SHA256:"));
    let shown = shown.map(|line| format!(" ({})", clean(line, 60))).unwrap_or_default();
    format!("the host presents another key than the known one{shown}")
}
