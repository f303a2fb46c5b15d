#![expect(clippy::unwrap_used, reason = "a test may panic")]

use drover_model::ports::IdStatus;

use super::*;

fn marks(vmid: u32) -> Marks {
    Marks {
        installation: Installation::new("7k2m9qxw"),
        agent: AgentId::new("4f8z1c3px9t2vkab"),
        vmid: VmId(vmid),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        kind: Kind::Machine,
        guest: GuestType::Vm,
        seq: 7,
        cloud: "primary".into(),
        template: "gitea".into(),
        born: "2026-11-21T08:11:02Z".into(),
    }
}

fn wanted(vmid: Option<u32>) -> Wanted {
    Wanted {
        machine: DeclaredName::new("gitea"),
        installation: Installation::new("7k2m9qxw"),
        cloud: CloudId::new("primary"),
        cluster: ClusterId::new("9f31c0aa52e7d410"),
        vmid: vmid.map(VmId),
        confirmed: false,
        dry_run: false,
        fresh: Marks { agent: AgentId::new("0000000000000000"), ..marks(0) },
    }
}

fn listed(vmid: u32, name: &str) -> Listed {
    Listed {
        vmid: VmId(vmid),
        node: NodeName::new("pve1"),
        name: Some(name.to_owned()),
        tags: Vec::new(),
        lock: None,
        status: "running".into(),
        template: false,
        container: false,
    }
}

fn seen(vmid: u32, reading: Reading) -> (Listed, VmObservation) {
    let look = VmObservation {
        id: IdStatus::Taken,
        node: Some(NodeName::new("pve1")),
        marks: Some(reading),
        lock: None,
        running: Some(true),
    };
    (listed(vmid, "gitea"), look)
}

fn marked(vmid: u32, marks: Marks) -> (Listed, VmObservation) {
    seen(vmid, Reading::Marked(Box::new(marks)))
}

fn text(result: Result<Adoptable, Refusal>) -> String {
    match result {
        Err(Refusal::Conflict(text)) => text,
        other => panic!("no conflict: {other:?}"),
    }
}

// Invariant: without a VMID only the one guest is adopted whose marks prove it.

#[test]
fn marks_prove_one_guest_and_nothing_is_guessed() {
    let any = wanted(None);
    let found = any.judge(vec![marked(300, marks(300))]).unwrap();
    assert_eq!((found.proven, found.marks), (true, marks(300)));
    let copy = marked(301, marks(300));
    assert!(text(any.judge(vec![copy])).starts_with("no guest carries sound marks"));
    let both = vec![marked(300, marks(300)), marked(301, marks(301))];
    assert!(text(any.judge(both)).starts_with("several guests"));
    assert!(text(any.judge(vec![seen(300, Reading::Unmarked)])).starts_with("no guest"));
}

// Invariant: any other guest needs its VMID and the operator's word, and nobody else's is ever taken.

#[test]
fn a_guest_without_marks_needs_its_vmid_and_the_operators_word() {
    let mut named = wanted(Some(300));
    let refused = text(named.judge(vec![seen(300, Reading::Unmarked)]));
    assert!(refused.contains("cannot prove that guest `300` (gitea, on pve1)"), "{refused}");
    named.confirmed = true;
    let found = named.judge(vec![seen(300, Reading::Unmarked)]).unwrap();
    assert_eq!((found.proven, found.marks.vmid), (false, VmId(300)));
    assert_eq!(found.marks.agent, AgentId::new("0000000000000000"));
    let copy = named.judge(vec![marked(300, marks(9))]).unwrap();
    assert_eq!((copy.proven, copy.marks.vmid), (false, VmId(300)));
    let whose = [
        Marks { installation: Installation::new("zzzzzzzz"), ..marks(300) },
        Marks { kind: Kind::Agent, ..marks(300) },
        Marks { template: "other".into(), ..marks(300) },
    ];
    for marks in whose {
        let refused = text(named.judge(vec![marked(300, marks)]));
        assert!(refused.ends_with("it is somebody else's"), "{refused}");
    }
    let (listed, look) = seen(300, Reading::Unmarked);
    let locked = VmObservation { lock: Some("backup".into()), ..look };
    assert!(text(named.judge(vec![(listed, locked)])).contains("locked by Proxmox (backup)"));
}

#[test]
fn containers_templates_and_a_list_without_quorum_are_refused() {
    let named = wanted(Some(300));
    let survey = |guests: Vec<Listed>, quorate| Survey {
        guests,
        nodes: Vec::new(),
        quorate,
        age: Duration::ZERO,
    };
    let container = Listed { container: true, ..listed(300, "gitea") };
    let template = Listed { template: true, ..listed(300, "gitea") };
    for guest in [container, template] {
        let refused = named.candidates(survey(vec![guest], true));
        assert!(matches!(refused, Err(Refusal::Conflict(_))), "{refused:?}");
    }
    let refused = named.candidates(survey(vec![listed(300, "gitea")], false));
    assert!(matches!(refused, Err(Refusal::Unavailable(_))), "{refused:?}");
    let nameless = Listed { name: None, ..listed(302, "") };
    let guests = vec![listed(301, "other"), nameless];
    let found = wanted(None).candidates(survey(guests, true)).unwrap();
    assert_eq!(found.iter().map(|one| one.vmid).collect::<Vec<_>>(), [VmId(302)]);
    let refused = named.candidates(survey(vec![listed(301, "gitea")], true));
    assert!(matches!(refused, Err(Refusal::Unknown(_))), "{refused:?}");
}
