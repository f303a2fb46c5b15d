//! `drover demo` as a new user sees it.

use crate::harness::drover;

// Invariant: the demo runs its batch to the end and leaves nothing behind.

#[test]
fn demo_once_runs_its_batch_draws_waterfalls_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let out = drover().args(["demo", "--once"]).env("TMPDIR", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let erred = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}{erred}");
    for word in ["hello", "fails", "doomed", "Cloning", "Booting", "█", "nothing is left"] {
        assert!(said.contains(word), "`{word}` in:\n{said}{erred}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
