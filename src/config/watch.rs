//! Watches the configuration and reads it again whenever it changed.
//!
//! The *directory* is watched, so that editors that rename and volumes that swap symlinks are seen
//! too; a change is looked at once it has settled, by content; a poll catches what no event told,
//! such as another key file or the mode of one. A file that is gone or empty for a moment is waited
//! for. [`Watch::next`] may be dropped and called again at any time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::source::Sources;
use super::survey::{self, Survey};
use super::{Checked, Environment, LoadError};

/// Quiet for this long, a change has settled.
const QUIET: Duration = Duration::from_millis(200);
/// A directory that is never quiet is looked at after this.
const RESTLESS: Duration = Duration::from_secs(2);
/// How long a configuration may be gone or empty before that is said.
const ABSENCE: Duration = Duration::from_secs(2);
/// What events miss is found after this.
const POLL: Duration = Duration::from_secs(30);

/// What came of a change.
#[derive(Debug)]
pub enum Change {
    /// The new configuration.
    Reloaded(Box<Checked>),
    /// The new configuration has faults; the one in force stays. The faults, as people read them.
    Refused(String),
}

/// Asks for a reload even if nothing seems to have changed (SIGHUP, `drover reload`).
#[derive(Debug, Clone)]
pub struct Trigger(mpsc::Sender<()>);

impl Trigger {
    /// Asks; asking twice before the answer is asking once.
    pub fn pull(&self) {
        // A full channel already holds the same request, a closed one has nobody to ask.
        let _ = self.0.try_send(());
    }
}

/// A configuration under watch.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    environment: Environment,
    pokes: mpsc::Receiver<()>,
    trigger: Trigger,
    triggers: mpsc::Receiver<()>,
    /// Events stop when it is dropped; none when the system offers none, and the poll is all.
    _watcher: Option<RecommendedWatcher>,
    _poker: mpsc::Sender<()>,
    seen: [u8; 32],
    inputs: Vec<PathBuf>,
    forced: bool,
    stirred: Option<Instant>,
    due: Option<Instant>,
    absent: bool,
    poll: Instant,
}

impl Watch {
    /// Starts watching a file or directory, and reads it for the first time.
    pub async fn open(path: &Path, environment: Environment) -> (Self, Result<Checked, LoadError>) {
        let (poker, pokes) = mpsc::channel(1);
        let watcher = watcher(path, poker.clone())
            .inspect_err(|error| {
                tracing::warn!(path = %path.display(), %error, "configuration is only polled");
            })
            .ok();
        Self::over(path, environment, (poker, pokes), watcher).await
    }

    async fn over(
        path: &Path,
        environment: Environment,
        (poker, pokes): (mpsc::Sender<()>, mpsc::Receiver<()>),
        watcher: Option<RecommendedWatcher>,
    ) -> (Self, Result<Checked, LoadError>) {
        let (trigger, triggers) = mpsc::channel(1);
        let mut watch = Self {
            path: path.to_owned(),
            environment,
            pokes,
            trigger: Trigger(trigger),
            triggers,
            _watcher: watcher,
            _poker: poker,
            seen: [0; 32],
            inputs: Vec::new(),
            forced: true,
            stirred: None,
            due: None,
            absent: false,
            poll: Instant::now() + POLL,
        };
        let (digest, survey) = watch.read().await;
        let result = watch.settle(digest, survey);
        (watch, result)
    }

    /// A handle that asks for a reload.
    pub fn trigger(&self) -> Trigger {
        self.trigger.clone()
    }

    /// Waits for the next change that matters.
    pub async fn next(&mut self) -> Change {
        loop {
            self.wait().await;
            let (digest, survey) = self.read().await;
            let known = digest == self.seen && !self.forced;
            if !known && !self.forced && !self.absent && is_absent(&survey) {
                self.absent = true;
                self.stirred = None;
                self.due = Some(Instant::now() + ABSENCE);
                continue;
            }
            let result = self.settle(digest, survey);
            if known {
                continue;
            }
            return match result {
                Ok(checked) => Change::Reloaded(Box::new(checked)),
                Err(error) => Change::Refused(error.render()),
            };
        }
    }

    /// Waits until it is time to look.
    async fn wait(&mut self) {
        while !self.forced {
            let at = self.due.map_or(self.poll, |due| due.min(self.poll));
            tokio::select! {
                biased;
                Some(()) = self.triggers.recv() => self.forced = true,
                Some(()) = self.pokes.recv() => {
                    let now = Instant::now();
                    let first = *self.stirred.get_or_insert(now);
                    self.due = Some((now + QUIET).min(first + RESTLESS));
                }
                () = tokio::time::sleep_until(at) => return,
            }
        }
    }

    /// Reads the files, off this thread: an encrypted key takes its time.
    async fn read(&self) -> ([u8; 32], Survey) {
        let path = self.path.clone();
        let environment = self.environment.clone();
        let inputs = self.inputs.clone();
        let read = tokio::task::spawn_blocking(move || read(&path, &environment, &inputs)).await;
        read.unwrap_or_else(|error| {
            let source = std::io::Error::other(error);
            let result = Err(LoadError::Io { path: self.path.clone(), source });
            ([0; 32], Survey { result, inputs: self.inputs.clone() })
        })
    }

    /// Remembers what was seen, and waits anew.
    fn settle(&mut self, digest: [u8; 32], survey: Survey) -> Result<Checked, LoadError> {
        self.seen = digest;
        if survey.inputs != self.inputs {
            self.inputs = survey.inputs;
            self.seen = digest_of(Sources::read(&self.path).as_ref().ok(), &self.inputs);
        }
        self.forced = false;
        self.absent = false;
        self.stirred = None;
        self.due = None;
        self.poll = Instant::now() + POLL;
        survey.result
    }
}

fn is_absent(survey: &Survey) -> bool {
    match &survey.result {
        Err(LoadError::Missing { .. } | LoadError::Io { .. }) => true,
        Err(LoadError::Faults { .. }) | Ok(_) => false,
    }
}

fn read(path: &Path, environment: &Environment, inputs: &[PathBuf]) -> ([u8; 32], Survey) {
    match Sources::read(path) {
        Ok(sources) => {
            let digest = digest_of(Some(&sources), inputs);
            (digest, survey::check(sources, environment))
        }
        Err((path, source)) => {
            let result = Err(LoadError::Io { path, source });
            (digest_of(None, inputs), Survey { result, inputs: inputs.to_vec() })
        }
    }
}

/// A digest of the files' names and texts, and of the texts and modes of those beside them.
fn digest_of(sources: Option<&Sources>, inputs: &[PathBuf]) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match sources {
        Some(sources) => {
            for file in sources.files() {
                part(file.name.as_bytes());
                part(file.text.as_bytes());
            }
        }
        None => part(b"absent"),
    }
    for path in inputs {
        part(path.as_os_str().as_encoded_bytes());
        let mode = fs::metadata(path).map(|meta| meta.permissions().mode()).unwrap_or_default();
        part(&mode.to_be_bytes());
        part(&fs::read(path).unwrap_or_default());
    }
    hash.finalize().into()
}

/// Watches the directory a path is in, or is, and that of the file behind a symlink.
fn watcher(path: &Path, poker: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // A full channel already holds a poke; an error may hide an event, so it counts as one.
        if event.as_ref().map_or(true, |event| is_change(&event.kind)) {
            let _ = poker.try_send(());
        }
    })?;
    let directory = directory_of(path);
    watcher.watch(&directory, RecursiveMode::NonRecursive)?;
    if let Ok(real) = fs::canonicalize(path) {
        let behind = directory_of(&real);
        if fs::canonicalize(&directory).is_ok_and(|directory| directory != behind) {
            watcher.watch(&behind, RecursiveMode::NonRecursive)?;
        }
    }
    Ok(watcher)
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        _ if path.is_dir() => path.to_owned(),
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// Whether an event may change a file; reading one, as drover itself does, may not.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(access) => *access == AccessKind::Close(AccessMode::Write),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test says what it expects")]

    use std::os::unix::fs::{OpenOptionsExt, symlink};

    use super::*;

    const GOOD: &str = "cloudConfigurations:\n  a: {name: A, credentialsId: t}\ncredentials:\n  t: {kind: proxmoxToken, tokenId: a@pve!a, secretFile: token}\n";

    struct Scene {
        dir: tempfile::TempDir,
        watch: Watch,
        poke: mpsc::Sender<()>,
    }

    async fn scene() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let mut token = fs::OpenOptions::new();
        token.write(true).create(true).mode(0o600);
        std::io::Write::write_all(
            &mut token.open(dir.path().join("token")).unwrap(),
            b"0123456789",
        )
        .unwrap();
        let file = dir.path().join("drover.yaml");
        fs::write(&file, GOOD).unwrap();
        let (poke, pokes) = mpsc::channel(1);
        let environment = Environment::default();
        let (watch, first) = Watch::over(&file, environment, (poke.clone(), pokes), None).await;
        first.unwrap();
        Scene { dir, watch, poke }
    }

    impl Scene {
        fn write(&self, text: &str) {
            fs::write(self.dir.path().join("drover.yaml"), text).unwrap();
        }

        async fn poke(&self) {
            self.poke.send(()).await.unwrap();
        }

        async fn next(&mut self) -> (Change, Duration) {
            let start = Instant::now();
            let change = self.watch.next().await;
            (change, start.elapsed())
        }

        /// Nothing comes of it for as long as this.
        async fn nothing_for(&mut self, time: Duration) {
            assert!(tokio::time::timeout(time, self.watch.next()).await.is_err());
        }
    }

    fn name(change: Change) -> String {
        match change {
            Change::Reloaded(checked) => checked.herd.clouds.values().next().unwrap().name.clone(),
            Change::Refused(text) => text,
        }
    }

    // Invariant: a change is told once, after it has settled, and only when the content differs.

    #[tokio::test(start_paused = true)]
    async fn a_change_is_told_once_it_has_settled() {
        let mut scene = scene().await;
        scene.write(&GOOD.replace("name: A", "name: B"));
        scene.poke().await;
        let (change, took) = scene.next().await;
        assert_eq!(name(change), "B");
        assert!(took >= QUIET && took < QUIET * 2, "{took:?}");
        scene.poke().await;
        scene.nothing_for(POLL * 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_wait_loses_nothing() {
        let mut scene = scene().await;
        scene.write(&GOOD.replace("name: A", "name: B"));
        scene.poke().await;
        scene.nothing_for(QUIET / 2).await;
        let (change, took) = scene.next().await;
        assert_eq!(name(change), "B");
        assert!(took < QUIET, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_no_event_told_is_found_by_the_poll() {
        let mut scene = scene().await;
        scene.write(&GOOD.replace("name: A", "name: B"));
        let (change, took) = scene.next().await;
        assert_eq!(name(change), "B");
        assert!(took <= POLL, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_secret_behind_the_same_yaml_is_a_change() {
        let mut scene = scene().await;
        fs::write(scene.dir.path().join("token"), "9876543210").unwrap();
        assert!(matches!(scene.next().await.0, Change::Reloaded(_)));
        fs::set_permissions(scene.dir.path().join("token"), fs::Permissions::from_mode(0o644))
            .unwrap();
        assert!(name(scene.next().await.0).contains("can be read by others"));
        scene.nothing_for(POLL * 3).await;
    }

    // Invariant: a bad file is told once and does not end the watch; a moment's absence is no change.

    #[tokio::test(start_paused = true)]
    async fn a_bad_file_is_refused_once_and_a_good_one_taken_again() {
        let mut scene = scene().await;
        scene.write(&GOOD.replace("name: A", "nmae: A"));
        scene.poke().await;
        assert!(name(scene.next().await.0).contains("did you mean `name`?"));
        scene.nothing_for(POLL * 3).await;
        scene.write(GOOD);
        scene.poke().await;
        assert_eq!(name(scene.next().await.0), "A");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_gone_for_a_moment_is_waited_for() {
        let mut scene = scene().await;
        let file = scene.dir.path().join("drover.yaml");
        fs::remove_file(&file).unwrap();
        scene.poke().await;
        scene.nothing_for(ABSENCE).await;
        scene.write(GOOD);
        scene.poke().await;
        scene.nothing_for(POLL * 3).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_stays_gone_is_told_once() {
        let mut scene = scene().await;
        fs::remove_file(scene.dir.path().join("drover.yaml")).unwrap();
        scene.poke().await;
        assert!(name(scene.next().await.0).contains("can not be read"));
        scene.nothing_for(POLL * 3).await;
        scene.write(GOOD);
        scene.poke().await;
        assert_eq!(name(scene.next().await.0), "A");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_reloads_what_did_not_change() {
        let mut scene = scene().await;
        scene.watch.trigger().pull();
        scene.watch.trigger().pull();
        let (change, took) = scene.next().await;
        assert_eq!(name(change), "A");
        assert_eq!(took, Duration::ZERO);
        scene.nothing_for(POLL * 3).await;
    }

    // Invariant: the system's events see a file renamed into place and a swapped symlink.

    async fn told(watch: &mut Watch) -> String {
        name(tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap())
    }

    #[tokio::test]
    async fn a_file_renamed_into_place_is_seen() {
        let scene = scene().await;
        let file = scene.dir.path().join("drover.yaml");
        let (mut watch, first) = Watch::open(&file, Environment::default()).await;
        first.unwrap();
        let fresh = scene.dir.path().join(".drover.yaml.tmp");
        fs::write(&fresh, GOOD.replace("name: A", "name: B")).unwrap();
        fs::rename(&fresh, &file).unwrap();
        assert_eq!(told(&mut watch).await, "B");
    }

    #[tokio::test]
    async fn a_swapped_symlink_of_a_mounted_volume_is_seen() {
        let scene = scene().await;
        let dir = scene.dir.path().join("volume");
        for (version, name) in [("..1", "A"), ("..2", "B")] {
            fs::create_dir_all(dir.join(version)).unwrap();
            let text = GOOD.replace("name: A", &format!("name: {name}"));
            let token = scene.dir.path().join("token").display().to_string();
            let text = text.replace("secretFile: token", &format!("secretFile: {token}"));
            fs::write(dir.join(version).join("drover.yaml"), text).unwrap();
        }
        symlink("..1", dir.join("..data")).unwrap();
        symlink("..data/drover.yaml", dir.join("drover.yaml")).unwrap();
        let file = dir.join("drover.yaml");
        let (mut watch, first) = Watch::open(&file, Environment::default()).await;
        first.unwrap();
        symlink("..2", dir.join("..next")).unwrap();
        fs::rename(dir.join("..next"), dir.join("..data")).unwrap();
        assert_eq!(told(&mut watch).await, "B");
    }
}
