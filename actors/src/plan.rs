//! What a configuration would do to what lives now, before it comes into force. Nothing is decided by it.
//!
//! In: the configuration in force and the next one, the living agents, and what is wanted at this moment.
//! Out: a [`Plan`]. It says what follows at once and after leases end; demand that comes later is not
//! foreseen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drover_model::id::{CloudId, TemplateId};
use drover_model::plan::{CloudPlan, Going, Plan, Roll, TemplatePlan, WhatChanges};
use drover_model::record::Want;
use drover_model::spec::{HerdSpec, TemplateSpec};
use drover_model::status::Standing;

use crate::roster::Living;
use crate::scheduler::routing::Routing;

/// Plans the way from a configuration to the next.
pub fn plan(now: &HerdSpec, next: &HerdSpec, agents: &[Living], wants: &[(String, Want)]) -> Plan {
    Plan {
        clouds: clouds(now, next, agents),
        templates: templates(now, next, agents),
        unserved: unserved(now, next, wants),
    }
}

fn clouds(now: &HerdSpec, next: &HerdSpec, agents: &[Living]) -> Vec<CloudPlan> {
    let ids: BTreeSet<&CloudId> = now.clouds.keys().chain(next.clouds.keys()).collect();
    let each = ids.into_iter().filter_map(|id| {
        let (was, is) = (now.clouds.get(id), next.clouds.get(id));
        let what = match (was, is) {
            (None, None) => return None,
            (None, Some(_)) => WhatChanges::Added,
            (Some(_), None) => WhatChanges::Drained,
            (Some(was), Some(is)) if was == is => return None,
            (Some(_), Some(_)) => WhatChanges::Changed,
        };
        let reconnects = was.zip(is).is_some_and(|(was, is)| was.connection != is.connection);
        let of = agents
            .iter()
            .filter(|agent| what == WhatChanges::Drained && agent.template.cloud == *id);
        Some(CloudPlan {
            cloud: id.clone(),
            what,
            cap: (was.and_then(|spec| spec.cap), is.and_then(|spec| spec.cap)),
            reconnects,
            going: going(of),
        })
    });
    each.collect()
}

fn templates(now: &HerdSpec, next: &HerdSpec, agents: &[Living]) -> Vec<TemplatePlan> {
    let mut by_template: BTreeMap<&TemplateId, Vec<&Living>> = BTreeMap::new();
    for agent in agents {
        by_template.entry(&agent.template).or_default().push(agent);
    }
    let ids: BTreeSet<&TemplateId> = now.templates.keys().chain(next.templates.keys()).collect();
    let each = ids.into_iter().filter_map(|id| {
        let (was, is) = (now.templates.get(id), next.templates.get(id));
        let own = by_template.get(id).map(Vec::as_slice).unwrap_or_default();
        template(id, was, is, own)
    });
    each.collect()
}

fn template(
    id: &TemplateId,
    was: Option<&Arc<TemplateSpec>>,
    is: Option<&Arc<TemplateSpec>>,
    agents: &[&Living],
) -> Option<TemplatePlan> {
    let (what, rolls) = match (was, is) {
        (None, None) => return None,
        (None, Some(_)) => (WhatChanges::Added, false),
        (Some(_), None) => (WhatChanges::Drained, false),
        (Some(was), Some(is)) => {
            let same = TemplateSpec { generation: is.generation, ..(**was).clone() } == **is;
            if same {
                return None;
            }
            (WhatChanges::Changed, was.version() != is.version())
        }
    };
    let number = |of: fn(&TemplateSpec) -> Option<u32>| {
        (was.and_then(|spec| of(spec)), is.and_then(|spec| of(spec)))
    };
    let drained = agents.iter().copied().filter(|_| what == WhatChanges::Drained);
    Some(TemplatePlan {
        template: id.clone(),
        what,
        cap: number(|spec| spec.cap),
        minimum: number(|spec| Some(spec.minimum)),
        idle_minimum: number(|spec| Some(spec.idle_minimum)),
        starting: is.map_or(0, |is| starting(is, agents)),
        going: going(drained),
        roll: is.filter(|_| rolls).map(|is| roll(is, agents)),
    })
}

/// Agents that start for the warm pool, as far as the template's own cap allows.
fn starting(spec: &TemplateSpec, agents: &[&Living]) -> u32 {
    let count = |counts: fn(Standing) -> bool| {
        let counted = agents.iter().filter(|agent| counts(agent.status.standing));
        u32::try_from(counted.count()).unwrap_or(u32::MAX)
    };
    let live = count(|standing| match standing {
        Standing::Coming | Standing::Free { .. } | Standing::Busy | Standing::Leaving => true,
        Standing::Parked | Standing::Gone => false,
    });
    let all = count(|standing| match standing {
        Standing::Coming | Standing::Free { .. } | Standing::Busy => true,
        Standing::Leaving | Standing::Parked | Standing::Gone => false,
    });
    let idle =
        count(|standing| matches!(standing, Standing::Coming | Standing::Free { idle: true, .. }));
    let wanted = spec.minimum.saturating_sub(all).max(spec.idle_minimum.saturating_sub(idle));
    spec.cap.map_or(wanted, |cap| wanted.min(cap.saturating_sub(live)))
}

fn roll(spec: &TemplateSpec, agents: &[&Living]) -> Roll {
    let mut roll = Roll { idle: 0, busy: 0, at_once: 0, canary: spec.canary };
    let kept = spec.minimum.max(spec.idle_minimum);
    roll.at_once = spec.roll_at_once.unwrap_or_else(|| kept.div_ceil(10).max(1));
    for agent in agents.iter().filter(|agent| !agent.spec.trial && !agent.spec.is_as(spec)) {
        match agent.status.standing {
            Standing::Coming | Standing::Free { idle: true, .. } => roll.idle += 1,
            Standing::Free { idle: false, .. } | Standing::Busy => roll.busy += 1,
            Standing::Leaving | Standing::Parked | Standing::Gone => {}
        }
    }
    roll
}

fn going<'a>(agents: impl Iterator<Item = &'a Living>) -> Going {
    let mut going = Going::default();
    for agent in agents {
        match agent.status.standing {
            Standing::Coming | Standing::Free { idle: true, .. } => going.now += 1,
            Standing::Free { idle: false, .. } | Standing::Busy => going.after_leases += 1,
            Standing::Leaving | Standing::Parked | Standing::Gone => {}
        }
    }
    going
}

/// What some template serves now, and none would.
fn unserved(
    now: &HerdSpec,
    next: &HerdSpec,
    wants: &[(String, Want)],
) -> Vec<(String, Want, usize)> {
    let serves = |spec: &HerdSpec, want: &Want| {
        let routing = Routing::new(&spec.mappings).with(spec.templates.values());
        spec.templates.values().any(|template| routing.serves(template, want))
    };
    let mut counts: BTreeMap<(String, String), (Want, usize)> = BTreeMap::new();
    for (whose, want) in wants {
        if serves(now, want) && !serves(next, want) {
            let key = (whose.clone(), drover_model::record::describe(want));
            counts.entry(key).or_insert_with(|| (want.clone(), 0)).1 += 1;
        }
    }
    counts.into_iter().map(|((whose, _), (want, count))| (whose, want, count)).collect()
}

#[cfg(test)]
mod tests;
