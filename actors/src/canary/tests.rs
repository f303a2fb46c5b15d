#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use drover_model::id::{NodeName, VmId};
use drover_model::placement::Sizes;

use super::*;
use crate::testing::template;

fn agent(id: &str) -> AgentId {
    AgentId::new(id)
}

type Herds = Shared<Canaries, role::Herd>;

/// A version by its number; its guests are called as drover calls them.
fn version(n: u32) -> AgentId {
    AgentId::new(format!("{n:016}"))
}

/// One guest of each of these versions.
fn found(versions: &[u32]) -> Found {
    let candidate = |n: &u32| Candidate {
        vmid: VmId(9000 + n),
        node: NodeName::new("pve1"),
        name: format!("debian-7k2m9qxw-{}", version(*n)),
        created: Some(u64::from(*n)),
        storages: ["lvm".to_owned()].into(),
        digest: String::new(),
        sizes: Sizes::default(),
    };
    let candidates = versions.iter().map(candidate).collect();
    Found { candidates, fleet: Arc::default(), whole: true }
}

fn spec() -> TemplateSpec {
    let search = Some(Sought::Image("debian".into()));
    TemplateSpec { canary: true, search, ..template("c/t", &[]) }
}

/// Knowledge of versions that are proven, and of versions that were given up.
fn known(proven: &[u32], given_up: &[u32]) -> Canary {
    let mut known = Canary::default();
    for n in proven {
        known.succeeded(&version(*n));
    }
    for n in given_up {
        (0..drover_model::canary::TRIES).for_each(|_| known.failed(&version(*n), "no address"));
    }
    known
}

fn herd_with(known: Canary) -> Herds {
    let herd = Herds::default();
    let canaries = [(spec().id, known)].into();
    herd.restore(&JournalState { canaries, ..JournalState::default() });
    herd
}

fn numbers(found: &Found) -> Vec<u32> {
    found.candidates.iter().map(|one| one.vmid.0 - 9000).collect()
}

// Invariant: while something proven is there, one agent at a time is cloned from anything else, and
// nobody from what was given up.

#[test]
fn what_may_be_cloned_follows_from_what_is_proven_given_up_and_tried() {
    for (proven, given_up, tries, there, usable) in [
        (&[][..], &[][..], false, &[1, 2][..], &[1, 2][..]),
        (&[], &[2], false, &[1, 2], &[1]),
        (&[], &[1, 2], false, &[1, 2], &[1, 2]),
        (&[1], &[], false, &[1, 2], &[1, 2]),
        (&[1], &[], true, &[1, 2], &[1]),
        (&[1], &[2], false, &[1, 2], &[1]),
        (&[1], &[2], false, &[1, 2, 3], &[1, 3]),
        (&[1], &[2], true, &[1, 2, 3], &[1]),
        (&[1], &[], true, &[2, 3], &[2, 3]),
        (&[1, 2], &[], true, &[1, 2, 3], &[1, 2]),
        (&[1], &[1], true, &[1, 2], &[2]),
    ] {
        let found = found(there);
        let may = super::usable(&known(proven, given_up), tries, &found);
        assert_eq!(numbers(&may), usable, "{proven:?} {given_up:?} {tries} {there:?}");
    }
}

#[test]
fn a_template_without_canary_may_be_cloned_from_everything() {
    let herd = herd_with(known(&[1], &[2]));
    let without = TemplateSpec { canary: false, ..spec() };
    let (found, cluster) = (found(&[1, 2, 3]), herd.playing::<role::Cluster>());
    cluster.started(&without, &agent("a1"), &version(3), &found);
    let (may, note) = herd.usable(&without, &found);
    assert_eq!((numbers(&may), note.as_str()), (vec![1, 2, 3], ""));
    assert!(!herd.tries(&without.id, &agent("a1")));
}

// Invariant: one agent at a time tries a version; its outcome decides, and its end makes room.

#[test]
fn one_agent_tries_and_what_becomes_of_it_decides() {
    let herd = herd_with(known(&[1], &[]));
    let (cluster, of_template) =
        (herd.playing::<role::Cluster>(), herd.playing::<role::Template>());
    let (spec, found) = (spec(), found(&[1, 2]));
    cluster.started(&spec, &agent("a0"), &version(1), &found);
    assert!(!herd.tries(&spec.id, &agent("a0")), "its version is proven");
    cluster.started(&spec, &agent("a1"), &version(2), &found);
    let (may, note) = herd.usable(&spec, &found);
    assert_eq!(numbers(&may), [1]);
    assert_eq!(note, "; canary: agent a1 tries version 0000000000000002 (VMID 9002)");
    of_template.left(&spec.id, &agent("a0"));
    assert!(herd.tries(&spec.id, &agent("a1")));
    of_template.left(&spec.id, &agent("a1"));
    assert_eq!(numbers(&herd.usable(&spec, &found).0), [1, 2], "another may try it");
    for n in 1..=3 {
        let (agent, of) = (agent(&format!("b{n}")), version(2));
        cluster.started(&spec, &agent, &of, &found);
        assert_eq!(of_template.failed(&spec.id, &agent, "no address"), Some((of, n == 3)));
        assert_eq!(of_template.failed(&spec.id, &agent, "no address"), None, "once");
    }
    let (may, note) = herd.usable(&spec, &found);
    assert_eq!(numbers(&may), [1]);
    assert_eq!(
        note,
        "; canary: version 0000000000000002 (VMID 9002) is not used, 3 of its agents failed: no \
         address; `drover breakers reset c/t` has it tried again"
    );
    let status = herd.status(&spec).unwrap();
    assert_eq!((status.proven, status.given_up.len()), (Some(version(1)), 1));
    assert!(of_template.forgive(&spec.id));
    cluster.started(&spec, &agent("c1"), &version(2), &found);
    assert!(of_template.succeeded(&spec, &agent("c1"), &version(2)));
    assert!(!of_template.succeeded(&spec, &agent("c2"), &version(2)), "it is known");
    assert_eq!(herd.status(&spec).unwrap().proven, Some(version(2)));
    assert!(!herd.tries(&spec.id, &agent("c1")));
}

// Invariant: a restart knows what was proven and given up, and goes on with the trial.

#[test]
fn a_restart_knows_the_versions_and_goes_on_with_the_trial() {
    use drover_model::phase::AgentPhase;
    use drover_model::template_image::Origin;

    let of = |n: u32, phase: AgentPhase| {
        let origin = Origin {
            home: NodeName::new("pve1"),
            storages: [].into(),
            local: [].into(),
            target: None,
            sizes: Sizes::default(),
            version: Some(version(n)),
            why: String::new(),
        };
        let spec = TemplateSpec { origin: Some(origin), ..spec() };
        crate::testing::entry("4f8z1c3px9t2vkab", 10_000, spec, phase)
    };
    for (n, phase, tries) in [
        (2, AgentPhase::Booting, true),
        (2, AgentPhase::Ready, false),
        (1, AgentPhase::Booting, false),
    ] {
        let herd = Herds::default();
        let canaries = [(spec().id, known(&[1], &[]))].into();
        let entry = of(n, phase);
        let id = entry.marks.agent.clone();
        let agents = [(id.clone(), entry)].into();
        herd.restore(&JournalState { canaries, agents, ..JournalState::default() });
        assert_eq!(herd.tries(&spec().id, &id), tries, "{n} {phase}");
        herd.playing::<role::Template>().sweep(&spec().id, |_| false);
        assert!(!herd.tries(&spec().id, &id));
    }
}

#[test]
fn what_is_known_is_written_down_as_a_whole() {
    let herd = herd_with(known(&[1], &[2]));
    let body = herd.record(&spec().id);
    assert_eq!(body, Body::CanaryMoved { template: spec().id, canary: known(&[1], &[2]) });
}
