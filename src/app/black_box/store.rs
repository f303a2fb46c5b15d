//! The files of black boxes: one for each agent, `blackbox/AGENT.json` in the state directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use drover_api::BlackBoxOut;

/// The folder in the state directory.
const FOLDER: &str = "blackbox";
/// Bytes of one file.
const FILE_BYTES_MAX: usize = 512 << 10;
/// What the name of a file ends with.
const ENDING: &str = ".json";
/// What the name of a file begins with that is not written to its end.
const UNFINISHED: &str = ".new";
/// An older one is written no more: its process was killed.
const UNFINISHED_MAX: Duration = Duration::from_secs(3600);
/// Letters and digits of the longest id.
const ID_MAX: usize = 64;

/// How long, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Older files go.
    pub age: Duration,
    /// The oldest files go where all of them have more.
    pub bytes: u64,
}

/// The folder of the files.
#[derive(Debug, Clone)]
pub(super) struct Store(PathBuf);

impl Store {
    pub(super) fn of(state: &Path) -> Self {
        Self(state.join(FOLDER))
    }

    /// Writes what is kept of an agent, as much as a file may have. What a killed process leaves goes with [`prune`](Self::prune).
    ///
    /// # Errors
    /// The system's.
    pub(super) fn put(&self, kept: BlackBoxOut) -> io::Result<()> {
        let path = self.path(&kept.agent)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let text = bounded(kept)?;
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.0)?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }

    /// What is kept of an agent; none where nothing is.
    ///
    /// # Errors
    /// The system's; a file that another version wrote and this one cannot read.
    pub(super) fn get(&self, agent: &str) -> io::Result<Option<BlackBoxOut>> {
        if !is_id(agent) {
            return Ok(None);
        }
        let path = self.path(agent)?;
        let known = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            known => known?,
        };
        // To open a pipe waits for who writes into it.
        if !known.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let file = File::open(path)?;
        let mut text = Vec::new();
        file.take(2 * FILE_BYTES_MAX as u64).read_to_end(&mut text)?;
        Ok(Some(serde_json::from_slice(&text)?))
    }

    /// Removes what is too old, and the oldest of what is too much.
    ///
    /// # Errors
    /// The system's. A folder that is not there has nothing to remove.
    pub(super) fn prune(&self, now: SystemTime, keep: Keep) -> io::Result<()> {
        let mut files = Vec::new();
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let known = entry.metadata()?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !known.is_file() {
                continue;
            }
            let written = known.modified()?;
            let age = now.duration_since(written).unwrap_or_default();
            if name.starts_with(UNFINISHED) && age > UNFINISHED_MAX {
                fs::remove_file(entry.path())?;
            } else if name.ends_with(ENDING) {
                files.push((written, known.len(), entry.path()));
            }
        }
        files.sort_by_key(|(written, ..)| std::cmp::Reverse(*written));
        let mut bytes = 0;
        for (written, length, path) in files {
            bytes += length;
            let age = now.duration_since(written).unwrap_or_default();
            if bytes > keep.bytes || age > keep.age {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    /// The file of an agent. Ids of agents are letters and digits: nothing else leads anywhere.
    fn path(&self, agent: &str) -> io::Result<PathBuf> {
        match is_id(agent) {
            true => Ok(self.0.join(format!("{agent}{ENDING}"))),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "no id of an agent")),
        }
    }
}

fn is_id(agent: &str) -> bool {
    (1..=ID_MAX).contains(&agent.len()) && agent.bytes().all(|one| one.is_ascii_alphanumeric())
}

/// The text of a file, without the first lines of logs and the first moments where it would be too long.
fn bounded(mut kept: BlackBoxOut) -> io::Result<Vec<u8>> {
    loop {
        let text = serde_json::to_vec(&kept)?;
        if text.len() <= FILE_BYTES_MAX {
            return Ok(text);
        }
        let longest = kept.tasks.iter_mut().max_by_key(|task| task.log.len());
        if let Some(task) = longest.filter(|task| !task.log.is_empty()) {
            task.log.drain(..task.log.len().div_ceil(2));
        } else if !kept.moments.is_empty() {
            let half = kept.moments.len().div_ceil(2);
            kept.moments.drain(..half);
            kept.moments_left_out += half as u64;
        } else if !kept.tasks.is_empty() {
            kept.tasks.clear();
        } else if !kept.calls.is_empty() {
            kept.calls.clear();
        } else {
            return Err(io::Error::other("what is kept of the agent is too long"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::fs::PermissionsExt as _;

    use drover_api::{GuestTaskOut, MomentOut};

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn kept(agent: &str) -> BlackBoxOut {
        BlackBoxOut {
            agent: agent.to_owned(),
            template: "lab/linux".to_owned(),
            reason: "failed".to_owned(),
            detail: "Booting failed".to_owned(),
            gone_at: "2026-11-28T17:46:00Z".to_owned(),
            vmid: Some(10_417),
            node: Some("pve1".to_owned()),
            address: None,
            phases: Vec::new(),
            moments: Vec::new(),
            moments_left_out: 0,
            tasks: Vec::new(),
            tasks_unread: None,
            calls: Vec::new(),
            guest_log: None,
            guest_unread: None,
        }
    }

    fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::of(dir.path());
        (dir, store)
    }

    // Invariant: what was kept is there again, for the owner of the service only, and nothing else is read.

    #[test]
    fn what_is_kept_of_an_agent_is_read_as_it_was_written() {
        let (_dir, store) = store();
        assert_eq!(store.get("4f8z1c3p").unwrap(), None);
        store.put(kept("4f8z1c3p")).unwrap();
        assert_eq!(store.get("4f8z1c3p").unwrap(), Some(kept("4f8z1c3p")));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&store.0), mode(&store.0.join("4f8z1c3p.json"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&store.0).unwrap().count(), 1, "a file is left behind");
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_none() {
        let (dir, store) = store();
        fs::write(dir.path().join("secret.json"), "{}").unwrap();
        let long = "a".repeat(5000);
        for name in ["../secret", "", ".", "a/b", "a\0", "ä", &long] {
            assert_eq!(store.get(name).unwrap(), None, "{name:?}");
        }
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let (_dir, store) = store();
        store.put(kept("a1")).unwrap();
        // A test makes no pipe; a folder is as little a file.
        fs::create_dir(store.0.join("a2.json")).unwrap();
        let error = store.get("a2").unwrap_err().to_string();
        assert_eq!(error, "it is no regular file");
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_written_now_stays() {
        let (_dir, store) = store();
        store.put(kept("a1")).unwrap();
        let now = SystemTime::now();
        for (name, age) in [(".newOld", 2), (".newNow", 0)] {
            let file = File::create(store.0.join(name)).unwrap();
            file.set_modified(now - age * Duration::from_secs(3600)).unwrap();
        }
        store.prune(now, Keep { age: 14 * DAY, bytes: 1 << 20 }).unwrap();
        assert!(!store.0.join(".newOld").exists() && store.0.join(".newNow").exists());
        assert!(store.0.join("a1.json").exists());
    }

    // Invariant: a file has its bound, and so have all of them.

    #[test]
    fn a_file_has_its_bound_and_keeps_the_ends_of_what_is_too_long() {
        let (_dir, store) = store();
        let log = (0..100_000).map(|line| format!("line {line}")).collect();
        let upid = "UPID:pve1:1:1:1:qmstart:10417:a:".to_owned();
        let task = GuestTaskOut { upid, kind: "qmstart".into(), status: None, log };
        let moment = |at: usize| MomentOut {
            at: format!("{at}"),
            kind: "step".into(),
            text: "\u{1}".repeat(2048),
        };
        let moments = (0..64).map(moment).collect();
        store.put(BlackBoxOut { tasks: vec![task], moments, ..kept("a1") }).unwrap();
        assert!(fs::metadata(store.0.join("a1.json")).unwrap().len() <= FILE_BYTES_MAX as u64);
        let read = store.get("a1").unwrap().unwrap();
        assert!(read.tasks[0].log.is_empty() && read.moments_left_out > 0);
        assert_eq!(read.moments.last().unwrap().at, "63");
        assert_eq!(read.moments.len() as u64 + read.moments_left_out, 64);
    }

    #[test]
    fn old_files_and_the_oldest_of_too_many_bytes_go() {
        let (_dir, store) = store();
        let now = SystemTime::now();
        for (agent, age) in [("a1", 30), ("a2", 3), ("a3", 2), ("a4", 1)] {
            store.put(kept(agent)).unwrap();
            let file = File::options().write(true).open(store.0.join(format!("{agent}.json")));
            file.unwrap().set_modified(now - age * DAY).unwrap();
        }
        let left = || {
            let mut left: Vec<_> = fs::read_dir(&store.0)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            left.sort();
            left
        };
        store.prune(now, Keep { age: 14 * DAY, bytes: 1 << 20 }).unwrap();
        assert_eq!(left(), ["a2.json", "a3.json", "a4.json"]);
        let each = fs::metadata(store.0.join("a4.json")).unwrap().len();
        store.prune(now, Keep { age: 14 * DAY, bytes: 2 * each }).unwrap();
        assert_eq!(left(), ["a3.json", "a4.json"]);
    }
}
