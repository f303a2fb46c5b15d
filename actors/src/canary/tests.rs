#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use drover_model::id::{NodeName, VmId};
use drover_model::placement::Sizes;
use drover_model::template_image::Sought;

use super::*;
use crate::testing::template;

fn agent(id: &str) -> AgentId {
    AgentId::new(id)
}

type Herds = Shared<Canaries, role::Herd>;

/// An image by its number; its guests are called as drover calls them.
fn image(n: u32) -> String {
    format!("{n:016}")
}

/// A version of the template's own spec.
fn version(n: u32) -> Version {
    Version { image: image(n), spec: spec().version() }
}

/// One guest of each of these versions.
fn found(versions: &[u32]) -> Found {
    let candidate = |n: &u32| Candidate {
        vmid: VmId(9000 + n),
        node: NodeName::new("pve1"),
        name: format!("debian-7k2m9qxw-{}", image(*n)),
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

/// The same with another step, which makes another version of it.
fn other() -> TemplateSpec {
    TemplateSpec { ready_command: Some("true".into()), ..spec() }
}

/// The spec of an agent that is made by this one.
fn made(spec: &TemplateSpec) -> TemplateSpec {
    let made_as = Some(MadeAs { spec: spec.version(), steady: false });
    TemplateSpec { made_as, ..spec.clone() }
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
        let (spec, known) = (spec(), known(proven, given_up));
        let judging = Judging { known: &known, digest: spec.version(), spec: &spec };
        let may = judging.usable(tries, &found);
        assert_eq!(numbers(&may), usable, "{proven:?} {given_up:?} {tries} {there:?}");
    }
}

#[test]
fn a_template_without_canary_may_be_cloned_from_everything() {
    let herd = herd_with(known(&[1], &[2]));
    let without = TemplateSpec { canary: false, ..spec() };
    let (found, cluster) = (found(&[1, 2, 3]), herd.playing::<role::Cluster>());
    cluster.started(&without, &agent("a1"), &image(3), &found);
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
    cluster.started(&spec, &agent("a0"), &image(1), &found);
    assert!(!herd.tries(&spec.id, &agent("a0")), "its version is proven");
    cluster.started(&spec, &agent("a1"), &image(2), &found);
    let (may, note) = herd.usable(&spec, &found);
    assert_eq!(numbers(&may), [1]);
    assert_eq!(note, format!("; canary: agent a1 tries version {} (VMID 9002)", version(2)));
    of_template.left(&spec.id, &agent("a0"));
    assert!(herd.tries(&spec.id, &agent("a1")));
    of_template.left(&spec.id, &agent("a1"));
    assert_eq!(numbers(&herd.usable(&spec, &found).0), [1, 2], "another may try it");
    for n in 1..=3 {
        let agent = agent(&format!("b{n}"));
        cluster.started(&spec, &agent, &image(2), &found);
        let failed = || of_template.failed(&spec.id, &agent, None, "no address");
        assert_eq!(failed(), Some((version(2), n == 3)));
        assert_eq!(failed(), None, "once");
    }
    let (may, note) = herd.usable(&spec, &found);
    assert_eq!(numbers(&may), [1]);
    let expected = format!(
        "; canary: version {} (VMID 9002) is not used, 3 of its agents failed: no address; `drover \
         breakers reset c/t` has it tried again",
        version(2)
    );
    assert_eq!(note, expected);
    let status = herd.status(&spec).unwrap();
    assert_eq!((status.proven, status.given_up.len()), (Some(version(1)), 1));
    assert!(of_template.forgive(&spec.id));
    cluster.started(&spec, &agent("c1"), &image(2), &found);
    assert!(of_template.succeeded(&spec, &made(&spec), &agent("c1"), &image(2)));
    assert!(!of_template.succeeded(&spec, &made(&spec), &agent("c2"), &image(2)), "it is known");
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
            version: Some(image(n)),
            why: String::new(),
        };
        let spec = TemplateSpec { origin: Some(origin), ..made(&spec()) };
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

// Invariant: while a new spec must prove itself the last good one stands in, and one agent at a time
// tries the new one.

#[test]
fn a_good_spec_stands_in_for_a_new_one_until_that_is_proven() {
    let herd = Herds::default();
    let (cluster, of_template) =
        (herd.playing::<role::Cluster>(), herd.playing::<role::Template>());
    let (old, new, found) = (spec(), other(), found(&[1]));
    let stand_in = |spec: &TemplateSpec| herd.proving(spec).unwrap().stand_in;
    assert_eq!(stand_in(&old), None, "nothing is proven");
    assert!(of_template.succeeded(&old, &made(&old), &agent("a1"), &image(1)));
    assert_eq!((stand_in(&old), herd.proving(&new).unwrap().digest), (None, new.version()));
    let good = stand_in(&new).unwrap();
    assert_eq!((&*good.spec, good.digest, good.given_up), (&old, old.version(), false));
    for n in 1..=3 {
        let agent = agent(&format!("b{n}"));
        cluster.started(&made(&new), &agent, &image(1), &found);
        assert!(herd.tries(&new.id, &agent), "the old spec is there");
        let failed = of_template.failed(&new.id, &agent, None, "no address").unwrap();
        assert_eq!((failed.0.spec, failed.1), (new.version(), n == 3));
    }
    assert!(stand_in(&new).unwrap().given_up);
    assert_eq!(herd.status(&new).unwrap().given_up.len(), 1);
    let (_, note) = herd.usable(&new, &found);
    assert!(note.contains("(VMID 9001) is not used, 3 of its agents failed"), "{note}");
    // The old one again: it is proven.
    assert_eq!((stand_in(&old), herd.status(&old).unwrap().given_up.len()), (None, 0));
    // An agent of the old spec that gets ready meanwhile changes nothing.
    assert!(!of_template.succeeded(&new, &made(&old), &agent("a2"), &image(1)));
    assert!(of_template.forgive(&new.id) && !stand_in(&new).unwrap().given_up);
    assert!(of_template.succeeded(&new, &made(&new), &agent("c1"), &image(1)));
    assert_eq!(stand_in(&new), None);
    assert_eq!(stand_in(&old), None, "it is proven as well");
    let third = TemplateSpec { ready_command: Some("false".into()), ..spec() };
    assert_eq!(*stand_in(&third).unwrap().spec, new);
}

#[test]
fn agents_of_a_new_spec_for_which_nothing_is_found_use_its_tries_up() {
    let herd = herd_with(known(&[1], &[]));
    let of_template = herd.playing::<role::Template>();
    assert!(of_template.succeeded(&spec(), &made(&spec()), &agent("a1"), &image(1)));
    let made = made(&other()).made_as.unwrap();
    for n in 1..=3 {
        let failed = of_template.failed(&spec().id, &agent("b1"), Some(&made), "no such pool");
        assert_eq!(failed.unwrap().1, n == 3);
    }
    assert!(herd.proving(&other()).unwrap().stand_in.unwrap().given_up);
}

// Invariant: what another release of drover called a spec is still its name.

#[test]
fn a_spec_keeps_its_digest_when_drover_computes_another_one() {
    let mut known = Canary::default();
    let version = Version { image: image(1), spec: "of old".into() };
    known.succeeded(&version);
    known.good = Some(GoodSpec { digest: "of old".into(), spec: Box::new(spec()) });
    let herd = herd_with(known);
    let proving = herd.proving(&spec()).unwrap();
    assert_eq!((&*proving.digest, proving.stand_in), ("of old", None));
    assert_eq!(herd.proving(&other()).unwrap().stand_in.unwrap().digest, "of old");
}

// Invariant: a version that was given up is shown as long as it would be used otherwise.

#[test]
fn a_version_that_failed_is_not_shown_once_a_newer_one_is_proven_or_it_is_gone() {
    for (proven, there, shown) in [
        (&[1][..], &[1, 2][..], 1),
        (&[1], &[1, 2, 3], 1),
        (&[1, 3], &[1, 2, 3], 0),
        (&[1], &[1], 0),
        (&[1], &[1, 3], 0),
    ] {
        let herd = herd_with(known(proven, &[2]));
        herd.playing::<role::Cluster>().saw(&spec(), &found(there));
        let status = herd.status(&spec()).unwrap();
        assert_eq!(status.given_up.len(), shown, "{proven:?} {there:?}");
    }
}
