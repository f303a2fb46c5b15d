//! A machine to write files and run commands on: this one, or one over SSH.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use causes::chain;
use drover_ssh::{HostKeyPolicy, Keep, Limits, PrivateKey, Session, Target, connect};

/// The limit of one command: some install packages.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub enum Machine {
    Local,
    /// A machine with an open SSH session.
    Remote(Box<Session>),
}

/// A file to be written on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileToWrite {
    pub path: String,
    pub text: String,
    pub mode: u32,
}

/// Separates the parts in the output of [`Machine::ask`].
const PART_SEPARATOR: &str = "== ";

impl Machine {
    /// Logs in; also returns the host key's fingerprint where the key was not known before.
    ///
    /// # Errors
    /// Why the login failed, for people.
    pub async fn reach(
        target: &Target,
        key: &PrivateKey,
        host_key: Option<&str>,
    ) -> Result<(Self, Option<String>), String> {
        let policy = match host_key {
            Some(line) => HostKeyPolicy::Pinned(vec![line.to_owned()]),
            None => HostKeyPolicy::TrustOnFirst,
        };
        let session = connect(target, key, &policy, LOGIN_TIMEOUT).await;
        let session = session.map_err(|error| chain(&error))?;
        let seen = host_key.is_none().then(|| session.host_key().fingerprint());
        Ok((Self::Remote(Box::new(session)), seen))
    }

    /// Runs a script in a POSIX shell; returns its output where it succeeded.
    ///
    /// # Errors
    /// The output of a failed script, or why it did not run.
    pub async fn run(&self, script: &str) -> Result<String, String> {
        let (good, out, err) = match self {
            Self::Local => {
                let mut command = tokio::process::Command::new("/bin/sh");
                command.args(["-c", script]).stdin(Stdio::null()).kill_on_drop(true);
                let ended = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
                let ended = ended.map_err(|_| {
                    format!("the command did not end within {} s", COMMAND_TIMEOUT.as_secs())
                })?;
                let ended = ended.map_err(|error| format!("cannot start a shell: {error}"))?;
                (ended.status.success(), ended.stdout, ended.stderr)
            }
            Self::Remote(session) => {
                let limits = Limits {
                    time: COMMAND_TIMEOUT,
                    output_bytes_max: 256 * 1024,
                    keep: Keep::Last,
                };
                let ended = session.exec(script, None, limits, None).await;
                let ended = ended.map_err(|error| chain(&error))?;
                (ended.succeeded(), ended.stdout, ended.stderr)
            }
        };
        let out = String::from_utf8_lossy(&out).into_owned();
        if good {
            return Ok(out);
        }
        Err(format!("{out}{}", String::from_utf8_lossy(&err)).trim().to_owned())
    }

    /// Runs scripts and returns the output of each; a failed script has no output.
    ///
    /// # Errors
    /// Why no script could be run.
    pub async fn ask(&self, parts: &[(&str, String)]) -> Result<BTreeMap<String, String>, String> {
        let each = parts.iter().map(|(name, script)| {
            format!("echo '{PART_SEPARATOR}{name}'; {{ {script}; }} 2>/dev/null || :\n")
        });
        let said = self.run(&each.collect::<String>()).await?;
        let mut found = BTreeMap::new();
        for part in said.split(PART_SEPARATOR).skip(1) {
            let (name, text) = part.split_once('\n').unwrap_or((part, ""));
            found.insert(name.to_owned(), text.to_owned());
        }
        Ok(found)
    }

    /// Writes a file completely or not at all.
    ///
    /// # Errors
    /// The system's reason.
    pub async fn put(&self, file: &FileToWrite) -> Result<(), String> {
        let FileToWrite { path, text, mode } = file;
        match self {
            Self::Local => write_local(Path::new(path), text, *mode)
                .map_err(|error| format!("cannot write {path}: {error}")),
            Self::Remote(session) => {
                let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
                self.run(&format!("mkdir -p {}", drover_ssh::quote(folder))).await?;
                let sent =
                    session.upload(path, Bytes::from(text.clone()), *mode, COMMAND_TIMEOUT).await;
                sent.map_err(|error| chain(&error))
            }
        }
    }
}

fn write_local(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.drover-{}", std::process::id()));
    let done = (|| {
        let mut options = std::fs::File::options();
        let mut file = options.write(true).create_new(true).mode(mode).open(&beside)?;
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    if done.is_err() {
        // The remains are useless; a failure to remove them adds nothing to the error.
        let _ = std::fs::remove_file(&beside);
    }
    done
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    // Invariant: the output of each script is kept apart, whatever becomes of the others.

    #[tokio::test]
    async fn what_scripts_say_is_reported_apart() {
        let parts = [("a", "echo 1; echo 2".to_owned()), ("b", "echo no >&2; exit 3".to_owned())];
        let parts = [&parts[..], &[("c", "printf x".to_owned())]].concat();
        // `exit` in one script would end them all, which is why this test replaces it.
        let parts: Vec<_> = parts
            .into_iter()
            .map(|(name, script)| (name, script.replace("exit 3", "false")))
            .collect();
        let said = Machine::Local.ask(&parts).await.unwrap();
        assert_eq!((&*said["a"], &*said["b"], &*said["c"]), ("1\n2\n", "", "x"));
        let refused = Machine::Local.run("echo out; echo err >&2; exit 1").await.unwrap_err();
        assert_eq!(refused, "out\nerr");
    }

    #[tokio::test]
    async fn a_file_is_written_whole_with_its_rights() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let path = path.to_str().unwrap().to_owned();
        for text in ["one", "two"] {
            let file = FileToWrite { path: path.clone(), text: text.into(), mode: 0o600 };
            Machine::Local.put(&file).await.unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let file = FileToWrite { path: "/proc/no/file".into(), text: String::new(), mode: 0o600 };
        assert!(Machine::Local.put(&file).await.is_err());
    }
}
