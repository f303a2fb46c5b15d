//! `drover demo` as a new user sees it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::drover;

// Invariant: the demo runs its batch to the end and leaves nothing behind.

/// Runs the whole batch, with folders in front of the programs' search path.
fn once(first: &Path) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", first.display(), std::env::var("PATH").unwrap());
    let mut demo = drover();
    demo.args(["demo", "--once"]).env("TMPDIR", dir.path()).env("PATH", path);
    let out = demo.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let erred = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}{erred}");
    for word in ["hello", "fails", "doomed", "Cloning", "Booting", "█", "nothing is left"] {
        assert!(said.contains(word), "`{word}` in:\n{said}{erred}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    said + &erred
}

#[test]
fn demo_once_runs_its_batch_draws_waterfalls_and_leaves_nothing_behind() {
    let nothing = tempfile::tempdir().unwrap();
    once(nothing.path());
}

// Most machines of new users have no bubblewrap.
#[test]
fn demo_once_runs_its_batch_where_guests_can_not_be_isolated() {
    let programs = tempfile::tempdir().unwrap();
    let broken = programs.path().join("bwrap");
    std::fs::write(&broken, "#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&broken, Permissions::from_mode(0o755)).unwrap();
    let said = once(programs.path());
    assert!(said.contains("bubblewrap"), "{said}");
}
