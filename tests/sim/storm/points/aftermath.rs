//! What must hold after any blow: the lease is served or the retirement completed, an administrator
//! is called only where the table says so and hears what to do, and nothing is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use drover_model::phase::{AgentPhase, LeasePhase};
use drover_model::status::AgentStatus;
use drover_server::view::View;

use super::Stage;
use super::script::Script;
use super::table::{Cause, Transition};

/// By then whatever can finish by itself has.
const LONG: Duration = Duration::from_secs(2 * 3600);

/// Lets the herd come to its end, and checks all of it.
pub async fn settle(
    stage: Stage,
    script: &Script,
    transition: &Transition,
    clones_twice: bool,
) -> Result<(), String> {
    let Stage { world, lease } = stage;
    let in_use = [AgentPhase::Leased, AgentPhase::Draining].contains(&transition.state);
    let over = |view: &View| view.lease(&lease).is_none_or(|seen| seen.state == LeasePhase::Ended);
    world
        .until("the lease is served", |view| {
            over(view) || view.lease(&lease).is_some_and(|seen| seen.state == LeasePhase::Ready)
        })
        .await;
    if !over(world.view()) {
        world.ready(&lease).await;
        world.release(&lease).await;
    } else if !in_use && !["released"].contains(&detail(&world, &lease).as_str()) {
        return Err(format!("the lease was not served: {}", detail(&world, &lease)));
    }
    if clones_twice {
        world.wire.forget_clones();
    }
    let started = tokio::time::Instant::now();
    let mut called = BTreeSet::new();
    loop {
        world.reap(true).await;
        world.pass(Duration::from_secs(60)).await;
        let agents = world.view().agents();
        if agents.is_empty() {
            break;
        }
        let alarms = world.view().alarms();
        let waits =
            |agent: &Arc<AgentStatus>| alarms.iter().any(|alarm| alarm.agent == agent.agent);
        if started.elapsed() > LONG && agents.iter().all(waits) {
            for agent in &agents {
                let vmid = agent.vmid.expect("a guest").0;
                let alarm = alarms.iter().find(|alarm| alarm.agent == agent.agent);
                let alarm = alarm.ok_or_else(|| format!("no alarm for {agent:?}"))?;
                if !alarm.command.contains(&vmid.to_string()) {
                    return Err(format!("the alarm names nothing to do: {alarm:?}"));
                }
                called.insert(alarm.text.clone());
                if script.strangers().contains_key(&vmid) {
                    world.side.remove_guest(vmid);
                } else {
                    world.administer(vmid);
                }
            }
        }
        if started.elapsed() > LONG * 2 {
            return Err(format!("agents stay: {agents:?}\n{}", world.notes.tail()));
        }
    }
    script.rest(&world);
    for (vmid, config) in script.strangers() {
        if let Some(seen) = world.side.config(vmid) {
            let seen: std::collections::BTreeMap<_, _> = seen.into_iter().collect();
            if seen != config {
                return Err(format!("a stranger was touched: {seen:?}, was {config:?}"));
            }
            world.side.remove_guest(vmid);
        } else if called.is_empty() {
            return Err(format!("a stranger was removed: {vmid}"));
        }
    }
    if !called.is_empty() && !expects_administrator(transition) {
        return Err(format!("an administrator was called: {called:?}"));
    }
    let wrongs = script.wrongs();
    if !wrongs.is_empty() {
        return Err(wrongs.join("\n"));
    }
    world.end().await;
    Ok(())
}

fn detail(world: &crate::world::World, lease: &drover_model::id::LeaseId) -> String {
    world.view().lease(lease).map(|seen| seen.detail).unwrap_or_default()
}

/// Whether only an administrator can finish it: where the table says so, and where a task died over a
/// guest that carries no marks.
fn expects_administrator(transition: &Transition) -> bool {
    let died = match &transition.cause {
        Cause::Reported(_) => false,
        Cause::Answered { after, answer, .. } => {
            let bare = ["Clone", "Destroy"].map(|call| Some(call.to_owned()));
            answer == "unknown end" && bare.contains(after)
        }
    };
    died || transition.target() == AgentPhase::Stranded
}
