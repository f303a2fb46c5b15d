//! A template's `schedule`: windows of time with higher minimums.

use std::time::Duration;

use drover_model::spec::WindowSpec;

use super::fault::Fault;
use super::keys::RawWindow;
use super::layer::Layer;

/// The windows of a template, whose `instanceCap` is `cap`.
pub(super) fn windows(cap: u32, layer: &Layer, faults: &mut Vec<Fault>) -> Vec<WindowSpec> {
    let mut windows = Vec::new();
    for (at, item) in layer.nested("schedule").iter().enumerate() {
        let before = faults.len();
        let Some(raw) = item.typed::<RawWindow>(faults) else { continue };
        let highest = raw.instance_min.max(raw.idle_min);
        windows.push(WindowSpec {
            cron: raw.cron,
            duration: Duration::from_secs(raw.duration_minutes * 60),
            time_zone: raw.time_zone,
            minimum: raw.instance_min,
            idle_minimum: raw.idle_min,
        });
        if faults.len() > before {
            continue;
        }
        if highest == 0 {
            let fault = layer.item_fault("schedule", at, "this window keeps no agents");
            faults.push(fault.help("give instanceMin or idleMin"));
        } else if cap > 0 && highest > cap {
            let message = format!("`{highest}` exceeds instanceCap, {cap}");
            let fault = layer.item_fault("schedule", at, message);
            faults.push(fault.help("lower instanceMin and idleMin, or raise instanceCap"));
        }
    }
    windows
}
