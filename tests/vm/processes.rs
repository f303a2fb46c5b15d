//! What is left of machines when their simulator ends.

use crate::harness::Sim;
use crate::world::{Machines, processes, until};

// Invariant: no machine outlives its simulator, however that ends, and the next simulator removes
// the files of one that was killed.

#[test]
fn machines_end_with_a_simulator_that_is_killed_and_the_next_one_removes_their_files() {
    let mut machines = Machines::of("tiny");
    let template = machines.sim.facts["templateVmId"].as_u64().unwrap();
    machines.task("POST", template, "/clone", &[("newid", "500")]);
    machines.task("POST", 500, "/status/start", &[]);
    let folder = machines.dir.path().to_owned();
    assert_eq!(processes(&folder).len(), 1, "{:?}", processes(&folder));
    machines.sim.child.signal("KILL");
    machines.sim.child.wait();
    until("the end of QEMU", || processes(&folder).is_empty().then_some(()));
    assert!(machines.files().contains(&"1.qcow2".to_owned()));

    std::fs::remove_file(folder.join("control.sock")).unwrap();
    let _next = Sim::start_with(&folder, &["--guests", "none"]);
    let left = folder.read_dir().unwrap().flatten().map(|entry| entry.path().join("guests"));
    assert_eq!(left.filter(|path| path.exists()).count(), 0);
}

#[test]
fn machines_end_with_a_simulator_that_stops() {
    let mut machines = Machines::of("tiny");
    let template = machines.sim.facts["templateVmId"].as_u64().unwrap();
    machines.task("POST", template, "/clone", &[("newid", "500")]);
    machines.task("POST", 500, "/status/start", &[]);
    let folder = machines.dir.path().to_owned();
    assert_eq!(processes(&folder).len(), 1);
    machines.sim.child.signal("TERM");
    assert_eq!(machines.sim.child.wait(), Some(0));
    until("the end of QEMU", || processes(&folder).is_empty().then_some(()));
    let left = folder.read_dir().unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with("drover-sim-"));
    assert_eq!(left.count(), 0);
}
