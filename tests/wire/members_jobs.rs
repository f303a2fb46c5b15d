//! Jobs in two hundred guests while members of one store are killed and paused.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::Value;

use crate::harness::{WAIT_LIMIT, note, world_of};
use crate::members::{LEASE_SECS, Members, etcd, s3};

const JOBS: usize = 200;

/// One node with room for all of them.
const CLUSTER: &str = r#"
name: crowd
nodes: [{name: pve1, cpus: 64, memoryBytes: 1099511627776}]
storages: [{name: thin, type: lvmthin, content: [images]}]
guests:
  - vmid: 9000
    node: pve1
    template: true
    config:
      name: debian
      memory: "1024"
      cores: "1"
      scsi0: "thin:base-9000-disk-0,size=4G"
      ide2: "thin:vm-9000-cloudinit,media=cdrom"
      net0: "virtio=BC:24:11:90:00:00,bridge=vmbr0"
      boot: "order=scsi0"
      agent: "enabled=1"
"#;

/// Says where it runs, stays for a while, and says that it came to its end.
const JOB: &str = "echo started on $(hostname); sleep 15; echo done";

/// What a job said, and how its command ended.
struct Outcome {
    said: String,
    faults: String,
    code: Option<i32>,
}

/// Reads a command to its end beside others.
fn follow(mut child: Child, ends: &std::sync::mpsc::Sender<Outcome>) {
    let ends = ends.clone();
    std::thread::spawn(move || {
        let mut stderr = child.stderr.take().unwrap();
        let faults = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).map(|_| text).unwrap_or_default()
        });
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let (faults, code) = (faults.join().unwrap(), child.wait().unwrap().code());
        // Nobody listens any more after a failure.
        let _ = ends.send(Outcome { said, faults, code });
    });
}

/// Takes ends of jobs until there are so many.
fn until(ends: &Receiver<Outcome>, outcomes: &mut Vec<Outcome>, count: usize) {
    let deadline = Instant::now() + 5 * WAIT_LIMIT;
    while outcomes.len() < count {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(outcome) = ends.recv_timeout(left) else {
            panic!("{} of {count} jobs ended", outcomes.len());
        };
        assert_eq!(
            outcome.code,
            Some(0),
            "a job said `{}`, and its command: {}",
            outcome.said,
            outcome.faults
        );
        outcomes.push(outcome);
    }
}

// Invariant: each job runs once, on a machine of its own, over deaths and pauses of leaders.

#[test]
fn two_hundred_jobs_run_once_each_while_leaders_die_and_pause() {
    if let Some(store) = etcd() {
        jobs_run_once_each("etcd", store);
    }
}

#[test]
fn two_hundred_jobs_run_once_each_while_leaders_die_and_pause_on_a_real_s3_server() {
    if let Some(store) = s3() {
        jobs_run_once_each("versitygw", store);
    }
}

fn jobs_run_once_each(name: &str, store: (Box<dyn Any>, String)) {
    let (_dir, sim, site) = world_of(CLUSTER);
    let yaml =
        site.yaml(&sim, "").replace("instanceCap: 4", "instanceCap: 220\n    maxTotalUses: 1");
    let mut members = Members::start(store, site, &yaml);
    let started = Instant::now();
    let (sender, ends) = channel();
    for number in 0..JOBS {
        let mut job = members.command(number % 3, &["lease", "--labels", "linux", "--", JOB]);
        job.stdout(Stdio::piped()).stderr(Stdio::piped());
        follow(job.spawn().unwrap(), &sender);
    }
    drop(sender);
    let (mut outcomes, mut gaps) = (Vec::new(), Vec::new());
    for round in 0..4 {
        until(&ends, &mut outcomes, 1 + round * JOBS / 5);
        let leader = members.leader();
        let asked = members.other(leader);
        let paused = round % 2 == 1;
        if paused {
            members.signal(leader, "STOP");
        } else {
            members.kill(leader);
        }
        gaps.push(members.gap(asked).as_millis());
        if paused {
            members.signal(leader, "CONT");
        } else {
            members.launch(leader);
        }
    }
    until(&ends, &mut outcomes, JOBS);
    let hosts: BTreeSet<&str> =
        outcomes.iter().filter_map(|outcome| outcome.said.lines().next()).collect();
    assert_eq!(hosts.len(), JOBS, "no machine had two jobs");
    assert!(outcomes.iter().all(|outcome| outcome.said.lines().count() == 2), "each ran once");
    let took = started.elapsed().as_secs();
    note(&format!(
        "{name}: {JOBS} jobs in {took} s through two kills and two pauses of a leader, lease \
         {LEASE_SECS} s: {gaps:?} ms"
    ));
    // An agent that was made for somebody who asked in a gap and gave up stays for the next: `reap` is for it.
    // No other is left.
    let deadline = Instant::now() + WAIT_LIMIT;
    while !sim.guests().is_empty() {
        let leader = members.leader();
        let reaped = members.command(leader, &["reap"]).output().unwrap();
        assert!(reaped.status.success(), "{}", String::from_utf8_lossy(&reaped.stderr));
        let agents = members.json(leader, &["agents"]);
        assert!(Instant::now() < deadline, "guests are left: {:?}; {agents}", sim.guests());
        let used = |agent: &Value| agent["uses"] != 0 && agent["state"] == "Ready";
        assert!(!agents["agents"].as_array().unwrap().iter().any(used), "used and idle: {agents}");
    }
}
