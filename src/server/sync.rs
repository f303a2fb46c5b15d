//! The part of the configuration that git manages.

use actix_web::web;
use drover_actors::message::Refusal;
use drover_api::{
    Nothing, PlanIn, PlanOut, PlanPart, Problem, Role, SyncDoneOut, SyncIn, SyncOut, SyncTestOut,
};

use super::auth::Caller;
use super::body::Fields;
use super::drift;
use super::problem::Rejection;
use super::state::{NotSynced, State};

/// The largest body of a plan: a configuration, and the files that it names.
pub(super) const PLAN_LIMIT: usize = 8 << 20;
/// The most files of a plan.
const PLAN_FILES: usize = 128;
/// The longest id of a commit, in characters.
const COMMIT_MAX: usize = 64;

type Body = Result<web::Bytes, actix_web::Error>;

impl From<NotSynced> for Rejection {
    fn from(why: NotSynced) -> Self {
        match why {
            NotSynced::Refused(faults) => Self::of_configuration(faults),
            NotSynced::Off(text) => Self::refused(Refusal::Conflict(text)),
            NotSynced::Failed(text) => Self::of_git(text),
            NotSynced::Unknown(text) => Self::refused(Refusal::Unknown(text)),
            NotSynced::Unavailable(text) => Self::refused(Refusal::Unavailable(text)),
        }
    }
}

#[utoipa::path(
    get, path = "/v1/sync",
    responses(
        (status = 200, body = SyncOut),
        (status = 404, body = Problem, description = "no repository is configured"),
    )
)]
pub(super) async fn show(state: web::Data<State>) -> Result<web::Json<SyncOut>, Rejection> {
    let off = "`service.configSync` is not configured, so git manages nothing";
    let sync = drift::sync(&state.doors.view);
    sync.map(web::Json).ok_or_else(|| Rejection::refused(Refusal::Unknown(off.to_owned())))
}

#[utoipa::path(
    post, path = "/v1/sync", request_body = SyncIn,
    responses(
        (status = 200, body = SyncDoneOut),
        (status = 404, body = Problem, description = "there is no such commit"),
        (status = 409, body = Problem, description = "no repository is configured"),
        (status = 422, body = Problem, description = "what git has is refused; the old configuration stays"),
        (status = 502, body = Problem, description = "git could not be read; the old configuration stays"),
        (status = 503, body = Problem, description = "other syncs wait, or the service stops"),
    )
)]
pub(super) async fn sync(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<SyncDoneOut>, Rejection> {
    let mut fields = Fields::<SyncIn>::parse(body)?;
    let to = fields.text("to", COMMIT_MAX);
    fields.flag("back");
    let asked: SyncIn = fields.finish()?;
    if asked.back && to.is_some() {
        let text = "`to` and `back` contradict: give one of them";
        return Err(Rejection::refused(Refusal::Conflict(text.to_owned())));
    }
    let what = match (&asked.to, asked.back) {
        (Some(to), _) => format!("returned the configuration to commit {to}"),
        (None, true) => "returned the configuration to the commit before".to_owned(),
        (None, false) => "synced the configuration with git".to_owned(),
    };
    let done = (state.doors.sync)(asked).await?;
    state.report_order(&caller, what);
    Ok(web::Json(done))
}

#[utoipa::path(
    post, path = "/v1/sync/test",
    responses(
        (status = 200, body = SyncTestOut),
        (status = 409, body = Problem, description = "no repository is configured"),
        (status = 503, body = Problem, description = "other syncs wait, or the service stops"),
    )
)]
pub(super) async fn test(
    state: web::Data<State>,
    body: Body,
) -> Result<web::Json<SyncTestOut>, Rejection> {
    Fields::<Nothing>::parse(body)?.finish()?;
    Ok(web::Json((state.doors.test_sync)().await?))
}

/// Says what a configuration would do, and changes nothing. Without files it is what the branch has.
/// Files in place of the machine's own configuration need the role admin, since they may name secrets.
#[utoipa::path(
    post, path = "/v1/plan", request_body = PlanIn,
    responses(
        (status = 200, body = PlanOut),
        (status = 403, body = Problem, description = "the files are the machine's own, and the caller is no admin"),
        (status = 404, body = Problem, description = "no repository is configured and no file is given, or a path is wrong"),
        (status = 422, body = Problem, description = "the configuration has faults"),
        (status = 502, body = Problem, description = "git could not be read"),
        (status = 503, body = Problem, description = "other syncs wait, or the service stops"),
    )
)]
pub(super) async fn plan(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
    body: Body,
) -> Result<web::Json<PlanOut>, Rejection> {
    let mut fields = Fields::<PlanIn>::parse_large(body, PLAN_LIMIT)?;
    fields.word("part", &["git", "local"]);
    fields.texts_by_name("files", PLAN_FILES);
    let asked: PlanIn = fields.finish()?;
    let by_git = state.doors.view.sync().is_some() && asked.part == PlanPart::Git;
    if !asked.files.is_empty() && !by_git && caller.role < Role::Admin {
        let text = "a plan of the machine's own configuration needs the role admin";
        return Err(Rejection::refused(Refusal::Forbidden(text.to_owned())));
    }
    Ok(web::Json((state.doors.plan)(asked).await?))
}
