//! A repository that tests fetch from, made by git itself.

use std::path::PathBuf;
use std::process::Command;

use crate::CommitId;

/// A work tree, and the bare repository that its commits are pushed to.
pub(super) struct Source {
    pub(super) folder: tempfile::TempDir,
}

impl Source {
    /// A repository with the files, as one commit on `main`.
    pub(super) fn with(files: &[(&str, &str)]) -> (Self, CommitId) {
        let this = Self::empty();
        for (path, text) in files {
            this.write(path, text.as_bytes());
        }
        let id = this.commit("The first commit");
        (this, id)
    }

    /// A repository without commits, whose server supports filters.
    pub(super) fn empty() -> Self {
        Self::of_hash("sha1")
    }

    pub(super) fn of_hash(hash: &str) -> Self {
        let this = Self { folder: tempfile::tempdir().unwrap() };
        let format = format!("--object-format={hash}");
        std::fs::create_dir(this.work()).unwrap();
        this.git(&["init", "--quiet", "--initial-branch=main", &format, "."]);
        let bare = this.bare().display().to_string();
        this.git(&["init", "--quiet", "--bare", "--initial-branch=main", &format, &bare]);
        this.git(&["config", "user.name", "Ada\u{1b}[31m Example"]);
        this.git(&["config", "user.email", "ada@example.org"]);
        this.git(&["config", "core.fsync", "none"]);
        this.serve("core.fsync", "none");
        this.serve("uploadpack.allowFilter", "true");
        this
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// The repository to fetch from.
    pub(super) fn bare(&self) -> PathBuf {
        self.folder.path().join("config.git")
    }

    pub(super) fn url(&self) -> String {
        self.bare().display().to_string()
    }

    /// Sets how the repository is served.
    pub(super) fn serve(&self, key: &str, value: &str) {
        let bare = self.bare().display().to_string();
        self.git(&["--git-dir", &bare, "config", key, value]);
    }

    pub(super) fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        std::os::unix::fs::symlink(target, self.work().join(path)).unwrap();
    }

    /// Commits everything and pushes it to `main`.
    pub(super) fn commit(&self, message: &str) -> CommitId {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "-m", message]);
        self.push("main");
        self.git(&["rev-parse", "HEAD"]).trim().parse().unwrap()
    }

    pub(super) fn push(&self, branch: &str) {
        let bare = self.bare().display().to_string();
        self.git(&["push", "--quiet", "--force", &bare, &format!("HEAD:refs/heads/{branch}")]);
    }

    /// Runs git in the work tree, with settings of the repository alone.
    pub(super) fn git(&self, args: &[&str]) -> String {
        self.git_with(args, b"")
    }

    /// The same, with a text for its standard input.
    pub(super) fn git_with(&self, args: &[&str], input: &[u8]) -> String {
        let text = self.folder.path().join("input");
        std::fs::write(&text, input).unwrap();
        let output = Command::new("git")
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_DATE", "1700000000 +0000")
            .env("GIT_COMMITTER_DATE", "1700000100 +0000")
            .stdin(std::fs::File::open(text).unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}
