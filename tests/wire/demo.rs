//! `drover demo` as a new user sees it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::harness::{Kept, Lines, WAIT_LIMIT, drover, note};

// Invariant: the demo runs its batch to the end and leaves nothing behind.

/// Runs the whole batch, with folders in front of the programs' search path.
fn once(first: &Path) -> String {
    let dir = tempfile::tempdir().unwrap();
    once_in(dir.path(), first)
}

/// The same with its files in `dir`, which is empty at the end.
fn once_in(dir: &Path, first: &Path) -> String {
    let path = format!("{}:{}", first.display(), std::env::var("PATH").unwrap());
    let mut demo = drover();
    demo.args(["demo", "--once"]).env("TMPDIR", dir).env("PATH", path);
    let out = demo.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let erred = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}{erred}");
    for word in ["hello", "fails", "loses-vm", "Cloning", "Booting", "█", "nothing is left"] {
        assert!(said.contains(word), "`{word}` in:\n{said}{erred}");
    }
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    said + &erred
}

#[test]
fn demo_once_runs_its_batch_draws_waterfalls_and_leaves_nothing_behind() {
    let nothing = tempfile::tempdir().unwrap();
    once(nothing.path());
}

#[test]
fn a_demo_that_is_killed_takes_its_service_along_and_the_next_one_removes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut demo = drover();
    demo.args(["demo", "--plain"]).env("TMPDIR", dir.path());
    demo.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut demo = Kept(demo.spawn().unwrap());
    let mut out = Lines::of("the demo", demo.0.stdout.take().unwrap());
    out.until(|line| line.contains("Cloning"));
    let folder = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    let answers = || UnixStream::connect(folder.join("drover.sock")).is_ok();
    assert!(answers());
    demo.signal("KILL");
    demo.wait();
    let deadline = Instant::now() + WAIT_LIMIT;
    while answers() {
        assert!(Instant::now() < deadline, "the service goes on without its demo");
    }
    once_in(dir.path(), dir.path());
}

// Most machines of new users have no bubblewrap.
#[test]
fn demo_once_runs_its_batch_where_guests_cannot_be_isolated() {
    let programs = tempfile::tempdir().unwrap();
    let broken = programs.path().join("bwrap");
    std::fs::write(&broken, "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&broken, Permissions::from_mode(0o755)).unwrap();
    let said = once(programs.path());
    assert!(said.contains("bubblewrap"), "{said}");
}

// Invariant: what a terminal shows at the end is that nothing is left.

/// The lines of a terminal that was printed to: moving up also clears all that is below.
fn screen(printed: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for (index, piece) in printed.split("\x1b[").enumerate() {
        let mut text = piece;
        if index > 0 {
            let (order, rest) = piece.split_at(piece.find(char::is_alphabetic).unwrap() + 1);
            text = rest;
            if let Some(count) = order.strip_suffix('A') {
                let up: usize = count.parse().unwrap();
                lines.truncate(lines.len() - 1 - up);
                lines.push(String::new());
            }
        }
        for letter in text.chars().filter(|letter| *letter != '\r') {
            match letter {
                '\n' => lines.push(String::new()),
                letter => lines.last_mut().unwrap().push(letter),
            }
        }
    }
    lines
}

#[test]
fn demo_once_on_a_terminal_says_last_that_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let plain = drover();
    let line = format!("'{}' demo --once", plain.get_program().to_str().unwrap());
    let mut script = Command::new("script");
    for (name, _) in plain.get_envs().filter(|(_, value)| value.is_none()) {
        script.env_remove(name);
    }
    script.args(["-qec", &line, "/dev/null"]).env("TMPDIR", dir.path()).env("SHELL", "/bin/sh");
    let out = match script.stdin(Stdio::null()).output() {
        Ok(out) => out,
        Err(_) if std::env::var_os("DROVER_TEST_PROGRAMS").is_none() => {
            note("script is not installed: the demo was not looked at on a terminal");
            return;
        }
        Err(error) => panic!("script: {error}"),
    };
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{printed}");
    assert!(printed.contains("\x1b["), "no terminal: {printed}");
    let shown = screen(&printed);
    let shown: Vec<&str> =
        shown.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    let end = [
        "stopping: drover retires all agents",
        "nothing is left: no guest, no volume, no process, no file",
    ];
    assert_eq!(shown[shown.len().saturating_sub(2)..], end, "{printed}");
}
