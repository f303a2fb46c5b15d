//! Which disc images go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drover_model::fault::{Culprit, FaultKind};
use drover_model::id::{ClusterId, NodeName, VmId};

use super::*;
use crate::testing::{CLUSTER, at, survey};

const CONFIG: Config = Config {
    cleanup_orphans: true,
    orphan_grace: Duration::from_secs(300),
    node_grace: Duration::from_secs(120),
};

fn known() -> Known {
    Known {
        installation: Installation::new("7k2m9qxw"),
        cluster: ClusterId::new(CLUSTER),
        agents: BTreeMap::new(),
        builds: BTreeSet::new(),
        last_seq: 100,
        since: crate::testing::at(0).wall,
    }
}

fn image(name: &str) -> ImageObservation {
    ImageObservation { node: NodeName::new("pve1"), volume: format!("local:iso/{name}") }
}

fn unknown() -> ImageObservation {
    image("drover-7k2m9qxw-4f8z1c3px9t2vkab.iso")
}

/// Texts and removals of a list, some seconds after the first one.
fn judged(
    images: &[ImageObservation],
    named: &[&str],
    config: Config,
    memory: &mut Memory,
    seconds: u64,
) -> (Vec<String>, Vec<ImageObservation>) {
    let named = named.iter().map(AgentId::new).collect();
    let now = at(seconds).mono;
    let judged = judge(Ok(images.to_vec()), &named, &known(), config, memory, now);
    (judged.findings.into_iter().map(|found| found.text).collect(), judged.remove)
}

// Invariant: an image goes when its agent is unknown, its guest is not listed, and the grace has
// passed without a break; nothing else ever goes.

#[test]
fn a_leftover_goes_after_the_grace_and_starts_again_when_it_was_away() {
    let mut memory = Memory::default();
    let (reported, gone) = judged(&[unknown()], &[], CONFIG, &mut memory, 0);
    assert!(reported[0].ends_with("left alone for 300 s more"), "{reported:?}");
    assert_eq!(gone, []);
    assert_eq!(judged(&[unknown()], &[], CONFIG, &mut memory, 299).1, []);
    let (reported, gone) = judged(&[unknown()], &[], CONFIG, &mut memory, 300);
    assert!(reported[0].ends_with("is removed"), "{reported:?}");
    assert_eq!(gone, [unknown()]);
    assert_eq!(judged(&[], &[], CONFIG, &mut memory, 301).1, []);
    assert_eq!(judged(&[unknown()], &[], CONFIG, &mut memory, 601).1, []);
}

#[test]
fn what_is_not_exactly_ours_or_has_a_guest_is_not_even_reported() {
    let mut memory = Memory::default();
    let others = [
        image("debian.iso"),
        image("drover-00000000-4f8z1c3px9t2vkab.iso"),
        image("drover-7k2m9qxw-4f8z1c3px9t2vkab.img"),
    ];
    assert_eq!(judged(&others, &[], CONFIG, &mut memory, 0), (vec![], vec![]));
    let named = ["4f8z1c3px9t2vkab"];
    assert_eq!(judged(&[unknown()], &named, CONFIG, &mut memory, 9_000), (vec![], vec![]));
}

#[test]
fn an_older_journal_and_cleaning_that_is_off_leave_them() {
    let mut ahead = Memory::restored(Some((VmId(10_001), 500)), BTreeSet::new());
    let off = Config { cleanup_orphans: false, ..CONFIG };
    let mut plain = Memory::default();
    for (config, memory) in [(CONFIG, &mut ahead), (off, &mut plain)] {
        judged(&[unknown()], &[], config, memory, 0);
        let (reported, gone) = judged(&[unknown()], &[], config, memory, 9_000);
        assert_eq!((reported.len(), gone), (1, vec![]), "{reported:?}");
    }
}

#[test]
fn a_list_that_could_not_be_read_forgets_nothing() {
    let mut memory = Memory::default();
    judged(&[unknown()], &[], CONFIG, &mut memory, 0);
    let fault = Fault::new(FaultKind::Contention, Culprit::Guest, "no answer");
    let none = BTreeSet::new();
    let now = at(100).mono;
    let reported = judge(Err(fault), &none, &known(), CONFIG, &mut memory, now);
    assert!(reported.findings[0].text.starts_with("disc images could not be listed"));
    assert_eq!(judged(&[unknown()], &[], CONFIG, &mut memory, 300).1, [unknown()]);
}

#[test]
fn guests_are_known_by_the_names_of_this_installation() {
    let mut seen = survey();
    seen.guests.clear();
    assert_eq!(named(&seen, &Installation::new("7k2m9qxw")), BTreeSet::new());
    seen.guests.push(drover_model::ports::Listed {
        vmid: VmId(1),
        node: NodeName::new("pve1"),
        name: Some("linux-7k2m9qxw-4f8z1c3px9t2vkab".into()),
        tags: Vec::new(),
        lock: None,
        status: "running".into(),
        template: false,
        container: false,
    });
    let agents = named(&seen, &Installation::new("7k2m9qxw"));
    assert_eq!(agents.into_iter().collect::<Vec<_>>(), [AgentId::new("4f8z1c3px9t2vkab")]);
    assert_eq!(named(&seen, &Installation::new("00000000")), BTreeSet::new());
}
