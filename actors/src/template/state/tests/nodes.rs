//! Nodes that are used again.

use drover_model::id::NodeName;

use super::*;

// Invariant: an uncordon ends the pause of what found no place and what is said of it, and no other
// pause.

fn node_opened(mind: &mut TemplateMind, now: u64) {
    mind.effects_of(Event::NodeOpened(NodeName::new("pve1")), at(now), 0);
}

#[test]
fn a_node_that_is_used_again_ends_the_pause_of_an_agent_that_found_no_place() {
    let mut mind = mind(|_| {});
    let agents = begin(&mut mind, 1, Some(1), 0);
    gone(&mut mind, &agents[0], fault(FaultKind::Contention), 1);
    assert_eq!((mind.room(at(1).mono), mind.paused(at(1).mono).is_some()), (0, true));
    node_opened(&mut mind, 1);
    assert_ne!(mind.room(at(1).mono), 0, "it is tried at once");
    assert_eq!(mind.paused(at(1).mono), None);
}

#[test]
fn a_node_that_is_used_again_ends_no_pause_after_an_agent_that_had_a_place() {
    let mut mind = mind(|_| {});
    let agents = begin(&mut mind, 1, Some(1), 0);
    heard(&mut mind, &agents[0], Standing::Coming, None, 1);
    gone(&mut mind, &agents[0], fault(FaultKind::Contention), 1);
    node_opened(&mut mind, 1);
    assert_eq!((mind.room(at(1).mono), mind.paused(at(1).mono).is_some()), (0, true));
}

#[test]
fn what_can_be_cloned_is_looked_up_before_anything_starts_on_a_node_that_is_used_again() {
    let mut mind = mind(|_| {});
    let source = Err("node `pve1`: it is cordoned: `drover uncordon pve1`".to_owned());
    mind.effects_of(Event::Located { source, version: None }, at(1), 0);
    node_opened(&mut mind, 1);
    let said = "node `pve1` is used again, and drover looks what can be cloned";
    assert_eq!(mind.paused(at(1).mono).as_deref(), Some(said));
    assert_eq!(mind.room(at(1).mono), 0);
}
