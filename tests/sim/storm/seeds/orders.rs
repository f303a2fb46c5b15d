//! Orders to the machines of leases, drawn by dice of their own for a part of the seeds. No order costs
//! anybody a lease, a machine has one at a time, and one whose snapshots or sizes were changed serves
//! nobody after its present use.

use std::collections::BTreeMap;

use drover_model::ambient::Dice;
use drover_model::id::{AgentId, OrderId};
use drover_model::journal_state::JournalState;
use drover_model::order::{Order, Work};
use drover_model::phase::{OrderPhase, Power};
use drover_model::record::Body;
use drover_model::size::Size;

use super::draw::one_of;
use super::plan::{Deed, Event, Plan};

/// The snapshot that orders are about.
const NAME: &str = "one";
/// How long after somebody asked for a lease the first order comes, in milliseconds.
const FIRST: (u64, u64) = (20_000, 90_000);
/// How long after each order the next one comes.
const NEXT: (u64, u64) = (500, 60_000);

/// Has some give orders in some of the seeds.
pub fn lay(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("orders");
    if dice.below(3) > 0 {
        return;
    }
    let asks: Vec<(u64, u32)> = plan.events.iter().filter_map(asked).collect();
    for (asked, who) in asks {
        if dice.below(2) > 0 {
            continue;
        }
        let mut at = asked + within(&mut dice, FIRST);
        for _ in 0..1 + dice.below(5) {
            let work = work(&mut dice);
            plan.events.push(Event { at, deed: Deed::Order { who, work } });
            at += within(&mut dice, NEXT);
        }
    }
    plan.events.sort_by_key(|event| event.at);
}

fn asked(event: &Event) -> Option<(u64, u32)> {
    let Deed::Ask { who, .. } = event.deed else { return None };
    Some((event.at, who))
}

fn within(dice: &mut Dice, (least, most): (u64, u64)) -> u64 {
    least + dice.below(most - least)
}

fn work(dice: &mut Dice) -> Work {
    let power = [
        Work::Stop,
        Work::Start,
        Work::Shutdown,
        Work::Suspend,
        Work::Resume,
        Work::Reboot,
        Work::Reset,
    ];
    let name = || NAME.to_owned();
    match dice.below(12) {
        7 | 8 => {
            let (description, memory) = (String::new(), dice.below(2) == 0);
            Work::Snapshot { name: name(), description, memory }
        }
        9 => Work::Revert { name: name() },
        10 => Work::DeleteSnapshot { name: name() },
        11 => {
            let some =
                |of: &[u32], dice: &mut Dice| Some(one_of(dice, of)).filter(|size| *size > 0);
            let (cores, memory_mb) = (some(&[0, 1, 4], dice), some(&[0, 0, 3072], dice));
            Work::Resize(Size { cores, memory_mb, disk_gb: some(&[0, 40], dice) })
        }
        verb => power[usize::try_from(verb).unwrap()].clone(),
    }
}

/// What was ordered of machines, as records say it.
#[derive(Debug, Default)]
pub(super) struct Orders(BTreeMap<AgentId, Ordered>);

#[derive(Debug, Default)]
struct Ordered {
    running: Option<Order>,
    unclear: Option<OrderId>,
    altered: bool,
    /// Whether it may lack keys: a revert took them away, and it is not over, or failed before they
    /// were back.
    lacks_keys: bool,
}

impl Orders {
    /// The service starts with this journal.
    pub(super) fn begin(&mut self, journal_state: &JournalState) {
        let touched =
            journal_state.agents.iter().filter(|(_, entry)| !entry.machine.is_untouched());
        let ordered = touched.map(|(agent, entry)| {
            let (running, altered) = (entry.machine.running.clone(), entry.machine.altered);
            let last = entry.machine.past.last().map(|status| status.order.id.clone());
            let unclear = last.filter(|_| entry.machine.power == Power::Unknown);
            let all = entry.machine.all();
            let mut reverts =
                all.iter().rev().filter(|one| matches!(one.order.work, Work::Revert { .. }));
            let lacks_keys = reverts.next().is_some_and(|one| one.phase != OrderPhase::Done);
            (agent.clone(), Ordered { running, unclear, altered, lacks_keys })
        });
        self.0 = ordered.collect();
    }

    /// Whether any order was given to an agent's machine: then it may be stopped, and have other sizes.
    pub(super) fn knows(&self, agent: &AgentId) -> bool {
        self.0.contains_key(agent)
    }

    /// Whether an agent's machine was ordered back to a snapshot, and the keys of its holders are not
    /// said to be back.
    pub(super) fn lacks_keys(&self, agent: &AgentId) -> bool {
        self.0.get(agent).is_some_and(|ordered| ordered.lacks_keys)
    }

    /// The agent whose revert this record says is done: its holders' keys are in its guest.
    pub(super) fn put_back<'a>(&self, body: &'a Body) -> Option<&'a AgentId> {
        let Body::OrderEnded { agent, order, end } = body else { return None };
        let running = self.0.get(agent)?.running.as_ref().filter(|running| running.id == *order)?;
        let reverts = matches!(running.work, Work::Revert { .. });
        (reverts && end.phase == OrderPhase::Done).then_some(agent)
    }

    /// Whether an order that is written down and not over asks for such a call.
    pub(super) fn cover(&self, agent: &AgentId, call: &[&str]) -> bool {
        let running = self.0.get(agent).and_then(|ordered| ordered.running.as_ref());
        running.is_some_and(|order| match (&order.work, call) {
            (Work::Revert { name }, ["snapshot", one, "rollback"]) => name == one,
            (work, ["status", "stop" | "shutdown"]) => {
                matches!(work, Work::Stop | Work::Shutdown | Work::Reboot | Work::Revert { .. })
            }
            (work, ["status", verb]) => work.name() == *verb,
            _ => false,
        })
    }

    /// What a record says that must never be.
    pub(super) fn record(&mut self, body: &Body) -> Option<String> {
        match body {
            Body::MachineOrdered { agent, order } => {
                let ordered = self.0.entry(agent.clone()).or_default();
                ordered.altered |= order.work.alters();
                ordered.lacks_keys |= matches!(order.work, Work::Revert { .. });
                let before = ordered.running.replace((**order).clone());
                let other = before.filter(|before| before.id != order.id)?.id;
                Some(format!("{agent} is ordered {}, and {other} is not over", order.work))
            }
            Body::OrderEnded { agent, order, end } => {
                let ordered = self.0.entry(agent.clone()).or_default();
                // What an order left unclear is said once it is seen.
                if ordered.unclear.take_if(|unclear| unclear == order).is_some() {
                    return None;
                }
                ordered.unclear = (end.power == Power::Unknown).then(|| order.clone());
                let ended = ordered.running.take();
                let reverts = |order: &Order| matches!(order.work, Work::Revert { .. });
                ordered.lacks_keys &=
                    end.phase != OrderPhase::Done || !ended.as_ref().is_some_and(reverts);
                let running = ended.map(|order| order.id);
                let text = format!("{order} of {agent} ends, and {running:?} is carried out");
                (running.as_ref() != Some(order)).then_some(text)
            }
            Body::LeaseGranted { agent, ask, .. } => {
                let altered = self.0.get(agent).is_some_and(|ordered| ordered.altered);
                altered.then(|| format!("{agent} is altered, and {} is granted on it", ask.lease))
            }
            Body::Gone { agent, .. } => {
                self.0.remove(agent);
                None
            }
            _ => None,
        }
    }
}
