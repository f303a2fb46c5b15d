//! Plans of configurations, as people and programs see them.

use drover_api::{
    CloudPlanOut, NumberOut, PlanOut, RollOut, TemplatePlanOut, UnservedOut, ValueChangeOut,
    WhatChangesOut,
};
use drover_model::plan::{Number, Plan, WhatChanges};
use drover_model::record::describe;

fn what_changes(what: WhatChanges) -> WhatChangesOut {
    match what {
        WhatChanges::Added => WhatChangesOut::Added,
        WhatChanges::Drained => WhatChangesOut::Drained,
        WhatChanges::Changed => WhatChangesOut::Changed,
    }
}

fn number((before, after): Number) -> NumberOut {
    NumberOut { before, after }
}

/// A plan as people and programs see it, with the values that differ.
pub fn plan_out(plan: &Plan, values: Vec<ValueChangeOut>) -> PlanOut {
    let clouds = plan.clouds.iter().map(|one| CloudPlanOut {
        cloud: one.cloud.to_string(),
        what: what_changes(one.what),
        cap: number(one.cap),
        reconnects: one.reconnects,
        going_now: one.going.now,
        going_after_leases: one.going.after_leases,
    });
    let templates = plan.templates.iter().map(|one| TemplatePlanOut {
        template: one.template.to_string(),
        what: what_changes(one.what),
        cap: number(one.cap),
        minimum: number(one.minimum),
        idle_minimum: number(one.idle_minimum),
        starting: one.starting,
        going_now: one.going.now,
        going_after_leases: one.going.after_leases,
        roll: one.roll.map(|roll| RollOut {
            idle: roll.idle,
            busy: roll.busy,
            at_once: roll.at_once,
            canary: roll.canary,
        }),
    });
    let unserved = plan.unserved.iter().map(|(whose, want, count)| UnservedOut {
        whose: whose.clone(),
        wants: describe(want),
        count: *count,
    });
    PlanOut {
        changes: !values.is_empty() || !plan.is_empty(),
        values,
        clouds: clouds.collect(),
        templates: templates.collect(),
        unserved: unserved.collect(),
        ..PlanOut::default()
    }
}
