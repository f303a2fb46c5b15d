//! RRD data: one point per minute or more, without values for the time before the start.

use serde_json::{Map, Value, json};

use super::context::{CallContext, failed};
use crate::call::{Answer, ApiError, Outcome};

const POINTS_PER_SERIES: u64 = 70;

/// Seconds between two points.
fn step_secs(ctx: &CallContext) -> u64 {
    match ctx.text("timeframe").as_deref() {
        Some("day") => 1_800,
        Some("week") => 10_800,
        Some("month") => 43_200,
        Some("year") => 604_800,
        _ => 60,
    }
}

fn series(ctx: &CallContext, uptime: u64, values: &Map<String, Value>) -> Value {
    let step = step_secs(ctx);
    let now = ctx.cluster.state().clock.unix() / step * step;
    let point = |back: u64| {
        let mut point = Map::from_iter([("time".to_owned(), Value::from(now - back * step))]);
        if back * step <= uptime {
            point.extend(values.clone());
        }
        Value::from(point)
    };
    (1..=POINTS_PER_SERIES).rev().map(point).collect()
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
pub(crate) fn node(ctx: &CallContext) -> Outcome {
    let (values, uptime) = {
        let state = ctx.cluster.state();
        let Some(node) = state.nodes.get(&ctx.node) else {
            return Err(ApiError::failed(format!("no such node '{}'", ctx.node)));
        };
        let values = json!({
            "cpu": 0.1, "maxcpu": node.spec.cpus, "iowait": 0.0, "loadavg": 0.5,
            "memtotal": node.spec.memory_bytes, "memused": 1_u64 << 30,
            "swaptotal": 0, "swapused": 0, "roottotal": 252_u64 << 30, "rootused": 24_u64 << 30,
            "netin": 0, "netout": 0,
        });
        (values, node.uptime(state.clock.now()))
    };
    Ok(Answer::new(series(ctx, uptime, &fields(values))))
}

/// `GET …/qemu/{vmid}/rrddata`.
pub(crate) fn guest(ctx: &CallContext) -> Outcome {
    let (values, known_secs) = {
        let state = ctx.cluster.state();
        let guest = state.vm(&ctx.node, ctx.vmid).map_err(failed)?;
        let status = guest.status();
        let mut values = json!({
            "maxcpu": status.cpus, "maxmem": status.memory_bytes, "maxdisk": status.disk_bytes, "disk": 0,
        });
        if guest.process.is_some() {
            for key in ["cpu", "mem", "netin", "netout", "diskread", "diskwrite"] {
                values[key] = 0.into();
            }
        }
        let known_secs = state.clock.now().as_secs();
        (values, known_secs)
    };
    Ok(Answer::new(series(ctx, known_secs, &fields(values))))
}

/// `GET …/storage/{storage}/rrddata`.
pub(crate) fn storage(ctx: &CallContext) -> Outcome {
    let name = ctx.text("storage").unwrap_or_default();
    let (values, known_secs) = {
        let state = ctx.cluster.state();
        let storage = state.storage(&name).map_err(failed)?;
        let used = storage.used(&ctx.node);
        (json!({ "total": storage.spec.size_bytes, "used": used }), state.clock.now().as_secs())
    };
    Ok(Answer::new(series(ctx, known_secs, &fields(values))))
}
