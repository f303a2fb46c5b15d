//! Machines of agents: a look at one, orders to it, its snapshots.
//!
//! `…/agents/{id}/…` and `…/leases/{id}/…` (`leased.rs`) take the same bodies and give the same answers.
//! An order is answered once it is durable; how it ends is asked for by its id.

pub(super) mod leased;
pub(super) mod order_end;

use std::collections::BTreeSet;

use actix_web::{HttpResponse, web};
use drover_actors::message::{HerdCommand, MachineSeen, Target};
use drover_api::{
    ConfigOutValue, LoadOut, MachineOut, OrderIn, OrderOut, PowerIn, Problem, ResizeIn, SnapshotIn,
    SnapshotOut, SnapshotsOut,
};
use drover_model::id::AgentId;
use drover_model::order::{SnapshotView, Work, is_own_snapshot};
use drover_model::phase::Power;
use drover_model::size::Size;
use drover_model::time::WallTime;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::auth::Caller;
use super::body::{Fields, unfit};
use super::leases::key_hash;
use super::problem::Rejection;
use super::query::{Keys, Query};
use super::shapes::{self, rfc3339};
use super::state::State;

type Body = Result<web::Bytes, actix_web::Error>;
type Caught = web::ReqData<Caller>;

/// The most characters of an idempotency key.
const KEY_CHARS: usize = 255;

/// The largest number that a size may have; the herd knows the limits of each.
const SIZE_MOST: u64 = u32::MAX as u64;

/// Looks at the machine of an agent.
#[utoipa::path(
    get, path = "/v1/agents/{id}/machine", params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 200, body = MachineOut),
        (status = 403, body = Problem, description = "a lease or hold of somebody else is on it"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it has no machine yet"),
        (status = 503, body = Problem, description = "its cluster cannot be asked"),
    )
)]
pub(super) async fn show(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
) -> Result<web::Json<MachineOut>, Rejection> {
    shown(&state, &caller, of_agent(&id)).await
}

/// Switches the machine of an agent.
#[utoipa::path(
    post, path = "/v1/agents/{id}/power", request_body = PowerIn,
    params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "a lease or hold of somebody else is on it"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "it is neither leased nor held, or has an order"),
    )
)]
pub(super) async fn power(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    ordered(&state, &caller, of_agent(&id), read_power(body)?).await
}

/// Gives the machine of an agent other sizes.
#[utoipa::path(
    post, path = "/v1/agents/{id}/reconfigure", request_body = ResizeIn,
    params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "somebody else's, or beyond a quota"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "a smaller disk, no room on its node, or an order runs"),
    )
)]
pub(super) async fn reconfigure(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    ordered(&state, &caller, of_agent(&id), read_resize(body)?).await
}

/// Lists the snapshots of the machine of an agent.
#[utoipa::path(
    get, path = "/v1/agents/{id}/snapshots", params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 200, body = SnapshotsOut),
        (status = 403, body = Problem), (status = 404, body = Problem),
    )
)]
pub(super) async fn snapshots(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
) -> Result<web::Json<SnapshotsOut>, Rejection> {
    listed(&state, &caller, of_agent(&id)).await
}

/// Takes a snapshot of the machine of an agent.
#[utoipa::path(
    post, path = "/v1/agents/{id}/snapshots", request_body = SnapshotIn,
    params(("id" = String, Path, description = "the agent")),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(super) async fn take(
    state: web::Data<State>,
    caller: Caught,
    id: web::Path<String>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    ordered(&state, &caller, of_agent(&id), read_snapshot(body)?).await
}

/// Deletes a snapshot of the machine of an agent.
#[utoipa::path(
    delete, path = "/v1/agents/{id}/snapshots/{name}",
    params(
        ("id" = String, Path, description = "the agent"),
        ("name" = String, Path, description = "the snapshot"),
        ("idempotencyKey" = Option<String>, Query, description = "the same key and order answer the same order"),
    ),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(super) async fn delete(
    state: web::Data<State>,
    caller: Caught,
    path: web::Path<(String, String)>,
    Query(keyed): Query<Keyed>,
) -> Result<HttpResponse, Rejection> {
    let (id, name) = path.into_inner();
    ordered(&state, &caller, of_agent(&id), read_delete(name, keyed)?).await
}

/// Puts the machine of an agent back to a snapshot; it runs afterwards.
#[utoipa::path(
    post, path = "/v1/agents/{id}/snapshots/{name}/revert", request_body = OrderIn,
    params(
        ("id" = String, Path, description = "the agent"),
        ("name" = String, Path, description = "the snapshot"),
    ),
    responses(
        (status = 202, body = OrderOut, description = "the order is written down"),
        (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem),
    )
)]
pub(super) async fn revert(
    state: web::Data<State>,
    caller: Caught,
    path: web::Path<(String, String)>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    let (id, name) = path.into_inner();
    ordered(&state, &caller, of_agent(&id), read_revert(name, body)?).await
}

fn of_agent(id: &str) -> Target {
    Target::Agent(AgentId::new(id))
}

/// An order as it is asked for, with its idempotency key.
type Asked = (Work, Option<String>);

fn read_key<T: DeserializeOwned>(fields: &mut Fields<T>) -> Option<String> {
    fields.text("idempotencyKey", KEY_CHARS)
}

fn check<T: DeserializeOwned>(fields: &mut Fields<T>, work: &Work) {
    if let Err((field, fault)) = work.check() {
        fields.fault(field, fault);
    }
}

fn read_power(body: Body) -> Result<Asked, Rejection> {
    let mut fields = Fields::<PowerIn>::parse(body)?;
    let action = fields.text("action", 255);
    let key = read_key(&mut fields);
    let work = action.as_deref().and_then(Work::of_power);
    if work.is_none() && !fields.has_faults() {
        let text = "must be start, stop, shutdown, reboot, reset, suspend or resume";
        fields.fault("action", text);
    }
    fields.finish()?;
    let missing = || Rejection::invalid("`action` is missing");
    Ok((work.ok_or_else(missing)?, key))
}

fn read_snapshot(body: Body) -> Result<Asked, Rejection> {
    let mut fields = Fields::<SnapshotIn>::parse(body)?;
    let name = fields.text("name", 255);
    let description = fields.text("description", 500).unwrap_or_default();
    fields.flag("memory");
    let key = read_key(&mut fields);
    match &name {
        Some(name) => {
            let (name, description) = (name.clone(), description.clone());
            check(&mut fields, &Work::Snapshot { name, description, memory: false });
        }
        None if !fields.has_faults() => fields.fault("name", "is missing; name the snapshot"),
        None => {}
    }
    let SnapshotIn { name, memory, .. } = fields.finish()?;
    Ok((Work::Snapshot { name, description, memory }, key))
}

/// The key of an order without a body: proxies may drop the body of a DELETE.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Keyed {
    idempotency_key: Option<String>,
}

impl Keys for Keyed {
    const TAKEN: &'static str = "`idempotencyKey` is taken";
}

fn read_delete(name: String, keyed: Keyed) -> Result<Asked, Rejection> {
    let key = keyed.idempotency_key;
    if let Some(why) = key.as_ref().and_then(|key| unfit(key, KEY_CHARS)) {
        return Err(Rejection::invalid(format!("`idempotencyKey` {why}")));
    }
    Ok((named(Work::DeleteSnapshot { name })?, key))
}

fn read_revert(name: String, body: Body) -> Result<Asked, Rejection> {
    let mut fields = Fields::<OrderIn>::parse(body)?;
    let key = read_key(&mut fields);
    fields.finish()?;
    Ok((named(Work::Revert { name })?, key))
}

/// Work on the snapshot that a path names, where it can have that name.
fn named(work: Work) -> Result<Work, Rejection> {
    match work.check() {
        Ok(()) => Ok(work),
        Err((_, fault)) => Err(Rejection::invalid(format!("the snapshot's name {fault}"))),
    }
}

fn read_resize(body: Body) -> Result<Asked, Rejection> {
    let mut fields = Fields::<ResizeIn>::parse(body)?;
    let mut size = |field| fields.count(field, SIZE_MOST).and_then(|size| u32::try_from(size).ok());
    let sizes =
        Size { cores: size("cores"), memory_mb: size("memoryMb"), disk_gb: size("diskSizeGb") };
    let key = read_key(&mut fields);
    let work = Work::Resize(sizes);
    if !fields.has_faults() {
        check(&mut fields, &work);
    }
    fields.finish()?;
    Ok((work, key))
}

/// Asks for an order, and answers once it is durable.
async fn ordered(
    state: &State,
    caller: &Caller,
    target: Target,
    (work, key): Asked,
) -> Result<HttpResponse, Rejection> {
    let by = caller.by();
    let key = key.map(|key| key_hash(&caller.principal, &key));
    let command = |reply| HerdCommand::Order { target, work, key, by, reply };
    // A resize reads its cluster first.
    let ordered = state.ask(state.limits.resync, command).await?.map_err(Rejection::refused)?;
    Ok(HttpResponse::Accepted().json(shapes::order(&ordered.agent, &ordered.status)))
}

async fn look(state: &State, caller: &Caller, target: Target) -> Result<MachineSeen, Rejection> {
    let by = caller.by();
    let command = |reply| HerdCommand::Machine { target, by, reply };
    state.ask(state.limits.resync, command).await?.map_err(Rejection::refused)
}

async fn shown(
    state: &State,
    caller: &Caller,
    target: Target,
) -> Result<web::Json<MachineOut>, Rejection> {
    let MachineSeen { agent, template, cluster, cloud, view: seen } =
        look(state, caller, target).await?;
    let known = state.doors.view.agent(&agent);
    let used = known.as_ref().and_then(|status| status.address.clone());
    let machine = known.map(|status| status.machine.clone()).unwrap_or_default();
    let mut addresses: Vec<String> = seen.addresses.iter().map(ToString::to_string).collect();
    // drover logs in at an address also where the guest agent reports none.
    if addresses.is_empty() && seen.power == Power::Running && machine.expects_running() {
        addresses.extend(used);
    }
    let config = seen.config.into_iter().map(|one| ConfigOutValue {
        key: one.key,
        value: one.value,
        pending: one.pending,
        deleted: one.deleted,
    });
    Ok(web::Json(MachineOut {
        template: template.to_string(),
        cloud: cloud.to_string(),
        cluster: cluster.to_string(),
        node: seen.node.to_string(),
        vmid: seen.vmid.0,
        state: seen.power,
        proxmox_state: seen.word,
        ordered_state: machine.power,
        lock: seen.lock,
        uptime_seconds: seen.uptime_secs,
        load: LoadOut {
            cpu: seen.cpu,
            cpus: seen.cpus,
            memory_used_bytes: seen.memory_used,
            memory_bytes: seen.memory,
        },
        no_address: seen.no_address.filter(|_| addresses.is_empty()),
        addresses,
        console_url: seen.console_url,
        config: config.collect(),
        snapshots: seen.snapshots.iter().filter(|one| !is_own_snapshot(&one.name)).count(),
        orders: machine.all().iter().map(|status| shapes::order(&agent, status)).collect(),
        agent: agent.to_string(),
    }))
}

async fn listed(
    state: &State,
    caller: &Caller,
    target: Target,
) -> Result<web::Json<SnapshotsOut>, Rejection> {
    let MachineSeen { agent, view: seen, .. } = look(state, caller, target).await?;
    let parent = seen.parent;
    let shown = in_order(seen.snapshots).into_iter().map(|one| SnapshotOut {
        taken_at: one.taken.and_then(|at| i64::try_from(at).ok()).map(|at| {
            let at = WallTime(at.saturating_mul(1000));
            rfc3339(at)
        }),
        current: parent.as_deref() == Some(one.name.as_str()),
        own: is_own_snapshot(&one.name),
        description: one.description,
        memory: one.memory,
        parent: one.parent,
        unfinished: one.unfinished,
        name: one.name,
    });
    Ok(web::Json(SnapshotsOut { agent: agent.to_string(), snapshots: shown.collect() }))
}

/// Snapshots by the time they were taken, each behind the one that it comes from.
fn in_order(mut all: Vec<SnapshotView>) -> Vec<SnapshotView> {
    all.sort_by(|a, b| (a.taken, &a.name).cmp(&(b.taken, &b.name)));
    let names: BTreeSet<String> = all.iter().map(|one| one.name.clone()).collect();
    let mut placed: Vec<SnapshotView> = Vec::new();
    while !all.is_empty() {
        let is_placed = |one: &SnapshotView| {
            let parent = one.parent.as_ref().filter(|parent| names.contains(*parent));
            parent.is_none_or(|parent| placed.iter().any(|before| before.name == *parent))
        };
        // Where parents go round in circles, time alone counts.
        let next = all.iter().position(is_placed).unwrap_or(0);
        placed.push(all.remove(next));
    }
    placed
}
