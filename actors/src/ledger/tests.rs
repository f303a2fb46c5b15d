use super::*;
use crate::overrides::Change;
use crate::record::RECORD_VERSION;
use crate::testbed::{ask, at, labels, marks, template};

fn folded(bodies: Vec<Body>) -> Ledger {
    let mut ledger = Ledger::default();
    for (second, body) in (1..).zip(bodies) {
        apply(&mut ledger, second, body);
    }
    ledger
}

fn apply(ledger: &mut Ledger, second: u64, body: Body) {
    let (seq, wall_time) = (ledger.seq + 1, at(second).wall);
    ledger.apply(&Record { version: RECORD_VERSION, seq, epoch: 1, wall_time, body });
}

fn intended(agent: &str, vmid: u32) -> Body {
    let spec = Box::new(template("c/t", &[]));
    Body::CloneIntended { marks: Box::new(marks(agent, vmid)), node: NodeName::new("pve1"), spec }
}

fn granted(agent: &str, lease: &str, asked: u64) -> Body {
    let ask = Box::new(ask(lease, labels(&[]), asked));
    Body::LeaseGranted { agent: AgentId::new(agent), ask, expires: at(9_999).wall }
}

fn returned(agent: &str, lease: &str) -> Body {
    Body::LeaseReturned { agent: AgentId::new(agent), lease: LeaseId::new(lease) }
}

fn holders(ledger: &Ledger) -> Vec<&str> {
    let held = ledger.agents.iter().filter(|(_, entry)| !entry.leases.is_empty());
    held.map(|(agent, _)| agent.as_str()).collect()
}

// Invariant: a lease waits, is on one agent, or is over.

#[test]
fn a_lease_that_was_given_back_waits_in_the_order_of_asking() {
    let later = Body::LeaseAsked(Box::new(ask("l2", labels(&[]), 2)));
    let ledger =
        folded(vec![intended("a1", 10_001), granted("a1", "l1", 1), later, returned("a1", "l1")]);
    let waiting: Vec<&str> = ledger.waiting.iter().map(|ask| ask.lease.as_str()).collect();
    assert_eq!(waiting, ["l1", "l2"]);
    assert_eq!(holders(&ledger), Vec::<&str>::new());
}

#[test]
fn a_lease_granted_elsewhere_before_it_was_given_back_stays_there() {
    let ledger = folded(vec![
        intended("a1", 10_001),
        intended("a2", 10_002),
        granted("a1", "l1", 1),
        granted("a2", "l1", 1),
        returned("a1", "l1"),
    ]);
    assert_eq!(holders(&ledger), ["a2"]);
    assert!(ledger.waiting.is_empty());
    assert_eq!(ledger.agents.values().map(|entry| entry.uses).max().unwrap(), 1);
}

// Invariant: journals written before there was a record of a removed key load, and mean the same.

#[test]
fn an_older_snapshot_that_only_knows_that_some_key_stayed_still_says_so() {
    let mut ledger = folded(vec![intended("a1", 10_001), granted("a1", "l1", 1)]);
    let mut older = serde_json::to_value(&ledger).unwrap();
    let entry = &mut older["agents"]["a1"];
    entry["unswept"] = true.into();
    entry.as_object_mut().unwrap().remove("expelling");
    ledger = serde_json::from_value(older).unwrap();
    let entry = &ledger.agents[&AgentId::new("a1")];
    assert!(entry.unswept && entry.expelling.is_empty());
}

#[test]
fn older_records_leave_a_key_to_be_removed_once_more_until_the_agent_is_ready() {
    let lease = LeaseId::new("l1");
    let mut ledger = folded(vec![
        intended("a1", 10_001),
        with_key(granted("a1", "l1", 1)),
        granted("a1", "l2", 2),
        Body::LeaseEnded { lease: lease.clone(), why: "released".into() },
    ]);
    let agent = AgentId::new("a1");
    assert!(ledger.agents[&agent].expelling.contains_key(&lease));
    let cleared = ledger.clone();
    apply(&mut ledger, 9, Body::Phase { agent: agent.clone(), state: "Ready".into() });
    assert!(ledger.agents[&agent].expelling.is_empty());
    ledger = cleared;
    apply(&mut ledger, 9, Body::KeyRemoved { agent: agent.clone(), lease });
    assert!(ledger.agents[&agent].expelling.is_empty());
}

fn with_key(mut body: Body) -> Body {
    if let Body::LeaseGranted { ask, .. } = &mut body {
        ask.public_key = Some("ssh-ed25519 AAAA".into());
    }
    body
}

// Invariant: where a disc image may have been put is known for ever, also of agents that are gone.

#[test]
fn the_storages_of_images_are_known_when_their_agents_are_gone() {
    let agent = AgentId::new("a1");
    let image = Body::IsoIntended { agent: agent.clone(), volume: "nfs:iso/x.iso".into() };
    let gone = Body::Gone { agent, reason: Reason::Asked, burned: false };
    let ledger = folded(vec![intended("a1", 10_001), image, gone]);
    let storages: Vec<_> = ledger.image_storages.values().flatten().collect();
    assert_eq!(storages, ["nfs"]);
    let mut older = serde_json::to_value(&ledger).unwrap();
    older.as_object_mut().unwrap().remove("imageStorages");
    assert!(serde_json::from_value::<Ledger>(older).unwrap().image_storages.is_empty());
}

// Invariant: an override holds from the moment it is written, also of an agent without a guest.

#[test]
fn an_override_written_before_the_clone_is_intended_is_the_agents_and_nobody_elses() {
    let set = |agent: &str| {
        let change = OverrideChange { max_uses: Change::Set(2), ..OverrideChange::default() };
        Body::OverrideSet { agent: AgentId::new(agent), change }
    };
    let mut ledger = folded(vec![set("a1"), set("a2"), intended("a1", 10_001)]);
    let of = |ledger: &Ledger| ledger.agents[&AgentId::new("a1")].wishes.overrides.max_uses;
    assert_eq!(of(&ledger), Some(2));
    assert_eq!(ledger.early.len(), 1);
    let back = OverrideChange { max_uses: Change::TakeBack, ..OverrideChange::default() };
    apply(&mut ledger, 9, Body::OverrideSet { agent: AgentId::new("a1"), change: back });
    assert_eq!(of(&ledger), None);
    apply(&mut ledger, 9, Body::Takeover { installation: Installation::new("12345678") });
    assert!(ledger.early.is_empty(), "nobody is left in the queue after a start");
}

#[test]
fn a_snapshot_from_before_there_were_overrides_has_none() {
    let ledger = folded(vec![intended("a1", 10_001)]);
    let mut older = serde_json::to_value(&ledger).unwrap();
    older.as_object_mut().unwrap().remove("early");
    older["agents"]["a1"].as_object_mut().unwrap().remove("wishes");
    assert_eq!(serde_json::from_value::<Ledger>(older).unwrap(), ledger);
}

// Invariant: an ended lease answers repeated asks for a day, and is forgotten soon after.

#[test]
fn an_ended_lease_is_kept_for_a_day_and_forgotten_within_ten_minutes() {
    let mut ledger = Ledger::default();
    let ask = ask("l1", labels(&["linux"]), 0);
    let lease = ask.lease.clone();
    apply(&mut ledger, 0, Body::LeaseAsked(Box::new(ask)));
    apply(&mut ledger, 0, Body::LeaseEnded { lease, why: "cancelled".into() });
    let tick = || Body::Takeover { installation: Installation::new("12345678") };
    for (second, known) in [(24 * 3600 - 1, 1), (24 * 3600 + 599, 0)] {
        apply(&mut ledger, second, tick());
        assert_eq!(ledger.ended.len(), known, "after {second} s");
    }
}

// Invariant: a drain holds until it is taken back, and what an agent takes is known after a start.

#[test]
fn a_drained_node_is_drained_in_every_later_start_until_it_is_used_again() {
    let drained = |node: &str, drained| Body::NodeDrained {
        cluster: marks("a", 1).cluster,
        node: NodeName::new(node),
        drained,
    };
    let mut ledger = folded(vec![drained("pve1", true), drained("pve2", true)]);
    apply(&mut ledger, 3, drained("pve2", false));
    let kept: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
    let sites = crate::placement::Sites::default();
    sites.restore(&kept);
    let at = marks("a", 1).cluster;
    assert!(sites.is_drained(&at, &NodeName::new("pve1")));
    assert!(!sites.is_drained(&at, &NodeName::new("pve2")));
}

#[test]
fn a_journal_from_before_sizes_were_written_still_folds() {
    let Body::CloneIntended { marks, node, spec } = intended("a1", 10_001) else { unreachable!() };
    let mut written = serde_json::to_value(&*spec).unwrap();
    written.as_object_mut().unwrap().remove("placement");
    let home = "{\"home\": \"pve1\", \"storages\": [\"nfs\"], \"why\": \"\"}";
    let origin: serde_json::Value = serde_json::from_str(home).unwrap();
    written["origin"] = origin;
    let spec = Box::new(serde_json::from_value(written).unwrap());
    let ledger = folded(vec![Body::CloneIntended { marks, node, spec }]);
    let entry = ledger.agents.values().next().unwrap();
    let origin = entry.spec.origin.clone().unwrap();
    assert_eq!((origin.sizes, origin.target), (crate::placement::Sizes::default(), None));
}

// Invariant: what a runner has done so far outlives a start of the service, and goes with it.

#[test]
fn how_many_jobs_began_on_a_runner_is_known_until_it_is_gone() {
    let (source, runner) = (SourceId::new("ci"), RunnerName::new("drover-a-b"));
    let worked =
        |began| Body::RunnerWorked { source: source.clone(), runner: runner.clone(), began };
    let intended = Body::RunnerIntended {
        agent: AgentId::new("a1"),
        lease: LeaseId::new("l1"),
        source: source.clone(),
        runner: runner.clone(),
    };
    let mut ledger = folded(vec![worked(9), intended, worked(1), worked(2)]);
    assert_eq!(ledger.runners[&source][&runner].began, 2);
    apply(&mut ledger, 9, Body::RowGone { source: source.clone(), runner: runner.clone() });
    apply(&mut ledger, 10, worked(3));
    assert!(ledger.runners.is_empty());
    let old = serde_json::json!({ "agent": "a1", "lease": "l1" });
    let old: RunnerEntry = serde_json::from_value(old).unwrap();
    assert_eq!(old.began, 0, "written before this was counted");
}
