//! Figures over time: a point a minute (or more), without values for when nobody wrote any down.

use serde_json::{Map, Value, json};

use super::ask::{Ask, failed};
use crate::call::{Answer, ApiError, Outcome};

/// Points of a series.
const POINTS: u64 = 70;

/// The seconds between two points.
fn step(ask: &Ask) -> u64 {
    match ask.text("timeframe").as_deref() {
        Some("day") => 1_800,
        Some("week") => 10_800,
        Some("month") => 43_200,
        Some("year") => 604_800,
        _ => 60,
    }
}

fn series(ask: &Ask, uptime: u64, values: &Map<String, Value>) -> Value {
    let step = step(ask);
    let now = ask.cluster.state().clock.unix() / step * step;
    let point = |back: u64| {
        let mut point = Map::from_iter([("time".to_owned(), Value::from(now - back * step))]);
        if back * step <= uptime {
            point.extend(values.clone());
        }
        Value::from(point)
    };
    (1..=POINTS).rev().map(point).collect()
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// `GET /nodes/{node}/rrddata`.
pub fn node(ask: &Ask) -> Outcome {
    let (values, uptime) = {
        let state = ask.cluster.state();
        let Some(node) = state.nodes.get(&ask.node) else {
            return Err(ApiError::failed(format!("no such node '{}'", ask.node)));
        };
        let values = json!({
            "cpu": 0.1, "maxcpu": node.spec.cpus, "iowait": 0.0, "loadavg": 0.5,
            "memtotal": node.spec.memory_bytes, "memused": 1_u64 << 30,
            "swaptotal": 0, "swapused": 0, "roottotal": 252_u64 << 30, "rootused": 24_u64 << 30,
            "netin": 0, "netout": 0,
        });
        (values, node.uptime(state.clock.now()))
    };
    Ok(Answer::new(series(ask, uptime, &fields(values))))
}

/// `GET …/qemu/{vmid}/rrddata`.
pub fn guest(ask: &Ask) -> Outcome {
    let (values, known) = {
        let state = ask.cluster.state();
        let guest = state.guest(&ask.node, ask.vmid).map_err(failed)?;
        let view = guest.view();
        let mut values = json!({
            "maxcpu": view.cpus, "maxmem": view.memory, "maxdisk": view.disk, "disk": 0,
        });
        if guest.run.is_some() {
            for key in ["cpu", "mem", "netin", "netout", "diskread", "diskwrite"] {
                values[key] = 0.into();
            }
        }
        let known = state.clock.now().as_secs();
        (values, known)
    };
    Ok(Answer::new(series(ask, known, &fields(values))))
}

/// `GET …/storage/{storage}/rrddata`.
pub fn storage(ask: &Ask) -> Outcome {
    let name = ask.text("storage").unwrap_or_default();
    let (values, known) = {
        let state = ask.cluster.state();
        let storage = state.storage(&name).map_err(failed)?;
        let used = storage.used(&ask.node);
        (json!({ "total": storage.spec.size_bytes, "used": used }), state.clock.now().as_secs())
    };
    Ok(Answer::new(series(ask, known, &fields(values))))
}
