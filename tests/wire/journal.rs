//! A journal that cannot be written, or read.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::api::{Board, ask, call, ready, release};
use crate::harness::{Kept, Lines, Service, Site, drover, world};

/// A service whose state is on a file system of its own.
struct Small {
    service: Service,
    said: Lines,
    inner: u32,
    state: PathBuf,
}

impl Small {
    fn start(site: &Site, bytes: usize) -> Self {
        let state = site.dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let bytes = bytes.to_string();
        let mount = [
            "bwrap",
            "--die-with-parent",
            "--bind",
            "/",
            "/",
            "--dev-bind",
            "/dev",
            "/dev",
            "--size",
            &bytes,
        ];
        let state_dir = state.to_str().unwrap();
        let wrapper = [&mount[..], &["--tmpfs", state_dir, "--"]].concat();
        let mut service = Service::spawn_under(&wrapper, site, Stdio::piped());
        service.hear("READY=1");
        let said = Lines::of("drover run", service.child.0.stderr.take().unwrap());
        // bubblewrap waits outside for the one that has the mount.
        let outer = service.child.0.id();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"));
        let inner: u32 = children.unwrap().trim().parse().unwrap();
        let inside = PathBuf::from(format!("/proc/{inner}/root{state_dir}"));
        assert!(inside.join("journal.redb").exists(), "{}", inside.display());
        Self { service, said, inner, state: inside }
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        let mut options = std::fs::File::options();
        let mut file = options.create(true).append(true).open(self.state.join("filler")).unwrap();
        let mut size = 1 << 20;
        for _ in 0..100 {
            if std::io::Write::write_all(&mut file, &vec![1; size]).is_err() {
                size /= 2;
            }
        }
        assert_eq!(size, 0, "the file system is larger than it was made");
    }

    fn empty(&self) {
        std::fs::remove_file(self.state.join("filler")).unwrap();
    }
}

// Invariant: what cannot be written down is not done; the service says so, keeps what is in use,
// and goes on by itself when it can write again.

#[test]
fn a_full_disk_stops_what_is_new_and_nothing_else() {
    let (_dir, sim, site) = world();
    let mut small = Small::start(&site, 6_000_000);
    let held = ask(&site, "linux", "held");
    let before = ready(&site, &held);
    for _ in 0..2 {
        small.fill();
        let mut waiting = until_refused(&small, &site);
        let line = small.said.until(|line| line.contains("journal cannot be written"));
        assert!(line.contains("ERROR"), "{line}");
        let (status, problem) = call(&site, "GET", "/readyz", None);
        assert_eq!(status, 503, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("journal"), "{problem}");
        assert_eq!(call(&site, "GET", "/healthz", None).0, 200);
        let text = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
        assert!(text.contains("ALARM: journal: cannot be written"), "{text}");
        assert_eq!(ready(&site, &held)["ssh"], before["ssh"]);

        small.empty();
        small.said.until(|line| line.contains("journal can be written again"));
        assert_eq!(call(&site, "GET", "/readyz", None).0, 200);
        waiting.push(ask(&site, "linux", "afterwards"));
        // The first and the last of those that wait are served, the many between give way.
        for lease in waiting.drain(1..waiting.len().max(2) - 1) {
            release(&site, &lease);
        }
        for lease in &waiting {
            ready(&site, lease);
            release(&site, lease);
        }
        // One that was still starting is reaped once it is ready.
        let mut board = Board::open(&site);
        while board.agents.len() > 1 {
            if board.in_state("Ready") > 0 {
                let all = serde_json::json!({"all": true});
                assert_eq!(call(&site, "POST", "/v1/reap", Some(&all)).0, 200);
            }
            board.next(&site);
        }
        assert_eq!(sim.guests().len(), 1, "a guest that nobody knows");
    }
    assert_eq!(ready(&site, &held)["agent"], before["agent"]);
    release(&site, &held);
    let inner = small.inner.to_string();
    assert!(Command::new("kill").args(["-TERM", &inner]).status().unwrap().success());
    assert_eq!(small.service.child.wait(), Some(0));
}

/// Asks for leases until one is refused for want of a journal, and gives those that were taken.
fn until_refused(small: &Small, site: &Site) -> Vec<String> {
    // A long line, which needs room of its own.
    let key = drover_ssh::PrivateKey::from_seed(&[9; 32], "test").public_line(&"x".repeat(12_000));
    let body = serde_json::json!({"template": "linux", "ttlSeconds": 3600, "sshPublicKey": key});
    let mut taken = Vec::new();
    for _ in 0..300 {
        // A failed write may give room back.
        small.fill();
        let (status, reported) = call(site, "POST", "/v1/leases", Some(&body));
        if status == 503 {
            assert!(reported["detail"].as_str().unwrap().contains("No space left"), "{reported}");
            return taken;
        }
        assert_eq!(status, 201, "{reported}");
        taken.push(reported["id"].as_str().unwrap().to_owned());
    }
    panic!("the journal was never full")
}

// Invariant: a journal that cannot be used ends the start with what to do, and is left as it is.

#[test]
fn a_damaged_journal_is_refused_and_left_as_it_is() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    service.child.signal("KILL");
    service.child.wait();
    let path = site.dir.path().join("state/journal.redb");
    let whole = std::fs::read(&path).unwrap();
    let mut scribbled = whole.clone();
    scribbled[..4096].fill(0x55);
    let cut = whole[..whole.len() / 3].to_vec();
    for damaged in [Vec::new(), b"not a journal".to_vec(), scribbled, cut] {
        std::fs::write(&path, &damaged).unwrap();
        let (code, said) = refused(&site);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("journal.redb") && said.contains("restore"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), damaged, "the file was touched");
    }
    std::fs::write(&path, whole).unwrap();
    drop(Service::start(&site));
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named() {
    let (_dir, _sim, site) = world();
    let state = site.dir.path().join("state");
    std::fs::write(&state, "a file").unwrap();
    let (code, said) = refused(&site);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("state directory") && said.contains("state"), "{said}");
    std::fs::remove_file(&state).unwrap();

    // Read-only for root too.
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o500)).unwrap();
    let mount = ["--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--ro-bind"];
    let mut command = Command::new("bwrap");
    command.args(mount).arg(&state).arg(&state).arg("--").arg(drover().get_program());
    command.arg("--config").arg(site.config()).arg("run").stderr(Stdio::piped());
    let mut child = Kept(command.spawn().unwrap());
    let said = Lines::of("drover run", child.0.stderr.take().unwrap()).rest();
    assert_eq!(child.wait(), Some(1), "{said}");
    assert!(said.contains("journal.redb") && said.contains("Read-only"), "{said}");
}

/// The end of a service that cannot start.
fn refused(site: &Site) -> (Option<i32>, String) {
    let mut command = drover();
    command.arg("--config").arg(site.config()).arg("run").stderr(Stdio::piped());
    let mut child = Kept(command.spawn().unwrap());
    let said = Lines::of("drover run", child.0.stderr.take().unwrap()).rest();
    (child.wait(), said)
}

// Invariant: a look into a journal changes nothing of it, and says what a start would say.

#[test]
fn a_journal_is_verified_and_listed_while_no_drover_uses_it() {
    let (_dir, _sim, site) = world();
    let mut service = Service::start(&site);
    let lease = site.json(&["lease", "--labels", "linux"]);
    let state = site.dir.path().join("state");
    let state = state.to_str().unwrap();
    let look = |args: &[&str]| {
        let out = drover().args(args).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        (out.status.code().unwrap(), text + &String::from_utf8_lossy(&out.stderr))
    };
    let (code, text) = look(&["journal", "verify", state]);
    assert!(code == 1 && text.contains("in use by another process"), "{code}: {text}");
    service.child.signal("KILL");
    service.child.wait();
    let path = format!("{state}/journal.redb");
    let before = std::fs::read(&path).unwrap();
    let (code, text) = look(&["journal", "verify", state]);
    assert!(code == 0 && text.contains("journal.redb is sound"), "{code}: {text}");
    assert!(text.contains("agents        1 Leased"), "{text}");
    let agent = lease["agent"].as_str().unwrap();
    let (code, text) = look(&["journal", "inspect", state, "--about", agent]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("cloneIntended") && text.contains("leaseGranted"), "{text}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let (text_copy, file_copy) =
        (format!("{state}/../copy.jsonl"), format!("{state}/../copy.redb"));
    let (code, text) = look(&["journal", "copy", state, &text_copy]);
    assert!(code == 0 && text.contains("to ") && text.contains("copy.jsonl"), "{code}: {text}");
    let (code, text) = look(&["journal", "copy", &text_copy, &file_copy]);
    assert_eq!(code, 0, "{text}");
    let rows = |text: &str| text.lines().skip(2).map(str::to_owned).collect::<Vec<_>>();
    let verified = |place: &str| look(&["journal", "verify", place]).1;
    assert_eq!(rows(&verified(&file_copy)), rows(&verified(state)));
    assert_eq!(rows(&verified(&text_copy)), rows(&verified(state)));
    let (code, text) = look(&["journal", "copy", state, &file_copy]);
    assert!(code == 1 && text.contains("nothing was copied"), "{code}: {text}");
    std::fs::write(&path, &before[..before.len() / 2]).unwrap();
    let (code, text) = look(&["journal", "verify", &path]);
    assert!(code == 1 && text.contains("is damaged"), "{code}: {text}");
}
