//! What runs otherwise than git has it: edits of the managed copies, and what operators say of templates
//! and clouds.

use std::time::Duration;

use drover_api::{SyncOut, ValueChangeOut};
use drover_model::id::CloudId;
use drover_model::overridden::TemplateOverrides;
use drover_model::spec::TemplateSpec;

use crate::view::View;

/// The state of the sync with all that differs from git; none where no repository is configured.
pub(super) fn sync(view: &View) -> Option<SyncOut> {
    let mut sync = view.sync()?;
    let configured = view.configured();
    let managed = |cloud: &CloudId| sync.clouds.iter().any(|one| one == cloud.as_str());
    let mut all = Vec::new();
    for cloud in view.clouds().into_iter().filter(|one| managed(&one.cloud)) {
        if let (Some(after), Some(spec)) =
            (cloud.overrides.cap, configured.clouds.get(&cloud.cloud))
        {
            let path = format!("cloudConfigurations.{}.instanceCap", cloud.cloud);
            all.push(change(path, spec.cap.unwrap_or(0), after));
        }
    }
    for template in view.templates().into_iter().filter(|one| managed(&one.template.cloud)) {
        let id = &template.template;
        let Some(spec) = configured.templates.get(id) else { continue };
        let as_configured = values_of(spec);
        for (key, after) in template.overrides.values() {
            let path = format!("agentConfigurations.{}.{key} (cloud {})", id.name, id.cloud);
            let before = as_configured.values().find(|(known, _)| *known == key);
            all.push(change(path, before.map_or(0, |(_, value)| value), after));
        }
    }
    sync.manual_changes.extend(all);
    Some(sync)
}

/// The values of a configuration that operators can say otherwise, 0 for no limit.
fn values_of(spec: &TemplateSpec) -> TemplateOverrides {
    let minutes = |idle: Duration| u32::try_from(idle.as_secs() / 60).unwrap_or(u32::MAX);
    TemplateOverrides {
        cap: Some(spec.cap.unwrap_or(0)),
        minimum: Some(spec.minimum),
        idle_minimum: Some(spec.idle_minimum),
        idle_minutes: Some(spec.idle.map_or(0, minutes)),
        max_uses: Some(spec.max_uses.unwrap_or(0)),
        rollout_paused: false,
    }
}

fn change(path: String, before: u32, after: u32) -> ValueChangeOut {
    ValueChangeOut {
        path,
        before: Some(before.to_string()),
        after: Some(after.to_string()),
        entry: false,
    }
}
