//! Machines that die, and how long they may seem to live: nobody is handed one that was dead for
//! longer than the window, and the holder of each hears of it in time. Some of their SSH servers hang and
//! some machines die late, drawn by dice of their own for a part of the seeds; in another part idle
//! machines die, and are wanted between the end of the window and the moment at which they are known
//! to be dead.

use std::time::Duration;

use drover_model::ambient::Dice;
use drover_model::id::AgentId;
use tokio::time::Instant;

use super::draw::{index, one_of};
use super::plan::{Deed, Event, Plan};
use super::seen::Seen;
use super::watch::Watch;

/// How long after its SSH answered an agent may be handed out, and what a record takes.
const WINDOW: Duration = Duration::from_secs(15 + 2);
/// How long a lease on a machine that does not run may seem to last where nothing is in the way: a
/// list that lags, the next one, and the look that follows.
const KNOWN: Duration = Duration::from_secs(60);

/// How long nothing is in the way before leases on dead machines are looked for.
pub const CALM: Duration = Duration::from_secs(90);

/// How long after idle agents died somebody wants them, in milliseconds: later than the window, and mostly
/// before SSH counts as silent, which it does 25 s after its last answer at most.
const WANTED: (u64, u64) = (17_100, 20_000);
/// When idle agents may die.
const IDLE: (u64, u64) = (30_000, 300_000);
const TIMES: u32 = 6;
/// The first of those who ask then; others have other numbers.
const WHO: u32 = 300;

/// Lets SSH of guests hang in some of the seeds, and idle machines die in others.
pub fn lay(seed: u64, plan: &mut Plan) {
    lay_late(seed, plan);
    lay_idle(seed, plan);
    plan.events.sort_by_key(|event| event.at);
}

/// Idle machines die, and somebody wants them just behind the window.
fn lay_idle(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("idle deaths");
    if dice.below(2) > 0 {
        return;
    }
    for turn in 0..TIMES {
        let at = IDLE.0 + dice.below(IDLE.1 - IDLE.0);
        // Lists show soon that a machine is off; of one whose SSH alone is dead they say nothing.
        let hang = one_of(&mut dice, &[0, 40, 40, 600]);
        let after = WANTED.0 + dice.below(WANTED.1 - WANTED.0);
        let (pick, who) = (index(&mut dice, 3), WHO + 2 * turn);
        plan.events.push(Event { at, deed: Deed::Perish { pick, hang, after, who } });
    }
}

fn lay_late(seed: u64, plan: &mut Plan) {
    let mut dice = Dice::from_number(seed).fork("deaths");
    if dice.below(3) > 0 {
        return;
    }
    for _ in 0..4 {
        let at = 20_000 + dice.below(200_000);
        let seconds = one_of(&mut dice, &[5, 20, 60, 600]);
        plan.events.push(Event { at, deed: Deed::Hang { pick: index(&mut dice, 5), seconds } });
    }
    let last = plan.events.iter().map(|event| event.at).max().unwrap_or_default();
    for _ in 0..3 {
        let at = last + dice.below(5_000);
        plan.events.push(Event { at, deed: Deed::Kill(index(&mut dice, 5)) });
    }
}

impl Watch {
    /// How long the guest of an agent does not run, or its SSH hangs.
    fn dead_for(&self, seen: &Seen, agent: &AgentId) -> Option<(u32, Duration)> {
        let vmid = seen.live.get(agent)?.vmid?;
        let since = self.shell.silent_since(vmid)?;
        Some((vmid, Instant::now().saturating_duration_since(since)))
    }

    /// An agent is handed out.
    pub(super) fn handed_out(&self, seen: &mut Seen, agent: &AgentId) {
        let Some((vmid, dead)) = self.dead_for(seen, agent).filter(|(_, dead)| *dead > WINDOW)
        else {
            return;
        };
        let text = format!("{agent} is handed out, and {vmid} is dead for {dead:?}");
        self.blame(seen, "nothing-dead-is-handed-out", text);
    }

    /// Looks for leases on machines that do not run, where nothing has been in the way since then.
    pub fn dead_leases(&self, calm: Duration) {
        let mut seen = self.seen();
        let held = seen.leases.iter().filter(|(_, lease)| lease.holds && lease.over.is_none());
        let mut late = held.filter_map(|(id, lease)| {
            // What was ordered off is no loss.
            let agent = lease.agent.as_ref().filter(|agent| !seen.orders.knows(agent))?;
            let vmid = seen.live.get(agent)?.vmid?;
            let down = Instant::now().saturating_duration_since(self.shell.down_since(vmid)?);
            // Somebody's backup or migration is left alone, and strangers say nothing of an agent.
            let free = !self.side.config(vmid)?.contains_key("lock");
            let own = !seen.strangers.contains(&vmid);
            (free && own && down.min(calm) > KNOWN).then(|| (id.clone(), vmid, down))
        });
        let first = late.next();
        if let Some((lease, vmid, down)) = first {
            let text = format!("{lease} lasts, and its machine {vmid} is down for {down:?}");
            self.blame(&mut seen, "death-is-known-in-time", text);
        }
    }
}
