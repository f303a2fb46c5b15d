//! What failed calls mean that no program of this machine can be made to end with.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use super::remote;
use crate::child::Output;
use crate::failure::{Failure, classify};

/// The failure, as people read it, of a git that said this and ended with a status as `wait` has it.
fn said(stderr: &str, status: i32) -> String {
    let output = Output {
        status: ExitStatus::from_raw(status),
        stdout: Vec::new(),
        cut: false,
        stderr: stderr.to_owned(),
    };
    match classify(&remote("/config.git"), "fetch the branch", &output) {
        Failure::Other(error) => error.to_string(),
        Failure::NoRef => "no ref".to_owned(),
        Failure::NotGiven => "not given".to_owned(),
        Failure::OtherHash => "other hash".to_owned(),
        Failure::DiskLimit => "disk limit".to_owned(),
    }
}

const FAILED: i32 = 128 << 8;

// Invariant: each known way to fail is named, and others show what git says.

#[test]
fn a_git_that_is_too_old_is_named() {
    let text = "fatal: 'origin' does not appear to be a git repository\n\
                fatal: Could not read from remote repository.\n";
    let missing = "the program `git 2.32 or newer` is not installed, or not in PATH";
    assert_eq!(said(text, FAILED), missing);
}

#[test]
fn a_file_that_grew_to_the_limit_is_known_by_signal_status_and_words() {
    assert_eq!(said("", 25), "disk limit");
    assert_eq!(said("", (128 + 25) << 8), "disk limit");
    assert_eq!(said("error: index-pack died of signal 25\n", FAILED), "disk limit");
    assert_eq!(said("fatal: write error: File too large\n", FAILED), "disk limit");
}

#[test]
fn a_disk_that_is_full_is_shown_in_gits_words() {
    let text = "fatal: write error: No space left on device\nfatal: fetch-pack: invalid index-pack output\n";
    let shown = "git could not fetch the branch: exit status: 128: fatal: write error: No space left \
                 on device fatal: fetch-pack: invalid index-pack output";
    assert_eq!(said(text, FAILED), shown);
}

#[test]
fn words_of_git_are_bounded() {
    let text = "x".repeat(1000);
    let begin = "git could not fetch the branch: signal: 9 (SIGKILL): ";
    assert_eq!(said(&text, 9), format!("{begin}{}…", "x".repeat(499)));
}

#[test]
fn the_line_that_says_most_is_shown() {
    let text = "ssh: Could not resolve hostname none.example: Name or service not known\n\
                fatal: Could not read from remote repository.\n";
    let shown = "the repository /config.git cannot be read: \
                 ssh: Could not resolve hostname none.example: Name or service not known";
    assert_eq!(said(text, FAILED), shown);
    let text = "remote: Repository not found.\nfatal: repository 'https://a/b/' not found\n";
    let shown = "the repository /config.git cannot be read: Repository not found.";
    assert_eq!(said(text, FAILED), shown);
}
