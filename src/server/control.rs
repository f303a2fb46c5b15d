//! What operators tell the service itself: reap, resync, reload, the log's level.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, web};
use drover_actors::message::{HerdCommand, Refusal};
use drover_model::finding::{Finding, Outcome};
use drover_model::id::ClusterId;
use drover_model::phase::CloudHealth;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body::Fields;
use super::routes::RELOAD;
use super::{Caller, NotReloaded, Problem, State, UnreadOut};
use crate::view::View;

/// What to reap.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ReapIn {
    /// Whether the warm minimum goes too.
    pub all: bool,
}

/// How to resync.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResyncIn {
    /// Whether orphans may go although the journal is older than the world.
    pub confirm_older_journal: bool,
    /// Whether this machine is the only one with this state directory, which was moved.
    pub confirm_machine: bool,
}

/// What a reap did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReapOut {
    /// Agents told to go.
    pub retired: u32,
}

/// What a reconciliation found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResyncOut {
    /// Findings of each cluster that was read, a line each.
    pub clusters: BTreeMap<String, Vec<String>>,
    /// Clusters that could not be read: nothing was compared there. Absent when all were read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadOut>,
    /// Why the configuration was not reloaded; absent when it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What the next reconciliation would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResyncPlanOut {
    /// What would be done in each cluster that was read, the gravest first.
    pub clusters: BTreeMap<String, Vec<FoundOut>>,
    /// Clusters that could not be read: nobody knows what would be done there. Absent when all were
    /// read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadOut>,
}

/// One thing that a reconciliation found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FoundOut {
    /// `destroy`, `remove`, `retire`, `follow`, `park`, `leave` or `report`.
    pub does: String,
    /// The guest it is about; null when it is about none of its own.
    pub vmid: Option<u32>,
    /// What was found, and why that follows.
    pub why: String,
}

impl From<Finding> for FoundOut {
    fn from(found: Finding) -> Self {
        let vmid = found.vmid.map(|vmid| vmid.0);
        Self { does: found.does.name().to_owned(), vmid, why: found.text }
    }
}

/// What a reload brought into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadOut {
    /// The generation in force.
    pub generation: u64,
}

/// The level of the log.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LogLevelIn {
    /// `error`, `warn`, `info`, `debug`, `trace`, or directives such as `info,proxmox_client=debug`.
    pub level: String,
}

type Body = Result<web::Bytes, actix_web::Error>;

#[utoipa::path(post, path = "/v1/reap", request_body = ReapIn, responses((status = 200, body = ReapOut)))]
pub(super) async fn reap(
    state: web::Data<State>,
    body: Body,
) -> Result<web::Json<ReapOut>, Problem> {
    let mut fields = Fields::parse(body)?;
    let all = fields.flag("all");
    fields.finish()?;
    let retired = state.ask(state.limits.reply, |reply| HerdCommand::Reap { all, reply }).await?;
    Ok(web::Json(ReapOut { retired }))
}

/// Reloads and reconciles every cluster. A configuration that is refused stops only the reload; for
/// a caller who may not reload, `refused` says so, and every cluster is reconciled all the same.
#[utoipa::path(post, path = "/v1/resync", request_body = ResyncIn, responses((status = 200, body = ResyncOut)))]
pub(super) async fn resync(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<ResyncOut>, Problem> {
    let mut fields = Fields::parse(body)?;
    let confirmed = fields.flag("confirmOlderJournal");
    let machine = fields.flag("confirmMachine");
    fields.finish()?;
    if confirmed {
        state.doors.herd.do_send(HerdCommand::ConfirmOlderJournal);
    }
    if machine {
        state.doors.herd.do_send(HerdCommand::ConfirmMachine);
    }
    let refused = if caller.role >= RELOAD {
        (state.doors.reload)().await.err().map(|fault| fault.to_string())
    } else {
        let (principal, role) = (&caller.principal, caller.role);
        Some(format!("a reload needs the role {RELOAD}, and `{principal}` has the role {role}"))
    };
    let found = state.ask(state.limits.resync, |reply| HerdCommand::Resync { reply }).await?;
    let (clusters, unread) = parted(&state.doors.view, found);
    Ok(web::Json(ResyncOut { clusters, unread, refused }))
}

/// Says what a reconciliation would do now with the configuration in force, and does nothing.
#[utoipa::path(get, path = "/v1/resync", responses((status = 200, body = ResyncPlanOut)))]
pub(super) async fn plan_resync(
    state: web::Data<State>,
) -> Result<web::Json<ResyncPlanOut>, Problem> {
    let found = state.ask(state.limits.resync, |reply| HerdCommand::PlanResync { reply }).await?;
    let (clusters, unread) = parted(&state.doors.view, found);
    Ok(web::Json(ResyncPlanOut { clusters, unread }))
}

/// Parts what was found in clusters from why others could not be read.
fn parted<F, T: From<F>>(
    view: &View,
    outcomes: BTreeMap<ClusterId, Outcome<F>>,
) -> (BTreeMap<String, Vec<T>>, Vec<UnreadOut>) {
    let (mut clusters, mut unread) = (BTreeMap::new(), Vec::new());
    // Only clusters that were reached since the start can be asked.
    for cloud in view.clouds().into_iter().filter(|cloud| cloud.health == CloudHealth::Degraded) {
        if cloud.cluster.as_ref().is_none_or(|cluster| !outcomes.contains_key(cluster)) {
            let cluster = cloud.cluster.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
            let why = format!("cloud {}: {}", cloud.cloud, cloud.detail);
            unread.push(UnreadOut { cluster, why });
        }
    }
    for (cluster, outcome) in outcomes {
        let cluster = cluster.to_string();
        match outcome {
            Ok(found) => {
                clusters.insert(cluster, found.into_iter().map(T::from).collect());
            }
            Err(why) => unread.push(UnreadOut { cluster, why }),
        }
    }
    (clusters, unread)
}

#[utoipa::path(
    post, path = "/v1/reload",
    responses(
        (status = 200, body = ReloadOut),
        (status = 422, body = Problem, description = "the file has faults; the old configuration stays"),
        (status = 503, body = Problem, description = "what came of it is not known yet, or the service stops"),
    )
)]
pub(super) async fn reload(
    state: web::Data<State>,
    body: Body,
) -> Result<web::Json<ReloadOut>, Problem> {
    Fields::parse(body)?.finish()?;
    match (state.doors.reload)().await {
        Ok(generation) => Ok(web::Json(ReloadOut { generation })),
        Err(NotReloaded::Unknown(text)) => Err(Problem::refused(Refusal::Unavailable(text))),
        Err(NotReloaded::Refused(faults)) => Err(Problem::of_configuration(faults)),
    }
}

#[utoipa::path(
    put, path = "/v1/log-level", request_body = LogLevelIn,
    responses((status = 204, description = "it is set"), (status = 400, body = Problem))
)]
pub(super) async fn log_level(
    state: web::Data<State>,
    body: Body,
) -> Result<HttpResponse, Problem> {
    let mut fields = Fields::parse(body)?;
    let level = fields.text("level", 1000);
    if let Some(level) = &level {
        if let Err(fault) = (state.doors.log_level)(level) {
            fields.fault("level", fault);
        }
    } else if !fields.has_faults() {
        fields.fault("level", "is missing; give error, warn, info, debug or trace");
    }
    fields.finish()?;
    Ok(HttpResponse::NoContent().finish())
}
