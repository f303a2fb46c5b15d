//! A template's `schedule`: times in which more agents are kept.

use std::time::Duration;

use drover_model::spec::WindowSpec;
use serde::Deserialize;

use super::fault::Fault;
use super::keys::WINDOW;
use super::layer::Layer;

/// An item of `schedule`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawWindow {
    cron: String,
    duration_minutes: u64,
    time_zone: String,
    instance_min: u32,
    idle_min: u32,
}

/// The windows of a template, whose `instanceCap` is `cap`.
pub(super) fn windows(cap: u32, layer: &Layer, faults: &mut Vec<Fault>) -> Vec<WindowSpec> {
    let mut windows = Vec::new();
    for (at, item) in layer.nested("schedule").iter().enumerate() {
        let before = faults.len();
        let Some(window) = item.typed::<RawWindow>(WINDOW.keys, faults) else { continue };
        windows.push(window_of(&window));
        if faults.len() > before {
            continue;
        }
        let highest = window.instance_min.max(window.idle_min);
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

fn window_of(raw: &RawWindow) -> WindowSpec {
    WindowSpec {
        cron: raw.cron.clone(),
        duration: Duration::from_secs(raw.duration_minutes * 60),
        time_zone: raw.time_zone.clone(),
        minimum: raw.instance_min,
        idle_minimum: raw.idle_min,
    }
}
