//! A machine of which nobody can say whether it runs: an order failed or was cut short in the middle.
//!
//! drover looks at it until Proxmox shows it. One that runs is watched again as ever. One that is stopped
//! keeps its lease where an order could have stopped it, and is lost where none could. What was seen is
//! durable: it is the end of the last order, said again.

use std::time::Duration;

use drover_model::ambient::jittered;
use drover_model::order::OrderEnd;
use drover_model::phase::Power;
use drover_model::record::Body;

use crate::agent::event::{Call, Effect};
use crate::agent::mind::{Mind, Out};

/// The pause between two looks.
pub(super) const LOOKS: Duration = Duration::from_secs(15);
/// How long Proxmox may take to start a machine that an order stopped on its way.
pub(super) const STARTS: Duration = Duration::from_secs(60);

impl Mind {
    fn is_unsettled(&self) -> bool {
        self.machine.orders.power == Power::Unknown
            && self.machine.orders.running.is_none()
            && self.takes_orders()
    }

    /// Looks from now on where it is not known whether the machine runs; looks count after this span.
    pub(super) fn look_where_unknown(&mut self, span: Duration, out: &Out) {
        if self.is_unsettled() {
            self.machine.look = Some(out.now.mono);
            self.machine.settles = out.now.mono + span;
        }
    }

    /// Looks at the machine when that is due.
    pub(super) fn tick_look(&mut self, out: &mut Out) {
        let now = out.now.mono;
        if self.machine.look.is_none_or(|look| look > now) {
            return;
        }
        self.machine.look = None;
        if !self.is_unsettled() {
            return;
        }
        self.machine.look = Some(now + jittered(LOOKS, out.draw));
        if !self.adoption.is_unseen()
            && let Some(attempt) = self.in_flight.peek()
        {
            out.effects.push(Effect::Ask(attempt, Call::Look));
        }
    }

    /// A look found the machine, which nobody has locked. One that no order could have
    /// stopped counts as meant to run, and so is lost.
    pub(super) fn settle_power(&mut self, running: bool, out: &mut Out) {
        let still_at_work = out.now.mono < self.machine.settles;
        if !self.is_unsettled() || still_at_work {
            return;
        }
        let lost = !running && self.machine.orders.left_by(Power::Stopped).is_none();
        let power = if running || lost { Power::Running } else { Power::Stopped };
        self.machine.look = None;
        let Some(last) = self.machine.orders.past.last() else { return };
        let (id, seen) = (last.order.id.clone(), if running { "runs" } else { "is stopped" });
        let text = format!("{}; seen later: the machine {seen}", last.text);
        let end = OrderEnd { phase: last.phase, text, power, snapshot_taken: None };
        self.machine.orders.end(&id, &end, out.now.wall);
        out.record(Body::OrderEnded { agent: self.agent.clone(), order: id, end });
        if running {
            self.go_on_inside(out);
        }
    }
}
