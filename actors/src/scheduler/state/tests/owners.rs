//! Agents that are kept for one owner.

use drover_model::record::Owner;

use super::*;

// Invariant: an agent that is kept for one owner serves that owner first and nobody else.

fn kept(spec: &Arc<TemplateSpec>, agent: &str, standing: Standing, owner: &str) -> AgentLevel {
    let mut kept = level(spec, agent, standing, &[]);
    Arc::make_mut(&mut kept.status).owner =
        Some(Owner { principal: "alice".into(), owner: owner.into() });
    kept
}

/// A scheduler over one template of one place, which an agent has that is kept for `first`.
fn with_kept(standing: Standing) -> (Scheduler, Vec<Arc<TemplateSpec>>) {
    let mut spec = template("c/t", &[]);
    spec.cap = Some(1);
    let spec = Arc::new(spec);
    let mut scheduler = Scheduler::default();
    scheduler.cloud(&spec.id.cloud, u32::MAX);
    let mut reported = news(&spec, 0);
    (reported.live, reported.agents) = (1, vec![kept(&spec, "a1", standing, "first")]);
    scheduler.news(&reported, at(0).wall);
    (scheduler, vec![spec])
}

fn wait_for(scheduler: &mut Scheduler, specs: &[Arc<TemplateSpec>], lease: &str, owner: &str) {
    let mut ask = ask(lease, named("t"), 1);
    (ask.principal, ask.owner) = ("alice".into(), owner.into());
    assert_eq!(scheduler.ask(&ask, specs), Asked::New);
    scheduler.recorded(&LeaseId::new(lease), true);
}

#[test]
fn a_kept_agent_serves_its_owner_and_makes_room_for_others_where_all_is_full() {
    let (mut scheduler, specs) = with_kept(IDLE);
    wait_for(&mut scheduler, &specs, "l1", "second");
    assert_eq!(text(&scheduler.decided()), ["evict a1"]);
    assert!(scheduler.decided().is_empty(), "one goes for one");
    let (mut scheduler, specs) = with_kept(IDLE);
    wait_for(&mut scheduler, &specs, "l1", "second");
    wait_for(&mut scheduler, &specs, "l2", "first");
    assert_eq!(text(&scheduler.decided()), ["l2 on a1"]);
    assert!(scheduler.decided().is_empty(), "it is in use, and nothing else can be had");
}

#[test]
fn a_kept_agent_stays_where_there_is_room_for_others() {
    let (mut scheduler, specs) = with_kept(IDLE);
    let mut roomy = (*specs[0]).clone();
    roomy.cap = Some(2);
    let roomy = Arc::new(roomy);
    let mut reported = news(&roomy, 1);
    (reported.live, reported.agents) = (1, vec![kept(&roomy, "a1", IDLE, "first")]);
    scheduler.news(&reported, at(0).wall);
    wait_for(&mut scheduler, &[roomy], "l1", "second");
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
    assert!(scheduler.decided().is_empty());
}

#[test]
fn an_agent_that_is_made_clean_is_waited_for_by_its_owner_alone() {
    let (mut scheduler, specs) = with_kept(Standing::Coming);
    scheduler.news(&TemplateNews { live: 1, ..news(&specs[0], 5) }, at(0).wall);
    wait_for(&mut scheduler, &specs, "l1", "first");
    assert!(scheduler.decided().is_empty());
    wait_for(&mut scheduler, &specs, "l2", "second");
    assert_eq!(text(&scheduler.decided()), ["start 1 c/t"]);
}
