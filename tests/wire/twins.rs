//! State directories that were copied, or that others may write.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::harness::{Service, drover, world};

// Invariant: two services never have one installation on a machine, however its state directory was copied.

#[test]
fn a_copy_of_a_state_directory_is_refused_beside_its_original_and_names_it() {
    let (_dir, _sim, site) = world();
    let mut first = Service::start(&site);
    first.child.signal("TERM");
    first.child.wait();
    let (state, copy) = (site.dir.path().join("state"), site.dir.path().join("twin"));
    assert!(Command::new("cp").arg("-a").args([&state, &copy]).status().unwrap().success());
    let first = Service::start(&site);

    let beside = site.dir.path().join("twin.sock");
    let twin = || {
        let mut command = drover();
        command.arg("--config").arg(site.config()).arg("run");
        command.arg("--state-dir").arg(&copy).arg("--socket").arg(&beside);
        command
    };
    let out = twin().output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    let socket = site.dir.path().join("drover.sock");
    for part in [
        "runs on this machine already: ".to_owned(),
        format!("process {}, socket `{}`", first.child.0.id(), socket.display()),
        format!("`{}` is a copy", copy.display()),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert!(!beside.exists(), "nothing is served");
    drop(first);

    // Once the first one is gone, however that ended, the copy is the only one.
    Service::launch(twin()).hear("READY=1");
}

// Invariant: drover trusts no journal that others could have written.

#[test]
fn a_state_directory_that_others_may_write_is_not_used() {
    let (_dir, _sim, site) = world();
    let state = site.dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    set_permissions(&state, Permissions::from_mode(0o777)).unwrap();
    let out = drover().arg("--config").arg(site.config()).arg("run").output();
    let out = out.unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("run `chmod 700 {}`", state.display())), "{said}");
    assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "nothing was written");
    set_permissions(&state, Permissions::from_mode(0o755)).unwrap();
    let (_service, mut log) = Service::start_logged(&site);
    log.until(|line| line.contains("others may read the state directory"));
}
