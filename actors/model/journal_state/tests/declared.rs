//! What the journal knows of declared machines.

use super::*;
use crate::declared::{DeclaredSpec, OnRemoval};
use crate::id::DeclaredName;
use crate::phase::{DriftKind, Power};

// Invariant: the journal knows every guest that may have been made for a declared machine.

pub(super) fn gitea() -> DeclaredSpec {
    DeclaredSpec {
        name: DeclaredName::new("gitea"),
        template: template("c/machines.gitea", &[]),
        installer: None,
        power: Power::Running,
        correct: [DriftKind::Power].into(),
        on_removal: OnRemoval::Delete,
    }
}

fn gitea_intended() -> Body {
    let marks = Marks { kind: Kind::Machine, seq: 0, ..marks("d1", 10_007) };
    let (node, spec) = (NodeName::new("n1"), Box::new(gitea()));
    Body::DeclaredIntended { marks: Box::new(marks), node, spec, adopted: false }
}

#[test]
fn a_declared_machine_is_known_from_its_intent_until_it_is_gone() {
    let (machine, node) = (AgentId::new("d1"), NodeName::new("n2"));
    let intended = folded(vec![gitea_intended()]);
    let entry = &intended.declared[&machine];
    assert_eq!((entry.marks.seq, entry.made, entry.removing), (1, false, false));
    let made = Body::DeclaredMade { machine: machine.clone(), node: node.clone() };
    let removing = Body::DeclaredRemoving { machine: machine.clone() };
    let all = folded(vec![gitea_intended(), made.clone(), removing.clone()]);
    let entry = &all.declared[&machine];
    assert_eq!((&entry.node, entry.made, entry.removing), (&node, true, true));
    let written = serde_json::to_vec(&all).unwrap();
    assert_eq!(serde_json::from_slice::<JournalState>(&written).unwrap(), all);
    for burned in [false, true] {
        let gone = Body::DeclaredGone { machine: machine.clone(), burned };
        let all = folded(vec![gitea_intended(), made.clone(), removing.clone(), gone]);
        assert!(all.declared.is_empty());
        let ids = if burned { &all.burned } else { &all.resting };
        assert!(ids[&entry.marks.cluster].contains_key(&VmId(10_007)));
    }
}

#[test]
fn a_machine_that_is_declared_again_is_not_destroyed_after_a_restart() {
    let machine = AgentId::new("d1");
    let removing = Body::DeclaredRemoving { machine: machine.clone() };
    let spec = Box::new(DeclaredSpec { on_removal: OnRemoval::Keep, ..gitea() });
    let again = Body::DeclaredChanged { machine: machine.clone(), spec: spec.clone() };
    let all = folded(vec![gitea_intended(), removing, again]);
    let entry = &all.declared[&machine];
    assert_eq!((entry.removing, &entry.spec), (false, &*spec));
}
