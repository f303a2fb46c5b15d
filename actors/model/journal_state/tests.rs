use super::*;
use crate::canary::{GoodSpec, Version};
use crate::marks::{Kind, Marks};
use crate::overridden::{CloudOverrides, Overridden, TemplateOverrides};
use crate::overrides::Change;
use crate::record::{HoldOwner, RECORD_VERSION};
use crate::testing::{ask, at, labels, marks, template};

mod declared;

fn folded(bodies: Vec<Body>) -> JournalState {
    let mut journal_state = JournalState::default();
    for (second, body) in (1..).zip(bodies) {
        apply(&mut journal_state, second, body);
    }
    journal_state
}

fn apply(journal_state: &mut JournalState, second: u64, body: Body) {
    let (seq, wall_time) = (journal_state.seq + 1, at(second).wall);
    journal_state.apply(&Record { version: RECORD_VERSION, seq, epoch: 1, wall_time, body });
}

fn intended(agent: &str, vmid: u32) -> Body {
    let spec = Box::new(template("c/t", &[]));
    Body::CloneIntended { marks: Box::new(marks(agent, vmid)), node: NodeName::new("pve1"), spec }
}

fn granted(agent: &str, lease: &str, asked: u64) -> Body {
    let ask = Box::new(ask(lease, labels(&[]), asked));
    Body::LeaseGranted { agent: AgentId::new(agent), ask, expires: at(9_999).wall, pending: true }
}

fn returned(agent: &str, lease: &str) -> Body {
    Body::LeaseReturned { agent: AgentId::new(agent), lease: LeaseId::new(lease) }
}

fn holders(journal_state: &JournalState) -> Vec<&str> {
    let held = journal_state.agents.iter().filter(|(_, entry)| !entry.leases.is_empty());
    held.map(|(agent, _)| agent.as_str()).collect()
}

// Invariant: a lease waits, is on one agent, or is over.

#[test]
fn a_lease_that_was_given_back_waits_in_the_order_of_asking() {
    let later = Body::LeaseAsked(Box::new(ask("l2", labels(&[]), 2)));
    let journal_state =
        folded(vec![intended("a1", 10_001), granted("a1", "l1", 1), later, returned("a1", "l1")]);
    let waiting: Vec<&str> = journal_state.waiting.iter().map(|ask| ask.lease.as_str()).collect();
    assert_eq!(waiting, ["l1", "l2"]);
    assert_eq!(holders(&journal_state), Vec::<&str>::new());
}

#[test]
fn a_lease_granted_elsewhere_before_it_was_given_back_stays_there() {
    let journal_state = folded(vec![
        intended("a1", 10_001),
        intended("a2", 10_002),
        granted("a1", "l1", 1),
        granted("a2", "l1", 1),
        returned("a1", "l1"),
    ]);
    assert_eq!(holders(&journal_state), ["a2"]);
    assert!(journal_state.waiting.is_empty());
    assert_eq!(journal_state.agents.values().map(|entry| entry.uses).max().unwrap(), 1);
}

// Invariant: journals written before there was a record of a removed key load, and mean the same.

#[test]
fn an_older_snapshot_that_only_knows_that_some_key_stayed_still_says_so() {
    let mut journal_state = folded(vec![intended("a1", 10_001), granted("a1", "l1", 1)]);
    let mut older = serde_json::to_value(&journal_state).unwrap();
    let entry = &mut older["agents"]["a1"];
    entry["unswept"] = true.into();
    entry.as_object_mut().unwrap().remove("expelling");
    journal_state = serde_json::from_value(older).unwrap();
    let entry = &journal_state.agents[&AgentId::new("a1")];
    assert!(entry.unswept && entry.expelling.is_empty());
}

#[test]
fn older_records_leave_a_key_to_be_removed_once_more_until_the_agent_is_ready() {
    let lease = LeaseId::new("l1");
    let mut journal_state = folded(vec![
        intended("a1", 10_001),
        with_key(granted("a1", "l1", 1)),
        granted("a1", "l2", 2),
        Body::LeaseEnded { lease: lease.clone(), why: "released".into(), cause: String::new() },
    ]);
    let agent = AgentId::new("a1");
    assert!(journal_state.agents[&agent].expelling.contains_key(&lease));
    let cleared = journal_state.clone();
    apply(&mut journal_state, 9, Body::Phase { agent: agent.clone(), state: AgentPhase::Ready });
    assert!(journal_state.agents[&agent].expelling.is_empty());
    journal_state = cleared;
    apply(&mut journal_state, 9, Body::KeyRemoved { agent: agent.clone(), lease });
    assert!(journal_state.agents[&agent].expelling.is_empty());
}

fn with_key(mut body: Body) -> Body {
    if let Body::LeaseGranted { ask, .. } = &mut body {
        ask.public_key = Some("ssh-ed25519 AAAA".into());
    }
    body
}

// Invariant: a lease is pending until it was ready once; journals of before do not say, and none of theirs
// is.

#[test]
fn a_lease_is_pending_until_it_was_ready_and_none_of_an_older_journal_is() {
    let (agent, lease) = (AgentId::new("a1"), LeaseId::new("l1"));
    let pending =
        |journal_state: &JournalState| journal_state.agents[&agent].leases[&lease].pending;
    let mut journal_state = folded(vec![intended("a1", 10_001), with_key(granted("a1", "l1", 1))]);
    assert!(pending(&journal_state));
    apply(&mut journal_state, 9, Body::LeaseReady { agent: agent.clone(), lease: lease.clone() });
    assert!(!pending(&journal_state));
    let mut older = serde_json::to_value(with_key(granted("a1", "l1", 1))).unwrap();
    assert_eq!(older["leaseGranted"]["pending"], true);
    older["leaseGranted"].as_object_mut().unwrap().remove("pending");
    let older = serde_json::from_value(older).unwrap();
    assert!(!pending(&folded(vec![intended("a1", 10_001), older])));
}

// Invariant: where a disc image may have been put is known for ever, also of agents that are gone.

#[test]
fn the_storages_of_images_are_known_when_their_agents_are_gone() {
    let agent = AgentId::new("a1");
    let image = Body::IsoIntended { agent: agent.clone(), volume: "nfs:iso/x.iso".into() };
    let gone = Body::Gone { agent, reason: Reason::Asked, burned: false };
    let journal_state = folded(vec![intended("a1", 10_001), image, gone]);
    let storages: Vec<_> = journal_state.image_storages.values().flatten().collect();
    assert_eq!(storages, ["nfs"]);
    let mut older = serde_json::to_value(&journal_state).unwrap();
    older.as_object_mut().unwrap().remove("imageStorages");
    assert!(serde_json::from_value::<JournalState>(older).unwrap().image_storages.is_empty());
}

// Invariant: an override holds from the moment it is written, also of an agent without a guest.

#[test]
fn an_override_written_before_the_clone_is_intended_is_the_agents_and_nobody_elses() {
    let set = |agent: &str| {
        let change = OverrideChange { max_uses: Change::Set(2), ..OverrideChange::default() };
        Body::OverrideSet { agent: AgentId::new(agent), change }
    };
    let mut journal_state = folded(vec![set("a1"), set("a2"), intended("a1", 10_001)]);
    let of = |journal_state: &JournalState| {
        journal_state.agents[&AgentId::new("a1")].commands.overrides.max_uses
    };
    assert_eq!(of(&journal_state), Some(2));
    assert_eq!(journal_state.early.len(), 1);
    let back = OverrideChange { max_uses: Change::TakeBack, ..OverrideChange::default() };
    apply(&mut journal_state, 9, Body::OverrideSet { agent: AgentId::new("a1"), change: back });
    assert_eq!(of(&journal_state), None);
    apply(&mut journal_state, 9, Body::Takeover { installation: Installation::new("12345678") });
    assert!(journal_state.early.is_empty(), "nobody is left in the queue after a start");
}

#[test]
fn a_snapshot_from_before_there_were_overrides_has_none() {
    let journal_state = folded(vec![intended("a1", 10_001)]);
    let mut older = serde_json::to_value(&journal_state).unwrap();
    older.as_object_mut().unwrap().remove("early");
    older["agents"]["a1"].as_object_mut().unwrap().remove("wishes");
    assert_eq!(serde_json::from_value::<JournalState>(older).unwrap(), journal_state);
}

// Invariant: an ended lease answers repeated asks for as long as it may, and is forgotten soon after.

#[test]
fn an_ended_lease_is_kept_for_a_day_if_it_has_a_key_and_else_for_an_hour() {
    let mut journal_state = JournalState::default();
    for (lease, key) in [("l1", Some("key")), ("l2", None)] {
        let mut ask = ask(lease, labels(&["linux"]), 0);
        (ask.key_hash, ask.public_key) = (key.map(str::to_owned), Some("ssh-ed25519 A".into()));
        let lease = ask.lease.clone();
        apply(&mut journal_state, 0, Body::LeaseAsked(Box::new(ask)));
        apply(
            &mut journal_state,
            0,
            Body::LeaseEnded { lease, why: "cancelled".into(), cause: String::new() },
        );
    }
    assert!(journal_state.ended.values().all(|ended| ended.ask.public_key.is_none()));
    let tick = || Body::Takeover { installation: Installation::new("12345678") };
    let (hour, day) = (3600, 24 * 3600);
    for (second, known) in [(hour - 1, 2), (hour + 599, 1), (day - 1, 1), (day + 599, 0)] {
        apply(&mut journal_state, second, tick());
        assert_eq!(journal_state.ended.len(), known, "after {second} s");
    }
}

#[test]
fn a_lease_of_a_source_is_forgotten_when_it_ends_and_when_its_agent_goes() {
    let mut journal_state = folded(vec![intended("a1", 10_001)]);
    for (lease, second) in [("l1", 1), ("l2", 2), ("l3", 3)] {
        let mut ask = ask(lease, labels(&["linux"]), 0);
        ask.source = Some(SourceId::new("ci")).filter(|_| lease != "l3");
        let (agent, expires) = (AgentId::new("a1"), at(99).wall);
        apply(
            &mut journal_state,
            second,
            Body::LeaseGranted { agent, ask: Box::new(ask), expires, pending: false },
        );
    }
    apply(
        &mut journal_state,
        4,
        Body::LeaseEnded { lease: LeaseId::new("l1"), why: "done".into(), cause: String::new() },
    );
    assert!(journal_state.ended.is_empty(), "nobody asks for it again");
    let (agent, reason) = (AgentId::new("a1"), Reason::Vanished);
    apply(&mut journal_state, 5, Body::Gone { agent, reason, burned: false });
    assert_eq!(journal_state.ended.keys().map(LeaseId::as_str).collect::<Vec<_>>(), ["l3"]);
}

#[test]
fn a_lease_that_ended_while_the_clock_was_ahead_is_forgotten_a_day_after_it_is_right() {
    const YEAR: u64 = 365 * 24 * 3600;
    let mut journal_state = JournalState::default();
    let mut ask = ask("l1", labels(&["linux"]), 0);
    ask.key_hash = Some("key".into());
    let lease = ask.lease.clone();
    apply(&mut journal_state, YEAR, Body::LeaseAsked(Box::new(ask)));
    apply(
        &mut journal_state,
        YEAR,
        Body::LeaseEnded { lease, why: "cancelled".into(), cause: String::new() },
    );
    let tick = || Body::Takeover { installation: Installation::new("12345678") };
    for (second, known) in [(0, 1), (24 * 3600 - 1, 1), (24 * 3600 + 599, 0)] {
        apply(&mut journal_state, second, tick());
        assert_eq!(journal_state.ended.len(), known, "after {second} s");
    }
}

// Invariant: a drain holds until it is taken back, and what an agent takes is known after a start.

// Invariant: a trouble is known since when in every later start, until it is over; an older journal knows of
// none.

#[test]
fn a_trouble_is_kept_since_when_it_is_until_it_is_over() {
    let node = Troubled::Node { cluster: marks("a", 1).cluster, node: NodeName::new("pve1") };
    let cloud = Troubled::Cloud { cloud: CloudId::new("c") };
    let trouble = |of: &Troubled, since: Option<u64>| Body::TroubleSince {
        of: of.clone(),
        since: since.map(|second| at(second).wall),
    };
    let mut journal_state = folded(vec![trouble(&node, Some(1)), trouble(&cloud, Some(2))]);
    apply(&mut journal_state, 9, trouble(&cloud, None));
    let written = serde_json::to_value(&journal_state).unwrap();
    let kept: JournalState = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(kept.troubled, [(node, at(1).wall)].into());
    let mut older = written;
    assert!(older.as_object_mut().unwrap().remove("troubled").is_some());
    let older: JournalState = serde_json::from_value(older).unwrap();
    assert!(older.troubled.is_empty());
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
    let journal_state = folded(vec![Body::CloneIntended { marks, node, spec }]);
    let entry = journal_state.agents.values().next().unwrap();
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
        place: Some(7),
    };
    let rows = BTreeSet::from([4, 9]);
    let (of, one) = (source.clone(), runner.clone());
    let numbered = Body::RowsNumbered { source: of, runner: one, rows: rows.clone() };
    let mut journal_state =
        folded(vec![worked(9), numbered.clone(), intended, worked(1), worked(2), numbered]);
    assert_eq!(journal_state.runners[&source][&runner].began, 2);
    assert_eq!(journal_state.runners[&source][&runner].rows, rows);
    apply(&mut journal_state, 9, Body::RowGone { source: source.clone(), runner: runner.clone() });
    apply(&mut journal_state, 10, worked(3));
    assert!(journal_state.runners.is_empty());
    let old = serde_json::json!({ "agent": "a1", "lease": "l1" });
    let old: RunnerEntry = serde_json::from_value(old).unwrap();
    assert_eq!((old.began, old.place), (0, None), "written before this was counted");
    assert!(old.rows.is_empty(), "written before rows were numbered");
    let old = serde_json::json!({
        "runnerIntended": { "agent": "a1", "lease": "l1", "source": "ci", "runner": "drover-a-b" },
    });
    let old: Result<Body, _> = serde_json::from_value(old);
    assert!(matches!(old, Ok(Body::RunnerIntended { place: None, .. })), "{old:?}");
}

// Invariant: nothing rests or is kept longer than its span, however the clock is set.

#[test]
fn what_began_while_the_clock_was_years_ahead_is_over_a_span_after_it_is_right_again() {
    const YEARS: u64 = 4 * 365 * 24 * 3600;
    let mut journal_state = JournalState::default();
    apply(&mut journal_state, YEARS, intended("a1", 100));
    let mut entry = journal_state.agents[&AgentId::new("a1")].clone();
    entry.addresses = vec![crate::addresses::AssignedAddress {
        cooldown_ms: 60_000,
        ..crate::addresses::AssignedAddress::fixed(IpAddr::from([10, 0, 0, 1]))
    }];
    journal_state.agents.insert(AgentId::new("a1"), entry);
    apply(&mut journal_state, YEARS, granted("a1", "l1", 0));
    let gone = Body::Gone { agent: AgentId::new("a1"), reason: Reason::Asked, burned: false };
    apply(&mut journal_state, YEARS, gone);
    let at = |journal_state: &mut JournalState, second| {
        apply(journal_state, second, Body::LeaseAsked(Box::new(ask("l9", labels(&[]), 0))))
    };
    at(&mut journal_state, 0);
    let rests = |journal_state: &JournalState| {
        journal_state.resting.values().map(BTreeMap::len).sum::<usize>()
    };
    assert_eq!(
        (rests(&journal_state), journal_state.resting_addresses.len(), journal_state.ended.len()),
        (1, 1, 1)
    );
    at(&mut journal_state, 3601);
    assert_eq!(
        (rests(&journal_state), journal_state.resting_addresses.len(), journal_state.ended.len()),
        (0, 0, 0)
    );
}

// Invariant: what an operator confirmed outlives the service, and older journals lack it.

#[test]
fn a_cluster_that_goes_on_and_the_machine_are_kept_and_an_older_snapshot_lacks_both() {
    let (cluster, now) = (ClusterId::new("c0"), ClusterId::new("c1"));
    let machine = Machine { id: Some("m1".into()), cards: ["n1".to_owned()].into() };
    let journal_state = folded(vec![
        Body::ClusterContinued { cluster: cluster.clone(), now: now.clone() },
        Body::MachineBound { machine: machine.clone() },
    ]);
    let written = serde_json::to_value(&journal_state).unwrap();
    let again: JournalState = serde_json::from_value(written.clone()).unwrap();
    assert_eq!((again.continued.get(&now), again.machine), (Some(&cluster), Some(machine)));
    let mut older = written;
    for key in ["continued", "machine"] {
        assert!(older.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    let older: JournalState = serde_json::from_value(older).unwrap();
    assert!(older.continued.is_empty() && older.machine.is_none());
}

// Invariant: whatever the journal says can be written as a snapshot, and read again.

#[test]
fn a_journal_state_with_something_in_each_map_is_read_as_it_was_written() {
    let (cluster, cloud) = (ClusterId::new("c0"), CloudId::new("c"));
    let template = TemplateId::new(cloud.clone(), "deb/12");
    let now = at(5).wall;
    let mut agents = folded(vec![intended("a1", 101), granted("a1", "l1", 1)]).agents;
    let owner = HoldOwner { principal: "token:ci".into(), group: Some("build".into()) };
    let hold = Hold { span_ms: 1, public_key: "ssh-ed25519 AAAA".into(), owner: Some(owner) };
    let ended = EndedLease {
        ask: ask("l2", labels(&["x"]), 1),
        agent: Some(AgentId::new("a1")),
        why: LOST.into(),
        cause: "its node lost power".into(),
        at: now,
    };
    let breaker = BreakerEntry {
        failures: 3,
        until: Some(now),
        cooldown_ms: 5,
        cause: "it did not boot".into(),
        version: Some("v".into()),
    };
    let scope = Scope::Storage(cluster.clone(), Some(NodeName::new("pve1")), "local".into());
    let address = IpAddr::from([10, 0, 0, 1]);
    for entry in agents.values_mut() {
        entry.expelling = entry.leases.clone();
        entry.commands.hold = Some(hold.clone());
    }
    let runner = RunnerEntry {
        agent: AgentId::new("a1"),
        lease: LeaseId::new("l1"),
        began: 1,
        place: Some(7),
        rows: [5].into(),
    };
    let ordered = OrderedBy { by: "token:ops".into(), at: now };
    // No default: a new field wants a value here.
    let mut overridden = Overridden::default();
    let cap = CloudOverrides { cap: Some(3) };
    overridden.set_cloud(&cloud, cap);
    let own = TemplateOverrides { minimum: Some(2), ..TemplateOverrides::default() };
    overridden.set_template(&template, own);
    let journal_state = JournalState {
        overridden,
        seq: 9,
        epoch: 2,
        installation: Some(Installation::new("7k2m9qxw")),
        clusters: [(cloud, cluster.clone())].into(),
        continued: [(ClusterId::new("c1"), cluster.clone())].into(),
        machine: Some(Machine { id: Some("m1".into()), cards: ["n1".to_owned()].into() }),
        agents,
        waiting: vec![ask("l3", labels(&[]), 2)],
        ended: [(LeaseId::new("l2"), ended)].into(),
        pruned: now,
        breakers: [(template.clone(), breaker.clone())].into(),
        places: [(scope, (template.clone(), breaker))].into(),
        resting: [(cluster.clone(), [(VmId(7), now)].into())].into(),
        resting_addresses: [(address, AddressRest { since: now, cooldown_ms: 9 })].into(),
        burned: [(cluster.clone(), [(VmId(8), now)].into())].into(),
        builds: [(
            AgentId::new("b1"),
            BuildEntry {
                marks: marks("b1", 9000),
                node: NodeName::new("n1"),
                version: AgentId::new("v1"),
                given: [("word".to_owned(), "hello".to_owned())].into(),
                iso: Some("local:iso/drover-7k2m9qxw-b1.iso".into()),
                sealed: Some(marks("v1", 9000)),
                failed: Some(BuildFailure { at: now, why: "no room".into(), made: true }),
                pruned: true,
            },
        )]
        .into(),
        failed_builds: vec![FailedBuild {
            build: AgentId::new("b1"),
            image: template.clone(),
            node: NodeName::new("n1"),
            version: AgentId::new("v1"),
            at: now,
            why: "no room".into(),
        }],
        ahead: [(cluster.clone(), (VmId(9), 77))].into(),
        early: [(
            AgentId::new("a2"),
            Commands { held_why: Some("it".into()), ..Commands::default() },
        )]
        .into(),
        image_storages: [(cluster.clone(), ["iso".to_owned()].into())].into(),
        drained: [(cluster.clone(), [NodeName::new("pve2")].into())].into(),
        cordoned: [(cluster.clone(), [NodeName::new("pve3")].into())].into(),
        ordered: [(cluster, [(NodeName::new("pve3"), ordered)].into())].into(),
        troubled: [(Troubled::Source { source: SourceId::new("ci") }, now)].into(),
        canaries: [(template.clone(), Canary::default())].into(),
        declared: [(
            AgentId::new("d1"),
            DeclaredEntry {
                marks: Marks { kind: Kind::Machine, ..marks("d1", 10_007) },
                node: NodeName::new("n1"),
                spec: declared::gitea(),
                made: true,
                removing: true,
            },
        )]
        .into(),
        hold_next: [(template, hold)].into(),
        runners: [(SourceId::new("ci"), [(RunnerName::new("r1"), runner)].into())].into(),
    };
    let written = serde_json::to_vec(&journal_state).unwrap();
    assert_eq!(serde_json::from_slice::<JournalState>(&written).unwrap(), journal_state);
    // As it was spelled before, when there could be nothing in them.
    let older = br#"{"breakers":{},"holdNext":{}}"#;
    assert_eq!(serde_json::from_slice::<JournalState>(older).unwrap(), JournalState::default());
}

#[test]
fn what_a_template_knows_of_its_versions_is_what_was_written_last() {
    let of = |canary: &Canary| {
        let template = template("c/t", &[]).id;
        Body::CanaryMoved { template, canary: canary.clone() }
    };
    let mut canary = Canary::default();
    let version = |image: &str| Version { image: image.into(), spec: "s".into() };
    canary.succeeded(&version("v1"));
    canary.failed(&version("v2"), "no address");
    let spec = Box::new(template("c/t", &[]));
    canary.good = Some(GoodSpec { digest: "s".into(), spec });
    let journal_state = folded(vec![of(&Canary::default()), of(&canary)]);
    assert_eq!(journal_state.canaries, [(template("c/t", &[]).id, canary.clone())].into());
    let written = serde_json::to_vec(&journal_state).unwrap();
    assert_eq!(serde_json::from_slice::<JournalState>(&written).unwrap(), journal_state);
    assert!(folded(vec![of(&canary), of(&Canary::default())]).canaries.is_empty());
}

#[test]
fn a_hold_from_before_holds_had_an_owner_has_none() {
    let older = br#"{"spanMs":1,"publicKey":"ssh-ed25519 AAAA"}"#;
    let hold = Hold { span_ms: 1, public_key: "ssh-ed25519 AAAA".into(), owner: None };
    assert_eq!(serde_json::from_slice::<Hold>(older).unwrap(), hold);
}

// Invariant: a lease is neither cut short nor stretched by a clock that is set while the service
// runs.

#[test]
fn what_is_left_of_a_span_stays_the_same_when_the_clock_is_set() {
    for by_ms in [48 * 3_600_000, -48 * 3_600_000] {
        let mut journal_state = folded(vec![intended("a1", 101), granted("a1", "l1", 1)]);
        let burned = Body::IdBurned { cluster: ClusterId::new("c0"), vmid: VmId(7) };
        apply(&mut journal_state, 3, burned);
        let cloud = Troubled::Cloud { cloud: CloudId::new("c") };
        let trouble = Body::TroubleSince { of: cloud.clone(), since: Some(at(4).wall) };
        apply(&mut journal_state, 5, trouble);
        let left = |journal_state: &JournalState, now: WallTime| {
            let entry = &journal_state.agents[&AgentId::new("a1")];
            let lease = &entry.leases[&LeaseId::new("l1")];
            (lease.left(now), now - entry.intended, lease.granted.map(|granted| now - granted))
        };
        let before = left(&journal_state, at(10).wall);
        let now = WallTime(at(10).wall.0 + by_ms);
        let (seq, version) = (journal_state.seq + 1, RECORD_VERSION);
        let body = Body::ClockSet { by_ms };
        journal_state.apply(&Record { version, seq, epoch: 1, wall_time: now, body });
        assert_eq!(left(&journal_state, now), before);
        assert!(before.0 > Duration::ZERO && before.1 > Duration::ZERO);
        let since = journal_state.burned[&ClusterId::new("c0")][&VmId(7)];
        assert_eq!(now - since, Duration::from_secs(7));
        assert_eq!(now - journal_state.troubled[&cloud], Duration::from_secs(6));
    }
}

// Invariant: a journal from before phases were written down is read, and its agents are taken up by
// what else it says of them.

#[test]
fn an_agent_whose_phase_was_not_written_down_is_read_and_keeps_saying_so() {
    let journal_state = folded(vec![intended("a1", 10_001)]);
    let agent = AgentId::new("a1");
    let spelled = serde_json::to_value(&journal_state).unwrap();
    let read = |state: Option<&str>| -> JournalState {
        let mut spelled = spelled.clone();
        let entry = spelled["agents"]["a1"].as_object_mut().unwrap();
        entry.remove("state").unwrap();
        entry.extend(state.map(|state| ("state".to_owned(), state.into())));
        serde_json::from_value(spelled).unwrap()
    };
    assert_eq!(
        read(Some(AgentPhase::Booting.name())).agents[&agent].state,
        Some(AgentPhase::Booting)
    );
    for older in [read(None), read(Some(""))] {
        assert_eq!(older.agents[&agent].state, None);
        assert_eq!(serde_json::to_value(&older).unwrap()["agents"]["a1"]["state"], "");
    }
}

#[test]
fn an_agent_whose_phase_was_not_written_down_is_taken_up_by_what_else_is_known() {
    let agent = AgentId::new("a1");
    let settled = Body::CloneSettled { agent: agent.clone(), node: NodeName::new("pve1") };
    let leased = granted("a1", "l1", 1);
    let retired = Body::RetireIntended { agent: agent.clone(), reason: Reason::Asked };
    let (why, command) = ("lock".into(), "qm unlock 10001".into());
    let stranded = Body::Stranded { agent: agent.clone(), why, command };
    let mut bodies = vec![intended("a1", 10_001)];
    for (body, phase) in [
        (None, AgentPhase::InDoubt),
        (Some(settled), AgentPhase::Configuring),
        (Some(leased), AgentPhase::Leased),
        (Some(retired), AgentPhase::Retiring),
        (Some(stranded), AgentPhase::Stranded),
    ] {
        bodies.extend(body);
        let mut entry = folded(bodies.clone()).agents.remove(&agent).unwrap();
        entry.state = None;
        assert_eq!(entry.phase(), phase);
    }
}
