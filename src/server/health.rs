//! Liveness and readiness, open to all.

use actix_web::http::StatusCode;
use actix_web::web;
use drover_api::Problem;
use serde_json::{Value, json};

use super::problem::Rejection;
use super::state::State;

#[utoipa::path(
    get, path = "/healthz",
    responses((status = 200, description = "the actors turn"), (status = 503, body = Problem))
)]
pub(super) async fn healthz(state: web::Data<State>) -> Result<web::Json<Value>, Rejection> {
    alive(&state)?;
    Ok(web::Json(json!({ "status": "alive" })))
}

fn alive(state: &State) -> Result<(), Rejection> {
    if (state.doors.alive)() {
        return Ok(());
    }
    Err(Rejection::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "stuck",
        "the actors do not turn",
        "the actors' thread has not answered in time; the watchdog restarts the service",
    ))
}

#[utoipa::path(
    get, path = "/leaderz",
    responses(
        (status = 200, description = "this drover leads, or stands alone"),
        (status = 503, body = Problem, description = "this member stands by, or cannot reach its store")
    )
)]
pub(super) async fn leaderz(state: web::Data<State>) -> Result<web::Json<Value>, Rejection> {
    led(&state)?;
    Ok(web::Json(json!({ "status": "leader", "alone": state.key.is_none() })))
}

fn led(state: &State) -> Result<(), Rejection> {
    if (state.doors.leads)() {
        return Ok(());
    }
    Err(Rejection::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "cut-off",
        "this member cannot reach its store",
        "it changes nothing until the store answers; another member may lead meanwhile",
    ))
}

#[utoipa::path(
    get, path = "/readyz",
    responses((status = 200, description = "ready for work"), (status = 503, body = Problem))
)]
pub(super) async fn readyz(state: web::Data<State>) -> Result<web::Json<Value>, Rejection> {
    alive(&state)?;
    led(&state)?;
    if let Some(trouble) = state.doors.view.journal_trouble() {
        return Err(Rejection::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "journal",
            "the journal cannot be written",
            format!("nothing new is started until it can: {trouble}"),
        ));
    }
    let readiness = state.doors.view.readiness();
    let missing = match (readiness.journal_folded, readiness.clouds_tried) {
        (true, true) => return Ok(web::Json(json!({ "status": "ready" }))),
        (false, _) => "the journal is not folded yet",
        (true, false) => "not every cloud was tried yet",
    };
    Err(Rejection::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "not-ready",
        "the service is starting",
        format!("{missing}; try again shortly"),
    ))
}
