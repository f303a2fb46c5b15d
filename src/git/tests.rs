//! Real programs against real repositories: `git`, `git http-backend` and `sshd`, on this machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod checks;
mod endings;
mod failures;
mod hostile;
mod missing;
mod over_file;
mod over_http;
mod over_ssh;
mod over_tls;
mod silent_server;
mod source;

use std::path::{Path, PathBuf};

use source::Source;

use super::{CommitId, Git, GitError, GitFile, Limits, Login, Remote};

/// The scratch folder of a test, with the [`Git`] that uses it.
struct Bench {
    folder: tempfile::TempDir,
    git: Git,
}

impl Bench {
    fn new() -> Self {
        Self::limited(Limits::default())
    }

    fn limited(limits: Limits) -> Self {
        // A name with characters that shells and ssh would expand.
        let folder = tempfile::Builder::new().prefix("a b%h$HOME'\"").tempdir().unwrap();
        let git = Git::at(folder.path().join("scratch"), limits);
        Self { folder, git }
    }

    fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }
}

fn remote(url: &str) -> Remote {
    Remote {
        url: url.parse().unwrap(),
        branch: "main".to_owned(),
        login: Login::None,
        ca_file: None,
        known_hosts: None,
    }
}

/// All bytes below a folder.
fn size(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let about = entry.metadata().unwrap();
            if about.is_dir() { size(&entry.path()) } else { about.len() }
        })
        .sum()
}

fn file(path: &str, text: &str) -> GitFile {
    GitFile { path: path.to_owned(), bytes: text.as_bytes().to_owned() }
}

/// What people read of a failure, with the place of the repository left out.
fn shown(error: &GitError, source: &Source) -> String {
    error.to_string().replace(&source.url(), "URL")
}

async fn read(source: &Source, id: &CommitId, path: &str) -> Result<Vec<GitFile>, GitError> {
    Bench::new().git.read(&remote(&source.url()), id, path).await
}
