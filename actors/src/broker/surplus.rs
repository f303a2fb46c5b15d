//! Agents that nobody needs any more: begun for leases that were given up before anything was
//! sent to the cluster for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::begin::Coming;
use super::matching::Matching;
use super::state::Broker;
use super::{AgentView, Demand, Order, takes};
use crate::id::AgentId;
use crate::message::Standing;
use crate::record::Want;
use crate::spec::TemplateSpec;

impl Broker {
    /// For each lease given up lets one queued agent go, unless other demand or the warm minimum
    /// needs it.
    pub(super) fn withdraw(&mut self, levels: &[Demand]) -> Vec<Order> {
        let wants = std::mem::take(&mut self.given_up);
        let mut orders = Vec::new();
        for want in wants {
            if let Some(agent) = self.surplus(&want, levels) {
                if let Some(view) = self.agents.get_mut(&agent) {
                    view.going = true;
                }
                orders.push(Order::Withdraw { agent });
            } else if self.starts_under_way(&want) {
                self.given_up.push(want);
            }
        }
        orders
    }

    /// A queued agent that serves a want and that nobody needs.
    fn surplus(&self, want: &Want, levels: &[Demand]) -> Option<AgentId> {
        let coming = self.coming();
        let before = unserved(&coming, levels, self);
        let queued =
            self.agents.iter().rev().filter(|(_, view)| {
                view.queued && !view.going && view.standing == Standing::Coming
            });
        let mut tried: BTreeSet<*const TemplateSpec> = BTreeSet::new();
        for (agent, view) in queued.filter(|(_, view)| self.serves(&view.spec, want)) {
            // Agents of one spec are all alike.
            if !tried.insert(Arc::as_ptr(&view.spec)) || self.warm(view) {
                continue;
            }
            let mut fewer = coming.clone();
            let its = fewer
                .iter_mut()
                .find(|one| Arc::ptr_eq(&one.spec, &view.spec) && one.owner == view.owner);
            if let Some(its) = its {
                its.uses = its.uses.saturating_sub(view.spec.executors.max(1));
            }
            if unserved(&fewer, levels, self) == before {
                return Some(agent.clone());
            }
        }
        None
    }

    /// Whether an agent on its way is part of what its template keeps without demand.
    fn warm(&self, view: &AgentView) -> bool {
        let Some(template) = self.templates.get(&view.spec.id) else { return false };
        let count = |counts: fn(Standing) -> bool| {
            let of_it = self.agents.values().filter(|other| {
                let of_it = other.spec.id == view.spec.id && !other.spec.trial;
                of_it && !other.going && counts(other.standing)
            });
            of_it.count()
        };
        let all = count(|standing| match standing {
            Standing::Coming | Standing::Free { .. } | Standing::Busy => true,
            Standing::Leaving | Standing::Parked | Standing::Gone => false,
        });
        let idle = count(|standing| {
            matches!(standing, Standing::Coming | Standing::Free { idle: true, .. })
        });
        let kept = template.kept;
        all <= kept.all as usize || idle <= kept.idle as usize
    }

    /// Whether agents may be on their way that have not been told of.
    fn starts_under_way(&self, want: &Want) -> bool {
        self.templates.values().any(|view| view.pending > 0 && self.serves(&view.spec, want))
    }
}

/// Uses that are wanted and that what is on its way has no room for.
fn unserved(coming: &[Coming], levels: &[Demand], broker: &Broker) -> u32 {
    let kinds = levels.iter().map(|level| {
        let fits = coming.iter().enumerate().filter(|(_, one)| {
            let takes = takes(one.owner.as_ref(), level.whose.as_ref());
            takes && broker.serves(&one.spec, &level.want)
        });
        fits.map(|(index, _)| index).collect()
    });
    let places = coming.iter().map(|one| one.uses).collect();
    let mut matching = Matching::new(kinds.collect(), places);
    let each = levels.iter().enumerate();
    each.map(|(kind, level)| level.count - matching.place_many(kind, level.count)).sum()
}
