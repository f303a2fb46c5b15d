//! The configuration of metric servers (pve-manager, API2/Cluster/MetricServer.pm). The simulator
//! sends no metrics and opens no connection.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::conf::{self, Config, digest};
use super::context::{CallContext, failed};
use super::sections::{self, Keys};
use crate::call::{Answer, Outcome};
use crate::spec::PveVersion;

/// The servers by id.
pub(crate) type MetricServers = BTreeMap<String, Config>;

/// The key that answers never show.
const SECRET_KEY: &str = "token";

/// The keys of a server of this type (pve-manager, Status/*.pm, options); an error for an unknown
/// type.
fn keys(kind: &str, version: PveVersion) -> Result<Keys, String> {
    let (required, more): (&'static [&'static str], &'static [&'static str]) = match kind {
        "graphite" => (&["server"], &["mtu", "path", "port", "proto", "timeout"]),
        "influxdb" => (
            &["port", "server"],
            &[
                "api-path-prefix",
                "bucket",
                "influxdbproto",
                "max-body-size",
                "mtu",
                "organization",
                "timeout",
                "verify-certificate",
            ],
        ),
        "opentelemetry" if version == PveVersion::V9_2 => (
            &["server"],
            &[
                "otel-compression",
                "otel-headers",
                "otel-max-body-size",
                "otel-path",
                "otel-protocol",
                "otel-resource-attributes",
                "otel-timeout",
                "otel-verify-ssl",
                "port",
            ],
        ),
        _ => return Err(format!("unknown section type '{kind}'")),
    };
    Ok(Keys { required, optional: &["disable"], more, fixed: &[] })
}

fn typed(key: &str, text: &str) -> Value {
    sections::typed(|path| path == "/cluster/metrics/server/{id}", key, text)
}

/// `GET /cluster/metrics/server`: the address of each server and whether it is disabled.
pub(crate) fn list(ctx: &CallContext) -> Outcome {
    let state = ctx.cluster.state();
    let line = |(id, own): (&String, &Config)| {
        let of = |key: &str| own.get(key).map(|text| typed(key, text));
        json!({
            "id": id, "type": of("type"), "server": of("server"), "port": of("port"),
            "disable": u8::from(conf::flag(own, "disable")),
        })
    };
    Ok(Answer::new(state.metrics.iter().map(line).collect()))
}

/// `GET /cluster/metrics/server/{id}`.
pub(crate) fn get(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    match ctx.cluster.state().metrics.get(&id) {
        Some(own) => {
            let fields: Map<String, Value> =
                own.iter().map(|(key, text)| (key.clone(), typed(key, text))).collect();
            Ok(Answer::new(fields.into()))
        }
        None => Err(failed(format!("status server entry '{id}' does not exist"))),
    }
}

/// `POST /cluster/metrics/server/{id}`.
pub(crate) fn create(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    let set = sections::stored_parameters(ctx, &["id", SECRET_KEY]);
    let kind = set.get("type").map(String::as_str).unwrap_or_default();
    let keys = keys(kind, ctx.cluster.version).map_err(failed)?;
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    if state.metrics.contains_key(&id) {
        return Err(failed(format!("Metric server '{id}' already exists")));
    }
    keys.check_new(&set).map_err(failed)?;
    state.metrics.insert(id, set);
    Ok(Answer::null())
}

/// `PUT /cluster/metrics/server/{id}`.
pub(crate) fn change(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    let set = sections::stored_parameters(ctx, &["id", "digest", "delete", SECRET_KEY]);
    let mut deleted = sections::deleted_keys(ctx);
    deleted.retain(|key| key != SECRET_KEY);
    ctx.require_quorum()?;
    let mut state = ctx.cluster.state();
    let all = state.metrics.iter().map(|(id, own)| (id.clone(), format!("{own:?}")));
    let now = digest(&all.collect::<Config>());
    if ctx.text("digest").is_some_and(|wanted| wanted != now) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(failed(text.into()));
    }
    let Some(own) = state.metrics.get_mut(&id) else {
        return Err(failed(format!("no such server '{id}'")));
    };
    let kind = own.get("type").map(String::as_str).unwrap_or_default();
    let keys = keys(kind, ctx.cluster.version).map_err(failed)?;
    keys.check_change(&set).map_err(failed)?;
    keys.check_delete(&deleted).map_err(failed)?;
    sections::check_set_and_delete(ctx, &deleted).map_err(failed)?;
    own.retain(|key, _| !deleted.contains(key));
    own.extend(set);
    Ok(Answer::null())
}

/// `DELETE /cluster/metrics/server/{id}`.
pub(crate) fn remove(ctx: &CallContext) -> Outcome {
    let id = ctx.text("id").unwrap_or_default();
    ctx.require_quorum()?;
    match ctx.cluster.state().metrics.remove(&id) {
        Some(_) => Ok(Answer::null()),
        // Proxmox looks up the type of the missing server.
        None => Err(failed("cannot lookup undefined type!".into())),
    }
}
