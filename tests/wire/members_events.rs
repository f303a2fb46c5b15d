//! Events over changes of the leader.

use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Kept, Lines, world};
use crate::members::{Members, etcd};

// Invariant: who follows events follows those of the next leader too, and what is not known is said.

#[test]
fn events_are_followed_over_a_change_of_the_leader() {
    let Some(store) = etcd() else { return };
    let (_dir, sim, site) = world();
    let yaml = site.yaml(&sim, "");
    let mut members = Members::start(store, site, &yaml);
    let leader = members.leader();
    let asked = members.other(leader);
    let mut command = members.command(asked, &["--json", "events"]);
    let mut follow = Kept(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut progress = Lines::of("events: progress", follow.0.stderr.take().unwrap());
    let mut events = Lines::of("drover events", follow.0.stdout.take().unwrap());
    progress.until(|line| line.contains("following events"));
    let lease = members.json(asked, &["lease", "--labels", "linux"]);
    let id = lease["id"].as_str().unwrap().to_owned();
    events.until(|line| line.contains(&id));

    members.kill(leader);
    let gap = events.until(|line| line.contains("\"before\""));
    let gap: Value = serde_json::from_str(&gap).unwrap();
    assert_eq!(gap["missed"], Value::Null, "{gap}");
    assert!(gap["after"].as_str().unwrap().starts_with("1-"), "{gap}");
    assert_eq!(gap["before"], "2-1", "{gap}");
    members.json(asked, &["release", &id]);
    events.until(|line| line.contains(&id) && line.contains("\"ended\""));

    let out = members.command(asked, &["events", "--no-follow"]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("events before 2-1 are not known"), "{text}");
}
