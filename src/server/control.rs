//! Commands of operators to the service itself: reap, resync, reload, the log's level.

use std::collections::BTreeMap;

use actix_web::{HttpResponse, web};
use drover_actors::message::{HerdCommand, Refusal};
use drover_api::{
    FoundOut, LogLevelIn, Nothing, Problem, ReapIn, ReapOut, ReloadOut, ResyncIn, ResyncOut,
    ResyncPlanOut, Role, UnreadOut,
};
use drover_model::finding::{Finding, Outcome};
use drover_model::id::{CloudId, ClusterId};
use drover_model::phase::CloudHealth;

use super::auth::Caller;
use super::body::Fields;
use super::problem::Rejection;
use super::shapes::Shown;
use super::state::{NotReloaded, State};
use crate::view::View;

impl Shown<FoundOut> for Finding {
    fn shown(&self) -> FoundOut {
        let vmid = self.vmid.map(|vmid| vmid.0);
        FoundOut { does: self.does.name().to_owned(), vmid, why: self.text.clone() }
    }
}

/// The role that a reload needs, also as a part of something else.
pub(super) const RELOAD: Role = Role::Admin;

type Body = Result<web::Bytes, actix_web::Error>;

#[utoipa::path(post, path = "/v1/reap", request_body = ReapIn, responses((status = 200, body = ReapOut)))]
pub(super) async fn reap(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<ReapOut>, Rejection> {
    let mut fields = Fields::<ReapIn>::parse(body)?;
    fields.flag("all");
    let ReapIn { all } = fields.finish()?;
    let retired = state.ask(state.limits.reply, |reply| HerdCommand::Reap { all, reply }).await?;
    let also = if all { ", the warm minimum too" } else { "" };
    state.report_order(&caller, format!("reaped idle agents{also}: {retired} retire"));
    Ok(web::Json(ReapOut { retired }))
}

/// Reloads and reconciles every cluster. A configuration that is refused stops only the reload; for
/// a caller who may not reload, `refused` says so, and every cluster is reconciled all the same.
#[utoipa::path(post, path = "/v1/resync", request_body = ResyncIn, responses((status = 200, body = ResyncOut)))]
pub(super) async fn resync(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<ResyncOut>, Rejection> {
    let mut fields = Fields::<ResyncIn>::parse(body)?;
    fields.flag("confirmOlderJournal");
    fields.flag("confirmMachine");
    let ResyncIn { confirm_older_journal, confirm_machine } = fields.finish()?;
    if confirm_older_journal {
        state.doors.herd.do_send(HerdCommand::ConfirmOlderJournal);
    }
    if confirm_machine {
        state.doors.herd.do_send(HerdCommand::ConfirmMachine);
    }
    let refused = if caller.role >= RELOAD {
        (state.doors.reload)().await.err().map(|fault| fault.to_string())
    } else {
        let (principal, role) = (&caller.principal, caller.role);
        Some(format!("a reload needs the role {RELOAD}, and `{principal}` has the role {role}"))
    };
    let found = state.ask(state.limits.resync, |reply| HerdCommand::Resync { reply }).await?;
    let (clusters, unread) = parted(&state.doors.view, found, |line| line);
    state.report_order(&caller, "resynced every cluster".to_owned());
    Ok(web::Json(ResyncOut { clusters, unread, refused }))
}

/// Says what a reconciliation would do now with the configuration in force, and does nothing.
#[utoipa::path(get, path = "/v1/resync", responses((status = 200, body = ResyncPlanOut)))]
pub(super) async fn plan_resync(
    state: web::Data<State>,
) -> Result<web::Json<ResyncPlanOut>, Rejection> {
    let found = state.ask(state.limits.resync, |reply| HerdCommand::PlanResync { reply }).await?;
    let (clusters, unread) = parted(&state.doors.view, found, |one: Finding| one.shown());
    Ok(web::Json(ResyncPlanOut { clusters, unread }))
}

/// What could not be read through a cloud, with the cluster that it leads to.
pub(super) fn unread_cloud(view: &View, cloud: &CloudId, why: String) -> UnreadOut {
    let known = view.clouds().into_iter().find(|one| one.cloud == *cloud);
    let cluster = known.and_then(|one| one.cluster);
    let cluster = cluster.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    UnreadOut { cluster, cloud: Some(cloud.to_string()), why }
}

/// Parts what was found in clusters from why others could not be read.
fn parted<F, T>(
    view: &View,
    outcomes: BTreeMap<ClusterId, Outcome<F>>,
    shown: impl Fn(F) -> T,
) -> (BTreeMap<String, Vec<T>>, Vec<UnreadOut>) {
    let (mut clusters, mut unread) = (BTreeMap::new(), Vec::new());
    // Only clusters that were reached since the start can be asked.
    for cloud in view.clouds().into_iter().filter(|cloud| cloud.health == CloudHealth::Degraded) {
        if cloud.cluster.as_ref().is_none_or(|cluster| !outcomes.contains_key(cluster)) {
            unread.push(unread_cloud(view, &cloud.cloud, cloud.detail));
        }
    }
    for (cluster, outcome) in outcomes {
        let cluster = cluster.to_string();
        match outcome {
            Ok(found) => {
                clusters.insert(cluster, found.into_iter().map(&shown).collect());
            }
            Err(why) => unread.push(UnreadOut { cluster, cloud: None, why }),
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
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<ReloadOut>, Rejection> {
    Fields::<Nothing>::parse(body)?.finish()?;
    match (state.doors.reload)().await {
        Ok(generation) => {
            state.report_order(&caller, "reloaded the configuration".to_owned());
            let due = state.doors.view.restart_due();
            Ok(web::Json(ReloadOut {
                generation,
                path: state.doors.configuration.clone(),
                restart_due: due.into_iter().map(str::to_owned).collect(),
            }))
        }
        Err(NotReloaded::Unknown(text)) => Err(Rejection::refused(Refusal::Unavailable(text))),
        Err(NotReloaded::Refused(faults)) => Err(Rejection::of_configuration(faults)),
    }
}

#[utoipa::path(
    put, path = "/v1/log-level", request_body = LogLevelIn,
    responses((status = 204, description = "it is set"), (status = 400, body = Problem))
)]
pub(super) async fn log_level(
    state: web::Data<State>,
    body: Body,
) -> Result<HttpResponse, Rejection> {
    let mut fields = Fields::<LogLevelIn>::parse(body)?;
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
