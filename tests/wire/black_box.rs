//! What a real service keeps of an agent that failed.

use crate::harness::{Events, Service, world};

// Invariant: after its machine is destroyed, an agent that failed is still known with what it said and what
// Proxmox did for it, also over a restart.

#[test]
fn an_agent_that_failed_leaves_its_steps_and_its_tasks() {
    let (_dir, sim, site) = world();
    let step = "    prepare: [{run: \"echo TOKEN=s3cret-value; echo it broke; exit 7\"}]\n";
    site.write_yaml(&site.yaml(&sim, step));
    let mut service = Service::start(&site);
    let mut events = Events::follow(&site);
    let started = site.json(&["provision", "linux"]);
    let agent = started["agents"][0].as_str().unwrap().to_owned();
    events.until("agentGone", |fact| fact["agent"]["id"] == *agent);
    assert_eq!(sim.guests().len(), 0, "the machine is gone");
    // The keeper reads the tasks when the agent is gone: the file has none before.
    let asked = (0..500).map(|_| site.cli(&["--json", "blackbox", &agent]));
    let mut kept = asked
        .filter(|out| out.status.success())
        .map(|out| serde_json::from_slice::<serde_json::Value>(&out.stdout).unwrap());
    let kept = kept.find(|kept| kept["tasksUnread"].is_null()).unwrap();
    assert_eq!((&kept["reason"], &kept["template"]), (&"failed".into(), &"lab/linux".into()));
    let moments = kept["moments"].to_string();
    assert!(moments.contains("it broke") && moments.contains("exit 7"), "{moments}");
    for part in ["-- cloud-init", "-- memory", "-- disks", "-- output of cloud-init", "-- journal"]
    {
        assert!(moments.contains(part), "the guest does not report {part}: {moments}");
    }
    assert!(moments.contains("TOKEN=***") && !kept.to_string().contains("s3cret"), "{kept}");
    let started = kept["calls"].as_array().unwrap().iter().find(|call| {
        call["method"] == "POST" && call["path"].as_str().unwrap().ends_with("/status/start")
    });
    assert_eq!(started.map(|call| &call["outcome"]), Some(&"200".into()), "{}", kept["calls"]);
    let clones = |call: &&serde_json::Value| call["path"].as_str().unwrap().ends_with("/clone");
    assert!(kept["calls"].as_array().unwrap().iter().any(|call| clones(&call)), "{kept}");
    assert_eq!(kept["guestUnread"], serde_json::Value::Null, "SSH reached it");
    let kinds: Vec<&str> =
        kept["tasks"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"qmstart") && kinds.contains(&"qmdestroy"), "{kinds:?}");
    let why = site.json(&["why", &agent])["state"].to_string();
    assert!(why.contains(&format!("drover blackbox {agent}")), "{why}");

    service.child.signal("TERM");
    service.child.wait();
    let _service = Service::start(&site);
    assert_eq!(site.json(&["blackbox", &agent])["moments"], kept["moments"]);
}
