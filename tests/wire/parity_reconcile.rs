//! What a reconciliation finds in a cluster, what it does about it, and what it only says.

use serde_json::Value;

use crate::api::{ask, ready, release};
use crate::harness::{Events, Service, Sim, Site, drover, world};
use crate::parity::{agents, checked, listed, switch_off, take_away, until, yaml};

/// The time an orphan is left alone in these tests: none.
const NO_GRACE: &str = "orphanCleanupGracePeriodSeconds: 0";
const CLEAN: &str = "cleanupOrphanedAgents: true";

/// A guest with a description and tags, as somebody made it by hand.
fn plant(sim: &Sim, vmid: &str, name: &str, description: &str, tags: &str) {
    let params = [("vmid", vmid), ("name", name), ("description", description), ("tags", tags)];
    let made = sim.send("POST", "/nodes/pve1/qemu", &params);
    assert!(made["data"].is_string(), "{made}");
    let number: u64 = vmid.parse().unwrap();
    until("a guest planted", || !sim.config("pve1", number)["name"].is_null());
}

/// What a dry run prints, without what differs from run to run.
fn plan(site: &Site, names: &[(&str, &str)]) -> String {
    let out = site.cli(&["resync", "--dry-run"]);
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    for (name, stand_in) in names {
        text = text.replace(name, stand_in);
    }
    text
}

fn golden(name: &str, text: &str) {
    insta::with_settings!({snapshot_path => "../golden/wire", prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!(name, text);
    });
}

fn guests(sim: &Sim) -> Vec<u64> {
    let mut all = sim.guests();
    all.sort_unstable();
    all
}

/// Marks as of an agent from before this start of the service: one that was made since, and that it
/// does not know, would be another drover's.
fn of_before(marks: &str) -> String {
    let line = |name: &str| marks.lines().find(|line| line.starts_with(name)).unwrap();
    marks.replace(line("seq "), "seq 1").replace(line("born "), "born 2026-01-01T00:00:00Z")
}

// Invariant: orphans are destroyed where cleaning is on, dead agents removed, guests that moved
// followed; what is locked, damaged or somebody else's is reported and left alone. A dry run says so
// beforehand and changes nothing.

#[test]
fn a_reconciliation_does_what_its_dry_run_says_and_leaves_everybody_else_alone() {
    let (_dir, sim, site) = world();
    let write = |cloud: &[&str]| site.write_yaml(&yaml(&site, &sim, cloud, &[("linux", "")]));
    write(&[NO_GRACE]);
    let _service = Service::start(&site);
    let leases: Vec<String> = (0..4).map(|_| ask(&site, "linux", "wire")).collect();
    let mut ids: Vec<String> = Vec::new();
    for lease in &leases {
        ids.push(ready(&site, lease)["agent"].as_str().unwrap().to_owned());
    }
    let mut own = agents(&site, "linux");
    own.sort_by_key(|agent| agent["vmid"].as_u64());
    assert_eq!(
        own.iter().map(|agent| agent["vmid"].as_u64().unwrap()).collect::<Vec<_>>(),
        [10000, 10001, 10002, 10003]
    );
    let id = |at: usize| own[at]["id"].as_str().unwrap();

    // Somebody's guests: an orphan of ours, one with damaged marks, a copy, and a neighbour's.
    let like = sim.config("pve1", 10000);
    let (name, marks) = (like["name"].as_str().unwrap(), like["description"].as_str().unwrap());
    let installation = name.rsplit('-').nth(1).unwrap();
    let tags = format!("drover;drover-{installation}");
    let cluster = marks.lines().find_map(|line| line.strip_prefix("cluster ")).unwrap();
    let orphan = "0123456789abcdef";
    let of_orphan = |vmid: &str| {
        of_before(marks).replace(id(0), orphan).replace("vmid 10000", &format!("vmid {vmid}"))
    };
    plant(&sim, "10500", &name.replace(id(0), orphan), &of_orphan("10500"), &tags);
    let damaged = of_orphan("10501").replace("agent ", "agnet ");
    plant(&sim, "10501", &name.replace(id(0), orphan), &damaged, &tags);
    plant(&sim, "10502", name, marks, &tags);
    plant(&sim, "10503", "linux-bbbbbbbb-0123456789abcdef", "", "drover;drover-bbbbbbbb");
    let strangers = [10501, 10502, 10503];
    let configs = || strangers.map(|vmid| sim.config("pve1", vmid));
    let before = configs();

    // Of our own one is backed up, one was migrated, one taken away, and one switched off.
    sim.order("lock 10000 backup");
    sim.order("move 10001 pve2");
    take_away(&sim, "pve1", 10002);
    switch_off(&sim, "pve1", 10003);
    listed(&sim, 10003, "status", "stopped");
    listed(&sim, 10503, "name", "linux-bbbbbbbb-0123456789abcdef");
    let all = guests(&sim);

    let names: Vec<(&str, &str)> = vec![
        (id(0), "AGENT-0"),
        (id(1), "AGENT-1"),
        (id(2), "AGENT-2"),
        (id(3), "AGENT-3"),
        (installation, "INSTALLATION"),
        (cluster, "CLUSTER"),
    ];
    golden("resync_dry_run", &plan(&site, &names));
    let json = site.json(&["resync", "--dry-run"]);
    let found = json["clusters"][cluster].as_array().unwrap();
    let does = |vmid: u64| {
        let one = found.iter().find(|one| one["vmid"] == vmid);
        one.map_or("", |one| one["does"].as_str().unwrap())
    };
    let wanted = [
        (10000, "leave"),
        (10001, "follow"),
        (10002, "remove"),
        (10003, "retire"),
        (10500, "leave"),
        (10501, "report"),
    ];
    for (vmid, word) in wanted {
        assert_eq!(does(vmid), word, "{vmid}: {json}");
    }
    assert_eq!((guests(&sim), agents(&site, "linux").len()), (all, 4), "a dry run changes nothing");

    // Cleaning is off: the orphan is only reported, everything else happens.
    let mut events = Events::follow(&site);
    assert!(site.cli(&["resync"]).status.success());
    let mut left = vec![id(2), id(3)];
    while !left.is_empty() {
        let gone = events.until("agentGone", |_| true);
        left.retain(|id| gone["agent"]["id"] != *id);
    }
    let kept = agents(&site, "linux");
    let node =
        |at: usize| kept.iter().find(|one| one["id"] == id(at)).map(|one| one["node"].clone());
    assert_eq!((node(0), node(1)), (Some("pve1".into()), Some("pve2".into())));
    assert!(guests(&sim).contains(&10500), "cleaning is off");
    let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
    for word in [
        "10000 of agent",
        "is locked (backup)",
        "only reported: cleaning is off",
        "10501 has damaged marks",
        "10502 is a stranger",
        "another installation, `bbbbbbbb`",
    ] {
        assert!(status.contains(word), "no `{word}`: {status}");
    }

    // Cleaning on: the orphan goes once its own backup is over.
    sim.order("lock 10500 backup");
    write(&[NO_GRACE, CLEAN]);
    assert!(site.cli(&["resync"]).status.success());
    golden("resync_dry_run_cleaning", &plan(&site, &names));
    sim.order("lock 10500 none");
    assert!(plan(&site, &[]).contains("  destroy  10500 is an orphan of agent"));
    assert!(site.cli(&["resync"]).status.success());
    let gone = events.until("agentGone", |fact| fact["agent"]["id"] == orphan);
    assert_eq!(gone["agent"]["reason"], "orphaned");
    assert_eq!(guests(&sim), [10000, 10001, 10501, 10502, 10503]);
    assert_eq!(configs(), before, "somebody else's guest was touched");
}

// Invariant: an agent that died while nobody looked costs no lease: the next one is made for it.

#[test]
fn an_idle_agent_that_died_unseen_is_replaced_when_it_is_leased() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[], &[("linux", "labelString: linux")]));
    let _service = Service::start(&site);
    let lease = ask(&site, "linux", "first");
    let dead = ready(&site, &lease)["agent"].clone();
    release(&site, &lease);
    // Nobody asks the cluster about it before the lease is there.
    switch_off(&sim, "pve1", 10000);
    // Its key cannot be put there.
    let mut events = Events::follow(&site);
    let out = site.cli(&["lease", "--template", "linux", "--", "true"]);
    assert!(out.status.success(), "{out:?}");
    events.until("agentGone", |fact| fact["agent"]["id"] == dead);
}

// Invariant: an orphan that has just been found is left alone for the grace.

#[test]
fn an_orphan_is_left_alone_for_its_grace() {
    let (_dir, sim, site) = world();
    site.write_yaml(&yaml(&site, &sim, &[CLEAN], &[("linux", "")]));
    let _service = Service::start(&site);
    ready(&site, &ask(&site, "linux", "wire"));
    let own = agents(&site, "linux")[0]["id"].as_str().unwrap().to_owned();
    let like = sim.config("pve1", 10000);
    let (name, marks) = (like["name"].as_str().unwrap(), like["description"].as_str().unwrap());
    let marks =
        of_before(marks).replace(&own, "0123456789abcdef").replace("vmid 10000", "vmid 10500");
    let tags = format!("drover;drover-{}", name.rsplit('-').nth(1).unwrap());
    plant(&sim, "10500", &name.replace(&own, "0123456789abcdef"), &marks, &tags);
    assert!(site.cli(&["resync"]).status.success());
    let said = plan(&site, &[]);
    let left = said.split("left alone for ").nth(1).and_then(|rest| rest.split(' ').next());
    let left: u64 = left.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    assert!((200..=300).contains(&left), "300 s by default: {said}");
    assert!(sim.guests().contains(&10500));
}

// Invariant: the period is at least 30 s, changes while the service runs, and one of the service
// stands against every cloud's.

#[test]
fn the_period_changes_live_and_the_service_may_set_it_for_every_cloud() {
    let (_dir, sim, site) = world();
    let text = |cloud: &[&str]| yaml(&site, &sim, cloud, &[("linux", "")]);
    let (code, said) = checked(&site, &text(&["orphanCleanupPeriodSeconds: 29"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("give a number of seconds from 30"), "{said}");

    site.write_yaml(&text(&["orphanCleanupPeriodSeconds: 3600"]));
    let _service = Service::start(&site);
    let mut events = Events::follow(&site);
    let whole = text(&["orphanCleanupPeriodSeconds: 3600"]);
    let whole = whole.replace("service:\n", "service:\n  orphanCleanupPeriodSeconds: 30\n");
    site.write_yaml(&whole);
    events.until("configApplied", |_| true);
    let status = String::from_utf8_lossy(&site.cli(&["status"]).stdout).into_owned();
    let line = "every cloud is reconciled each 30 s: service.orphanCleanupPeriodSeconds";
    assert!(status.contains(line), "{status}");
    assert_eq!(site.json(&["status"])["config"]["orphanCleanupPeriodSeconds"], 30);
    let out = drover().arg("--config").arg(site.config()).arg("check").output().unwrap();
    assert!(String::from_utf8_lossy(&out.stdout).contains(line), "{out:?}");
    // At once, since the period changed, and then by itself.
    let at = |fact: Value| fact["at"].as_str().unwrap().to_owned();
    let first = at(events.until("reconciled", |_| true));
    let second = at(events.until("reconciled", |_| true));
    assert_ne!(first, second);
}
