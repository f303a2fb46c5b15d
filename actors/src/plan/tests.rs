//! What plans say of agents that live.

use std::collections::BTreeSet;

use drover_model::overrides::Overrides;
use drover_model::phase::AgentPhase;
use drover_model::testing::{agent_status, at, cloud, herd, template};

use super::*;

const IDLE: Standing = Standing::Free { executors: 1, idle: true };

fn living(spec: &TemplateSpec, agent: &str, standing: Standing) -> Living {
    Living {
        template: spec.id.clone(),
        spec: Arc::new(spec.clone()),
        status: Arc::new(agent_status(agent, &spec.id, AgentPhase::Ready, standing)),
        overrides: Overrides::default(),
        born: at(0).wall,
        place: None,
    }
}

fn labels(all: &[&str]) -> Want {
    Want::Labels(all.iter().map(|label| (*label).to_owned()).collect::<BTreeSet<String>>())
}

// Invariant: who is busy goes after its leases alone, and nobody goes twice.

#[test]
fn agents_of_a_drained_cloud_go_idle_ones_at_once_and_busy_ones_after_their_leases() {
    let (a, b) = (template("a/t", &[]), template("b/t", &[]));
    let now = herd(vec![cloud("a", None), cloud("b", None)], vec![a.clone(), b.clone()]);
    let next = herd(vec![cloud("b", None)], vec![b.clone()]);
    let agents = [living(&a, "a1", IDLE), living(&a, "a2", Standing::Busy), living(&b, "b1", IDLE)];
    let plan = plan(&now, &next, &agents, &[]);
    let gone = Going { now: 1, after_leases: 1 };
    assert_eq!(
        (plan.clouds.len(), plan.clouds[0].what, plan.clouds[0].going),
        (1, WhatChanges::Drained, gone)
    );
    assert_eq!((plan.templates.len(), plan.templates[0].going), (1, gone));
}

// Invariant: what stays as it is is not in a plan.

#[test]
fn the_same_configuration_changes_nothing() {
    let spec = template("a/t", &[]);
    let now = herd(vec![cloud("a", None)], vec![spec.clone()]);
    let mut next = (*now).clone();
    next.generation.0 += 1;
    assert!(plan(&now, &next, &[living(&spec, "a1", IDLE)], &[]).is_empty());
}

// Invariant: agents that a roll-out replaces are those that the next version would make otherwise.

#[test]
fn a_new_version_rolls_idle_agents_and_leaves_busy_ones_until_they_are_idle() {
    let old = template("a/t", &[]);
    let new = TemplateSpec { cores: Some(9), minimum: 3, canary: true, ..old.clone() };
    let now = herd(vec![cloud("a", None)], vec![old.clone()]);
    let next = herd(vec![cloud("a", None)], vec![new.clone()]);
    let agents = [
        living(&old, "a1", IDLE),
        living(&old, "a2", Standing::Busy),
        living(&new, "a3", IDLE),
        living(&old, "a4", Standing::Leaving),
    ];
    let plan = plan(&now, &next, &agents, &[]);
    let one = &plan.templates[0];
    assert_eq!(one.roll, Some(Roll { idle: 1, busy: 1, at_once: 1, canary: true }));
    assert_eq!((one.minimum, one.starting), ((Some(0), Some(3)), 0));
}

// Invariant: what nothing served before is not said to be lost.

#[test]
fn a_want_that_loses_its_only_template_is_named_with_its_count() {
    let now = herd(vec![cloud("a", None)], vec![template("a/t", &["linux", "gpu"])]);
    let next = herd(vec![cloud("a", None)], vec![template("a/t", &["linux"])]);
    let of = |all: &[&str]| ("source git".to_owned(), labels(all));
    let wants = [of(&["gpu"]), of(&["gpu"]), of(&["linux"]), of(&["arm"])];
    let plan = plan(&now, &next, &[], &wants);
    assert_eq!(plan.unserved, [("source git".to_owned(), labels(&["gpu"]), 2)]);
}
